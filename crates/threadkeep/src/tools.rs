//! The dynamic tools of a thread: an ordered list, replaced as a whole.

use serde::Serialize;

use crate::changes::{self, Area, Note, Verb};
use crate::db::{Row, Tx, Value, query_all, statements};
use crate::error::{Error, Result};
use crate::id::ThreadId;
use crate::item::{Hash, check_json, check_text};
use crate::thread::MAX_TEXT_BYTES;
use crate::threads::{self, Hold};

const DOMAIN: &str = "threadkeep.tools.v1";
/// A thread has no more tools than this.
const MAX_TOOLS: usize = 4_096;
const MAX_NAME_BYTES: usize = 256;
/// The largest schema, and the most that else is said of a tool.
const MAX_JSON_BYTES: usize = 1 << 20;
/// The most that all tools of a thread take together.
const MAX_BYTES: usize = 16 << 20;

statements! {
    TOOLS = "SELECT position, name, description, input_schema, extra FROM tools WHERE thread = ?1 ORDER BY position";
    TEXTS_OF_TOOLS = "SELECT position, description, input_schema, extra FROM tools WHERE thread = ?1 ORDER BY position";
    PUT_TEXTS_OF_TOOL = "UPDATE tools SET description = ?3, input_schema = ?4, extra = ?5 WHERE thread = ?1 AND position = ?2";
    DROP_TOOLS = "DELETE FROM tools WHERE thread = ?1";
    PUT_TOOL = "INSERT INTO tools (thread, position, name, description, input_schema, extra) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
}

/// A tool that a thread's model may call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tool {
    /// Its name: 1 to 256 bytes, once in a thread.
    pub name: String,
    /// What it does, for the model.
    pub description: Option<String>,
    /// What it takes: JSON, as it was given.
    pub input_schema: String,
    /// What else there is to say of it: JSON, as it was given.
    pub extra: Option<String>,
}

impl Tool {
    /// A tool that takes what the schema says, which is JSON.
    pub fn new(name: impl Into<String>, input_schema: impl Into<String>) -> Self {
        Self { name: name.into(), description: None, input_schema: input_schema.into(), extra: None }
    }

    fn texts(&self) -> [Option<&str>; 4] {
        [Some(&self.name), self.description.as_deref(), Some(&self.input_schema), self.extra.as_deref()]
    }
}

/// The tools of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Toolset {
    /// The thread.
    pub thread: ThreadId,
    /// Tells this list from every other one, the empty list included.
    pub digest: Hash,
    /// The tools, in their order.
    pub tools: Vec<Tool>,
}

