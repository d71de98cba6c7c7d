//! Counting what is left behind.

use std::collections::BTreeMap;

use super::Loss;

/// What writers leave behind, in words that are the same for all of them.
pub(crate) mod lost {
    /// Thoughts.
    pub(crate) const THOUGHTS: &str = "thoughts, which are sealed for the model that had them";
    /// What an agent tells its model by itself.
    pub(crate) const INSTRUCTIONS: &str = "instructions and settings of the agent that the session comes from";
    /// Results that answer nothing.
    pub(crate) const RESULTS: &str = "results of calls that are not in the session";
    /// Calls that nothing answers.
    pub(crate) const CALLS: &str = "calls without a result, which the agent passes over";
    /// Ids of calls in another form.
    pub(crate) const CALL_IDS: &str = "ids of calls that had to be changed";
    /// Names of tools in another form.
    pub(crate) const TOOL_NAMES: &str = "names of tools that had to be changed";
    /// Arguments in another form.
    pub(crate) const ARGUMENTS: &str = "arguments of calls that were no object and are put into one";
    /// Media that can't be told.
    pub(crate) const MEDIA: &str = "pictures and files, named where they stood";
    /// Marks of failure.
    pub(crate) const FAILURES: &str = "marks that a call failed, where its result does not say so itself";
    /// Injected text that a file can't set apart.
    pub(crate) const INJECTED: &str = "texts that the agent gave as the person's, which now stand as the person's own";
    /// Counts of tokens.
    pub(crate) const USAGE: &str = "tokens of single answers";
    /// Names of models.
    pub(crate) const MODELS: &str = "names of the models that answered";
    /// What another session has.
    pub(crate) const BASE: &str = "history of another session, which this one stands on and which is not in the store";
    /// What was redacted.
    pub(crate) const REDACTED: &str = "records that were redacted";
    /// What no message can be made of.
    pub(crate) const UNREAD: &str =
        "messages, calls, results, thoughts or summaries in a form that no message can be made of";
    /// Damage.
    pub(crate) const DAMAGE: &str = "damaged parts of the file that it was imported from";
    /// Characters that are none.
    pub(crate) const LETTERS: &str = "records with characters that no text can have, which are replaced";
    /// Calls of which only a digest is kept.
    pub(crate) const CALL_BODIES: &str = "arguments and results of calls, of which the agent keeps digests";
    /// Goals.
    pub(crate) const GOALS: &str = "goals, or a part of one that the agent has no place for";
    /// Checkpoints.
    pub(crate) const CHECKPOINTS: &str = "checkpoints, which the agent has no place for";
    /// Tools.
    pub(crate) const TOOLS: &str = "lists of tools, which the agent has no place for";
    /// Documents.
    pub(crate) const DOCUMENTS: &str = "documents, which the agent has no place for";
    /// Messages that wait.
    pub(crate) const INBOX: &str = "messages that wait in an inbox, which the agent has not";
    /// Requests.
    pub(crate) const REQUESTS: &str = "requests that somebody was asked, and what was answered";
    /// Roadmaps.
    pub(crate) const ROADMAPS: &str = "roadmaps, or places in one";
    /// Jobs.
    pub(crate) const JOBS: &str = "jobs and workflow runs, or a part of one that the agent has no place for";
    /// Receipts.
    pub(crate) const RECEIPTS: &str = "receipts of prompts and artifacts, of which only the words are written";
    /// Branches.
    pub(crate) const BRANCHES: &str = "items of other branches than the one that the thread stands on";
    /// Cleared branches.
    pub(crate) const CLEARED: &str = "branches that were cleared";
    /// Rows.
    pub(crate) const ROWS: &str = "rows that another row of the same key keeps out";
    /// Rows that are not whole without a secret.
    pub(crate) const MASKED: &str = "rows with a secret in their bytes, or that can't be read once it is masked";
    /// Blank texts.
    pub(crate) const EMPTY: &str = "texts of nothing but space, which hosts of models refuse";
}

/// Counts losses.
#[derive(Debug, Default)]
pub(crate) struct Losses(BTreeMap<&'static str, u64>);

impl Losses {
    /// One more.
    pub(crate) fn count(&mut self, what: &'static str) {
        self.add(what, 1);
    }

    /// Some more, or none.
    pub(crate) fn add(&mut self, what: &'static str, count: u64) {
        if count > 0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    /// What others counted.
    pub(crate) fn merge(&mut self, others: Vec<Loss>) {
        others.into_iter().for_each(|loss| self.add(loss.what, loss.count));
    }

    /// All of them, in a stable order; counting begins anew.
    pub(crate) fn take(&mut self) -> Vec<Loss> {
        std::mem::take(&mut self.0).into_iter().map(|(what, count)| Loss { what, count }).collect()
    }
}
