//! Where the code of others comes from, and under which terms.

use serde_json::Value;

use super::repository::{assert_none, packages};

/// What a program under MIT or Apache-2.0 can carry without further duties.
const ALLOWED: [&str; 13] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[test]
fn every_package_may_be_used_and_comes_from_crates_io() {
    let packages = packages();
    assert!(packages.len() > 50, "{} packages", packages.len());
    let refused = packages.iter().filter_map(|package| {
        let licence = package["license"].as_str().unwrap_or("no licence");
        let source = &package["source"];
        let is_known = source.is_null() || source.as_str() == Some(REGISTRY);
        (!is_allowed(licence) || !is_known)
            .then(|| format!("{} {}: {licence}, {source}", name_of(package), package["version"]))
    });
    assert_none(refused, "look at these before they are used");
}

/// Two copies of SQLite in one program would each keep their own locks on the same file.
#[test]
fn there_is_one_sqlite() {
    let packages = packages();
    assert_eq!(packages.iter().filter(|package| name_of(package) == "libsqlite3-sys").count(), 1);
}

#[test]
fn licence_expressions_are_never_read_too_leniently() {
    for allowed in ["MIT", "MIT/GPL-3.0", "GPL-3.0 OR MIT", "(MIT OR GPL-3.0) AND Unicode-3.0"] {
        assert!(is_allowed(allowed), "{allowed}");
    }
    for refused in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0", "no licence", ""] {
        assert!(!is_allowed(refused), "{refused}");
    }
}

/// Takes every AND as the outermost word, which can only make the expression stricter.
fn is_allowed(expression: &str) -> bool {
    let flat = expression.replace(['(', ')'], "").replace('/', " OR ");
    flat.split(" AND ").all(|part| part.split(" OR ").any(|licence| ALLOWED.contains(&licence.trim())))
}

fn name_of(package: &Value) -> &str {
    package["name"].as_str().unwrap_or_default()
}
