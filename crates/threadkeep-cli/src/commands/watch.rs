//! `threadkeep watch`

mod eyes;
mod pending;
mod service;
mod telling;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use threadkeep::blocking::Store;
use threadkeep_agents::homes::{self, Home};
use threadkeep_agents::import::{ImportOptions, ImportReport, Importer};

use self::eyes::{Eyes, Seen};
use self::pending::{Burst, Pending};
use self::service::Manager;
use self::telling::Telling;
use super::App;
use super::import::homes as known;
use super::import::require_some;
use crate::errors::{Code, Failure, Outcome, report};
use crate::masking::MaskingArgs;

/// How long nothing may happen before signals and readers that left are noticed.
const GLANCE: Duration = Duration::from_millis(200);
/// How often is looked whether a home has come to be, or was put in the place of another.
const LOOK_FOR_HOMES: Duration = Duration::from_secs(2);
/// How often everything is looked through although nothing was told: names and sizes alone.
const SWEEP: Duration = Duration::from_secs(600);
/// How often is looked where the system tells nothing.
const LOOK: Duration = Duration::from_secs(5);
/// How long the store is left alone when it is busy: at first, and at most.
const BUSY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep watch                       every agent's home, until Ctrl-C
  threadkeep watch --once                one pass, and what is left to come
  threadkeep watch ~/.codex/sessions /srv/runs --json | jq .
  threadkeep watch --poll 10 /mnt/team/sessions      a network drive, which tells nothing
  threadkeep watch --print-service systemd > ~/.config/systemd/user/threadkeep-watch.service
  systemctl --user enable --now threadkeep-watch

JSON: a line per event: {event: \"watching\", homes: [{agent, path, by}]}, {event: \"imported\", threads, report}, {event: \"pending\",
  waiting: [{file, line, bytes}], failed}, {event: \"notice\", message}, {event: \"busy\", error}, {event: \"ended\"}

It ends with 0 when it is told to (SIGTERM, SIGINT, SIGHUP), after the file that is being read; --once with 8 when files could
not be imported.";

/// Follow the agents' homes, and take in what they write as they write it
///
/// It begins with a pass over everything, which costs a look where nothing changed. Then what grows is imported in bursts; a line
/// that is not whole yet waits, and a file that can't be read is tried again. Nothing is ever written beside the agents' files.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct WatchArgs {
    /// Folders and files to follow; the homes of all agents that can be read when none is named
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Only this agent
    #[arg(short, long)]
    agent: Option<String>,
    /// Follow also what agents keep inside of this project's folder; may be given several times
    #[arg(long = "project", value_name = "DIR", conflicts_with = "paths")]
    projects: Vec<PathBuf>,
    /// One pass; then say what is left to come, and end
    #[arg(long)]
    once: bool,
    /// Look every so many seconds, and do not wait to be told by the system
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400), conflicts_with = "once")]
    poll: Option<u64>,
    /// Print a unit that runs this as a service of the user, and do nothing else
    #[arg(long, value_name = "MANAGER", value_enum, conflicts_with = "once")]
    print_service: Option<Manager>,
    #[command(flatten)]
    masking: MaskingArgs,
}

/// Watches.
pub(super) fn run(args: &WatchArgs, app: &mut App) -> Outcome {
    if let Some(manager) = args.print_service {
        return service::print(manager, args, app);
    }
    app.masking = args.masking.rules()?;
    require_some(&args.paths)?;
    let stop = ends_by_signal()?;
    let mut watch = Watch {
        args,
        stop,
        telling: Telling::default(),
        eyes: Eyes::new(args.poll.is_some() || args.once),
        pending: Pending::default(),
        busy: BUSY.0,
    };
    watch.find_homes()?;
    if args.once {
        return watch.once(app);
    }
    watch.follow(app)
}

/// A flag that the signals set which end a service. A second one ends the program at once.
pub(super) fn ends_by_signal() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)) {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Whether this program was started so that a signal does not reach it, as `nohup` does.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    let ignored = ignored.and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0);
    u32::try_from(signal - 1).ok().and_then(|bit| ignored.checked_shr(bit)).is_some_and(|rest| rest & 1 == 1)
}

struct Watch<'a> {
    args: &'a WatchArgs,
    stop: Arc<AtomicBool>,
    telling: Telling,
    eyes: Eyes,
    pending: Pending,
    /// How long the store is left alone when it is busy the next time.
    busy: Duration,
}

