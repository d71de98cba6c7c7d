//! Parts of a file on their way into the store.

use crate::codec::Record;

/// A record or bytes on their way into the store.
pub(super) enum Pending {
    Record { offset: u64, bytes: Bytes, record: Record, key: Option<Vec<u8>> },
    Beside { offset: u64, bytes: Bytes },
}

/// A part of the file, and what is stored of it.
pub(in super::super) struct Bytes {
    /// As it stands in the file.
    pub(in super::super) read: Vec<u8>,
    /// What the store has something else of ([`threadkeep::StoreOptions::on_write`]), if it has.
    pub(in super::super) screened: Option<Vec<u8>>,
    /// Whether it follows from the file and stands nowhere in it.
    pub(super) is_made: bool,
}

impl Pending {
    pub(super) fn bytes(&self) -> &Bytes {
        match self {
            Self::Record { bytes, .. } | Self::Beside { bytes, .. } => bytes,
        }
    }
}

impl Bytes {
    /// What is stored. What is said of the part comes from this; its id and its length come from what was read, so that the part
    /// is recognised whatever is masked.
    pub(super) fn kept(&self) -> &[u8] {
        self.screened.as_deref().unwrap_or(&self.read)
    }

    pub(super) fn into_kept(self) -> Vec<u8> {
        self.screened.unwrap_or(self.read)
    }

    /// Where it stands in the file and how long it is there; nowhere, for what was made from it.
    pub(super) fn place(&self, offset: u64) -> (i64, i64) {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        if self.is_made { (-1, 0) } else { (number(offset), number(self.read.len() as u64)) }
    }
}
