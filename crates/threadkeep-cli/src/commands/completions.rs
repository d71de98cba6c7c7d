//! `threadkeep completions`

use clap::{Args, CommandFactory as _};
use clap_complete::{Shell, generate};

use super::{App, Cli};
use crate::errors::{Code, Outcome};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep completions bash > ~/.local/share/bash-completion/completions/threadkeep
  threadkeep completions fish > ~/.config/fish/completions/threadkeep.fish
  threadkeep completions zsh > ~/.zfunc/_threadkeep";

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Completes.
pub(super) fn run(args: &CompletionsArgs, app: &mut App) -> Outcome {
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), "threadkeep", &mut script);
    app.out.bytes(&script)?;
    Ok(Code::Done)
}
