//! What of a file is stored otherwise than it stands there, so that a file that is read anew brings nothing back.

use std::collections::{BTreeSet, HashMap, HashSet};

use threadkeep::blocking::Store;
use threadkeep::{Error, FilePart, Rules};

use super::source::{Bytes, Failure};
use crate::codec::ThreadFacts;

const OPEN: &[u8] = b"[redacted";
/// So many bytes at each end tell one part from another …
const END: usize = 32;
/// … and so many must be known of one at least.
const LEAST: usize = 8;
const PAGE: usize = 1_000;
/// So many bytes of masked parts are held at most; what is beyond is taken in as it stands.
const MOST_BYTES: usize = 64 << 20;

/// The first and the last bytes of a part.
type Ends = (Vec<u8>, Vec<u8>);

/// A part as it is stored, and how long it was in the file.
#[derive(Debug)]
struct Masked {
    bytes: Vec<u8>,
    length: i64,
}

/// The parts of a file in which secrets were masked, or from which everything was taken away.
#[derive(Debug, Default)]
pub(super) struct Masks {
    by_ends: HashMap<Ends, Vec<Masked>>,
    /// Those that begin or end with what was masked.
    others: Vec<Masked>,
    /// Where parts stood of which nothing is left: offset and length.
    taken: HashSet<(i64, i64)>,
    /// What these parts say, where they are read again to place what follows them, and the names that were made of it.
    words: Vec<String>,
    names: BTreeSet<String>,
}

impl Masks {
    /// Reads what the store has of a file.
    pub(super) fn load(store: &Store, file: &str) -> Result<Self, Failure> {
        let (mut masks, mut after, mut bytes) = (Self::default(), -1, 0);
        while bytes < MOST_BYTES {
            let page = match store.changed_source_parts(file, after, PAGE) {
                Err(Error::Corrupt { .. }) => break,
                page => page?,
            };
            let Some(last) = page.last() else { break };
            after = last.position;
            bytes += page.iter().map(|part| part.bytes.len()).sum::<usize>();
            page.into_iter().for_each(|part| masks.add(part));
        }
        Ok(masks)
    }

    fn add(&mut self, part: FilePart) {
        let literals = literals(&part.bytes);
        let known: usize = literals.iter().map(|words| words.len()).sum();
        let has_ends = [literals.first(), literals.last()].into_iter().flatten().all(|words| words.len() >= END);
        let is_masked = literals.len() > 1;
        if known < LEAST || part.bytes == stand_in() {
            self.taken.insert((part.position, part.length));
        } else if is_masked {
            let ends = ends(&part.bytes).filter(|_| has_ends);
            let masked = Masked { bytes: part.bytes, length: part.length };
            match ends {
                Some(ends) => self.by_ends.entry(ends).or_default().push(masked),
                None => self.others.push(masked),
            }
        }
    }

    /// What is stored of a part that stands so in the file.
    ///
    /// Each is given once, and for a part of the length that it had alone: where all that somebody said was masked, what is said
    /// later would else be taken for it.
    pub(super) fn take(&mut self, read: &[u8]) -> Option<Vec<u8>> {
        let likely = ends(read).and_then(|ends| self.by_ends.get_mut(&ends));
        likely.into_iter().chain([&mut self.others]).find_map(|masked| {
            let is_it = |masked: &Masked| {
                i64::try_from(read.len()).is_ok_and(|length| length == masked.length)
                    && is_masked_form(&masked.bytes, read)
            };
            masked.iter().position(is_it).map(|at| masked.remove(at).bytes)
        })
    }

    /// Whether nothing is left of the part that stood here.
    pub(super) fn took(&self, offset: u64, length: usize) -> bool {
        let place = i64::try_from(offset).ok().zip(i64::try_from(length).ok());
        place.is_some_and(|place| self.taken.contains(&place))
    }

    /// What is stored of a part that stands beside the conversation.
    pub(super) fn without_taken(&self, mut bytes: Bytes, offset: u64) -> Bytes {
        if bytes.screened.is_none() && self.took(offset, bytes.read.len()) {
            bytes.screened = Some(Rules::whole_marker().as_bytes().to_vec());
        }
        bytes
    }

    /// Takes note of what a record says of which nothing is left.
    pub(super) fn note_words(&mut self, text: &str) {
        self.words.push(in_one_line(text));
    }

    /// Takes a name away that is made of such words.
    pub(super) fn take_name(&mut self, name: &mut Option<String>) {
        let is_made_of = |name: &String| {
            let name = in_one_line(name.trim_end_matches(['…', '.', ' ']));
            !name.is_empty() && self.words.iter().any(|words| words.contains(&name))
        };
        if let Some(name) = name.take_if(|name| is_made_of(name)) {
            self.names.insert(name);
        }
    }

