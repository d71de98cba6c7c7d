//! `threadkeep continue`

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde_json::json;
use threadkeep_agents::codec::Codec;
use threadkeep_agents::export::{Before, Export, Exported};
use threadkeep_agents::writer::Invocation;

use super::App;
use super::export::to::{self, PlacingArgs};
use crate::errors::{Code, Failure, Outcome, Report};
use crate::masking::MaskingArgs;
use crate::output;
use crate::style::Ink;

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep continue 019a2284 --with claude-code        the command that goes on with it
  threadkeep continue - --with codex --run               go on with the newest thread
  threadkeep continue 019a2284@12 --with codex --run     from depth 12 on, as a session of its own
  threadkeep continue 019a2284 --with codex --cwd ~/moved/project

JSON: what `export --install` gives, and {folder, command, environment, shell}";

/// Go on with a thread in an agent: of the one that it came from, or in another
///
/// Puts the thread where the agent finds its sessions, as `export --install` does, and prints the command by which the agent goes
/// on with it; --run runs that. A session of the agent that is there already is kept: where it goes further than the thread here,
/// the agent goes on from its own.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ContinueArgs {
    /// The thread; with @DEPTH its path ends there
    #[arg(value_name = "THREAD[@DEPTH]")]
    thread: String,
    /// The agent: claude-code, codex …
    #[arg(long, value_name = "AGENT")]
    with: String,
    /// Run the command, in the thread's folder
    #[arg(long, conflicts_with = "json")]
    run: bool,
    /// The agent's home, where it is another than the one in use here
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// The folder to go on in, where it is another than the thread's
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Replace a session that is there already and differs
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    masking: MaskingArgs,
}

/// Goes on.
pub(super) fn run(args: &ContinueArgs, app: &mut App) -> Outcome {
    let store = app.read()?;
    let placing = PlacingArgs { home: args.home.clone(), cwd: args.cwd.clone(), overwrite: args.overwrite };
    to::with_export(&store, &args.thread, &args.with, &placing, &args.masking, |export, veil| {
        let folder = folder(export)?;
        let codec = export.codec();
        let unable = || Report::usage(format!("{} can't go on with this session", codec.agent()));
        let going = codec.resuming(export.session()).ok_or_else(unable)?;
        let environment = environment(codec, &placing)?;
        let steps = Steps { folder, environment, taking: None, going };
        let mut handed = None;
        let (steps, document) = match codec.place(export.session()) {
            Some(_) => {
                let (home, _) = to::home(codec, &placing)?;
                let installed = threadkeep_agents::export::install(export, &home, to::existing(&placing))?;
                let is_there = installed.before == Before::Same || installed.is_written(to::existing(&placing));
                if installed.before == Before::Further && !is_there {
                    let words =
                        format!("{} has gone on with it since; `threadkeep import` takes that in", codec.agent());
                    output::tell(Ink::Warn, "note", &words);
                } else if !is_there {
                    return Err(to::in_the_way(&installed).into());
                } else {
                    to::tell_losses(&installed.exported);
                }
                (steps, to::placed(export, &installed, &placing))
            }
            None => {
                let (file, exported) = hand_over(export)?;
                handed = file.parent().map(Path::to_owned);
                let taking = codec.taking_in(&file).ok_or_else(unable)?;
                (Steps { taking: Some(taking), ..steps }, to::document(export, &file, &exported))
            }
        };
        veil.tell(("record", "records"));
        if args.run {
            let outcome = steps.run();
            if let Some(folder) = &handed {
                // The agent has taken it in, or said why not.
                let _ = fs::remove_dir_all(folder);
            }
            return outcome;
        }
        if let Some(folder) = &handed {
            let words = format!("the session lies in {} until you remove it", folder.display());
            output::tell(Ink::Warn, "note", &words);
        }
        if app.out.is_json() {
            app.out.document(&steps.document(document))?;
        } else {
            app.out.line(steps.shell())?;
        }
        Ok(Code::Done)
    })
}

