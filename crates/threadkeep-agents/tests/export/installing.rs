//! Putting sessions where agents find them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use threadkeep::Error;
use threadkeep::blocking::Store;
use threadkeep::{ThreadId, ThreadPatch};
use threadkeep_agents::export::{Before, Existing, Export, Installed, codec_for, install};

use super::{AGENTS, EXAMPLES, imported, sessions};

fn put(store: &Store, thread: &ThreadId, agent: &str, home: &Path, existing: Existing) -> Installed {
    let mask = |_: &[u8]| None;
    let export = Export::new(store, thread, None, codec_for(agent).unwrap(), &mask).unwrap();
    install(&export, home, existing).unwrap()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found
}

#[test]
fn a_session_is_put_once_for_its_owner_alone() {
    let path = sessions(EXAMPLES).into_iter().find(|path| path.to_str().unwrap().contains("019ceba1")).unwrap();
    let (store, thread) = imported(&path).unwrap();
    store.update(&thread, ThreadPatch::title("A name")).unwrap();
    for agent in AGENTS {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        let first = put(&store, &thread, agent, &home, Existing::Keep);
        assert_eq!((first.before, first.is_written(Existing::Keep)), (Before::Nothing, true));
        let written = fs::read(&first.file).unwrap();
        assert_eq!(fs::metadata(&first.file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(first.file.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
        let expected = if agent == "codex" { 2 } else { 1 };
        assert_eq!(files(&home).len(), expected, "{agent}: {:?}", files(&home));
        let again = put(&store, &thread, agent, &home, Existing::Keep);
        assert_eq!((again.before, again.companions.len()), (Before::Same, 0));
        assert_eq!(files(&home).len(), expected);

        // The agent goes on: its file is not touched, unless that is asked for.
        let further = [written.as_slice(), b"{}\n"].concat();
        fs::write(&first.file, &further).unwrap();
        let kept = put(&store, &thread, agent, &home, Existing::Keep);
        assert_eq!((kept.before, kept.is_written(Existing::Keep)), (Before::Further, false));
        assert_eq!(fs::read(&first.file).unwrap(), further);
        fs::write(&first.file, &written[..written.len() / 2]).unwrap();
        assert_eq!(put(&store, &thread, agent, &home, Existing::Keep).before, Before::Beginning);
        fs::write(&first.file, "other").unwrap();
        assert_eq!(put(&store, &thread, agent, &home, Existing::Keep).before, Before::Other);
        assert_eq!(fs::read(&first.file).unwrap(), b"other");
        put(&store, &thread, agent, &home, Existing::Replace);
        assert_eq!(fs::read(&first.file).unwrap(), written);
        assert_eq!(files(&home).len(), expected, "nothing half-written stays");
    }
}

#[test]
fn a_name_is_put_behind_the_names_that_are_there() {
    let path = sessions(EXAMPLES).into_iter().find(|path| path.to_str().unwrap().contains("019ceba1")).unwrap();
    let (store, thread) = imported(&path).unwrap();
    store.update(&thread, ThreadPatch::title("A name")).unwrap();
    let home = tempfile::tempdir().unwrap();
    let index = home.path().join("session_index.jsonl");
    fs::write(&index, "{\"id\":\"x\"}").unwrap();
    put(&store, &thread, "codex", home.path(), Existing::Keep);
    let text = fs::read_to_string(&index).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (2, "{\"id\":\"x\"}"));
    assert!(text.ends_with("\n") && lines[1].contains("A name"));
}

#[test]
fn a_link_in_the_way_and_a_session_without_a_folder_are_refused() {
    let path = sessions(EXAMPLES).into_iter().find(|path| path.to_str().unwrap().contains("019ceba1")).unwrap();
    let (store, thread) = imported(&path).unwrap();
    let home = tempfile::tempdir().unwrap();
    let first = put(&store, &thread, "codex", home.path(), Existing::Keep);
    let elsewhere = home.path().join("elsewhere");
    fs::rename(&first.file, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &first.file).unwrap();
    let mask = |_: &[u8]| None;
    let export = Export::new(&store, &thread, None, codec_for("codex").unwrap(), &mask).unwrap();
    assert!(matches!(install(&export, home.path(), Existing::Replace), Err(Error::Invalid { field: "session", .. })));
    assert!(elsewhere.is_file());
}
