//! What stands beside the log, in the files: damage, time, copies, repairs, backups, redactions. What every engine promises is among
//! the clauses.
#![cfg(test)]

#[path = "state/carried.rs"]
mod carried;
#[path = "state/damaged.rs"]
mod damaged;
#[path = "state/documents.rs"]
mod documents;
#[path = "state/masked.rs"]
mod masked;
#[path = "state/receipts.rs"]
mod receipts;
#[path = "state/steering.rs"]
mod steering;
#[path = "state/timed.rs"]
mod timed;
#[path = "state/work.rs"]
mod work;

use std::path::Path;

use rusqlite::Connection;
use threadkeep::blocking::{LiveThread, Store, Workspace};
use threadkeep::{JobId, NewItem, NewJob, NewThread, Role, StoreOptions, ThreadId};

fn open(folder: &Path) -> Store {
    Store::open(StoreOptions::folder(folder)).unwrap()
}

fn sql(folder: &Path) -> Connection {
    Connection::open(folder.join("threadkeep.db")).unwrap()
}

fn workspace(store: &Store) -> Workspace {
    store.workspace(Path::new("/w")).unwrap()
}

fn id(text: &str) -> ThreadId {
    ThreadId::new(text).unwrap()
}

fn job_id(text: &str) -> JobId {
    JobId::new(text).unwrap()
}

fn say(text: &str) -> NewItem {
    NewItem::message(Role::User, text)
}

fn create(store: &Store, name: &str) -> LiveThread {
    let live = workspace(store).create_now(NewThread { id: Some(id(name)), ..NewThread::default() }).unwrap();
    live.append(vec![say("begin"), say("go on")]).unwrap();
    live
}

fn job(name: &str) -> NewJob {
    NewJob { id: Some(job_id(name)), ..NewJob::new(name) }
}
