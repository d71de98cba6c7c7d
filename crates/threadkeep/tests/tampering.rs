//! A store is changed behind the library's back, by somebody who knows it and puts everything in order again that the store has
//! on record. With seals that were kept outside all of it is found; without, what can't be found is never called valid.
//!
//! `THREADKEEP_TAMPERINGS` says how many places each kind is tried at, `THREADKEEP_TAMPERING_SEED` which.
#![cfg(test)]

#[path = "tampering/kinds.rs"]
mod kinds;
#[path = "tampering/rows.rs"]
mod rows;
#[path = "tampering/scene.rs"]
mod scene;
#[path = "postgres/server.rs"]
mod server;
#[path = "tampering/server_rows.rs"]
mod server_rows;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kinds::{Alone, Chance, KINDS};
use rows::{Lite, Rows, copy};
use scene::{THREADS, go_on, id, make, named, say};
use threadkeep::blocking::Store;
use threadkeep::{Anchors, GapKind, NewItem, Outcome, PublicKey, Role, StoreOptions, VerifyOptions, VerifyReport};

fn outside(anchors: &Arc<Anchors>, key: PublicKey) -> VerifyOptions {
    VerifyOptions { anchors: Some(Arc::clone(anchors)), trust: vec![key], ..VerifyOptions::default() }
}

fn verify(store: &Store, options: &VerifyOptions) -> VerifyReport {
    store.verify_all_with(options, |_| {}).unwrap()
}

fn environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A store that can be put back to how it was, and changed.
trait Bench {
    fn put_back(&mut self, older: bool);
    fn rows(&mut self) -> Box<dyn Rows + '_>;
    /// The store for somebody who has no keys.
    fn open(&self) -> Store;
}

/// What came of it, by kind: how many were tried.
fn torment(bench: &mut dyn Bench, anchors: &Arc<Anchors>, key: PublicKey, places: u64) -> BTreeMap<&'static str, u64> {
    let seed = environment("THREADKEEP_TAMPERING_SEED", 1);
    let mut tried = BTreeMap::new();
    bench.put_back(false);
    let sound = verify(&bench.open(), &outside(anchors, key));
    assert_eq!((sound.outcome(), sound.valid), (Outcome::Valid, THREADS), "the control: {sound:?}");
    for (number, (what, alone, tamper)) in KINDS.iter().enumerate() {
        for place in 0..places {
            let mut chance =
                Chance((seed * 1_000_003 + place * 1_009 + number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            bench.put_back(false);
            let thread = tamper(&mut *bench.rows(), &mut chance);
            let store = bench.open();
            let found = verify(&store, &outside(anchors, key));
            let why = format!("{what}, seed {seed}, place {place}: {found:?}");
            assert_eq!(found.outcome(), Outcome::Invalid, "{why}");
            assert!(found.invalid.contains_key(&id(&thread)), "{thread} is not named: {why}");
            drop(store);
            // Whoever changes the store takes the seals out of it, too.
            bench.rows().run("DELETE FROM seal_heads; DELETE FROM seals");
            let store = bench.open();
            let bare = verify(&store, &VerifyOptions::default());
            let expected = if *alone == Alone::Found { Outcome::Invalid } else { Outcome::NotProvable };
            assert_eq!(bare.outcome(), expected, "without seals: {what}, place {place}: {bare:?}");
            assert_eq!(bare.valid, 0, "without seals nothing is valid: {what}: {bare:?}");
            let found = verify(&store, &outside(anchors, key));
            assert_eq!(
                found.outcome(),
                Outcome::Invalid,
                "the seals are gone, and the anchors are not: {what}: {found:?}"
            );
            *tried.entry(*what).or_default() += 1;
        }
    }
    bench.put_back(true);
    let store = bench.open();
    let found = verify(&store, &outside(anchors, key));
    assert_eq!(found.outcome(), Outcome::Invalid, "an older copy: {found:?}");
    let bare = verify(&store, &VerifyOptions { trust: vec![key], ..VerifyOptions::default() });
    assert_eq!((bare.outcome(), bare.valid), (Outcome::NotProvable, 0), "an older copy, without anchors: {bare:?}");
    assert!(bare.not_provable.contains_key(&GapKind::NoAnchor), "{bare:?}");
    tried
}

struct Folder {
    now: PathBuf,
    older: PathBuf,
    work: PathBuf,
}

impl Bench for Folder {
    fn put_back(&mut self, older: bool) {
        copy(if older { &self.older } else { &self.now }, &self.work);
    }

    fn rows(&mut self) -> Box<dyn Rows + '_> {
        Box::new(Lite::open(&self.work))
    }

    fn open(&self) -> Store {
        Store::open(StoreOptions::folder(&self.work)).unwrap()
    }
}

