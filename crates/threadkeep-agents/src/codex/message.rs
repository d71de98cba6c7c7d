//! What a line of a rollout says to another agent, and the items of the conversation for whoever reads them.

use serde_json::Value;
use threadkeep::{Kind, Role, View};

use super::line::Line;
use crate::blocks::{anthropic_block, known_or_words};
use crate::conversation::{Author, Block, Message, Standing, arguments_of};
use crate::json::{one_line, read, str_at, text_of};

/// How much of a block of an unknown kind is kept in a result.
const UNKNOWN_CHARS: usize = 200;
/// What the program writes in the person's name that tells of something that happened; the rest are its instructions.
const TOLD: [&str; 6] =
    ["<user_shell_command>", "<turn_aborted>", "<subagent_notification>", "<user_action>", "<skill>", "<hook_prompt"];

pub(super) fn message(bytes: &[u8]) -> Option<Message> {
    let (value, _) = read::<Value>(bytes).ok()?;
    let reading = read::<Line>(bytes).ok()?.0.read(bytes).ok()?;
    let item = match (value.get("payload"), str_at(&value, "type")) {
        (Some(payload), "response_item" | "compacted") => payload,
        (Some(_), _) => return None,
        (None, _) => &value,
    };
    let (author, standing, blocks) = match kind_of(item) {
        _ if str_at(&value, "type") == "compacted" => (Author::System, Standing::Summary, summary(item)?),
        "message" | "agent_message" => {
            let blocks = known(blocks(item.get("content").unwrap_or(&Value::Null)));
            let (author, standing) = whose(&reading.kind, reading.role.as_ref(), str_at(item, "role"), &blocks);
            (author, standing, blocks)
        }
        "reasoning" => (Author::Model, Standing::Said, vec![reasoning(item)]),
        kind if kind.ends_with("_output") => (Author::Tool, Standing::Said, vec![output(item)]),
        kind if kind.ends_with("_call") => (Author::Model, Standing::Said, vec![call(kind, item).into_block()]),
        _ => return None,
    };
    if blocks.is_empty() {
        return None;
    }
    Some(Message { standing, created_at: reading.created_at, ..Message::said(author, blocks) })
}

fn whose(kind: &Kind, role: Option<&Role>, word: &str, blocks: &[Block]) -> (Author, Standing) {
    match (kind, role) {
        (Kind::Message, Some(Role::User)) => (Author::Person, Standing::Said),
        (Kind::Message, Some(Role::Assistant)) => (Author::Model, Standing::Said),
        _ if word == "user" && blocks.iter().any(is_told) => (Author::Person, Standing::Injected),
        _ => (Author::System, Standing::Injected),
    }
}

fn is_told(block: &Block) -> bool {
    matches!(block, Block::Text(text) if TOLD.iter().any(|start| text.trim_start().starts_with(start)))
}

/// What the model goes on from after a compaction: the history that took the old one's place, as far as it is readable. A summary
/// that is sealed says nothing to anyone else, so what came before it must.
fn summary(compacted: &Value) -> Option<Vec<Block>> {
    let message = str_at(compacted, "message");
    let history = compacted.get("replacement_history").and_then(Value::as_array);
    let mut said: Vec<Block> = history.into_iter().flatten().flat_map(kept).collect();
    let is_told = |block: &Block| matches!(block, Block::Text(text) if text.contains(message));
    if !message.trim().is_empty() && !said.iter().any(is_told) {
        said.push(Block::Text(message.to_owned()));
    }
    let is_sealed = |item: &Value| !matches!(kind_of(item), "message" | "reasoning");
    let sealed = history.is_some_and(|items| items.iter().any(is_sealed));
    let is_readable = !sealed || !message.trim().is_empty();
    (is_readable && !said.is_empty()).then_some(said)
}

/// The words of a person or the model that a compaction kept.
fn kept(item: &Value) -> Vec<Block> {
    if kind_of(item) != "message" || !matches!(str_at(item, "role"), "user" | "assistant") {
        return Vec::new();
    }
    let is_own = serde_json::to_vec(item)
        .ok()
        .and_then(|bytes| read::<Line>(&bytes).ok()?.0.read(&bytes).ok())
        .is_some_and(|reading| reading.kind == Kind::Message);
    let said = if is_own { known(blocks(item.get("content").unwrap_or(&Value::Null))) } else { Vec::new() };
    said.into_iter().map(in_words).collect()
}

/// A call or a result as words: a summary holds none.
fn in_words(block: Block) -> Block {
    match block {
        Block::Call { .. } | Block::Result { .. } => {
            let parts = block.into_parts();
            Block::Text(View { parts, ..View::default() }.to_text())
        }
        other => other,
    }
}

