//! Claims between processes: who is alive is decided by a lock, whatever the numbers of the processes are.
#![cfg(test)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use threadkeep::blocking::Store;
use threadkeep::{Error, NewItem, NewThread, Role, StoreOptions, ThreadId, TurnEnd};

const FOLDER: &str = "THREADKEEP_TEST_CLAIMS_FOLDER";

fn open(folder: &Path, label: &str) -> Store {
    Store::open(StoreOptions::folder(folder).label(label)).unwrap()
}

fn id() -> ThreadId {
    ThreadId::new("thread").unwrap()
}

fn say(text: &str) -> NewItem {
    NewItem::message(Role::User, text)
}

/// The other process: takes the thread, begins a turn, and does what it is told, a line at a time.
#[test]
fn holder() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let store = open(Path::new(&folder), "holder");
    let live = match store.get(&id()) {
        Ok(_) => store.resume(&id(), false).unwrap(),
        Err(_) => {
            let new = NewThread { id: Some(id()), ..NewThread::default() };
            store.workspace("/w".as_ref()).unwrap().create_now(new).unwrap()
        }
    };
    live.begin_turn(say("prompt")).unwrap();
    println!("\nheld");
    for line in std::io::stdin().lock().lines() {
        let answer = match line.unwrap().as_str() {
            "append" => format!("{:?}", live.append(vec![say("x")]).map(|it| it.items.len())),
            "end turn" => format!("{:?}", live.end_turn(TurnEnd::completed()).map(|it| it.handed_over.is_some())),
            other => panic!("{other}"),
        };
        println!("\n{answer}");
    }
}

