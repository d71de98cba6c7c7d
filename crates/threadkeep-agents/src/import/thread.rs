//! The thread that a file belongs to, and what the file says of it.

use threadkeep::{Address, Change, Details, Error, ItemId, Shelf, Thread, ThreadId, ThreadPatch};

use super::identity::{item_id, other_thread_id, thread_id};
use super::source::{Failure, Import, KNOWN_PAGE};
use crate::codec::{Record, ThreadFacts};

/// The item of its parent that a delta-style fork begins at.
pub(super) struct ForkPoint {
    pub(super) parent: ThreadId,
    pub(super) address: Address,
    pub(super) item: ItemId,
}

/// The thread that a file belongs to.
pub(super) struct Chosen {
    pub(super) id: ThreadId,
    /// Whether it is in the store.
    pub(super) exists: bool,
    /// Whether it has no items yet.
    pub(super) is_new: bool,
    /// Where it is to begin, when it is a delta-style fork that is not in the store.
    pub(super) fork: Option<ForkPoint>,
    /// The item that its roots stand on.
    pub(super) base: Option<ItemId>,
}

impl Import<'_> {
    /// Chooses the file's thread: one that begins with the file's first record, else a new one.
    pub(super) fn choose_thread(
        &self,
        facts: &ThreadFacts,
        bytes: &[u8],
        first: &Record,
        taken: &[ThreadId],
    ) -> Result<Chosen, Failure> {
        let stem = || self.file.path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let session = facts.session_id.as_deref().and_then(thread_id).or_else(|| stem().as_deref().and_then(thread_id));
        let Some(id) = session else {
            return Err(Failure::File("the session has no usable id".to_owned()));
        };
        let other = other_thread_id(&id, &self.file.key);
        let others = self.codec.stood_in_by(&self.file.path);
        let is_on_its_way = [Some(&id), other.as_ref()].into_iter().flatten().any(|id| self.flight.holds(id));
        if is_on_its_way || facts.continues.is_some() || !others.is_empty() {
            self.flight.land();
        }
        for path in others {
            let source = self.store.source(&path.to_string_lossy())?;
            let thread =
                source.and_then(|source| source.thread).map(|thread| self.find(&thread)).transpose()?.flatten();
            if let Some(thread) = thread.filter(|thread| thread.shelf != Shelf::Trashed) {
                return Ok(Chosen { id: thread.id, exists: true, is_new: false, fork: None, base: None });
            }
        }
        for id in [Some(id), other].into_iter().flatten() {
            let Some(thread) = self.find(&id)? else {
                if taken.contains(&id) {
                    continue;
                }
                let fork = self.fork_point(facts)?;
                let base = fork.as_ref().map(|fork| fork.item);
                return Ok(Chosen { id, exists: false, is_new: true, fork, base });
            };
            if thread.shelf == Shelf::Trashed {
                let reason = format!("its thread {id} is in the trash; restore it to import the file");
                return Err(Failure::File(reason));
            }
            let base = self.base_of(&thread, facts)?;
            let is_new = self.was_left_empty(&thread, facts)?;
            if is_new || self.begins_with(&id, base, bytes, first)? {
                return Ok(Chosen { id, exists: true, is_new, fork: None, base });
            }
        }
        Err(Failure::File("its id is taken by other conversations".to_owned()))
    }

    pub(super) fn find(&self, id: &ThreadId) -> Result<Option<Thread>, Failure> {
        match self.store.get(id) {
            Ok(thread) => Ok(Some(thread)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the thread begins with this record: then it is the same conversation in another file.
    fn begins_with(&self, id: &ThreadId, base: Option<ItemId>, bytes: &[u8], first: &Record) -> Result<bool, Failure> {
        let root = item_id(id, base, bytes, first.created_at);
        Ok(!self.store.stored_items(vec![root])?.is_empty())
    }

    /// Whether an import made this thread for the file and was killed before it stored an item.
    fn was_left_empty(&self, thread: &Thread, facts: &ThreadFacts) -> Result<bool, Failure> {
        if thread.items > 0 || thread.details.agent.as_deref() != Some(self.codec.agent()) {
            return Ok(false);
        }
        let Some(point) = thread.fork_point else {
            return Ok(true);
        };
        Ok(self.fork_point(facts)?.is_some_and(|fork| fork.address == point))
    }

    /// The item that the roots of a stored thread stand on.
    ///
    /// The thread itself knows it best: its parent may have been purged since, or imported only after it.
    pub(super) fn base_of(&self, thread: &Thread, facts: &ThreadFacts) -> Result<Option<ItemId>, Failure> {
        let Some(point) = thread.fork_point.filter(|_| facts.continues.is_some()) else {
            return Ok(None);
        };
        match self.store.item(&thread.id, point) {
            Ok(item) => Ok(Some(item.id)),
            Err(Error::Corrupt { place, detail }) => {
                Err(Failure::File(format!("the item that it continues is damaged: {place}: {detail}")))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The item of the parent session that a delta-style fork begins at, if that session is in the store.
    fn fork_point(&self, facts: &ThreadFacts) -> Result<Option<ForkPoint>, Failure> {
        let Some(continues) = &facts.continues else {
            return Ok(None);
        };
        let Some(parent) = thread_id(&continues.session) else {
            return Ok(None);
        };
        if self.find(&parent)?.is_none_or(|thread| thread.shelf == Shelf::Trashed) {
            return Ok(None);
        }
        let reader = self.codec.reader(&self.file.path, None);
        let mut base = None;
        for source in self.store.sources(&parent)? {
            let mut after = -1;
            loop {
                let page = self.store.known_records(&source.path, after, KNOWN_PAGE)?;
                let Some(last) = page.last() else { break };
                after = last.position;
                for record in &page {
                    if reader.ordinal(&record.note).is_some_and(|ordinal| ordinal < continues.end_ordinal) {
                        base = Some(record.item);
                    }
                }
            }
        }
        let Some(item) = base else { return Ok(None) };
        let address = self.store.address_of(&parent, item)?;
        Ok(Some(ForkPoint { parent, address, item }))
    }

    pub(super) fn details(&self, facts: &ThreadFacts) -> Details {
        Details {
            title: fit(facts.title.as_deref()),
            preview: fit(facts.preview.as_deref()),
            agent: Some(self.codec.agent().to_owned()),
            source: fit(facts.source.as_deref()),
            provider: fit(facts.provider.as_deref()),
            model: fit(facts.model.as_deref()),
            cwd: facts.cwd.as_deref().and_then(|cwd| fit(cwd.to_str())),
            rollout_path: fit(Some(&self.file.key)),
            git_sha: fit(facts.git_sha.as_deref()),
            git_branch: fit(facts.git_branch.as_deref()),
            git_origin: fit(facts.git_origin.as_deref()),
            cli_version: fit(facts.cli_version.as_deref()),
            sandbox_policy: fit(facts.sandbox_policy.as_deref()),
            approval_policy: fit(facts.approval_policy.as_deref()),
            memory_mode: fit(facts.memory_mode.as_deref()),
            persona: fit(facts.persona.as_deref()),
            working_path: fit(facts.working_path.as_deref()),
            parent: facts.parent_session.as_deref().and_then(thread_id),
            usage: facts.usage,
            ..Details::default()
        }
    }
}

/// What a file says anew of its thread; what it does not say stays.
pub(super) fn patch(said: &ThreadFacts, facts: &ThreadFacts) -> ThreadPatch {
    let set = |of: fn(&ThreadFacts) -> &Option<String>| match of(facts) {
        text if text == of(said) => Change::Keep,
        text => Change::from(fit(text.as_deref())),
    };
    ThreadPatch {
        title: set(|facts| &facts.title),
        preview: set(|facts| &facts.preview),
        provider: set(|facts| &facts.provider),
        model: set(|facts| &facts.model),
        cli_version: set(|facts| &facts.cli_version),
        git_branch: set(|facts| &facts.git_branch),
        git_sha: set(|facts| &facts.git_sha),
        git_origin: set(|facts| &facts.git_origin),
        sandbox_policy: set(|facts| &facts.sandbox_policy),
        approval_policy: set(|facts| &facts.approval_policy),
        memory_mode: set(|facts| &facts.memory_mode),
        persona: set(|facts| &facts.persona),
        working_path: set(|facts| &facts.working_path),
        usage: facts.usage.into(),
        ..ThreadPatch::default()
    }
}

/// Text that the store takes: without NUL, and not longer than it keeps.
fn fit(text: Option<&str>) -> Option<String> {
    const LONGEST: usize = 16 << 10;
    let text = text?.replace('\0', "\u{fffd}");
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).map(str::to_owned)
}
