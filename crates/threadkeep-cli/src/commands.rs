//! The command line: what is asked, and who answers.

mod append;
mod archive;
mod artifact;
mod backup;
mod changes;
mod checkpoint;
mod claims;
mod compact;
mod completions;
mod continue_with;
mod copy;
mod delete;
mod doc;
mod doctor;
mod end;
mod export;
mod fork;
mod goal;
mod import;
mod inbox;
mod job;
mod keys;
mod label;
pub(crate) mod list;
mod man;
mod pick;
mod pin;
mod prompt;
mod purge;
mod redact;
mod remap;
mod rename;
mod repair_turns;
mod request;
mod restore;
mod restore_backup;
mod retain;
mod rewind;
mod roadmap;
mod rollout;
mod run;
mod seal;
pub(crate) mod search;
mod show;
mod stats;
mod tail;
mod take_over;
mod tools;
mod tree;
mod unarchive;
mod verify;
mod watch;
mod workspaces;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use threadkeep::blocking::{LiveThread, Store, Threads};
use threadkeep::{Host as _, Rules, SystemHost, Thread, ThreadId, Timestamp};

use crate::errors::{Code, Failure, Outcome, Report};
use crate::output::{self, Output};
use crate::place::Place;
use crate::style::Ink;
use crate::{json, names};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep import --scan              take in what the agents on this machine have written
  threadkeep watch                      and go on with it while they write
  threadkeep list                       the newest threads
  threadkeep search login test          what was said and done, in all of them
  threadkeep show -                     read the newest one
  threadkeep tree 019a2284              its branches and where they leave
  threadkeep fork 019a2284@12           go on from depth 12 in a new thread

THREAD is an id, an unambiguous beginning of one, an exact title, or `-` for the newest thread.
THREAD@DEPTH is an item: its distance from the root of the active path, as `show` prints it.
Off the active path it is named with its branch, as `search` prints it: THREAD@BRANCH@DEPTH.
@DEPTH alone is an item of the newest thread.

EXIT CODES:
  0 done        1 not done         2 usage           3 not found
  5 damaged     6 newer version    7 busy or held    8 partly done
  130 left without a choice";

const GLOBAL: &str = "Global options";
const KEYS_HELP: &str = "The folder of the keys that seals are signed with [default: `keys` in the store's folder, and for a server in the default store's]";
const STORE_HELP: &str = "The store's folder, or postgres://USER@HOST/DATABASE?schema=NAME [default: $THREADKEEP_HOME, else threadkeep in the user's data folder]";

