//! A request of a session, and the records that it becomes: the prompt, what the model said and called, what came of the calls, and
//! how it ended if it did not end well.

use serde_json::{Map, Value, json};

use crate::json::{first_text, read, str_at, text_of, u64_at, word_at};
use crate::replay::{Replay, Taken};

pub(super) const PROMPT: &str = "prompt";
pub(super) const ANSWER: &str = "answer";
pub(super) const RESULTS: &str = "results";
pub(super) const END: &str = "end";
pub(super) const SESSION: &str = "session";
pub(super) const OPEN: &str = "open";

/// States of a response: it is being made, it waits for the person, it was cancelled, it failed.
const PENDING: u64 = 0;
const CANCELLED: u64 = 2;
const FAILED: u64 = 3;
const NEEDS_INPUT: u64 = 4;

/// The elements of a document's `requests`.
#[derive(Debug, Default)]
pub(super) struct Requests {
    is_open: bool,
}

impl Replay for Requests {
    fn take(&mut self, part: &[u8]) -> Taken {
        match read::<Value>(part) {
            Ok((request, _)) => {
                self.is_open = is_open(&request);
                let records = records(&request);
                let finding = records.is_empty().then(|| "a request without a message".to_owned());
                Taken { records, finding }
            }
            Err(error) => Taken::wrong(format!("unreadable request: {error}")),
        }
    }

    fn rest(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.is_open).then(open).into_iter().collect()
    }
}

/// Whether its response is still being made.
pub(super) fn is_open(request: &Value) -> bool {
    matches!(state(request), Some(PENDING | NEEDS_INPUT))
}

/// What says that the last response is still being made.
pub(super) fn open() -> Vec<u8> {
    json!({ "part": OPEN }).to_string().into_bytes()
}

/// What a session says of itself.
pub(super) fn session(mut said: Map<String, Value>) -> Vec<u8> {
    said.insert("part".to_owned(), Value::from(SESSION));
    Value::Object(said).to_string().into_bytes()
}

/// The records of a request; none where there is no message.
pub(super) fn records(request: &Value) -> Vec<Vec<u8>> {
    let Some(text) = request.get("message").filter(|message| !message.is_null()).map(message) else {
        return Vec::new();
    };
    let mut records = Records::new(request);
    let attached = request.get("variableData").map(|data| list(data, "variables")).unwrap_or_default();
    let attached: Vec<Value> = attached.iter().map(attachment).collect();
    let attached = (!attached.is_empty()).then_some(("attached", Value::Array(attached)));
    records.add(PROMPT, [("text", Value::from(text))].into_iter().chain(attached));
    let metadata = request.get("result").and_then(|result| result.get("metadata")).unwrap_or(&Value::Null);
    match list(metadata, "toolCallRounds") {
        [] => records.response(list(request, "response")),
        rounds => {
            records.rounds(rounds, metadata.get("toolCallResults").unwrap_or(&Value::Null));
            // The last round may have been told to the person alone.
            if rounds.last().is_some_and(|round| !list(round, "toolCalls").is_empty()) {
                let response = list(request, "response");
                let behind = response.iter().rposition(is_invocation).map_or(0, |at| at + 1);
                records.response(response.get(behind..).unwrap_or_default());
            }
        }
    }
    records.end(request);
    records.finish(request, metadata)
}

fn message(message: &Value) -> &str {
    message.as_str().unwrap_or_else(|| str_at(message, "text"))
}

fn attachment(variable: &Value) -> Value {
    let mut said = Map::new();
    for key in ["kind", "name", "mimeType"] {
        if let Some(word) = word_at(variable, key) {
            said.insert(key.to_owned(), Value::from(word));
        }
    }
    let value = variable.get("value").unwrap_or(&Value::Null);
    if let Some(uri) = uri(value).or_else(|| value.get("uri").and_then(uri)) {
        said.insert("uri".to_owned(), Value::from(uri));
    }
    Value::Object(said)
}

/// An address, as text or as an object of its parts.
fn uri(value: &Value) -> Option<String> {
    match value {
        Value::String(uri) => Some(uri.clone()).filter(|uri| uri.contains(":/")),
        _ => word_at(value, "external")
            .or_else(|| word_at(value, "fsPath"))
            .or_else(|| word_at(value, "path"))
            .map(str::to_owned),
    }
}

/// Records of one request, in order.
struct Records {
    /// The request's id, if it has one; the ids of all its records begin with it.
    id: Option<String>,
    timestamp: Value,
    made: Vec<Map<String, Value>>,
    answers: usize,
}

impl Records {
    fn new(request: &Value) -> Self {
        let id = word_at(request, "requestId").map(str::to_owned);
        let timestamp = request.get("timestamp").cloned().unwrap_or(Value::Null);
        Self { id, timestamp, made: Vec::new(), answers: 0 }
    }

