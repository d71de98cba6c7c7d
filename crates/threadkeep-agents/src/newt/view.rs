//! What a part of a turn says to a reader.

use serde_json::Value;
use threadkeep::{Kind, Part, Role, Usage, View};

use crate::json::{damaged, one_line, read, str_at, u64_at};

/// How much of what a call was answered with in its place is shown.
const NOTE_CHARS: usize = 200;

pub(super) fn view(kind: &Kind, bytes: &[u8]) -> View {
    let Ok((row, repaired)) = read::<Value>(bytes) else {
        return damaged(bytes);
    };
    let mut view = match str_at(&row, "part") {
        "prompt" if *kind == Kind::Compaction => View::text(Some(Role::System), str_at(&row, "text")),
        "prompt" => View::text(Some(Role::User), str_at(&row, "text")),
        "answer" => View { usage: usage(&row), ..View::text(Some(Role::Assistant), str_at(&row, "text")) },
        "events" => View { parts: notes(&row), ..View::default() },
        // A turn of a document of the first versions: it is one record.
        _ => {
            let said = [str_at(&row, "user"), str_at(&row, "assistant")].into_iter().filter(|text| !text.is_empty());
            let parts = said.map(|text| Part::Text { text: text.to_owned() }).collect();
            View { role: Some(Role::User), parts, ..View::default() }
        }
    };
    let is_hex = row.get("text").is_some_and(Value::is_object);
    view.damaged |= repaired || is_hex;
    view
}

fn usage(row: &Value) -> Option<Usage> {
    let usage = Usage { input: u64_at(row, "tokens_in"), output: u64_at(row, "tokens_out"), ..Usage::default() };
    (usage != Usage::default()).then_some(usage)
}

/// The tools that were called, and the names that the model reached for and that are none. Newt keeps no arguments.
fn notes(row: &Value) -> Vec<Part> {
    let list = |column: &str| serde_json::from_str::<Vec<Value>>(str_at(row, column)).unwrap_or_default();
    let called = list("events").into_iter().map(|event| {
        let failed = event.get("ok") == Some(&Value::Bool(false));
        let duration = event.get("duration_ms").and_then(Value::as_u64).map(|millis| format!(", {millis} ms"));
        let text = format!(
            "called {} ({}){}{}",
            str_at(&event, "tool"),
            str_at(&event, "args_digest"),
            if failed { ", failed" } else { "" },
            duration.unwrap_or_default()
        );
        Part::Note { text: one_line(&text, NOTE_CHARS) }
    });
    let reached = list("phantom_reaches").into_iter().map(|reach| {
        let resolution = reach.get("resolution").unwrap_or(&Value::Null);
        let text = format!(
            "reached for {}, which is no tool: {} {}",
            str_at(&reach, "name_as_called"),
            str_at(resolution, "kind"),
            str_at(resolution, "detail")
        );
        Part::Note { text: one_line(&text, NOTE_CHARS) }
    });
    called.chain(reached).collect()
}

#[cfg(test)]
mod tests {
    use threadkeep::{Kind, Role};

    use super::view;

    #[test]
    fn every_part_says_what_is_in_it() {
        let prompt = br#"{"table":"turns","part":"prompt","text":"do it"}"#;
        assert_eq!(view(&Kind::Message, prompt).role, Some(Role::User));
        assert_eq!(view(&Kind::Compaction, prompt).role, Some(Role::System));
        let answer = view(&Kind::Message, br#"{"part":"answer","text":"done","tokens_in":3,"tokens_out":null}"#);
        assert_eq!((answer.to_text().as_str(), answer.usage.unwrap().input), ("done", 3));
        let events = br#"{"part":"events","text":null,"events":"[{\"tool\":\"ls\",\"args_digest\":\"path b3:00\",\"ok\":false,\"duration_ms\":5}]",
            "phantom_reaches":"[{\"name_as_called\":\"grep\",\"resolution\":{\"kind\":\"rewrite\",\"detail\":\"search\"}}]"}"#;
        let said = view(&Kind::Event, events).to_text();
        assert_eq!(said, "called ls (path b3:00), failed, 5 ms\nreached for grep, which is no tool: rewrite search");
        assert!(view(&Kind::Message, br#"{"part":"prompt","text":{"hex":"ff"}}"#).damaged);
        assert!(view(&Kind::Message, b"{").damaged);
    }
}
