//! Putting the results of calls right behind them, as hosts of models want them: what was said meanwhile follows.

use super::{Calls, Writer, Written};
use crate::conversation::{Author, Block, Message, Standing};

/// So many messages wait for a result at most: one that comes later answers nothing.
const MOST_HELD: usize = 256;

/// A writer whose format wants results right behind their calls.
pub(crate) trait Pairing: Writer {
    /// What of the model's own can't stand between a call and its result.
    const WAITS: Waits;

    /// The calls that were written.
    fn calls(&self) -> &Calls;

    /// Gives up the calls that wait: a result behind what follows would answer nothing to a host.
    fn give_up(&mut self, out: &mut Vec<u8>);
}

/// What of the model's own waits for the results of calls. Anyone else's words always do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Nothing: the writer gathers answers until they have their results.
    Nothing,
    /// What comes when one of the calls of an answer has its result: the answer is written then.
    BehindResults,
    /// That, and words behind a call: an answer has its words before its calls.
    BehindCalls,
}

/// Holds messages back that would come between calls and their results.
///
/// Guarantees: messages of one author keep their order; what waits for a result that never comes is written before the model's
/// answer to the person's next words, before a summary, and at the end.
#[derive(Debug)]
pub(crate) struct Paired<W> {
    inner: W,
    held: Vec<Message>,
    /// Whether one of the calls that were made together has its result, and others wait.
    is_answering: bool,
}

impl<W: Pairing> Paired<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self { inner, held: Vec::new(), is_answering: false }
    }

    /// What the model says: held where it would come between calls and results.
    fn model(&mut self, message: &Message, out: &mut Vec<u8>) {
        if !message.blocks.iter().any(says) {
            return self.inner.message(message, out);
        }
        // Whoever answers the next prompt waits for nothing any more.
        if self.held.iter().any(|held| held.author == Author::Person && held.standing == Standing::Said) {
            self.give_up(out);
        }
        let waits = self.inner.calls().is_waiting();
        if waits && W::WAITS != Waits::Nothing && (self.is_answering || !self.held.is_empty()) {
            return self.hold(message.clone(), out);
        }
        let behind = (W::WAITS == Waits::BehindCalls).then(|| words_behind_calls(message, waits)).flatten();
        let (first, rest) = message.blocks.split_at(behind.unwrap_or(message.blocks.len()));
        let has_results = first.iter().any(|block| matches!(block, Block::Result { .. }));
        match behind {
            None => self.inner.message(message, out),
            Some(0) => {}
            Some(_) => self.inner.message(&Message { blocks: first.to_vec(), ..message.clone() }, out),
        }
        if !rest.is_empty() {
            // Its tokens were told with its first part.
            self.hold(
                Message { blocks: rest.to_vec(), usage: message.usage.filter(|_| first.is_empty()), ..message.clone() },
                out,
            );
        }
        self.settle(has_results, out);
    }

    /// What anyone but the model says: results first, words when no call waits.
    fn others(&mut self, message: &Message, out: &mut Vec<u8>) {
        if !message.blocks.iter().any(says) {
            return self.inner.message(message, out);
        }
        let (mut now, mut later) = (Vec::new(), Vec::new());
        for block in &message.blocks {
            let is_now = matches!(block, Block::Result { id, .. } if !self.answers_what_is_held(id));
            if is_now { &mut now } else { &mut later }.push(block.clone());
        }
        if now.is_empty() || later.is_empty() {
            return self.one_kind(message, out);
        }
        self.one_kind(&Message { blocks: now, ..message.clone() }, out);
        self.one_kind(&Message { blocks: later, ..message.clone() }, out);
    }

    /// Results that answer what is written, or anything else.
    fn one_kind(&mut self, message: &Message, out: &mut Vec<u8>) {
        let is_now = |block: &Block| matches!(block, Block::Result { id, .. } if !self.answers_what_is_held(id));
        if message.blocks.iter().all(is_now) {
            self.inner.message(message, out);
            self.settle(true, out);
        } else if self.inner.calls().is_waiting() {
            self.hold(message.clone(), out);
        } else {
            self.inner.message(message, out);
        }
    }

    /// Whether a call of what is held is answered by this, and none that is written.
    fn answers_what_is_held(&self, id: &str) -> bool {
        let is_call = |block: &Block| matches!(block, Block::Call { id: call, .. } if call == id);
        !self.inner.calls().waits_for(id) && self.held.iter().any(|held| held.blocks.iter().any(is_call))
    }

    /// Takes note of results; writes what was held back when no call waits any more.
    fn settle(&mut self, has_results: bool, out: &mut Vec<u8>) {
        self.is_answering = self.inner.calls().is_waiting() && (self.is_answering || has_results);
        if !self.inner.calls().is_waiting() && !self.held.is_empty() {
            self.release(out);
        }
    }

    fn hold(&mut self, message: Message, out: &mut Vec<u8>) {
        self.held.push(message);
        if self.held.len() > MOST_HELD {
            self.give_up(out);
        }
    }

    /// Writes what was held back, whatever waits: a result that comes behind it would answer nothing.
    fn give_up(&mut self, out: &mut Vec<u8>) {
        while !self.held.is_empty() {
            self.inner.give_up(out);
            self.release(out);
        }
    }

    /// Writes what was held back, as far as it makes no calls that wait.
    fn release(&mut self, out: &mut Vec<u8>) {
        self.is_answering = false;
        for message in std::mem::take(&mut self.held) {
            self.message(&message, out);
        }
    }
}

impl<W: Pairing> Writer for Paired<W> {
    fn begin(&mut self, out: &mut Vec<u8>) {
        self.inner.begin(out);
    }

    fn message(&mut self, message: &Message, out: &mut Vec<u8>) {
        match (message.author, message.standing) {
            (_, Standing::Summary) => {
                self.give_up(out);
                self.is_answering = false;
                self.inner.message(message, out);
            }
            (Author::System, _) => self.inner.message(message, out),
            (Author::Model, _) => self.model(message, out),
            (Author::Person | Author::Tool, _) => self.others(message, out),
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Written {
        self.give_up(out);
        self.inner.finish(out)
    }

    fn carry(&mut self, record: &[u8], out: &mut Vec<u8>) -> bool {
        self.give_up(out);
        self.is_answering = false;
        self.inner.carry(record, out)
    }

    fn keep(&mut self, record: &[u8]) -> bool {
        self.inner.keep(record)
    }

    fn gap(&mut self, id: Option<&str>, out: &mut Vec<u8>) {
        self.give_up(out);
        self.inner.gap(id, out);
    }
}

/// Whether something of it is written.
pub(crate) fn says(block: &Block) -> bool {
    match block {
        Block::Text(text) => !text.trim().is_empty(),
        Block::Reasoning { .. } => false,
        Block::Call { .. } | Block::Result { .. } | Block::Media { .. } => true,
    }
}

/// Where the first words stand that come behind a call, of this message or, where it `waits`, of an earlier one.
fn words_behind_calls(message: &Message, waits: bool) -> Option<usize> {
    let mut is_behind = waits;
    message.blocks.iter().position(|block| {
        let is_words = says(block) && !matches!(block, Block::Call { .. } | Block::Result { .. });
        is_behind |= matches!(block, Block::Call { .. });
        is_behind && is_words
    })
}
