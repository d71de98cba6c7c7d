//! `threadkeep doc`

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use threadkeep::{Document, DocumentInfo, DocumentQuery, Error, NewDocument, Uuid};

use super::App;
use crate::errors::{Code, Failure, Outcome, Report};
use crate::style::Ink;
use crate::table::{Align, Table, cell};
use crate::{human, json, text};

const EXAMPLES: &str = "\
EXAMPLES:
  echo '{\"where\":\"src/lib.rs\"}' | threadkeep doc put 019a2284 scratchpad
  echo '{\"where\":null,\"next\":\"tests\"}' | threadkeep doc patch 019a2284 scratchpad
  threadkeep doc put 019a2284 notes notes.json --if-version 3   only in the place of version 3
  threadkeep doc get 019a2284 notes --version 2
  threadkeep doc history 019a2284 notes
  threadkeep doc trim 019a2284 notes --keep 10

`scratchpad` is an object of strings; `plan` is {\"steps\":[{\"description\",\"status\"}]} with todo, active or
done, 30 steps at most; `pin` holds backend, model, cognition, tenacity, initiative, obsessive and nothing
else. A document of any other name is any JSON.";

/// Keep JSON documents beside a thread: every version of them, under names
///
/// Writing needs no claim: whoever sees the thread may write. Two programs that write one document say with --if-version which
/// version they have read, and the second one is told.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DocArgs {
    #[command(subcommand)]
    what: DocCommand,
}

#[derive(Debug, Subcommand)]
enum DocCommand {
    /// Write a document to standard output, byte by byte as it was written
    Get {
        #[command(flatten)]
        of: Of,
        /// This version of it
        #[arg(long = "version", value_name = "N")]
        number: Option<u64>,
    },
    /// Write the next version of a document
    Put(WriteArgs),
    /// Change what a JSON merge patch (RFC 7386) names, and leave the rest; `null` removes
    Patch(WriteArgs),
    /// List a thread's documents
    List {
        /// The thread
        thread: String,
        #[command(flatten)]
        page: PageArgs,
    },
    /// List the versions of a document, the newest first
    History {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Remove former versions of a document
    Trim {
        #[command(flatten)]
        of: Of,
        /// How many former versions stay; the current one always does
        #[arg(long, value_name = "N")]
        keep: u64,
    },
    /// Delete a document; its history stays until it is trimmed
    Delete {
        #[command(flatten)]
        of: Of,
        /// Only if this version is the current one
        #[arg(long, value_name = "N")]
        if_version: Option<u64>,
    },
}

#[derive(Debug, Args)]
struct Of {
    /// The thread
    thread: String,
    /// The name of the document
    name: String,
}

#[derive(Debug, Args)]
struct WriteArgs {
    #[command(flatten)]
    of: Of,
    /// The file that it is read from [default: standard input]
    file: Option<PathBuf>,
    /// Only if this version is the current one; 0 if there must be none
    #[arg(long, value_name = "N")]
    if_version: Option<u64>,
    /// The id, so that a repeated call makes one version
    #[arg(long, value_name = "UUID")]
    id: Option<Uuid>,
}

#[derive(Debug, Args)]
struct PageArgs {
    /// At most this many, up to 1000
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Go on where an earlier page ended
    #[arg(long)]
    cursor: Option<String>,
}

impl PageArgs {
    fn query(&self) -> DocumentQuery {
        DocumentQuery { limit: self.limit, cursor: self.cursor.clone() }
    }
}

/// Answers.
pub(super) fn run(args: &DocArgs, app: &mut App) -> Outcome {
    match &args.what {
        DocCommand::Get { of, number } => get(app, of, *number),
        DocCommand::Put(args) => {
            let new = args.document()?;
            let store = app.write()?;
            let info = store.put_document(&store.find(&args.of.thread)?, new)?;
            written(app, &info)
        }
        DocCommand::Patch(args) => {
            let patch = args.document()?;
            let store = app.write()?;
            let info = store.patch_document(&store.find(&args.of.thread)?, patch)?;
            written(app, &info)
        }
        DocCommand::List { thread, page } => {
            let store = app.read()?;
            let page = store.documents(&store.find(thread)?, page.query())?;
            list(app, "documents", &page.entries, page.next_cursor.as_deref())
        }
        DocCommand::History { of, page } => {
            let store = app.read()?;
            let page = store.document_history(&store.find(&of.thread)?, &of.name, page.query())?;
            list(app, "versions", &page.entries, page.next_cursor.as_deref())
        }
        DocCommand::Trim { of, keep } => {
            let store = app.write()?;
            let removed = store.trim_document(&store.find(&of.thread)?, &of.name, *keep)?;
            if app.out.is_json() {
                app.out.document(&json!({"removed": removed}))?;
            } else {
                app.out.line(format!("Removed {}", human::counted(removed, "former version", "former versions")))?;
            }
            Ok(Code::Done)
        }
        DocCommand::Delete { of, if_version } => {
            let store = app.write()?;
            if !store.delete_document(&store.find(&of.thread)?, &of.name, *if_version)? {
                return Err(missing(of).into());
            }
            if app.out.is_json() {
                app.out.document(&json!({"deleted": of.name}))?;
            } else {
                app.out.line(format!("Deleted {}; its history stays", text::one_line(&of.name)))?;
            }
            Ok(Code::Done)
        }
    }
}

fn missing(of: &Of) -> Error {
    Error::NotFound { what: "document", id: of.name.clone() }
}

fn get(app: &mut App, of: &Of, version: Option<u64>) -> Outcome {
    let store = app.read()?;
    let Document { info, text } =
        store.document(&store.find(&of.thread)?, &of.name, version)?.ok_or_else(|| missing(of))?;
    if app.out.is_json() {
        let mut document = document(&info);
        if let Some(fields) = document.as_object_mut() {
            let value = serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text.as_str()));
            fields.insert("value".to_owned(), value);
        }
        app.out.document(&json!({"document": document}))?;
        return Ok(Code::Done);
    }
    app.out.bytes(text.as_bytes())?;
    app.out.bytes(b"\n")?;
    Ok(Code::Done)
}

