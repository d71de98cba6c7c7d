//! Any bytes as a chat history of Aider.
#![no_main]

#[path = "codec/reading.rs"]
mod reading;

libfuzzer_sys::fuzz_target!(|data: &[u8]| reading::check("aider", data));