struct Holder {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Holder {
    /// Starts the other process, behind `wrapper` if there is one.
    fn start(folder: &Path, wrapper: &[&str]) -> Self {
        let own = std::env::current_exe().unwrap();
        let mut words: Vec<&str> = wrapper.to_vec();
        let own = own.to_str().unwrap();
        words.extend([own, "--exact", "holder", "--nocapture", "--test-threads=1"]);
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env(FOLDER, folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut holder = Self { child, answers };
        holder.wait_for("held");
        holder
    }

    fn wait_for(&mut self, word: &str) {
        let mut line = String::new();
        while line.trim() != word {
            line.clear();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the holder ended without saying `{word}`");
        }
    }

    fn ask(&mut self, order: &str) -> String {
        writeln!(self.child.stdin.as_ref().unwrap(), "{order}").unwrap();
        let mut line = String::new();
        while line.trim().is_empty() {
            line.clear();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the holder ended");
        }
        line.trim().to_owned()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn held_by(store: &Store) -> threadkeep::Holder {
    match store.resume(&id(), false) {
        Err(Error::ClaimHeld { holder, .. }) => *holder,
        other => panic!("the living holder was not respected: {other:?}"),
    }
}

/// Resumes the thread as soon as the system has freed the dead holder's lock; gives how long that took.
fn resume_after_death(store: &Store) -> Duration {
    let began = Instant::now();
    loop {
        match store.resume(&id(), false) {
            Ok(live) => {
                live.append(vec![say("after")]).unwrap();
                live.shutdown().unwrap();
                return began.elapsed();
            }
            Err(Error::ClaimHeld { .. }) if began.elapsed() < Duration::from_secs(10) => std::thread::yield_now(),
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// In another namespace the holder's process number means another process here, or none.
#[test]
fn a_holder_in_another_container_is_alive_until_it_dies() {
    let temp = tempfile::tempdir().unwrap();
    let unshare = ["unshare", "--pid", "--fork", "--kill-child"];
    let allowed = Command::new(unshare[0]).args(&unshare[1..]).arg("true").status();
    if !allowed.is_ok_and(|status| status.success()) {
        println!("SKIP: no right to make a namespace of process numbers");
        assert!(std::env::var_os("CI").is_none(), "this was skipped");
        return;
    }
    let mut holder = Holder::start(temp.path(), &unshare);
    let store = open(temp.path(), "other");
    let seen = held_by(&store);
    assert_eq!(seen.pid, 1, "the holder is the first process of its namespace");
    let own = threadkeep::ProcessIdentity::of_this_process();
    assert_ne!(seen.namespace, own.namespace);
    assert_eq!(seen.boot, own.boot);
    assert!(seen.start_ticks >= own.start_ticks);
    assert_eq!(holder.ask("append"), "Ok(1)");
    holder.signal("-KILL");
    let took = resume_after_death(&store);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(store.verify(&id()).unwrap().is_intact());
}

#[test]
fn a_stopped_holder_is_not_stolen_from_but_can_be_taken_over() {
    let temp = tempfile::tempdir().unwrap();
    let mut holder = Holder::start(temp.path(), &["env"]);
    let store = open(temp.path(), "taker");
    holder.signal("-STOP");
    assert_eq!(held_by(&store).label, "holder");
    let taker = store.take_over(&id(), "it was stopped", false).unwrap();
    taker.append(vec![say("taken")]).unwrap();
    holder.signal("-CONT");
    let refused = holder.ask("append");
    assert!(refused.contains("ClaimLost"), "{refused}");
    taker.append(vec![say("goes on")]).unwrap();
    let items = store.items(&id(), threadkeep::ItemQuery::default()).unwrap().entries;
    assert_eq!(items.len(), 4, "a prompt, the note of the take-over, and two items of the taker");
    let note = String::from_utf8_lossy(&items[1].content).into_owned();
    assert!(note.contains("taker took this thread over from holder") && note.contains("it was stopped"), "{note}");
    assert!(store.verify(&id()).unwrap().is_intact());
}

#[test]
fn a_holder_in_another_process_hands_over_when_it_is_asked() {
    let temp = tempfile::tempdir().unwrap();
    let mut holder = Holder::start(temp.path(), &["env"]);
    let store = open(temp.path(), "asker");
    store.request_release(&id()).unwrap();
    let claim = store.claims().unwrap().remove(0);
    assert_eq!((claim.live, claim.wanted.map(|it| it.by)), (true, Some("asker".to_owned())));
    assert_eq!(holder.ask("append"), "Ok(1)");
    held_by(&store);
    assert_eq!(holder.ask("end turn"), "Ok(true)");
    store.resume(&id(), false).unwrap().append(vec![say("mine")]).unwrap();
    assert!(holder.ask("append").contains("Closed"));
}

#[test]
fn a_killed_holder_is_replaced_within_a_second() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path(), "other");
    let mut times = Vec::new();
    for _ in 0..20 {
        let holder = Holder::start(temp.path(), &["env"]);
        held_by(&store);
        holder.signal("-KILL");
        times.push(resume_after_death(&store));
    }
    times.sort_unstable();
    println!("20 kills, resumed after {:?} (median) and {:?} (most)", times[10], times[19]);
    assert!(times[19] < Duration::from_secs(1), "{times:?}");
    assert!(std::fs::read_dir(temp.path().join("holders")).unwrap().count() <= 1, "dead holders' files are removed");
}

#[test]
fn two_who_look_at_a_dead_holder_do_not_take_each_other_for_it() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path(), "other");
    let mut holder = Holder::start(temp.path(), &["env"]);
    let seen = held_by(&store);
    holder.child.kill().unwrap();
    holder.child.wait().unwrap();
    // What the other one does while it looks.
    let looked_at = std::fs::File::open(temp.path().join("holders").join(&seen.id)).unwrap();
    looked_at.lock_shared().unwrap();
    store.resume(&id(), false).unwrap().append(vec![say("after")]).unwrap();
}

#[test]
fn a_link_in_the_place_of_a_holders_file_proves_no_death() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path(), "other");
    let mut holder = Holder::start(temp.path(), &["env"]);
    let seen = held_by(&store);
    let (file, elsewhere) = (temp.path().join("holders").join(&seen.id), temp.path().join("elsewhere"));
    std::fs::write(&elsewhere, "").unwrap();
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
    held_by(&store);
    assert_eq!(holder.ask("append"), "Ok(1)");
}

/// Without its lock file nobody can see that a holder lives, and so it is replaced; but not from its next claim on.
#[test]
fn a_holder_whose_lock_file_was_removed_is_fenced_and_is_seen_again_from_its_next_claim_on() {
    let temp = tempfile::tempdir().unwrap();
    let (store, other) = (open(temp.path(), "holder"), open(temp.path(), "other"));
    let workspace = store.workspace("/w".as_ref()).unwrap();
    let live = workspace.create_now(NewThread::default()).unwrap();
    for replaced in [false, true] {
        let file = std::fs::read_dir(temp.path().join("holders")).unwrap().next().unwrap().unwrap().path();
        std::fs::remove_file(&file).unwrap();
        if replaced {
            std::fs::write(&file, "").unwrap();
        }
        let next = workspace.create_now(NewThread::default()).unwrap();
        assert!(matches!(other.resume(next.id(), false), Err(Error::ClaimHeld { .. })), "replaced: {replaced}");
        assert!(matches!(other.resume(live.id(), false), Err(Error::ClaimHeld { .. })), "replaced: {replaced}");
    }
    for entry in std::fs::read_dir(temp.path().join("holders")).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    other.resume(live.id(), false).unwrap().append(vec![say("mine")]).unwrap();
    let refused = live.append(vec![say("stale")]).unwrap_err();
    assert!(matches!(refused, Error::ClaimLost { .. }), "{refused:?}");
    assert_eq!(live.take_unsaved().len(), 1);
}

#[test]
fn a_thread_is_not_deleted_under_a_writer_that_claims_it_at_the_same_moment() {
    let temp = tempfile::tempdir().unwrap();
    let (store, other) = (open(temp.path(), "writer"), open(temp.path(), "other"));
    let new = NewThread { id: Some(id()), ..NewThread::default() };
    store.workspace("/w".as_ref()).unwrap().create_now(new).unwrap().shutdown().unwrap();
    for round in 0..200 {
        let barrier = std::sync::Barrier::new(2);
        let (live, deleted) = std::thread::scope(|scope| {
            let resumed = scope.spawn(|| {
                barrier.wait();
                store.resume(&id(), false)
            });
            barrier.wait();
            let deleted = other.delete(&id());
            (resumed.join().unwrap(), deleted)
        });
        match (live, deleted) {
            (Ok(live), Err(Error::ClaimHeld { .. })) => live.shutdown().unwrap(),
            (Err(Error::NotFound { .. }), Ok(_)) => drop(other.restore(&id()).unwrap()),
            both => panic!("round {round}: {both:?}"),
        }
    }
}

/// A take-over asks nobody: that others take over at the same moment is no reason to refuse it.
#[test]
fn however_many_take_a_thread_over_at_once_each_of_them_does() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path(), "maker");
    let new = NewThread { id: Some(id()), ..NewThread::default() };
    store.workspace("/w".as_ref()).unwrap().create_now(new).unwrap().shutdown().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let store = open(temp.path(), "taker");
                for _ in 0..20 {
                    store.take_over(&id(), "all at once", false).unwrap();
                }
            });
        }
    });
    assert_eq!(store.get(&id()).unwrap().items, 160, "a note for each");
}