    fn add(&mut self, part: &str, said: impl IntoIterator<Item = (&'static str, Value)>) {
        let mut record = Map::new();
        record.insert("part".to_owned(), Value::from(part));
        if let Some(id) = &self.id {
            let id = if part == PROMPT { id.clone() } else { format!("{id}/{part}/{}", self.answers) };
            record.insert("id".to_owned(), Value::from(id));
        }
        if self.timestamp.is_number() {
            record.insert("timestamp".to_owned(), self.timestamp.clone());
        }
        record.extend(said.into_iter().map(|(key, value)| (key.to_owned(), value)));
        self.made.push(record);
    }

    /// An answer with what came of its calls.
    fn answer(&mut self, said: Vec<Value>, results: Vec<Value>) {
        if !said.is_empty() {
            self.add(ANSWER, [("said", Value::Array(said))]);
        }
        if !results.is_empty() {
            self.add(RESULTS, [("results", Value::Array(results))]);
        }
        self.answers += 1;
    }

    /// What the model itself said and called, and what it was given in return.
    fn rounds(&mut self, rounds: &[Value], given: &Value) {
        for round in rounds {
            let mut said = Vec::new();
            let thinking = round.get("thinking").map(|thinking| joined(thinking.get("text").unwrap_or(&Value::Null)));
            if let Some(thinking) = thinking.filter(|text| !text.is_empty()) {
                said.push(json!({ "type": "thinking", "text": thinking }));
            }
            if !str_at(round, "response").is_empty() {
                said.push(json!({ "type": "text", "text": str_at(round, "response") }));
            }
            let mut results = Vec::new();
            for call in list(round, "toolCalls") {
                let id = str_at(call, "id");
                let arguments = call.get("arguments").cloned().unwrap_or(Value::Null);
                said.push(json!({ "type": "call", "id": id, "name": str_at(call, "name"), "arguments": arguments }));
                results.extend(given.get(id).map(|result| given_result(id, result)));
            }
            self.answer(said, results);
        }
    }

    /// What was shown to the person, where that is all there is.
    fn response(&mut self, response: &[Value]) {
        let (mut said, mut results) = (Vec::new(), Vec::new());
        for part in response {
            if is_invocation(part) {
                let (call, result) = invocation(part);
                said.push(call);
                results.extend(result);
                continue;
            }
            let Some(shown) = shown(part) else { continue };
            if said.iter().any(|said| str_at(said, "type") == "call") {
                self.answer(std::mem::take(&mut said), std::mem::take(&mut results));
            }
            match said.last_mut().filter(|last| str_at(last, "type") == str_at(&shown, "type")) {
                // A text is cut where something else was shown within it.
                Some(last) => last["text"] = Value::from([str_at(last, "text"), str_at(&shown, "text")].concat()),
                None => said.push(shown),
            }
        }
        if !said.is_empty() {
            self.answer(said, results);
        }
    }

    fn end(&mut self, request: &Value) {
        let error = request.get("result").and_then(|result| result.get("errorDetails"));
        let error = error.or_else(|| request.get("responseErrorDetails"));
        let text = error.map(|error| str_at(error, "message")).unwrap_or_default();
        let cancelled = state(request) == Some(CANCELLED) || request.get("isCanceled") == Some(&Value::Bool(true));
        if cancelled {
            self.add(END, [("state", Value::from("cancelled")), ("text", Value::from(text))]);
        } else if !text.is_empty() || state(request) == Some(FAILED) {
            self.add(END, [("state", Value::from("failed")), ("text", Value::from(text))]);
        }
    }

    /// Model and tokens are those of the whole answer, so they stand with the last part of it.
    fn finish(mut self, request: &Value, metadata: &Value) -> Vec<Vec<u8>> {
        let usage = request.get("result").and_then(|result| result.get("usage")).unwrap_or(&Value::Null);
        let count = |keys: &[&str]| {
            let places = [metadata, usage, request].into_iter();
            places.flat_map(|place| keys.iter().map(move |key| u64_at(place, key))).find(|count| *count > 0)
        };
        let input = count(&["promptTokens"]);
        let output = count(&["outputTokens", "completionTokens"]);
        let model = word_at(metadata, "resolvedModel").or_else(|| word_at(request, "modelId"));
        let last = self.made.iter_mut().rfind(|record| record.get("part").is_some_and(|part| part == ANSWER));
        if let Some(last) = last {
            for (key, value) in [
                ("model", model.map(Value::from)),
                ("promptTokens", input.map(Value::from)),
                ("outputTokens", output.map(Value::from)),
            ] {
                last.extend(value.map(|value| (key.to_owned(), value)));
            }
        }
        self.made.into_iter().map(|record| Value::Object(record).to_string().into_bytes()).collect()
    }
}

fn state(request: &Value) -> Option<u64> {
    request.get("modelState").and_then(|state| state.get("value")).and_then(Value::as_u64)
}

fn is_invocation(part: &Value) -> bool {
    str_at(part, "kind") == "toolInvocationSerialized"
}

/// A call as it was shown: what it was called with and what it gave stand there for some tools alone.
fn invocation(part: &Value) -> (Value, Option<Value>) {
    let id = first_text(part, &["toolCallId", "id"]);
    let name = first_text(part, &["toolId", "toolName"]);
    let specific = part.get("toolSpecificData").unwrap_or(&Value::Null);
    let details = part.get("resultDetails").unwrap_or(&Value::Null);
    let command = specific.get("commandLine").map(|line| first_text(line, &["toolEdited", "userEdited", "original"]));
    let arguments = match command.or_else(|| word_at(specific, "command")).filter(|command| !command.is_empty()) {
        Some(command) => json!({ "command": command }),
        None => match (specific.get("rawInput"), details.get("input")) {
            (Some(input), _) | (None, Some(input)) => input.clone(),
            (None, None) => json!({ "message": markdown(part.get("invocationMessage")) }),
        },
    };
    let call = json!({ "type": "call", "id": id, "name": name, "arguments": arguments });
    if part.get("isComplete") == Some(&Value::Bool(false)) {
        return (call, None);
    }
    let printed = specific.get("terminalCommandOutput").map(|output| str_at(output, "text")).unwrap_or_default();
    let output = match details.get("output") {
        Some(Value::Array(pieces)) => {
            pieces.iter().map(|piece| first_text(piece, &["value", "text"])).collect::<Vec<_>>().join("\n")
        }
        Some(other) => text_of(other),
        None if !printed.is_empty() => printed.to_owned(),
        None => match specific.get("result").and_then(Value::as_str) {
            Some(result) => result.to_owned(),
            None => markdown(part.get("pastTenseMessage")),
        },
    };
    let is_error = details.get("isError") == Some(&Value::Bool(true));
    let result = json!({ "id": id, "text": output, "isError": is_error });
    (call, Some(result))
}

/// What a part of a response shows as words or thoughts.
fn shown(part: &Value) -> Option<Value> {
    let text = match str_at(part, "kind") {
        "" => markdown(Some(part)),
        "markdownContent" | "markdownVuln" | "warning" | "progressTaskSerialized" => markdown(part.get("content")),
        "thinking" => {
            let text = joined(part.get("value").unwrap_or(&Value::Null));
            return (!text.is_empty()).then(|| json!({ "type": "thinking", "text": text }));
        }
        "inlineReference" => {
            let reference = part.get("inlineReference").unwrap_or(&Value::Null);
            let place = reference.get("location").unwrap_or(reference);
            let path = uri(place).or_else(|| place.get("uri").and_then(uri)).unwrap_or_default();
            let name = [str_at(part, "name"), str_at(reference, "name")].into_iter().find(|name| !name.is_empty());
            format!("`{}`", name.unwrap_or_else(|| path.rsplit(['/', '\\']).next().unwrap_or_default()))
        }
        "textEditGroup" | "notebookEditGroup" => {
            let path = part.get("uri").and_then(uri).unwrap_or_default();
            let edits =
                list(part, "edits").iter().flat_map(|edits| edits.as_array().map(Vec::as_slice).unwrap_or_default());
            let texts: Vec<&str> = edits.map(|edit| str_at(edit, "text")).filter(|text| !text.is_empty()).collect();
            format!("\n[edited {path}]\n{}\n", texts.join("\n"))
        }
        _ => return None,
    };
    (!text.is_empty()).then(|| json!({ "type": "text", "text": text }))
}

/// Markdown, as text or as an object that holds it.
fn markdown(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(value) => str_at(value, "value").to_owned(),
        None => String::new(),
    }
}

