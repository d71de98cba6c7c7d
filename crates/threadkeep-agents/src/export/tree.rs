//! The tree of a thread as entries: all of its branches, parents before what follows them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use threadkeep::blocking::Store;
use threadkeep::{
    ARTIFACT_FORMAT, Address, Artifact, Branch, BranchId, Item, ItemId, ItemQuery, PROMPT_FORMAT, Receipt, Result, Tree,
};

use super::{Mask, Told, digest, told};
use crate::codec::Codec;
use crate::json::mended;
use crate::writer::{Entry, Losses, Said, lost};

const ITEMS: usize = 512;

/// The entries of a thread.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub(super) entries: Vec<Entry>,
    /// The items that they are, in the same order.
    pub(super) items: Vec<ItemId>,
    pub(super) head: Option<usize>,
    /// Whether something was masked or taken away.
    pub(super) is_changed: bool,
}

/// What is needed to read a tree.
pub(super) struct Reading<'a> {
    pub(super) store: &'a Store,
    pub(super) codec: &'a dyn Codec,
    pub(super) codecs: &'a [Arc<dyn Codec>],
    pub(super) mask: &'a Mask<'a>,
}

impl Reading<'_> {
    /// Reads all branches of a tree but those that were cleared, each item once.
    pub(super) fn entries(&self, tree: &Tree, losses: &mut Losses) -> Result<Entries> {
        let wanted = wanted(tree);
        losses.add(lost::CLEARED, (tree.branches.len() - wanted.len()) as u64);
        let mut found = Entries::default();
        // Where the entries of a branch begin, and the depth of the first one.
        let mut begins: HashMap<BranchId, (usize, u32)> = HashMap::new();
        let place = |begins: &HashMap<BranchId, (usize, u32)>, at: Address| {
            let (begin, base) = begins.get(&at.branch)?;
            begin.checked_add(usize::try_from(at.depth.checked_sub(*base)?).ok()?)
        };
        for branch in tree.branches.iter().filter(|branch| wanted.contains(&branch.id)) {
            let mut parent = branch.parent.and_then(|at| place(&begins, at));
            begins.insert(branch.id, (found.entries.len(), branch.base));
            let mut before = HashSet::new();
            self.branch(tree, branch, &mut |item| {
                let said = self.said(tree, item, &mut before, &mut found.is_changed, losses)?;
                found.entries.push(Entry { parent, said, kind: item.kind.clone(), source_id: item.source_id.clone() });
                found.items.push(item.id);
                parent = Some(found.entries.len() - 1);
                Ok(())
            })?;
        }
        found.head = tree.head.and_then(|head| place(&begins, head)).filter(|head| *head < found.entries.len());
        Ok(found)
    }

    fn branch(&self, tree: &Tree, branch: &Branch, take: &mut dyn FnMut(&Item) -> Result<()>) -> Result<()> {
        let at = Some(Address { branch: branch.id, depth: branch.tip });
        let mut query = ItemQuery { at, from: branch.base, to: Some(branch.tip), limit: ITEMS, ..ItemQuery::default() };
        loop {
            let page = self.store.items(&tree.thread, query.clone())?;
            page.entries.iter().try_for_each(&mut *take)?;
            if page.next_cursor.is_none() {
                return Ok(());
            }
            query.cursor = page.next_cursor;
        }
    }

    fn said(
        &self,
        tree: &Tree,
        item: &Item,
        before: &mut HashSet<u64>,
        is_changed: &mut bool,
        losses: &mut Losses,
    ) -> Result<Said> {
        *is_changed |= item.redaction.is_some();
        if item.redaction.is_some() && item.content.is_empty() {
            losses.count(lost::REDACTED);
            return Ok(Said::Nothing);
        }
        let masked = (self.mask)(&item.content);
        *is_changed |= masked.is_some();
        let content = masked.as_deref().unwrap_or(&item.content);
        if item.format == self.codec.format() {
            let mended = mended(content);
            losses.add(lost::LETTERS, u64::from(mended.is_some()));
            return Ok(Said::Own(mended.unwrap_or_else(|| content.to_vec())));
        }
        let is_kept = matches!(item.format.as_str(), PROMPT_FORMAT | ARTIFACT_FORMAT);
        if is_kept && item.source_id.is_some() && !before.insert(digest(item, None)) {
            return Ok(Said::Nothing);
        }
        if item.format == PROMPT_FORMAT {
            let mut prompt = self.store.prompt(&tree.thread, Receipt::try_from(item)?.id)?;
            if let Some(text) = (self.mask)(prompt.text.as_bytes()) {
                prompt.text = String::from_utf8_lossy(&text).into_owned();
            }
            prompt.raw = (self.mask)(&prompt.raw).unwrap_or(prompt.raw);
            return Ok(Said::Prompt(Box::new(prompt)));
        }
        if item.format == ARTIFACT_FORMAT {
            return Ok(Said::Artifact(Box::new(self.artifact(item)?)));
        }
        Ok(match told(self.codecs, item, content, before) {
            Told::Message(message) => Said::Message(message.with_tool_as_injected()),
            Told::Lost(what) => {
                losses.count(what);
                Said::Nothing
            }
            Told::Nothing => Said::Nothing,
        })
    }

    fn artifact(&self, item: &Item) -> Result<Artifact> {
        let mut artifact = Artifact::try_from(item)?;
        let masked =
            |text: &str| (self.mask)(text.as_bytes()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        for text in [&mut artifact.body, &mut artifact.locator].into_iter().flatten() {
            if let Some(masked) = masked(text) {
                *text = masked;
            }
        }
        artifact.metadata = masked(&artifact.metadata).unwrap_or(artifact.metadata);
        Ok(artifact)
    }
}

/// The branches that were not cleared, and those that these stand on.
fn wanted(tree: &Tree) -> HashSet<BranchId> {
    let mut wanted = HashSet::new();
    for branch in tree.branches.iter().rev() {
        if !branch.cleared || branch.active {
            wanted.insert(branch.id);
        }
        if let Some(parent) = branch.parent.filter(|_| wanted.contains(&branch.id)) {
            wanted.insert(parent.branch);
        }
    }
    wanted
}