/// The folder to go on in.
fn folder(export: &Export<'_>) -> Result<PathBuf, Failure> {
    let none = || Report::usage("the thread names no folder to go on in").hint("name one with --cwd DIR");
    let folder = export.session().cwd.clone().ok_or_else(none)?;
    if folder.is_dir() {
        return Ok(folder);
    }
    let message = format!("the thread's folder {} is gone", folder.display());
    Err(Report::new(Code::NotFound, "not-found", message).hint("name another with --cwd DIR").into())
}

/// What tells the agent of a home that is not its own.
fn environment(codec: &dyn Codec, placing: &PlacingArgs) -> Result<Option<(&'static str, PathBuf)>, Failure> {
    let Some((home, true)) = to::known_home(codec, placing)? else { return Ok(None) };
    let unable = |why: &str| {
        let message = format!("{} can't be told of the home {}: {why}", codec.agent(), home.display());
        Report::usage(message).hint("name another with --home DIR, or leave it away to go on in the agent's own")
    };
    Ok(Some(codec.environment(&home).map_err(unable)?))
}

/// Writes a session that the agent is to take in from a file.
fn hand_over(export: &Export<'_>) -> Result<(PathBuf, Exported), Failure> {
    let folder = std::env::temp_dir().join(format!("threadkeep-{}-{}", export.session().uuid(), std::process::id()));
    fs::DirBuilder::new().mode(0o700).create(&folder)?;
    let file = folder.join("session.json");
    let mut out = std::io::BufWriter::new(fs::File::create_new(&file)?);
    let exported = export.write(&mut |bytes| std::io::Write::write_all(&mut out, bytes).map_err(Failure::from))?;
    std::io::Write::flush(&mut out)?;
    to::tell_losses(&exported);
    Ok((file, exported))
}

/// What is run, and where.
struct Steps {
    folder: PathBuf,
    environment: Option<(&'static str, PathBuf)>,
    taking: Option<Invocation>,
    going: Invocation,
}

impl Steps {
    fn all(&self) -> impl Iterator<Item = &Invocation> {
        self.taking.iter().chain([&self.going])
    }

    /// The same for a shell, on one line.
    fn shell(&self) -> String {
        let mut parts = vec![format!("cd {}", quoted(&shown(&self.folder)))];
        for step in self.all() {
            let set = self.environment.iter().map(|(name, home)| format!("{name}={}", quoted(&shown(home))));
            let words = [step.program].into_iter().chain(step.arguments.iter().map(String::as_str)).map(quoted);
            parts.push(set.chain(words).collect::<Vec<_>>().join(" "));
        }
        parts.join(" && ")
    }

    fn document(&self, mut document: serde_json::Value) -> serde_json::Value {
        let environment: serde_json::Map<String, serde_json::Value> =
            self.environment.iter().map(|(name, home)| ((*name).to_owned(), json!(shown(home)))).collect();
        let command: Vec<&str> =
            [self.going.program].into_iter().chain(self.going.arguments.iter().map(String::as_str)).collect();
        if let Some(fields) = document.as_object_mut() {
            fields.insert("folder".to_owned(), json!(shown(&self.folder)));
            fields.insert("command".to_owned(), json!(command));
            fields.insert("environment".to_owned(), json!(environment));
            fields.insert("shell".to_owned(), json!(self.shell()));
        }
        document
    }

    /// Runs them one after the other; the first that fails ends it.
    fn run(&self) -> Outcome {
        for step in self.all() {
            let mut command = Command::new(step.program);
            command.args(&step.arguments).current_dir(&self.folder);
            command.envs(self.environment.iter().map(|(name, home)| (name, home)));
            let status = command.status().map_err(|error| {
                let report = Report::new(Code::NotDone, "io", format!("{} can't be run: {error}", step.program));
                report.hint(format!("without --run the command is printed: {}", self.shell()))
            })?;
            if !status.success() {
                let message = format!("{} ended with {status}", step.program);
                return Err(Report::new(Code::NotDone, "agent", message).into());
            }
        }
        Ok(Code::Done)
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, shell) in [
            ("/home/ann/a-b_c.d", "/home/ann/a-b_c.d"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's $HOME; rm -rf ~", r"'it'\''s $HOME; rm -rf ~'"),
            ("~", "'~'"),
            ("a\nb", "'a\nb'"),
        ] {
            assert_eq!(quoted(word), shell);
        }
    }
}
