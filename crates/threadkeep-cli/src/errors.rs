//! The one place that turns errors into exit codes, hints and error documents.

use std::io;

use serde_json::{Value, json};
use threadkeep::Error;

/// What a command ends with.
pub(crate) type Outcome = Result<Code, Failure>;

/// The exit codes that scripts build on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// It is done.
    Done = 0,
    /// It is not done, for a reason that no other code names.
    NotDone = 1,
    /// The command line or a given value can't be right.
    Usage = 2,
    /// What was named is not there.
    NotFound = 3,
    /// Stored data is damaged, or the file is no store.
    Corrupt = 5,
    /// The store was written by a newer version.
    Version = 6,
    /// Another process holds what is needed. Safe to retry.
    Busy = 7,
    /// Some of it is done.
    Partial = 8,
    /// Whoever was asked to choose left, as shells say it of what Ctrl-C ends.
    Left = 130,
}

/// Why a command did not end with a code of its own.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Whoever read the output has stopped reading; that is no error.
    BrokenPipe,
    /// The failure has been told already.
    Told(Code),
    /// The failure is to be told.
    Report(Box<Report>),
}

/// A failure as it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    /// The exit code.
    pub(crate) code: Code,
    /// The stable name of this kind of failure.
    pub(crate) kind: &'static str,
    /// What went wrong.
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) hint: Option<String>,
    /// Whether the same call can succeed later.
    pub(crate) retryable: bool,
}

impl Report {
    /// A failure of the command line.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, "usage", message)
    }

    /// A failure of this kind without a hint.
    pub(crate) fn new(code: Code, kind: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, kind, message, hint: None, retryable: false }
    }

    /// The same failure with a hint.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The document that `--json` prints.
    pub(crate) fn document(&self) -> Value {
        json!({"error": self.body()})
    }

    /// What stands under `error`.
    pub(crate) fn body(&self) -> Value {
        json!({
            "code": self.code as u8,
            "kind": self.kind,
            "message": self.message,
            "hint": self.hint,
            "retryable": self.retryable,
        })
    }
}

