//! Links below the folders that are looked through.

use std::os::unix::fs::symlink;
use std::path::Path;

use super::{SESSION, conversation, import, open};

const REASON: &str = "it is a link, which is not followed; name it to import the sessions that it leads to";

fn session(folder: &Path, id: &str) {
    std::fs::create_dir_all(folder).unwrap();
    let text = conversation().join("\n") + "\n";
    std::fs::write(folder.join(format!("{id}.jsonl")), text.replace(SESSION, id)).unwrap();
}

#[test]
fn a_link_to_sessions_is_told_of_and_not_followed() {
    let (folder, store) = open();
    let (projects, elsewhere) = (folder.path().join(".claude/projects"), folder.path().join("elsewhere"));
    let (file, project) = (elsewhere.join("9d2b61e4-5c07-4f3a-8e19-70a1c4b85d2f.jsonl"), elsewhere.join("shop"));
    session(&projects.join("-own"), SESSION);
    session(&elsewhere, "9d2b61e4-5c07-4f3a-8e19-70a1c4b85d2f");
    session(&project.join("deeper"), "c3a94d17-80e2-4f6b-a1d5-73b2e9f04c68");
    let linked = projects.join("-own/9d2b61e4-5c07-4f3a-8e19-70a1c4b85d2f.jsonl");
    symlink(&file, &linked).unwrap();
    symlink(&project, projects.join("-linked")).unwrap();
    // What leads nowhere, back, or to other things is nothing to tell of.
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("rows.jsonl"), "{\"x\":1}\n").unwrap();
    for (to, name) in [
        (folder.path().join("gone"), "-gone"),
        (folder.path().to_owned(), "-back"),
        (projects.join("-own"), "-twice"),
        (projects.join(format!("-own/{SESSION}.jsonl")), "latest.jsonl"),
        (other.clone(), "-other"),
        (other.join("rows.jsonl"), "rows.jsonl"),
    ] {
        symlink(to, projects.join(name)).unwrap();
    }
    let report = import(&store, &projects);
    assert_eq!((report.threads.new, report.files.failed), (1, 0), "{report:?}");
    let mut told: Vec<_> = report.problems.iter().map(|problem| (problem.file.clone(), &*problem.reason)).collect();
    told.sort();
    let root = projects.canonicalize().unwrap();
    let expected = [projects.join("-linked"), linked.clone()];
    let expected = expected.map(|path| root.join(path.strip_prefix(&projects).unwrap()).display().to_string());
    assert_eq!(told, expected.map(|path| (path, REASON)));

    // What was named and imported is not told of again, until there is more.
    assert_eq!(import(&store, &linked).threads.new, 1);
    assert_eq!(import(&store, &projects.join("-linked")).threads.new, 1);
    assert_eq!(import(&store, &projects).problems, []);
    session(&project, "6e1f7c20-4b9d-4a53-9c18-2d7e5f0a8b31");
    assert_eq!(import(&store, &projects).problems.len(), 1);
}
