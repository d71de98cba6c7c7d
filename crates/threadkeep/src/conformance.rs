//! The public clauses that every store passes, whatever engine it stands on.
//!
//! One clause is one promise and one test, so that a failure names the promise that was broken. A clause gets a store of
//! its own. Run them all with [`clauses`]; the crate's own tests do so on every engine.

#![expect(clippy::indexing_slicing, reason = "a clause that panics is a clause that fails")]

mod append;
mod changes;
mod checkpoints;
mod claims;
mod documents;
mod following;
mod fork;
mod goals;
mod inbox;
#[doc(hidden)]
pub mod indexes;
mod jobs;
#[doc(hidden)]
pub mod languages;
mod prompts;
mod reading;
mod requests;
mod retention;
mod roadmaps;
mod runs;
mod search;
mod threads;
mod tools;
mod turn_repair;
mod workspaces;

use std::fmt;

use crate::blocking::{LiveThread, Store, Workspace};
use crate::error::Error;
use crate::{Item, ItemQuery, NewItem, NewThread, Role, ThreadId};

/// A promise and the code that checks it.
#[derive(Debug, Clone, Copy)]
pub struct Clause {
    /// The clause's name, the same for ever.
    pub name: &'static str,
    /// What is promised.
    pub promise: &'static str,
    /// Checks it on a store that is empty and used by nobody else.
    pub check: fn(&Store) -> Outcome,
}

/// Whether a clause holds.
pub type Outcome = Result<(), Broken>;

/// How a promise was broken.
#[derive(Debug, Clone)]
pub struct Broken(String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self(format!("unexpected error `{}`: {error}", error.kind()))
    }
}

/// All clauses.
pub fn clauses() -> Vec<Clause> {
    let lists = [
        append::CLAUSES,
        changes::CLAUSES,
        checkpoints::CLAUSES,
        claims::CLAUSES,
        documents::CLAUSES,
        following::CLAUSES,
        fork::CLAUSES,
        goals::CLAUSES,
        inbox::CLAUSES,
        jobs::CLAUSES,
        prompts::CLAUSES,
        reading::CLAUSES,
        roadmaps::CLAUSES,
        runs::CLAUSES,
        requests::CLAUSES,
        retention::CLAUSES,
        search::CLAUSES,
        threads::CLAUSES,
        tools::CLAUSES,
        turn_repair::CLAUSES,
        workspaces::CLAUSES,
    ];
    lists.concat()
}

/// Declares the clauses of a file: the doc comment is the promise.
macro_rules! promises {
    ($($(#[doc = $promise:literal])+ fn $name:ident($store:ident) $body:block)+) => {
        pub(super) const CLAUSES: &[$crate::conformance::Clause] = &[
            $($crate::conformance::Clause { name: stringify!($name), promise: concat!($($promise),+), check: $name }),+
        ];
        $(fn $name($store: &$crate::blocking::Store) -> $crate::conformance::Outcome {
            $body
            Ok(())
        })+
    };
}

macro_rules! ensure {
    ($condition:expr) => {
        if !$condition {
            return Err($crate::conformance::Broken(format!("line {}: {}", line!(), stringify!($condition))));
        }
    };
}

macro_rules! ensure_eq {
    ($left:expr, $right:expr) => {
        match (&$left, &$right) {
            (left, right) if *left == *right => {}
            (left, right) => {
                let text = format!("line {}: {} is {left:?}, not {right:?}", line!(), stringify!($left));
                return Err($crate::conformance::Broken(text));
            }
        }
    };
}

macro_rules! ensure_err {
    ($result:expr, $pattern:pat) => {
        match $result {
            Err($pattern) => {}
            other => {
                let text = format!("line {}: {} gave {other:?}", line!(), stringify!($result));
                return Err($crate::conformance::Broken(text));
            }
        }
    };
}

use {ensure, ensure_eq, ensure_err, promises};

fn say(text: &str) -> NewItem {
    NewItem::message(Role::User, text)
}

fn workspace(store: &Store) -> Result<Workspace, Error> {
    store.workspace("/conformance/project".as_ref())
}

/// A stored thread with these items.
fn thread_with(store: &Store, texts: &[&str]) -> Result<LiveThread, Error> {
    let thread = workspace(store)?.create_now(NewThread::default())?;
    for text in texts {
        thread.append(vec![say(text)])?;
    }
    Ok(thread)
}

fn text_of(item: &Item) -> String {
    let view: crate::View = serde_json::from_slice(&item.content).unwrap_or_default();
    view.to_text()
}

/// The texts of the active path.
fn texts(store: &Store, thread: &ThreadId) -> Result<Vec<String>, Error> {
    let page = store.items(thread, ItemQuery::default())?;
    Ok(page.entries.iter().map(text_of).collect())
}
