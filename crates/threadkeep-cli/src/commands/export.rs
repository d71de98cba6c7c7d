//! `threadkeep export`

mod bundle;
mod file;
mod home_paths;
#[cfg(test)]
mod hostile;
mod html;
mod markdown;
mod prose;
mod share;
mod store;
pub(super) mod to;
mod verbatim;

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::App;
use crate::errors::{Outcome, Report};
use crate::masking::MaskingArgs;

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep export 019a2284 --to codex > session.jsonl
  threadkeep export 019a2284@12 --to claude-code -o session.jsonl   its path up to depth 12
  threadkeep export 019a2284 --to claude-code --install   where Claude Code lists it
  threadkeep export 019a2284 --to codex --home ~/copies/codex --json | jq .losses
  threadkeep export 019a2284 --verbatim > session.jsonl
  threadkeep export 019a2284 --verbatim --mask-secrets -o to-share.jsonl
  threadkeep export 019a2284 --html -o login.html      a page to send to a colleague
  threadkeep export 019a2284@12 --markdown | gh gist create -
  threadkeep export 019a2284 019a2291 --to codewhale --home ~/copies/codewhale
  threadkeep export 019a2284 019a2291 --bundle -o threads.bundle
  threadkeep export - --bundle --unmasked --encrypt-to age1… -o threads.bundle.age

JSON: with --to {thread, agent, session, file, bytes, written, records, messages, losses: [{what, count}], companions}
and of a store {threads, agent, file, bytes, written, records, messages, losses, companions}
`records` stand as their agent wrote them, `messages` were written anew.";

/// Give a thread back as a file: of its own agent, or of another
///
/// --to gives what that agent opens and goes on with. A thread of the same agent comes back with its own records, as they are; what
/// another agent has no place for is left out and told. --verbatim gives the bytes of the file that it was imported from, exactly,
/// as far as they are imported. Where secrets were masked when it was imported, or are masked now, it says that the bytes differ.
///
/// codewhale and newt keep their sessions in one store, so --to writes a new one for them, of as many threads as are named: each with its
/// branches and with what stands beside it, as far as the agent has a place for it; what it has none for is told. A store that is
/// there is never replaced, with -o neither, and --overwrite is refused. -o writes the store alone; the files beside it are written
/// with --home or --install. With @DEPTH or --cwd the store has that one path, and -o FILE alone writes it.
///
/// --bundle puts threads with all that hangs on them into one file, which `import` takes in. Secrets are masked in it unless it is
/// told otherwise; the chains still verify.
///
/// --html and --markdown give a document for other people: what was said, and folded what tools did. It is one file without
/// scripts and without anything from elsewhere, and nothing of the thread is active in it. What looks like a secret and the
/// paths of homes are masked in it, and it says so; pictures are shown as they are. Look at it before you send it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("form").args(["to", "verbatim", "bundle", "html", "markdown"]).required(true))]
pub(super) struct ExportArgs {
    /// The thread; with @DEPTH its path ends there. --bundle takes several, and so do agents that keep one store
    #[arg(value_name = "THREAD[@DEPTH]", required = true)]
    threads: Vec<String>,
    /// The agent to write for: claude-code, codex …
    #[arg(long, value_name = "AGENT")]
    to: Option<String>,
    /// The imported file's own bytes
    #[arg(long)]
    verbatim: bool,
    /// Threads with all that hangs on them, in one file that `import` takes in
    #[arg(long)]
    bundle: bool,
    /// A web page in one file, for other people
    #[arg(long)]
    html: bool,
    /// A Markdown document, for other people; pictures are left out of it
    #[arg(long)]
    markdown: bool,
    /// Leave secrets as they are in a bundle, a page or a document, and the paths of homes too
    #[arg(long, conflicts_with_all = ["to", "verbatim", "mask_secrets", "patterns", "files"])]
    unmasked: bool,
    #[command(flatten)]
    bundling: bundle::BundleArgs,
    /// Which imported file, where a thread has several
    #[arg(long, value_name = "PATH", requires = "verbatim")]
    source: Option<String>,
    /// Write to this file, which only you can read, instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    placing: to::PlacingArgs,
    /// Put it where the agent lists it, in its home here
    #[arg(long, requires = "to", conflicts_with = "output")]
    install: bool,
    #[command(flatten)]
    masking: MaskingArgs,
}

/// Exports.
pub(super) fn run(args: &ExportArgs, app: &mut App) -> Outcome {
    let is_placed = args.install || args.placing.home.is_some();
    if app.out.is_json() && args.output.is_none() && !is_placed {
        let report = Report::usage("without -o FILE the output is the file itself, not a document");
        return Err(report.into());
    }
    if args.bundle {
        return bundle::run(args, app);
    }
    if let Some(agent) = &args.to {
        let store = app.read()?;
        if let Some(wanted) = store::wanted(args, agent, &store, is_placed)? {
            return store::run(args, &store, wanted, is_placed, app);
        }
    }
    let [thread] = args.threads.as_slice() else {
        let hint = "--bundle takes several, and so do --to codewhale and --to newt, whole threads";
        return Err(Report::usage("one thread at a time").hint(hint).into());
    };
    if args.html {
        return share::run(args, thread, app, &mut html::Html);
    }
    if args.markdown {
        return share::run(args, thread, app, &mut markdown::Markdown);
    }
    match &args.to {
        Some(agent) => to::run(args, thread, agent, is_placed, app),
        None => verbatim::run(args, thread, app),
    }
}
