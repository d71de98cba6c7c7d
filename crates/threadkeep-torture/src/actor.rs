//! A process that does to a store what it is told, a line at a time, and the side that tells it.
//!
//! It answers each line with one: `= <kind> <bytes written> …`, where the kind is `ok` or that of the error.

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{
    Address, AppendOptions, Appended, Error, Expect, Hash, ItemId, ItemQuery, NewThread, StoreOptions, ThreadId,
    TurnEnd, View,
};

use crate::Result;
use crate::child::{Child, HANG, SILENT, say};
use crate::ground;
use crate::plan::Plan;
use crate::suites::Jumping;
use crate::work;

/// How much of a path a reader looks at.
pub(crate) const PAGE: usize = 32;

/// Does what it is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Act {
    #[arg(long)]
    store: PathBuf,
    #[arg(long)]
    label: String,
    /// A clock that stands still at this time, in milliseconds.
    #[arg(long, allow_hyphen_values = true)]
    clock: Option<i64>,
    /// How long a call waits for others or for a server, in milliseconds.
    #[arg(long)]
    bound: Option<u64>,
}

/// Plays the actor.
pub(crate) fn play(args: &Act) -> Result<()> {
    let mut options = ground::options(&args.store).map_err(work::told)?.label(&args.label);
    if let Some(clock) = args.clock {
        options = options.host(Arc::new(Jumping::at(clock)));
    }
    if let Some(bound) = args.bound {
        options = options.busy_bound(Duration::from_millis(bound));
    }
    let mut actor = Actor::open(options)?;
    say("R");
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let words: Vec<&str> = line.split(' ').collect();
        let words = match words.as_slice() {
            ["at", nanos, rest @ ..] => {
                wait_until(nanos.parse().unwrap_or(0));
                rest
            }
            all => all,
        };
        if let ["last", order @ ..] = words {
            // As if it were killed between the commit and its answer.
            drop(actor.perform(order));
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).ok();
        }
        let before = written();
        let done = actor.perform(words);
        let bytes = written().saturating_sub(before);
        match told(done) {
            (kind, rest) if rest.is_empty() => say(format_args!("= {kind} {bytes}")),
            (kind, rest) => say(format_args!("= {kind} {bytes} {rest}")),
        }
    }
    drop(actor);
    say("Z");
    Ok(())
}

/// The time on the clock that all processes of the machine share, in nanoseconds.
pub(crate) fn monotonic() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

fn wait_until(nanos: u64) {
    std::thread::sleep(Duration::from_nanos(nanos.saturating_sub(monotonic())));
}

/// The bytes that this process has given to write calls.
fn written() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("wchar: ")).and_then(|count| count.parse().ok());
    count.unwrap_or(0)
}

/// The kind of an outcome, and what else there is to say of it.
pub(crate) fn told(outcome: threadkeep::Result<String>) -> (&'static str, String) {
    match outcome {
        Ok(rest) => ("ok", rest),
        Err(Error::ClaimHeld { holder, .. }) => {
            ("claim-held", format!("{} {} {} {}", holder.pid, holder.hostname, holder.acquired_at.0, holder.label))
        }
        Err(error) => (error.kind(), error.to_string()),
    }
}

/// An open store, and the threads that are held through it.
#[derive(Debug)]
pub(crate) struct Actor {
    store: Store,
    held: BTreeMap<String, LiveThread>,
}

impl Actor {
    /// Opens the store.
    pub(crate) fn open(options: StoreOptions) -> Result<Self> {
        let store = Store::open(options).map_err(|error| format!("open: {}: {error}", error.kind()))?;
        Ok(Self { store, held: BTreeMap::new() })
    }

    /// Whether a handle of the thread is kept, whatever it is worth by now.
    pub(crate) fn holds(&self, thread: &str) -> bool {
        self.held.contains_key(thread)
    }

    /// Does one thing.
    pub(crate) fn perform(&mut self, words: &[&str]) -> threadkeep::Result<String> {
        let (verb, thread, rest) = match words {
            [verb, thread, rest @ ..] => (*verb, *thread, rest),
            _ => return Err(unknown(words)),
        };
        let id = ThreadId::new(thread)?;
        let empty = || Ok(String::new());
        match (verb, rest) {
            ("new", []) => self.keep(thread, |store| work::claim(store, &id)),
            ("claim", []) => self.keep(thread, |store| store.resume(&id, false)),
            ("take", [reason]) => self.keep(thread, |store| store.take_over(&id, reason, false)),
            ("reserve", more) => {
                let ids = [thread].iter().chain(more).map(|id| ThreadId::new(*id)).collect::<Result<Vec<_>, _>>()?;
                let lives = self.store.reserve(&ids, false)?;
                self.held.extend(lives.into_iter().map(|live| (live.id().to_string(), live)));
                empty()
            }
            ("release", []) => {
                self.live(thread)?.shutdown()?;
                self.held.remove(thread);
                empty()
            }
            ("drop", []) => {
                self.held.remove(thread);
                empty()
            }
            ("ask", []) => self.store.request_release(&id).map(|_| String::new()),
            ("delete", []) => self.store.delete(&id).map(|_| String::new()),
            ("restore", []) => self.store.restore(&id).map(|_| String::new()),
            ("purge", []) => self.store.purge(&id).map(|_| String::new()),
            ("archive", []) => self.store.archive(&id).map(|_| String::new()),
            ("unarchive", []) => self.store.unarchive(&id).map(|_| String::new()),
            ("fork", [new]) => {
                let new = NewThread { id: Some(ThreadId::new(*new)?), ..NewThread::default() };
                self.store.fork(&id, None, new).map(|_| String::new())
            }
            ("read", []) => self.read(&id),
            ("get", []) => self.get(&id),
            ("watch", [nanos]) => {
                while monotonic() < nanos.parse().unwrap_or(0) {
                    self.store.get(&id)?;
                }
                empty()
            }
            _ => self.write(verb, thread, rest),
        }
    }