impl Watch<'_> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// One pass over everything.
    fn once(mut self, app: &mut App) -> Outcome {
        let store = app.create()?;
        let report = self.import(&store, &self.eyes.paths())?;
        self.telling.imported(app, &store, &report, true)?;
        Telling::pending(app, &report)?;
        Ok(if report.failed.is_empty() { Code::Done } else { Code::Partial })
    }

    fn follow(mut self, app: &mut App) -> Outcome {
        let Some(store) = self.open(app)? else { return end(app) };
        Telling::watching(app, &self.eyes)?;
        let mut first = true;
        self.pending.everything(Instant::now());
        let looking = self.args.poll.map_or(LOOK, Duration::from_secs);
        let mut next_homes = Instant::now() + LOOK_FOR_HOMES;
        let mut next_look = Instant::now() + looking;
        let mut next_sweep = Instant::now() + SWEEP;
        while !self.stopped() {
            self.listen(app)?;
            let now = Instant::now();
            if now >= next_homes {
                if self.find_homes()? {
                    Telling::watching(app, &self.eyes)?;
                }
                next_homes = now + LOOK_FOR_HOMES;
            }
            if now >= next_look {
                self.eyes.looked_at().for_each(|path| self.pending.changed(path, now));
                next_look = now + looking;
            }
            if now >= next_sweep {
                self.pending.everything(now);
                next_sweep = now + SWEEP;
            }
            if let Some(burst) = self.pending.take(now) {
                self.take_in(app, &store, burst, first)?;
                first = false;
            }
            if app.out.is_closed() {
                return Err(Failure::BrokenPipe);
            }
        }
        end(app)
    }

    /// Opens the store, as soon as it can be.
    fn open(&mut self, app: &mut App) -> Result<Option<Store>, Failure> {
        loop {
            match app.create() {
                Err(Failure::Report(report)) if report.retryable && report.code == Code::Busy => {
                    self.telling.busy(app, &report)?;
                    self.rest();
                }
                Ok(store) => return Ok(Some(store)),
                Err(failure) => return Err(failure),
            }
            if self.stopped() {
                return Ok(None);
            }
        }
    }

    /// Waits until something is told or due, for a glance at most.
    fn listen(&mut self, app: &mut App) -> Result<(), Failure> {
        let now = Instant::now();
        let due = self.pending.due().map_or(GLANCE, |due| due.saturating_duration_since(now).min(GLANCE));
        let mut seen = self.eyes.next_within(due);
        while let Some(one) = seen {
            let now = Instant::now();
            match one {
                Seen::Changed(paths) => paths.into_iter().for_each(|path| self.pending.changed(path, now)),
                Seen::Lost => self.pending.everything(now),
                Seen::Failed(reason) => {
                    let words = format!("{reason}; it is looked every {} s instead", LOOK.as_secs());
                    Telling::notice(app, &words)?;
                    self.pending.everything(now);
                }
            }
            seen = self.eyes.next_within(Duration::ZERO);
        }
        for notice in self.eyes.notices() {
            Telling::notice(app, &notice)?;
        }
        Ok(())
    }

    /// Follows homes that have come to be, and those that were put in the place of others; says whether there were any.
    fn find_homes(&mut self) -> Result<bool, Failure> {
        // As the system tells of them.
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let named = self.args.paths.iter().map(|path| Home { agent: "", path: absolute(path), is_read: true });
        let found = match self.args.paths.is_empty() {
            true => known::find(&self.args.projects, self.args.agent.as_deref())?,
            false => homes::existing(named.collect()),
        };
        let now = Instant::now();
        let new = self.eyes.follow(found.into_iter().filter(|home| home.is_read));
        let any = !new.is_empty();
        new.into_iter().for_each(|path| self.pending.changed(path, now));
        Ok(any)
    }

    fn take_in(&mut self, app: &mut App, store: &Store, burst: Burst, is_first: bool) -> Result<(), Failure> {
        let paths = match &burst {
            Burst::Everything => self.eyes.paths(),
            Burst::Paths(paths) => paths.clone(),
        };
        match self.import(store, &paths) {
            Ok(report) => {
                self.busy = BUSY.0;
                self.pending.settle(&burst, &report.failed, Instant::now());
                self.telling.imported(app, store, &report, is_first)
            }
            Err(error) if error.is_retryable() => {
                self.telling.busy(app, &report(&error))?;
                self.pending.put_back(burst, Instant::now());
                self.rest();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn import(&self, store: &Store, paths: &[PathBuf]) -> Result<ImportReport, threadkeep::Error> {
        let stop = Some(Arc::clone(&self.stop));
        let options = ImportOptions { agent: self.args.agent.clone(), dry_run: false, happened: true, stop };
        Importer::new(store, options).run(paths, &mut |_| {})
    }

    /// Leaves the store alone for a while, longer each time.
    fn rest(&mut self) {
        let until = Instant::now() + self.busy;
        self.busy = (self.busy * 2).min(BUSY.1);
        while !self.stopped() && Instant::now() < until {
            std::thread::sleep(GLANCE.min(until.saturating_duration_since(Instant::now())));
        }
    }
}

fn end(app: &mut App) -> Outcome {
    Telling::ended(app)?;
    Ok(Code::Done)
}
