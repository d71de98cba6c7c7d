//! The lines of a rollout: one JSON object each, whose last member is a sum over the bytes before it.
//!
//! Inside a JSON text every quote is escaped, so where a line of ours begins and where its sum stands can't be mistaken. So a
//! line that got stuck to a fragment of another is still found.

use serde::{Deserialize, Serialize};

use crate::id::ThreadId;
use crate::item::{Hash, MAX_CONTENT_BYTES};
use crate::log::rows::plain::{PlainFork, PlainItem, PlainThread, PlainTurn, PlainWorkspace};

/// The version of the format that this program writes, and the newest one that it reads.
pub(crate) const VERSION: u64 = 1;
/// A longer line is none of ours: an item's text becomes two and a half times as long at most.
pub(crate) const MAX_LINE_BYTES: usize = MAX_CONTENT_BYTES / 2 * 5 + (4 << 20);

const BEGIN: &[u8] = b"{\"type\":\"";
const SUM: &[u8] = b",\"sum\":\"";
const SUM_DIGITS: usize = 16;
const HEADER: &str = "threadkeep-rollout";
const ITEM: &str = "item";
const TURN: &str = "turn";
const METADATA: &str = "metadata";

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) version: u64,
    pub(crate) thread: ThreadId,
    pub(crate) genesis: Hash,
    pub(crate) fork: Option<PlainFork>,
    pub(crate) workspace: PlainWorkspace,
}

/// What a line says.
#[derive(Debug)]
pub(crate) enum Line {
    Header(Header),
    /// A header whose version is not known here.
    Newer(u64),
    Item(Box<PlainItem>),
    Turn(PlainTurn),
    Metadata(Box<PlainThread>),
    /// A kind that is not known here.
    Unknown,
}

/// The first line's bytes.
pub(crate) fn header_line(header: &Header) -> Vec<u8> {
    line(HEADER, header)
}

/// An item's line.
pub(crate) fn item_line(item: &PlainItem) -> Vec<u8> {
    line(ITEM, item)
}

/// A turn's line.
pub(crate) fn turn_line(turn: &PlainTurn) -> Vec<u8> {
    line(TURN, turn)
}

/// The line that says where the thread stands.
pub(crate) fn metadata_line(thread: &PlainThread) -> Vec<u8> {
    line(METADATA, thread)
}

fn line(kind: &str, value: &impl Serialize) -> Vec<u8> {
    let mut bytes = [BEGIN, kind.as_bytes(), b"\","].concat();
    let start = bytes.len();
    // Writing to memory what is all texts and numbers can't fail.
    drop(serde_json::to_writer(&mut bytes, value));
    bytes.remove(start);
    bytes.pop();
    let sum = sum(&bytes);
    bytes.extend_from_slice(SUM);
    bytes.extend_from_slice(sum.as_bytes());
    bytes.extend_from_slice(b"\"}\n");
    bytes
}

fn sum(bytes: &[u8]) -> String {
    let mut digits = Hash::of(bytes).to_string();
    digits.truncate(SUM_DIGITS);
    digits
}

/// The whole lines of ours among the bytes of one line, with the place where each begins, and whether there is anything else.
pub(crate) fn records(line: &[u8]) -> (Vec<(usize, &[u8])>, bool) {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if is_whole(line) {
        return (vec![(0, line)], false);
    }
    let starts = find_all(line, BEGIN);
    let ends = starts.iter().skip(1).copied().chain([line.len()]);
    let whole = starts.iter().zip(ends).filter_map(|(start, end)| {
        let part = line.get(*start..end)?;
        let sum = find_all(part, SUM).into_iter().next()?;
        let part = part.get(..sum + SUM.len() + SUM_DIGITS + 2)?;
        is_whole(part).then_some((*start, part))
    });
    (whole.collect(), true)
}

fn find_all(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    bytes.windows(wanted.len()).enumerate().filter(|(_, part)| *part == wanted).map(|(at, _)| at).collect()
}

