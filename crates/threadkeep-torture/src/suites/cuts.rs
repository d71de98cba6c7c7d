//! T03: the power fails under a writer, on ext4 and, where the kernel has it, on XFS.
//!
//! A file system on a loop device is shut down without writing its log out, which drops all that no sync had brought to the
//! device. An acknowledgement counts only if it was heard before the cut began: a sync that races with it may still return.
//! What has reached the loop device counts as stored, so a missing flush of the device itself is not found.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Result;
use crate::checker::{self, Depth};
use crate::child::Child;
use crate::oracle::{Journal, Rule, Tally};
use crate::plan::{self, Plan, Random};
use crate::report::{Outcome, Stop};
use crate::suites::Writing;
use crate::suites::kills::hear_all;
use crate::tools;

/// Shuts the file system of a folder down when it is told a word.
const CUT: &str = r#"
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>
int main(int argc, char **argv) {
  uint32_t no_log_flush = 2;
  char byte;
  int folder = open(argv[argc - 1], O_RDONLY);
  if (folder < 0) return 2;
  if (write(1, "R\n", 2) != 2 || read(0, &byte, 1) != 1) return 3;
  return ioctl(folder, _IOR('X', 125, uint32_t), &no_log_flush) ? 4 : 0;
}
"#;

const LANES: [(&str, u64); 2] = [("left", 0), ("right", 1)];

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let folder = plan::disk_folder()?;
    let disk = Disk::new(folder.path(), EXT4)?;
    let mut random = plan.random("cuts");
    let mut durable = Figures::default();
    for number in 0..plan.pick(20, 500, 2_000) {
        let mode = if number % 2 == 0 { "data=ordered" } else { "data=writeback" };
        let mut tally = Tally::default();
        // What is queued is acknowledged by a flush, which promises the same.
        let level = if number % 4 == 3 { "queued" } else { "synced" };
        let kind = Cut { mode, level, moment: if level == "queued" { Moment::FirstAcks } else { Moment::Any } };
        cut(plan, &disk, kind, &mut random, &mut tally, &mut durable)?;
        outcome.tally.absorb(tally, &format!("cut {number}"));
    }
    durable.tell("synced and flushed", outcome);
    let (mut fast, mut all) = (Figures::default(), Tally::default());
    for number in 0..plan.pick(8, 60, 300) {
        let mut tally = Tally::default();
        // At any moment a checkpoint may just have synced everything, on a slow disk more often than not.
        let moment = if number % 2 == 0 { Moment::FirstAcks } else { Moment::Any };
        let kind = Cut { mode: "data=ordered", level: "written", moment };
        cut(plan, &disk, kind, &mut random, &mut tally, &mut fast)?;
        all.absorb(tally, &format!("cut {number}"));
    }
    fast.tell("written", outcome);
    drop(disk);
    cut_xfs(plan, folder.path(), &mut random, outcome)?;
    outcome.control("the level `written`, which does not promise to survive this", all.count(Rule::AckedLost) > 0);
    // What it promises all the same: the end may be missing, and nothing else is wrong.
    outcome.tally.absorb(all.without(Rule::AckedLost), "written");
    Ok(())
}

/// The same on XFS, which has the same call.
fn cut_xfs(plan: &Plan, folder: &Path, random: &mut Random, outcome: &mut Outcome) -> Result<(), Stop> {
    let disk = match tools::need_program("mkfs.xfs", "xfsprogs").map(|()| Disk::new(folder, XFS)) {
        Ok(Ok(disk)) => disk,
        Ok(Err(Stop::Skip { reason, by_system: true })) => {
            outcome.figure("xfs", format!("SKIP {reason}"));
            return Ok(());
        }
        Ok(Err(other)) => return Err(other),
        Err(reason) if plan.in_ci => return Err(Stop::Broken(reason)),
        Err(reason) => {
            outcome.figure("xfs", format!("SKIP {reason}"));
            return Ok(());
        }
    };
    let mut figures = Figures::default();
    for number in 0..plan.pick(4, 60, 300) {
        let mut tally = Tally::default();
        let kind = Cut { mode: "nouuid", level: "synced", moment: Moment::Any };
        cut(plan, &disk, kind, random, &mut tally, &mut figures)?;
        outcome.tally.absorb(tally, &format!("xfs, cut {number}"));
    }
    figures.tell("xfs, synced", outcome);
    Ok(())
}

/// How a writer is cut off.
#[derive(Debug, Clone, Copy)]
struct Cut {
    mode: &'static str,
    level: &'static str,
    moment: Moment,
}

/// When the power fails.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// After a time that is drawn.
    Any,
    /// As soon as something is acknowledged, long before the log is so long that it is synced.
    FirstAcks,
}

#[derive(Debug, Default)]
struct Figures {
    cuts: u64,
    acked: u64,
    late: u64,
    lost: u64,
    cuts_with_loss: u64,
}

impl Figures {
    fn tell(&self, level: &str, outcome: &mut Outcome) {
        outcome.figure(format!("{level}: cuts"), self.cuts);
        outcome.figure(format!("{level}: items acked before the cut"), self.acked);
        outcome.figure(format!("{level}: acks during it"), self.late);
        outcome.figure(format!("{level}: batches lost"), self.lost);
        outcome.figure(format!("{level}: cuts with loss"), self.cuts_with_loss);
    }
}