    /// What needs a handle of the thread.
    fn write(&mut self, verb: &str, thread: &str, rest: &[&str]) -> threadkeep::Result<String> {
        let live = self.live(thread)?;
        let numbers: Vec<u64> = rest.iter().map_while(|word| word.parse().ok()).collect();
        match (verb, numbers.as_slice(), rest) {
            ("append", [life, lane, first, size], _) => {
                let expect = match rest.get(4) {
                    None => Expect::Any,
                    Some(&"-") => Expect::Head(None),
                    Some(head) => Expect::Head(Some(address(head)?)),
                };
                let options = AppendOptions { expect, ..AppendOptions::default() };
                let appended = live.append_with(work::items(*life, *lane, *first, *size), options)?;
                Ok(stored(&appended))
            }
            // The same id with other bytes.
            ("forge", [life, lane, number], _) => {
                let forged = work::items(*life, *lane, *number, 1)
                    .into_iter()
                    .map(|item| threadkeep::NewItem { content: b"forged".to_vec(), ..item })
                    .collect();
                live.append(forged).map(|_| String::new())
            }
            ("begin", [life, lane, number], _) => {
                let prompt = work::items(*life, *lane, *number, 1).into_iter().next();
                let appended = live.begin_turn(prompt.ok_or_else(|| unknown(&[verb]))?)?;
                Ok(stored(&appended))
            }
            ("end", [], []) => {
                let ended = live.end_turn(TurnEnd::completed())?;
                Ok(ended.handed_over.map_or_else(|| "kept".to_owned(), |request| format!("handed-over {}", request.by)))
            }
            ("rewind", [], [to]) => live.rewind(address(to)?).map(|()| String::new()),
            ("unsaved", [], []) => {
                let ids = live.take_unsaved().into_iter().filter_map(|item| item.id.map(|id| id.to_string()));
                Ok(ids.collect::<Vec<_>>().join(","))
            }
            _ => Err(unknown(&[verb])),
        }
    }

    fn keep(
        &mut self,
        thread: &str,
        take: impl FnOnce(&Store) -> threadkeep::Result<LiveThread>,
    ) -> threadkeep::Result<String> {
        let live = take(&self.store)?;
        self.held.insert(thread.to_owned(), live);
        Ok(String::new())
    }

    fn live(&self, thread: &str) -> threadkeep::Result<&LiveThread> {
        self.held.get(thread).ok_or_else(|| Error::Invalid { field: "thread", reason: "it is not held".to_owned() })
    }

    /// The newest page of the path: its head, how many items, and a digest of their ids and hashes.
    fn read(&self, id: &ThreadId) -> threadkeep::Result<String> {
        let query = ItemQuery { limit: PAGE, newest_first: true, ..ItemQuery::default() };
        let page = self.store.items(id, query)?.entries;
        let head = page.first().map_or_else(|| "-".to_owned(), |item| item.id.to_string());
        let digest = page.iter().fold(Hash([0; 32]), |digest, item| link(digest, item.id, item.hash));
        Ok(format!("{head} {} {digest}", page.len()))
    }

    /// Who holds the thread, whether alive, the epoch, and how many items it has written.
    fn get(&self, id: &ThreadId) -> threadkeep::Result<String> {
        let thread = self.store.get(id)?;
        let hash = thread.head_hash.map_or_else(|| "-".to_owned(), |hash| hash.to_string());
        let label = thread.holder.map_or_else(|| "-".to_owned(), |holder| holder.label);
        Ok(format!("{label} {} {} {} {hash}", thread.live, thread.epoch, thread.items))
    }
}

/// Goes on with a digest over the items of a page.
pub(crate) fn link(digest: Hash, id: ItemId, hash: Hash) -> Hash {
    Hash::of(&[&digest.0[..], id.as_bytes(), &hash.0].concat())
}

/// The text of the note that a take-over leaves, where the item is one.
pub(crate) fn note(content: &[u8]) -> Option<String> {
    let view: View = serde_json::from_slice(content).ok()?;
    view.parts.into_iter().find_map(|part| match part {
        threadkeep::Part::Note { text } => Some(text),
        _ => None,
    })
}

