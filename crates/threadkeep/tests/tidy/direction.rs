//! Who may use whom.

use std::collections::{BTreeMap, BTreeSet};

use super::repository::{assert_none, files, packages, text};

/// Each crate of ours, and those of ours that it may use. A further one needs a reason that a module can't meet.
const CRATES: [(&str, &[&str]); 5] = [
    ("threadkeep", &[]),
    ("threadkeep-agents", &["threadkeep"]),
    ("threadkeep-bench", &["threadkeep", "threadkeep-agents"]),
    ("threadkeep-cli", &["threadkeep", "threadkeep-agents"]),
    ("threadkeep-torture", &["threadkeep", "threadkeep-agents"]),
];

/// What only some crates may bring in: terminals and servers stay out of the library, and SQL out of the program. The codecs'
/// crate reads other programs' databases, not the store's (`docs/design/0014-agent-sources.md`).
const KEPT_OUT: [(&str, &[&str]); 3] = [
    (
        "threadkeep",
        &["clap", "axum", "tokio", "postgres", "anstream", "indicatif", "etcetera", "crossterm", "ratatui", "frizbee"],
    ),
    (
        "threadkeep-agents",
        &["clap", "axum", "tokio", "postgres", "anstream", "indicatif", "etcetera", "crossterm", "ratatui", "frizbee"],
    ),
    ("threadkeep-cli", &["rusqlite", "postgres"]),
];

/// The library's modules from the ground up. A module may use its own layer and those below it.
const LAYERS: [&[&str]; 5] = [
    &[
        "concurrency",
        "time",
        "error",
        "finding",
        "planted",
        "id",
        "host",
        "item",
        "view",
        "thread",
        "turn",
        "branch",
        "chain",
        "claim",
        "content",
        "cursor",
        "dangling",
        "keys",
        "screen",
        "seal",
        "secrets",
    ],
    &["db"],
    &[
        "log",
        "changes",
        "checkpoints",
        "claims",
        "documents",
        "goals",
        "inbox",
        "jobs",
        "roadmaps",
        "records",
        "runs",
        "requests",
        "seals",
        "sources",
        "stats",
        "thread_list",
        "threads",
        "tools",
        "turns",
        "workspaces",
        "writers",
    ],
    &["store", "live", "search", "follow", "thread_store", "backup", "bundle", "copy", "examine", "rollout", "repair"],
    &["blocking", "conformance"],
];

const LIBRARY: &str = "crates/threadkeep/src";

#[test]
fn crates_depend_in_one_direction() {
    let mut wrong = Vec::new();
    for package in packages().iter().filter(|package| package["source"].is_null()) {
        let name = package["name"].as_str().unwrap();
        let Some((_, allowed)) = CRATES.iter().find(|(known, _)| *known == name) else {
            wrong.push(format!("{name} is a crate that has no place yet"));
            continue;
        };
        let kept_out = KEPT_OUT.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, kept_out)| kept_out);
        for dependency in package["dependencies"].as_array().unwrap() {
            let used = dependency["name"].as_str().unwrap();
            // The tests of a crate use the crate itself, with all its features.
            let is_ours = !dependency["path"].is_null() && used != name;
            // Behind a feature that is off by default: who embeds the crate does not get it unasked.
            let is_shipped = dependency["kind"].is_null() && dependency["optional"] != true;
            if (is_ours && !allowed.contains(&used)) || (is_shipped && kept_out.contains(&used)) {
                wrong.push(format!("{name} may not use {used}"));
            }
        }
    }
    assert_none(wrong, "the direction is cli → agents → threadkeep");
}

/// What is optional stays out unless it is asked for.
#[test]
fn features_of_the_library_are_off_by_default() {
    let packages = packages();
    let library = packages.iter().find(|package| package["source"].is_null() && package["name"] == "threadkeep");
    let features = library.unwrap()["features"].as_object().unwrap();
    assert!(features.contains_key("postgres"));
    assert!(features.get("default").is_none(), "{:?}", features.get("default"));
}

#[test]
fn modules_use_what_is_below_them() {
    let exported = exports(&text(&format!("{LIBRARY}/lib.rs")).unwrap());
    let mut wrong = Vec::new();
    for file in files(LIBRARY).into_iter().filter(|file| !file.ends_with("/lib.rs")) {
        let module = module_of(&file);
        let Some(layer) = layer_of(&module) else {
            wrong.push(format!("{file}: say in LAYERS where the module `{module}` belongs"));
            continue;
        };
        for used in used_paths(&without_comments(&text(&file).unwrap())) {
            let first = used.split("::").next().unwrap_or_default();
            let target = exported.get(first).map_or(first, String::as_str);
            let is_listed = file.ends_with("/db.rs") && used.ends_with("::ALL");
            if layer_of(target).is_some_and(|other| other > layer) && !is_listed {
                wrong.push(format!("{file} uses crate::{used}"));
            }
        }
    }
    assert_none(wrong, "modules use their own layer and those below");
}

