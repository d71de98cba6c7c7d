//! How changes are noticed: the system tells of them, or they are looked for where it can't.

use std::collections::VecDeque;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, CreateKind, ModifyKind};
use notify::{ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use threadkeep_agents::homes::Home;

/// How many events may wait; more than these and everything is looked through.
const MOST_EVENTS: usize = 1_024;
/// Files that are taken in by themselves when they grow.
const LINES: [&str; 2] = ["jsonl", "zst"];
/// Files that are parts of something larger: the whole home is looked through when one changes.
const PARTS: [&str; 8] = ["json", "db", "db-wal", "sqlite", "sqlite-wal", "vscdb", "vscdb-wal", "md"];

/// What was noticed.
#[derive(Debug)]
pub(super) enum Seen {
    /// Something happened at these paths.
    Changed(Vec<PathBuf>),
    /// It is not known where something happened.
    Lost,
    /// The system can't tell of changes any more.
    Failed(String),
}

/// A home that is followed.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) home: Home,
    /// Whether the system tells of changes in it.
    pub(super) is_told: bool,
    /// What it is, to notice when something else is put in its place.
    identity: (u64, u64),
}

/// Follows homes.
pub(super) struct Eyes {
    /// Nothing where changes are looked for.
    watcher: Option<RecommendedWatcher>,
    events: Receiver<Result<Event, notify::Error>>,
    lost: Arc<AtomicBool>,
    roots: Vec<Root>,
    notices: VecDeque<String>,
}

impl Eyes {
    /// Eyes that are told of changes, or that only look.
    pub(super) fn new(only_looks: bool) -> Self {
        let (sender, events) = sync_channel(MOST_EVENTS);
        let lost = Arc::new(AtomicBool::new(false));
        let mut notices = VecDeque::new();
        let told = (!only_looks).then(|| notify::recommended_watcher(hand_on(sender, Arc::clone(&lost))));
        let watcher = match told {
            Some(Ok(watcher)) => Some(watcher),
            Some(Err(error)) => {
                notices.push_back(format!("the system can't tell of changes ({error}); they are looked for"));
                None
            }
            None => None,
        };
        Self { watcher, events, lost, roots: Vec::new(), notices }
    }

    /// What is followed.
    pub(super) fn roots(&self) -> &[Root] {
        &self.roots
    }

    /// All that is followed.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.roots.iter().map(|root| root.home.path.clone()).collect()
    }

    /// What is followed by looking.
    pub(super) fn looked_at(&self) -> impl Iterator<Item = PathBuf> {
        let paths: Vec<_> = self.roots.iter().filter(|root| !root.is_told).map(|root| root.home.path.clone()).collect();
        paths.into_iter()
    }

    /// What people should know.
    pub(super) fn notices(&mut self) -> VecDeque<String> {
        std::mem::take(&mut self.notices)
    }

    /// Follows these homes and no others; gives those that are new, or that took the place of others.
    pub(super) fn follow(&mut self, homes: impl Iterator<Item = Home>) -> Vec<PathBuf> {
        let mut old = std::mem::take(&mut self.roots);
        let mut new = Vec::new();
        for home in homes {
            let Ok(meta) = home.path.metadata() else { continue };
            let identity = (meta.dev(), meta.ino());
            let known = old.iter().position(|root| root.home.path == home.path);
            if let Some(index) = known {
                let root = old.swap_remove(index);
                if root.identity == identity {
                    self.roots.push(root);
                    continue;
                }
                if let Some(watcher) = &mut self.watcher {
                    drop(watcher.unwatch(&home.path));
                }
            }
            new.push(home.path.clone());
            let is_told = self.be_told(&home.path, &meta);
            self.roots.push(Root { home, is_told, identity });
        }
        if let Some(watcher) = &mut self.watcher {
            // What is gone is followed no longer by itself; that is no failure.
            old.iter().for_each(|root| drop(watcher.unwatch(&root.home.path)));
        }
        new
    }

    /// What was noticed next.
    pub(super) fn next_within(&mut self, bound: Duration) -> Option<Seen> {
        if self.lost.swap(false, Ordering::Relaxed) {
            return Some(Seen::Lost);
        }
        let Ok(told) = self.events.recv_timeout(bound) else {
            // Without a watcher nobody sends, and the wait is over at once.
            if self.watcher.is_none() {
                std::thread::sleep(bound);
            }
            return None;
        };
        match told {
            Ok(event) if event.need_rescan() => Some(Seen::Lost),
            Ok(event) => Some(Seen::Changed(self.concerned(&event))),
            Err(error) => {
                let newly = self.roots.iter().any(|root| root.is_told);
                self.roots.iter_mut().for_each(|root| root.is_told = false);
                Some(if newly { Seen::Failed(words(&error)) } else { Seen::Lost })
            }
        }
    }

    fn be_told(&mut self, path: &Path, meta: &Metadata) -> bool {
        let Some(watcher) = &mut self.watcher else { return false };
        if let Some(name) = tells_nothing(path) {
            let words = format!("{} is on {name}, which tells of no change by others; it is looked at", path.display());
            self.notices.push_back(words);
            return false;
        }
        // What belongs to a file lies beside it: its journal is what changes.
        let (path, mode) = match path.parent() {
            Some(folder) if meta.is_file() => (folder, RecursiveMode::NonRecursive),
            _ => (path, RecursiveMode::Recursive),
        };
        match watcher.watch(path, mode) {
            Ok(()) => true,
            Err(error) => {
                let words = format!("{}: {}; it is looked at instead", path.display(), words(&error));
                self.notices.push_back(words);
                false
            }
        }
    }

    /// What is to be looked at because of an event.
    fn concerned(&self, event: &Event) -> Vec<PathBuf> {
        let is_folder = matches!(event.kind, EventKind::Create(CreateKind::Folder | CreateKind::Any))
            || matches!(event.kind, EventKind::Modify(ModifyKind::Name(_)));
        let mut concerned: Vec<PathBuf> =
            event.paths.iter().filter_map(|path| concerned(path, is_folder, &self.roots)).collect();
        concerned.dedup();
        concerned
    }
}

