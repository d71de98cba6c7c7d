//! What an export is made of: the file that the thread came from, or its path.

use std::path::PathBuf;

use threadkeep::blocking::Store;
use threadkeep::{Address, Error, ItemId, Result, SourceFile, Thread};

use crate::codec::{Codec, KnownRecord, Shape, ThreadFacts};
use crate::import::state_of_codec;
use crate::writer::{NOWHERE, Session};

const KNOWN_PAGE: usize = 5_000;

/// What is written, and what is said of it.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) session: Session,
    /// The imported file whose bytes are given as they are; none when the path is written anew.
    pub(super) kept: Option<Kept>,
    /// Whether the thread stands on a session that is not in the store.
    pub(super) lacks_base: bool,
}

/// An imported file that the thread's path goes through to its end.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) source: SourceFile,
    /// The depth of the item that the file's own agent would go on from.
    pub(super) depth: Option<u32>,
    facts: ThreadFacts,
}

impl Plan {
    pub(super) fn new(store: &Store, thread: &Thread, at: Option<Address>, codec: &dyn Codec) -> Result<Self> {
        let mut sources = store.sources(&thread.id)?;
        sources.retain(|source| source.agent == codec.agent());
        let mut kept: Option<Kept> = None;
        let continues = |source: &SourceFile| {
            let facts = codec.reader(source.path.as_ref(), Some(state_of_codec(&source.state))).facts();
            facts.continues.is_some()
        };
        let lacks_base = thread.fork_point.is_none() && sources.iter().any(continues);
        // Only lines can have something put behind them.
        let is_lines = |source: &&SourceFile| codec.shape(source.path.as_ref(), &[]) == Shape::Lines;
        for source in sources.iter().filter(|_| at.is_none()).filter(is_lines) {
            let candidate = kept_file(store, thread, source, codec)?;
            // Where several files lead to the thread, the longest has the most of it.
            let is_longer = |known: &Kept, new: &Kept| known.depth < new.depth;
            if let Some(new) = candidate.filter(|new| kept.as_ref().is_none_or(|known| is_longer(known, new))) {
                kept = Some(new);
            }
        }
        // Of an agent that knows its records by their ids, a session that is whole is the same one in whatever form it lay.
        let is_found = |session: &Session| codec.place(session).is_some() || codec.taking_in(&PathBuf::new()).is_some();
        let is_named = is_found(&Session {
            cwd: Some(PathBuf::from(NOWHERE)),
            ..Session::new(thread.id.to_string(), thread.created_at)
        });
        let mut is_there = !sources.is_empty();
        for source in sources.iter().filter(|source| is_named && at.is_none() && !is_lines(source)) {
            is_there &= kept_file(store, thread, source, codec)?.is_none();
        }
        let session = session(thread, at, codec, kept.as_ref().map(|kept| &kept.facts), is_there);
        Ok(Self { session, kept, lacks_base })
    }
}

/// The file, if the thread's active path leads through the end of it.
fn kept_file(store: &Store, thread: &Thread, source: &SourceFile, codec: &dyn Codec) -> Result<Option<Kept>> {
    let mut reader = codec.reader(source.path.as_ref(), Some(state_of_codec(&source.state)));
    let mut placed: Vec<ItemId> = Vec::new();
    let mut after = -1;
    loop {
        let page = store.known_records(&source.path, after, KNOWN_PAGE)?;
        let Some(last) = page.last() else { break };
        after = last.position;
        for record in &page {
            reader.known(&KnownRecord { source_id: record.source_id.as_deref(), note: &record.note });
            placed.push(record.item);
        }
    }
    let head = match reader.head() {
        Some(no) => placed.get(no as usize),
        None => placed.last(),
    };
    let facts = reader.facts();
    // A file that stands on another one says nothing without that.
    if facts.continues.is_some() {
        return Ok(None);
    }
    let Some(head) = head else {
        let depth = None;
        return Ok(thread.head.is_none().then(|| Kept { source: source.clone(), depth, facts }));
    };
    let address = match store.address_of(&thread.id, *head) {
        Ok(address) => address,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_active = match store.address_at(&thread.id, address.depth) {
        Ok(active) => active == address,
        Err(Error::NotFound { .. } | Error::Invalid { .. }) => false,
        Err(error) => return Err(error),
    };
    Ok(is_active.then(|| Kept { source: source.clone(), depth: Some(address.depth), facts }))
}

/// What is said of a thread that is written whole, under its own id.
pub(super) fn session_of(thread: &Thread, codec: &dyn Codec) -> Session {
    session(thread, None, codec, None, false)
}

/// What is said of the session. One that leaves the agent's own file behind, and would lie where that lies, is another session.
fn session(
    thread: &Thread,
    at: Option<Address>,
    codec: &dyn Codec,
    kept: Option<&ThreadFacts>,
    is_there: bool,
) -> Session {
    let details = &thread.details;
    let is_own = details.agent.as_deref() == Some(codec.agent());
    let (id, forked_from) = match (kept, at.or(thread.head.filter(|_| is_there))) {
        (Some(facts), _) => (facts.session_id.clone().unwrap_or_else(|| thread.id.to_string()), None),
        (None, Some(at)) => (format!("{} {at}", thread.id), Some(thread.id.to_string())),
        (None, None) => (thread.id.to_string(), thread.forked_from.as_ref().map(ToString::to_string)),
    };
    // What the file says already need not be said again; a sub-agent's title stands in a file of its own.
    let is_said = kept.is_some_and(|facts| facts.title == details.title || facts.parent_session.is_some());
    Session {
        title: details.title.clone().filter(|_| !is_said),
        preview: details.preview.clone(),
        cwd: details.cwd.as_deref().map(PathBuf::from),
        model: details.model.clone(),
        provider: details.provider.clone(),
        cli_version: details.cli_version.clone().filter(|_| is_own),
        git_sha: details.git_sha.clone(),
        git_branch: details.git_branch.clone(),
        git_origin: details.git_origin.clone(),
        forked_from,
        updated_at: thread.updated_at,
        ..Session::new(id, thread.created_at)
    }
}
