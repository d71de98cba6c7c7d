//! A process of a history: does things by chance, and says what it calls and what it is answered, with the time.
//!
//! `> number nanos order` before a call, `< number nanos kind …` after it.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;

use crate::Result;
use crate::actor::{Actor, monotonic, told};
use crate::child::say;
use crate::ground;
use crate::plan::Random;
use crate::work;

/// Plays a part in a history.
#[derive(Debug, clap::Args)]
pub(crate) struct Play {
    #[arg(long)]
    store: PathBuf,
    #[arg(long)]
    life: u64,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    ops: u64,
    #[arg(long)]
    threads: u64,
    /// The processes there have been: their items are appended again.
    #[arg(long)]
    lives: u64,
    /// Acknowledges appends that it does not make, and answers reads from memory: the sabotage of the controls.
    #[arg(long)]
    lie: Option<String>,
}

/// The batch of this number: where it begins, and how many items it has.
pub(super) fn batch(number: u64) -> (u64, u64) {
    (number * 3, number % 3 + 1)
}

/// What a process calls itself.
pub(super) fn label(life: u64) -> String {
    format!("L{life}")
}

/// Plays the process.
pub(crate) fn play(args: &Play) -> Result<()> {
    let options = ground::options(&args.store).map_err(work::told)?.label(label(args.life));
    let mut player = Player {
        actor: Actor::open(options)?,
        random: Random::from_seed(args.seed),
        args,
        number: 0,
        minds: BTreeMap::new(),
        first_read: None,
    };
    say("R");
    let mut byte = [0];
    drop(std::io::stdin().read(&mut byte));
    while player.number < args.ops {
        let thread = player.random.below(args.threads);
        player.step(thread);
    }
    say("D");
    // As long as others work it must not look dead.
    drop(std::io::stdin().read(&mut byte));
    drop(player);
    say("Z");
    Ok(())
}

/// What a process knows of a thread.
#[derive(Debug, Default)]
struct Mind {
    /// The number of its next batch.
    next: u64,
    /// Addresses that it was answered.
    places: Vec<String>,
    /// Batches of its own that were acknowledged.
    acked: Vec<u64>,
    in_turn: bool,
}

struct Player<'a> {
    actor: Actor,
    random: Random,
    args: &'a Play,
    number: u64,
    minds: BTreeMap<u64, Mind>,
    first_read: Option<String>,
}

