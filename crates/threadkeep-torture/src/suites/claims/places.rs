//! Claims where numbers, clocks, files and rights mislead: other namespaces, numbers used again, another start of the system,
//! lock files that are gone.

use std::path::Path;
use std::process::Command;

use threadkeep::{Host as _, SystemHost};

use super::{Scene, make};
use crate::Result;
use crate::actor::Peer;
use crate::child::{Child, say};
use crate::ground;
use crate::oracle::Rule;
use crate::plan::Plan;
use crate::report::Outcome;
use crate::suites::YEAR;
use crate::tools;

/// A namespace of its own for the numbers of processes.
const CONTAINER: [&str; 4] = ["unshare", "--pid", "--fork", "--kill-child"];
/// The number that is handed out again and again.
const AGAIN: u32 = 5_000;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Runs all of them.
pub(super) fn run(scene: &mut Scene<'_>, outcome: &mut Outcome, rounds: u64) -> Result<()> {
    clocks(scene, outcome, rounds)?;
    if ground::is_remote(&scene.store()) {
        // What the machine itself says of its processes counts for nothing there.
        return Ok(());
    }
    lock_files(scene, outcome, rounds)?;
    if !tools::is_root() {
        outcome.figure("namespaces, boot ids, other users", "SKIP this needs root");
        return Ok(());
    }
    strangers(scene, outcome)?;
    match tools::run("unshare", &["--pid", "--fork", "--kill-child", "--mount", "true"]) {
        Err(words) => outcome.figure("namespaces and boot ids", format!("SKIP the kernel refuses them: {words}")),
        Ok(_) => {
            containers(scene, outcome, rounds)?;
            boots(scene, outcome, rounds)?;
            numbers(scene, outcome, rounds)?;
        }
    }
    Ok(())
}

/// The lock file of a living holder is removed or replaced. Nobody can see then that it lives, and so it may be replaced; its
/// appends must be refused from then on, and from its next claim on it must be seen again.
fn lock_files(scene: &mut Scene<'_>, outcome: &mut Outcome, rounds: u64) -> Result<()> {
    let told = |error: std::io::Error| error.to_string();
    let folder = scene.store().join("holders");
    let names = || -> Result<Vec<_>> {
        let entries = std::fs::read_dir(&folder).map_err(told)?;
        Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
    };
    let mut other = scene.peer("other")?;
    for thread in ["filed", "filed-too"] {
        make(&mut other, thread)?;
    }
    let mut replaced = 0;
    for round in 0..rounds * 2 {
        let mut holder = scene.peer("holder")?;
        let before = names()?;
        holder.must("claim filed")?;
        scene.append(&mut holder, "filed", 1)?;
        for file in names()?.iter().filter(|file| !before.contains(file)) {
            std::fs::remove_file(file).map_err(told)?;
            if round % 2 == 1 {
                std::fs::write(file, "").map_err(told)?;
            }
        }
        match other.ask("claim filed")?.kind.as_str() {
            "ok" => {
                replaced += 1;
                scene.append(&mut other, "filed", 1)?;
                let (order, ids) = scene.order("filed", 1);
                holder.tell(&order)?;
                scene.lost(&mut holder, "filed", &ids)?;
                other.must("release filed")?;
            }
            "claim-held" => scene.append(&mut holder, "filed", 1)?,
            kind => scene.tally.add(Rule::Misbehaved, format!("a holder without its file is told as {kind}")),
        }
        holder.must("claim filed-too")?;
        scene.refuse(&mut other, "filed-too", "holder")?;
        scene.append(&mut holder, "filed-too", 1)?;
        holder.finish()?;
    }
    outcome.figure("lock files removed or replaced", format!("{} ({replaced} holders were replaced)", rounds * 2));
    other.finish()
}

