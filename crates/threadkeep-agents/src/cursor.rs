//! Cursor: the chats of its window and of its command line in their databases, and readable transcripts without times, models and
//! most output.

mod layout;
mod window;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::blocks::anthropic;
use crate::codec::{Aside, Layout, PREVIEW_CHARS, Shape, Tables, ThreadFacts, is_lines};
use crate::conversation::Block;
use crate::facts::shown;
use crate::json::{first_text, labelled, path_of_uri, read, str_at, word_at};
use crate::lines::{Entry, Format, NOTE_CHARS, Voice, all_begin_with, folder, stem};

/// Cursor's chats.
///
/// Guarantees: lines of a transcript stand in file order; what the window keeps stands in the order of the chat's own list of its
/// messages, and what the command line keeps in the order in which it gives it to the model. In transcripts calls have no ids, so
/// results can't be told to belong to them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor;

/// What text begins with that the program puts into a person's mouth.
const INJECTED: [&str; 6] =
    ["<user_info>", "<system_reminder>", "<system-reminder>", "<attached_files>", "<open_and_recently", "<git_status>"];
/// Where the window and the command line keep their chats.
const DATABASES: [&str; 2] = ["state.vscdb", "store.db"];
/// Keys of other agents whose lines hold such messages.
const FOREIGN: [&str; 8] = ["uuid", "sessionId", "session_id", "id", "type", "timestamp", "payload", "parentId"];

impl Format for Cursor {
    fn name(self) -> &'static str {
        "cursor"
    }

    fn knows(self, _path: &Path, line: &Value) -> bool {
        let speaks = matches!(str_at(line, "role"), "user" | "assistant");
        let content = line.get("message").and_then(|message| message.get("content"));
        let said = content.is_some_and(|content| content.is_array() || content.is_string());
        speaks && said && !FOREIGN.iter().any(|key| line.get(key).is_some())
    }

    fn may_be_session(self, path: &Path) -> bool {
        // Editors of the same family have such a file, too, and nothing of this agent in it.
        let is_ours =
            || path.components().any(|part| part.as_os_str().to_string_lossy().to_lowercase().contains("cursor"));
        is_lines(path) || (is_database(path) && is_ours())
    }

    fn shape(self, path: &Path, _head: &[u8]) -> Shape {
        if is_database(path) { Shape::Database } else { Shape::Lines }
    }

    fn layout(self, tables: &Tables) -> Option<Layout> {
        layout::layout(tables)
    }

    fn read(self, line: &Value) -> Option<Entry> {
        if let Some(table) = word_at(line, "table") {
            return Some(window::row(table, line));
        }
        let content = line.get("message").and_then(|message| message.get("content")).unwrap_or(&Value::Null);
        Some(match word_at(line, "role") {
            Some(role @ ("user" | "assistant" | "system")) => said(role, anthropic(content)),
            Some(other) => Entry { blocks: anthropic(content), ..Entry::event(other) },
            None => {
                let kind = word_at(line, "type")?;
                Entry::event(labelled(&kind.replace('_', " "), first_text(line, &["status", "message"]), NOTE_CHARS))
            }
        })
    }

    fn has_pairs(self) -> bool {
        false
    }

    fn settle(self, path: &Path, facts: &mut ThreadFacts) {
        // A chat of a database stands behind its file's name.
        if let Some((_, id)) =
            path.to_str().and_then(|path| DATABASES.iter().find_map(|name| path.split_once(&format!("{name}#"))))
        {
            facts.session_id = Some(id.to_owned());
            return;
        }
        let name = stem(path);
        if folder(path, 1) == Some("subagents") {
            facts.parent_session = folder(path, 2).map(str::to_owned);
            facts.source = Some("subagent".to_owned());
        }
        facts.session_id = name;
    }

    fn beside(self, path: &Path) -> Vec<PathBuf> {
        let is_window = path.file_name().is_some_and(|name| name == "state.vscdb");
        is_window.then(|| path.with_file_name("workspace.json")).into_iter().collect()
    }

    fn aside(self, bytes: &[u8]) -> Option<Aside> {
        let (workspace, _) = read::<Value>(bytes).ok()?;
        let folder = word_at(&workspace, "folder").and_then(path_of_uri);
        Some(Aside::new(move |facts| facts.cwd = facts.cwd.take().or_else(|| folder.clone())))
    }
}

fn is_database(path: &Path) -> bool {
    path.file_name().is_some_and(|name| DATABASES.iter().any(|known| name == *known))
}

/// A message as the command line has it.
fn said(role: &str, blocks: Vec<Block>) -> Entry {
    match role {
        "assistant" => Entry::said(Voice::Model, blocks),
        "tool" => Entry::said(Voice::Tool, blocks),
        "system" => Entry::said(Voice::Instructions, blocks),
        _ => user(blocks),
    }
}

fn user(blocks: Vec<Block>) -> Entry {
    if blocks.iter().any(|block| matches!(block, Block::Result { .. })) {
        return Entry::said(Voice::Tool, blocks);
    }
    // The person's own words may stand in a tag, behind what the program adds.
    let prompt = blocks.iter().find_map(|block| {
        let Block::Text(text) = block else { return None };
        let (_, inner) = text.split_once("<user_query>")?;
        shown(inner.split("</user_query>").next().unwrap_or_default(), PREVIEW_CHARS)
    });
    let own = prompt.is_some() || !all_begin_with(&blocks, &INJECTED);
    Entry { prompt, ..Entry::said(if own { Voice::Person } else { Voice::Injected }, blocks) }
}
