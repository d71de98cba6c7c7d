//! The log of strace as what was done to a folder: files, names, bytes and syncs, in order, with the words said between them.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::Result;

/// A file or a folder, whatever its names.
pub(crate) type Node = usize;

/// The folder that is recorded.
pub(crate) const ROOT: Node = 0;

/// The calls that are recorded.
const CALLS: &str = "openat,write,pwrite64,pwritev,writev,ftruncate,truncate,fallocate,fsync,fdatasync,sync_file_range,\
    rename,renameat,renameat2,link,linkat,unlink,unlinkat,rmdir,mkdir,mkdirat,symlink,symlinkat,copy_file_range,sendfile,\
    statfs";
/// More bytes than one call writes.
const LONGEST: &str = "4000000";
/// What is mapped into memory is made anew after a crash, and no call tells what it holds.
const MAPPED: &str = "-shm";

/// Something that was done, between two moments.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// When the call was made.
    pub(crate) begin: usize,
    /// When it returned.
    pub(crate) end: usize,
    /// What it did.
    pub(crate) act: Act,
}

/// What a call did.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Made a file or a folder, or gave a file a further name.
    Make { dir: Node, name: String, node: Node, folder: bool },
    /// Removed a name.
    Remove { dir: Node, name: String },
    /// Gave a node another name, in the place of whatever bore it.
    Move { from: (Node, String), to: (Node, String), node: Node },
    /// Wrote bytes.
    Write { node: Node, at: usize, bytes: Arc<[u8]> },
    /// Made a file longer or shorter.
    Resize { node: Node, len: usize },
    /// Waited until a node is stored; with `all` whatever is known of it, else what is needed to read it.
    Sync { node: Node, all: bool },
}

/// A line of the one who was recorded.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    /// When it was said.
    pub(crate) moment: usize,
    /// The number of the log that it stands in.
    pub(crate) run: usize,
    /// Its words.
    pub(crate) line: String,
}

/// A folder as it was, and what was done and said since.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// What stood in the folders before.
    pub(crate) names: BTreeMap<Node, BTreeMap<String, Node>>,
    /// What stood in the files before.
    pub(crate) contents: BTreeMap<Node, Arc<Vec<u8>>>,
    /// What was done, in order of its beginning.
    pub(crate) steps: Vec<Step>,
    /// What was said.
    pub(crate) said: Vec<Said>,
    /// How many moments there are.
    pub(crate) moments: usize,
}

/// A command that is recorded into a log. `poke` makes every file system claim to be one that several machines share.
pub(crate) fn recorder(inner: &Command, log: &Path, poke: bool) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-y", "-xx", "-s", LONGEST, "--seccomp-bpf", "-e", "signal=none"]);
    command.arg("-e").arg(format!("trace={CALLS}"));
    // Bytes that the kernel copies by itself are not in the log; without these calls they are read and written.
    command.args(["-e", "inject=copy_file_range,sendfile:error=ENOSYS"]);
    if poke {
        command.args(["-e", "inject=statfs:poke_exit=@arg2=4655736500000000"]);
    }
    command.arg("-o").arg(log).arg(inner.get_program()).args(inner.get_args());
    command
}

/// Reads what is in a folder and the logs of what was done to it, one after the other.
pub(crate) fn read(before: &Path, root: &Path, logs: &[PathBuf]) -> Result<Recording> {
    let mut reader = Reader { root: root.display().to_string(), ..Reader::default() };
    reader.next = ROOT + 1;
    reader.take_folder(before, ROOT)?;
    let (names, contents) = (reader.names.clone(), std::mem::take(&mut reader.contents));
    for log in logs {
        let text = std::fs::read_to_string(log).map_err(|error| format!("the log of strace: {error}"))?;
        reader.places.clear();
        for line in text.lines() {
            reader.hear(line).map_err(|words| format!("{words}, in the log of strace: {}", short(line)))?;
        }
        // Who ended in the middle of a call did not see it return.
        reader.waiting.clear();
        reader.run += 1;
    }
    let Reader { mut steps, said, now, .. } = reader;
    steps.sort_by_key(|step| step.begin);
    Ok(Recording { names, contents, steps, said, moments: now + 1 })
}

fn short(line: &str) -> String {
    line.chars().take(200).collect()
}

#[derive(Default)]
struct Reader {
    root: String,
    next: Node,
    names: BTreeMap<Node, BTreeMap<String, Node>>,
    contents: BTreeMap<Node, Arc<Vec<u8>>>,
    steps: Vec<Step>,
    said: Vec<Said>,
    now: usize,
    run: usize,
    /// Calls that have not returned, by thread.
    waiting: HashMap<String, (usize, String)>,
    /// How far files were written by calls that name no place.
    places: HashMap<String, usize>,
}

