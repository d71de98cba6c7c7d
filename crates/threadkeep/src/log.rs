//! The log: items on branches, appended, read, forked, purged and verified. SQL over a transaction, written once for both engines.

pub(crate) mod append;
pub(crate) mod blobs;
pub(crate) mod head;
pub(crate) mod mend;
pub(crate) mod order;
pub(crate) mod path;
pub(crate) mod proof;
pub(crate) mod purge;
pub(crate) mod read;
pub(crate) mod receipts;
pub(crate) mod redact;
pub(crate) mod rows;
pub(crate) mod standing;
pub(crate) mod verify;
