//! What Gemini CLI calls a project's folder: its registry, its marks, and the names that it makes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::json::read;
use crate::writer::Home;

/// Where the agent keeps a folder for each project, by the name that it has for it.
pub(super) const TMP: &str = ".gemini/tmp";
const FOLDERS: [&str; 2] = [TMP, ".gemini/history"];
/// Says in such a folder whose it is.
pub(super) const MARK: &str = ".project_root";
const REGISTRY: &str = ".gemini/projects.json";
/// Names that are tried for a project; the agent tries them without an end.
const TRIES: usize = 10_000;

/// The name of a project in a home: the one that the registry has, the one of a folder that is marked as its own, or the first that is
/// free (0.34 and later).
pub(super) fn named(cwd: &Path, home: &dyn Home) -> Option<String> {
    let registry = registry(home);
    let is_free = |slug: &str| owners(slug, home).all(|owner| owner == cwd);
    let known = registry.iter().find(|(root, _)| Path::new(root) == cwd).map(|(_, slug)| slug.clone());
    if let Some(slug) = known.filter(|slug| is_plain(slug) && is_free(slug)) {
        return Some(slug);
    }
    let marked = FOLDERS.iter().flat_map(|folder| home.names(Path::new(folder)));
    if let Some(slug) = marked.into_iter().find(|slug| owners(slug, home).any(|owner| owner == cwd)) {
        return Some(slug);
    }
    let taken: HashSet<&str> = registry.iter().map(|(_, slug)| slug.as_str()).collect();
    let slug = slug(Some(cwd));
    let names = (0..TRIES).map(|number| if number == 0 { slug.clone() } else { format!("{slug}-{number}") });
    names.into_iter().find(|name| !taken.contains(name.as_str()) && is_free(name))
}

/// The name that a project has where no other has it: the last part of its path in small letters, digits and single dashes.
pub(super) fn slug(cwd: Option<&Path>) -> String {
    let name = cwd.and_then(Path::file_name).map(|name| name.to_string_lossy().to_lowercase());
    let mut slug = String::new();
    for letter in name.unwrap_or_default().chars() {
        if letter.is_ascii_alphanumeric() {
            slug.push(letter);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { "project".to_owned() } else { slug.to_owned() }
}

/// The folders that are known, with their names.
fn registry(home: &dyn Home) -> Vec<(String, String)> {
    let bytes = home.file(Path::new(REGISTRY)).unwrap_or_default();
    let Ok((Value::Object(registry), _)) = read::<Value>(&bytes) else { return Vec::new() };
    let Some(Value::Object(projects)) = registry.get("projects") else { return Vec::new() };
    projects.iter().filter_map(|(root, slug)| Some((root.clone(), slug.as_str()?.to_owned()))).collect()
}

/// Whose the folders of this name are, by their marks.
fn owners(slug: &str, home: &dyn Home) -> impl Iterator<Item = PathBuf> {
    let marks = FOLDERS.map(|folder| home.file(&Path::new(folder).join(slug).join(MARK)));
    marks.into_iter().flatten().map(|mark| PathBuf::from(String::from_utf8_lossy(&mark).trim()))
}

/// Whether a name is one that the agent may have made.
fn is_plain(slug: &str) -> bool {
    !slug.is_empty() && slug.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}
