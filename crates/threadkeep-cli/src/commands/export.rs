//! `threadkeep export`

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use threadkeep::blocking::Store;
use threadkeep::{Error, SourceFile, ThreadId};

use super::App;
use crate::errors::{Code, Failure, Outcome, Report};
use crate::human;

/// How many parts of a file are loaded at a time; a part may be large.
const PAGE: usize = 16;

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep export 019a2284 --verbatim > session.jsonl
  threadkeep export 019a2284 --verbatim -o session.jsonl";

/// Give a thread back as a file
///
/// --verbatim gives the bytes of the file that it was imported from, exactly, as far as they are imported.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ExportArgs {
    /// The thread
    thread: String,
    /// The imported file's own bytes
    #[arg(long, required = true)]
    verbatim: bool,
    /// Which imported file, where a thread has several
    #[arg(long, value_name = "PATH")]
    source: Option<String>,
    /// Write to this file, which only you can read, instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Exports.
pub(super) fn run(args: &ExportArgs, app: &mut App) -> Outcome {
    if app.out.is_json() && args.output.is_none() {
        let report = Report::usage("without -o FILE the output is the file itself, not a document");
        return Err(report.into());
    }
    let store = app.read()?;
    let thread = store.find(&args.thread)?;
    let source = source(&store, &thread, args.source.as_deref())?;
    let Some(path) = &args.output else {
        write_parts(&store, &source, &mut |bytes| app.out.bytes(bytes))?;
        return Ok(Code::Done);
    };
    let written = write_file(&store, &source, path)?;
    let file = path.display().to_string();
    if app.out.is_json() {
        let document = json!({"thread": thread, "source": source.path, "file": file, "bytes": written});
        app.out.document(&document)?;
    } else {
        app.out.line(format!("Wrote {} to {file}", human::bytes(i64::try_from(written).unwrap_or(i64::MAX))))?;
    }
    Ok(Code::Done)
}

fn source(store: &Store, thread: &ThreadId, named: Option<&str>) -> Result<SourceFile, Failure> {
    let mut sources = store.sources(thread)?;
    if let Some(named) = named {
        sources.retain(|source| source.path == named);
    }
    match (sources.pop(), sources.as_slice()) {
        (None, _) => {
            let message = match named {
                Some(named) => format!("thread `{thread}` was not imported from {named}"),
                None => format!("thread `{thread}` was not imported from a file"),
            };
            let report = Report::new(Code::NotFound, "not-found", message);
            Err(report.hint("`threadkeep show THREAD --json --raw` gives its items").into())
        }
        (Some(source), []) => Ok(source),
        (Some(last), others) => {
            let candidates = others.iter().map(|source| source.path.clone()).chain([last.path]).collect();
            let report = crate::errors::report(&Error::Ambiguous { given: thread.to_string(), candidates });
            Err(report.hint("--source PATH names one of its files").into())
        }
    }
}

/// Writes the exact bytes of a file, part by part; gives their number. Records stand apart by one line feed that is not
/// stored with them.
fn write_parts(
    store: &Store,
    source: &SourceFile,
    write: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let (mut end, mut after) = (0_i64, -1);
    loop {
        let parts = store.source_parts(&source.path, after, PAGE)?;
        if parts.is_empty() {
            break;
        }
        for part in parts {
            end = fill_gap(source, end, part.position, write)?;
            write(&part.bytes)?;
            end = end.saturating_add(i64::try_from(part.bytes.len()).unwrap_or(i64::MAX));
            after = part.position;
        }
    }
    fill_gap(source, end, source.consumed, write)?;
    Ok(u64::try_from(source.consumed).unwrap_or(0))
}

fn fill_gap(
    source: &SourceFile,
    end: i64,
    next: i64,
    write: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<i64, Failure> {
    match next.checked_sub(end) {
        Some(0) => {}
        Some(1) => write(b"\n")?,
        _ => {
            let detail = format!("its part at {next} does not follow the one that ends at {end}");
            return Err(Error::Corrupt { place: format!("file {}", source.path), detail }.into());
        }
    }
    Ok(next)
}

/// Writes beside the file and puts it in place when it is whole.
fn write_file(store: &Store, source: &SourceFile, path: &Path) -> Result<u64, Failure> {
    let name = path
        .file_name()
        .filter(|_| !path.is_dir())
        .ok_or_else(|| Report::usage(format!("{} is not the name of a file", path.display())))?;
    let failed = |operation, error: &std::io::Error| Error::Io {
        operation,
        path: path.display().to_string(),
        kind: error.kind(),
        detail: error.to_string(),
    };
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(hidden);
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(&part);
    let file = file.map_err(|error| failed("create", &error))?;
    let written = fill(store, source, file).and_then(|written| {
        fs::rename(&part, path).map_err(|error| failed("write", &error))?;
        Ok(written)
    });
    if written.is_err() {
        // The failure is told; that a part of the file stays too would only distract from it.
        let _ = fs::remove_file(&part);
    }
    written
}

fn fill(store: &Store, source: &SourceFile, file: File) -> Result<u64, Failure> {
    let mut file = BufWriter::new(file);
    let written = write_parts(store, source, &mut |bytes| Ok(file.write_all(bytes)?))?;
    file.flush()?;
    file.get_ref().sync_all()?;
    Ok(written)
}
