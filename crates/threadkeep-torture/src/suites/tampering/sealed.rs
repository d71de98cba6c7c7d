//! The same by somebody who puts everything in order again that the store has on record: with seals that are kept elsewhere all
//! of it is found, and without them nothing is called valid.

use std::path::Path;
use std::sync::Arc;

use threadkeep::blocking::Store;
use threadkeep::{Anchors, Outcome, PublicKey, StoreOptions, VerifyOptions, VerifyReport};

use super::kinds::{Alone, Chance, KINDS};
use super::rows::{Lite, Rows as _, copy};
use super::scene::{THREADS, go_on, id, make};
use crate::Result;
use crate::oracle::Rule;
use crate::plan::{self, Plan};
use crate::report::{self, Stop};

/// What is done to the seals themselves: each is told by one check alone.
const OF_SEALS: [(&str, &str); 5] = [
    (
        "the signature of another seal",
        "UPDATE seals SET signature = (SELECT signature FROM seals WHERE number = 1) WHERE number = 2",
    ),
    ("what a seal states taken out", "DELETE FROM seal_heads WHERE seal = 2"),
    ("another time of a seal", "UPDATE seals SET sealed_at = sealed_at - 1 WHERE number = 2"),
    ("the first seal taken out", "DELETE FROM seal_heads WHERE seal = 1; DELETE FROM seals WHERE number = 1"),
    ("another thread stated", "UPDATE seal_heads SET thread = 'nobody' WHERE seal = 2"),
];

/// Runs this part.
pub(super) fn run(plan: &Plan, outcome: &mut report::Outcome) -> Result<(), Stop> {
    let temp = plan::fast_folder()?;
    let (now, older, work) = (temp.path().join("now"), temp.path().join("older"), temp.path().join("work"));
    let first = temp.path().join("first");
    let options = || StoreOptions::folder(&first).keys(temp.path().join("keys"));
    let key = make(&open(options())?);
    copy(&first, &older);
    let store = open(options())?;
    go_on(&store);
    let anchors = Arc::new(store.anchors().map_err(|error| error.to_string())?);
    drop(store);
    copy(&first, &now);
    let mut random = plan.random("sealed");
    let mut tried = 0;
    for (what, alone, tamper) in KINDS {
        for _ in 0..plan.pick(3, 60, 300) {
            let seed = random.below(u64::MAX);
            copy(&now, &work);
            let thread = tamper(&mut Lite::open(&work), &mut Chance(seed | 1));
            tried += 1;
            let mut miss = |words: &str| outcome.tally.add(Rule::Unnoticed, format!("{what}, chance {seed}: {words}"));
            let found = verify(&work, Some(&anchors), key)?;
            if found.outcome() != Outcome::Invalid || !found.invalid.contains_key(&id(&thread)) {
                miss("with the seals and with anchors");
            }
            Lite::open(&work).run("DELETE FROM seal_heads; DELETE FROM seals");
            let expected = if alone == Alone::Found { Outcome::Invalid } else { Outcome::NotProvable };
            if verify(&work, None, key)?.outcome() != expected {
                miss("without seals and without anchors");
            }
            if verify(&work, Some(&anchors), key)?.outcome() != Outcome::Invalid {
                miss("without seals and with anchors");
            }
        }
    }
    for (what, sql) in OF_SEALS {
        copy(&now, &work);
        Lite::open(&work).run(sql);
        if verify(&work, None, key)?.outcome() != Outcome::Invalid {
            outcome.tally.add(Rule::Unnoticed, what);
        }
    }
    outcome.figure("changes of seals", OF_SEALS.len());
    copy(&older, &work);
    let with_memory = open(StoreOptions::folder(&work).keys(temp.path().join("keys")))?;
    let report = with_memory.verify_all(|_| {}).map_err(|error| format!("verifying: {error}"))?;
    if report.outcome() != Outcome::Invalid {
        outcome.tally.add(Rule::Unnoticed, "an older copy, with the folder of keys");
    }
    drop(with_memory);
    if verify(&work, Some(&anchors), key)?.outcome() != Outcome::Invalid {
        outcome.tally.add(Rule::Unnoticed, "an older copy, with anchors");
    }
    if verify(&work, None, key)?.outcome() != Outcome::NotProvable {
        outcome.tally.add(Rule::Unnoticed, "an older copy, without anchors, is not called not provable");
    }
    outcome.figure("changes of a sealed store", tried);
    outcome.figure("kinds of them", KINDS.len());
    copy(&now, &work);
    let sound = verify(&work, Some(&anchors), key)?;
    let is_sound = sound.outcome() == Outcome::Valid && sound.valid == THREADS;
    outcome.control("a sealed store that nobody changed, which must be valid", is_sound);
    Ok(())
}

fn open(options: StoreOptions) -> Result<Store> {
    Store::open(options).map_err(|error| format!("the sealed store: {error}"))
}

fn verify(store: &Path, anchors: Option<&Arc<Anchors>>, key: PublicKey) -> Result<VerifyReport> {
    let store = open(StoreOptions::folder(store))?;
    let options = VerifyOptions { anchors: anchors.cloned(), trust: vec![key], ..VerifyOptions::default() };
    store.verify_all_with(&options, |_| {}).map_err(|error| format!("verifying: {error}"))
}
