//! Any bytes as a session of continue.
#![no_main]

#[path = "codec/reading.rs"]
mod reading;

libfuzzer_sys::fuzz_target!(|data: &[u8]| reading::check("continue", data));
