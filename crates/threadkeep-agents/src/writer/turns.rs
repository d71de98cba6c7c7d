//! Writing a session as a chain of lines: what is the same for all agents whose lines follow one another.
//!
//! An agent's own part ([`Acts`]) is the form of its lines. Here it is decided what stands in them: which records of an answer are
//! one answer, what an answer or a result may hold, which calls have results, and what a line stands behind.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};
use threadkeep::{Timestamp, Usage};
use uuid::Uuid;

use super::{Calls, Losses, Paired, Pairing, Session, Waits, Writer, Written, is_picture, lost, says, tool_name};
use crate::conversation::{Author, Block, MediaData, Message, Standing};
use crate::json::read;
use crate::lines::Entry;
use crate::tree::key;

/// The lines of one agent.
pub(crate) trait Acts: Send {
    /// Whether text that the agent gave as the person's can be told from the person's own.
    const SETS_INJECTED_APART: bool;
    /// Whether an answer states its tokens.
    const HAS_TOKENS: bool;
    /// Whether words of an answer may stand behind its calls.
    const TEXT_BEHIND_CALLS: bool = true;

    /// Reads a line of the agent's own.
    fn entry(&self, line: &Value) -> Option<Entry>;

    /// Whether a picture or a file can be held where the person, or a tool, says something.
    fn holds(&self, media_type: &str, data: &MediaData) -> bool {
        is_picture(media_type, data) && matches!(data, MediaData::Base64(_))
    }

    /// What stands before the first line of the conversation.
    fn begin(&mut self, chain: &mut Chain, out: &mut Vec<u8>);

    /// Words and pictures of the person, or in the person's place.
    fn words(&mut self, blocks: Vec<Block>, is_injected: bool, chain: &mut Chain, out: &mut Vec<u8>);

    /// An answer of the model: texts and calls.
    fn answer(&mut self, answer: Answer, chain: &mut Chain, out: &mut Vec<u8>);

    /// The result of a call: texts and pictures.
    fn result(&mut self, result: Outcome, chain: &mut Chain, out: &mut Vec<u8>);

    /// A summary of what was said before.
    fn summary(&mut self, text: String, chain: &mut Chain, out: &mut Vec<u8>);

    /// Writes a record of the agent's own behind the last line; see [`Writer::carry`]. What it says is noted by the caller.
    fn carry(&mut self, record: &[u8], line: &Value, entry: &Entry, chain: &mut Chain, out: &mut Vec<u8>) -> bool;

    /// Whether something can be put behind this record, which stands in the file as it is.
    fn keep(&mut self, line: &Value, chain: &Chain) -> bool {
        let _ = (line, chain);
        true
    }

    /// Writes what stands in the place of a record that was taken away.
    fn gap(&mut self, id: Option<&str>, chain: &mut Chain, out: &mut Vec<u8>);

    /// What stands behind the last line; gives other files that the agent wants.
    fn finish(&mut self, chain: &mut Chain, out: &mut Vec<u8>) -> Vec<super::Companion>;
}

/// An answer of the model.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    /// Texts and calls.
    pub(crate) blocks: Vec<Block>,
    pub(crate) model: Option<String>,
    pub(crate) usage: Option<Usage>,
    pub(crate) response: Option<String>,
    at: Option<Timestamp>,
}

/// The result of a call.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) id: String,
    /// The tool that was called.
    pub(crate) tool: String,
    pub(crate) content: Vec<Block>,
    pub(crate) is_error: bool,
}

/// The session, and the end of what is written of it.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) session: Session,
    /// The id of the last line.
    pub(crate) last: Option<String>,
    /// When what is written was said.
    pub(crate) at: Timestamp,
    seen: HashSet<u64>,
    written: u64,
}

impl Chain {
    fn new(session: &Session) -> Self {
        Self { session: session.clone(), last: None, at: session.created_at, seen: HashSet::new(), written: 0 }
    }

    /// An id for the next line, or for something in it.
    pub(crate) fn made(&self, what: &str) -> Uuid {
        let before = self.last.as_deref().unwrap_or("nothing");
        self.session.made(&format!("{what} after {before}"), self.written)
    }

    /// Whether a line of this id is written.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.seen.contains(&key(id))
    }

    /// A line is written, under this id.
    pub(crate) fn step(&mut self, id: &str) {
        self.written += 1;
        self.seen.insert(key(id));
        self.last = Some(id.to_owned());
    }
}

/// Writes a session by an agent's [`Acts`].
pub(crate) struct Turns<A> {
    acts: A,
    chain: Chain,
    /// The answer that more may be added to.
    answer: Option<Answer>,
    calls: Calls,
    /// The tools of the calls that wait, by the ids that were written.
    tools: HashMap<String, String>,
    losses: Losses,
}

