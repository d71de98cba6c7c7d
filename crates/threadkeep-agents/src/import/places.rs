//! Where agents keep each session in a file of lines that is named after it: what lies there and can't be read is no other file.

use std::path::Path;

use crate::facts::is_uuid;

/// The agent whose session a file is by its folder and its name alone; nothing where other files may have such a name, too.
///
/// Settings, indexes, caches and logs of these agents have other names or other endings.
pub(super) fn keeper(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    let folders: Vec<&str> = path.parent()?.iter().rev().filter_map(|folder| folder.to_str()).collect();
    let folder = |levels: usize| folders.get(levels).copied().unwrap_or_default();
    let has = |name: &str| folders.contains(&name);
    let Some(stem) = name.strip_suffix(".jsonl").or_else(|| name.strip_suffix(".jsonl.zst")) else {
        let is_document = name.ends_with(".json") && name.starts_with("session-") && folder(0) == "chats";
        return is_document.then_some("gemini-cli");
    };
    // `<time>_<uuid>`, `rollout-<time>-<uuid>`.
    let ends_in_id = |between: char| {
        let at = stem.len().checked_sub(37).filter(|at| stem.is_char_boundary(*at));
        at.and_then(|at| stem.get(at..)?.strip_prefix(between)).is_some_and(is_uuid)
    };
    if stem.starts_with("rollout-") && ends_in_id('-') && (has("sessions") || has("archived_sessions")) {
        return Some("codex");
    }
    if folder(0).starts_with("--") && folder(0).ends_with("--") && ends_in_id('_') {
        return Some("pi");
    }
    if folder(0) == "chats" && stem.starts_with("session-") {
        return Some("gemini-cli");
    }
    if folder(0) == "chats" && is_uuid(stem) {
        return Some("qwen-code");
    }
    let is_copilot = |levels: usize| matches!(folder(levels), "session-state" | "history-session-state");
    if (stem == "events" && is_uuid(folder(0)) && is_copilot(1)) || (is_uuid(stem) && is_copilot(0)) {
        return Some("copilot-cli");
    }
    // `projects/-home-dev-shop/<uuid>.jsonl`, and sub-agents beside it or in `<uuid>/subagents`.
    let in_project = |levels: usize| is_project(folder(levels)) && folder(levels + 1) == "projects";
    let is_agent = stem.starts_with("agent-");
    let in_session = folder(0) == "subagents" && is_uuid(folder(1)) && in_project(2);
    ((in_project(0) && (is_uuid(stem) || is_agent)) || (in_session && is_agent)).then_some("claude-code")
}

/// Whether a folder is called as Claude Code calls those of projects: an absolute path whose separators are dashes.
fn is_project(folder: &str) -> bool {
    let mut letters = folder.chars();
    folder.starts_with('-')
        || (letters.next().is_some_and(|drive| drive.is_ascii_alphabetic()) && letters.as_str().starts_with("--"))
}

#[cfg(test)]
mod tests {
    use super::keeper;
    use std::path::Path;

    const ID: &str = "f736da47-b2ca-4f86-bb32-a1bbe582e464";

    #[test]
    fn a_session_is_told_by_its_place_and_nothing_else_is() {
        let keeps = |path: &str| keeper(Path::new(&path.replace("ID", ID)));
        let cases = [
            ("/h/.claude/projects/-home-ann-shop/ID.jsonl", Some("claude-code")),
            ("/h/.claude/projects/C--Users-ann/ID.jsonl", Some("claude-code")),
            ("/h/.claude/projects/-p/agent-a4f09c1d.jsonl", Some("claude-code")),
            ("/h/.claude/projects/-p/ID/subagents/agent-a4f09c1d.jsonl", Some("claude-code")),
            ("/h/.claude/projects/-p/ID/tool-results/x.jsonl", None),
            ("/h/.claude/projects/-p/notes.jsonl", None),
            ("/h/.claude/history.jsonl", None),
            ("/h/projects/shop/ID.jsonl", None),
            ("/h/.codex/sessions/2026/03/14/rollout-2026-03-14T09-26-53-ID.jsonl", Some("codex")),
            ("/h/.codex/archived_sessions/rollout-2026-03-14T09-26-53-ID.jsonl.zst", Some("codex")),
            ("/h/.codex/session_index.jsonl", None),
            ("/h/.codex/sessions/2026/03/14/ID.jsonl", None),
            ("/h/.pi/agent/sessions/--home-ann--/2026-05-12T09-00-00-000Z_ID.jsonl", Some("pi")),
            ("/h/.pi/agent/sessions/--home-ann--/notes.jsonl", None),
            ("/h/.qwen/projects/-home-ann/chats/ID.jsonl", Some("qwen-code")),
            ("/h/.gemini/tmp/shop/chats/session-2026-05-19T10-42-4c8e1f70.jsonl", Some("gemini-cli")),
            ("/h/.gemini/tmp/shop/chats/session-2026-05-19T10-42-4c8e1f70.json", Some("gemini-cli")),
            ("/h/.gemini/tmp/shop/logs.json", None),
            ("/h/.copilot/session-state/ID/events.jsonl", Some("copilot-cli")),
            ("/h/.copilot/session-state/ID.jsonl", Some("copilot-cli")),
            ("/h/.copilot/session-state/ID/files/events.jsonl", None),
            ("ID.jsonl", None),
            ("/ü/rollout-é.jsonl", None),
        ];
        for (path, expected) in cases {
            assert_eq!(keeps(path), expected, "{path}");
        }
    }
}
