//! The process that reads them.

use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use threadkeep::blocking::Store;
use threadkeep::{Error, ListQuery, ThreadId};
use threadkeep_agents::export::{Export, codec_for};
use threadkeep_agents::import::{ImportOptions, Importer};

use crate::child::{most_memory, say};
use crate::{Result, ground};

/// Whom the threads are given to.
const AGENTS: [&str; 2] = ["codex", "claude-code"];
/// A sign of life, while a long step says nothing.
const BREATH: Duration = Duration::from_secs(10);
const PAGE: usize = 500;
const PARTS: usize = 4;
/// What a process holds that holds too much.
const TOO_MUCH: usize = 600 << 20;

/// Imports a folder, and looks at everything that came of it.
#[derive(Debug, clap::Args)]
pub(crate) struct Devour {
    #[arg(long)]
    store: PathBuf,
    #[arg(long)]
    folder: PathBuf,
    /// Holds more memory than it may.
    #[arg(long)]
    hold: bool,
    /// Compares with other bytes than those of the files.
    #[arg(long)]
    spoil: bool,
}

/// `I` tells the counts of the import, `N` how many items a good file has, `V` what must not be, `M` the memory that a step
/// took, `C` the time of a processor that all of it took, `Z` that it is done.
pub(crate) fn play_reading(args: &Devour) -> Result<()> {
    static DONE: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        while !DONE.load(Ordering::Relaxed) {
            std::thread::sleep(BREATH);
            say("B");
        }
    });
    let told = |error: Error| format!("{}: {error}", error.kind());
    let store = Store::open(ground::options(&args.store).map_err(told)?.label("reader")).map_err(told)?;
    let report = Importer::new(&store, ImportOptions::default())
        .run(std::slice::from_ref(&args.folder), &mut |_| {})
        .map_err(told)?;
    let items = &report.items;
    let (read, imported, unchanged, skipped) = (items.read, items.imported, items.unchanged, items.skipped);
    say(format_args!("I {read} {imported} {unchanged} {skipped} {} {}", report.files.failed, report.problems.len()));
    if report.problems.iter().any(|problem| problem.reason.is_empty() || problem.file.is_empty()) {
        say("V a problem that says nothing");
    }
    drop(report);
    tell_memory("importing")?;
    let mut query = ListQuery { limit: PAGE, ..ListQuery::default() };
    loop {
        let page = store.list(query.clone()).map_err(told)?;
        for thread in &page.entries {
            look(&store, &thread.id, thread.details.title.as_deref()).map_err(told)?;
        }
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    tell_memory("exporting")?;
    let again = Importer::new(&store, ImportOptions::default())
        .run(std::slice::from_ref(&args.folder), &mut |_| {})
        .map_err(told)?;
    if again.items.imported > 0 {
        say(format_args!("V importing again brought {} items", again.items.imported));
    }
    tell_memory("importing again")?;
    compare_below(&store, &args.folder, args.spoil)?;
    let held = if args.hold { vec![1_u8; TOO_MUCH] } else { Vec::new() };
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    let millis = spent.tv_sec.saturating_mul(1_000).saturating_add(spent.tv_nsec / 1_000_000);
    say(format_args!("C {millis} {}", held.len()));
    tell_memory("comparing")?;
    DONE.store(true, Ordering::Relaxed);
    say("Z");
    Ok(())
}

/// Verifies a thread and gives it to other agents, who read JSON.
fn look(store: &Store, thread: &ThreadId, title: Option<&str>) -> threadkeep::Result<()> {
    let verdict = store.verify(thread)?;
    if !verdict.is_intact() {
        say(format_args!("V {thread}: {:?}", verdict.invalid));
    }
    if title == Some(super::files::GOOD) {
        say(format_args!("N {thread} {}", verdict.items));
    }
    for agent in AGENTS {
        let mut line = Vec::new();
        let export = Export::new(store, thread, None, codec_for(agent)?, &|_| None)?;
        export.write::<Error>(&mut |bytes| {
            let mut rest = bytes;
            while let Some(end) = memchr::memchr(b'\n', rest) {
                let (head, tail) = rest.split_at(end + 1);
                line.extend_from_slice(head);
                judge_line(thread, agent, &line);
                line.clear();
                rest = tail;
            }
            // A line may be nothing but spaces, gigabytes of them.
            if !(line.is_empty() && rest.iter().all(u8::is_ascii_whitespace)) {
                line.extend_from_slice(rest);
            }
            Ok(())
        })?;
        if !line.is_empty() {
            say(format_args!("V {thread} for {agent} ends without the end of a line"));
        }
    }
    Ok(())
}

/// What is given to others is UTF-8 and JSON, whatever the file was.
fn judge_line(thread: &ThreadId, agent: &str, line: &[u8]) {
    let blank = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).iter().all(u8::is_ascii_whitespace);
    if !blank && serde_json::from_slice::<&serde_json::value::RawValue>(line).is_err() {
        let shown = String::from_utf8_lossy(line.get(..line.len().min(120)).unwrap_or_default()).replace('\n', " ");
        say(format_args!("V {thread} for {agent}: no line of JSON: {shown}"));
    }
}

fn compare_below(store: &Store, folder: &Path, spoil: bool) -> Result<()> {
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(told)? {
        let entry = entry.map_err(told)?;
        let path = entry.path();
        let name = path.to_string_lossy();
        let is_lines = name.ends_with(".jsonl") || name.ends_with(".zst");
        if entry.file_type().map_err(told)?.is_dir() {
            compare_below(store, &path, spoil)?;
        } else if is_lines && !is_as_stored(store, &path, spoil)? {
            say(format_args!("V {name}: other bytes are stored"));
        }
    }
    Ok(())
}

/// Whether what is stored of a file of lines, and the line feeds between, is the file. A file that was refused is not stored.
fn is_as_stored(store: &Store, path: &Path, spoil: bool) -> Result<bool> {
    let told = |error: Error| format!("{}: {error}", error.kind());
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let name = path.display().to_string();
    let Some(source) = store.source(&name).map_err(told)? else { return Ok(true) };
    let file = std::fs::File::open(path).map_err(failed)?;
    let packed = path.extension().is_some_and(|ending| ending == "zst");
    let mut file: Box<dyn std::io::Read> =
        if packed { Box::new(zstd::Decoder::new(file).map_err(failed)?) } else { Box::new(BufReader::new(file)) };
    let (mut at, mut after) = (0, -1);
    loop {
        let parts = store.source_parts(&name, after, PARTS).map_err(told)?;
        let Some(last) = parts.last() else { break };
        after = last.position;
        for part in &parts {
            let feeds = taken(&mut file, part.position - at).map_err(failed)?;
            let mut bytes = vec![0; part.bytes.len()];
            file.read_exact(&mut bytes).map_err(failed)?;
            if feeds.iter().any(|byte| *byte != b'\n') || bytes != part.bytes || spoil {
                return Ok(false);
            }
            at = part.position.saturating_add(part.length);
        }
    }
    // Behind it only a last line without an end is left, which waits.
    Ok(taken(&mut file, source.consumed - at).map_err(failed)?.iter().all(|byte| *byte == b'\n'))
}

fn taken(file: &mut dyn std::io::Read, count: i64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(u64::try_from(count).unwrap_or(0)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Tells what this process held at most since this was last told.
fn tell_memory(step: &str) -> Result<()> {
    say(format_args!("M {} {step}", most_memory()?));
    std::fs::write("/proc/self/clear_refs", "5").map_err(|error| format!("the memory of a process: {error}"))
}
