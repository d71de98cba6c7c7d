//! Repairing the turns of a thread whose holder was killed, and what of it travels.
//!
//! A test starts this very binary again with the folder of a store in its environment; [`child_entry`] holds a thread there until
//! it is killed.
#![cfg(test)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use threadkeep::blocking::Store;
use threadkeep::{
    Address, Error, Item, ItemQuery, Kind, NewItem, NewThread, News, Part, Role, StoreOptions, ThreadId, TurnQuery,
    TurnStatus, View,
};

const PLACE: &str = "THREADKEEP_TEST_PLACE";
/// What a child's lines begin with; the test harness writes to the same stream.
const MARK: &str = "@@ ";
/// Longer than anything here may take.
const HANG: Duration = Duration::from_secs(300);

fn open(folder: &Path) -> Store {
    Store::open(StoreOptions::folder(folder)).unwrap()
}

fn id(text: &str) -> ThreadId {
    ThreadId::new(text).unwrap()
}

fn say(text: &str) -> NewItem {
    NewItem::message(Role::User, text)
}

fn call(id: &str) -> NewItem {
    NewItem::tool_call(id, "shell", r#"{"command":"cargo test"}"#)
}

fn path_to(store: &Store, thread: &ThreadId, at: Option<Address>) -> Vec<Item> {
    store.items(thread, ItemQuery { at, limit: 2_000, ..ItemQuery::default() }).unwrap().entries
}

fn view(item: &Item) -> View {
    serde_json::from_slice(&item.content).unwrap()
}

/// The ids of the calls that have a synthetic result on the path.
fn synthetic(store: &Store, thread: &ThreadId) -> Vec<String> {
    let made =
        path_to(store, thread, None).into_iter().filter(|item| item.kind == Kind::ToolResult && view(item).synthetic);
    let answered = |item: Item| match view(&item).parts.remove(0) {
        Part::ToolResult { call_id, .. } => call_id,
        other => panic!("{other:?}"),
    };
    made.map(answered).collect()
}

/// Holds a thread in the middle of a turn, between a call and its result; without a place this is no test and passes.
#[test]
fn child_entry() {
    let Ok(place) = std::env::var(PLACE) else { return };
    let store = open(Path::new(&place));
    let live = store
        .workspace(Path::new("/w"))
        .unwrap()
        .create_now(NewThread { id: Some(id("t")), ..NewThread::default() })
        .unwrap();
    live.begin_turn(say("run the tests")).unwrap();
    live.append(vec![call("answered"), call("open")]).unwrap();
    live.append(vec![NewItem::tool_result("answered", "ok", false)]).unwrap();
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{MARK}held\n").as_bytes()).unwrap();
    out.flush().unwrap();
    std::thread::sleep(HANG);
}

/// A child that is killed at the latest with the test.
struct Holder(Child);

impl Holder {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child_entry", "--nocapture", "--test-threads=1"])
            .env(PLACE, folder)
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let holder = Self(child);
        assert!(output.lines().any(|line| line.unwrap().contains(MARK)), "the child ended before it held the thread");
        holder
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_holder_that_was_killed_between_a_call_and_its_result_is_repaired_once() {
    let temp = tempfile::tempdir().unwrap();
    let holder = Holder::start(temp.path());
    let store = open(temp.path());
    let planned = store.plan_turn_repair(&id("t")).unwrap();
    assert_eq!((planned.is_needed(), planned.running, planned.interrupted), (false, 1, None), "it lives: {planned:?}");
    assert!(matches!(store.resume(&id("t"), false), Err(Error::ClaimHeld { .. })));
    holder.kill();

    let before = path_to(&store, &id("t"), None);
    let planned = store.plan_turn_repair(&id("t")).unwrap();
    assert_eq!((planned.closed.len(), planned.running, planned.interrupted), (1, 0, Some(1)), "{planned:?}");
    let live = store.resume(&id("t"), false).unwrap();
    assert_eq!(path_to(&store, &id("t"), None), before, "resuming repaired something");
    let first = live.repair_turns().unwrap();
    assert_eq!((first.closed.len(), first.closed[0].call_id.as_str(), first.interrupted), (1, "open", Some(1)));
    let second = live.repair_turns().unwrap();
    assert!(!second.is_needed(), "{second:?}");
    live.shutdown().unwrap();
    let third = open(temp.path()).resume(&id("t"), false).unwrap().repair_turns().unwrap();
    assert!(!third.is_needed(), "{third:?}");

    assert_eq!(synthetic(&store, &id("t")), ["open"]);
    let turns = store.turns(&id("t"), TurnQuery::default()).unwrap().entries;
    assert_eq!(turns.iter().map(|turn| turn.status.clone()).collect::<Vec<_>>(), [TurnStatus::Interrupted]);
    assert_eq!(path_to(&store, &id("t"), first.from), before, "the former branch is not as it was");
    assert!(store.verify(&id("t")).unwrap().is_intact());
}

/// A thread with a gap early on and more behind it than is read at a time.
fn long_thread(store: &Store) -> ThreadId {
    let thread = NewThread { id: Some(id("long")), ..NewThread::default() };
    let live = store.workspace(Path::new("/w")).unwrap().create_now(thread).unwrap();
    live.append(vec![say("go"), call("early")]).unwrap();
    live.append((0..1_300).map(|number| say(&format!("line {number}"))).collect()).unwrap();
    live.append(vec![call("late")]).unwrap();
    live.discard().unwrap();
    id("long")
}

#[test]
fn much_that_stands_behind_a_gap_is_written_again_in_order() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let thread = long_thread(&store);
    let before = path_to(&store, &thread, None);
    let live = store.resume(&thread, false).unwrap();
    let repair = live.repair_turns().unwrap();
    assert_eq!((repair.closed.len(), repair.rewritten), (2, 1_301));
    let after = path_to(&store, &thread, None);
    assert_eq!(after.len(), before.len() + 3, "two results and a note");
    let texts = |items: &[Item]| items.iter().map(|item| item.content.clone()).collect::<Vec<_>>();
    assert_eq!(texts(&after[3..1_304]), texts(&before[2..]));
    assert_eq!(
        (synthetic(&store, &thread), after[2].depth, after[1_304].depth),
        (vec!["early".into(), "late".into()], 2, 1_304)
    );
    assert_eq!(path_to(&store, &thread, repair.from), before);
    live.append(vec![say("on")]).unwrap();
    live.shutdown().unwrap();
    assert!(store.verify(&thread).unwrap().is_intact());
    assert_eq!(store.tree(&thread).unwrap().branches.len(), 2);
}

/// A branch that begins at the end of another one is nothing special to whoever carries the thread.
#[test]
fn a_repaired_thread_is_copied_mirrored_and_rebuilt_as_it_is() {
    let temp = tempfile::tempdir().unwrap();
    open(temp.path()).set_live_rollouts(None).unwrap();
    let store = open(temp.path());
    let live = store
        .workspace(Path::new("/w"))
        .unwrap()
        .create_now(NewThread { id: Some(id("t")), ..NewThread::default() })
        .unwrap();
    live.begin_turn(say("go")).unwrap();
    live.append(vec![call("a")]).unwrap();
    live.discard().unwrap();
    let live = store.resume(&id("t"), false).unwrap();
    let head = live.head().unwrap();
    let mut follower = store.follow(&id("t"), head).unwrap();
    assert!(follower.try_next().unwrap().is_none());
    let former = live.repair_turns().unwrap().from.unwrap();
    let Some(News::Items(told)) = follower.try_next().unwrap() else { panic!("what is added takes nothing back") };
    assert_eq!(told.iter().map(|item| item.depth).collect::<Vec<_>>(), [2, 3]);
    // What comes late is still taken, where it belongs.
    let late = threadkeep::AppendOptions { after: Some(former), ..threadkeep::AppendOptions::default() };
    let head = live.head().unwrap().unwrap();
    let landed = live.append_with(vec![NewItem::tool_result("a", "late", false)], late).unwrap();
    assert_eq!(landed.items[0].branch, former.branch, "the former branch can't go on");
    live.rewind(head).unwrap();
    live.shutdown().unwrap();
    let (tree, path) = (store.tree(&id("t")).unwrap(), path_to(&store, &id("t"), None));

    // The file that follows the store has it all, too.
    let followed = Store::open(StoreOptions::memory()).unwrap();
    assert!(followed.rebuild_from_rollouts(&temp.path().join("rollouts"), |_| {}).unwrap().is_whole());
    assert_eq!(followed.tree(&id("t")).unwrap(), tree, "followed");

    let copied = Store::open(StoreOptions::memory()).unwrap();
    copied.copy_from(&store, &mut |_| {}).unwrap();
    let rollouts = temp.path().join("m");
    assert_eq!(store.mirror_rollouts(Some(&rollouts), None, |_| {}).unwrap().problems, []);
    let rebuilt = Store::open(StoreOptions::memory()).unwrap();
    assert!(rebuilt.rebuild_from_rollouts(&rollouts, |_| {}).unwrap().is_whole());
    for (store, how) in [(&store, "as it is"), (&copied, "copied"), (&rebuilt, "rebuilt")] {
        assert_eq!(store.tree(&id("t")).unwrap(), tree, "{how}");
        let same = path_to(store, &id("t"), None)
            .iter()
            .map(|item| (item.id, item.hash))
            .eq(path.iter().map(|item| (item.id, item.hash)));
        assert!(same, "{how}");
        assert!(store.verify(&id("t")).unwrap().is_intact(), "{how}");
        assert_eq!(synthetic(store, &id("t")), ["a"], "{how}");
        let again = store.resume(&id("t"), false).unwrap().repair_turns().unwrap();
        assert!(!again.is_needed(), "{how}: {again:?}");
    }
}

/// What can't be read may be the result that is looked for: nothing is decided over it.
#[test]
fn an_item_that_can_not_be_read_ends_the_repair_by_its_name() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = store
        .workspace(Path::new("/w"))
        .unwrap()
        .create_now(NewThread { id: Some(id("t")), ..NewThread::default() })
        .unwrap();
    live.append(vec![say("go"), call("a"), NewItem::tool_result("a", "ok", false), call("b")]).unwrap();
    live.discard().unwrap();
    drop((live, store));
    let spoil = "DROP TRIGGER items_are_append_only; UPDATE items SET digest = x'00' WHERE key & 4294967295 = 2";
    rusqlite::Connection::open(temp.path().join("threadkeep.db")).unwrap().execute_batch(spoil).unwrap();
    let store = open(temp.path());
    let tree = store.tree(&id("t")).unwrap();
    let live = store.resume(&id("t"), false).unwrap();
    for outcome in [store.plan_turn_repair(&id("t")), live.repair_turns()] {
        assert!(matches!(outcome, Err(Error::Corrupt { .. })), "{outcome:?}");
    }
    assert_eq!(store.tree(&id("t")).unwrap(), tree);
}

/// A result whose content was taken away is still a result.
#[test]
fn a_redacted_result_is_none_that_is_missing() {
    let store = Store::open(StoreOptions::memory()).unwrap();
    let live = store
        .workspace(Path::new("/w"))
        .unwrap()
        .create_now(NewThread { id: Some(id("t")), ..NewThread::default() })
        .unwrap();
    let items =
        live.append(vec![say("go"), call("a"), NewItem::tool_result("a", "secret", false), say("on")]).unwrap().items;
    live.shutdown().unwrap();
    let options = threadkeep::RedactOptions { reason: "a secret".into(), ..threadkeep::RedactOptions::default() };
    store.redact(&id("t"), vec![items[2].address()], options).unwrap();
    let repair = store.resume(&id("t"), false).unwrap().repair_turns().unwrap();
    assert!(!repair.is_needed() && repair.without_call == 0, "{repair:?}");
}
