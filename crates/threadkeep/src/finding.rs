//! What an examination of a store finds, as programs and people see it.

use std::fmt;
use std::io::ErrorKind;

use serde::Serialize;
use serde_json::Value;

use crate::error::Error;

/// How many findings of one kind are told.
const ALIKE: usize = 100;

pub(crate) const NO_STORE: &str = "name the right place with --store; the first append or import makes a store";

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know; nothing has to be done.
    Note,
    /// The store works, and something weakens what it promises or will be in its way.
    Warning,
    /// The store can't be used as it should be, or what it holds is in danger.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// One thing that an examination found. Its code and its place name it: the same thing has the same ones the next time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The stable kebab-case name of this kind of finding; decisions build on it.
    pub code: &'static str,
    /// Where: a file, a folder, a table, a setting, a role. No secret is in it.
    pub place: String,
    /// What is the matter, for people.
    pub what: String,
    /// What to do about it, for people.
    pub way_out: String,
}

/// What is known of a store without judging it, such as its size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fact {
    /// Its stable name.
    pub name: &'static str,
    /// A number, a text or a truth value.
    pub value: Value,
}

/// What an examination of a store found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Examination {
    /// The store's folder, or its address without the password.
    pub place: String,
    /// What is known, in the order in which it was found out; less of it the earlier the examination had to end.
    pub facts: Vec<Fact>,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
}

impl Examination {
    /// The severity of the worst finding, if there is any.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    pub(crate) fn of(place: String) -> Self {
        Self { place, facts: Vec::new(), findings: Vec::new() }
    }

    pub(crate) fn fact(&mut self, name: &'static str, value: impl Into<Value>) {
        self.facts.push(Fact { name, value: value.into() });
    }

    pub(crate) fn error(&mut self, code: &'static str, place: impl Into<String>, text: (String, &str)) {
        self.find(Severity::Error, code, place, text);
    }

    pub(crate) fn warn(&mut self, code: &'static str, place: impl Into<String>, text: (String, &str)) {
        self.find(Severity::Warning, code, place, text);
    }

    pub(crate) fn note(&mut self, code: &'static str, place: impl Into<String>, text: (String, &str)) {
        self.find(Severity::Note, code, place, text);
    }

    /// Adds a finding: what is the matter, and what to do about it.
    pub(crate) fn find(
        &mut self,
        severity: Severity,
        code: &'static str,
        place: impl Into<String>,
        (what, way_out): (String, &str),
    ) {
        let (place, way_out) = (place.into(), way_out.to_owned());
        match self.findings.iter().filter(|finding| finding.code == code).count() {
            0..ALIKE => self.findings.push(Finding { severity, code, place, what, way_out }),
            ALIKE => {
                let (place, what) =
                    (self.place.clone(), format!("there is more of the kind `{code}` than is told here"));
                self.findings.push(Finding { severity, code, place, what, way_out });
            }
            _ => {}
        }
    }

    /// Adds the finding that an error of the store is.
    pub(crate) fn refused(&mut self, place: &str, error: &Error) {
        let (code, way_out) = match error {
            Error::NotFound { what: "store", .. } => ("no-store", NO_STORE),
            Error::NotFound { what: "database", .. } => {
                ("database-missing", "create the database, or name another one in the address")
            }
            Error::ForeignStore { .. } => ("foreign-store", "choose another folder or schema with --store"),
            Error::SchemaTooNew { .. } => (
                "schema-newer",
                "use the newer Threadkeep that brought it forward; to go back, restore the copy that was made before",
            ),
            Error::Corrupt { .. } => {
                ("damaged", "the plan of `threadkeep doctor` brings back what is whole; or restore a backup")
            }
            Error::Busy { .. } => ("busy", "try again; what holds the store is named"),
            Error::StorageFull { .. } => ("disk-full", "free some space"),
            Error::ReadOnly { .. } => ("read-only", "ask whoever owns it for the right to write"),
            Error::Conflict { what: "session", .. } => {
                ("pooler", "let the pooler keep a session for each client (session mode)")
            }
            Error::Io { kind: ErrorKind::PermissionDenied, .. } => {
                ("access-refused", "use the account that the store belongs to, or ask its owner for access")
            }
            Error::Io { .. } => ("unreachable", "see that the place is there and can be reached from here"),
            _ => ("engine", "see what the engine says"),
        };
        self.error(code, place, (error.to_string(), way_out));
    }

    /// The worst first; what is alike stays in the order in which it was found.
    pub(crate) fn sorted(mut self) -> Self {
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::{ALIKE, Examination, Severity};

    #[test]
    fn findings_of_one_kind_are_bounded() {
        let mut found = Examination::of("store".to_owned());
        for number in 0..1_000 {
            found.note("many", number.to_string(), (String::new(), ""));
        }
        found.error("other", "there", (String::new(), ""));
        let found = found.sorted();
        assert_eq!(found.findings.len(), ALIKE + 2);
        assert_eq!((found.worst(), found.findings[0].code), (Some(Severity::Error), "other"));
        assert_eq!(found.findings[ALIKE + 1].place, "store");
    }
}