fn is_whole(record: &[u8]) -> bool {
    let Some(body) = record.len().checked_sub(SUM.len() + SUM_DIGITS + 2) else { return false };
    let (body, rest) = record.split_at_checked(body).unwrap_or_default();
    let digits = rest.strip_prefix(SUM).and_then(|rest| rest.strip_suffix(b"\"}"));
    body.starts_with(BEGIN) && digits.is_some_and(|digits| digits == sum(body).as_bytes())
}

/// Whether a line that is whole is of a kind that is not known here.
pub(crate) fn is_unknown(record: &[u8]) -> bool {
    let kind = record.strip_prefix(BEGIN).unwrap_or_default().split(|byte| *byte == b'"').next().unwrap_or_default();
    ![HEADER, ITEM, TURN, METADATA].iter().any(|known| known.as_bytes() == kind)
}

/// Reads a line that is whole; what is wrong with it, if it can't be read.
pub(crate) fn parse(record: &[u8]) -> Result<Line, String> {
    #[derive(Deserialize)]
    struct Version {
        version: u64,
    }
    let words = |error: serde_json::Error| error.to_string();
    let rest = record.strip_prefix(BEGIN).unwrap_or_default();
    let kind = rest.split(|byte| *byte == b'"').next().unwrap_or_default();
    if kind == HEADER.as_bytes() {
        let version = serde_json::from_slice::<Version>(record).map_err(words)?.version;
        return match version <= VERSION {
            true => serde_json::from_slice(record).map(Line::Header).map_err(words),
            false => Ok(Line::Newer(version)),
        };
    }
    if kind == ITEM.as_bytes() {
        return serde_json::from_slice(record).map(|item| Line::Item(Box::new(item))).map_err(words);
    }
    if kind == TURN.as_bytes() {
        return serde_json::from_slice(record).map(Line::Turn).map_err(words);
    }
    if kind == METADATA.as_bytes() {
        let thread: Box<PlainThread> = serde_json::from_slice(record).map_err(words)?;
        return thread.check().map(|()| Line::Metadata(thread)).map_err(|error| error.to_string());
    }
    Ok(Line::Unknown)
}

/// Reads a line that is whole and a record; nothing else is given.
pub(crate) fn parse_whole(line: &[u8]) -> Option<Line> {
    is_whole(line).then(|| parse(line).ok()).flatten()
}

/// As [`parse_whole`] for a line of metadata; other lines cost nothing.
pub(crate) fn parse_metadata(line: &[u8]) -> Option<Line> {
    let kind = line.strip_prefix(BEGIN)?.strip_prefix(METADATA.as_bytes())?;
    if kind.first() == Some(&b'"') { parse_whole(line) } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Line, is_whole, line, parse, records};

    fn record(kind: &str, number: u32) -> Vec<u8> {
        let mut bytes = line(kind, &json!({"number": number, "text": "a \"quoted\" ,\"sum\":\" {\"type\":\"item\"\n"}));
        assert_eq!(bytes.pop(), Some(b'\n'));
        assert!(!bytes.contains(&b'\n'));
        bytes
    }

    #[test]
    fn a_changed_byte_is_seen_wherever_it_is() {
        let whole = record("later", 1);
        assert!(is_whole(&whole));
        assert!(matches!(parse(&whole), Ok(Line::Unknown)));
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                assert!(!is_whole(&changed), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_line_behind_a_fragment_is_found() {
        let (first, second) = (record("later", 1), record("later", 2));
        for cut in 0..first.len() {
            let glued = [&first[..cut], second.as_slice()].concat();
            let (found, damaged) = records(&glued);
            assert_eq!(found, [(cut, second.as_slice())], "cut at {cut}");
            assert_eq!(damaged, cut > 0);
        }
        let glued = [first.as_slice(), b"X", second.as_slice(), b"Y"].concat();
        assert_eq!(records(&glued), (vec![(0, first.as_slice()), (first.len() + 1, second.as_slice())], true));
    }
}
