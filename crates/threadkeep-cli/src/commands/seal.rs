//! `threadkeep seal`

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use threadkeep::{Anchors, Error, SealReport, ThreadId};

use super::App;
use crate::errors::{Code, Failure, Outcome, Report};
use crate::style::Ink;
use crate::{human, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep keys create                         once
  threadkeep seal                                all threads, as they stand now
  threadkeep seal 019a2284
  threadkeep seal --out /mnt/other/threads.anchors
  threadkeep verify --anchors /mnt/other/threads.anchors

Without seals a chain shows what was changed inside of it. With seals, and a copy of them in
another place, a cut tail, a lost thread, an older copy and a chain that was computed anew show
too. What is sealed already is not stated again.";

/// Sign where threads stand, so that what is cut off or written anew later shows
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct SealArgs {
    /// The threads; all of them when none is named
    #[arg(value_name = "THREAD")]
    threads: Vec<String>,
    /// All threads; this is the default
    #[arg(long, conflicts_with = "threads")]
    all: bool,
    /// Write all seals with what they state to this file, to be kept outside of the store
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Go on from an older copy of the store that was restored on purpose
    #[arg(long)]
    restored: bool,
}

/// Seals.
pub(super) fn run(args: &SealArgs, app: &mut App) -> Outcome {
    let store = app.write()?;
    let threads: Vec<ThreadId> = args.threads.iter().map(|name| store.find(name)).collect::<Result<_, _>>()?;
    let threads = (!threads.is_empty()).then_some(threads.as_slice());
    let sealed = store.seal(threads, args.restored)?;
    if let Some(file) = &args.out {
        export(&store.anchors()?, file)?;
    }
    if app.out.is_json() {
        let newest = sealed.newest.as_ref().map(|newest| {
            json!({"number": newest.number, "hash": newest.hash, "at": newest.at.to_string(), "key": newest.key})
        });
        app.out.document(&json!({
            "seals": sealed.seals,
            "threads": sealed.threads,
            "heads": sealed.heads,
            "newest": newest,
            "file": args.out.as_ref().map(|file| file.display().to_string()),
        }))?;
    } else {
        write(app, &sealed, args.out.as_deref())?;
    }
    Ok(Code::Done)
}

fn write(app: &mut App, sealed: &SealReport, file: Option<&Path>) -> Result<(), Failure> {
    let threads = human::counted(sealed.threads, "thread", "threads");
    let mark = app.out.paint(Ink::Good, "✓");
    let words = match sealed.seals {
        0 => "sealed already".to_owned(),
        _ => format!("{} stated anew", human::counted(sealed.heads, "branch", "branches")),
    };
    let newest = sealed.newest.as_ref();
    let newest = newest.map(|newest| format!("; the newest seal is {}, by key {}", newest.number, newest.key));
    app.out.line(format!("{mark} {threads}: {words}{}", newest.unwrap_or_default()))?;
    if let Some(file) = file {
        let file = text::one_line(&file.to_string_lossy());
        app.out.line(app.out.paint(Ink::Dim, &format!("Anchors: {file}")))?;
    }
    Ok(())
}

/// Reads a file of anchors.
pub(super) fn read_anchors(path: &Path) -> Result<Anchors, Failure> {
    let file = File::open(path).map_err(|error| failed("open", path, &error))?;
    Ok(Anchors::read(&path.display().to_string(), &mut BufReader::new(file))?)
}

/// Writes the anchors in the place of older ones of the same store, and of nothing else.
fn export(anchors: &Anchors, path: &Path) -> Result<(), Failure> {
    if path.symlink_metadata().is_ok() {
        let older = read_anchors(path)?;
        if !anchors.extends(&older) {
            let message = format!("{} holds seals that this store does not have; it was left as it is", path.display());
            let hint = "the store is an older copy, or another one: look with `threadkeep verify --anchors FILE`";
            return Err(Report::new(Code::NotDone, "conflict", message).hint(hint).into());
        }
    }
    write_private(path, &mut |file| anchors.write(file))
}

/// Writes a file that nobody else can read, beside its name, and puts it in place when it is whole.
pub(super) fn write_private(
    path: &Path,
    fill: &mut dyn FnMut(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<(), Failure> {
    let name = path.file_name().filter(|_| !path.is_dir());
    let name = name.ok_or_else(|| Report::usage(format!("{} is not the name of a file", path.display())))?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(hidden);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
    let mut file = BufWriter::new(file.map_err(|error| failed("create", path, &error))?);
    let written = fill(&mut file)
        .and_then(|()| file.flush())
        .and_then(|()| file.get_ref().sync_all())
        .and_then(|()| fs::rename(&part, path));
    written.map_err(|error| {
        // The failure is told; that a part of the file stays too would only distract from it.
        let _ = fs::remove_file(&part);
        failed("write", path, &error)
    })
}

fn failed(operation: &'static str, path: &Path, error: &std::io::Error) -> Failure {
    let (path, kind, detail) = (path.display().to_string(), error.kind(), error.to_string());
    Error::Io { operation, path, kind, detail }.into()
}
