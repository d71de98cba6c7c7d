//! What a line of a Claude Code file says to another agent, and its blocks for whoever reads them.

use serde_json::Value;
use threadkeep::{Kind, Role, Timestamp, Usage};

use super::facts::usage;
use super::line::{Line, Tokens};
use crate::blocks::{anthropic_block, known_or_words};
use crate::conversation::{Author, Block, Message, Standing};
use crate::json::{read, str_at};

/// The model that the client names where it speaks itself.
pub(super) const SYNTHETIC: &str = "<synthetic>";

pub(super) fn message(bytes: &[u8]) -> Option<Message> {
    let (line, _) = read::<Value>(bytes).ok()?;
    let (keys, _) = read::<Line>(bytes).ok()?;
    let reading = keys.read();
    let is_user = reading.role == Some(Role::User) && reading.kind == Kind::Message;
    let (author, standing, said) = match str_at(&line, "type") {
        "user" => match (&reading.kind, &reading.role) {
            (Kind::ToolResult, _) => (Author::Tool, Standing::Said, content(&line)),
            (Kind::Compaction, _) => (Author::System, Standing::Summary, content(&line)),
            _ if is_user => (Author::Person, Standing::Said, content(&line)),
            _ => (Author::Person, Standing::Injected, content(&line)),
        },
        // What the client says in the model's place: errors, and that nothing was asked.
        "assistant" if keys.is_synthetic() => (Author::System, Standing::Injected, content(&line)),
        "assistant" => (Author::Model, Standing::Said, content(&line)),
        "tool_use" => (Author::Model, Standing::Said, &line),
        "tool_result" => (Author::Tool, Standing::Said, &line),
        "attachment" if is_user => {
            let prompt = line.get("attachment").and_then(|attachment| attachment.get("prompt"));
            (Author::Person, Standing::Said, prompt.unwrap_or(&Value::Null))
        }
        "system" if str_at(&line, "subtype") == "local_command" => {
            (Author::Person, Standing::Injected, line.get("content").unwrap_or(&Value::Null))
        }
        "summary" => (Author::System, Standing::Summary, line.get("summary").unwrap_or_else(|| content(&line))),
        _ => return None,
    };
    let blocks: Vec<Block> = blocks(said).into_iter().filter_map(known_or_words).collect();
    if blocks.is_empty() {
        return None;
    }
    let answer = keys.message.0.as_ref().filter(|_| author == Author::Model);
    Some(Message {
        author,
        standing,
        blocks,
        created_at: keys.timestamp.as_deref().and_then(Timestamp::parse),
        model: answer.and_then(|message| message.model.0.clone()),
        usage: answer.and_then(|message| message.usage.0).map(usage).filter(|usage| *usage != Usage::default()),
        response: answer.and_then(|message| message.id.0.clone()),
    })
}

pub(super) fn tokens(value: &Value) -> Option<Usage> {
    let tokens: Tokens = serde_json::from_value(value.clone()).ok()?;
    Some(usage(tokens)).filter(|usage| *usage != Usage::default())
}

pub(super) fn content(line: &Value) -> &Value {
    let message = line.get("message").unwrap_or(&Value::Null);
    let content = message.get("content").unwrap_or(&Value::Null);
    if message.is_string() { message } else { content }
}

/// The blocks of a content, and the values that are of no known kind.
pub(super) fn blocks(content: &Value) -> Vec<Result<Block, &Value>> {
    match content {
        Value::String(text) => vec![Ok(Block::Text(text.clone()))],
        Value::Array(blocks) => blocks.iter().map(anthropic_block).collect(),
        Value::Null => Vec::new(),
        other => vec![anthropic_block(other)],
    }
}
