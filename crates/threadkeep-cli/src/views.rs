//! What a person reads of an item, whatever format it is in.

use std::sync::Arc;

use threadkeep::{Item, Kind, Part, StoreOptions, View, holds_view};
use threadkeep_agents::codec::Codec;
use threadkeep_agents::conversation::Message;

use crate::human;

/// The readers of all formats that are known.
#[derive(Debug)]
pub(crate) struct Views(Vec<Arc<dyn Codec>>);

impl Views {
    /// All of them.
    pub(crate) fn new() -> Self {
        Self(threadkeep_agents::codecs())
    }

    /// Reads an item. What can't be read as its format says is shown as it is.
    pub(crate) fn read(&self, item: &Item) -> View {
        if let Some(told) = item.redaction.as_deref().filter(|_| item.content.is_empty()) {
            // Words and no note: a gap must be seen by whoever follows the conversation.
            let words = format!("[redacted by {}, {}: {}]", told.by, human::moment(told.at), told.reason);
            return View::text(item.role.clone(), words);
        }
        if holds_view(&item.format) {
            return serde_json::from_slice(&item.content).unwrap_or_else(|_| as_it_is(item, true));
        }
        match self.0.iter().find(|codec| codec.format() == item.format) {
            Some(codec) => codec.view(&item.kind, &item.content),
            None => as_it_is(item, false),
        }
    }

    /// What an item says to another agent, which is more than is shown: arguments as JSON, and the bytes of pictures.
    pub(crate) fn message(&self, item: &Item) -> Option<Message> {
        let codec = self.0.iter().find(|codec| codec.format() == item.format)?;
        codec.message(&item.kind, &item.content)
    }
}

/// The store reads every format that is known, so that search finds what its items say.
pub(crate) fn read_all(options: StoreOptions) -> StoreOptions {
    threadkeep_agents::codecs().into_iter().fold(options, |options, codec| options.read_with(codec))
}

fn as_it_is(item: &Item, damaged: bool) -> View {
    let text = String::from_utf8_lossy(&item.content);
    View { damaged, ..View::text(item.role.clone(), text) }
}

/// Whether an item belongs to the conversation that a person follows: no event, no setting, nothing without words.
pub(crate) fn is_conversation(item: &Item, view: &View) -> bool {
    let spoken = match item.kind {
        Kind::Message | Kind::Reasoning | Kind::Compaction => !view.to_text().trim().is_empty(),
        Kind::ToolCall | Kind::ToolResult => true,
        _ => false,
    };
    spoken && !only_notes(view)
}

fn only_notes(view: &View) -> bool {
    !view.parts.is_empty() && view.parts.iter().all(|part| matches!(part, Part::Note { .. }))
}
