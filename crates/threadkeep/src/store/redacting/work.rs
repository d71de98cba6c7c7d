//! Masking what rules find in tools and in workflow runs.

use super::Redaction;
use super::state::{ATTEMPTS, masked_text};
use crate::db::{Sync, Tx};
use crate::error::{Error, Result};
use crate::id::ThreadId;
use crate::log::redact;
use crate::runs::texts::{self, Form, Rows, Texts};
use crate::secrets::{Found, Rules};
use crate::tools;

impl Redaction<'_> {
    /// Masks what rules find in the tools of a thread.
    pub(super) async fn mask_tools(&mut self, thread: &ThreadId, rules: &Rules) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let id = thread.clone();
            let before = self.inner().db.read(move |tx| tools::texts(tx, &id)).await?;
            let (mut after, mut all) = (before.clone(), Vec::new());
            for (_, texts) in &mut after {
                for (text, is_json) in texts.iter_mut().zip(tools::ARE_JSON) {
                    mask(rules, text, if is_json { Form::Json } else { Form::Words }, &mut all);
                }
            }
            if after == before {
                return Ok(());
            }
            if self.apply {
                let (id, store, grounds) = (thread.clone(), self.inner().id, self.grounds_for(&all));
                let put = move |tx: &mut dyn Tx| {
                    let is_put = tools::put_texts(tx, &id, &before, &after)?;
                    if is_put {
                        redact::note_beside(tx, store, &id, &grounds)?;
                    }
                    Ok(is_put)
                };
                if !self.inner().db.write(Sync::Synced.within(thread.as_str()), put).await? {
                    continue;
                }
            }
            self.note_rules(&all);
            self.note_field(thread, "tools");
            return Ok(());
        }
        Err(Error::Busy { detail: format!("the tools of thread {thread} are changed all the time") })
    }

    /// Masks what rules find in the runs of a thread, or in those of none.
    pub(super) async fn mask_runs(&mut self, thread: Option<&ThreadId>, rules: &Rules) -> Result<()> {
        let mut after = String::new();
        loop {
            let (scope, id, from) = (self.threads.scope, thread.cloned(), after);
            let next = self.inner().db.read(move |tx| texts::next_run(tx, scope, id.as_ref(), &from)).await?;
            let Some(run) = next else { return Ok(()) };
            let mut masked = false;
            for rows in Rows::ALL {
                masked |= self.mask_rows(thread, &run, rows, rules).await?;
            }
            match thread {
                Some(thread) if masked => self.note_field(thread, "run"),
                None if masked => self.report.runs += 1,
                _ => {}
            }
            after = run;
        }
    }

    /// Masks the texts of a run that stand in such rows; says whether there was anything to mask.
    async fn mask_rows(&mut self, thread: Option<&ThreadId>, run: &str, rows: Rows, rules: &Rules) -> Result<bool> {
        let (mut after, mut attempts, mut masked) = (-1, 0, false);
        loop {
            let (id, from) = (run.to_owned(), after);
            let page = self.inner().db.read(move |tx| texts::texts(tx, &id, rows, from)).await?;
            if page.is_empty() {
                return Ok(masked);
            }
            for before in page {
                let place = before.place;
                match self.mask_row(thread, run, rows, before, rules).await? {
                    Some(something) => {
                        masked |= something;
                        (after, attempts) = (place, 0);
                    }
                    None => {
                        attempts += 1;
                        if attempts == ATTEMPTS {
                            return Err(Error::Busy { detail: format!("run {run} is changed all the time") });
                        }
                        break;
                    }
                }
            }
        }
    }

    /// Masks the texts of a row; says whether there was anything to mask, and nothing when somebody changed it meanwhile.
    async fn mask_row(
        &mut self,
        thread: Option<&ThreadId>,
        run: &str,
        rows: Rows,
        before: Texts,
        rules: &Rules,
    ) -> Result<Option<bool>> {
        let (mut after, mut all) = (before.clone(), Vec::new());
        for (text, form) in after.texts.iter_mut().zip(rows.forms()) {
            mask(rules, text, *form, &mut all);
        }
        if after == before {
            return Ok(Some(false));
        }
        if self.apply {
            let (run, thread) = (run.to_owned(), thread.cloned());
            let (store, grounds) = (self.inner().id, self.grounds_for(&all));
            let put = move |tx: &mut dyn Tx| {
                if !texts::put(tx, &run, rows, &before, &after)? {
                    return Ok(false);
                }
                match &thread {
                    Some(thread) => redact::note_beside(tx, store, thread, &grounds)?,
                    None => redact::note_erasure(tx)?,
                }
                Ok(true)
            };
            if !self.inner().db.write(Sync::Synced.free().told(), put).await? {
                return Ok(None);
            }
        }
        self.note_rules(&all);
        Ok(Some(true))
    }
}

/// Masks a text in its place, and adds what was found in it. What was an array stays one.
fn mask(rules: &Rules, text: &mut Option<String>, form: Form, all: &mut Vec<Found>) {
    let Some((mut masked, found)) =
        text.as_ref().and_then(|text| masked_text(rules, text.as_bytes(), form != Form::Words))
    else {
        return;
    };
    if form == Form::List && !masked.trim_ascii_start().starts_with('[') {
        masked = format!("[{masked}]");
    }
    *text = Some(masked);
    all.extend(found);
}