impl<A: Acts> Turns<A> {
    pub(crate) fn writer(session: &Session, acts: A) -> Paired<Self> {
        Paired::new(Self {
            acts,
            chain: Chain::new(session),
            answer: None,
            calls: Calls::default(),
            tools: HashMap::new(),
            losses: Losses::default(),
        })
    }

    /// Writes the answer that is open.
    fn close(&mut self, out: &mut Vec<u8>) {
        if let Some(answer) = self.answer.take().filter(|answer| !answer.blocks.is_empty()) {
            self.chain.at = answer.at.unwrap_or(self.chain.at);
            self.acts.answer(answer, &mut self.chain, out);
        }
    }

    /// The model's blocks. Calls that were made together are answered together, so they must stand in one answer.
    fn answers(&mut self, message: &Message, out: &mut Vec<u8>) {
        if self.answer.is_none() && self.calls.is_waiting() {
            if !message.blocks.iter().any(says) {
                return message.blocks.iter().for_each(|block| drop(self.words(block)));
            }
            self.give_up(out);
        }
        let waits = self.calls.is_waiting();
        let goes_on = |open: &Answer| waits || message.response.is_none() || open.response == message.response;
        if !self.answer.as_ref().is_some_and(goes_on) {
            self.close(out);
        }
        let (mut blocks, mut results) = (Vec::new(), Vec::new());
        for block in &message.blocks {
            match block {
                // Some agents keep a result within its call.
                Block::Result { id, content, is_error } => results.push((id, content, *is_error)),
                Block::Call { id, name, input } => blocks.push(self.call(id, name, input)),
                Block::Media { media_type, data } => blocks.push(self.named(media_type, data)),
                other => blocks.extend(self.words(other)),
            }
        }
        let open = self.answer.get_or_insert_default();
        open.blocks.append(&mut blocks);
        open.at = open.at.or(message.created_at);
        open.model = open.model.take().or_else(|| message.model.clone());
        match (message.usage, A::HAS_TOKENS) {
            (Some(_), false) => self.losses.count(lost::USAGE),
            // The lines of one response repeat its tokens, or state more of them.
            (Some(usage), true) if open.response.is_some() && open.response == message.response => {
                open.usage = Some(open.usage.filter(|before| before.output > usage.output).unwrap_or(usage));
            }
            (Some(usage), true) => open.usage = Some(sum(open.usage.unwrap_or_default(), usage)),
            (None, _) => {}
        }
        open.response = open.response.take().or_else(|| message.response.clone());
        if !results.is_empty() {
            self.close(out);
        }
        for (id, content, is_error) in results {
            self.result(id, content, is_error, out);
        }
    }

    /// The words and results of anyone but the model: results first, as hosts want them.
    fn others(&mut self, message: &Message, out: &mut Vec<u8>) {
        self.chain.at = message.created_at.unwrap_or(self.chain.at);
        let mut words = Vec::new();
        for block in &message.blocks {
            match block {
                Block::Result { id, content, is_error } => self.result(id, content, *is_error, out),
                Block::Call { .. } => self.losses.count(lost::CALLS),
                other => words.extend(self.words(other)),
            }
        }
        if words.is_empty() {
            return;
        }
        let is_injected = message.standing == Standing::Injected || message.author == Author::Tool;
        if self.calls.is_waiting() {
            self.give_up(out);
        }
        self.losses.add(lost::INJECTED, u64::from(is_injected && !A::SETS_INJECTED_APART));
        self.acts.words(words, is_injected, &mut self.chain, out);
    }

    fn result(&mut self, id: &str, content: &[Block], is_error: bool, out: &mut Vec<u8>) {
        let Some((id, _)) = self.calls.result(id, &mut self.losses) else { return };
        let tool = self.tools.remove(&id).unwrap_or_default();
        let content = content.iter().filter_map(|block| self.words(block)).collect();
        self.acts.result(Outcome { id, tool, content, is_error }, &mut self.chain, out);
    }

    fn call(&mut self, id: &str, name: &str, input: &Value) -> Block {
        let input = match input {
            Value::Object(_) => input.clone(),
            other => {
                self.losses.count(lost::ARGUMENTS);
                json!({"input": other})
            }
        };
        let name = tool_name(name, &mut self.losses);
        let id = self.calls.call(id, false, &mut self.losses);
        self.tools.insert(id.clone(), name.clone());
        Block::Call { id, name, input }
    }

