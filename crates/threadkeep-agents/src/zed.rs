//! Zed's own agent: a database whose rows hold whole threads, packed.

use std::path::{Path, PathBuf};

use serde_json::Value;
use threadkeep::Usage;

use crate::blocks::{anthropic, call, text};
use crate::codec::{Layout, Query, Shape, Tables, ThreadFacts};
use crate::conversation::{Block, MediaData};
use crate::json::{labelled, str_at, text_of, time_at, u64_at, word_at};
use crate::lines::{Entry, Format, NOTE_CHARS, Voice};

/// Zed's `threads.db`.
///
/// Guarantees: messages stand in the order of their document, of all its versions. Prompts and answers are recognised by
/// what is said in them, so that a newer program, which writes all of a thread anew with ids of its own, makes no branches of it. Messages have no times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Zed;

const DATABASE: &str = "threads.db";

impl Format for Zed {
    fn name(self) -> &'static str {
        "zed"
    }

    fn knows(self, _path: &Path, _line: &Value) -> bool {
        // There are no files of rows.
        false
    }

    fn may_be_session(self, path: &Path) -> bool {
        path.file_name().is_some_and(|name| name == DATABASE)
    }

    fn shape(self, path: &Path, _head: &[u8]) -> Shape {
        if self.may_be_session(path) { Shape::Database } else { Shape::Lines }
    }

    fn layout(self, tables: &Tables) -> Option<Layout> {
        let is_ours = tables.has("threads", &["id", "summary", "updated_at", "data_type", "data"]);
        is_ours.then(|| layout(tables))
    }

    fn read(self, line: &Value) -> Option<Entry> {
        match (str_at(line, "table"), line.get("document"), line.get("value")) {
            ("threads", None, None) => Some(row(line)),
            ("messages", Some(document), None) => Some(thread(document)),
            ("messages", None, Some(message)) => Some(said(message)),
            _ => None,
        }
    }

    fn settle(self, _path: &Path, facts: &mut ThreadFacts) {
        facts.source = facts.parent_session.as_ref().map(|_| "subagent".to_owned());
    }
}

fn layout(tables: &Tables) -> Layout {
    let there = |column: &&str| tables.has("threads", &[*column]);
    let columns: Vec<&str> =
        ["parent_id", "folder_paths", "folder_paths_order", "created_at"].into_iter().filter(there).collect();
    let columns = [&["id", "summary", "updated_at", "data_type"][..], &columns].concat().join(", ");
    let sessions = format!(
        "SELECT id, CAST(strftime('%s', updated_at) AS INTEGER) * 1000, {columns}, octet_length(data) FROM threads \
         ORDER BY updated_at, id"
    );
    let query = |name, sql| Query { name, sql, within: Vec::new() };
    let thread = format!("SELECT {columns} FROM threads WHERE id = ?1");
    let messages = "SELECT data AS \"elements:document\" FROM threads WHERE id = ?1".to_owned();
    Layout { sessions, records: vec![query("threads", thread), query("messages", messages)], shared: Vec::new() }
}

fn row(row: &Value) -> Entry {
    let word = |column| word_at(row, column).map(str::to_owned);
    let folder = str_at(row, "folder_paths").lines().next().filter(|folder| !folder.is_empty());
    let says = ThreadFacts {
        session_id: word("id"),
        title: word("summary"),
        parent_session: word("parent_id"),
        cwd: folder.map(PathBuf::from),
        updated_at: time_at(row, "updated_at"),
        ..ThreadFacts::default()
    };
    let note = labelled("thread", str_at(row, "summary"), NOTE_CHARS);
    Entry { is_beside: true, at: time_at(row, "created_at"), says, ..Entry::event(note) }
}

/// What a document says of the thread as a whole.
fn thread(document: &Value) -> Entry {
    let model = document.get("model").unwrap_or(&Value::Null);
    let parent = document.get("subagent_context").and_then(|context| word_at(context, "parent_thread_id"));
    let title = word_at(document, "title").or_else(|| word_at(document, "summary"));
    let says = ThreadFacts {
        title: title.map(str::to_owned),
        model: word_at(model, "model").map(str::to_owned),
        provider: word_at(model, "provider").map(str::to_owned),
        parent_session: parent.map(str::to_owned),
        usage: document.get("cumulative_token_usage").map(usage).filter(|usage| *usage != Usage::default()),
        updated_at: time_at(document, "updated_at"),
        ..ThreadFacts::default()
    };
    let note = labelled("thread", title.unwrap_or_default(), NOTE_CHARS);
    Entry { is_beside: true, says, ..Entry::event(note) }
}

/// Tokens, of which those of the cache are part of the input.
fn usage(tokens: &Value) -> Usage {
    let cached = u64_at(tokens, "cache_read_input_tokens");
    let fresh = u64_at(tokens, "input_tokens").saturating_add(u64_at(tokens, "cache_creation_input_tokens"));
    Usage { input: fresh.saturating_add(cached), cached, output: u64_at(tokens, "output_tokens"), ..Usage::default() }
}

/// A message of any version: `{"User":…}`, `{"Agent":…}` and `"Resume"` since 0.3, flat ones with a role before.
fn said(message: &Value) -> Entry {
    if let Some(user) = message.get("User") {
        let id = word_at(user, "id").map(str::to_owned);
        let blocks: Vec<Block> = list(user, "content").iter().filter_map(piece).collect();
        return Entry { id, key: Some(told("prompt", &blocks)), ..Entry::said(Voice::Person, blocks) };
    }
    if let Some(agent) = message.get("Agent") {
        return answer(agent);
    }
    if message.get("role").is_some() {
        return flat(message);
    }
    match message.as_object().and_then(|variants| variants.iter().next()) {
        Some((name, said)) => Entry::event(labelled(name, &text_of(said), NOTE_CHARS)),
        None => Entry::event(labelled(&text_of(message), "", NOTE_CHARS)),
    }
}

