//! Masking what rules find in documents, former versions and names included, and in roadmaps.

use super::Redaction;
use super::state::{ATTEMPTS, masked_text};
use crate::content;
use crate::copy::CopyProblem;
use crate::db::{Sync, Tx};
use crate::documents::{self, TextPlace, schema};
use crate::error::{Error, Result};
use crate::id::ThreadId;
use crate::log::redact;
use crate::roadmaps::{self, Texts};
use crate::secrets::{Found, Rules};

impl Redaction<'_> {
    /// Masks what rules find in the documents of a thread. A text stays what its kind allows.
    pub(super) async fn mask_documents(&mut self, thread: &ThreadId, rules: &Rules) -> Result<()> {
        let mut after = (String::new(), 0);
        loop {
            let (id, (name, version)) = (thread.clone(), after);
            let next = self.inner().db.read(move |tx| documents::next_text(tx, &id, (&name, version))).await?;
            let Some((place, text)) = next else { break };
            after = (place.name.clone(), place.version);
            match text {
                Ok(text) => self.mask_document(thread, place, &text, rules).await?,
                Err(error) => {
                    let problem = CopyProblem { thread: thread.clone(), kind: error.kind(), reason: error.to_string() };
                    self.report.problems.push(problem);
                }
            }
        }
        self.mask_document_names(thread, rules).await
    }

    async fn mask_document(&mut self, thread: &ThreadId, place: TextPlace, text: &str, rules: &Rules) -> Result<()> {
        let Some((mut masked, found)) = masked_text(rules, text.as_bytes(), true) else { return Ok(()) };
        if schema::check(&place.kind, &masked).is_err() {
            masked = schema::stand_in(&place.kind, Rules::whole_marker());
        }
        self.note_rules(&found);
        self.note_field(thread, "document");
        if !self.apply {
            return Ok(());
        }
        let (id, store, grounds) = (thread.clone(), self.inner().id, self.grounds_for(&found));
        let text = content::encode_blob(masked.as_bytes());
        let put = move |tx: &mut dyn Tx| {
            documents::replace_text(tx, &id, &place, &text)?;
            redact::note_beside(tx, store, &id, &grounds)
        };
        self.inner().db.write(Sync::Synced.within(thread.as_str()), put).await
    }

    async fn mask_document_names(&mut self, thread: &ThreadId, rules: &Rules) -> Result<()> {
        let mut after = String::new();
        loop {
            let (id, from) = (thread.clone(), after.clone());
            let names = self.inner().db.read(move |tx| documents::names(tx, &id, &from)).await?;
            let Some(last) = names.last() else { return Ok(()) };
            after.clone_from(last);
            for name in names {
                let Some((masked, found)) = masked_text(rules, name.as_bytes(), false) else { continue };
                self.note_rules(&found);
                self.note_field(thread, "document name");
                if !self.apply {
                    continue;
                }
                let (id, store, grounds) = (thread.clone(), self.inner().id, self.grounds_for(&found));
                let put = move |tx: &mut dyn Tx| {
                    documents::rename(tx, &id, &name, &masked)?;
                    redact::note_beside(tx, store, &id, &grounds)
                };
                self.inner().db.write(Sync::Synced.within(thread.as_str()), put).await?;
            }
        }
    }

    /// Masks what rules find in the roadmaps that the handle sees.
    pub(super) async fn mask_roadmaps(&mut self, rules: &Rules) -> Result<()> {
        let (mut after, mut attempts) = ((Vec::new(), String::new()), 0);
        loop {
            let (scope, (workspace, id)) = (self.threads.scope, after.clone());
            let read = move |tx: &mut dyn Tx| roadmaps::next_texts(tx, scope, (&workspace, &id));
            let Some(before) = self.inner().db.read(read).await? else { return Ok(()) };
            let place = (before.workspace.as_bytes().to_vec(), before.id.clone());
            if self.mask_roadmap(before, rules).await? {
                (after, attempts) = (place, 0);
                continue;
            }
            attempts += 1;
            if attempts == ATTEMPTS {
                return Err(Error::Busy { detail: format!("roadmap {} is changed all the time", place.1) });
            }
        }
    }

    /// Masks a roadmap; says whether it was as it had been looked at.
    async fn mask_roadmap(&mut self, before: Texts, rules: &Rules) -> Result<bool> {
        let Some((after, found)) = masked_roadmap(&before, rules) else { return Ok(true) };
        if self.apply {
            let (rules, now) = (rules.clone(), self.inner().host.now());
            let put = move |tx: &mut dyn Tx| {
                let renamed = |node: &str| masked_word(&rules, node);
                let is_put = roadmaps::put_texts(tx, (&before, &after), &renamed, now)?;
                if is_put {
                    redact::note_erasure(tx)?;
                }
                Ok(is_put)
            };
            if !self.inner().db.write(Sync::Synced.free().told(), put).await? {
                return Ok(false);
            }
        }
        self.note_rules(&found);
        self.report.roadmaps += 1;
        Ok(true)
    }
}

/// The texts of a roadmap with what the rules find masked, if they find anything. What was a tree stays one.
fn masked_roadmap(before: &Texts, rules: &Rules) -> Option<(Texts, Vec<Found>)> {
    let (mut after, mut all) = (before.clone(), Vec::new());
    if let Some((masked, found)) = masked_text(rules, before.text.as_bytes(), false) {
        all.extend(found);
        let fits = roadmaps::is_tree(&masked) || !roadmaps::is_tree(&before.text);
        let marker = serde_json::Value::from(Rules::whole_marker());
        after.text = if fits { masked } else { format!("goal = {marker}\n") };
    }
    let title = before.title.as_ref().and_then(|title| masked_text(rules, title.as_bytes(), false));
    if let Some((masked, found)) = title {
        all.extend(found);
        after.title = Some(masked);
    }
    (after != *before).then_some((after, all))
}

fn masked_word(rules: &Rules, word: &str) -> String {
    masked_text(rules, word.as_bytes(), false).map_or_else(|| word.to_owned(), |(masked, _)| masked)
}
