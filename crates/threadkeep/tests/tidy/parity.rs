//! What is said to be asserted somewhere: every test that `docs/parity.md` names is there.

use std::collections::BTreeSet;

use super::repository::{assert_none, files, text};

const DOCUMENT: &str = "docs/parity.md";
const CLAUSES: &str = "crates/threadkeep/src/conformance";

#[test]
fn every_test_that_parity_names_exists() {
    let known = functions();
    let named = tests_named_in(&text(DOCUMENT).unwrap());
    assert!(named.len() > 100, "only {} names were found: the tables are written otherwise", named.len());
    let missing = named.into_iter().filter(|(_, name)| !known.contains(name.as_str()));
    assert_none(missing.map(|(line, name)| format!("{DOCUMENT}:{line}: {name}")), "there are no such tests");
}

#[test]
fn names_are_found_in_the_column_of_tests_alone() {
    let document = "| there | here | test |\n| --- | --- | --- |\n| `not_this` | `nor_this` | `a_b` and `c_d` (`tests/e_f.rs`); T01 `beside` |\n\n\
        `outside_of_it`\n| a | test | b |\n|---|---|---|\n| `x_y` | | `z_z` |\n| \\| `p_q` | `r_s` | |\n";
    let found: Vec<(usize, String)> = tests_named_in(document);
    let names: Vec<(usize, &str)> = found.iter().map(|(line, name)| (*line, name.as_str())).collect();
    assert_eq!(names, [(3, "a_b"), (3, "c_d"), (9, "r_s")]);
}

/// The names of all functions of tests and clauses.
fn functions() -> BTreeSet<String> {
    let holds_tests = |file: &String| {
        let parts: Vec<&str> = file.split('/').collect();
        file.ends_with(".rs") && (matches!(parts.as_slice(), ["crates", _, "tests", ..]) || file.starts_with(CLAUSES))
    };
    let mut found = BTreeSet::new();
    for file in files("crates").into_iter().filter(|file| file.ends_with(".rs")) {
        let all = text(&file).unwrap();
        // In the code itself, what stands behind this.
        let text = match holds_tests(&file) {
            true => all.as_str(),
            false => all.split_once("#[cfg(test)]").map_or("", |(_, tests)| tests),
        };
        let after = text.split("fn ").skip(1);
        found.extend(after.map(|rest| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()));
    }
    found
}

/// The names in backticks that stand in a table's column `test`, with the numbers of their lines.
fn tests_named_in(document: &str) -> Vec<(usize, String)> {
    let (mut found, mut column) = (Vec::new(), None);
    let lines: Vec<&str> = document.lines().collect();
    for (number, line) in lines.iter().enumerate() {
        if !line.starts_with('|') {
            column = None;
            continue;
        }
        let cells = cells(line);
        if lines.get(number + 1).is_some_and(|next| next.starts_with("|---") || next.starts_with("| ---")) {
            column = cells.iter().position(|cell| cell == "test");
            continue;
        }
        let Some(cell) = column.and_then(|column| cells.get(column)) else { continue };
        let quoted = cell.split('`').skip(1).step_by(2).filter(|word| is_a_name(word));
        found.extend(quoted.map(|name| (number + 1, name.to_owned())));
    }
    found
}

/// The cells of a row; a bar after a backslash is part of its cell.
fn cells(row: &str) -> Vec<String> {
    let whole = row.replace("\\|", "\u{1}");
    whole.trim().trim_matches('|').split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect()
}

/// Whether a word is a name of several words.
fn is_a_name(word: &str) -> bool {
    word.contains('_') && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}
