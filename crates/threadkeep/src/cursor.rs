//! Opaque cursors: where a page ends, bound to the query that made them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::error::{Error, Result};
use crate::item::Hash;

const TAG_BYTES: usize = 8;
/// Begins every cursor, so that none can be taken for an option of a command line.
const PREFIX: char = 'c';

/// The place after which the next page starts: the sort value and the id of the last entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) value: i64,
    pub(crate) id: String,
}

impl Cursor {
    /// Encodes the place for the query with this fingerprint.
    pub(crate) fn encode(&self, query: &str) -> String {
        let mut bytes = tag(query).to_vec();
        bytes.extend_from_slice(&self.value.to_le_bytes());
        bytes.extend_from_slice(self.id.as_bytes());
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Reads a cursor back, for the same query only.
    pub(crate) fn decode(text: &str, query: &str) -> Result<Self> {
        let wrong = |reason: &str| Error::invalid("cursor", reason);
        let bytes = text.strip_prefix(PREFIX).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
        let bytes = bytes.ok_or_else(|| wrong("it is not one that this store gave"))?;
        let Some((found, rest)) = bytes.split_at_checked(TAG_BYTES) else {
            return Err(wrong("it is cut short"));
        };
        if found != tag(query) {
            return Err(wrong("it belongs to another query; cursors go with the query that gave them"));
        }
        let Some((value, id)) = rest.split_first_chunk::<8>() else {
            return Err(wrong("it is cut short"));
        };
        let id = String::from_utf8(id.to_vec()).map_err(|_| wrong("it is damaged"))?;
        Ok(Self { value: i64::from_le_bytes(*value), id })
    }
}

fn tag(query: &str) -> [u8; TAG_BYTES] {
    let Hash(hash) = Hash::of(query.as_bytes());
    let mut tag = [0; TAG_BYTES];
    tag.copy_from_slice(hash.first_chunk::<TAG_BYTES>().unwrap_or(&[0; TAG_BYTES]));
    tag
}

#[cfg(test)]
mod tests {
    use super::Cursor;

    #[test]
    fn a_cursor_goes_with_its_query_alone() {
        let cursor = Cursor { value: -7, id: "thread-1".into() };
        let text = cursor.encode("q");
        assert_eq!(Cursor::decode(&text, "q").unwrap(), cursor);
        assert!(Cursor::decode(&text, "other").is_err());
        for query in ["a", "b", "c", "d", "e"].map(|query| query.repeat(50)) {
            assert!(cursor.encode(&query).starts_with('c'));
        }
    }

    #[test]
    fn damaged_cursors_are_refused() {
        let text = Cursor { value: 1, id: "x".into() }.encode("q");
        for end in 0..text.len() - 3 {
            let cut = &text[..end];
            assert!(Cursor::decode(cut, "q").map_or(true, |cursor| cursor.id.is_empty()), "{cut:?}");
        }
        for hostile in ["", "!", "AAAA", "../../etc", "🙂", "AAAAAAAAAAAAAAAAAAAAAAA"] {
            assert!(Cursor::decode(hostile, "q").is_err(), "{hostile:?}");
        }
    }
}
