//! What stands beside a conversation in its agent's store, in the words of the library. Pure: nothing here is stored.
//!
//! A reader that finds such a thing says so; [`crate::import`] brings it into the store, once, and leaves alone what was
//! changed there meanwhile. What can't be told in these words stays beside the conversation, as bytes.

use std::path::PathBuf;

use threadkeep::{JobStatus, NewGoal, RunStatus, Status};

/// Something that belongs to a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Companion {
    /// Its goal.
    Goal(Box<NewGoal>),
    /// A state that was saved under a name: JSON.
    Checkpoint {
        /// The name.
        name: String,
        /// The state.
        state: String,
    },
    /// Its tools.
    Tools(Vec<threadkeep::Tool>),
    /// A document.
    Document {
        /// The name.
        name: &'static str,
        /// JSON.
        text: String,
    },
    /// A message that waits in its inbox.
    Message {
        /// The message's id in the agent's store.
        id: String,
        /// What it says.
        body: String,
    },
    /// A request that somebody was asked. It comes into the store as one that was withdrawn: what was granted there, or may
    /// yet be, grants nothing here.
    Request {
        /// The request's id in the agent's store.
        id: String,
        /// What was asked, in a word.
        subject: &'static str,
        /// What was asked: the agent's own JSON.
        detail: String,
        /// Whether it asks to let somebody in.
        enrols: bool,
        /// Whether its agent says that little can go wrong.
        is_low: bool,
        /// What came of it.
        outcome: String,
    },
    /// Its place in a roadmap.
    Link {
        /// The roadmap.
        roadmap: String,
        /// The node.
        node: Option<String>,
    },
    /// How far it is.
    Standing {
        /// Its status.
        status: Status,
        /// Why it ended.
        end_reason: Option<String>,
    },
}

impl Companion {
    /// What distinguishes it from the conversation's other companions.
    pub fn key(&self) -> String {
        match self {
            Self::Goal(_) => "goal".to_owned(),
            Self::Checkpoint { name, .. } => format!("checkpoint {name}"),
            Self::Tools(_) => "tools".to_owned(),
            Self::Document { name, .. } => format!("document {name}"),
            Self::Message { id, .. } => format!("message {id}"),
            Self::Request { id, .. } => format!("request {id}"),
            Self::Link { .. } => "roadmap link".to_owned(),
            Self::Standing { .. } => "status".to_owned(),
        }
    }

    /// Tells whether it has changed in the agent's store.
    pub fn digest(&self) -> String {
        let hash = blake3::hash(format!("{self:?}").as_bytes()).to_hex();
        hash.as_str().get(..32).unwrap_or_default().to_owned()
    }
}

/// Something that belongs to an agent's store and to no conversation of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Shared {
    /// A roadmap.
    Roadmap {
        /// The folder that it belongs to, where a conversation says it.
        folder: Option<PathBuf>,
        /// The library's workspace that has it, where it comes from there.
        workspace: Option<String>,
        /// Its id.
        id: String,
        /// Its title.
        title: Option<String>,
        /// Its tree: TOML.
        text: String,
    },
    /// A job. It comes into the store paused where it has not ended: its agent may still run it.
    Job {
        /// Its id.
        id: String,
        /// What it is.
        name: String,
        /// How far it is, in the agent's word.
        status: String,
        /// In percent.
        progress: Option<u8>,
        /// What there is to say of it.
        detail: Option<String>,
        /// Its row, as JSON.
        row: String,
    },
    /// A run of a workflow.
    Run {
        /// Its id.
        id: String,
        /// The workflow.
        workflow: String,
        /// What is to be reached.
        goal: Option<String>,
        /// How far it is.
        status: RunStatus,
        /// What it was given.
        input_hash: Option<String>,
        /// JSON.
        metadata: Option<String>,
    },
    /// A part of a run.
    Part {
        /// Its id.
        id: String,
        /// The run's id.
        run: String,
        /// What it is.
        kind: PartWords,
        /// How far it is.
        status: RunStatus,
        /// JSON.
        result: Option<String>,
        /// A JSON array.
        list: Option<String>,
    },
    /// An answer among which a control node chooses.
    Candidate {
        /// Its id.
        id: String,
        /// The run's id.
        run: String,
        /// The control node's id.
        control: String,
        /// The branch that it comes from.
        branch_run: Option<String>,
        /// Its name in the workflow.
        candidate: String,
        /// A number as JSON writes it.
        score: Option<String>,
        /// Whether it passed.
        passed: Option<bool>,
        /// JSON.
        rationale: Option<String>,
    },
}

/// What becomes of a job of an agent's when it is brought: it is paused where it has not ended, since its agent may still run it.
pub fn job_status(word: &str) -> JobStatus {
    match JobStatus::from_word(word) {
        ended @ (JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled) => ended,
        _ => JobStatus::Paused,
    }
}

/// What a part of a run is, with ids as its agent writes them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of `threadkeep::PartKind`")]
pub enum PartWords {
    /// A branch.
    Branch { branch: String, node: String },
    /// A task.
    Leaf { leaf: String, task: String, branch_run: Option<String>, input_hash: Option<String> },
    /// A node that decides.
    Control { node: String, control: String },
}
