//! Writes a thread with a fork, is killed, resumes, and shows both branches.
//!
//! Run it twice: `cargo run -p threadkeep --example resume`. The first run kills itself in the middle of a turn.

#![expect(clippy::print_stdout, clippy::indexing_slicing, reason = "an example tells what it does")]

use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{AppendOptions, ItemQuery, NewItem, NewThread, Result, Role, StoreOptions, ThreadId};

fn main() -> Result<()> {
    let folder = std::env::temp_dir().join("threadkeep-example-resume");
    let store = Store::open(StoreOptions::folder(&folder).label("example"))?;
    let workspace = store.workspace(".".as_ref())?;
    let id = ThreadId::new("flaky-login-test")?;
    match workspace.get(&id) {
        Err(_) => write_and_die(&workspace.create(NewThread { id: Some(id), ..NewThread::default() })?),
        Ok(_) => go_on(&store, &workspace.resume(&id, false)?),
    }
}

fn write_and_die(thread: &LiveThread) -> Result<()> {
    let prompt = thread.begin_turn(NewItem::message(Role::User, "Why does the login test fail?"))?;
    thread.append(vec![NewItem::message(Role::Assistant, "The clock is mocked twice.")])?;
    // A second answer to the same prompt: a branch begins, and the first answer stays.
    let again = AppendOptions { after: Some(prompt.items[0].address()), ..AppendOptions::default() };
    thread.append_with(vec![NewItem::message(Role::Assistant, "The token expires at midnight.")], again)?;
    println!("Everything so far is on the disk. Killing this process; run me again.");
    let _ = std::process::Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
    Ok(())
}

fn go_on(store: &Store, thread: &LiveThread) -> Result<()> {
    thread.append(vec![NewItem::message(Role::Assistant, "Resumed: the expiry is fixed.")])?;
    for branch in store.tree(thread.id())?.branches {
        println!("branch {} ({})", branch.id, if branch.active { "active" } else { "kept" });
        let tip = threadkeep::Address { branch: branch.id, depth: branch.tip };
        for item in store.items(thread.id(), ItemQuery { at: Some(tip), ..ItemQuery::default() })?.entries {
            println!("  @{} {}", item.depth, String::from_utf8_lossy(&item.content));
        }
    }
    println!("valid: {}", store.verify(thread.id())?.is_intact());
    thread.shutdown()?;
    store.delete(thread.id())?;
    store.purge(thread.id()).map(drop)
}