fn known(blocks: Vec<Result<Block, &Value>>) -> Vec<Block> {
    blocks.into_iter().filter_map(known_or_words).collect()
}

/// The type of an item; the first ones had none.
pub(super) fn kind_of(item: &Value) -> &str {
    match str_at(item, "type") {
        "" => "message",
        kind => kind,
    }
}

/// The blocks of a content, and the values that are of no known kind. What is sealed is in neither.
pub(super) fn blocks(content: &Value) -> Vec<Result<Block, &Value>> {
    match content {
        Value::Array(parts) => parts.iter().filter_map(block).collect(),
        Value::Null => Vec::new(),
        other => vec![Ok(Block::Text(text_of(other)))],
    }
}

fn block(block: &Value) -> Option<Result<Block, &Value>> {
    match str_at(block, "type") {
        "input_image" | "image" => Some(Ok(Block::media_of_url(str_at(block, "image_url"), "image"))),
        "encrypted_content" => None,
        _ => Some(match block.get("text").or_else(|| block.get("refusal")) {
            Some(words) => Ok(Block::Text(text_of(words))),
            // Other programs that write rollouts put calls and results into messages.
            None => anthropic_block(block),
        }),
    }
}

/// Summaries, then the raw thoughts where they are readable; empty when all is sealed.
pub(super) fn reasoning(item: &Value) -> Block {
    let texts = |key: &str| item.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let all = texts("summary").iter().chain(texts("content"));
    let said: Vec<&str> = all.map(|part| str_at(part, "text")).filter(|text| !text.is_empty()).collect();
    Block::Reasoning { text: said.join("\n\n") }
}

/// A call as its item has it.
pub(super) struct Call<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: Option<&'a Value>,
    /// Whether the tool takes words, which may look like JSON.
    takes_text: bool,
}

impl Call<'_> {
    fn into_block(self) -> Block {
        let input = match self.arguments {
            Some(Value::String(text)) if !self.takes_text => arguments_of(text.clone()),
            Some(other) => other.clone(),
            None => Value::Object(serde_json::Map::new()),
        };
        Block::Call { id: self.id.to_owned(), name: self.name.to_owned(), input }
    }
}

pub(super) fn call<'a>(kind: &'a str, item: &'a Value) -> Call<'a> {
    let name = match str_at(item, "name") {
        "" => kind.trim_end_matches("_call"),
        name => name,
    };
    let keys = ["arguments", "input", "action", "revised_prompt"];
    let (key, arguments) = keys.iter().find_map(|key| Some((*key, item.get(*key)?))).unzip();
    let id = match str_at(item, "call_id") {
        "" => str_at(item, "id"),
        call_id => call_id,
    };
    Call { id, name, arguments, takes_text: key == Some("input") }
}

pub(super) fn output(item: &Value) -> Block {
    let text = |text: String| vec![Block::Text(text)];
    let (content, is_error) = match item.get("output").unwrap_or(&Value::Null) {
        Value::String(output) => {
            let (output, is_error) = plain_output(output);
            (text(output), is_error)
        }
        Value::Array(_) => {
            let unknown = |block: &Value| Block::Text(one_line(&text_of(block), UNKNOWN_CHARS));
            let blocks = blocks(item.get("output").unwrap_or(&Value::Null)).into_iter();
            (blocks.map(|block| block.unwrap_or_else(unknown)).collect(), false)
        }
        Value::Object(object) => {
            let keys = ["content", "text", "output"];
            let output = keys.iter().find_map(|key| object.get(*key)).map(text_of).unwrap_or_default();
            (text(output), object.get("success") == Some(&Value::Bool(false)))
        }
        Value::Null => (text(item.get("tools").map(text_of).unwrap_or_default()), false),
        other => (text(text_of(other)), false),
    };
    Block::Result { id: str_at(item, "call_id").to_owned(), content, is_error }
}

/// The output as text, and whether it says that the command failed.
///
/// Up to 0.8x the string was JSON with the exit code beside the output; later the code stands in the text.
pub(super) fn plain_output(text: &str) -> (String, bool) {
    let wrapped: Option<Value> = text.starts_with('{').then(|| serde_json::from_str(text).ok()).flatten();
    if let Some((output, metadata)) = wrapped.as_ref().and_then(|value| value.get("output").zip(value.get("metadata")))
    {
        let failed = metadata.get("exit_code").and_then(Value::as_i64).is_some_and(|code| code != 0);
        return (text_of(output), failed);
    }
    let head = text.split_once("\nOutput:\n").map_or("", |(head, _)| head);
    let code = head.lines().find_map(|line| line.strip_prefix("Process exited with code "));
    (text.to_owned(), code.is_some_and(|code| code.trim() != "0"))
}
