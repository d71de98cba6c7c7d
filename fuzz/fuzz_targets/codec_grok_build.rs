//! Any bytes as a session of grok-build.
#![no_main]

#[path = "codec/reading.rs"]
mod reading;

libfuzzer_sys::fuzz_target!(|data: &[u8]| reading::check("grok-build", data));
