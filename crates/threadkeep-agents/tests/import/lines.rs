//! Agents whose files are lines of JSON: nothing of a file is lost, and small files beside it say more of its thread.

use std::path::{Path, PathBuf};

use threadkeep::blocking::Store;
use threadkeep::{ItemQuery, Thread, ThreadId};
use threadkeep_agents::codecs;

use super::{files, given_back, import, open, threads};

fn get(store: &Store, id: &str) -> Thread {
    store.get(&ThreadId::new(id).unwrap()).unwrap()
}

/// The files below a folder that end so.
fn below(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            below(&path, ending, found);
        } else if path.to_str().unwrap().ends_with(ending) {
            found.push(path);
        }
    }
}

/// A copy of an agent's files that a test may change.
fn copied(agent: &str, to: &Path) -> PathBuf {
    let from = files().join(agent);
    let mut found = Vec::new();
    below(&from, "", &mut found);
    let root = to.join(agent);
    for path in found {
        let copy = root.join(path.strip_prefix(&from).unwrap());
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::copy(path, copy).unwrap();
    }
    root
}

#[test]
fn every_agents_files_are_imported_once_and_given_back() {
    for codec in codecs() {
        let (_folder, store) = open();
        let agent = files().join(codec.agent());
        if !agent.is_dir() {
            // Its sessions are rows or states, which tests of their own make.
            let made = ["codewhale", "crush", "newt", "vscode-copilot-chat", "zed"];
            assert!(made.contains(&codec.agent()), "{}", codec.agent());
            continue;
        }
        let first = import(&store, &agent);
        assert!(first.items.imported > 0 && first.threads.new > 0, "{}", codec.agent());
        assert!(threads(&store).iter().all(|thread| thread.details.agent.as_deref() == Some(codec.agent())));
        let mut found = Vec::new();
        below(&agent, ".jsonl", &mut found);
        for path in found {
            let key = path.canonicalize().unwrap().to_str().unwrap().to_owned();
            if store.source(&key).unwrap().is_none() {
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            let back = given_back(&store, &path);
            assert!(bytes.starts_with(&back), "{}", path.display());
            // Only a last line that is cut waits.
            assert!(back.len() == bytes.len() || !bytes[back.len()..].contains(&b'\n'), "{}", path.display());
        }
        let second = import(&store, &agent);
        assert_eq!((second.items.imported, second.threads.new, second.threads.updated), (0, 0, 0), "{}", codec.agent());
        let report = store.verify_all(|_| {}).unwrap();
        assert_eq!(report.threads, report.intact, "{}", codec.agent());
    }
}

/// What each agent keeps beside a session's file.
#[test]
fn files_beside_a_session_say_more_of_it() {
    let (_folder, store) = open();
    for agent in ["copilot-cli", "grok-build", "kimi", "droid", "continue"] {
        import(&store, &files().join(agent));
    }
    let copilot = get(&store, "9b2c3d4e-1111-4222-8333-444455556666").details;
    assert_eq!(copilot.title.as_deref(), Some("Login: a fake timer"));
    assert_eq!(copilot.cwd.as_deref(), Some("/home/dev/webshop"));
    let grok = get(&store, "e2708192-1111-4222-8333-444455556666");
    assert_eq!(grok.details.title.as_deref(), Some("Login test"));
    assert_eq!(grok.details.cwd.as_deref(), Some("/home/dev/webshop"));
    assert_eq!(grok.details.git_branch.as_deref(), Some("main"));
    assert_eq!(grok.details.git_sha, None, "a commit of zeros is none");
    assert_eq!(grok.created_at.to_string().get(..10), Some("2026-07-31"));
    let kimi = get(&store, "f38192a3-1111-4222-8333-444455556666").details;
    assert_eq!(kimi.title.as_deref(), Some("Login test"));
    assert_eq!(kimi.cwd.as_deref(), Some("/home/dev/webshop"));
    let droid = get(&store, "d16f7081-1111-4222-8333-444455556666").details;
    assert_eq!(droid.model.as_deref(), Some("claude-opus-4-5"));
    assert_eq!(droid.usage.unwrap().input, 1130);
    let begun = get(&store, "3f0d6c1e-1111-4222-8333-444455556666").created_at;
    assert_eq!(begun.to_string().get(..10), Some("2025-12-29"));
}

/// A file beside a session that is damaged, or no file, costs what it would have said.
#[test]
fn a_damaged_file_beside_a_session_costs_itself() {
    let (folder, store) = open();
    for (agent, name) in [("copilot-cli", "workspace.yaml"), ("grok-build", "summary.json"), ("kimi", "state.json")] {
        let root = copied(agent, folder.path());
        let mut found = Vec::new();
        below(&root, name, &mut found);
        std::fs::write(&found[0], b"\xff\0{\"title\": [name: \"").unwrap();
        let report = import(&store, &root);
        assert!(report.threads.new > 0, "{agent}");
    }
    let copilot = get(&store, "9b2c3d4e-1111-4222-8333-444455556666").details;
    assert_eq!((copilot.title, copilot.preview.as_deref()), (None, Some("Fix the login test")));
}

#[test]
fn sub_agents_are_threads_of_their_own() {
    let (_folder, store) = open();
    let expected = [
        (
            "qwen-code",
            "7f0a1b2c-1111-4222-8333-444455556666.agent-explore-7f3c",
            "7f0a1b2c-1111-4222-8333-444455556666",
        ),
        ("kimi", "f38192a3-1111-4222-8333-444455556666.agent-0", "f38192a3-1111-4222-8333-444455556666"),
        ("cursor", "15b3c4d5-2222-4333-8444-555566667777", "04a2b3c4-1111-4222-8333-444455556666"),
    ];
    for (agent, child, parent) in expected {
        import(&store, &files().join(agent));
        let details = get(&store, child).details;
        assert_eq!(details.parent, ThreadId::new(parent).ok(), "{agent}");
        assert_eq!(details.source.as_deref(), Some("subagent"), "{agent}");
        assert!(get(&store, parent).items > 0, "{agent}");
    }
}

/// What is gone back from is a branch, and the thread stands where its agent would go on.
#[test]
fn rewinds_are_branches() {
    let (_folder, store) = open();
    let expected = [
        ("pi", "019d4a00-1111-7222-8333-444455556666", "Mock it once, in the setup.", "Use a fake timer instead 你好"),
        ("qwen-code", "7f0a1b2c-1111-4222-8333-444455556666", "Mock it once", "Use a fake timer"),
        ("copilot-cli", "9b2c3d4e-1111-4222-8333-444455556666", "Mock it once", "Use a fake timer"),
        ("droid", "d16f7081-1111-4222-8333-444455556666", "Mock it once", "Use a fake timer"),
    ];
    for (agent, id, left, kept) in expected {
        import(&store, &files().join(agent));
        let codec = codecs().into_iter().find(|codec| codec.agent() == agent).unwrap();
        let id = ThreadId::new(id).unwrap();
        let said = |query: ItemQuery| -> Vec<String> {
            let items = store.items(&id, query).unwrap().entries;
            items.iter().map(|item| codec.view(&item.kind, &item.content).to_text()).collect()
        };
        let active = said(ItemQuery { limit: 1_000, ..ItemQuery::default() });
        assert!(active.iter().any(|text| text.starts_with(kept)), "{agent}: {active:?}");
        assert!(!active.iter().any(|text| text.starts_with(left)), "{agent}: {active:?}");
        assert_eq!(store.tree(&id).unwrap().branches.len(), 2, "{agent}");
    }
}

/// However a file grows between imports, the result is that of importing it once.
#[test]
fn a_growing_file_is_imported_as_if_it_had_been_whole() {
    let grown = [
        ("pi", "2026-04-02T09-00-00-000Z_019d4a00-1111-7222-8333-444455556666.jsonl"),
        ("qwen-code", "7f0a1b2c-1111-4222-8333-444455556666.jsonl"),
        ("copilot-cli", "9b2c3d4e-1111-4222-8333-444455556666/events.jsonl"),
    ];
    for (agent, name) in grown {
        let bytes = std::fs::read(files().join(agent).join(name)).unwrap();
        let state = |store: &Store| {
            let thread = threads(store).remove(0);
            let items = store.items(&thread.id, ItemQuery { limit: 1_000, ..ItemQuery::default() }).unwrap().entries;
            let ids: Vec<_> = items.into_iter().map(|item| item.id).collect();
            (thread.id.clone(), thread.details.usage, thread.details.title, thread.items, ids)
        };
        let (whole_folder, whole) = open();
        let path = whole_folder.path().join(name.replace('/', "-"));
        std::fs::write(&path, &bytes).unwrap();
        import(&whole, &path);
        let (folder, store) = open();
        let path = folder.path().join(name.replace('/', "-"));
        let mut cut = 0;
        while cut < bytes.len() {
            cut = (cut + 1_777).min(bytes.len());
            std::fs::write(&path, &bytes[..cut]).unwrap();
            import(&store, &path);
        }
        let (whole, parts) = (state(&whole), state(&store));
        assert_eq!(parts.4, whole.4, "{agent}: the items of the path");
        assert_eq!((parts.0, parts.1, parts.2, parts.3), (whole.0, whole.1, whole.2, whole.3), "{agent}");
    }
}
