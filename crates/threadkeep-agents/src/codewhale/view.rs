//! What a message says to a reader.

use serde_json::Value;
use threadkeep::{Part, Role, View};

use super::message::{parts, speaker};
use crate::json::{damaged, one_line, read, str_at, text_of};

/// How much of an entry that is no message is shown.
const NOTE_CHARS: usize = 200;

pub(super) fn view(bytes: &[u8]) -> View {
    let Ok((value, repaired)) = read::<Value>(bytes) else {
        return damaged(bytes);
    };
    let mut view = match str_at(&value, "table") {
        "" => of_entry(&value),
        _ => of_row(&value),
    };
    view.damaged |= repaired;
    view
}

/// What holds role and content: an entry as it is; of a row its item, or the row itself.
pub(super) fn entry(bytes: &[u8]) -> Value {
    let Ok((row, _)) = read::<Value>(bytes) else { return Value::Null };
    item(&row).unwrap_or(row)
}

/// The item of a row, where it is a message with blocks of its own.
fn item(row: &Value) -> Option<Value> {
    let item: Value = serde_json::from_str(row.get("item_json")?.as_str()?).ok()?;
    let holds = item.get("content").is_some_and(|content| content.is_array() || content.is_string());
    (item.is_object() && holds).then_some(item)
}

fn of_entry(entry: &Value) -> View {
    let kind = str_at(entry, "kind");
    let role = match kind {
        "compaction" | "branch_summary" => Some(Role::System),
        _ => Some(speaker(entry)).filter(|role| !role.is_empty()).map(Role::from_word),
    };
    let mut parts = parts(entry);
    if parts.is_empty() && role.is_none() {
        parts.push(Part::Note { text: kind.to_owned() });
    }
    View { role, parts, ..View::default() }
}

fn of_row(row: &Value) -> View {
    let role = Some(str_at(row, "role")).filter(|role| !role.is_empty()).map(Role::from_word);
    let content = text_of(row.get("content").unwrap_or(&Value::Null));
    let parts = match item(row) {
        Some(item) => parts(&item),
        None if content.is_empty() => {
            let item = str_at(row, "item_json");
            if item.is_empty() { Vec::new() } else { vec![Part::Note { text: one_line(item, NOTE_CHARS) }] }
        }
        None => vec![Part::Text { text: content }],
    };
    View { role, parts, ..View::default() }
}

#[cfg(test)]
mod tests {
    use threadkeep::{Part, Role};

    use super::view;

    #[test]
    fn a_row_says_its_content_or_its_item() {
        let plain = view(br#"{"table":"messages","id":1,"role":"user","content":"hi","item_json":null}"#);
        assert_eq!((plain.role.clone(), plain.to_text().as_str()), (Some(Role::User), "hi"));
        let item = r#"{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"c","name":"ls","input":{}}]}"#;
        let row = serde_json::json!({ "table": "messages", "role": "assistant", "content": "a", "item_json": item });
        let said = view(row.to_string().as_bytes());
        assert!(matches!(&said.parts[..], [Part::Text { .. }, Part::ToolCall { .. }]));
        let fork = view(br#"{"table":"messages","role":"history","content":"","item_json":"{\"type\":\"fork\"}"}"#);
        assert!(matches!(&fork.parts[..], [Part::Note { .. }]));
    }

    #[test]
    fn an_entry_says_its_message() {
        let entry = br#"{"id":"e","kind":"message","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"out"}]}}"#;
        assert!(matches!(&view(entry).parts[..], [Part::ToolResult { .. }]));
        let summary = view(br#"{"id":"e","kind":"compaction","summary":"so far"}"#);
        assert_eq!((summary.role.clone(), summary.to_text().as_str()), (Some(Role::System), "so far"));
        assert_eq!(view(br#"{"role":"user","content":"x"}"#).to_text(), "x");
    }
}
