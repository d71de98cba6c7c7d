//! Reads the session files of coding agents into a Threadkeep store.
//!
//! A [`codec::Codec`] knows one agent's format: it recognises a file, places its records in a thread's tree and reads
//! their content. [`segments::Segments`] splits a file into records and whatever stands between them, so that nothing
//! of a damaged file is lost and nothing of it damages its neighbours. [`codecs`] lists the agents that are known.

use std::sync::Arc;

use crate::lines::Lines;

pub mod aider;
mod amp;
mod antigravity;
mod blocks;
pub mod claude_code;
mod cline;
pub mod codec;
pub mod codewhale;
pub mod codex;
pub mod companion;
mod continue_dev;
pub mod conversation;
mod copilot_cli;
mod crush;
mod cursor;
pub mod document;
mod droid;
pub mod export;
mod facts;
pub mod gemini_cli;
pub mod goose;
mod grok_build;
mod hermes;
pub mod homes;
pub mod import;
mod json;
mod kimi;
mod lines;
pub mod newt;
pub mod opencode;
mod pi;
mod qwen_code;
pub mod replay;
mod rows;
pub mod segments;
pub mod text;
mod tree;
mod vscode_copilot_chat;
pub mod writer;
mod zed;

/// All codecs, in the order in which they are asked whether a file is theirs.
pub fn codecs() -> Vec<Arc<dyn codec::Codec>> {
    vec![
        Arc::new(codex::Codex),
        Arc::new(claude_code::ClaudeCode),
        Arc::new(gemini_cli::GeminiCli),
        Arc::new(opencode::OpenCode),
        Arc::new(goose::Goose),
        Arc::new(codewhale::CodeWhale),
        Arc::new(newt::Newt),
        Arc::new(Lines(pi::PI)),
        Arc::new(Lines(pi::OPENCLAW)),
        Arc::new(Lines(pi::OMP)),
        Arc::new(Lines(qwen_code::QwenCode)),
        Arc::new(Lines(copilot_cli::CopilotCli)),
        Arc::new(Lines(antigravity::Antigravity)),
        Arc::new(Lines(droid::Droid)),
        Arc::new(Lines(grok_build::GrokBuild)),
        Arc::new(Lines(kimi::Kimi)),
        Arc::new(Lines(cursor::Cursor)),
        Arc::new(Lines(crush::Crush)),
        Arc::new(Lines(zed::Zed)),
        Arc::new(aider::Aider),
        Arc::new(Lines(cline::CLINE)),
        Arc::new(Lines(cline::ROO_CODE)),
        Arc::new(Lines(cline::KILO_CODE)),
        Arc::new(Lines(amp::Amp)),
        Arc::new(Lines(hermes::Hermes)),
        Arc::new(Lines(vscode_copilot_chat::CopilotChat)),
        Arc::new(Lines(continue_dev::Continue)),
    ]
}