fn with_folder(temp: &Path) -> (Folder, Arc<Anchors>, PublicKey) {
    let first = temp.join("first");
    let open = || Store::open(StoreOptions::folder(&first).keys(temp.join("keys"))).unwrap();
    let key = make(&open());
    let older = copy(&first, &temp.join("older"));
    let store = open();
    go_on(&store);
    let anchors = Arc::new(store.anchors().unwrap());
    drop(store);
    let now = copy(&first, &temp.join("now"));
    (Folder { now, older, work: temp.join("work") }, anchors, key)
}

fn tell(engine: &str, tried: &BTreeMap<&str, u64>) {
    let sum: u64 = tried.values().sum();
    println!("{engine}: {sum} changes of {} kinds, all found with anchors", tried.len());
}

#[test]
fn every_kind_is_found_in_a_folder() {
    let temp = tempfile::tempdir().unwrap();
    let (mut bench, anchors, key) = with_folder(temp.path());
    let tried = torment(&mut bench, &anchors, key, environment("THREADKEEP_TAMPERINGS", 4));
    tell("SQLite", &tried);
}

struct OnServer {
    store: Store,
    rows: server_rows::Server,
}

impl Bench for OnServer {
    fn put_back(&mut self, older: bool) {
        self.rows.put_back(if older { "older" } else { "now" });
    }

    fn rows(&mut self) -> Box<dyn Rows + '_> {
        struct Lent<'a>(&'a mut server_rows::Server);
        impl Rows for Lent<'_> {
            fn run(&mut self, sql: &str) {
                self.0.run(sql);
            }
            fn read(&mut self, sql: &str) -> Vec<Vec<String>> {
                self.0.read(sql)
            }
            fn bytes(&self, hex: &str) -> String {
                self.0.bytes(hex)
            }
            fn hex(&self, column: &str) -> String {
                self.0.hex(column)
            }
        }
        Box::new(Lent(&mut self.rows))
    }

    fn open(&self) -> Store {
        self.store.clone()
    }
}

#[test]
fn every_kind_is_found_on_a_server() {
    let Some(server) = server::server() else { return };
    let temp = tempfile::tempdir().unwrap();
    let address = server.address();
    let schema = address.split("schema=").nth(1).unwrap().to_owned();
    let options = || StoreOptions::postgres(&address).unwrap();
    let store = Store::open(options().keys(temp.path().join("keys"))).unwrap();
    let key = make(&store);
    let mut rows = server_rows::Server::connect(server.config(), &schema);
    rows.keep("older");
    go_on(&store);
    rows.keep("now");
    let anchors = Arc::new(store.anchors().unwrap());
    let mut bench = OnServer { store: Store::open(options()).unwrap(), rows };
    let tried = torment(&mut bench, &anchors, key, environment("THREADKEEP_TAMPERINGS", 2));
    tell("PostgreSQL", &tried);
}

#[test]
fn seals_that_were_changed_are_told() {
    let temp = tempfile::tempdir().unwrap();
    let (mut bench, anchors, key) = with_folder(temp.path());
    let edits = [
        "UPDATE seal_heads SET depth = depth - 1 WHERE seal = 1 AND thread = 'other'",
        "UPDATE seal_heads SET tick = tick - 1 WHERE seal = 2 AND thread = 'lone'",
        "DELETE FROM seal_heads WHERE seal = 1 AND thread = 'main'",
        "DELETE FROM seal_heads WHERE seal = 1; DELETE FROM seals WHERE number = 1",
        "DELETE FROM seal_heads WHERE seal = 2; DELETE FROM seals WHERE number = 2",
        "UPDATE seals SET sealed_at = sealed_at + 1 WHERE number = 2",
        "UPDATE seals SET signature = (SELECT signature FROM seals WHERE number = 1) WHERE number = 2",
        "UPDATE seals SET hash = digest WHERE number = 2",
        "UPDATE seals SET public_key = x'00' WHERE number = 1",
        "UPDATE seals SET heads = 0 WHERE number = 1",
    ];
    for edit in edits {
        bench.put_back(false);
        bench.rows().run(edit);
        let found = verify(&bench.open(), &outside(&anchors, key));
        assert_eq!(found.outcome(), Outcome::Invalid, "{edit}: {found:?}");
        assert!(!found.seals.is_empty(), "{edit}: {found:?}");
        // Without anchors the last seal can be taken away; nothing is called valid then.
        let bare = verify(&bench.open(), &VerifyOptions { trust: vec![key], ..VerifyOptions::default() });
        assert_eq!(bare.valid, 0, "{edit}: {bare:?}");
    }
}

