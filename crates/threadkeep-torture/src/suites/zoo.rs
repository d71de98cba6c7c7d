//! T13: the same store on every file system that is at hand, and what happens when one of them stops taking writes.
//!
//! What the kernel lacks is named, and counts as neither passed nor failed. Quotas are those of Btrfs, since an ext4 without
//! quotas in its kernel has none; a file system turns read-only under its writer as ext4 does after an error.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use threadkeep::blocking::Store;
use threadkeep::{NewThread, StoreOptions};

use crate::Result;
use crate::checker::{self, Depth};
use crate::child::Child;
use crate::oracle::{Journal, Rule, Tally};
use crate::plan::{self, Plan, Random};
use crate::report::{Outcome, Stop};
use crate::suites::kills::hear_all;
use crate::suites::{Writing, kills};
use crate::tools;

/// A file system: its name, its image in megabytes (0 has none), the program that makes it, and the package of that program.
const DISKS: [(&str, u64, &str, &str); 6] = [
    ("tmpfs", 0, "", ""),
    ("ext4", 64, "mkfs.ext4", "e2fsprogs"),
    ("xfs", 320, "mkfs.xfs", "xfsprogs"),
    ("btrfs", 128, "mkfs.btrfs", "btrfs-progs"),
    ("overlay", 0, "", ""),
    ("fuse", 0, "bindfs", "bindfs"),
];
const LANES: [(&str, u64); 2] = [("left", 0), ("right", 1)];
const SIGBUS: i32 = 7;
/// How long an append may take to be refused or taken again.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    if !tools::is_root() {
        let reason = "mounting needs root (CAP_SYS_ADMIN)".to_owned();
        return Err(Stop::Skip { reason, by_system: true });
    }
    let folder = plan::fast_folder()?;
    let mut random = plan.random("zoo");
    let mut ran = 0;
    for disk in DISKS {
        match Mounted::new(folder.path(), disk)? {
            Err(missing) => outcome.figure(disk.0, format!("SKIP {missing}")),
            Ok(mounted) => {
                let words = smoke(plan, &mounted, &mut random, &mut outcome.tally)?;
                outcome.figure(disk.0, words);
                ran += 1;
            }
        }
    }
    outcome.figure("file systems", ran);
    for round in 0..plan.pick(2, 10, 40) {
        let mut tally = Tally::default();
        let words = match Mounted::new(folder.path(), ("ext4", 64, "mkfs.ext4", "e2fsprogs"))? {
            Err(missing) => format!("SKIP {missing}"),
            Ok(mounted) => turn_read_only(plan, &mounted, &mut random, &mut tally)?,
        };
        if round == 0 {
            outcome.figure("turned read-only under its writer", words);
        }
        outcome.tally.absorb(tally, "turned read-only");
    }
    for round in 0..plan.pick(1, 5, 20) {
        let mut tally = Tally::default();
        let words = match Mounted::new(folder.path(), ("btrfs", 128, "mkfs.btrfs", "btrfs-progs"))? {
            Err(missing) => format!("SKIP {missing}"),
            Ok(mounted) => fill_quota(plan, &mounted, &mut tally)?,
        };
        if round == 0 {
            outcome.figure("quota of Btrfs used up", words);
        }
        outcome.tally.absorb(tally, "quota");
    }
    let (killed, found_out) = kills::control(plan)?;
    outcome.control(format!("writers that acknowledge before they store, {killed} kills"), found_out);
    Ok(())
}

/// Kills and concurrent writers; then the store is read where nothing can be written. Says what was seen.
fn smoke(plan: &Plan, disk: &Mounted, random: &mut Random, tally: &mut Tally) -> Result<String> {
    let store = disk.place.join("store");
    // Where processes may not share memory a log corrupts the database, and its user is to know what he has. There a lock
    // proves nothing either, and the threads of the dead stay theirs for minutes: nobody is killed.
    let is_shared = disk.name == "fuse";
    let (kills, acked, found) = match is_shared {
        true => concurrent(plan, &store)?,
        false => killed(plan, &store, random)?,
    };
    tally.absorb(found, disk.name);
    let header = std::fs::read(store.join("threadkeep.db")).map_err(|error| error.to_string())?;
    let journal = match header.get(18) {
        Some(1) => "rollback journal",
        Some(2) => "log",
        _ => "no journal",
    };
    let opened = Store::open(StoreOptions::folder(&store).label("zoo")).map_err(|error| error.to_string())?;
    let notices = opened.notices().len();
    drop(opened);
    if (journal == "rollback journal") != is_shared || (notices > 0) != is_shared {
        tally.add(Rule::Misbehaved, format!("{}: {journal}, {notices} notices", disk.name));
    }
    let read_only = read_where_nothing_can_be_written(disk, &store, tally);
    Ok(format!("{journal}, {kills} kills, {acked} items acked, read-only {read_only}"))
}

