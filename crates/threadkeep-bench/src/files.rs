//! P7, P9, P10: agents' files taken in, given back and kept: a corpus in the two main formats, and one thread of a gigabyte.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use threadkeep::blocking::Store;
use threadkeep::{Error as StoreError, ItemQuery, Kind, Part, Role, ThreadId, Timestamp, View};
use threadkeep_agents::codec::Codec;
use threadkeep_agents::conversation::Message;
use threadkeep_agents::export::{Export, codec_for};
use threadkeep_agents::import::{ImportOptions, ImportReport, Importer};
use threadkeep_agents::writer::Session;

use crate::corpus::Corpus;
use crate::measure::cpu_now;
use crate::plan::Plan;
use crate::report::{Report, Target, time};
use crate::text::Writer;
use crate::{Error, Result, machine, stores};

const SEED: u64 = 7;
/// The formats of the corpus, in turns.
const AGENTS: [&str; 2] = ["claude-code", "codex"];
const MEGABYTE: f64 = 1e6;
const MEBIBYTE: f64 = 1024.0 * 1024.0;
/// What `rg` looks for, to read everything and find nothing.
const ABSENT: &str = "no file of the corpus says this";
/// Items of one page while the large thread is read.
const PAGE: usize = 500;
const LARGE_ITEM: usize = 1 << 10;
/// What stands around the text of a message in its line.
const AROUND: usize = 440;

/// P7 and P10: importing a corpus beside parsing it and beside looking through it, importing it again, and what it takes on disk.
///
/// # Errors
/// As the store; when the counts of an import do not add up.
pub fn importing(plan: &Plan, root: &Path, report: &mut Report) -> Result<()> {
    let home = root.join("home");
    let files = write_corpus(&Corpus::new(SEED, plan.sizes.imported), &home)?;
    let bytes = size_of(&home)?;
    let (store, _, folder) = stores::fresh(root, "store")?;
    let begun = cpu_now();
    let (ours, first) = timed(|| import(&store, &home))?;
    let cpu = cpu_now() - begun;
    let (parsing, _) = timed(|| parse(&home))?;
    let looking = grep(&home)?;
    let (again, second) = timed(|| import(&store, &home))?;
    if (first.files.read, second.files.unchanged, second.items.imported) != (files, files, 0) {
        return Err(Error::from(format!("{files} files: first {first:?}, then {second:?}")));
    }
    let speed = |seconds: f64| as_f64(bytes) / MEGABYTE / seconds;
    let side = |seconds: f64| format!("{} ({:.0} MB/s)", time(seconds), speed(seconds));
    if plan.wants("P7") {
        let what = format!("importing {files} files of {:.0} MB in two formats, in MB/s", as_f64(bytes) / MEGABYTE);
        report.number("P7", what, (side(ours), side(parsing)), speed(ours), Target::AtLeast(60.0));
        let of_cpu = (format!("{} of CPU", time(cpu)), String::new());
        report.number("P7", "… by the time of a processor that it took, in MB/s", of_cpu, speed(cpu), Target::None);
        report.compare("P7", "… against parsing each line", (time(ours), time(parsing)), ours / parsing, Target::None);
        if let Some(looking) = looking {
            let sides = (time(ours), side(looking));
            report.compare("P7", "… against `rg` for what is not there", sides, ours / looking, Target::None);
        }
        let pace = as_f64(files) / again;
        let sides = (time(again), String::new());
        report.number(
            "P7",
            "importing it again, unchanged, in files per second",
            sides,
            pace,
            Target::AtLeast(20_000.0),
        );
    }
    if plan.wants("P10") {
        store.sync()?;
        let without = size_of(&folder)?;
        store.index_all(|_| {})?;
        store.compact()?;
        drop(store);
        let with = size_of(&folder)?;
        let mega = |bytes: u64| format!("{:.0} MB", as_f64(bytes) / MEGABYTE);
        let ratio = as_f64(with) / as_f64(bytes);
        let what = "the store with its search index, against the files";
        report.compare("P10", what, (mega(with), mega(bytes)), ratio, Target::AtMost(0.6));
        let ratio = as_f64(without) / as_f64(bytes);
        report.compare("P10", "… without the index", (mega(without), mega(bytes)), ratio, Target::None);
    }
    Ok(())
}

