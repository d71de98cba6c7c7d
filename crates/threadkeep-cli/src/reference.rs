//! Keeps `docs/cli.md` the same as what `--help` says.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Command, CommandFactory as _};

use crate::commands::Cli;

const WIDTH: usize = 100;
const HEAD: &str = "# The command line\n\n\
    This is what `threadkeep help` says, written by a test: `UPDATE_GOLDEN=1 cargo test -p threadkeep-cli` renews it.\n";

fn section(command: &mut Command, path: &str, out: &mut String) {
    let help = command.render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    let _ = writeln!(out, "\n## {path}\n\n```text\n{}\n```", lines.join("\n").trim_end());
    for inner in command.get_subcommands_mut().filter(|inner| inner.get_name() != "help") {
        let path = format!("{path} {}", inner.get_name());
        section(inner, &path, out);
    }
}

#[test]
fn the_reference_is_what_the_help_says() {
    let mut command = Cli::command().term_width(WIDTH);
    command.build();
    let mut text = HEAD.to_owned();
    section(&mut command, "threadkeep", &mut text);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "docs/cli.md is stale: UPDATE_GOLDEN=1 cargo test -p threadkeep-cli renews it");
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}