    /// What a codec remembers, without these names.
    pub(super) fn without_names(&self, state: Vec<u8>) -> Vec<u8> {
        let marker = serde_json::to_vec(Rules::whole_marker()).unwrap_or_default();
        self.names.iter().filter_map(|name| serde_json::to_vec(name).ok()).fold(state, |state, name| {
            let mut parts = Vec::new();
            let mut from = 0;
            for at in memchr::memmem::find_iter(&state, &name) {
                parts.extend([state.get(from..at).unwrap_or_default(), &marker]);
                from = at + name.len();
            }
            parts.push(state.get(from..).unwrap_or_default());
            parts.concat()
        })
    }
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What a thread was told in a masked form it is told in no other.
pub(super) fn keep_masked(said: &ThreadFacts, facts: &mut ThreadFacts) {
    let pairs = [
        (&said.title, &mut facts.title),
        (&said.preview, &mut facts.preview),
        (&said.source, &mut facts.source),
        (&said.git_origin, &mut facts.git_origin),
        (&said.git_branch, &mut facts.git_branch),
        (&said.persona, &mut facts.persona),
        (&said.working_path, &mut facts.working_path),
    ];
    for (said, now) in pairs {
        if let (Some(masked), Some(read)) = (said, now.as_deref())
            && is_masked_form(masked.as_bytes(), read.as_bytes())
        {
            *now = Some(masked.clone());
        }
    }
}

/// What an importer stores of a record that can't be masked in part.
fn stand_in() -> Vec<u8> {
    serde_json::json!({ "type": Rules::whole_marker() }).to_string().into_bytes()
}

/// Whether the masked bytes are these but for the secrets in them.
pub(super) fn is_masked_form(masked: &[u8], read: &[u8]) -> bool {
    let literals = literals(masked);
    let [first, middle @ .., last] = literals.as_slice() else { return false };
    let Some(rest) = read.strip_prefix(*first).and_then(|rest| rest.strip_suffix(*last)) else { return false };
    let mut at = 0;
    middle.iter().all(|words| {
        let found = rest.get(at..).and_then(|rest| memchr::memmem::find(rest, words));
        at += found.unwrap_or_default() + words.len();
        found.is_some()
    })
}

/// What stands between the marks of a masked text: one more than there are marks.
fn literals(masked: &[u8]) -> Vec<&[u8]> {
    let (mut literals, mut from) = (Vec::new(), 0);
    for at in memchr::memmem::find_iter(masked, OPEN) {
        let after = masked.get(at + OPEN.len()..).unwrap_or_default();
        let named = after.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b":._-".contains(byte)).count();
        if at >= from && after.get(named) == Some(&b']') {
            literals.push(masked.get(from..at).unwrap_or_default());
            from = at + OPEN.len() + named + 1;
        }
    }
    literals.push(masked.get(from..).unwrap_or_default());
    literals
}

fn ends(bytes: &[u8]) -> Option<Ends> {
    let at = bytes.len().checked_sub(END)?;
    Some((bytes.get(..END)?.to_vec(), bytes.get(at..)?.to_vec()))
}

#[cfg(test)]
mod tests {
    use threadkeep::FilePart;

    use super::{Masks, is_masked_form};

    /// Where all that somebody said was masked, what is said later is not taken for it.
    #[test]
    fn a_mask_is_given_once_and_for_its_own_length() {
        let said = |text: &str| format!("{{\"role\":\"user\",\"content\":\"{text}\"}}").into_bytes();
        let masked = said("[redacted:a-key]");
        let mut masks = Masks::default();
        let length = i64::try_from(said("a-secret").len()).unwrap();
        masks.add(FilePart { position: 1, length, bytes: masked.clone(), redacted: true });
        assert_eq!(masks.take(&said("another word")), None);
        assert_eq!(masks.take(&said("a-secret")), Some(masked));
        assert_eq!(masks.take(&said("no-secret".get(..8).unwrap())), None);
    }

    #[test]
    fn a_masked_form_is_that_of_its_text_alone() {
        for (masked, read, is) in [
            ("say [redacted:a] to [redacted]!", "say open to me!", true),
            ("say [redacted:a] to [redacted]!", "say [x] to !", true),
            ("say [redacted:a] to [redacted]!", "say open for me!", false),
            ("say [redacted:a] to [redacted]!", "say open to me", false),
            ("[redacted:a]b", "ab", true),
            ("a[redacted:a]a", "a", false),
            ("say [redacted to me", "say [redacted to me", false),
            ("say nothing", "say nothing", false),
        ] {
            assert_eq!(is_masked_form(masked.as_bytes(), read.as_bytes()), is, "{masked} of {read}");
        }
    }
}
