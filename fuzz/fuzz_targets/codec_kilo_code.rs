//! Any bytes as a session of kilo-code.
#![no_main]

#[path = "codec/reading.rs"]
mod reading;

libfuzzer_sys::fuzz_target!(|data: &[u8]| reading::check("kilo-code", data));
