//! The files of the repository, what `cargo metadata` says of them, and what holds for every file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

const MAX_LINES: usize = 1_000;
/// A name that says nothing of what is inside collects everything.
const EMPTY_NAMES: [&str; 8] = ["common", "core", "util", "utils", "helper", "helpers", "types", "misc"];

/// The folder that holds the workspace.
pub(crate) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap())
}

/// All files below a folder of the repository, by their paths from the root, without what is built.
pub(crate) fn files(below: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(below)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // In a second working tree `.git` is a file that says where the repository is.
            if name == "target" || name == ".git" {
                continue;
            }
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path.strip_prefix(root()).unwrap().display().to_string()),
            }
        }
    }
    found.sort();
    found
}

/// A file's text; `None` when it holds something else.
pub(crate) fn text(file: &str) -> Option<String> {
    String::from_utf8(std::fs::read(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))).ok()
}

pub(crate) fn rust_files() -> Vec<String> {
    files("").into_iter().filter(|file| file.ends_with(".rs")).collect()
}

/// What cargo knows of every package that the lock file names.
pub(crate) fn packages() -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--locked"]).current_dir(root());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

#[track_caller]
pub(crate) fn assert_none(found: impl IntoIterator<Item = String>, what: &str) {
    let found: Vec<String> = found.into_iter().collect();
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn no_file_grows_beyond_a_thousand_lines() {
    let long = rust_files().into_iter().filter_map(|file| {
        let lines = text(&file).unwrap().lines().count();
        (lines > MAX_LINES).then(|| format!("{file}: {lines} lines"))
    });
    assert_none(long, "split these by what they are about");
}

#[test]
fn every_name_says_what_is_inside() {
    let names = rust_files().into_iter().filter(|file| {
        let parts = file.trim_end_matches(".rs").split('/');
        parts
            .into_iter()
            .any(|part| EMPTY_NAMES.iter().any(|name| part == *name || part.ends_with(&format!("-{name}"))))
    });
    assert_none(names, "name these after what they hold");
}

/// A file that no module declares is compiled by nobody, and its tests never fail.
#[test]
fn every_rust_file_is_compiled() {
    let manifests: Vec<String> = files("").into_iter().filter(|file| file.ends_with("Cargo.toml")).collect();
    let manifests: String = manifests.iter().filter_map(|file| text(file)).collect();
    let forgotten = rust_files().into_iter().filter(|file| {
        let parts: Vec<&str> = file.split('/').collect();
        match parts.as_slice() {
            ["examples", name] => !manifests.contains(&format!("path = \"../../examples/{name}\"")),
            // Cargo finds these by itself.
            [_, _, "src", "lib.rs" | "main.rs"]
            | [_, _, "src", "bin", _]
            | [_, _, "tests" | "benches" | "examples", _] => false,
            ["crates", package, "src", ..] => !is_declared(&format!("crates/{package}/src"), file),
            ["crates", package, folder @ ("tests" | "benches"), ..] => {
                !is_declared(&format!("crates/{package}/{folder}"), file)
            }
            _ => false,
        }
    });
    assert_none(forgotten, "no `mod` and no manifest names these");
    for word in ["required-features", "autotests", "test = false", "autoexamples"] {
        assert!(!manifests.contains(word), "`{word}` in a manifest makes targets vanish without a word");
    }
}

/// Whether a file in the folder declares this one by its name or its path.
fn is_declared(folder: &str, file: &str) -> bool {
    let path = Path::new(file);
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let parent = path.parent().unwrap_or(Path::new("")).display().to_string();
    let by_name = format!("mod {stem};");
    // `a/b.rs` is declared by `a.rs`, and a file right in `src` by the root of a target.
    let declarers = if parent == folder {
        vec![format!("{folder}/lib.rs"), format!("{folder}/main.rs")]
    } else {
        vec![format!("{parent}.rs")]
    };
    let named = declarers.iter().filter(|file| root().join(file).is_file());
    let named = named.filter_map(|file| text(file)).any(|text| text.contains(&by_name));
    let by_path = format!("#[path = \"{}\"]", file.strip_prefix(folder).unwrap_or(file).trim_start_matches('/'));
    named
        || files(folder)
            .iter()
            .filter(|other| other.ends_with(".rs"))
            .filter_map(|other| text(other))
            .any(|text| text.contains(&by_path))
}
