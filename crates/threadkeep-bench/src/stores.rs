//! Stores to measure on.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use threadkeep::blocking::{Store, Workspace};
use threadkeep::{AppendOptions, Details, Durability, NewThread, StoreOptions, ThreadId};

use crate::Result;
use crate::text::Writer;

/// Items of one append while a long thread is built.
const BATCH: u32 = 1_000;
/// Threads that build a store of many threads: they share commits.
const BUILDERS: u32 = 64;

/// A new store in a folder of its own.
///
/// # Errors
/// As the store.
pub fn fresh(root: &Path, name: &str) -> Result<(Store, Workspace, PathBuf)> {
    let folder = root.join(name);
    let (store, workspace) = open(root, &folder)?;
    Ok((store, workspace, folder))
}

/// A store of this run, opened again.
///
/// # Errors
/// As the store.
pub fn open(root: &Path, folder: &Path) -> Result<(Store, Workspace)> {
    let store = Store::open(StoreOptions::folder(folder))?;
    let workspace = store.workspace(root)?;
    Ok((store, workspace))
}

/// A store with one thread of one item, closed: the tables of the floor.
///
/// # Errors
/// As the store.
pub fn closed(root: &Path, name: &str) -> Result<PathBuf> {
    let (store, workspace, folder) = fresh(root, name)?;
    let live = workspace.create(NewThread::default())?;
    live.append(Writer::new(0).items(1))?;
    live.shutdown()?;
    drop((live, workspace, store));
    Ok(folder)
}

/// Writes a thread of that many items of 1 KiB.
///
/// # Errors
/// As the store.
pub fn thread_of(workspace: &Workspace, items: u32) -> Result<ThreadId> {
    let live = workspace.create(new_thread(&mut Writer::new(u64::from(items)), items))?;
    let mut writer = Writer::new(1 + u64::from(items));
    // Nobody waits for these, so that the text is written while the store stores.
    let options = AppendOptions { durability: Durability::Queued, ..AppendOptions::default() };
    let mut left = items;
    while left > 0 {
        let batch = left.min(BATCH);
        live.append_with(writer.items(usize::try_from(batch)?), options)?;
        left -= batch;
    }
    live.shutdown()?;
    Ok(live.id().clone())
}

/// A store of that many threads with a title, the usual metadata and one item each, closed. Their ids are `thread-0` and up.
///
/// # Errors
/// As the store.
pub fn many_threads(root: &Path, threads: u32) -> Result<PathBuf> {
    let (store, workspace, folder) = fresh(root, &format!("threads-{threads}"))?;
    fill(&store, &workspace, threads)?;
    Ok(folder)
}

/// Writes the threads of [`many_threads`] into a store that is open.
///
/// # Errors
/// As the store.
pub fn fill(store: &Store, workspace: &Workspace, threads: u32) -> Result<()> {
    let next = AtomicU32::new(0);
    let build = || -> Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= threads {
                return Ok(());
            }
            let mut writer = Writer::new(u64::from(number));
            let live = workspace.create(new_thread(&mut writer, number))?;
            let options = AppendOptions { durability: Durability::Written, ..AppendOptions::default() };
            live.append_with(writer.items(1), options)?;
        }
    };
    std::thread::scope(|scope| {
        let builders: Vec<_> = (0..BUILDERS).map(|_| scope.spawn(build)).collect();
        builders.into_iter().try_for_each(|builder| builder.join().map_err(|_| "a builder ended badly")?)
    })?;
    store.sync()?;
    Ok(())
}

/// The title of a thread that [`many_threads`] made.
pub fn title(number: u32) -> String {
    Writer::new(u64::from(number)).title(number)
}

fn new_thread(writer: &mut Writer, number: u32) -> NewThread {
    let some = |text: &str| Some(text.to_owned());
    let details = Details {
        title: Some(writer.title(number)),
        preview: Some(writer.text(160)),
        agent: some("codex"),
        source: some("interactive"),
        provider: some("openai"),
        model: some("gpt-5-codex"),
        cwd: some("/home/user/projects/threadkeep"),
        git_sha: some("82ee7ec0a1b2c3d4e5f60718293a4b5c6d7e8f90"),
        git_branch: some("main"),
        git_origin: some("https://example.org/threadkeep.git"),
        cli_version: some("0.49.0"),
        sandbox_policy: some("workspace-write"),
        approval_policy: some("on-request"),
        ..Details::default()
    };
    NewThread { id: format!("thread-{number}").parse().ok(), details, ..NewThread::default() }
}
