//! The program from outside: what it prints, what it leaves in the store, and what it exits with.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a broken promise is reported by a panic"
)]

#[path = "cli/agents.rs"]
mod agents;
#[path = "cli/append.rs"]
mod append;
#[path = "cli/backup.rs"]
mod backup;
#[path = "cli/bundle.rs"]
mod bundle;
#[path = "cli/changes.rs"]
mod changes;
#[path = "cli/claims.rs"]
mod claims;
#[path = "cli/copy.rs"]
mod copy;
#[path = "cli/display.rs"]
mod display;
#[path = "cli/doctor.rs"]
mod doctor;
#[path = "cli/documents.rs"]
mod documents;
#[path = "cli/export.rs"]
mod export;
#[path = "cli/files.rs"]
mod files;
#[path = "cli/import.rs"]
mod import;
#[path = "cli/lifecycle.rs"]
mod lifecycle;
#[path = "cli/masking.rs"]
mod masking;
#[path = "cli/naming.rs"]
mod naming;
#[path = "cli/paging.rs"]
mod paging;
#[cfg(test)]
#[path = "../../threadkeep/tests/postgres/payloads.rs"]
mod payloads;
#[path = "cli/pick.rs"]
mod pick;
#[path = "cli/place.rs"]
mod place;
#[cfg(test)]
#[path = "../../threadkeep/tests/postgres/server.rs"]
mod postgres;
#[path = "cli/redact.rs"]
mod redact;
#[path = "cli/rollout.rs"]
mod rollout;
#[path = "cli/sandbox.rs"]
mod sandbox;
#[path = "cli/seals.rs"]
mod seals;
#[path = "cli/search.rs"]
mod search;
#[path = "cli/server.rs"]
mod server;
#[path = "cli/shapes.rs"]
mod shapes;
#[path = "cli/state.rs"]
mod state;
#[path = "cli/steering.rs"]
mod steering;
#[path = "cli/tail.rs"]
mod tail;
#[path = "cli/verbatim.rs"]
mod verbatim;
#[path = "cli/work.rs"]
mod work;