/// Two writers beside each other; one is killed and replaced beside the living, then both are killed.
fn killed(plan: &Plan, store: &Path, random: &mut Random) -> Result<(u32, u64, Tally)> {
    let (mut journal, mut tally) = (Journal::default(), Tally::default());
    LANES.iter().for_each(|(thread, lane)| journal.open(thread, *lane));
    let (mut kills, mut life) = (0, 0);
    for round in 0..plan.pick(3, 20, 100) {
        let level = if round % 3 == 2 { "written" } else { "synced" };
        let mut start = |(thread, lane): (&str, u64)| {
            life += 1;
            let lanes = format!("{thread}={lane}");
            let writing = Writing { lanes: &lanes, life, level, batches: 0, lie: false };
            let child = Child::start(writing.command(plan, store))?;
            let heard = child.hear_until("A")?;
            Ok::<_, String>((life, child, heard))
        };
        let [left, right] = LANES;
        let (victim, other) = (start(left)?, start(right)?);
        let mut end = |(life, child, mut heard): (u64, Child, Vec<String>)| {
            std::thread::sleep(Duration::from_micros(random.below(15_000)));
            heard.extend(child.kill());
            let complaint = |line: &&String| line.starts_with("E ") || line.starts_with("W ") || line.starts_with("X ");
            if let Some(line) = heard.iter().find(complaint) {
                tally.add(Rule::Misbehaved, format!("a writer without a fault: {line}"));
            }
            hear_all(&mut journal, life, &heard);
            kills += 1;
        };
        end(victim);
        let successor = start(left)?;
        end(other);
        end(successor);
        let depth = Depth { verify: true, integrity: true, ..Depth::default() };
        checker::judge(plan, store, &mut journal, depth, &mut tally);
    }
    Ok((kills, journal.acked, tally))
}

/// Writers beside each other that come to their ends.
fn concurrent(plan: &Plan, store: &Path) -> Result<(u32, u64, Tally)> {
    let (mut journal, mut tally) = (Journal::default(), Tally::default());
    let mut writers = Vec::new();
    for (thread, lane) in LANES {
        journal.open(thread, lane);
        let lanes = format!("{thread}={lane}");
        let writing =
            Writing { lanes: &lanes, life: lane + 1, level: "synced", batches: plan.pick(15, 100, 400), lie: false };
        writers.push((lane + 1, Child::start(writing.command(plan, store))?));
    }
    for (life, writer) in writers {
        let (status, lines) = writer.finish()?;
        let complaint = lines.iter().find(|line| line.starts_with("E ") || line.starts_with("X "));
        if let Some(line) = complaint.filter(|_| !status.success()) {
            tally.add(Rule::Misbehaved, format!("a writer without a fault: {line}"));
        }
        hear_all(&mut journal, life, &lines);
    }
    let acked = journal.acked;
    let lanes = LANES.map(|(thread, lane)| format!("{thread}={lane}")).join(",");
    judge_and_go_on(plan, store, (&lanes, LANES.len() as u64 + 1), &mut journal, &mut tally)?;
    Ok((0, acked, tally))
}

fn read_where_nothing_can_be_written(disk: &Mounted, store: &Path, tally: &mut Tally) -> String {
    if tools::run("mount", &["-o", "remount,ro", &disk.mounted()]).is_err() {
        return "not possible".to_owned();
    }
    let read = Store::open(StoreOptions::folder(store).label("zoo").read_only());
    let listed = read.and_then(|store| store.list(threadkeep::ListQuery::default()).map(|page| page.entries.len()));
    match listed {
        Ok(count) if count > 0 => {}
        other => tally.add(Rule::Misbehaved, format!("{}: reading it read-only: {other:?}", disk.name)),
    }
    let written = Store::open(StoreOptions::folder(store).label("zoo"))
        .and_then(|store| store.workspace(Path::new("/zoo"))?.create_now(NewThread::default()).map(drop));
    match written {
        Err(error) if error.kind() == "read-only" => "typed".to_owned(),
        Err(error) => {
            tally.add(Rule::Misbehaved, format!("{}: writing it read-only: {}: {error}", disk.name, error.kind()));
            error.kind().to_owned()
        }
        Ok(()) => {
            tally.add(Rule::Misbehaved, format!("{} was written though it is read-only", disk.name));
            "written".to_owned()
        }
    }
}

