//! One text that holds many sessions and grows: Aider's chat history.

use std::path::{Path, PathBuf};

use threadkeep::blocking::Store;
use threadkeep::{ItemQuery, StoreOptions, ThreadId, ViewCodec as _};
use threadkeep_agents::aider::Aider;
use threadkeep_agents::import::{ImportOptions, Importer};

use super::{import, source_bytes, threads};

const FIRST: &str = "\n# aider chat started at 2026-03-02 09:00:00\n\n> Aider v0.86.2  \n";
const SECOND: &str = "\n# aider chat started at 2026-03-02 10:00:00\n\n> Aider v0.86.2  \n";

/// A project with a history, and a store beside it.
struct Project {
    folder: tempfile::TempDir,
    store: Store,
    file: PathBuf,
}

impl Project {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(StoreOptions::folder(folder.path().join("store"))).unwrap();
        let file = folder.path().join(".aider.chat.history.md");
        Self { folder, store, file }
    }

    fn append(&self, text: &[u8]) {
        use std::io::Write as _;
        let mut file = std::fs::File::options().create(true).append(true).open(&self.file).unwrap();
        file.write_all(text).unwrap();
    }

    /// Imports the file; gives how many items came.
    fn import(&self) -> u64 {
        import(&self.store, &self.file).items.imported
    }

    fn texts(&self, session: &str) -> Vec<String> {
        let id = ThreadId::new(format!("aider-{session}")).unwrap();
        let page = self.store.items(&id, ItemQuery { limit: 1_000, ..ItemQuery::default() }).unwrap();
        page.entries.iter().map(|item| Aider.view(&item.kind, &item.content).to_text()).collect()
    }

    /// The bytes of all sessions of a file, in the order of their names.
    fn given_back(&self, file: &Path) -> Vec<u8> {
        let begins = format!("{}#", file.canonicalize().unwrap().display());
        let mut keys: Vec<String> = self.store.source_stamps("", 1_000).unwrap().into_iter().map(|s| s.path).collect();
        keys.retain(|key| key.starts_with(&begins));
        keys.iter().flat_map(|key| source_bytes(&self.store, key)).collect()
    }
}

#[test]
fn sessions_that_begin_at_one_time_are_told_apart_whatever_they_are_called() {
    let project = Project::new();
    for name in ["2026-03-02 09:00:00", "2026-03-02 09:00:00", "2026-03-02 09:00:00-2", "2026-03-02 09:00:00 2"] {
        project.append(format!("\n# aider chat started at {name}\n\n#### Begin {name}  \n\nBegun.\n").as_bytes());
    }
    project.import();
    assert_eq!(threads(&project.store).len(), 4);
    assert_eq!(project.import(), 0);
}

#[test]
fn what_is_appended_is_all_that_comes() {
    let project = Project::new();
    project.append(FIRST.as_bytes());
    assert_eq!(project.import(), 0, "nothing was asked");
    assert!(threads(&project.store).is_empty());

    project.append(b"\n#### Fix it  \n#### please  \n");
    assert_eq!(project.import(), 3);
    project.append(b"\nFixed.\n\nAnd tes");
    assert_eq!(project.import(), 0, "the answer is still being written");
    project.append(b"ted.\n\n");
    assert_eq!(project.import(), 1);
    project.append(b"> Tokens: 1.2k sent, 40 received.  \n> Commit 0f1e2d3 fix  \n");
    assert_eq!(project.import(), 2);
    project.append(SECOND.as_bytes());
    assert_eq!(project.import(), 0);
    project.append(b"\n#### And the other one  \n");
    assert_eq!(project.import(), 3);
    assert_eq!((project.import(), project.import()), (0, 0));

    let first = project.texts("2026-03-02T09-00-00");
    let said =
        ["aider chat started at 2026-03-02 09:00:00", "Aider v0.86.2", "Fix it\nplease", "Fixed.\n\nAnd tested."];
    assert_eq!(first[..4], said);
    assert_eq!(first.len(), 6);
    assert_eq!(project.texts("2026-03-02T10-00-00").len(), 3);
    assert_eq!(project.given_back(&project.file), std::fs::read(&project.file).unwrap());
    for thread in threads(&project.store) {
        assert_eq!(thread.branches, 1, "{}", thread.id);
    }

    // What was read in parts is what is read in one.
    let other = Project::new();
    other.append(&std::fs::read(&project.file).unwrap());
    other.import();
    for session in ["2026-03-02T09-00-00", "2026-03-02T10-00-00"] {
        assert_eq!(other.texts(session), project.texts(session));
    }
}

