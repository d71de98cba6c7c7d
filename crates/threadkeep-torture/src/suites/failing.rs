//! T06: other calls fail, at every one of them, once or for ever; and writes that are short.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::Result;
use crate::oracle::{Rule, Tally};
use crate::plan::Plan;
use crate::report::{Outcome, Stop};
use crate::suites::Writing;
use crate::suites::points::{Bench, some_of};
use crate::tools::{self, Injection};

const BATCHES: u64 = 6;
/// SQLite takes a lock that can't be had for a busy one and waits its ten seconds each time, so few of these are tried.
const LOCKING: &str = "fcntl";
const SLOW: usize = 4;
/// The call, its error, and at how many places at most it also stays for ever: who is interrupted for ever tries for ever.
const FAULTS: [(&str, &str, usize); 10] = [
    ("pwrite64", "ENOSPC", usize::MAX),
    ("pwrite64", "EDQUOT", usize::MAX),
    ("pwrite64", "EIO", usize::MAX),
    ("pwrite64", "EINTR", 0),
    ("openat", "EMFILE", usize::MAX),
    (LOCKING, "ENOLCK", SLOW),
    ("flock", "ENOLCK", usize::MAX),
    ("ftruncate", "EIO", 0),
    ("pread64", "EIO", 0),
    ("mmap", "ENOMEM", 0),
];

/// Writes half at the k-th write to a file, then says that the disk is full, then all is well: the way in which a full disk
/// shows itself to whoever does not look at the count.
const SHORT_WRITES: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>
static int calls, armed;
static int fault(int fd) {
  const char *k = getenv("TORTURE_SHORT_WRITE");
  if (!k || fd < 3) return 0;
  if (armed == 1) { armed = 2; return 2; }
  if (__sync_add_and_fetch(&calls, 1) == atoi(k)) { armed = 1; return 1; }
  return 0;
}
#define SHORT(name, offset) \
  ssize_t name(int fd, const void *bytes, size_t count, offset at) { \
    static ssize_t (*real)(int, const void *, size_t, offset); \
    if (!real) real = dlsym(RTLD_NEXT, #name); \
    int f = fault(fd); \
    if (f == 2) { errno = ENOSPC; return -1; } \
    return real(fd, bytes, f == 1 && count > 1 ? count / 2 : count, at); \
  }
SHORT(pwrite, off_t)
SHORT(pwrite64, off64_t)
"#;

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    tools::need_strace()?;
    let mut bench = Bench::new(plan, &[("main", 0)])?;
    let mut figures = Figures::default();
    let life = bench.next_life();
    let inner = writing(life, false).command(plan, &bench.store());
    let traced = tools::strace(&inner, Some(&bench.store()), "all", None, &bench.log());
    bench.run(traced, true)?;
    let counts: BTreeMap<String, u64> = tools::counted_calls(&bench.log())?.into_iter().collect();
    let mut random = plan.random("failing");
    let mut listed = Vec::new();
    for (call, error, for_ever) in FAULTS {
        let count = counts.get(call).copied().unwrap_or(0);
        let what = format!("error={error}");
        let fault = |at, sticky| Injection { call: call.to_owned(), what: what.clone(), at, sticky };
        let (once, for_ever) = match call == LOCKING {
            true => plan.pick((0, 0), (SLOW * 6, for_ever), (usize::MAX, for_ever)),
            false => (usize::MAX, for_ever),
        };
        listed.extend(some_of((1..=count).collect(), once, &mut random).into_iter().map(|at| fault(at, false)));
        listed.extend(some_of((1..=count).collect(), for_ever, &mut random).into_iter().map(|at| fault(at, true)));
    }
    outcome.figure("calls that can fail", listed.len());
    // These are few, and each of them opens another file.
    let (opening, others): (Vec<_>, _) = listed.into_iter().partition(|fault| fault.call == "openat" && !fault.sticky);
    let others = some_of(others, plan.pick(34, usize::MAX, usize::MAX), &mut random);
    for (place, fault) in opening.into_iter().chain(others).enumerate() {
        let life = bench.next_life();
        let inner = writing_at(place, life).command(plan, &bench.store());
        let command = tools::strace(&inner, Some(&bench.store()), &fault.call, Some(&fault), &bench.log());
        figures.point(&mut bench, (life, command), (&fault.words(), fault.sticky), &mut outcome.tally)?;
    }
    let shim = tools::compile(SHORT_WRITES, bench.path(), "short.so", true)?;
    let writes = counts.get("pwrite64").copied().unwrap_or(0);
    let short = some_of((1..=writes).collect(), plan.pick(12, usize::MAX, usize::MAX), &mut random);
    for (place, at) in short.into_iter().enumerate() {
        let life = bench.next_life();
        let mut command = writing_at(place, life).command(plan, &bench.store());
        command.env("LD_PRELOAD", &shim).env("TORTURE_SHORT_WRITE", at.to_string());
        figures.point(&mut bench, (life, command), (&format!("short write {at}"), false), &mut outcome.tally)?;
        figures.short += 1;
    }
    figures.tell(outcome);
    let lost = control(plan, &mut bench, writes)?;
    outcome.control("a writer that acknowledges though the disk is full", lost);
    Ok(())
}

