//! Files of sessions that begin with damage, or hold nothing else.

use std::path::{Path, PathBuf};

use threadkeep_agents::import::{ImportOptions, Importer};

use super::{SESSION, conversation, given_back, import, open};

fn project(folder: &Path) -> PathBuf {
    let project = folder.join(".claude/projects/-home-dev-webshop");
    std::fs::create_dir_all(&project).unwrap();
    project
}

/// After a power cut a file may begin with NULs in the place of what was in it, however many.
#[test]
fn records_behind_damage_are_imported_however_much_of_it_there_is() {
    let lines = conversation();
    let cut = &lines[0][100..];
    let beginnings: [Vec<u8>; 4] = [
        [vec![0; 200_000], cut.as_bytes().to_vec()].concat(),
        vec![0; 5 << 20],
        [b"\xef\xbb\xbf".to_vec(), vec![0; 70_000]].concat(),
        format!("{}\n", "no record at all\n".repeat(20_000)).into_bytes(),
    ];
    for beginning in beginnings {
        let (folder, store) = open();
        let path = project(folder.path()).join(format!("{SESSION}.jsonl"));
        let bytes = [beginning, b"\n".to_vec(), (lines[1..].join("\n") + "\n").into_bytes()].concat();
        std::fs::write(&path, &bytes).unwrap();
        let report = import(&store, folder.path());
        assert_eq!((report.files.read, report.files.failed, report.items.imported), (1, 0, 3), "{report:?}");
        assert!(!report.problems.is_empty(), "damage is told");
        assert!(given_back(&store, &path) == bytes);
        let again = import(&store, folder.path());
        assert_eq!((again.files.unchanged, again.items.imported), (1, 0));
    }
}

/// A file that lies where an agent keeps its sessions and can't be read is told of, though nobody named it.
#[test]
fn a_session_that_can_not_be_read_at_all_is_a_problem() {
    let whole = conversation().remove(0);
    let (cut, nested) = (&whole[..whole.len() / 2], "[".repeat(200_000));
    let contents: [&[u8]; 5] = [&[0; 3_000], &[0; 200_000], cut.as_bytes(), nested.as_bytes(), b"{\"x\":1}\n"];
    for bytes in contents {
        let (folder, store) = open();
        let project = project(folder.path());
        let path = project.join("f736da47-b2ca-4f86-bb32-a1bbe582e464.jsonl");
        std::fs::write(&path, bytes).unwrap();
        let good = project.join(format!("{SESSION}.jsonl"));
        std::fs::write(&good, conversation().join("\n") + "\n").unwrap();
        let report = import(&store, folder.path());
        assert_eq!((report.files.failed, report.items.imported), (1, 4), "{report:?}");
        assert_eq!(report.failed, [path.canonicalize().unwrap()]);
        assert!(report.problems[0].reason.starts_with("claude-code keeps a session in this file"), "{report:?}");
        let others = ImportOptions { agent: Some("codex".to_owned()), ..ImportOptions::default() };
        let others = Importer::new(&store, others).run(&[folder.path().to_owned()], &mut |_| {}).unwrap();
        assert_eq!(others.problems, [], "it is no session of another agent");
    }
}

/// What is empty, has another name, or lies elsewhere is no session.
#[test]
fn what_is_no_session_is_passed_over() {
    let (folder, store) = open();
    let project = project(folder.path());
    let empty = project.join("f736da47-b2ca-4f86-bb32-a1bbe582e464.jsonl");
    std::fs::write(&empty, "").unwrap();
    std::fs::write(project.join("0736da47-b2ca-4f86-bb32-a1bbe582e464.jsonl"), "\n").unwrap();
    std::fs::write(project.join("notes.jsonl"), [0; 100]).unwrap();
    std::fs::write(folder.path().join("f736da47-b2ca-4f86-bb32-a1bbe582e464.jsonl"), [0; 100]).unwrap();
    std::fs::write(folder.path().join(".claude/history.jsonl"), "{\"display\":\"x\",\"project\":\"/w\"}\n").unwrap();
    let report = import(&store, folder.path());
    assert_eq!((report.files.failed, report.problems.len()), (0, 0), "{report:?}");
}