fn cut(
    plan: &Plan,
    disk: &Disk,
    Cut { mode, level, moment }: Cut,
    random: &mut Random,
    tally: &mut Tally,
    figures: &mut Figures,
) -> Result<(), Stop> {
    let mut journal = Journal::default();
    LANES.iter().for_each(|(thread, lane)| journal.open(thread, *lane));
    let lanes = LANES.map(|(thread, lane)| format!("{thread}={lane}")).join(",");
    disk.reset()?;
    disk.mount(mode)?;
    let store = disk.mounted().join("new").join("nested").join("store");
    let mut command = Command::new(&disk.cutter);
    command.arg(disk.mounted());
    let mut cutter = Child::start(command)?;
    cutter.hear_until("R")?;
    let writing = Writing { lanes: &lanes, life: 1, level, batches: 0, lie: false };
    let writer = Child::start(writing.command(plan, &store))?;
    let mut heard = writer.hear_until("R")?;
    match moment {
        Moment::Any => std::thread::sleep(Duration::from_micros(random.below(180_000))),
        Moment::FirstAcks => heard.extend(writer.hear_until("A")?),
    }
    heard.extend(writer.heard());
    cutter.go()?;
    let (status, _) = cutter.finish()?;
    let rest = writer.kill();
    if !status.success() {
        let reason = format!("the kernel feature EXT4_IOC_SHUTDOWN is missing ({status})");
        return Err(Stop::Skip { reason, by_system: true });
    }
    disk.unmount()?;
    disk.mount(mode)?;
    hear_all(&mut journal, 1, &heard);
    figures.cuts += 1;
    figures.acked += journal.acked;
    figures.late += rest.iter().filter(|line| line.starts_with("A ")).count() as u64;
    let issued: Vec<String> = rest.into_iter().filter(|line| line.starts_with("I ")).collect();
    hear_all(&mut journal, 1, &issued);
    let depth = Depth { verify: true, integrity: true, ..Depth::default() };
    if let Some(found) = checker::judge(plan, &store, &mut journal, depth, tally)
        && LANES.iter().any(|(thread, _)| !found.shelves.contains_key(*thread))
    {
        tally.add(Rule::AckedLost, "a thread whose creation was acknowledged");
    }
    let lost = tally.count(Rule::AckedLost);
    figures.lost += lost;
    figures.cuts_with_loss += u64::from(lost > 0);
    go_on(plan, &store, &lanes, &mut journal, tally)?;
    Ok(disk.unmount()?)
}

/// A store that survived is one that can be written.
fn go_on(plan: &Plan, store: &Path, lanes: &str, journal: &mut Journal, tally: &mut Tally) -> Result<()> {
    let writing = Writing { lanes, life: 2, level: "synced", batches: 2, lie: false };
    let (status, lines) = Child::start(writing.command(plan, store))?.finish()?;
    if !status.success() {
        let last = lines.last().map_or("", String::as_str);
        tally.add(Rule::Misbehaved, format!("a fresh process can't go on: {last}"));
    }
    hear_all(journal, 2, &lines);
    checker::judge(plan, store, journal, Depth { verify: true, ..Depth::default() }, tally);
    Ok(())
}

/// A kind of file system: its name, its smallest image, what makes it, and an option to try it with.
type Format = (&'static str, &'static str, &'static [&'static str], &'static str);

const EXT4: Format = ("ext4", "48M", &["mkfs.ext4", "-q", "-F"], "data=ordered");
const XFS: Format = ("xfs", "320M", &["mkfs.xfs", "-q", "-f"], "nouuid");

/// A file system in a file.
#[derive(Debug)]
struct Disk {
    name: &'static str,
    folder: PathBuf,
    cutter: PathBuf,
}

impl Disk {
    fn new(folder: &Path, (name, size, make, option): Format) -> Result<Self, Stop> {
        let by_system = |reason: String| Stop::Skip { reason, by_system: true };
        if !tools::is_root() {
            return Err(by_system("mounting needs root (CAP_SYS_ADMIN)".to_owned()));
        }
        let cutter = tools::compile(CUT, folder, "cut", false)?;
        let disk = Self { name, folder: folder.to_owned(), cutter };
        std::fs::create_dir_all(disk.mounted()).map_err(|error| Stop::Broken(error.to_string()))?;
        let template = disk.path("template");
        std::fs::remove_file(&template).ok();
        tools::run("truncate", &["-s", size, &template])?;
        let (program, args) = make.split_first().unwrap_or((&"true", &[]));
        let made = tools::run(program, &[args, &[&template]].concat());
        made.map_err(|reason| Stop::Skip { reason, by_system: false })?;
        disk.reset()?;
        let words = |words| by_system(format!("the kernel feature loop mounts of {name}: {words}"));
        disk.mount(option).map_err(words)?;
        disk.unmount()?;
        Ok(disk)
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn mounted(&self) -> PathBuf {
        self.folder.join("mounted")
    }

    fn reset(&self) -> Result<()> {
        tools::run("cp", &["--sparse=always", &self.path("template"), &self.path("image")]).map(drop)
    }

    fn mount(&self, mode: &str) -> Result<()> {
        let options = format!("loop,noatime,{mode}");
        tools::run("mount", &["-t", self.name, "-o", &options, &self.path("image"), &self.path("mounted")]).map(drop)
    }

    fn unmount(&self) -> Result<()> {
        tools::unmount(&self.mounted())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A run that broke off leaves nothing mounted; usually nothing is.
        drop(tools::run("umount", &["-q", "-l", &self.path("mounted")]));
    }
}