/// The disk is full for ever from some write on, and the writer does not care: the oracle must see it.
fn control(plan: &Plan, bench: &mut Bench<'_>, writes: u64) -> Result<bool> {
    for at in (1..=writes).rev() {
        let life = bench.next_life();
        let fault = Injection { call: "pwrite64".to_owned(), what: "error=ENOSPC".to_owned(), at, sticky: true };
        let inner = writing(life, true).command(plan, &bench.store());
        let ended =
            bench.run(tools::strace(&inner, Some(&bench.store()), "pwrite64", Some(&fault), &bench.log()), true)?;
        let mut tally = Tally::default();
        bench.judge(life, &ended.lines, &mut tally);
        if tally.count(Rule::AckedLost) > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Every second time queued appends, which share commits: when one fails, each of them must be kept, and in order.
fn writing_at(place: usize, life: u64) -> Writing<'static> {
    match place % 2 {
        0 => writing(life, false),
        _ => Writing { level: "queued", batches: BATCHES * 4, ..writing(life, false) },
    }
}

fn writing(life: u64, lie: bool) -> Writing<'static> {
    Writing { lanes: "main=0", life, level: "synced", batches: BATCHES, lie }
}

#[derive(Debug, Default)]
struct Figures {
    points: u64,
    short: u64,
    passing: u64,
    resumed: u64,
    unopened: u64,
    kept_locks: u64,
    slowest: (f64, String),
    kinds: BTreeMap<String, u64>,
}

impl Figures {
    fn point(
        &mut self,
        bench: &mut Bench<'_>,
        (life, command): (u64, std::process::Command),
        (name, for_ever): (&str, bool),
        all: &mut Tally,
    ) -> Result<()> {
        let mut tally = Tally::default();
        let begun = Instant::now();
        let ended = bench.run(command, true)?;
        let seconds = begun.elapsed().as_secs_f64();
        if seconds > self.slowest.0 {
            self.slowest = (seconds, name.to_owned());
        }
        let resumed = ended.resumed();
        // SQLite believes that it holds what it could not let go, until the process ends. No local file system refuses that.
        let log = std::fs::read_to_string(bench.log()).unwrap_or_default();
        let kept_lock = log.lines().any(|line| line.contains("F_UNLCK") && line.contains("(INJECTED)"));
        let can_resume = !for_ever && !ended.never_opened() && !kept_lock;
        if ended.silent {
            tally.add(Rule::Hang, format!("after {}", ended.lines.last().map_or("its start", String::as_str)));
        } else if ended.killed {
            tally.add(Rule::Misbehaved, "it ended by a signal");
        } else if can_resume && !resumed {
            tally.add(Rule::Misbehaved, format!("it did not go on after the fault: {}", ended.lines.join(" / ")));
        }
        self.points += 1;
        self.kept_locks += u64::from(kept_lock);
        self.unopened += u64::from(ended.never_opened());
        self.passing += u64::from(can_resume);
        self.resumed += u64::from(can_resume && resumed);
        for line in &ended.lines {
            let words: Vec<&str> = line.split(' ').collect();
            if let ["E", _, _, _, _, kind, ..] | ["W", _, kind, ..] = words.as_slice() {
                *self.kinds.entry((*kind).to_owned()).or_default() += 1;
            }
        }
        bench.judge(life, &ended.lines, &mut tally);
        all.absorb(tally, name);
        Ok(())
    }

    fn tell(&self, outcome: &mut Outcome) {
        let kinds: Vec<String> = self.kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        outcome.figure("points", self.points);
        outcome.figure("of these short writes", self.short);
        outcome.figure("went on in the same process", format!("{} of {}", self.resumed, self.passing));
        outcome.figure("refused to open, with an error", self.unopened);
        outcome.figure("an unlock was refused", self.kept_locks);
        outcome.figure("slowest", format!("{:.1} s ({})", self.slowest.0, self.slowest.1));
        outcome.figure("errors by kind", kinds.join(" "));
    }
}