/// A text, or several.
fn joined(value: &Value) -> String {
    match value {
        Value::Array(texts) => texts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n"),
        other => other.as_str().unwrap_or_default().to_owned(),
    }
}

/// What the model was given of a call.
fn given_result(id: &str, result: &Value) -> Value {
    let (mut text, mut media) = (String::new(), Vec::new());
    for piece in list(result, "content") {
        let value = piece.get("value").unwrap_or(&Value::Null);
        match (value, word_at(piece, "mimeType")) {
            (_, Some(kind)) if !kind.starts_with("text/") && kind != "application/json" => {
                media.push(Value::from(kind));
            }
            (Value::String(words), _) => text.push_str(words),
            (tree, _) => leaves(tree, &mut text),
        }
    }
    let mut given = json!({ "id": id, "text": text });
    if let Some(given) = given.as_object_mut().filter(|_| !media.is_empty()) {
        given.insert("media".to_owned(), Value::Array(media));
    }
    if let Some(given) = given.as_object_mut().filter(|_| result.get("hasError") == Some(&Value::Bool(true))) {
        given.insert("isError".to_owned(), Value::Bool(true));
    }
    given
}

/// The words of a rendered prompt: a tree whose leaves hold them, each perhaps on a line of its own.
fn leaves(tree: &Value, out: &mut String) {
    let mut open = vec![tree.get("node").unwrap_or(tree)];
    while let Some(node) = open.pop() {
        if let Some(words) = node.get("text").and_then(Value::as_str) {
            if node.get("lineBreakBefore") == Some(&Value::Bool(true)) && !out.is_empty() && !out.ends_with('\n') {
                out.push('\n');
            }
            out.push_str(words);
        }
        open.extend(list(node, "children").iter().rev());
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