impl Player<'_> {
    fn step(&mut self, thread: u64) {
        let name = name(thread);
        let chance = self.random.below(100);
        if !self.actor.holds(&name) {
            let verb = match chance {
                0..45 => "claim",
                45..50 => "take",
                50..75 => "read",
                75..86 => "get",
                86..95 => "ask",
                _ => "delete",
            };
            let order = match verb {
                "take" => format!("take {name} op-{}-{}", self.args.life, self.number),
                verb => format!("{verb} {name}"),
            };
            let (kind, _) = self.call(&order);
            match (verb, kind) {
                ("delete", "ok") => drop(self.call(&format!("restore {name}"))),
                ("claim" | "take", "ok") => self.mind(thread).in_turn = false,
                _ => {}
            }
            return;
        }
        match chance {
            0..45 => self.append(thread, None),
            45..58 => self.expect(thread),
            58..68 => self.again(thread),
            68..71 => self.forge(thread),
            71..76 => self.rewind(thread),
            76..82 => self.turn(thread),
            82..88 => drop(self.call(&format!("read {name}"))),
            88..92 => drop(self.call(&format!("get {name}"))),
            92..97 => drop(self.call(&format!("release {name}"))),
            _ => drop(self.call(&format!("drop {name}"))),
        }
    }

    fn append(&mut self, thread: u64, expect: Option<&str>) {
        let number = self.mind(thread).next;
        self.mind(thread).next += 1;
        self.append_batch(thread, self.args.life, number, expect);
    }

    fn append_batch(&mut self, thread: u64, life: u64, number: u64, expect: Option<&str>) {
        let (first, size) = batch(number);
        let expect = expect.map(|place| format!(" {place}")).unwrap_or_default();
        let (kind, rest) = self.call(&format!("append {} {life} {thread} {first} {size}{expect}", name(thread)));
        if kind == "ok" {
            let own = life == self.args.life;
            let mind = self.mind(thread);
            mind.places.extend(rest.split(' ').next().map(str::to_owned));
            if own {
                mind.acked.push(number);
            }
        }
    }

    /// Mostly what was the head when it wrote last, which others may have moved since.
    fn expect(&mut self, thread: u64) {
        let old = self.random.below(4) == 0;
        let count = self.mind(thread).places.len() as u64;
        let back = if old { self.random.below(count) } else { 0 };
        let places = &self.mind(thread).places;
        let place = places.iter().rev().nth(usize::try_from(back).unwrap_or(0)).cloned();
        self.append(thread, Some(place.as_deref().unwrap_or("-")));
    }

    /// A batch of its own or of another process, which may be stored or not.
    fn again(&mut self, thread: u64) {
        let life = if self.random.below(2) == 0 { self.args.life } else { 1 + self.random.below(self.args.lives) };
        let count = self.mind(thread).next + 1;
        let number = self.random.below(count);
        self.append_batch(thread, life, number, None);
    }

    fn forge(&mut self, thread: u64) {
        let count = self.mind(thread).acked.len() as u64;
        let chosen = usize::try_from(self.random.below(count)).unwrap_or(0);
        if let Some(number) = self.mind(thread).acked.get(chosen).copied() {
            let (first, _) = batch(number);
            self.call(&format!("forge {} {} {thread} {first}", name(thread), self.args.life));
        }
    }

    fn rewind(&mut self, thread: u64) {
        let back = usize::try_from(self.random.below(6)).unwrap_or(0);
        if let Some(place) = self.mind(thread).places.iter().rev().nth(back).cloned() {
            self.call(&format!("rewind {} {place}", name(thread)));
        }
    }

    fn turn(&mut self, thread: u64) {
        if std::mem::take(&mut self.mind(thread).in_turn) {
            self.call(&format!("end {}", name(thread)));
            return;
        }
        // The number of a batch of one item.
        let number = self.mind(thread).next.next_multiple_of(3);
        self.mind(thread).next = number + 1;
        let (first, _) = batch(number);
        let (kind, rest) = self.call(&format!("begin {} {} {thread} {first}", name(thread), self.args.life));
        self.mind(thread).in_turn = kind == "ok" && rest.ends_with(" new");
    }

    /// Calls, and says so.
    fn call(&mut self, order: &str) -> (&'static str, String) {
        let words: Vec<&str> = order.split(' ').collect();
        let number = self.number;
        self.number += 1;
        say(format_args!("> {number} {} {order}", monotonic()));
        let (kind, rest) = match self.lie(&words) {
            Some(lie) => lie,
            None => told(self.actor.perform(&words)),
        };
        say(format_args!("< {number} {} {kind} {rest}", monotonic()));
        if let ["claim-lost" | "closed", thread] = [kind, words.get(1).copied().unwrap_or_default()] {
            // The handle is finished.
            drop(self.actor.perform(&["unsaved", thread]));
            drop(self.actor.perform(&["drop", thread]));
        }
        if rest.starts_with("handed-over") {
            drop(self.actor.perform(&["drop", words.get(1).copied().unwrap_or_default()]));
        }
        (kind, rest)
    }

    /// What a process says that does not do it.
    fn lie(&mut self, words: &[&str]) -> Option<(&'static str, String)> {
        match (self.args.lie.as_deref(), words) {
            (Some("acks"), ["append", ..]) if self.number.is_multiple_of(5) => Some(("ok", "- - new".to_owned())),
            (Some("reads"), ["read", thread]) if *thread == name(0) => {
                if self.first_read.is_none() {
                    self.first_read = self.actor.perform(words).ok().filter(|read| !read.starts_with('-'));
                }
                self.first_read.clone().map(|read| ("ok", read))
            }
            _ => None,
        }
    }

    fn mind(&mut self, thread: u64) -> &mut Mind {
        self.minds.entry(thread).or_default()
    }
}

/// The name of a thread.
pub(super) fn name(thread: u64) -> String {
    format!("shared-{thread}")
}