/// Keeps the threads of coding agents: import, list, read, fork, verify and move them
#[derive(Debug, Parser)]
#[command(name = "threadkeep", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(subcommand_required = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct Global {
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "DIR|URL", env = "THREADKEEP_STORE", hide_env_values = true, help = STORE_HELP)]
    store: Option<PathBuf>,
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "DIR", env = "THREADKEEP_KEYS", hide_env_values = true, help = KEYS_HELP)]
    keys: Option<PathBuf>,
    /// Print one JSON document instead of words; errors too
    #[arg(long, global = true, help_heading = GLOBAL)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Import(import::ImportArgs),
    Watch(watch::WatchArgs),
    List(list::ListArgs),
    Search(search::SearchArgs),
    Pick(pick::PickArgs),
    Show(show::ShowArgs),
    Tree(tree::TreeArgs),
    Tail(tail::TailArgs),
    Changes(changes::ChangesArgs),
    Append(append::AppendArgs),
    Fork(fork::ForkArgs),
    Rewind(rewind::RewindArgs),
    Rename(rename::RenameArgs),
    Label(label::LabelArgs),
    Pin(pin::PinArgs),
    End(end::EndArgs),
    Goal(goal::GoalArgs),
    Job(job::JobArgs),
    Checkpoint(checkpoint::CheckpointArgs),
    Doc(doc::DocArgs),
    Roadmap(roadmap::RoadmapArgs),
    Tools(tools::ToolsArgs),
    Run(run::RunArgs),
    Prompt(prompt::PromptArgs),
    Artifact(artifact::ArtifactArgs),
    Inbox(inbox::InboxArgs),
    Request(request::RequestArgs),
    Claims(claims::ClaimsArgs),
    TakeOver(take_over::TakeOverArgs),
    RepairTurns(repair_turns::RepairTurnsArgs),
    Archive(archive::ArchiveArgs),
    Unarchive(unarchive::UnarchiveArgs),
    Delete(delete::DeleteArgs),
    Restore(restore::RestoreArgs),
    Purge(purge::PurgeArgs),
    Retain(retain::RetainArgs),
    Redact(redact::RedactArgs),
    Export(export::ExportArgs),
    Continue(continue_with::ContinueArgs),
    Verify(verify::VerifyArgs),
    Seal(seal::SealArgs),
    Keys(keys::KeysArgs),
    Stats(stats::StatsArgs),
    Doctor(doctor::DoctorArgs),
    Compact(compact::CompactArgs),
    Backup(backup::BackupArgs),
    RestoreBackup(restore_backup::RestoreBackupArgs),
    Copy(copy::CopyArgs),
    Rollout(rollout::RolloutArgs),
    Workspaces(workspaces::WorkspacesArgs),
    Remap(remap::RemapArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

/// What every command works with.
#[derive(Debug)]
pub(crate) struct App {
    /// Where it says what it has to say.
    pub(crate) out: Output,
    store: Option<PathBuf>,
    keys: Option<PathBuf>,
    /// What is masked in everything that is written.
    masking: Option<Rules>,
}

impl App {
    /// Where the store is.
    fn place(&self) -> Result<Place, Failure> {
        Ok(Place::find(self.store.as_deref(), self.keys.as_deref())?.masking(self.masking.clone()))
    }

    /// The existing store, for reading.
    fn read(&self) -> Result<Store, Failure> {
        self.place()?.read()
    }

    /// The existing store, for searching it.
    fn search(&self) -> Result<Store, Failure> {
        self.place()?.search()
    }

    /// The existing store, for writing.
    fn write(&self) -> Result<Store, Failure> {
        self.place()?.write().inspect(notice)
    }

    /// The store for writing, made when there is none.
    fn create(&self) -> Result<Store, Failure> {
        self.place()?.create().inspect(notice)
    }

    /// The store for writing, begun anew where there is none, also in the place of one that was lost.
    fn begin_anew(&self) -> Result<Store, Failure> {
        self.place()?.begin_anew().inspect(notice)
    }

    /// Answers with a thread that was changed: the thread itself, or a line of words.
    fn changed(&mut self, store: &Threads, thread: &Thread, words: &str) -> Outcome {
        if self.out.is_json() {
            self.out.document(&serde_json::json!({"thread": json::thread(thread)}))?;
        } else {
            let id = self.out.paint(Ink::Dim, &names::short_id(store, &thread.id));
            let name = crate::text::one_line(thread.name());
            let name = crate::text::cut(&name, 60).into_owned();
            self.out.line(format!("{words}: {name}  {id}"))?;
        }
        Ok(Code::Done)
    }
}

/// Says what there is to know of how the store was opened.
fn notice(store: &Store) {
    for notice in store.notices() {
        output::tell(Ink::Warn, "note", notice);
    }
}

/// The time.
pub(crate) fn now() -> Timestamp {
    SystemHost.now()
}

/// Runs something under the claim on a thread, and gives the claim up whatever comes of it.
fn under_claim<T>(
    store: &Store,
    thread: &ThreadId,
    run: impl FnOnce(&LiveThread) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let live = store.resume(thread, false)?;
    let outcome = run(&live);
    match outcome {
        Ok(value) => {
            live.shutdown()?;
            Ok(value)
        }
        Err(failure) => {
            // What failed is what is told; the claim ends with the process at the latest.
            let _ = live.discard();
            Err(failure)
        }
    }
}

/// Reads the command line, does what it asks, tells what went wrong, and gives the exit code.
pub(crate) fn main() -> Code {
    let cli = match Cli::try_parse_from(arguments()) {
        Ok(cli) => cli,
        Err(error) => return misused(&error),
    };
    let mut app =
        App { out: Output::new(cli.global.json), store: cli.global.store, keys: cli.global.keys, masking: None };
    let outcome = run(cli.command, &mut app);
    let failure = match outcome.and_then(|code| app.out.flush().map(|()| code)) {
        Ok(code) => return code,
        Err(failure) => failure,
    };
    match failure {
        Failure::BrokenPipe => Code::Done,
        Failure::Told(code) => {
            // What was written before the failure belongs to the answer.
            let _ = app.out.flush();
            code
        }
        Failure::Report(report) => {
            let _ = app.out.flush();
            output::tell_report(&mut app.out, &report);
            report.code
        }
    }
}

fn run(command: Command, app: &mut App) -> Outcome {
    match command {
        Command::Import(args) => import::run(&args, app),
        Command::Watch(args) => watch::run(&args, app),
        Command::List(args) => list::run(&args, app),
        Command::Search(args) => search::run(&args, app),
        Command::Pick(args) => pick::run(&args, app),
        Command::Show(args) => show::run(&args, app),
        Command::Tree(args) => tree::run(&args, app),
        Command::Tail(args) => tail::run(&args, app),
        Command::Changes(args) => changes::run(&args, app),
        Command::Append(args) => append::run(&args, app),
        Command::Fork(args) => fork::run(&args, app),
        Command::Rewind(args) => rewind::run(&args, app),
        Command::Rename(args) => rename::run(&args, app),
        Command::Label(args) => label::run(&args, app),
        Command::Pin(args) => pin::run(&args, app),
        Command::End(args) => end::run(&args, app),
        Command::Goal(args) => goal::run(&args, app),
        Command::Job(args) => job::run(&args, app),
        Command::Checkpoint(args) => checkpoint::run(&args, app),
        Command::Doc(args) => doc::run(&args, app),
        Command::Roadmap(args) => roadmap::run(&args, app),
        Command::Tools(args) => tools::run(&args, app),
        Command::Run(args) => run::run(&args, app),
        Command::Prompt(args) => prompt::run(&args, app),
        Command::Artifact(args) => artifact::run(&args, app),
        Command::Inbox(args) => inbox::run(&args, app),
        Command::Request(args) => request::run(&args, app),
        Command::Claims(args) => claims::run(&args, app),
        Command::TakeOver(args) => take_over::run(&args, app),
        Command::RepairTurns(args) => repair_turns::run(&args, app),
        Command::Archive(args) => archive::run(&args, app),
        Command::Unarchive(args) => unarchive::run(&args, app),
        Command::Delete(args) => delete::run(&args, app),
        Command::Restore(args) => restore::run(&args, app),
        Command::Purge(args) => purge::run(&args, app),
        Command::Retain(args) => retain::run(&args, app),
        Command::Redact(args) => redact::run(&args, app),
        Command::Export(args) => export::run(&args, app),
        Command::Continue(args) => continue_with::run(&args, app),
        Command::Verify(args) => verify::run(&args, app),
        Command::Seal(args) => seal::run(&args, app),
        Command::Keys(args) => keys::run(&args, app),
        Command::Stats(args) => stats::run(&args, app),
        Command::Doctor(args) => doctor::run(&args, app),
        Command::Compact(args) => compact::run(&args, app),
        Command::Backup(args) => backup::run(&args, app),
        Command::RestoreBackup(args) => restore_backup::run(&args, app),
        Command::Copy(args) => copy::run(&args, app),
        Command::Rollout(args) => rollout::run(&args, app),
        Command::Workspaces(args) => workspaces::run(&args, app),
        Command::Remap(args) => remap::run(&args, app),
        Command::Completions(args) => completions::run(&args, app),
        Command::Man(args) => man::run(&args, app),
    }
}

/// The command line. `-@12`, an item of the newest thread, is written `@12` from here on, since `-@` looks like an option.
fn arguments() -> Vec<OsString> {
    let mut options = true;
    let rewritten = env::args_os().map(|argument| {
        options &= argument != "--";
        match argument.to_str().and_then(|text| text.strip_prefix('-')) {
            Some(address) if options && names::is_item_of_latest(address) => address.into(),
            _ => argument,
        }
    });
    search::words::put_apart(rewritten.collect(), &Cli::command())
}

/// The time zone of this machine, in which people mean days. Without one it is UTC.
pub(crate) fn time_zone() -> Option<String> {
    iana_time_zone::get_timezone().ok()
}

/// Answers a command line that can't be read, or that asks for help.
fn misused(error: &clap::Error) -> Code {
    let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let mut arguments = env::args_os().skip(1).take_while(|argument| argument != "--");
    if !asked && arguments.any(|argument| argument == "--json") {
        let message = error.render().to_string();
        let message = message.trim().trim_start_matches("error: ");
        let report = Report::usage(message).hint("`threadkeep help` shows what can be asked");
        output::tell_report(&mut Output::new(true), &report);
        return Code::Usage;
    }
    // Nobody is left to tell when the stream is closed.
    let _ = match error.kind() {
        // A lone `threadkeep` wants to know what there is.
        ErrorKind::MissingSubcommand => {
            let help = Cli::command().render_help();
            io::stderr().write_all(help.to_string().as_bytes())
        }
        _ => error.print(),
    };
    if asked { Code::Done } else { Code::Usage }
}