fn concerned(path: &Path, may_be_folder: bool, roots: &[Root]) -> Option<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    if LINES.contains(&ending) {
        // Beside a file that is followed others lie, which nobody named.
        return roots.iter().any(|root| path.starts_with(&root.home.path)).then(|| path.to_owned());
    }
    if may_be_folder && path.is_dir() {
        return Some(path.to_owned());
    }
    if !PARTS.contains(&ending) {
        return None;
    }
    // A session in one file that may be read by itself, or a part of a home.
    let holds = |root: &&Root| {
        let home = &root.home.path;
        let beside = home.parent() == path.parent()
            && home.file_name().is_some_and(|own| name.starts_with(own.to_string_lossy().as_ref()));
        path.starts_with(home) || beside
    };
    roots.iter().find(holds).map(|root| root.home.path.clone())
}

/// Hands events on without ever waiting: whoever tells of changes must not be held up.
fn hand_on(
    sender: SyncSender<Result<Event, notify::Error>>,
    lost: Arc<AtomicBool>,
) -> impl Fn(Result<Event, notify::Error>) {
    move |told| {
        let wanted = told.as_ref().map_or(true, |event| event.need_rescan() || is_change(event.kind));
        if wanted && sender.try_send(told).is_err() {
            lost.store(true, Ordering::Relaxed);
        }
    }
}

/// Whether something may be there that was not there before. Reading is an event too, ours included.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        EventKind::Modify(ModifyKind::Metadata(_)) | EventKind::Remove(_) => false,
        _ => true,
    }
}

fn words(error: &notify::Error) -> String {
    match &error.kind {
        ErrorKind::MaxFilesWatch => {
            "the system follows no more folders (its limit is fs.inotify.max_user_watches)".to_owned()
        }
        ErrorKind::Io(error) => format!("the system can't tell of changes: {error}"),
        kind => format!("the system can't tell of changes: {kind:?}"),
    }
}

/// The kind of a file system on which others can change files without this system being told.
#[cfg(target_os = "linux")]
fn tells_nothing(path: &Path) -> Option<&'static str> {
    let kind = rustix::fs::statfs(path).ok()?.f_type;
    // The low 32 bits are what the kernel's `magic.h` lists.
    match i128::from(kind) & 0xffff_ffff {
        0x0000_6969 => Some("a network drive (NFS)"),
        0x0000_517b | 0xff53_4d42 | 0xfe53_4d42 => Some("a network drive (SMB)"),
        0x0102_1997 => Some("a shared drive (9p)"),
        0x6573_5546 => Some("a drive that a program serves (FUSE)"),
        0x00c3_6400 => Some("a network drive (Ceph)"),
        0x5346_414f | 0x6b41_4653 => Some("a network drive (AFS)"),
        _ => None,
    }
}

/// The kind of a file system on which others can change files without this system being told.
#[cfg(not(target_os = "linux"))]
fn tells_nothing(_path: &Path) -> Option<&'static str> {
    None
}

#[cfg(test)]
mod tests {
    use super::{Root, concerned, is_change};
    use notify::EventKind;
    use notify::event::{AccessKind, AccessMode, CreateKind, DataChange, MetadataKind, ModifyKind, RemoveKind};
    use std::path::{Path, PathBuf};
    use threadkeep_agents::homes::Home;

    #[test]
    fn reading_is_no_change() {
        for (kind, expected) in [
            (EventKind::Create(CreateKind::File), true),
            (EventKind::Modify(ModifyKind::Data(DataChange::Any)), true),
            (EventKind::Access(AccessKind::Close(AccessMode::Write)), true),
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), false),
            (EventKind::Access(AccessKind::Close(AccessMode::Read)), false),
            (EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any)), false),
            (EventKind::Remove(RemoveKind::File), false),
        ] {
            assert_eq!(is_change(kind), expected, "{kind:?}");
        }
    }

    #[test]
    fn lines_are_taken_by_themselves_and_parts_as_a_whole() {
        let root = |path: &str| Root {
            home: Home { agent: "codex", path: path.into(), is_read: true },
            is_told: true,
            identity: (0, 0),
        };
        let roots = [root("/h/sessions"), root("/h/opencode.db")];
        let concerned = |path: &str| concerned(Path::new(path), false, &roots);
        for (path, expected) in [
            ("/h/sessions/2026/a.jsonl", Some("/h/sessions/2026/a.jsonl")),
            ("/h/sessions/2026/a.jsonl.zst", Some("/h/sessions/2026/a.jsonl.zst")),
            ("/h/sessions/x/part.json", Some("/h/sessions")),
            ("/h/opencode.db-wal", Some("/h/opencode.db")),
            ("/h/other.db-wal", None),
            ("/h/sessions/a.txt", None),
            ("/h/sessions/.a.jsonl.tmp", None),
        ] {
            assert_eq!(concerned(path), expected.map(PathBuf::from), "{path}");
        }
    }
}