    /// A text, or a picture that can be held; nothing for what is blank.
    fn words(&mut self, block: &Block) -> Option<Block> {
        match block {
            Block::Text(text) if text.trim().is_empty() => {
                self.losses.count(lost::EMPTY);
                None
            }
            Block::Text(_) => Some(block.clone()),
            Block::Media { media_type, data } if self.acts.holds(media_type, data) => Some(block.clone()),
            Block::Media { media_type, data } => Some(self.named(media_type, data)),
            Block::Reasoning { .. } => {
                self.losses.count(lost::THOUGHTS);
                None
            }
            Block::Call { .. } | Block::Result { .. } => None,
        }
    }

    fn named(&mut self, media_type: &str, data: &MediaData) -> Block {
        self.losses.count(lost::MEDIA);
        Block::Text(Block::named(media_type, data))
    }

    fn summary(&mut self, message: &Message, out: &mut Vec<u8>) {
        let texts: Vec<String> = message.blocks.iter().filter_map(|block| self.words(block)).map(as_text).collect();
        if !texts.is_empty() {
            // The model does not see what was before, so nothing waits any more.
            self.calls.finish(&mut self.losses);
            self.tools.clear();
            self.acts.summary(texts.join("\n\n"), &mut self.chain, out);
        }
    }

    /// Takes note of what a record of the agent's own says.
    fn note(&mut self, entry: &Entry) {
        for block in entry.spoken() {
            match block {
                Block::Call { id, name, .. } => {
                    self.calls.keep_call(id, false);
                    self.tools.insert(id.clone(), name.clone());
                }
                Block::Result { id, .. } => {
                    self.calls.keep_result(id);
                    self.tools.remove(id);
                }
                _ => {}
            }
        }
        self.chain.at = entry.at.unwrap_or(self.chain.at);
    }
}

impl<A: Acts> Pairing for Turns<A> {
    const WAITS: Waits = if A::TEXT_BEHIND_CALLS { Waits::BehindResults } else { Waits::BehindCalls };

    fn calls(&self) -> &Calls {
        &self.calls
    }

    fn give_up(&mut self, out: &mut Vec<u8>) {
        self.close(out);
        self.calls.finish(&mut self.losses);
        self.tools.clear();
    }
}

impl<A: Acts> Writer for Turns<A> {
    fn begin(&mut self, out: &mut Vec<u8>) {
        self.acts.begin(&mut self.chain, out);
    }

    fn message(&mut self, message: &Message, out: &mut Vec<u8>) {
        if message.author == Author::System && message.standing != Standing::Summary {
            return self.losses.count(lost::INSTRUCTIONS);
        }
        let is_result = |block: &Block| matches!(block, Block::Result { .. });
        match (message.author, message.standing) {
            (_, Standing::Summary) => {
                self.close(out);
                self.chain.at = message.created_at.unwrap_or(self.chain.at);
                self.summary(message, out);
            }
            (Author::Model, _) => self.answers(message, out),
            _ => {
                if !self.calls.is_waiting() || message.blocks.iter().any(is_result) {
                    // The answer was given before.
                    self.close(out);
                }
                self.others(message, out);
            }
        }
    }

    fn carry(&mut self, record: &[u8], out: &mut Vec<u8>) -> bool {
        self.close(out);
        let Ok((line, _)) = read::<Value>(record) else { return false };
        let Some(entry) = self.acts.entry(&line) else { return false };
        let is_carried = self.acts.carry(record, &line, &entry, &mut self.chain, out);
        if is_carried {
            self.note(&entry);
        }
        is_carried
    }

    fn keep(&mut self, record: &[u8]) -> bool {
        let Ok((line, _)) = read::<Value>(record) else { return true };
        if !self.acts.keep(&line, &self.chain) {
            return false;
        }
        if let Some(entry) = self.acts.entry(&line) {
            if let Some(id) = entry.id.as_deref().filter(|_| !entry.is_beside) {
                self.chain.step(id);
            }
            self.note(&entry);
        }
        true
    }

    fn gap(&mut self, id: Option<&str>, out: &mut Vec<u8>) {
        self.close(out);
        self.acts.gap(id, &mut self.chain, out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Written {
        self.give_up(out);
        let companions = self.acts.finish(&mut self.chain, out);
        Written { companions, losses: self.losses.take() }
    }
}

/// What is put into a text of a block that is a text.
pub(crate) fn as_text(block: Block) -> String {
    match block {
        Block::Text(text) => text,
        Block::Media { media_type, data } => Block::named(&media_type, &data),
        _ => String::new(),
    }
}

fn sum(one: Usage, other: Usage) -> Usage {
    Usage {
        input: one.input.saturating_add(other.input),
        cached: one.cached.saturating_add(other.cached),
        output: one.output.saturating_add(other.output),
        reasoning: one.reasoning.saturating_add(other.reasoning),
    }
}
