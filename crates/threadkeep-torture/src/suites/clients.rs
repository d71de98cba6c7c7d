//! Processes that write synced until they are told to end, whatever happens to their server; nobody helps them.

use std::path::PathBuf;
use std::time::Duration;

use crate::Result;
use crate::checker::{self, Depth};
use crate::child::{Child, HANG};
use crate::oracle::{Journal, Rule, Tally};
use crate::plan::Plan;
use crate::suites::{Writing, kills::hear_all};

/// The processes, and the account of what they wrote.
#[derive(Debug)]
pub(super) struct Clients<'a> {
    plan: &'a Plan,
    /// The store as they know it, and as it is known to those who look.
    stores: [PathBuf; 2],
    count: u64,
    lanes: u64,
    rest: u64,
    life: u64,
    running: Vec<(u64, Child)>,
    pub(super) journal: Journal,
    pub(super) tally: Tally,
    /// Appends that were told as failed and went on in their handles.
    pub(super) kept: u64,
    /// The longest time that one of them was without an answer.
    pub(super) silence: Duration,
}

fn thread(lane: u64) -> String {
    format!("lane-{lane}")
}

impl<'a> Clients<'a> {
    /// So many processes with so many threads each; they rest between two appends, so that many of them leave the machine some
    /// time for what is to happen.
    pub(super) fn new(plan: &'a Plan, stores: [PathBuf; 2], (count, lanes): (u64, u64)) -> Self {
        let mut journal = Journal::default();
        (0..count * lanes).for_each(|lane| journal.open(&thread(lane), lane));
        let (running, tally, silence) = (Vec::new(), Tally::default(), Duration::ZERO);
        Self { plan, stores, count, lanes, rest: count / 2, life: 0, running, journal, tally, kept: 0, silence }
    }

    /// Starts all of them, and waits until each holds its threads.
    pub(super) fn start(&mut self) -> Result<()> {
        let [store, _] = &self.stores;
        for number in 0..self.count {
            self.life += 1;
            let lanes = number * self.lanes..(number + 1) * self.lanes;
            let lanes = lanes.map(|lane| format!("{}={lane}", thread(lane))).collect::<Vec<_>>().join(",");
            let writing = Writing { lanes: &lanes, life: self.life, level: "synced", batches: 0, lie: false };
            let mut command = writing.command(self.plan, store);
            command.args(["--patient", "--until-told", "--rest", &self.rest.to_string()]);
            self.running.push((self.life, Child::start(command)?));
        }
        self.running.iter().try_for_each(|(_, child)| child.hear_until("R").map(drop))
    }

    /// Waits until every one of them was answered again.
    pub(super) fn listen(&mut self) -> Result<()> {
        let running = std::mem::take(&mut self.running);
        for (life, child) in &running {
            let mut lines = child.heard();
            let goes_on = child.listen("A", HANG, &mut lines)?;
            self.hear(*life, &lines);
            if !goes_on {
                self.tally.add(Rule::Misbehaved, format!("client {life} does not go on"));
            }
        }
        self.running = running;
        Ok(())
    }

    /// Tells them to end, and waits until they have.
    pub(super) fn end(&mut self) -> Result<()> {
        for (life, mut child) in std::mem::take(&mut self.running) {
            child.go()?;
            let (status, lines) = child.finish()?;
            if !status.success() {
                self.tally.add(Rule::Misbehaved, format!("a client ended with {status}"));
            }
            self.hear(life, &lines);
        }
        Ok(())
    }

    /// Has fresh processes look at what was written since the last time.
    pub(super) fn judge(&mut self) {
        let [_, look] = &self.stores;
        checker::judge(self.plan, look, &mut self.journal, Depth::default(), &mut self.tally);
    }

    /// Has them look at everything, and verify it.
    pub(super) fn judge_whole(&mut self) {
        let [_, look] = &self.stores;
        checker::judge_whole(self.plan, look, &self.journal, &mut self.tally);
    }

    fn hear(&mut self, life: u64, lines: &[String]) {
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["E", _, _, _, "kept", ..] => self.kept += 1,
                ["E" | "W" | "X", ..] => self.tally.add(Rule::Misbehaved, format!("client {life}: {line}")),
                ["G", _, millis] => {
                    self.silence = self.silence.max(Duration::from_millis(millis.parse().unwrap_or(0)));
                }
                _ => {}
            }
        }
        hear_all(&mut self.journal, life, lines);
    }
}
