//! Any bytes as a session of vscode-copilot-chat.
#![no_main]

#[path = "codec/reading.rs"]
mod reading;

libfuzzer_sys::fuzz_target!(|data: &[u8]| reading::check("vscode-copilot-chat", data));
