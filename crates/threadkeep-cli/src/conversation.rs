//! A thread as people read it at a terminal: who said what, and what the tools did, in brief.

use serde_json::Value;
use threadkeep::{Artifact, Item, Kind, Part, PromptOrigin, Receipt, Role, View};

use crate::errors::Failure;
use crate::human;
use crate::marking::Words;
use crate::output::Output;
use crate::style::Ink;
use crate::text;

const INDENT: &str = "  ";
/// How many lines of a result, of thoughts and of instructions are shown.
const RESULT_LINES: usize = 6;
const THOUGHT_LINES: usize = 6;
const INSTRUCTION_LINES: usize = 3;
const SUMMARY_LINES: usize = 12;
/// The arguments that say most of a call, in this order.
const TELLING: [&str; 8] = ["command", "cmd", "file_path", "path", "pattern", "query", "url", "prompt"];

/// Writes items one after the other.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// Cuts nothing.
    whole: bool,
    /// Whether the last item was a tool's, so that its lines stand together.
    in_tools: bool,
    /// What stands out in every line.
    words: Words,
    /// The depth of the item that stands out.
    at: Option<u32>,
}

impl Conversation {
    /// A conversation; `whole` cuts nothing.
    pub(crate) fn new(whole: bool) -> Self {
        Self { whole, in_tools: false, words: Words::default(), at: None }
    }

    /// The same, where these words stand out.
    pub(crate) fn marking(self, words: Words) -> Self {
        Self { words, ..self }
    }

    /// The same, where the item at this depth stands out.
    pub(crate) fn standing_out(self, at: Option<u32>) -> Self {
        Self { at, ..self }
    }

    /// Writes an item.
    pub(crate) fn write(&mut self, out: &mut Output, item: &Item, view: &View) -> Result<(), Failure> {
        let compact = !matches!(item.kind, Kind::Message | Kind::Reasoning | Kind::Compaction);
        if !(compact && self.in_tools) {
            out.line("")?;
        }
        self.in_tools = compact;
        let (mark, ink) = if self.at == Some(item.depth) { ("◀", Ink::Found) } else { ("", Ink::Dim) };
        let depth = format!("@{}{mark}", item.depth);
        let body = self.body(out, item, view);
        if compact {
            let depth = out.paint(ink, &format!("{depth:<6}"));
            let blank = " ".repeat(6);
            for (index, line) in body.iter().enumerate() {
                out.line(format!("{}{line}", if index == 0 { &depth } else { &blank }).trim_end())?;
            }
            return Ok(());
        }
        let (whose, who) = speaker(item, view);
        let time = out.paint(Ink::Dim, &human::moment(item.created_at));
        let mark = Receipt::try_from(item).map(|receipt| format!("  {}", out.paint(Ink::Dim, &as_prompt(&receipt))));
        let mark = mark.unwrap_or_default();
        out.line(format!("{}  {}  {time}{mark}", out.paint(whose, &who), out.paint(ink, &depth)))?;
        for line in body {
            out.line(format!("{INDENT}{line}").trim_end())?;
        }
        Ok(())
    }

    fn body(&self, out: &Output, item: &Item, view: &View) -> Vec<String> {
        let mut lines = Vec::new();
        for part in &view.parts {
            match part {
                Part::Text { text } => {
                    lines.extend(self.cut(out, text, Ink::Plain, text_limit(item, view)));
                }
                Part::Reasoning { text } => {
                    lines.extend(self.cut(out, text, Ink::Thought, Some(THOUGHT_LINES)));
                }
                Part::ToolCall { name, arguments, .. } => lines.push(self.call(out, name, arguments)),
                Part::ToolResult { output, is_error, .. } => {
                    lines.extend(self.result(out, output, *is_error));
                }
                Part::Media { media_type, bytes } => lines.push(out.paint(Ink::Dim, &media(media_type, *bytes))),
                Part::Note { text } => lines.push(self.note(out, item, text)),
                other => lines.push(out.paint(Ink::Dim, &text::one_line(&format!("{other:?}")))),
            }
        }
        if let Ok(artifact) = Artifact::try_from(item) {
            lines.insert(0, out.paint(Ink::Dim, &as_artifact(&artifact)));
        }
        if view.damaged {
            lines.push(out.paint(Ink::Warn, "(damaged: shown as well as it can be read)"));
        }
        if let Some(told) = item.redaction.as_deref().filter(|told| told.masked) {
            let words = format!("(partly redacted by {}, {}: {})", told.by, human::moment(told.at), told.reason);
            lines.push(out.paint(Ink::Dim, &text::one_line(&words)));
        }
        if lines.is_empty() {
            lines.push(out.paint(Ink::Dim, &format!("({}, nothing to read)", text::one_line(item.kind.as_str()))));
        }
        lines
    }

    /// The lines of a text, up to a limit, and how many more there are.
    fn cut(&self, out: &Output, words: &str, ink: Ink, limit: Option<usize>) -> Vec<String> {
        let limit = limit.filter(|_| !self.whole);
        let words = words.trim_end_matches(['\n', '\r']);
        let take = limit.unwrap_or(usize::MAX);
        let shown = words.split('\n').take(take).map(|line| {
            let line = text::clean(line.trim_end_matches('\r'));
            // Whoever wants a few lines of something does not want them to fill the screen.
            let room = if limit.is_some() { out.width().saturating_sub(10) } else { usize::MAX };
            self.words.mark(&text::cut(&line, room)).paint(out, ink)
        });
        let mut lines: Vec<String> = shown.collect();
        let more = words.split('\n').count() - lines.len();
        if more > 0 {
            lines.push(out.paint(Ink::Dim, &format!("… {}", human::counted(more as i128, "more line", "more lines"))));
        }
        lines
    }

