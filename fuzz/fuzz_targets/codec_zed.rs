//! Any bytes as a database's rows as lines, of Zed.
#![no_main]

#[path = "codec/reading.rs"]
mod reading;

libfuzzer_sys::fuzz_target!(|data: &[u8]| reading::check("zed", data));