/// Clocks that are ten years apart take nobody's thread.
fn clocks(scene: &mut Scene<'_>, outcome: &mut Outcome, rounds: u64) -> Result<()> {
    let mut now = scene.peer("now")?;
    make(&mut now, "timed")?;
    let today = SystemHost.now().0;
    for round in 0..rounds {
        let shift = if round % 2 == 0 { 10 * YEAR } else { -10 * YEAR };
        let clock = (today + shift).to_string();
        let mut away = Peer::start(scene.plan, &scene.store(), "away", &[], &["--clock", &clock])?;
        now.must("claim timed")?;
        scene.append(&mut now, "timed", 1)?;
        scene.refuse(&mut away, "timed", "now")?;
        scene.append(&mut now, "timed", 1)?;
        now.must("release timed")?;
        away.must("claim timed")?;
        scene.append(&mut away, "timed", 1)?;
        scene.refuse(&mut now, "timed", "away")?;
        scene.kill(away)?;
        now.insist("claim timed")?;
        scene.append(&mut now, "timed", 1)?;
        now.must("release timed")?;
    }
    outcome.figure("clocks ten years away", rounds);
    now.finish()
}

/// A user who may not look at the lock files steals nothing and is told.
fn strangers(scene: &mut Scene<'_>, outcome: &mut Outcome) -> Result<()> {
    let told = |error: std::io::Error| error.to_string();
    let path = |name: &str| scene.ground.folder().join(name);
    let (store, program) = (path("shared"), path("program"));
    std::fs::copy(&scene.plan.program, &program).map_err(told)?;
    let mut holder = Peer::plain(scene.plan, &store, "holder")?;
    for thread in ["held", "free"] {
        make(&mut holder, thread)?;
    }
    holder.must("claim held")?;
    let open = "chmod 755 \"$1\" \"$1/program\" && chmod 777 \"$1/shared\" && chmod 666 \"$1/shared\"/*";
    let close = "chmod 700 \"$1/shared/holders\"";
    let folder = scene.ground.folder().display().to_string();
    tools::run("sh", &["-c", &format!("{open} && {close}"), "sh", &folder])?;
    let plan = Plan { program, ..Plan::new(scene.plan.size, Some(scene.plan.seed), None)? };
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let words = match Peer::start(&plan, &store, "stranger", &nobody, &[]) {
        Err(words) => words,
        Ok(mut stranger) => {
            let answers = [stranger.ask("claim held")?, stranger.ask("claim free")?];
            for answer in answers.iter().filter(|answer| !["claim-held", "io"].contains(&answer.kind.as_str())) {
                let words = format!("a claim without a right to `holders`: {} {}", answer.kind, answer.rest);
                scene.tally.add(Rule::TwoWriters, words);
            }
            answers.map(|answer| answer.kind).join(", ")
        }
    };
    outcome.figure("another user without a right to the lock files is told", words);
    holder.must("append held 1 0 0 1")?;
    holder.finish()
}

/// A holder in another container: its number means another process here, or none.
fn containers(scene: &mut Scene<'_>, outcome: &mut Outcome, rounds: u64) -> Result<()> {
    foreign(scene, rounds, "contained", &CONTAINER)?;
    outcome.figure("holders in other containers", rounds);
    Ok(())
}

/// A holder that says it belongs to another start of the system.
fn boots(scene: &mut Scene<'_>, outcome: &mut Outcome, rounds: u64) -> Result<()> {
    let file = scene.ground.folder().join("boot_id");
    std::fs::write(&file, "00000000-0000-4000-8000-000000000000\n").map_err(|error| error.to_string())?;
    let file = file.display().to_string();
    let script = format!("mount --bind \"$0\" {BOOT_ID} && exec \"$@\"");
    foreign(scene, rounds, "booted", &["unshare", "--mount", "sh", "-c", &script, &file])?;
    outcome.figure("holders of another start of the system", rounds);
    Ok(())
}