    fn call(&self, out: &Output, name: &str, arguments: &str) -> String {
        let name = text::one_line(name);
        let arguments = self.fit(out, &brief(arguments), text::width(&name) + 12);
        let arguments = self.words.mark(&arguments).paint(out, Ink::Plain);
        format!("{} {}  {arguments}", out.paint(Ink::Tool, "→"), out.paint(Ink::Tool, &name))
    }

    fn result(&self, out: &Output, output: &str, is_error: bool) -> Vec<String> {
        let (ink, mark) = if is_error { (Ink::Bad, "✗") } else { (Ink::Tool, "←") };
        let mut lines = self.cut(out, output, Ink::Dim, Some(RESULT_LINES));
        for (index, line) in lines.iter_mut().enumerate() {
            let mark = if index == 0 { out.paint(ink, mark) } else { " ".to_owned() };
            *line = format!("{mark} {line}");
        }
        lines
    }

    fn note(&self, out: &Output, item: &Item, note: &str) -> String {
        let kind = text::one_line(item.kind.as_str());
        let note = self.fit(out, &text::one_line(note), text::width(&kind) + 12);
        self.words.mark(&format!("· {kind}: {note}")).paint(out, Ink::Dim)
    }

    fn fit(&self, out: &Output, line: &str, taken: usize) -> String {
        let room = if self.whole { usize::MAX } else { out.width().saturating_sub(taken) };
        text::cut(line, room).into_owned()
    }
}

fn text_limit(item: &Item, view: &View) -> Option<usize> {
    if item.kind == Kind::Compaction {
        return Some(SUMMARY_LINES);
    }
    match view.role.as_ref().or(item.role.as_ref()) {
        Some(Role::System | Role::Developer) => Some(INSTRUCTION_LINES),
        _ => None,
    }
}

fn speaker(item: &Item, view: &View) -> (Ink, String) {
    match (&item.kind, item.role.as_ref().or(view.role.as_ref())) {
        (Kind::Compaction, _) => (Ink::Warn, "summary of what came before".to_owned()),
        (Kind::Reasoning, _) => (Ink::Thought, "thinking".to_owned()),
        (_, Some(role @ Role::User)) => (Ink::User, role.to_string()),
        (_, Some(role @ Role::Assistant)) => (Ink::Assistant, role.to_string()),
        (_, Some(role)) => (Ink::Warn, text::one_line(role.as_str())),
        (kind, None) => (Ink::Warn, text::one_line(kind.as_str())),
    }
}

/// What stands for a picture or a file.
pub(crate) fn media(media_type: &str, bytes: u64) -> String {
    let size = i64::try_from(bytes).unwrap_or(i64::MAX);
    let size = if size == 0 { String::new() } else { format!(", {}", human::bytes(size)) };
    format!("[{}{size}]", text::one_line(media_type))
}

/// The arguments of a call on one line: what says most first, names only where they are needed.
pub(crate) fn brief(arguments: &str) -> String {
    let Ok(Value::Object(mut fields)) = serde_json::from_str(arguments) else {
        return text::one_line(arguments);
    };
    let telling = TELLING.iter().find_map(|name| fields.shift_remove(*name));
    let telling = telling.or_else(|| {
        let name = fields.keys().next().filter(|_| fields.len() == 1)?.clone();
        fields.shift_remove(&name)
    });
    let first = telling.as_ref().map(value);
    let rest = fields.iter().map(|(name, field)| format!("{}={}", text::one_line(name), value(field)));
    first.into_iter().chain(rest).collect::<Vec<_>>().join("  ")
}

fn value(value: &Value) -> String {
    match value {
        Value::String(words) => text::one_line(words),
        Value::Array(words) if words.iter().all(Value::is_string) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            // A shell that is given one command: the command says it all.
            match words.as_slice() {
                [_, "-c" | "-lc", command] => text::one_line(command),
                words => text::one_line(&words.join(" ")),
            }
        }
        other => text::one_line(&other.to_string()),
    }
}

/// What a prompt is that was stored as a receipt.
fn as_prompt(receipt: &Receipt) -> String {
    let task = match (&receipt.origin, receipt.active == receipt.id) {
        (PromptOrigin::HarnessRetry, _) => format!(", tries again, for {}", receipt.active),
        (PromptOrigin::Operator, false) => format!(", of {}", receipt.active),
        (PromptOrigin::Operator, true) => String::new(),
        (other, _) => format!(", {}", text::one_line(other.as_str())),
    };
    format!("{}{task}", receipt.id)
}

fn as_artifact(artifact: &Artifact) -> String {
    let locator =
        artifact.locator.as_deref().map(|locator| format!(": {}", text::one_line(locator))).unwrap_or_default();
    let (kind, relation) = (text::one_line(artifact.kind.as_str()), text::one_line(artifact.relation.as_str()));
    format!("artifact {}, {kind}, {relation} {}{locator}", artifact.number, artifact.prompt)
}

#[cfg(test)]
mod tests {
    use super::brief;

    #[test]
    fn a_call_says_the_telling_argument_first() {
        for (arguments, line) in [
            (r#"{"description":"Run","command":"cargo test\n -- x"}"#, "cargo test -- x  description=Run"),
            (r#"{"command":["bash","-lc","ls -l"],"timeout":5}"#, "ls -l  timeout=5"),
            (r#"{"a":{"b":1}}"#, r#"{"b":1}"#),
            (r#"{"file_path":"/x","old_string":"a","new_string":"b"}"#, "/x  old_string=a  new_string=b"),
            ("not json \x1b[2J", "not json ␛[2J"),
            ("{}", ""),
        ] {
            assert_eq!(brief(arguments), line);
        }
    }
}
