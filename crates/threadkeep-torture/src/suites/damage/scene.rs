//! The store that is damaged: threads with branches and a fork, items that are stored plain, compressed and apart, and seals.
//! Whoever makes it says what was acknowledged, and how long the log was then.

use std::path::{Path, PathBuf};

use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{AppendOptions, Durability, Hash, ItemId, Kind, NewItem, NewThread, Role, StoreOptions};

use crate::Result;
use crate::child::say;
use crate::plan::Random;
use crate::work::{self, told};

/// The threads, and the one that was forked off.
pub(super) const THREADS: [&str; 4] = ["plain", "tree", "big", "fork"];

/// Makes the store, or goes on with it and waits for its end.
#[derive(Debug, clap::Args)]
pub(crate) struct Lay {
    /// The folder that holds the store and, beside it, the keys.
    #[arg(long)]
    root: PathBuf,
    /// Goes on with one that is there, and leaves its log.
    #[arg(long)]
    more: bool,
}

/// What was acknowledged of an item.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acked {
    pub(super) content: Hash,
    /// How long the log was then.
    pub(super) log: u64,
}

/// The store's folder.
pub(super) fn store(root: &Path) -> PathBuf {
    root.join("store")
}

/// How the store is opened.
pub(super) fn options(root: &Path) -> StoreOptions {
    StoreOptions::folder(store(root)).keys(root.join("keys")).label("damage")
}

/// Reads what the maker said.
pub(super) fn read_ack(line: &str) -> Option<(ItemId, Acked)> {
    let words: Vec<&str> = line.split(' ').collect();
    let ["O", id, content, log] = words.as_slice() else { return None };
    Some((id.parse().ok()?, Acked { content: content.parse().ok()?, log: log.parse().ok()? }))
}

/// Plays the maker.
pub(crate) fn play_layer(args: &Lay) -> Result<()> {
    let store = Store::open(options(&args.root)).map_err(told)?;
    let log = self::store(&args.root).join("threadkeep.db-wal");
    let mut pen = Pen { store: &store, random: Random::from_seed(if args.more { 2 } else { 1 }), log };
    if args.more {
        THREADS.iter().try_for_each(|thread| pen.write(thread, 3))?;
        store.seal(None, false).map_err(told)?;
        say("R");
        // Until it is killed: the log stays as it is.
        drop(std::io::stdin().lines().next());
        return Ok(());
    }
    store.create_key().map_err(told)?;
    pen.make()?;
    store.seal(None, false).map_err(told)?;
    drop(store);
    say("Z");
    Ok(())
}

struct Pen<'a> {
    store: &'a Store,
    random: Random,
    log: PathBuf,
}

impl Pen<'_> {
    fn make(&mut self) -> Result<()> {
        let workspace = self.store.workspace(Path::new("/damage")).map_err(told)?;
        for thread in ["plain", "tree", "big"] {
            let new = NewThread { id: Some(work::thread_id(thread)?), ..NewThread::default() };
            workspace.create_now(new).and_then(|live| live.shutdown()).map_err(told)?;
        }
        // In turns, so that the pages of the threads lie between each other.
        for _ in 0..4 {
            ["plain", "tree", "big"].iter().try_for_each(|thread| self.write(thread, 4))?;
        }
        let tree = work::thread_id("tree")?;
        let after = Some(self.store.address_at(&tree, 30).map_err(told)?);
        let live = self.store.resume(&tree, false).map_err(told)?;
        self.append(&live, b"another way", AppendOptions { after, ..AppendOptions::default() })?;
        live.shutdown().map_err(told)?;
        self.write("tree", 4)?;
        let plain = work::thread_id("plain")?;
        let at = self.store.address_at(&plain, 40).map_err(told)?;
        let new = NewThread { id: Some(work::thread_id("fork")?), ..NewThread::default() };
        self.store.fork(&plain, Some(at), new).map_err(told)?;
        self.write("fork", 4)
    }

    /// Some turns, each with a prompt, a result and an answer.
    fn write(&mut self, thread: &str, turns: u64) -> Result<()> {
        let live = self.store.resume(&work::thread_id(thread)?, false).map_err(told)?;
        for turn in 0..turns {
            let prompt = format!("{thread} asks in turn {turn} for {}", self.random.below(u64::MAX));
            let begun =
                live.begin_turn(NewItem::raw(Kind::Message, "text", prompt.clone().into_bytes())).map_err(told)?;
            self.tell(begun.items.first().map(|item| item.id), prompt.as_bytes());
            let length = 400 + self.random.below(2_500);
            let result = match (thread, self.random.below(3)) {
                ("big", _) => self.noise(20_000 + length * 12),
                (_, 0) => self.noise(length),
                _ => format!("{thread} reads line {length} of a file\n").repeat(60).into_bytes(),
            };
            self.append(&live, &result, AppendOptions::default())?;
            let answer = format!("{thread} answers {} and has done so", self.random.below(u64::MAX));
            self.append(&live, answer.as_bytes(), AppendOptions::default())?;
        }
        live.shutdown().map_err(told)
    }

    fn append(&self, live: &LiveThread, content: &[u8], options: AppendOptions) -> Result<()> {
        let item = NewItem { role: Some(Role::Assistant), ..NewItem::raw(Kind::Message, "text", content.to_owned()) };
        let options = AppendOptions { durability: Durability::Synced, ..options };
        let appended = live.append_with(vec![item], options).map_err(told)?;
        self.tell(appended.items.first().map(|item| item.id), content);
        Ok(())
    }

    fn tell(&self, id: Option<ItemId>, content: &[u8]) {
        let log = std::fs::metadata(&self.log).map_or(0, |found| found.len());
        if let Some(id) = id {
            say(format_args!("O {id} {} {log}", Hash::of(content)));
        }
    }

    /// Bytes that no compressor makes smaller.
    fn noise(&mut self, length: u64) -> Vec<u8> {
        (0..length).map(|_| u8::try_from(self.random.below(256)).unwrap_or(0)).collect()
    }
}
