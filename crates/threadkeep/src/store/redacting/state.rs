//! Masking what rules find in jobs and in the states of checkpoints. Goals stand with the other texts of a thread.

use super::{Redaction, names_of, rule_words};
use crate::checkpoints;
use crate::content;
use crate::copy::CopyProblem;
use crate::db::{Sync, Tx};
use crate::error::{Error, Result};
use crate::id::ThreadId;
use crate::jobs::{self, Texts};
use crate::log::redact::{self, Grounds};
use crate::secrets::{Found, Masked, Rules};

/// How often something is looked at again that somebody changes meanwhile.
pub(super) const ATTEMPTS: usize = 8;

impl Redaction<'_> {
    /// Masks what rules find in the states of a thread's checkpoints.
    pub(super) async fn mask_checkpoints(&mut self, thread: &ThreadId, rules: &Rules) -> Result<()> {
        let mut after = Vec::new();
        loop {
            let (id, from) = (thread.clone(), after);
            let next = self.inner().db.read(move |tx| checkpoints::next_state(tx, &id, &from)).await?;
            let Some((digest, state)) = next else { return Ok(()) };
            after = digest.0.to_vec();
            let state = match state {
                Ok(state) => state,
                Err(error) => {
                    let problem = CopyProblem { thread: thread.clone(), kind: error.kind(), reason: error.to_string() };
                    self.report.problems.push(problem);
                    continue;
                }
            };
            let Some((masked, found)) = masked_text(rules, &state, true) else { continue };
            self.note_rules(&found);
            self.note_field(thread, "checkpoint");
            if !self.apply {
                continue;
            }
            let grounds = self.grounds_for(&found);
            let (id, store, state) = (thread.clone(), self.inner().id, content::encode_blob(masked.as_bytes()));
            let put = move |tx: &mut dyn Tx| {
                checkpoints::replace_state(tx, &id, digest, &state)?;
                redact::note_beside(tx, store, &id, &grounds)
            };
            self.inner().db.write(Sync::Synced.within(thread.as_str()), put).await?;
        }
    }

    /// Masks what rules find in the jobs of a thread, or in those of none.
    pub(super) async fn mask_jobs(&mut self, thread: Option<&ThreadId>, rules: &Rules) -> Result<()> {
        let (mut after, mut attempts) = (String::new(), 0);
        loop {
            let (scope, id, from) = (self.threads.scope, thread.cloned(), after.clone());
            let page = self.inner().db.read(move |tx| jobs::texts(tx, scope, id.as_ref(), &from)).await?;
            if page.is_empty() {
                return Ok(());
            }
            for before in page {
                let last = before.id.clone();
                if self.mask_job(thread, before, rules).await? {
                    (after, attempts) = (last, 0);
                    continue;
                }
                attempts += 1;
                if attempts == ATTEMPTS {
                    return Err(Error::Busy { detail: format!("job {last} is changed all the time") });
                }
                break;
            }
        }
    }

    /// Masks a job; says whether it was as it had been looked at.
    async fn mask_job(&mut self, thread: Option<&ThreadId>, before: Texts, rules: &Rules) -> Result<bool> {
        let (mut after, mut all) = (before.clone(), Vec::new());
        for (text, is_json) in after.texts.iter_mut().zip(Texts::ARE_JSON) {
            let masked = text.as_ref().and_then(|text| masked_text(rules, text.as_bytes(), is_json));
            if let Some((masked, found)) = masked {
                *text = Some(masked);
                all.extend(found);
            }
        }
        if after == before {
            return Ok(true);
        }
        if self.apply {
            let (id, store, grounds) = (thread.cloned(), self.inner().id, self.grounds_for(&all));
            let put = move |tx: &mut dyn Tx| {
                if !jobs::put_texts(tx, &before, &after)? {
                    return Ok(false);
                }
                match &id {
                    Some(thread) => redact::note_beside(tx, store, thread, &grounds)?,
                    None => redact::note_erasure(tx)?,
                }
                Ok(true)
            };
            if !self.inner().db.write(Sync::Synced.free().told(), put).await? {
                return Ok(false);
            }
        }
        self.note_rules(&all);
        match thread {
            Some(thread) => self.note_field(thread, "job"),
            None => self.report.jobs += 1,
        }
        Ok(true)
    }

    pub(super) fn note_field(&mut self, thread: &ThreadId, field: &str) {
        self.touched.insert(thread.clone());
        self.report.beside.entry(thread.clone()).or_default().insert(field.to_owned());
    }

    pub(super) fn grounds_for(&self, found: &[Found]) -> Grounds {
        Grounds { rule: Some(rule_words(&names_of(found))), ..self.grounds.clone() }
    }
}

/// A text with what the rules find masked, and what that was; nothing when they find nothing. What was JSON stays JSON.
pub(super) fn masked_text(rules: &Rules, text: &[u8], is_json: bool) -> Option<(String, Vec<Found>)> {
    let (bytes, found) = match rules.mask(text) {
        Masked::NothingFound => return None,
        Masked::Masked { bytes, found } => (bytes, found),
        Masked::CannotMask => (Rules::whole_marker().as_bytes().to_vec(), rules.find(text)),
    };
    let masked = String::from_utf8_lossy(&bytes).into_owned();
    let fits = !is_json || serde_json::from_str::<serde::de::IgnoredAny>(&masked).is_ok();
    let masked = if fits { masked } else { serde_json::Value::from(Rules::whole_marker()).to_string() };
    Some((masked, found))
}