#[test]
fn a_section_that_is_closed_gives_up_what_waited() {
    let project = Project::new();
    project.append(format!("{FIRST}\n#### Why?  \n\nBecause").as_bytes());
    let report = import(&project.store, &project.file);
    assert_eq!((report.items.imported, report.waiting.len()), (3, 1));
    project.append(format!("\n{SECOND}\n#### Oh  \n").as_bytes());
    import(&project.store, &project.file);
    assert_eq!(project.texts("2026-03-02T09-00-00").last().unwrap(), "Because");
    assert_eq!(project.given_back(&project.file), std::fs::read(&project.file).unwrap());
}

#[test]
fn two_projects_that_began_at_the_same_time_are_two_threads() {
    let (one, two) = (Project::new(), Project::new());
    one.append(format!("{FIRST}\n#### One  \n").as_bytes());
    two.append(format!("{FIRST}\n#### Two  \n").as_bytes());
    import(&one.store, &one.file);
    import(&one.store, &two.file);
    let mut previews: Vec<_> = threads(&one.store).into_iter().map(|thread| thread.details.preview.unwrap()).collect();
    previews.sort();
    assert_eq!(previews, ["One", "Two"]);
    assert_eq!(import(&one.store, two.folder.path()).items.imported, 0);

    // Twice in one second, in one file.
    one.append(format!("{FIRST}\n#### Three  \n").as_bytes());
    import(&one.store, &one.file);
    assert_eq!(threads(&one.store).len(), 3);
    assert_eq!(one.texts("2026-03-02T09-00-00-2").last().unwrap(), "Three");
}

#[test]
fn any_bytes_come_back() {
    let pieces: [&[u8]; 12] = [
        FIRST.as_bytes(),
        b"#### a prompt  \n",
        b"#### \n",
        b"> a notice  \n",
        b"> a notice of\n",
        b"lines  \n",
        b"\n",
        b"\r\n",
        b"\0\xff\xfe words\n",
        b"# aider chat started at \n",
        b"####  \n\n\n",
        b"an answer\n",
    ];
    let project = Project::new();
    let mut state = 7_u32;
    for round in 0..40 {
        for _ in 0..5 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            project.append(pieces[(state >> 16) as usize % pieces.len()]);
        }
        import(&project.store, &project.file);
        assert_eq!(project.import(), 0, "round {round}");
    }
    let text = std::fs::read(&project.file).unwrap();
    // By the store's own names: those of one second are numbered.
    let mut given: usize = 0;
    for stamp in project.store.source_stamps("", 1_000).unwrap().iter().filter(|stamp| stamp.thread.is_some()) {
        let bytes = source_bytes(&project.store, &stamp.path);
        assert!(text.windows(bytes.len()).any(|part| part == bytes), "{}", stamp.path);
        given += bytes.len();
    }
    assert!(given <= text.len() && given * 2 > text.len(), "{given} of {}", text.len());
    assert!(project.store.verify_all(|_| {}).unwrap().invalid.is_empty());
}

#[test]
fn a_history_of_another_name_is_taken_when_it_is_named() {
    let project = Project::new();
    let file = project.folder.path().join("talk.md");
    std::fs::write(&file, format!("{FIRST}\n#### Hello  \n")).unwrap();
    assert_eq!(import(&project.store, project.folder.path()).items.imported, 0);
    assert_eq!(import(&project.store, &file).items.imported, 3);
    let other = project.folder.path().join("README.md");
    std::fs::write(&other, "# Read me\n").unwrap();
    assert_eq!(import(&project.store, &other).problems[0].reason, "no known agent's session file");
}

/// A text is looked through once; where that is stopped, the sessions behind are not taken for ones that were looked at.
#[test]
fn what_a_stopped_import_did_not_come_to_is_imported_by_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(".aider.chat.history.md");
    let session = |number: u32| {
        format!("\n# aider chat started at 2026-03-02 09:{number:02}:00\n\n#### Begin {number}  \n\nBegun.\n")
    };
    std::fs::write(&file, (0..40).map(session).collect::<String>()).unwrap();
    let store = Store::open(StoreOptions::memory()).unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let options = ImportOptions { stop: Some(stop.clone()), ..ImportOptions::default() };
    let mut stop_at = |progress: threadkeep_agents::import::Progress<'_>| {
        stop.store(progress.files_done == 15, std::sync::atomic::Ordering::Relaxed);
    };
    let first = Importer::new(&store, options).run(std::slice::from_ref(&file), &mut stop_at).unwrap();
    assert!(first.stopped);
    let rest = Importer::new(&store, ImportOptions::default()).run(&[file], &mut |_| {}).unwrap();
    assert_eq!((first.threads.new, rest.threads.new, rest.stopped), (15, 25, false));
}
