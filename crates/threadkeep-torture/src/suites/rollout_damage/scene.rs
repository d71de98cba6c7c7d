//! The store whose rollouts are damaged: threads with branches, forks of forks, large payloads and bytes that are no text, some of
//! them archived.

use std::path::Path;

use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{AppendOptions, Kind, NewItem, NewThread, Role, StoreOptions, ThreadId, TurnEnd};

use crate::Result;
use crate::plan::Random;
use crate::work::{self, told};

/// Makes the store, and mirrors it.
pub(super) fn make(folder: &Path) -> Result<()> {
    let store = Store::open(StoreOptions::folder(folder).label("rollouts")).map_err(told)?;
    let mut pen = Pen { store: &store, random: Random::from_seed(7) };
    let workspace = store.workspace(Path::new("/rollouts")).map_err(told)?;
    for thread in ["plain", "tree", "big", "shelved", "empty"] {
        let new = NewThread { id: Some(work::thread_id(thread)?), ..NewThread::default() };
        workspace.create_now(new).and_then(|live| live.shutdown()).map_err(told)?;
    }
    for _ in 0..3 {
        ["plain", "tree", "big", "shelved"].iter().try_for_each(|thread| pen.write(thread, 3))?;
    }
    pen.branch("tree", 12)?;
    pen.branch("tree", 5)?;
    pen.fork("plain", 14, "fork")?;
    pen.fork("fork", 17, "fork-of-fork")?;
    pen.fork("shelved", 9, "fork-of-shelved")?;
    pen.write("plain", 2)?;
    for thread in ["shelved", "fork"] {
        store.archive(&work::thread_id(thread)?).map_err(told)?;
    }
    let report = store.mirror_rollouts(None, None, |_| {}).map_err(told)?;
    match report.problems.first() {
        Some(problem) => Err(format!("mirroring {}: {}", problem.thread, problem.reason)),
        None => Ok(()),
    }
}

struct Pen<'a> {
    store: &'a Store,
    random: Random,
}

impl Pen<'_> {
    /// Some turns, each with a prompt, a result and an answer.
    fn write(&mut self, thread: &str, turns: u64) -> Result<()> {
        let live = self.live(thread)?;
        for turn in 0..turns {
            let prompt = format!("{thread} asks in turn {turn} for {}", self.random.below(u64::MAX));
            live.begin_turn(item(prompt.into_bytes())).map_err(told)?;
            let length = 300 + self.random.below(1_500);
            let result = match (thread, self.random.below(3)) {
                ("big", 0) => self.noise(40_000),
                ("big", _) => self.noise(5_000 + length),
                (_, 0) => self.noise(length / 4),
                _ => format!("{thread} reads \"line {length}\" of a file {{}}\r\n").repeat(9).into_bytes(),
            };
            live.append(vec![item(result)]).map_err(told)?;
            live.append(vec![item(format!("{thread} answers {length}").into_bytes())]).map_err(told)?;
            live.end_turn(TurnEnd::completed()).map_err(told)?;
        }
        live.shutdown().map_err(told)
    }

    fn branch(&mut self, thread: &str, depth: u32) -> Result<()> {
        let id = work::thread_id(thread)?;
        let after = Some(self.store.address_at(&id, depth).map_err(told)?);
        let live = self.live(thread)?;
        let options = AppendOptions { after, ..AppendOptions::default() };
        live.append_with(vec![item(b"another way".to_vec())], options).map_err(told)?;
        live.shutdown().map_err(told)?;
        self.write(thread, 2)
    }

    fn fork(&mut self, parent: &str, depth: u32, thread: &str) -> Result<()> {
        let parent = work::thread_id(parent)?;
        let at = self.store.address_at(&parent, depth).map_err(told)?;
        let new = NewThread { id: Some(work::thread_id(thread)?), ..NewThread::default() };
        self.store.fork(&parent, Some(at), new).map_err(told)?;
        self.write(thread, 2)
    }

    fn live(&self, thread: &str) -> Result<LiveThread> {
        let id: ThreadId = work::thread_id(thread)?;
        self.store.resume(&id, false).map_err(told)
    }

    /// Bytes that no compressor makes smaller, and that are no text.
    fn noise(&mut self, length: u64) -> Vec<u8> {
        (0..length).map(|_| u8::try_from(self.random.below(256)).unwrap_or(0)).collect()
    }
}

fn item(content: Vec<u8>) -> NewItem {
    NewItem { role: Some(Role::Assistant), ..NewItem::raw(Kind::Message, "text", content) }
}