/// P9: the memory that one large thread takes: imported, read, given to another agent, verified, indexed.
///
/// # Errors
/// As the store; when the thread does not come out as it went in.
pub fn one_large_thread(plan: &Plan, root: &Path, report: &mut Report) -> Result<()> {
    let home = root.join("home");
    let (messages, largest) = write_large(&home, plan.sizes.large)?;
    let bytes = size_of(&home)?;
    let (store, _, _) = stores::fresh(root, "store")?;
    let bound = 100.0 + 4.0 * as_f64(largest as u64) / MEBIBYTE;
    let mut measure = |what: &str, run: &mut dyn FnMut() -> Result<u64>| -> Result<u64> {
        let Some(before) = machine::memory()? else { return run() };
        let (seconds, count) = timed(run)?;
        let peak = machine::memory()?.map_or(0.0, |memory| memory.peak - before.now) / MEBIBYTE;
        let what = format!("{what} a thread of {:.0} MB, in MiB of memory", as_f64(bytes) / MEGABYTE);
        report.number(
            "P9",
            what,
            (format!("{peak:.0} MiB, {}", time(seconds)), String::new()),
            peak,
            Target::AtMost(bound),
        );
        Ok(count)
    };
    let items = measure("importing", &mut || Ok(import(&store, &home)?.items.imported))?;
    let thread = store.latest()?.ok_or("nothing was imported")?;
    let read = measure("reading", &mut || read(&store, &thread))?;
    let given = measure("exporting", &mut || export(&store, &thread, "codex"))?;
    let verified = measure("verifying", &mut || Ok(store.verify(&thread)?.items))?;
    measure("indexing", &mut || {
        store.index_all(|_| {})?;
        Ok(0)
    })?;
    if items < messages || read != verified || given < messages {
        let counts = format!("{messages} messages: {items} imported, {read} read, {given} given, {verified} verified");
        return Err(Error::from(counts));
    }
    Ok(())
}

fn import(store: &Store, home: &Path) -> Result<ImportReport> {
    let report = Importer::new(store, ImportOptions::default()).run(&[home.to_owned()], &mut |_| {})?;
    match report.problems.first() {
        Some(problem) => Err(Error::from(format!("{}:{}: {}", problem.file, problem.line, problem.reason))),
        None => Ok(report),
    }
}

fn read(store: &Store, thread: &ThreadId) -> Result<u64> {
    let (mut count, mut query) = (0, ItemQuery { limit: PAGE, ..ItemQuery::default() });
    loop {
        let page = store.items(thread, query.clone())?;
        count += page.entries.len() as u64;
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            return Ok(count);
        }
    }
}

fn export(store: &Store, thread: &ThreadId, agent: &str) -> Result<u64> {
    let export = Export::new(store, thread, None, codec_for(agent)?, &|_| None)?;
    let written = export.write::<StoreError>(&mut |_| Ok(()))?;
    Ok(written.messages)
}

/// Reads every line of every file as JSON, and nothing else.
fn parse(home: &Path) -> Result<u64> {
    let mut lines = 0;
    for path in files_in(home)? {
        let mut file = BufReader::with_capacity(256 << 10, File::open(path)?);
        let mut line = Vec::new();
        while file.read_until(b'\n', &mut line)? > 0 {
            let value: serde_json::Value = serde_json::from_slice(&line)?;
            lines += u64::from(value.is_object());
            line.clear();
        }
    }
    Ok(lines)
}

