//! `threadkeep`: import, list, read, fork, verify and move the threads of coding agents.

// The document of a thread has many keys.
#![recursion_limit = "256"]

mod around;
mod bundles;
mod commands;
mod conversation;
mod drawing;
mod encryption;
mod errors;
mod human;
mod json;
mod markdown;
mod marking;
mod masking;
mod names;
mod output;
mod picker;
mod place;
#[cfg(test)]
mod reference;
mod style;
mod table;
mod text;
mod views;

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(commands::main() as u8)
}
