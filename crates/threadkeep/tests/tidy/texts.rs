//! Documents that stay true, and texts that say nothing of the machine they were written on.

use std::path::Path;

use super::repository::{assert_none, files, root, text};

/// The folders and endings by which a word is known to be a path of the repository.
const TOP: [&str; 10] =
    [".ci", ".github", "crates", "docs", "examples", "fuzz", "migrations", "scripts", "src", "tests"];
const ENDINGS: [&str; 2] = [".rs", ".sql"];

/// Signs of a place that is not in the repository, or of words that stand for others.
const OPEN: [&str; 2] = ["NNNN", "..."];

#[test]
fn paths_in_documents_exist() {
    let everything = files("");
    let mut missing = Vec::new();
    let documents =
        everything.iter().filter(|file| file.ends_with(".md") && (!file.contains('/') || file.starts_with("docs/")));
    for document in documents {
        for (line, path) in paths_in(&text(document).unwrap()) {
            if !exists(&path, document, &everything) {
                missing.push(format!("{document}:{line}: {path}"));
            }
        }
    }
    assert_none(missing, "these documents name files that are not there");
}

#[test]
fn scanning_finds_paths_and_leaves_words() {
    let document = "See `src/db.rs`, `a/b`, `crates/x/*.rs` and [this](docs/a.md#part), [that](https://x.y/docs/z.md).\n\
        ```\n`src/in_code.rs`\n```\n`append` and `log.rs:12`, `docs/`, `--flag src/x.rs`, `docs/design/NNNN-name.md`";
    let found: Vec<String> = paths_in(document).into_iter().map(|(_, path)| path).collect();
    assert_eq!(found, ["src/db.rs", "docs/a.md", "log.rs", "docs"]);
}

#[test]
fn no_text_names_a_machine() {
    // Put together here, so that this file does not hold them.
    let words = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("replace", "-with ="),
        concat!("sparse", "+http"),
        concat!("index", "-url"),
    ];
    let mut found = Vec::new();
    for file in files("") {
        let Some(text) = text(&file) else { continue };
        for (number, line) in text.lines().enumerate() {
            let mut named = words.iter().filter(|word| line.contains(**word)).peekable();
            if named.peek().is_some() {
                found.push(format!("{file}:{}: {}", number + 1, named.copied().collect::<Vec<_>>().join(" ")));
            }
        }
    }
    assert_none(found, "these lines hold for one machine only");
}

/// The paths in backticks and in links, outside of code blocks, with their line numbers.
fn paths_in(document: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (number, line) in document.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            continue;
        }
        if is_code {
            continue;
        }
        let quoted = line.split('`').skip(1).step_by(2).filter_map(path_of);
        let linked = line.split("](").skip(1).filter_map(|rest| path_of(rest.split(')').next()?.split('#').next()?));
        found.extend(quoted.chain(linked).map(|path| (number + 1, path)));
    }
    found
}

/// The path that a word is, if it is one of ours.
fn path_of(word: &str) -> Option<String> {
    // A line number may follow.
    let path = word.split(':').next().unwrap_or_default().trim_start_matches("./").trim_end_matches('/');
    let is_plain = !path.is_empty() && path.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    let first = path.split('/').next().unwrap_or_default();
    let is_ours = (word.contains('/') && TOP.contains(&first)) || ENDINGS.iter().any(|ending| path.ends_with(ending));
    (is_plain && is_ours && !word.contains("//") && !OPEN.iter().any(|open| path.contains(open)))
        .then(|| path.to_owned())
}

/// Whether the path exists from the root, from the document, or inside a crate; a bare name, anywhere.
fn exists(path: &str, document: &str, everything: &[String]) -> bool {
    let beside = Path::new(document).parent().unwrap_or(Path::new("")).join(path);
    let ending = format!("/{path}");
    let inside = |file: &String| {
        file.starts_with("crates/") && (file.ends_with(&ending) || file.contains(&format!("{ending}/")))
    };
    root().join(path).exists() || root().join(beside).exists() || everything.iter().any(inside)
}