/// A holder behind the wrapper is respected while it lives and replaced when it is dead; and it respects others.
fn foreign(scene: &mut Scene<'_>, rounds: u64, thread: &str, wrapper: &[&str]) -> Result<()> {
    let mut here = scene.peer("here")?;
    make(&mut here, thread)?;
    for _ in 0..rounds {
        let mut there = Peer::start(scene.plan, &scene.store(), "there", wrapper, &[])?;
        here.must(&format!("claim {thread}"))?;
        scene.refuse(&mut there, thread, "here")?;
        here.must(&format!("release {thread}"))?;
        there.must(&format!("claim {thread}"))?;
        scene.append(&mut there, thread, 1)?;
        scene.refuse(&mut here, thread, "there")?;
        scene.append(&mut there, thread, 1)?;
        there.kill();
        here.insist(&format!("claim {thread}"))?;
        scene.append(&mut here, thread, 1)?;
        here.must(&format!("release {thread}"))?;
    }
    here.finish()
}

/// The number of a dead holder is given to another process at once.
fn numbers(scene: &mut Scene<'_>, outcome: &mut Outcome, rounds: u64) -> Result<()> {
    let mut maker = scene.peer("maker")?;
    make(&mut maker, "numbered")?;
    maker.finish()?;
    let mut command = Command::new(CONTAINER[0]);
    command.args(&CONTAINER[1..]).arg(&scene.plan.program).arg("renumber").arg("--store").arg(scene.store());
    command.arg("--first").arg(scene.next.to_string()).arg("--rounds").arg(rounds.to_string());
    let (_, lines) = Child::start(command)?.finish()?;
    scene.next += rounds * 2;
    for line in &lines {
        match line.split_once(' ') {
            Some(("A", number)) => {
                let number = number.parse().map_err(|_| format!("the container said `{line}`"))?;
                scene.acked("numbered", vec![crate::work::item_id(1, 0, number)]);
            }
            Some(("V", words)) => scene.tally.add(Rule::Misbehaved, format!("a number that is used again: {words}")),
            _ => {}
        }
    }
    match lines.last().map(String::as_str) {
        Some("Z") => outcome.figure("numbers of dead holders used again", rounds),
        last => outcome.figure("numbers of dead holders used again", format!("SKIP {}", last.unwrap_or_default())),
    }
    Ok(())
}

/// Kills holders and gives their number to the next, as the first process of a container.
#[derive(Debug, clap::Args)]
pub(crate) struct Renumber {
    #[arg(long)]
    store: std::path::PathBuf,
    #[arg(long)]
    first: u64,
    #[arg(long)]
    rounds: u64,
}

/// Plays the first process of the container.
pub(crate) fn play_renumber(args: &Renumber) -> Result<()> {
    let plan = Plan::new(crate::plan::Size::Pr, Some(0), None)?;
    for round in 0..args.rounds {
        let number = args.first + round * 2;
        let mut holder = numbered(&plan, &args.store, "first")?;
        holder.must("claim numbered")?;
        holder.must(&format!("append numbered 1 0 {number} 1"))?;
        say(format_args!("A {number}"));
        holder.kill();
        let mut next = numbered(&plan, &args.store, "second")?;
        let answer = next.ask("claim numbered")?;
        if !answer.is_ok() {
            say(format_args!("V {} {}", answer.kind, answer.rest));
            continue;
        }
        next.must(&format!("append numbered 1 0 {} 1", number + 1))?;
        say(format_args!("A {}", number + 1));
        next.must("release numbered")?;
        next.finish()?;
    }
    say("Z");
    Ok(())
}

/// Starts an actor with the number that is used again and again.
fn numbered(plan: &Plan, store: &Path, label: &str) -> Result<Peer> {
    let last = (AGAIN - 1).to_string();
    std::fs::write("/proc/sys/kernel/ns_last_pid", last).map_err(|error| format!("ns_last_pid: {error}"))?;
    let peer = Peer::plain(plan, store, label)?;
    match peer.pid {
        AGAIN => Ok(peer),
        other => Err(format!("the number {AGAIN} was wanted, {other} was given")),
    }
}