impl Reader {
    fn take_folder(&mut self, folder: &Path, node: Node) -> Result<()> {
        self.names.entry(node).or_default();
        let told = |error: std::io::Error| format!("{}: {error}", folder.display());
        for entry in std::fs::read_dir(folder).map_err(told)? {
            let entry = entry.map_err(told)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(MAPPED) {
                continue;
            }
            let child = self.fresh();
            self.names.entry(node).or_default().insert(name, child);
            if entry.file_type().map_err(told)?.is_dir() {
                self.take_folder(&entry.path(), child)?;
            } else {
                self.contents.insert(child, Arc::new(std::fs::read(entry.path()).map_err(told)?));
            }
        }
        Ok(())
    }

    fn fresh(&mut self) -> Node {
        self.next += 1;
        self.next - 1
    }

    fn hear(&mut self, line: &str) -> Result<()> {
        self.now += 1;
        let (thread, rest) = line.split_once(' ').ok_or("a line without a call")?;
        let rest = rest.trim_start();
        if let Some(begun) = rest.strip_suffix(" <unfinished ...>") {
            self.say(begun);
            self.waiting.insert(thread.to_owned(), (self.now, begun.to_owned()));
            return Ok(());
        }
        let (begin, call) = match rest.strip_prefix("<... ") {
            Some(resumed) => {
                let (begin, begun) = self.waiting.remove(thread).ok_or("a call that was never made")?;
                let (_, ended) = resumed.split_once(" resumed>").ok_or("a call that returned without a name")?;
                (begin, begun + ended)
            }
            None => {
                self.say(rest);
                (self.now, rest.to_owned())
            }
        };
        let Some((call, answer)) = call.rsplit_once(" = ") else { return Ok(()) };
        if answer.starts_with('-') || answer.starts_with('?') {
            return Ok(());
        }
        let call = call.trim_end();
        let Some((name, args)) = call.strip_suffix(')').and_then(|call| call.split_once('(')) else { return Ok(()) };
        let args: Vec<&str> = args.split(", ").collect();
        self.take(begin, name, &args, answer)
    }