/// What goes past `concurrency.rs` is not seen by the tests that try other orders.
#[test]
fn threads_and_locks_come_from_one_place() {
    let waits_in_the_system =
        ["concurrency.rs", "db/gate.rs", "db/identity.rs", "db/sqlite.rs"].map(|file| format!("{LIBRARY}/{file}"));
    let others = files(LIBRARY).into_iter().filter(|file| !waits_in_the_system.contains(file));
    let mut wrong = Vec::new();
    for file in others.filter(|file| !file.contains("/conformance")) {
        let code = without_comments(&text(&file).unwrap());
        let shipped = code.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let past = shipped.lines().filter(|line| {
            let of_std = line
                .split("std::sync::")
                .skip(1)
                .any(|rest| ["Mutex", "RwLock", "Condvar", "mpsc", "atomic"].iter().any(|word| rest.contains(word)));
            of_std || line.contains("std::thread") || line.contains("pollster")
        });
        wrong.extend(past.map(|line| format!("{file}: {}", line.trim())));
    }
    assert_none(wrong, "take these from `crate::concurrency`");
}

/// Defects are planted for the suites that look for them, and for nothing that is shipped.
#[test]
fn only_the_torture_crate_asks_for_planted_defects() {
    let asking = files("").into_iter().filter(|file| file.ends_with("Cargo.toml"));
    let asking: Vec<String> = asking.filter(|file| text(file).unwrap().contains("planted-defects")).collect();
    assert_eq!(asking, ["crates/threadkeep-torture/Cargo.toml", "crates/threadkeep/Cargo.toml"]);
    let manifests = asking.iter().map(|file| text(file).unwrap()).collect::<String>();
    assert!(!manifests.contains("default ="), "a default feature could bring them in");
}

/// A list of statements that is not in the list of lists is prepared by no test.
#[test]
fn every_list_of_statements_is_known() {
    let known = text(&format!("{LIBRARY}/db.rs")).unwrap();
    let forgotten = files(LIBRARY).into_iter().filter(|file| {
        let path = file.trim_start_matches(LIBRARY).trim_matches('/').trim_end_matches(".rs").replace('/', "::");
        let declares = text(file).unwrap().lines().any(|line| line.starts_with("statements! {"));
        declares && !known.contains(&format!("crate::{path}::ALL"))
    });
    assert_none(forgotten, "`all_statements` does not name the lists of these");
}

#[test]
fn scanning_finds_what_is_used() {
    let code = "use crate::{id::ThreadId, log};\nuse crate::db::{Tx, Row};\nlet x = crate::Store::open(); $crate::ignored; // crate::commented";
    let found = used_paths(&without_comments(code));
    assert_eq!(found, ["id::ThreadId", "log", "db", "Store::open"]);
    let exported = exports("pub use log::purge::Purged;\npub use store::{\n    Store, Threads,\n};\n");
    assert_eq!(exported.get("Purged").map(String::as_str), Some("log"));
    assert_eq!(exported.get("Threads").map(String::as_str), Some("store"));
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

fn module_of(file: &str) -> String {
    let inside = file.trim_start_matches(LIBRARY).trim_start_matches('/');
    inside.split(['/', '.']).next().unwrap_or_default().to_owned()
}

fn without_comments(code: &str) -> String {
    code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The paths that follow `crate::`, without it.
fn used_paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c == '$' || c == '_' || c.is_alphanumeric()) {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => found.push(path_at(rest)),
            Some(group) => found.extend(parts_of(group).into_iter().map(path_at)),
        }
    }
    found
}

fn path_at(code: &str) -> String {
    let end = code.find(|c: char| c != ':' && c != '_' && !c.is_alphanumeric()).unwrap_or(code.len());
    code[..end].trim_end_matches(':').to_owned()
}

/// The parts of a group in braces, up to its end, whose opening brace is already behind.
fn parts_of(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' if depth > 0 => {}
            '}' | ',' => {
                parts.push(group[start..at].trim());
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

/// The names that the library shows at its root, with the modules they come from.
fn exports(lib: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for statement in lib.split("pub use ").skip(1) {
        let statement = statement.split(';').next().unwrap_or_default();
        let module = statement.split("::").next().unwrap_or_default();
        let names = statement.rsplit("::").next().unwrap_or_default();
        let names: BTreeSet<&str> =
            names.split(['{', '}', ',']).map(str::trim).filter(|name| !name.is_empty()).collect();
        found.extend(names.into_iter().map(|name| (name.to_owned(), module.to_owned())));
    }
    found
}