fn answer(agent: &Value) -> Entry {
    let mut blocks: Vec<Block> = list(agent, "content").iter().filter_map(piece).collect();
    let key = Some(told("answer", &blocks));
    let results = agent.get("tool_results").and_then(Value::as_object);
    let calls: Vec<String> = blocks.iter().filter_map(call_id).map(str::to_owned).collect();
    let is_open = calls.iter().any(|id| results.is_none_or(|results| !results.contains_key(id)));
    for id in &calls {
        blocks.extend(results.and_then(|results| results.get(id)).map(|found| result(id, found)));
    }
    let others = results.into_iter().flatten().filter(|(id, _)| !calls.contains(id));
    blocks.extend(others.map(|(id, found)| result(id, found)));
    Entry { key, is_open, ..Entry::said(Voice::Model, blocks) }
}

/// What a message is recognised by: what is said in it. A newer program gives the prompts of an older one new ids.
fn told(what: &str, blocks: &[Block]) -> String {
    format!("{what} {}", blake3::hash(format!("{blocks:?}").as_bytes()).to_hex())
}

fn call_id(block: &Block) -> Option<&str> {
    if let Block::Call { id, .. } = block { Some(id) } else { None }
}

/// A message of 0.1 or 0.2; before that its text stood in it without segments.
fn flat(message: &Value) -> Entry {
    let mut blocks: Vec<Block> = text(str_at(message, "text")).into_iter().collect();
    blocks.extend(list(message, "segments").iter().filter_map(|segment| match str_at(segment, "type") {
        "RedactedThinking" => Some(Block::Reasoning { text: String::new() }),
        _ => anthropic(segment).into_iter().next(),
    }));
    let uses = list(message, "tool_uses").iter();
    blocks.extend(uses.map(|made| call(str_at(made, "id"), str_at(made, "name"), made.get("input"))));
    let results = list(message, "tool_results");
    if blocks.is_empty() && results.is_empty() {
        blocks.extend(text(str_at(message, "context")));
    }
    let key = match str_at(message, "role") {
        "user" if results.is_empty() => Some(told("prompt", &blocks)),
        "assistant" => Some(told("answer", &blocks)),
        _ => None,
    };
    blocks.extend(results.iter().map(|found| result(str_at(found, "tool_use_id"), found)));
    let is_hidden = message.get("is_hidden") == Some(&Value::Bool(true));
    let voice = match str_at(message, "role") {
        "user" if !results.is_empty() => Voice::Tool,
        "user" if is_hidden => Voice::Injected,
        "user" => Voice::Person,
        "assistant" => Voice::Model,
        "system" => Voice::Instructions,
        _ => Voice::Nobody,
    };
    Entry { key, ..Entry::said(voice, blocks) }
}

fn piece(content: &Value) -> Option<Block> {
    let (kind, inner) = content.as_object()?.iter().next()?;
    Some(match kind.as_str() {
        "Text" => return text(&text_of(inner)),
        "Thinking" => Block::Reasoning { text: str_at(inner, "text").to_owned() },
        "RedactedThinking" => Block::Reasoning { text: String::new() },
        "ToolUse" => call(str_at(inner, "id"), str_at(inner, "name"), inner.get("input")),
        "Image" => picture(inner),
        "Mention" => mention(inner),
        _ => return text(&text_of(content)),
    })
}

/// What a person pointed at, with what the model was given of it.
fn mention(mention: &Value) -> Block {
    let uri = mention.get("uri").unwrap_or(&Value::Null);
    let target = uri.as_object().and_then(|kinds| kinds.iter().next());
    let name = target
        .and_then(|(_, target)| ["abs_path", "path", "name", "url", "id"].iter().find_map(|key| word_at(target, key)));
    let name = name.or(target.map(|(kind, _)| kind.as_str())).or(uri.as_str()).unwrap_or("mention");
    match str_at(mention, "content") {
        "" => Block::Text(format!("@{name}")),
        content => Block::Text(format!("@{name}\n\n{content}")),
    }
}

/// A picture: PNG in base64.
fn picture(image: &Value) -> Block {
    let data = match str_at(image, "source") {
        "" => MediaData::Absent,
        source => MediaData::Base64(source.to_owned()),
    };
    Block::Media { media_type: "image/png".to_owned(), data }
}

fn result(id: &str, found: &Value) -> Block {
    let content = match found.get("content") {
        Some(Value::Array(pieces)) => pieces.iter().map(output).collect(),
        Some(piece) => vec![output(piece)],
        None => vec![Block::Text(found.get("output").map(text_of).unwrap_or_default())],
    };
    let is_error = found.get("is_error").and_then(Value::as_bool).unwrap_or_default();
    Block::Result { id: id.to_owned(), content, is_error }
}

/// A piece of a result; its keys are in upper or lower case.
fn output(piece: &Value) -> Block {
    let under = |names: [&str; 2]| names.iter().find_map(|name| piece.get(*name));
    if let Some(words) = under(["Text", "text"]) {
        return Block::Text(text_of(words));
    }
    match under(["Image", "image"]) {
        Some(image) => picture(image),
        None if piece.get("source").is_some() => picture(piece),
        None => Block::Text(text_of(piece)),
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