impl WriteArgs {
    fn document(&self) -> Result<NewDocument, Failure> {
        let text = read_text(self.file.as_deref())?;
        Ok(NewDocument { expect: self.if_version, id: self.id, ..NewDocument::new(&self.of.name, text) })
    }
}

/// The text of a file, or of standard input, without the ends of lines that editors and shells put behind it.
pub(super) fn read_text(file: Option<&Path>) -> Result<String, Failure> {
    let text = read_whole_text(file)?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// The text of a file, or of standard input.
pub(super) fn read_whole_text(file: Option<&Path>) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let (name, read) = match file {
        None => ("standard input".to_owned(), io::stdin().lock().read_to_end(&mut bytes).map(drop)),
        Some(file) => (file.display().to_string(), fs::read(file).map(|read| bytes = read)),
    };
    read.map_err(|error| Report::usage(format!("{name}: {error}")))?;
    Ok(String::from_utf8(bytes).map_err(|_| Report::usage(format!("{name}: it is no UTF-8")))?)
}

fn written(app: &mut App, info: &DocumentInfo) -> Outcome {
    if app.out.is_json() {
        app.out.document(&json!({"document": document(info)}))?;
        return Ok(Code::Done);
    }
    let id = app.out.paint(Ink::Dim, info.thread.as_str());
    app.out.line(format!("{} is at version {}  {id}", text::one_line(&info.name), info.version))?;
    Ok(Code::Done)
}

fn list(app: &mut App, key: &'static str, entries: &[DocumentInfo], next_cursor: Option<&str>) -> Outcome {
    if app.out.is_json() {
        let mut listing = app.out.listing(&[], key)?;
        entries.iter().try_for_each(|info| listing.push(&document(info)))?;
        listing.finish(next_cursor)?;
        return Ok(Code::Done);
    }
    if entries.is_empty() {
        app.out.line("No such document.")?;
        return Ok(Code::Done);
    }
    let columns = [
        ("name", Align::Flexible),
        ("kind", Align::Left),
        ("version", Align::Right),
        ("size", Align::Right),
        ("text", Align::Left),
        ("written", Align::Left),
    ];
    let mut table = Table::new(&columns);
    let now = super::now();
    for info in entries {
        let size = human::bytes(i64::try_from(info.size).unwrap_or(i64::MAX));
        let digest = info.digest.map(|digest| digest.to_string());
        let short = digest.as_ref().map(|digest| digest.get(..8).unwrap_or(digest).to_owned());
        table.row(vec![
            cell(Ink::Plain, text::one_line(&info.name)),
            cell(Ink::Dim, text::one_line(info.kind.as_str())),
            cell(Ink::Plain, info.version.to_string()),
            cell(Ink::Plain, if short.is_some() { size } else { String::new() }),
            cell(Ink::Dim, short.unwrap_or_else(|| "deleted".to_owned())),
            cell(Ink::Dim, human::ago(info.created_at, now)),
        ]);
    }
    table.write(&mut app.out)?;
    if let Some(next) = next_cursor {
        app.out.line(format!("\nMore: the same with --cursor {next}"))?;
    }
    Ok(Code::Done)
}

fn document(info: &DocumentInfo) -> Value {
    json!({
        "thread": info.thread,
        "name": info.name,
        "version": info.version,
        "kind": info.kind,
        "size": info.size,
        "digest": info.digest,
        "deleted": info.digest.is_none(),
        "created_at": json::time(info.created_at),
        "tick": info.tick,
    })
}