impl From<Report> for Failure {
    fn from(report: Report) -> Self {
        Self::Report(Box::new(report))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match &error {
            // Whoever read what was written has read enough.
            Error::Io { operation: "write", kind: io::ErrorKind::BrokenPipe, .. } => Self::BrokenPipe,
            _ => report(&error).into(),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Report::new(Code::NotDone, "io", error.to_string()).into(),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        io::Error::from(error).into()
    }
}

/// Tells a store's error.
pub(crate) fn report(error: &Error) -> Report {
    Report {
        code: code(error),
        kind: error.kind(),
        message: error.to_string(),
        hint: hint(error),
        retryable: error.is_retryable(),
    }
}

fn code(error: &Error) -> Code {
    match error {
        Error::NotFound { .. } | Error::Io { kind: io::ErrorKind::NotFound, .. } => Code::NotFound,
        Error::Ambiguous { .. } | Error::Invalid { .. } => Code::Usage,
        Error::Corrupt { .. } | Error::ForeignStore { .. } => Code::Corrupt,
        Error::SchemaTooNew { .. } | Error::RolloutTooNew { .. } => Code::Version,
        Error::Busy { .. } | Error::ClaimHeld { .. } | Error::ClaimLost { .. } => Code::Busy,
        // Archived, AlreadyExists, Conflict, Closed, Trimmed, Unsupported, StorageFull, ReadOnly, Backend, and what is yet to come.
        _ => Code::NotDone,
    }
}

fn hint(error: &Error) -> Option<String> {
    let hint = match error {
        Error::NotFound { .. } | Error::AlreadyExists { .. } | Error::Conflict { .. } => return hint_of_what(error),
        Error::Trimmed { .. } => "`threadkeep changes --index` says how far every thread is, and from where to go on",
        Error::Ambiguous { .. } => "give more of the id",
        Error::Archived { thread } => return Some(format!("`threadkeep unarchive {thread}` first")),
        Error::ClaimHeld { .. } => "wait until that program has let go of the thread, or end it",
        Error::ClaimLost { .. } => "another program writes the thread now; read it again",
        Error::Busy { .. } => "try again; what holds the store is named above",
        Error::StorageFull { .. } => "free some space and try again; nothing was half written",
        Error::Corrupt { .. } => {
            "`threadkeep verify` names every broken place, and what is not named is unaffected; `threadkeep doctor` says what \
             can be brought back"
        }
        Error::ForeignStore { .. } => "choose another folder or schema with --store",
        Error::Unsupported { operation: "backup" | "restore_backup" } => {
            "a store on a server is backed up by the server's own tools: `pg_dump --schema=NAME`"
        }
        Error::Unsupported { operation: "repair" } => {
            "a server's pages are repaired by its own tools; `threadkeep doctor` says the steps"
        }
        Error::Unsupported { operation: "mirror_rollouts" } => "name a folder with --rollouts DIR",
        Error::Io {
            operation: "connect to",
            kind: io::ErrorKind::InvalidData | io::ErrorKind::PermissionDenied,
            ..
        } => "`threadkeep doctor` says more of the way to the server",
        Error::Io { operation: "connect to", .. } => "see that the server runs and takes connections from here",
        Error::Io { operation: "commit to", .. } => "look at what is stored before you ask for it again",
        Error::SchemaTooNew { place, .. } if place.starts_with("postgres") => {
            "the store was not touched; to go back, restore the dump that was made before it was brought forward"
        }
        Error::SchemaTooNew { .. } => {
            "the store was not touched; its folder `backups` holds it as it was before, which `restore-backup` puts back"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// What to do about something that is not there, that is there already, or that is not as it was expected: by what it is.
fn hint_of_what(error: &Error) -> Option<String> {
    let hint = match error {
        Error::NotFound { what: "store", .. } => NO_STORE_HINT,
        Error::NotFound { what: "thread", .. } => {
            "`threadkeep list` shows the threads; `--archived` and `--trash` the others"
        }
        Error::NotFound { what: "thread in the trash", .. } => "`threadkeep list --trash` shows what can be restored",
        Error::NotFound { what: "item" | "branch", .. } => {
            "`threadkeep tree THREAD` shows the branches and their depths"
        }
        Error::NotFound { what: "goal of thread", .. } => "`threadkeep goal set` gives it one",
        Error::NotFound { what: "job", .. } => "`threadkeep job list` shows the jobs",
        Error::NotFound { what: "run", .. } => "`threadkeep run list` shows the runs",
        Error::NotFound { what: "part" | "candidate" | "branch of the run" | "control node of the run", .. } => {
            "`threadkeep run show RUN` shows what belongs to a run"
        }
        Error::NotFound { what: "checkpoint", .. } => "`threadkeep checkpoint list THREAD` shows them",
        Error::NotFound { what: "document", .. } => "`threadkeep doc list THREAD` shows them",
        Error::NotFound { what: "roadmap", .. } => "`threadkeep roadmap list` shows the roadmaps",
        Error::NotFound { what: "roadmap node", .. } => "`threadkeep roadmap show` draws its nodes",
        Error::AlreadyExists { what: "roadmap", .. } => "`roadmap update` changes it, and --replace takes its place",
        Error::Conflict { what: "version", .. } => "read it again, and name the version that was found",
        Error::Conflict { what: "links", .. } => "`threadkeep roadmap unlink THREAD` first, or keep the node",
        Error::Conflict { what: "run" | "part", .. } => "`threadkeep run show` says how far it is",
        Error::Conflict { what: "tools", .. } => "`threadkeep tools get` shows what there is now",
        Error::Conflict { what: "inbox", .. } | Error::NotFound { what: "message", .. } => {
            "`threadkeep inbox list THREAD` shows the messages; `inbox acted` says what became of one that is unfinished"
        }
        Error::NotFound { what: "prompt", .. } | Error::Conflict { what: "prompt", .. } => {
            "`threadkeep prompt list THREAD` shows the prompts of a path"
        }
        Error::NotFound { what: "artifact", .. } => "`threadkeep artifact list THREAD` shows them",
        Error::AlreadyExists { what: "prompt" | "artifact", .. } => {
            "another one has this id: leave it out, or give another"
        }
        Error::Conflict { what: "request", .. } | Error::NotFound { what: "request", .. } => {
            "`threadkeep request list` shows the requests, and `request show` what became of one"
        }
        Error::Conflict { what: "job", .. } => "`threadkeep job show` says who has it",
        Error::NotFound { what: "backup", .. } => "name the file that `threadkeep backup` made, or the folder it is in",
        Error::NotFound { what: "key", .. } => "`threadkeep keys create` makes one",
        Error::NotFound { what: "rollout", .. } => "`threadkeep rollout mirror` writes them",
        Error::NotFound { what: "workspace", .. } => "`threadkeep workspaces` shows the known ones",
        Error::AlreadyExists { what: "key", .. } => "`threadkeep keys rotate` puts a new one in its place",
        Error::Conflict { what: "seal", .. } => {
            "if an older copy was restored on purpose, `threadkeep seal --restored` goes on from it"
        }
        Error::Conflict { what: "plan", .. } => {
            "`threadkeep doctor` plans for the store as it is now; nothing was changed"
        }
        Error::Conflict { what: "shelf", .. } => "`threadkeep delete THREAD` puts it into the trash",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// What to do where there is no store yet.
pub(crate) const NO_STORE_HINT: &str = "`threadkeep import --scan` makes one from the agents' files that it finds; \
     --store DIR|URL names another place";

#[cfg(test)]
mod tests {
    use std::io;

    use threadkeep::{Error, ThreadId};

    use super::{Code, Failure, report};

    #[test]
    fn every_kind_has_its_code() {
        let thread = ThreadId::new("t").unwrap();
        let io = |kind| Error::Io { operation: "open", path: "x".into(), kind, detail: String::new() };
        let cases = [
            (Error::NotFound { what: "thread", id: "x".into() }, Code::NotFound),
            (Error::Ambiguous { given: "x".into(), candidates: vec![] }, Code::Usage),
            (Error::Invalid { field: "x", reason: String::new() }, Code::Usage),
            (Error::Archived { thread: thread.clone() }, Code::NotDone),
            (Error::ClaimLost { thread, epoch: 1 }, Code::Busy),
            (Error::Busy { detail: String::new() }, Code::Busy),
            (Error::Corrupt { place: String::new(), detail: String::new() }, Code::Corrupt),
            (Error::ForeignStore { path: String::new(), detail: String::new() }, Code::Corrupt),
            (Error::SchemaTooNew { place: String::new(), found: 9, known: 1 }, Code::Version),
            (Error::RolloutTooNew { path: String::new(), found: 2, known: 1 }, Code::Version),
            (io(io::ErrorKind::NotFound), Code::NotFound),
            (io(io::ErrorKind::PermissionDenied), Code::NotDone),
        ];
        for (error, code) in cases {
            assert_eq!(report(&error).code, code, "{error}");
        }
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let error = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(matches!(Failure::from(error), Failure::BrokenPipe));
    }
}