/// Somebody without the key computes a chain anew and seals it with a key of their own.
#[test]
fn a_seal_by_an_unknown_key_vouches_for_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let (mut bench, anchors, key) = with_folder(temp.path());
    bench.put_back(false);
    let rechain = KINDS.iter().find(|(what, ..)| *what == "compute the chain anew").unwrap().2;
    rechain(&mut *bench.rows(), &mut Chance(7));
    bench.rows().run("DELETE FROM seal_heads; DELETE FROM seals");
    let theirs = Store::open(StoreOptions::folder(&bench.work).keys(temp.path().join("theirs"))).unwrap();
    theirs.create_key().unwrap();
    theirs.seal(None, false).unwrap();
    drop(theirs);
    let bare = verify(&bench.open(), &VerifyOptions { trust: vec![key], ..VerifyOptions::default() });
    assert_eq!((bare.outcome(), bare.valid), (Outcome::NotProvable, 0), "{bare:?}");
    assert_eq!(bare.not_provable.get(&GapKind::UnknownKey), Some(&THREADS), "{bare:?}");
    assert_eq!(verify(&bench.open(), &outside(&anchors, key)).outcome(), Outcome::Invalid);
}

/// A purge is told from a theft, once a seal vouches for its record; a record that nobody sealed is not believed.
#[test]
fn a_purge_on_record_is_told_from_a_theft() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let store = Store::open(StoreOptions::folder(&folder)).unwrap();
    let key = make(&store);
    let anchors = Arc::new(store.anchors().unwrap());
    for thread in ["lone", "main"] {
        store.delete(&id(thread)).unwrap();
        store.purge(&id(thread)).unwrap();
    }
    let found = verify(&store, &outside(&anchors, key));
    assert_eq!(found.outcome(), Outcome::NotProvable, "{found:?}");
    assert_eq!(found.not_provable.get(&GapKind::UnsealedPurge), Some(&1), "{found:?}");
    let sealed = store.seal(None, false).unwrap();
    assert_eq!((sealed.seals, sealed.heads), (1, 0), "a seal for the record alone");
    let found = verify(&store, &outside(&anchors, key));
    assert_eq!(found.outcome(), Outcome::Valid, "{found:?}");
    // A later thread of the same name is no part of what the record explains.
    store.workspace("/w".as_ref()).unwrap().create_now(named("lone")).unwrap().shutdown().unwrap();
    say(&store, "lone", 1);
    store.seal(None, false).unwrap();
    assert_eq!(verify(&store, &VerifyOptions::default()).outcome(), Outcome::Valid);
    drop(store);
    let mut rows = Lite::open(&folder);
    rows.run(
        "DELETE FROM items WHERE key >> 32 IN (SELECT key FROM branches WHERE thread = 'lone');
         DELETE FROM branches WHERE thread = 'lone'; DELETE FROM turns WHERE thread = 'lone'; DELETE FROM threads WHERE id = 'lone'",
    );
    drop(rows);
    let store = Store::open(StoreOptions::folder(&folder)).unwrap();
    let found = verify(&store, &VerifyOptions::default());
    assert!(found.invalid.contains_key(&id("lone")), "{found:?}");
}

/// What an incremental verification leaves out, and that a full one is not misled by what it remembered.
#[test]
fn what_is_remembered_hides_nothing_from_a_full_verification() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let store = Store::open(StoreOptions::folder(&folder)).unwrap();
    make(&store);
    let since_last = VerifyOptions { since_last: true, ..VerifyOptions::default() };
    let first = verify(&store, &since_last);
    assert_eq!((first.outcome(), first.remembered), (Outcome::Valid, 0), "{first:?}");
    say(&store, "other", 1);
    let second = verify(&store, &since_last);
    assert_eq!((second.items, second.remembered), (2, first.items), "only what is new is looked at: {second:?}");
    assert!(second.not_provable.contains_key(&GapKind::NotLookedAt), "{second:?}");
    let content = "UPDATE items SET content = x'7b7d', encoding = 0, size = 2 WHERE key = (SELECT min(key) FROM items)";
    Lite::open(&folder).run(content);
    assert_eq!(verify(&store, &since_last).outcome(), Outcome::NotProvable, "it does not look there, and says so");
    assert_eq!(verify(&store, &VerifyOptions::default()).outcome(), Outcome::Invalid);
    // A memory that does not fit is not believed.
    Lite::open(&folder).run("UPDATE verified SET depth = 0");
    assert_eq!(verify(&store, &since_last).outcome(), Outcome::Invalid);
}

