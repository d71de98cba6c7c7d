//! Reads the session files of coding agents into a Threadkeep store.
//!
//! A [`codec::Codec`] knows one agent's format: it recognises a file, places its records in a thread's tree and reads
//! their content. [`segments::Segments`] splits a file into records and whatever stands between them, so that nothing
//! of a damaged file is lost and nothing of it damages its neighbours. [`codecs`] lists the agents that are known.

use std::sync::Arc;

pub mod claude_code;
pub mod codec;
pub mod codex;
pub mod conversation;
pub mod export;
pub mod homes;
pub mod import;
mod json;
pub mod segments;
pub mod writer;

/// All codecs, in the order in which they are asked whether a file is theirs.
pub fn codecs() -> Vec<Arc<dyn codec::Codec>> {
    vec![Arc::new(codex::Codex), Arc::new(claude_code::ClaudeCode)]
}