/// Where the last item stands, its hash, and whether this call stored it.
fn stored(appended: &Appended) -> String {
    let last = appended.items.last().map(|item| format!("{} {}", item.address(), item.hash));
    format!("{} {}", last.unwrap_or_default(), if appended.repeated { "again" } else { "new" })
}

fn address(text: &str) -> threadkeep::Result<Address> {
    let (branch, depth) = text.split_once('@').ok_or_else(|| unknown(&[text]))?;
    Ok(Address { branch: branch.parse()?, depth: depth.parse().map_err(|_| unknown(&[text]))? })
}

fn unknown(words: &[&str]) -> Error {
    Error::Invalid { field: "order", reason: words.join(" ") }
}

/// An answer of an actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// `ok`, or the kind of the error.
    pub(crate) kind: String,
    /// How many bytes it wrote for it.
    pub(crate) bytes: u64,
    /// What else it says.
    pub(crate) rest: String,
}

impl Answer {
    /// Whether it succeeded.
    pub(crate) fn is_ok(&self) -> bool {
        self.kind == "ok"
    }
}

/// An actor, as the suites see it.
#[derive(Debug)]
pub(crate) struct Peer {
    child: Child,
    /// What it calls itself.
    pub(crate) label: String,
    /// Its process, as this process numbers it; that of the program around it, if there is one.
    pub(crate) pid: u32,
}

impl Peer {
    /// Starts an actor behind the words of another program, if there are any, and waits until its store is open.
    pub(crate) fn start(plan: &Plan, store: &Path, label: &str, wrapper: &[&str], more: &[&str]) -> Result<Self> {
        let program = plan.program.display().to_string();
        let mut words = wrapper.iter().copied().chain([program.as_str(), "act"]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).arg("--store").arg(store).arg("--label").arg(label).args(more);
        let child = Child::start(command)?;
        child.hear_until("R")?;
        Ok(Self { pid: child.id(), child, label: label.to_owned() })
    }

    /// Starts one with nothing around it.
    pub(crate) fn plain(plan: &Plan, store: &Path, label: &str) -> Result<Self> {
        Self::start(plan, store, label, &[], &[])
    }

    /// Tells it to do something.
    pub(crate) fn tell(&mut self, order: &str) -> Result<()> {
        self.child.tell(order)
    }

    /// Its next answer.
    pub(crate) fn answer(&self) -> Result<Answer> {
        let line = self.child.hear()?.ok_or_else(|| format!("{} has ended", self.label))?;
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next().and_then(|bytes| bytes.parse().ok())) {
            (Some("="), Some(kind), Some(bytes)) => {
                Ok(Answer { kind: kind.to_owned(), bytes, rest: words.next().unwrap_or_default().to_owned() })
            }
            _ => Err(format!("{} said `{line}`", self.label)),
        }
    }

    /// Tells it to do something, and hears how that went.
    pub(crate) fn ask(&mut self, order: &str) -> Result<Answer> {
        self.tell(order)?;
        self.answer()
    }

    /// Tells it to do something that must succeed; gives what it says.
    pub(crate) fn must(&mut self, order: &str) -> Result<String> {
        let answer = self.ask(order)?;
        match answer.is_ok() {
            true => Ok(answer.rest),
            false => Err(format!("{}: {order}: {} {}", self.label, answer.kind, answer.rest)),
        }
    }

    /// Asks until it succeeds, as long as a holder is in the way; gives how long that took.
    pub(crate) fn insist(&mut self, order: &str) -> Result<Duration> {
        let begun = Instant::now();
        loop {
            let answer = self.ask(order)?;
            match answer.kind.as_str() {
                "ok" => return Ok(begun.elapsed()),
                "claim-held" if begun.elapsed() < HANG => std::thread::yield_now(),
                "claim-held" => return Err(SILENT.to_owned()),
                kind => return Err(format!("{}: {order}: {kind} {}", self.label, answer.rest)),
            }
        }
    }

    /// Stops it where it is.
    pub(crate) fn stop(&self) {
        self.child.signal(rustix::process::Signal::STOP);
    }

    /// Lets it go on.
    pub(crate) fn go_on(&self) {
        self.child.signal(rustix::process::Signal::CONT);
    }

    /// Tells it to do one thing more and to die before it answers; waits until it is dead.
    pub(crate) fn die_after(mut self, order: &str) -> Result<()> {
        self.tell(&format!("last {order}"))?;
        match self.child.hear()? {
            None => Ok(()),
            Some(line) => Err(format!("{} said `{line}` after its death", self.label)),
        }
    }

    /// Kills it with no chance to clean up.
    pub(crate) fn kill(self) -> Vec<String> {
        self.child.kill()
    }

    /// Lets it end.
    pub(crate) fn finish(self) -> Result<()> {
        let label = self.label;
        let (status, _) = self.child.finish()?;
        if status.success() { Ok(()) } else { Err(format!("{label} ended with {status}")) }
    }
}