/// The writer's file system takes no more writes, as after an error of the disk. What was acknowledged is there afterwards.
fn turn_read_only(plan: &Plan, disk: &Mounted, random: &mut Random, tally: &mut Tally) -> Result<String> {
    let store = disk.place.join("store");
    let mut journal = Journal::default();
    LANES.iter().for_each(|(thread, lane)| journal.open(thread, *lane));
    let lanes = LANES.map(|(thread, lane)| format!("{thread}={lane}")).join(",");
    let writing = Writing { lanes: &lanes, life: 1, level: "synced", batches: 0, lie: false };
    let writer = Child::start(writing.command(plan, &store))?;
    let mut heard = writer.hear_until("A")?;
    std::thread::sleep(Duration::from_micros(random.below(60_000)));
    heard.extend(writer.heard());
    if tools::run("mount", &["-o", "remount,abort", &disk.mounted()]).is_err() {
        return Ok("SKIP the option `abort` of ext4".to_owned());
    }
    let mut rest = Vec::new();
    let refused = writer.listen("E", PATIENCE, &mut rest)?;
    if !refused {
        tally.add(Rule::Misbehaved, "nothing was refused");
    }
    let kind = kinds(&rest);
    rest.extend(writer.kill());
    disk.mount_again()?;
    hear_all(&mut journal, 1, &heard);
    let acked = journal.acked;
    let issued: Vec<String> = rest.into_iter().filter(|line| line.starts_with("I ")).collect();
    hear_all(&mut journal, 1, &issued);
    judge_and_go_on(plan, &store, (&lanes, 2), &mut journal, tally)?;
    Ok(format!("{acked} items acked before, then {kind}"))
}

/// A quota is used up. Nothing acknowledged is lost, and where the process lives it goes on when the quota is raised.
///
/// On Btrfs a page of the mapped index is written anew, which needs room: the system ends the process by SIGBUS when there is
/// none. That is told, and not counted: no call of the store fails before it.
fn fill_quota(plan: &Plan, disk: &Mounted, tally: &mut Tally) -> Result<String> {
    let (root, limited) = (disk.mounted(), disk.place.join("limited").display().to_string());
    // By its number and the root: who changes the limit through a folder that is full is refused too.
    let limit = |bytes: &str| tools::run("btrfs", &["qgroup", "limit", bytes, "0/256", &root]).map(drop);
    let limited_to = tools::run("btrfs", &["quota", "enable", &root])
        .and_then(|_| tools::run("btrfs", &["subvolume", "create", &limited]))
        .and_then(|_| limit("4M"));
    if let Err(words) = limited_to {
        return Ok(format!("SKIP {words}"));
    }
    let store = Path::new(&limited).join("store");
    let mut journal = Journal::default();
    LANES.iter().for_each(|(thread, lane)| journal.open(thread, *lane));
    let lanes = LANES.map(|(thread, lane)| format!("{thread}={lane}")).join(",");
    let writing = Writing { lanes: &lanes, life: 1, level: "synced", batches: 0, lie: false };
    let writer = Child::start(writing.command(plan, &store))?;
    let mut heard = Vec::new();
    let refused = writer.listen("E", PATIENCE, &mut heard)?;
    let kind = kinds(&heard);
    limit("none")?;
    let end = if refused {
        heard.extend(writer.heard());
        if !writer.listen("A", PATIENCE, &mut heard)? {
            tally.add(Rule::Misbehaved, "it does not go on when there is room again");
        }
        heard.extend(writer.kill());
        format!("{kind}, and it went on")
    } else {
        let status = writer.finish_into(&mut heard)?;
        if status.signal() != Some(SIGBUS) {
            tally.add(Rule::Misbehaved, format!("it ended with {status}"));
        }
        "the process was ended by SIGBUS".to_owned()
    };
    hear_all(&mut journal, 1, &heard);
    let acked = journal.acked;
    judge_and_go_on(plan, &store, (&lanes, 2), &mut journal, tally)?;
    Ok(format!("{acked} items acked, then {end}"))
}

