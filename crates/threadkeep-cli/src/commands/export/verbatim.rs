//! The bytes of the file that a thread was imported from.

use std::path::Path;

use serde_json::json;
use threadkeep::blocking::Store;
use threadkeep::{Error, SourceFile, ThreadId};

use super::super::App;
use super::ExportArgs;
use super::file;
use crate::errors::{Code, Failure, Outcome, Report};
use crate::masking::Veil;
use crate::style::Ink;
use crate::{human, output};

/// How many parts of a file are loaded at a time; a part may be large.
const PAGE: usize = 16;

/// What stands in the place of a record that was taken away: every agent's files are lines of JSON.
const TOMBSTONE: &[u8] = br#"{"type":"threadkeep-redacted"}"#;

/// Exports the bytes.
pub(super) fn run(args: &ExportArgs, thread: &str, app: &mut App) -> Outcome {
    let store = app.read()?;
    let thread = store.find(thread)?;
    let source = source(&store, &thread, args.source.as_deref())?;
    let parts = Parts { store: &store, source: &source, veil: Veil::new(&args.masking)? };
    let Some(path) = &args.output else {
        let written = parts.write(&mut |bytes| app.out.bytes(bytes))?;
        parts.tell(&written);
        return Ok(Code::Done);
    };
    let written = file::write_whole(path, |out| parts.write(&mut |bytes| Ok(out.write_all(bytes)?)))?;
    parts.tell(&written);
    tell_file(app, &thread, &source, path, written)
}

fn tell_file(app: &mut App, thread: &ThreadId, source: &SourceFile, path: &Path, written: Written) -> Outcome {
    let file = path.display().to_string();
    if app.out.is_json() {
        let document = json!({
            "thread": thread,
            "source": source.path,
            "file": file,
            "bytes": written.bytes,
            "redacted": written.redacted,
            "verbatim": written.is_verbatim,
        });
        app.out.document(&document)?;
    } else {
        app.out.line(format!("Wrote {} to {file}", human::bytes(i64::try_from(written.bytes).unwrap_or(i64::MAX))))?;
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

/// What was written.
#[derive(Debug, Clone, Copy)]
struct Written {
    bytes: u64,
    /// Parts of which something was taken away.
    redacted: u64,
    /// Whether that is what stood in the imported file.
    is_verbatim: bool,
}

/// The parts of an imported file.
struct Parts<'a> {
    store: &'a Store,
    source: &'a SourceFile,
    veil: Veil,
}

impl Parts<'_> {
    /// Writes the bytes of the file, part by part. Records stand apart by one line feed that is not stored with them. In the place
    /// of a record that was taken away stands a line that says so.
    fn write(&self, write: &mut dyn FnMut(&[u8]) -> Result<(), Failure>) -> Result<Written, Failure> {
        let (mut end, mut after) = (0_i64, -1);
        let (mut hasher, mut bytes, mut redacted) = (blake3::Hasher::new(), 0, 0);
        let mut put = |part: &[u8]| {
            hasher.update(part);
            bytes += part.len() as u64;
            write(part)
        };
        loop {
            let parts = self.store.source_parts(&self.source.path, after, PAGE)?;
            if parts.is_empty() {
                break;
            }
            for part in parts {
                end = fill_gap(self.source, end, part.position, &mut put)?;
                redacted += u64::from(part.redacted);
                match part.redacted && part.bytes.is_empty() {
                    true => put(TOMBSTONE)?,
                    false => put(self.veil.bytes(&part.bytes).as_deref().unwrap_or(&part.bytes))?,
                }
                end = end.saturating_add(part.length);
                after = part.position;
            }
        }
        fill_gap(self.source, end, self.source.consumed, &mut put)?;
        let is_verbatim = hasher.finalize().as_bytes() == &self.source.prefix.0;
        Ok(Written { bytes, redacted, is_verbatim })
    }

    /// Says what people would not expect of the bytes.
    fn tell(&self, written: &Written) {
        self.veil.tell(("part", "parts"));
        if written.redacted > 0 {
            let parts = human::counted(written.redacted, "record was", "records were");
            let words = format!("{parts} redacted in the store; this is not the file that was imported");
            output::tell(Ink::Warn, "note", &words);
        } else if !written.is_verbatim && !self.veil.has_masked() {
            let words = "secrets were masked when it was imported; this is not the file that was imported";
            output::tell(Ink::Warn, "note", words);
        }
    }
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