    /// Notes what is written to the standard output: whoever writes it says that it holds.
    fn say(&mut self, call: &str) {
        let Some(args) = call.strip_prefix("write(1<").or_else(|| call.strip_prefix("write(1,")) else { return };
        if let Some(bytes) = args.split('"').nth(1).map(unhex) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let said = |line: &str| Said { moment: self.now, run: self.run, line: line.to_owned() };
            self.said.extend(text.lines().map(said));
        }
    }

    fn take(&mut self, begin: usize, call: &str, args: &[&str], answer: &str) -> Result<()> {
        let arg = |number: usize| args.get(number).copied().unwrap_or("");
        match call {
            "openat" => self.take_open(begin, (arg(0), arg(1)), arg(2), answer),
            "pwrite64" => self.take_write(begin, (arg(0), arg(1)), number(arg(3))?, answer)?,
            "write" => {
                let Some(path) = opened(arg(0)).filter(|path| self.inside(path).is_some()) else { return Ok(()) };
                let at = self.places.get(&path).copied().unwrap_or(0);
                self.places.insert(path, at + number(answer)?);
                self.take_write(begin, (arg(0), arg(1)), at, answer)?;
            }
            "ftruncate" => self.take_resize(begin, arg(0), number(arg(1))?),
            "fsync" | "fdatasync" => {
                if let Some(node) = opened(arg(0)).and_then(|path| self.node(&path)) {
                    self.step(begin, Act::Sync { node, all: call == "fsync" });
                }
            }
            "mkdir" => self.take_make(begin, &path_of("", arg(0)), true),
            "mkdirat" => self.take_make(begin, &path_of(arg(0), arg(1)), true),
            "unlink" | "rmdir" => self.take_remove(begin, &path_of("", arg(0))),
            "unlinkat" => self.take_remove(begin, &path_of(arg(0), arg(1))),
            "rename" => self.take_move(begin, &path_of("", arg(0)), &path_of("", arg(1)), true)?,
            "renameat" | "renameat2" => {
                self.take_move(begin, &path_of(arg(0), arg(1)), &path_of(arg(2), arg(3)), true)?;
            }
            "link" => self.take_move(begin, &path_of("", arg(0)), &path_of("", arg(1)), false)?,
            "linkat" => self.take_move(begin, &path_of(arg(0), arg(1)), &path_of(arg(2), arg(3)), false)?,
            "statfs" => {}
            // Nothing that a store does; a recording without it would be of something else.
            _ if args.iter().filter_map(|arg| opened(arg)).any(|path| self.inside(&path).is_some()) => {
                return Err(format!("a call that can't be played back: {call}"));
            }
            _ => {}
        }
        Ok(())
    }

    fn take_open(&mut self, begin: usize, (dir, name): (&str, &str), flags: &str, answer: &str) {
        let path = path_of(dir, name);
        if let Some(opened) = opened(answer) {
            self.places.insert(opened, 0);
        }
        if self.inside(&path).is_none() {
            return;
        }
        match self.node(&path) {
            None if flags.contains("O_CREAT") => self.take_make(begin, &path, false),
            Some(node) if flags.contains("O_TRUNC") => {
                self.step(begin, Act::Resize { node, len: 0 });
            }
            _ => {}
        }
    }

    fn take_write(&mut self, begin: usize, (file, bytes): (&str, &str), at: usize, answer: &str) -> Result<()> {
        let Some(node) = opened(file).and_then(|path| self.node(&path)) else { return Ok(()) };
        let hex = bytes.strip_prefix('"').and_then(|bytes| bytes.strip_suffix('"')).ok_or("bytes that were cut")?;
        let mut bytes = unhex(hex);
        bytes.truncate(number(answer)?);
        self.step(begin, Act::Write { node, at, bytes: bytes.into() });
        Ok(())
    }

    fn take_resize(&mut self, begin: usize, file: &str, len: usize) {
        if let Some(node) = opened(file).and_then(|path| self.node(&path)) {
            self.step(begin, Act::Resize { node, len });
        }
    }

    fn take_make(&mut self, begin: usize, path: &str, folder: bool) {
        let Some((dir, name)) = self.parent(path) else { return };
        let node = self.fresh();
        self.names.entry(dir).or_default().insert(name.clone(), node);
        self.step(begin, Act::Make { dir, name, node, folder });
    }

    fn take_remove(&mut self, begin: usize, path: &str) {
        let Some((dir, name)) = self.parent(path) else { return };
        self.names.entry(dir).or_default().remove(&name);
        self.step(begin, Act::Remove { dir, name });
    }

    fn take_move(&mut self, begin: usize, from: &str, to: &str, renames: bool) -> Result<()> {
        let (Some(old), Some(new)) = (self.parent(from), self.parent(to)) else {
            let touched = self.inside(from).is_some() || self.inside(to).is_some();
            return if touched && !to.ends_with(MAPPED) { Err("a name from elsewhere".to_owned()) } else { Ok(()) };
        };
        let node = self.names.get(&old.0).and_then(|names| names.get(&old.1)).copied().ok_or("a name of nothing")?;
        self.names.entry(new.0).or_default().insert(new.1.clone(), node);
        if renames {
            self.names.entry(old.0).or_default().remove(&old.1);
            self.step(begin, Act::Move { from: old, to: new, node });
        } else {
            self.step(begin, Act::Make { dir: new.0, name: new.1, node, folder: false });
        }
        Ok(())
    }

    fn step(&mut self, begin: usize, act: Act) {
        self.steps.push(Step { begin, end: self.now, act });
    }

    /// The path below the recorded folder, where it is recorded.
    fn inside<'a>(&self, path: &'a str) -> Option<&'a str> {
        let below = path.strip_prefix(&self.root)?;
        let is_part = below.is_empty() || below.starts_with('/');
        (is_part && !below.ends_with(MAPPED)).then(|| below.trim_start_matches('/'))
    }

    fn node(&self, path: &str) -> Option<Node> {
        let below = self.inside(path)?;
        let mut parts = below.split('/').filter(|part| !part.is_empty());
        parts.try_fold(ROOT, |node, part| self.names.get(&node)?.get(part).copied())
    }

    fn parent(&self, path: &str) -> Option<(Node, String)> {
        let below = self.inside(path)?.trim_end_matches('/');
        let (folder, name) = below.rsplit_once('/').unwrap_or(("", below));
        let folder = self.node(&format!("{}/{folder}", self.root))?;
        (!name.is_empty()).then(|| (folder, name.to_owned()))
    }
}

/// The path of an open file: `3<\x2f\x61>`. What has no name any more is nowhere.
fn opened(file: &str) -> Option<String> {
    let (_, path) = file.split_once('<')?;
    let path = path.strip_suffix('>')?;
    Some(String::from_utf8_lossy(&unhex(path)).into_owned())
}

/// A path, and the folder that it begins in.
fn path_of(dir: &str, name: &str) -> String {
    let name = name.trim_matches('"');
    let name = String::from_utf8_lossy(&unhex(name)).into_owned();
    match opened(dir) {
        Some(dir) if !name.starts_with('/') => format!("{dir}/{name}"),
        _ => name,
    }
}

/// Bytes written as `\x41\x42`.
fn unhex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok()).unwrap_or(0);
    let pair = |chunk: &[u8]| match chunk {
        [b'\\', b'x', high, low] => Some(digit(*high) * 16 + digit(*low)),
        _ => None,
    };
    text.as_bytes().chunks(4).filter_map(pair).collect()
}

fn number(text: &str) -> Result<usize> {
    text.trim().parse().map_err(|_| format!("`{}` is no number", short(text)))
}