#[test]
fn an_older_copy_is_noticed_when_it_is_opened_and_goes_on_only_on_purpose() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let open = || Store::open(StoreOptions::folder(&folder)).unwrap();
    let store = open();
    make(&store);
    assert!(store.notices().is_empty());
    let backup = store.backup(&temp.path().join("backup.db")).unwrap();
    go_on(&store);
    drop(store);
    assert!(open().notices().is_empty());
    Store::restore_backup(StoreOptions::folder(&folder), &backup.file).unwrap();
    let store = open();
    assert!(store.notices().iter().any(|notice| notice.contains("older copy")), "{:?}", store.notices());
    say(&store, "other", 1);
    let found = verify(&store, &VerifyOptions::default());
    assert_eq!((found.outcome(), found.seals.len()), (Outcome::Invalid, 1), "{found:?}");
    let refused = store.seal(None, false).unwrap_err();
    assert_eq!(refused.kind(), "conflict", "{refused}");
    store.seal(None, true).unwrap();
    assert_eq!(verify(&store, &VerifyOptions::default()).outcome(), Outcome::Valid);
    drop(store);
    assert!(open().notices().is_empty());
}

#[test]
fn a_thread_is_sealed_when_it_is_shut_down_if_that_is_wanted() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let store = Store::open(StoreOptions::folder(&folder).seal_at_shutdown()).unwrap();
    let live = store.workspace("/w".as_ref()).unwrap().create_now(named("t")).unwrap();
    live.append(vec![NewItem::message(Role::User, "a")]).unwrap();
    assert_eq!(live.shutdown().unwrap_err().kind(), "not-found", "there is no key; all is stored");
    store.create_key().unwrap();
    say(&store, "t", 2);
    let verdict = store.verify(&id("t")).unwrap();
    assert_eq!((verdict.outcome(), verdict.items), (Outcome::Valid, 5), "{verdict:?}");
}

/// Threads are written, sealed and purged while they are verified: nothing of that looks like a change.
#[test]
fn what_is_written_sealed_and_purged_meanwhile_is_no_contradiction() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions::folder(temp.path().join("store"))).unwrap();
    make(&store);
    let ended = AtomicBool::new(false);
    let workspace = store.workspace("/w".as_ref()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..60 {
                say(&store, "other", 1);
                let passing = id(&format!("passing-{number}"));
                workspace.create_now(named(passing.as_str())).unwrap().shutdown().unwrap();
                say(&store, passing.as_str(), 1);
                store.seal(Some(std::slice::from_ref(&passing)), false).unwrap();
                store.delete(&passing).unwrap();
                store.purge(&passing).unwrap();
            }
            ended.store(true, Ordering::SeqCst);
        });
        scope.spawn(|| {
            while !ended.load(Ordering::SeqCst) {
                store.seal(None, false).unwrap();
            }
        });
        let mut rounds = 0;
        while !ended.load(Ordering::SeqCst) {
            let found = verify(&store, &VerifyOptions::default());
            assert_ne!(found.outcome(), Outcome::Invalid, "round {rounds}: {found:?}");
            let verdict = store.verify(&id("other")).unwrap();
            assert!(verdict.is_intact(), "round {rounds}: {verdict:?}");
            rounds += 1;
        }
        assert!(rounds > 0);
    });
    store.seal(None, false).unwrap();
    assert_eq!(verify(&store, &VerifyOptions::default()).outcome(), Outcome::Valid);
}

/// Many threads take several seals, each complete.
#[test]
fn many_threads_are_sealed_in_parts() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions::folder(temp.path().join("store"))).unwrap();
    store.create_key().unwrap();
    let workspace = store.workspace("/w".as_ref()).unwrap();
    workspace.create_now(named("parent")).unwrap().shutdown().unwrap();
    say(&store, "parent", 1);
    for number in 0..2_100 {
        store.fork(&id("parent"), None, named(&format!("fork-{number}"))).unwrap();
    }
    let sealed = store.seal(None, false).unwrap();
    assert_eq!((sealed.seals, sealed.threads, sealed.heads), (2, 2_101, 2_101));
    assert_eq!(store.seal(None, false).unwrap().seals, 0);
    let found = verify(&store, &VerifyOptions::default());
    assert_eq!((found.outcome(), found.valid), (Outcome::Valid, 2_101), "{found:?}");
    let mut text = Vec::new();
    let anchors = store.anchors().unwrap();
    anchors.write(&mut text).unwrap();
    assert_eq!(Anchors::read("anchors", &mut text.as_slice()).unwrap(), anchors);
}