/// How long `rg` takes to look through the files; nothing where there is none.
fn grep(home: &Path) -> Result<Option<f64>> {
    let Some(rg) = crate::search::program("rg") else { return Ok(None) };
    let run = || {
        let mut command = Command::new(&rg);
        let command = command.args(["--no-config", "--fixed-strings", "--count", ABSENT]).arg(home);
        Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).status()?)
    };
    Ok(Some(timed(run)?.0))
}

fn write_corpus(corpus: &Corpus, home: &Path) -> Result<u64> {
    let codecs = AGENTS.map(codec_for).into_iter().collect::<threadkeep::Result<Vec<_>>>()?;
    let mut files = 0;
    for conversation in corpus.conversations() {
        let codec = codecs.get(conversation.number as usize % codecs.len()).ok_or("no codec")?;
        let begun = conversation.items.first().map_or(Timestamp(0), |item| item.at);
        let session = session(u64::from(conversation.number), begun, &conversation.title);
        let messages = conversation.items.iter().filter_map(|item| {
            let message = Message::of_view(&item.kind, item.view.clone())?;
            Some(Message { created_at: Some(item.at), ..message })
        });
        write_session(&**codec, &session, home, messages)?;
        files += 1;
    }
    Ok(files)
}

/// Writes one session whose file has about so many bytes; gives how many messages it has, and the size of the largest.
fn write_large(home: &Path, bytes: u64) -> Result<(u64, usize)> {
    let codec: Arc<dyn Codec> = codec_for("claude-code")?;
    let mut writer = Writer::new(SEED);
    let count = bytes / (LARGE_ITEM + AROUND) as u64 + 1;
    let begun = Timestamp(1_767_225_600_000);
    let messages = (0..count).map(|number| {
        let (role, text) = if number % 2 == 0 { (Role::User, "asks") } else { (Role::Assistant, "says") };
        let text = format!("{text} {number}: {}", writer.text(LARGE_ITEM));
        let view = View { role: Some(role), parts: vec![Part::Text { text }], ..View::default() };
        let message = Message::of_view(&Kind::Message, view);
        message
            .map(|message| Message { created_at: Some(Timestamp(begun.0.saturating_add_unsigned(number))), ..message })
    });
    let largest = write_session(&*codec, &session(0, begun, "one large thread"), home, messages.flatten())?;
    Ok((count, largest))
}

fn session(number: u64, begun: Timestamp, title: &str) -> Session {
    let named = Session::new("bench", begun);
    let mut session = Session::new(named.made("conversation", number).to_string(), begun);
    session.title = Some(title.to_owned());
    session.cwd = Some(PathBuf::from("/srv/shop"));
    session
}

/// Writes a session where its agent keeps it; gives the size of the largest message.
fn write_session(
    codec: &dyn Codec,
    session: &Session,
    home: &Path,
    messages: impl Iterator<Item = Message>,
) -> Result<usize> {
    let place = home.join(codec.place(session).ok_or("the agent has no place for it")?);
    fs::create_dir_all(place.parent().ok_or("it is no file")?)?;
    let mut file = BufWriter::new(File::create(place)?);
    let mut writer = codec.writer(session).ok_or("the agent can't be written for")?;
    let (mut out, mut largest) = (Vec::new(), 0);
    writer.begin(&mut out);
    for message in messages {
        writer.message(&message, &mut out);
        largest = largest.max(out.len());
        file.write_all(&out)?;
        out.clear();
    }
    writer.finish(&mut out);
    file.write_all(&out)?;
    file.flush()?;
    Ok(largest)
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() { open.push(path) } else { files.push(path) }
        }
    }
    Ok(files)
}

fn size_of(folder: &Path) -> Result<u64> {
    let sizes = files_in(folder)?.into_iter().map(|path| Ok(fs::metadata(path)?.len()));
    sizes.sum()
}

fn timed<T>(run: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let start = Instant::now();
    let done = run()?;
    Ok((start.elapsed().as_secs_f64(), done))
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn as_f64(number: u64) -> f64 {
    number as f64
}
