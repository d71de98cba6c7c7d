//! Cursor's command-line agent: readable transcripts, without times, models and most output.

use std::path::Path;

use serde_json::Value;

use crate::blocks::anthropic;
use crate::codec::PREVIEW_CHARS;
use crate::codec::ThreadFacts;
use crate::conversation::Block;
use crate::facts::shown;
use crate::json::{first_text, labelled, str_at, word_at};
use crate::lines::{Entry, Format, NOTE_CHARS, Voice, all_begin_with, folder, stem};

/// Cursor's `agent-transcripts`.
///
/// Guarantees: lines stand in file order. Calls have no ids, so results can't be told to belong to them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor;

/// What text begins with that the program puts into a person's mouth.
const INJECTED: [&str; 6] =
    ["<user_info>", "<system_reminder>", "<system-reminder>", "<attached_files>", "<open_and_recently", "<git_status>"];
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

    fn read(self, line: &Value) -> Option<Entry> {
        let content = line.get("message").and_then(|message| message.get("content")).unwrap_or(&Value::Null);
        Some(match word_at(line, "role") {
            Some("user") => user(anthropic(content)),
            Some("assistant") => Entry::said(Voice::Model, anthropic(content)),
            Some("system") => Entry::said(Voice::Instructions, anthropic(content)),
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
        let name = stem(path);
        if folder(path, 1) == Some("subagents") {
            facts.parent_session = folder(path, 2).map(str::to_owned);
            facts.source = Some("subagent".to_owned());
        }
        facts.session_id = name;
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