/// The kinds of the errors that were told.
fn kinds(lines: &[String]) -> String {
    let kind = |line: &String| line.strip_prefix("E ")?.split(' ').nth(4).map(str::to_owned);
    let mut kinds: Vec<String> = lines.iter().filter_map(kind).collect();
    kinds.sort();
    kinds.dedup();
    kinds.join(" ")
}

fn judge_and_go_on(
    plan: &Plan,
    store: &Path,
    (lanes, life): (&str, u64),
    journal: &mut Journal,
    tally: &mut Tally,
) -> Result<()> {
    let depth = Depth { verify: true, integrity: true, ..Depth::default() };
    checker::judge(plan, store, journal, depth, tally);
    let writing = Writing { lanes, life, level: "synced", batches: 2, lie: false };
    let (status, lines) = Child::start(writing.command(plan, store))?.finish()?;
    if !status.success() {
        let last = lines.last().map_or("", String::as_str);
        tally.add(Rule::Misbehaved, format!("a fresh process can't go on: {last}"));
    }
    hear_all(journal, life, &lines);
    checker::judge(plan, store, journal, Depth { verify: true, ..Depth::default() }, tally);
    Ok(())
}

/// A file system that is mounted, until this is dropped.
struct Mounted {
    name: &'static str,
    place: PathBuf,
    image: String,
    overlaid: Option<PathBuf>,
}

impl Mounted {
    /// Makes and mounts one. What is missing is told in words.
    fn new(
        folder: &Path,
        (name, megabytes, program, package): (&'static str, u64, &'static str, &'static str),
    ) -> Result<Result<Self>> {
        let place = folder.join("mounted");
        std::fs::create_dir_all(&place).map_err(|error| error.to_string())?;
        let image = folder.join("image").display().to_string();
        let mut disk = Self { name, place, image, overlaid: None };
        if !program.is_empty() && tools::need_program(program, package).is_err() {
            // Without a network nothing can be installed; that is no feature of the kernel.
            return match std::env::var_os("CI") {
                Some(_) => Err(format!("{program} is missing and can't be installed")),
                None => Ok(Err(format!("{program} is missing"))),
            };
        }
        if megabytes > 0 {
            std::fs::remove_file(&disk.image).ok();
            tools::run("truncate", &["-s", &format!("{megabytes}M"), &disk.image])?;
            tools::run(program, &["-q", &disk.image])?;
        }
        match disk.mount(folder) {
            Ok(()) => Ok(Ok(disk)),
            Err(words) => Ok(Err(format!("the kernel feature {name}: {words}"))),
        }
    }

    fn mounted(&self) -> String {
        self.place.display().to_string()
    }

    fn mount(&mut self, folder: &Path) -> Result<()> {
        let place = self.mounted();
        let mount = |args: &[&str]| tools::run("mount", &[args, &[&place]].concat()).map(drop);
        match self.name {
            "tmpfs" => mount(&["-t", "tmpfs", "-o", "size=256m", "threadkeep-torture"]),
            "overlay" => {
                let layers = plan::fast_folder()?.keep();
                self.overlaid = Some(layers.clone());
                for layer in ["lower", "upper", "work"] {
                    std::fs::create_dir(layers.join(layer)).map_err(|error| error.to_string())?;
                }
                let at = |layer: &str| layers.join(layer).display().to_string();
                let options = format!("lowerdir={},upperdir={},workdir={}", at("lower"), at("upper"), at("work"));
                mount(&["-t", "overlay", "-o", &options, "threadkeep-torture"])
            }
            "fuse" => {
                let below = folder.join("below");
                std::fs::create_dir_all(&below).map_err(|error| error.to_string())?;
                tools::run("bindfs", &[&below.display().to_string(), &place]).map(drop)
            }
            name => mount(&["-t", name, "-o", "loop,noatime", &self.image]),
        }
    }

    fn mount_again(&self) -> Result<()> {
        self.unmount()?;
        let options = ["-t", self.name, "-o", "loop,noatime", &self.image];
        tools::run("mount", &[&options[..], &[&self.mounted()]].concat()).map(drop)
    }

    fn unmount(&self) -> Result<()> {
        tools::unmount(&self.place)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.unmount().is_err() {
            drop(tools::run("umount", &["-q", "-l", &self.mounted()]));
        }
        if let Some(layers) = &self.overlaid {
            drop(std::fs::remove_dir_all(layers));
        }
    }
}
