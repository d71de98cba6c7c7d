//! Files that have lost their end since they were imported.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::PathBuf;

use threadkeep::blocking::{Store, Workspace};
use threadkeep::{Durability, Error, ImportBatch, SourceFile};

use super::super::asides;
use super::super::files::Found;
use super::{Failure, Run};
use crate::codec::ThreadFacts;

/// How many parts of a file are read at once.
const PARTS: usize = 1_000;

impl Run<'_> {
    /// Whether the file has lost its end since it was imported, and nothing else.
    pub(super) fn is_cut(&self) -> Result<bool, Failure> {
        match &self.stored {
            Some(stored) if self.read_until == 0 && !self.was_unfinished => {
                is_cut(self.import.store, self.import.file, stored)
            }
            _ => Ok(false),
        }
    }

    /// Keeps all that was imported of a file that has lost its end: it is nowhere else.
    pub(super) fn keep_what_was(&mut self, workspaces: &mut HashMap<PathBuf, Workspace>) -> Result<(), Failure> {
        let (Some(thread), Some(stored)) = (self.thread.clone(), self.stored.clone()) else { return Ok(()) };
        let file = self.import.file;
        let reason =
            format!("the file has lost its end since it was imported; the store keeps all {} bytes", stored.consumed);
        self.problem(0, reason);
        if self.import.dry_run {
            return Ok(());
        }
        self.import.flight.land();
        self.live = Some(self.open(&thread, &ThreadFacts::default(), workspaces)?);
        let source = SourceFile { size: file.stored_size(), mtime: file.mtime, ..stored.clone() };
        let expected = Some((stored.consumed, stored.prefix));
        let batch = ImportBatch {
            expected,
            replace: false,
            segments: Vec::new(),
            screened: true,
            head: None,
            patch: None,
            updated_at: None,
            source,
        };
        let Some(live) = &self.live else { return Ok(()) };
        live.import(batch, Durability::Written).map(drop).map_err(|error| self.refused(error))
    }

    /// Takes note of what was known of a file that is read anew from its beginning.
    pub(super) fn note_what_was(&mut self) -> Result<(), Failure> {
        let (Some(thread), Some(stored)) = (&self.thread, self.stored.clone()) else { return Ok(()) };
        if self.read_until == 0 && !self.was_unfinished {
            self.was_read_until = u64::try_from(stored.consumed).unwrap_or(0);
        }
        self.was_used = self.import.find(thread)?.and_then(|thread| thread.details.usage);
        // What the thread was told before is not said anew: a name that it was given here since stays.
        let mut said =
            self.import.codec.reader(&self.import.file.path, Some(asides::state_of_codec(&stored.state))).facts();
        let own = said.title.take();
        self.import.asides.tell(&mut said);
        said.title.clone_from(&own);
        self.said = said;
        self.look_at_title(|title| own.as_deref() == Some(title) || asides::gave(&stored.state, title))
    }

    /// Says so when a file has lost what it had: its items stay, and nothing else could tell.
    pub(super) fn tell_what_is_gone(&mut self) {
        let (was, is) = (self.was_read_until, self.position.offset);
        if is < was {
            let reason = format!(
                "the file holds less than when it was last imported ({is} of {was} bytes): its thread keeps all items, and what \
                 stood between them is kept no more"
            );
            self.problem(0, reason);
        }
    }
}

/// Whether a file says what it said when it was imported, as far as it goes, and ends before it did then: what was cut off is in
/// the store alone.
///
/// What was masked or redacted can't be compared, and is passed over.
fn is_cut(store: &Store, file: &Found, source: &SourceFile) -> Result<bool, Failure> {
    let known = u64::try_from(source.consumed).unwrap_or(0);
    let mut input = file.open()?;
    let (mut at, mut after, mut is_over) = (0_u64, -1, false);
    loop {
        let parts = match store.source_parts(&file.key, after, PARTS) {
            // What can't be read can't be what the file says.
            Err(Error::Corrupt { .. }) => return Ok(false),
            parts => parts?,
        };
        let Some(last) = parts.last() else { break };
        after = last.position;
        for part in parts {
            let (Ok(position), Ok(length)) = (u64::try_from(part.position), u64::try_from(part.length)) else {
                return Ok(false);
            };
            let mut gap = Vec::new();
            let between = position.saturating_sub(at);
            (&mut input).take(between).read_to_end(&mut gap)?;
            is_over |= (gap.len() as u64) < between;
            if is_over || gap.iter().any(|byte| *byte != b'\n') {
                return Ok(is_over && gap.iter().all(|byte| *byte == b'\n'));
            }
            let mut bytes = Vec::new();
            (&mut input).take(length).read_to_end(&mut bytes)?;
            let is_as_read = !part.redacted && part.bytes.len() as u64 == length;
            if is_as_read && !part.bytes.starts_with(&bytes) {
                return Ok(false);
            }
            if (bytes.len() as u64) < length {
                return Ok(true);
            }
            at = position + length;
        }
    }
    let mut rest = Vec::new();
    input.take(2).read_to_end(&mut rest)?;
    Ok(rest.is_empty() && at < known)
}