/// Reads the tools of a thread.
pub(crate) fn get(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Toolset> {
    let rows = query_all(tx, TOOLS, &[thread.as_str().into()], |row| read(row, thread))?;
    let mut tools = Vec::with_capacity(rows.len());
    for (position, tool) in rows {
        if position != number(tools.len()) {
            let missing = tools.len();
            return Err(Error::corrupt(format!("tools of thread {thread}"), format!("tool {missing} is missing")));
        }
        tools.push(tool);
    }
    Ok(Toolset { thread: thread.clone(), digest: digest(&tools), tools })
}

/// Puts these tools in the place of all that the thread has. The same ones again change nothing.
pub(crate) fn set(tx: &mut dyn Tx, hold: &Hold, tools: &[Tool], expect: Option<Hash>) -> Result<Toolset> {
    let held = threads::lock_by(tx, hold)?;
    let before = match get(tx, &hold.thread) {
        Ok(before) => Some(before),
        // Setting others is the way out of damage.
        Err(Error::Corrupt { .. }) if expect.is_none() => None,
        Err(error) => return Err(error),
    };
    let after = Toolset { thread: hold.thread.clone(), digest: digest(tools), tools: tools.to_vec() };
    if before.as_ref() == Some(&after) {
        // Whoever had it so already finds it so, whatever it expected: a repeated call.
        return Ok(after);
    }
    if let (Some(before), Some(expect)) = (&before, expect)
        && before.digest != expect
    {
        let (expected, found) = (expect.to_string(), before.digest.to_string());
        return Err(Error::Conflict { what: "tools", expected, found });
    }
    let tick = held.next_tick(tx, hold)?;
    replace(tx, &hold.thread, tools)?;
    let verb = match before {
        Some(before) if before.tools.is_empty() => Verb::Created,
        _ if tools.is_empty() => Verb::Deleted,
        _ => Verb::Changed,
    };
    changes::note(tx, &hold.thread, Some(tick), Note { area: Area::Tools, verb, subject: None, now: hold.now })?;
    Ok(after)
}

/// Writes the rows of these tools, and no others.
pub(crate) fn replace(tx: &mut dyn Tx, thread: &ThreadId, tools: &[Tool]) -> Result<()> {
    let id: Value<'_> = thread.as_str().into();
    tx.execute(DROP_TOOLS, &[id])?;
    for (position, tool) in tools.iter().enumerate() {
        let [name, description, input_schema, extra] = tool.texts().map(Value::from);
        tx.execute(PUT_TOOL, &[id, number(position).into(), name, description, input_schema, extra])?;
    }
    Ok(())
}

/// What a person has written of a tool: its position, and its description, schema and further words, readable or not.
pub(crate) type Texts = (i64, [Option<String>; 3]);

/// Whether a text of [`Texts`] is JSON, and has to stay so.
pub(crate) const ARE_JSON: [bool; 3] = [false, true, true];

/// The texts of a thread's tools.
pub(crate) fn texts(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Vec<Texts>> {
    query_all(tx, TEXTS_OF_TOOLS, &[thread.as_str().into()], |row| {
        let text = |column: usize| Ok::<_, Error>(row.opt_text(column)?.map(str::to_owned));
        Ok((row.int(0)?, [text(1)?, text(2)?, text(3)?]))
    })
}

/// Puts texts in the place of those that were looked at; leaves all when somebody changed them meanwhile, and says so.
pub(crate) fn put_texts(tx: &mut dyn Tx, thread: &ThreadId, before: &[Texts], after: &[Texts]) -> Result<bool> {
    threads::lock(tx, thread)?;
    let now = texts(tx, thread)?;
    if now != before {
        return Ok(now == after);
    }
    for (position, texts) in after {
        let mut args = vec![thread.as_str().into(), (*position).into()];
        args.extend(texts.iter().map(|text| Value::from(text.as_deref())));
        tx.execute(PUT_TEXTS_OF_TOOL, &args)?;
    }
    Ok(true)
}

/// Refuses tools that can't be kept; names the first one.
pub(crate) fn check(tools: &[Tool]) -> Result<()> {
    let mut names = std::collections::BTreeSet::new();
    let mut bytes = 0;
    if tools.len() > MAX_TOOLS {
        return Err(Error::invalid("tools", format!("{} tools; at most {MAX_TOOLS} are kept", tools.len())));
    }
    for (position, tool) in tools.iter().enumerate() {
        check_one(tool).map_err(|error| match error {
            Error::Invalid { field, reason } => {
                Error::invalid("tools", format!("tool {position} (`{}`): {field}: {reason}", short(&tool.name)))
            }
            other => other,
        })?;
        if !names.insert(tool.name.as_str()) {
            return Err(Error::AlreadyExists { what: "tool", id: tool.name.clone() });
        }
        bytes += tool.texts().into_iter().flatten().map(str::len).sum::<usize>();
    }
    if bytes > MAX_BYTES {
        return Err(Error::invalid("tools", format!("{bytes} bytes; at most {MAX_BYTES} are kept for a thread")));
    }
    Ok(())
}

fn check_one(tool: &Tool) -> Result<()> {
    if tool.name.trim().is_empty() {
        return Err(Error::invalid("name", "it is empty"));
    }
    check_text("name", &tool.name, MAX_NAME_BYTES)?;
    tool.description.as_ref().map_or(Ok(()), |text| check_text("description", text, MAX_TEXT_BYTES))?;
    check_json("input_schema", &tool.input_schema, MAX_JSON_BYTES)?;
    tool.extra.as_ref().map_or(Ok(()), |extra| check_json("extra", extra, MAX_JSON_BYTES))
}

/// A name that may be as long as it likes, for an error.
fn short(name: &str) -> &str {
    name.char_indices().nth(60).and_then(|(end, _)| name.get(..end)).unwrap_or(name)
}

fn digest(tools: &[Tool]) -> Hash {
    let mut preimage = Vec::new();
    let mut put = |text: &str| {
        preimage.extend_from_slice(&(text.len() as u64).to_le_bytes());
        preimage.extend_from_slice(text.as_bytes());
    };
    put(DOMAIN);
    for text in tools.iter().flat_map(Tool::texts) {
        put(if text.is_some() { "1" } else { "0" });
        put(text.unwrap_or_default());
    }
    Hash::of(&preimage)
}

fn number(position: usize) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}

/// Reads a row. Damage names the tool.
fn read(row: &Row<'_>, thread: &ThreadId) -> Result<(i64, Tool)> {
    let position = row.int(0)?;
    let place = || match row.text(1) {
        Ok(name) => format!("tool {position} (`{}`) of thread {thread}", short(name)),
        Err(_) => format!("tool {position} of thread {thread}"),
    };
    let tool = read_columns(row).and_then(|tool| check_one(&tool).map(|()| tool));
    let tool = tool.map_err(|error| match error {
        Error::Corrupt { place: column, detail } => Error::corrupt(place(), format!("{column}: {detail}")),
        Error::Invalid { field, reason } => Error::corrupt(place(), format!("{field}: {reason}")),
        other => other,
    })?;
    Ok((position, tool))
}

fn read_columns(row: &Row<'_>) -> Result<Tool> {
    Ok(Tool {
        name: row.text(1)?.to_owned(),
        description: row.opt_text(2)?.map(str::to_owned),
        input_schema: row.text(3)?.to_owned(),
        extra: row.opt_text(4)?.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::{Tool, digest};

    #[test]
    fn a_digest_tells_order_and_absence() {
        let (one, two) = (Tool::new("a", "{}"), Tool::new("b", "{}"));
        let lists = [
            vec![],
            vec![one.clone()],
            vec![one.clone(), two.clone()],
            vec![two, one.clone()],
            vec![Tool { extra: Some(String::new()), ..one.clone() }],
            vec![Tool { description: Some(String::new()), ..one }],
        ];
        let digests: std::collections::BTreeSet<String> = lists.iter().map(|list| digest(list).to_string()).collect();
        assert_eq!(digests.len(), lists.len());
    }
}
