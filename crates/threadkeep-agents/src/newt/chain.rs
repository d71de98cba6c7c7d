//! newt's chains: what each digest is made of, and the rules by which a conversation is verified. Pure.
//!
//! A conversation has a chain for each writer: a turn names the hash of the same writer's turn before it, the first one a
//! value made from conversation and writer. Hashed are the bytes of the columns, never something that was read from them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use blake3::Hasher;

/// The encoding of turns that is written now.
pub(crate) const TURN_VERSION: i64 = 2;
/// What a column of a list holds when there is nothing in it.
pub(crate) const EMPTY_LIST: &[u8] = b"[]";

/// A turn, by its columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) conversation: Vec<u8>,
    pub(crate) writer: Vec<u8>,
    pub(crate) seq: i64,
    pub(crate) prev_hash: Vec<u8>,
    pub(crate) user: Vec<u8>,
    pub(crate) assistant: Vec<u8>,
    pub(crate) events: Vec<u8>,
    pub(crate) phantom_reaches: Vec<u8>,
    pub(crate) sources: Vec<u8>,
    pub(crate) tokens_in: Option<i64>,
    pub(crate) tokens_out: Option<i64>,
    pub(crate) ts_claim: i64,
    pub(crate) version: i64,
}

impl Turn {
    /// The hash that the next turn of the writer names; nothing for an encoding that is not known.
    pub(crate) fn hash(&self) -> Option<String> {
        let (domain, lists): (_, &[&[u8]]) = match self.version {
            1 => ("newt-turn:v1", &[]),
            2 => ("newt-turn:v2", &[&self.phantom_reaches, &self.sources]),
            _ => return None,
        };
        let mut preimage = Preimage::new(domain);
        for part in [&self.conversation, &self.writer, &self.prev_hash, &self.user, &self.assistant, &self.events] {
            preimage.bytes(part);
        }
        for part in lists {
            preimage.bytes(part);
        }
        preimage.int(self.seq);
        preimage.optional_int(self.tokens_in);
        preimage.optional_int(self.tokens_out);
        preimage.int(self.ts_claim);
        Some(preimage.hex())
    }

    /// What the turn says, wherever it stands: what summaries cite.
    pub(crate) fn content_id(&self) -> String {
        let mut preimage = Preimage::new("newt-turn-content:v1");
        for part in [&self.user, &self.assistant, &self.events, &self.phantom_reaches, &self.sources] {
            preimage.bytes(part);
        }
        preimage.hex()
    }
}

/// What the first turn of a writer names in the place of a hash.
pub(crate) fn genesis(conversation: &[u8], writer: &[u8]) -> String {
    let mut preimage = Preimage::new("newt-turn-chain-genesis:v1");
    preimage.bytes(conversation);
    preimage.bytes(writer);
    preimage.hex()
}

/// The fingerprint of a writer by the words of an installation's nonce.
pub(crate) fn fingerprint(nonce: &str) -> String {
    blake3::hash(nonce.trim().as_bytes()).to_hex().to_string()
}

/// Bytes that are hashed: each part behind its length.
pub(crate) struct Preimage(Hasher);

impl Preimage {
    pub(crate) fn new(domain: &str) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(domain.as_bytes());
        Self(hasher)
    }

    pub(crate) fn bytes(&mut self, part: &[u8]) {
        self.0.update(&(part.len() as u64).to_le_bytes()).update(part);
    }

    pub(crate) fn int(&mut self, number: i64) {
        self.0.update(&number.to_le_bytes());
    }

    pub(crate) fn optional_int(&mut self, number: Option<i64>) {
        self.0.update(&[u8::from(number.is_some())]);
        if let Some(number) = number {
            self.int(number);
        }
    }

    pub(crate) fn optional_bytes(&mut self, part: Option<&[u8]>) {
        self.0.update(&[u8::from(part.is_some())]);
        if let Some(part) = part {
            self.bytes(part);
        }
    }

    pub(crate) fn hex(&self) -> String {
        self.0.finalize().to_hex().to_string()
    }
}

/// What verification needs of a turn: everything but its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    writer: String,
    seq: i64,
    version: i64,
    prev_hash: String,
    hash: Option<String>,
    content_id: String,
    /// The column, where it is not an empty list.
    sources: Option<String>,
    /// Whether it has events or reaches.
    acts: bool,
}

impl Link {
    pub(crate) fn of(turn: &Turn) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            writer: text(&turn.writer),
            seq: turn.seq,
            version: turn.version,
            prev_hash: text(&turn.prev_hash),
            hash: turn.hash(),
            content_id: turn.content_id(),
            sources: (turn.sources != EMPTY_LIST).then(|| text(&turn.sources)),
            acts: turn.events != EMPTY_LIST || turn.phantom_reaches != EMPTY_LIST,
        }
    }
}

/// What newt keeps apart from the turns, so that the ends of their chains can't be cut off unseen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Witnesses {
    /// The conversation's: hash and writer. An empty hash is no evidence.
    pub(crate) tip: Option<(String, String)>,
    /// Of each writer: its hash and the seq that it is of.
    pub(crate) writers: Vec<(String, String, i64)>,
}

/// Something in a conversation that newt's own rules refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Violation {
    /// A turn in an encoding that is not known here: nothing can be said of it.
    UnknownVersion { writer: String, seq: i64, version: i64 },
    /// A writer's turns do not rise.
    Order { writer: String, seq: i64 },
    /// A turn does not follow what stands before it.
    Link { writer: String, seq: i64 },
    /// A list of sources in another form than newt writes.
    Sources { writer: String, seq: i64 },
    /// A summary that also acted.
    Derived { writer: String, seq: i64 },
    /// A summary of a turn that is not there.
    Citation { writer: String, seq: i64, cited: String },
    /// The conversation's last turn is another one than was witnessed, or was changed.
    Tip { writer: String },
    /// A witness that names no writer.
    TipWithoutWriter,
    /// A writer's witnessed turn is another one than was witnessed, was changed, or is gone.
    Witness { writer: String, seq: i64 },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownVersion { writer, seq, version } => {
                write!(f, "turn {seq} of writer {} has encoding {version}; 1 and 2 are known", short(writer))
            }
            Self::Order { writer, seq } => write!(f, "turn {seq} of writer {} does not rise", short(writer)),
            Self::Link { writer, seq } => {
                write!(f, "turn {seq} of writer {} does not follow the turn before it", short(writer))
            }
            Self::Sources { writer, seq } => {
                write!(f, "turn {seq} of writer {} cites sources in a form that is not newt's", short(writer))
            }
            Self::Derived { writer, seq } => {
                write!(f, "turn {seq} of writer {} is a summary and has events", short(writer))
            }
            Self::Citation { writer, seq, cited } => {
                write!(f, "turn {seq} of writer {} cites {}, which is no turn here", short(writer), short(cited))
            }
            Self::Tip { writer } => {
                write!(f, "the last turn of writer {} is not the one that the conversation witnesses", short(writer))
            }
            Self::TipWithoutWriter => f.write_str("the conversation's witness names no writer"),
            Self::Witness { writer, seq } => {
                write!(f, "turn {seq} of writer {} is not the one that its witness is of", short(writer))
            }
        }
    }
}

/// The beginning of a fingerprint or of an id, for people.
fn short(hex: &str) -> String {
    hex.chars().take(12).filter(|letter| !letter.is_control()).collect()
}

/// Looks at the chains of a conversation by newt's rules; gives everything that they refuse.
///
/// `links` may come in any order. What there is no evidence for is no violation: an empty tip, a writer without a witness.
pub(crate) fn verify(conversation: &str, links: &[Link], witnesses: &Witnesses) -> Vec<Violation> {
    let mut chains: BTreeMap<&str, Vec<&Link>> = BTreeMap::new();
    for link in links {
        chains.entry(&link.writer).or_default().push(link);
    }
    let mut found = Vec::new();
    for chain in chains.values_mut() {
        chain.sort_by_key(|link| link.seq);
        walk(conversation, chain, &mut found);
    }
    let contents: BTreeSet<&str> = links.iter().map(|link| link.content_id.as_str()).collect();
    for link in links {
        look_at_sources(link, &contents, &mut found);
    }
    look_at_tip(conversation, &chains, witnesses, &mut found);
    for (writer, hash, seq) in &witnesses.writers {
        let chain = chains.get(writer.as_str()).map(Vec::as_slice).unwrap_or_default();
        let stands = match chain.iter().find(|link| link.seq == *seq) {
            Some(link) => link.hash.as_ref().is_none_or(|own| own == hash),
            None => chain.is_empty() && *seq == 0 && *hash == genesis(conversation.as_bytes(), writer.as_bytes()),
        };
        if !stands {
            found.push(Violation::Witness { writer: writer.clone(), seq: *seq });
        }
    }
    found
}

/// One writer's chain.
fn walk(conversation: &str, chain: &[&Link], found: &mut Vec<Violation>) {
    let mut before: Option<&Link> = None;
    for link in chain {
        let Link { writer, seq, version, .. } = link;
        if before.is_some_and(|before| before.seq >= *seq) {
            found.push(Violation::Order { writer: writer.clone(), seq: *seq });
        }
        if link.hash.is_none() {
            found.push(Violation::UnknownVersion { writer: writer.clone(), seq: *seq, version: *version });
        }
        let expected = match before {
            None => Some(genesis(conversation.as_bytes(), writer.as_bytes())),
            Some(before) => before.hash.clone(),
        };
        if expected.is_some_and(|expected| expected != link.prev_hash) {
            found.push(Violation::Link { writer: writer.clone(), seq: *seq });
        }
        before = Some(link);
    }
}

fn look_at_sources(link: &Link, contents: &BTreeSet<&str>, found: &mut Vec<Violation>) {
    // Turns of the first encoding do not bind their sources, so these say nothing.
    let Some(sources) = link.sources.as_ref().filter(|_| link.version >= TURN_VERSION) else { return };
    let (writer, seq) = (link.writer.clone(), link.seq);
    let Some(cited) = canonical_sources(sources) else {
        return found.push(Violation::Sources { writer, seq });
    };
    if link.acts {
        found.push(Violation::Derived { writer: writer.clone(), seq });
    }
    for id in cited {
        // Newt's word for sources that are not known.
        if !contents.contains(id.as_str()) && id.bytes().any(|digit| digit != b'0') {
            found.push(Violation::Citation { writer: writer.clone(), seq, cited: id });
        }
    }
}

fn look_at_tip(
    conversation: &str,
    chains: &BTreeMap<&str, Vec<&Link>>,
    witnesses: &Witnesses,
    found: &mut Vec<Violation>,
) {
    let Some((hash, writer)) = witnesses.tip.as_ref().filter(|(hash, _)| !hash.is_empty()) else { return };
    if writer.is_empty() {
        return found.push(Violation::TipWithoutWriter);
    }
    let expected = match chains.get(writer.as_str()).and_then(|chain| chain.last()) {
        Some(last) => last.hash.clone(),
        None => Some(genesis(conversation.as_bytes(), writer.as_bytes())),
    };
    if expected.is_some_and(|expected| expected != *hash) {
        found.push(Violation::Tip { writer: writer.clone() });
    }
}

/// The ids of a list of sources, if it is as newt writes it: compact, in hexadecimal digits, rising.
fn canonical_sources(text: &str) -> Option<Vec<String>> {
    let ids: Vec<String> = serde_json::from_str(text).ok()?;
    let is_id = |id: &String| id.len() == 64 && id.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let rising = ids.iter().zip(ids.iter().skip(1)).all(|(a, b)| a < b);
    let canonical = serde_json::to_string(&ids).ok()?;
    (rising && ids.iter().all(is_id) && canonical == text).then_some(ids)
}

#[cfg(test)]
mod tests {
    use super::{Link, Turn, Violation, Witnesses, genesis, verify};

    /// The turn that newt's own tests pin their digests to.
    fn known(version: i64) -> Turn {
        Turn {
            conversation: b"kat-conv".to_vec(),
            writer: b"kat-writer".to_vec(),
            seq: 3,
            prev_hash: b"kat-prev".to_vec(),
            user: b"kat user".to_vec(),
            assistant: b"kat assistant".to_vec(),
            events: b"[]".to_vec(),
            phantom_reaches: b"[]".to_vec(),
            sources: b"[]".to_vec(),
            tokens_in: Some(11),
            tokens_out: None,
            ts_claim: 1_234_567_890,
            version,
        }
    }

    #[test]
    fn the_known_answers_come_out() {
        let hash = |version| known(version).hash().unwrap();
        assert_eq!(hash(1), "a2166c898d5f471dab2c2cee07d85d192de3a8756d7a404b54dae49168f98a3f");
        assert_eq!(hash(2), "5c0f48e872ee477620df1fe8b3f764e2abe446547303de9748a5e60652cbb789");
        let content = "e8974dcd81f696582b2b693570ec4fb7c0935703c4035eaecb2d934f3643f8fc";
        assert_eq!(known(2).content_id(), content);
        let first = "054ea5340e2930244bf81b23aedd809870e52a2ceb5cc6f4c42777fa5c9e92e8";
        assert_eq!(genesis(b"kat-conv", b"kat-writer"), first);
        assert_eq!(known(99).hash(), None);
    }

    /// A conversation of two writers, whose turns are of both encodings.
    fn conversation() -> (Vec<Turn>, Witnesses) {
        let mut turns: Vec<Turn> = Vec::new();
        for (seq, (writer, version)) in (1..).zip([("a", 1), ("a", 1), ("b", 2), ("a", 2), ("b", 2)]) {
            let before = turns.iter().rfind(|turn| turn.writer == writer.as_bytes());
            let prev_hash =
                before.and_then(Turn::hash).unwrap_or_else(|| genesis(b"c", writer.as_bytes())).into_bytes();
            let user = format!("prompt {seq}").into_bytes();
            turns.push(Turn {
                conversation: b"c".to_vec(),
                writer: writer.as_bytes().to_vec(),
                seq,
                prev_hash,
                user,
                version,
                ..known(version)
            });
        }
        let last = |writer: &str| turns.iter().rfind(|turn| turn.writer == writer.as_bytes()).unwrap();
        let witness = |writer: &str| (writer.to_owned(), last(writer).hash().unwrap(), last(writer).seq);
        let tip = Some((last("b").hash().unwrap(), "b".to_owned()));
        let witnesses = Witnesses { tip, writers: vec![witness("a"), witness("b")] };
        (turns, witnesses)
    }

    fn look(turns: &[Turn], witnesses: &Witnesses) -> Vec<Violation> {
        verify("c", &turns.iter().map(Link::of).collect::<Vec<_>>(), witnesses)
    }

    #[test]
    fn whole_chains_of_both_encodings_verify_in_any_order() {
        let (mut turns, witnesses) = conversation();
        assert_eq!(look(&turns, &witnesses), []);
        turns.reverse();
        assert_eq!(look(&turns, &witnesses), []);
        assert_eq!(look(&turns, &Witnesses::default()), []);
    }

    #[test]
    fn every_change_of_a_hashed_column_is_found() {
        let changes: [fn(&mut Turn); 9] = [
            |turn| turn.user.push(b'x'),
            |turn| turn.assistant.push(b'x'),
            |turn| turn.events = b"[1]".to_vec(),
            |turn| turn.phantom_reaches = b"[1]".to_vec(),
            |turn| turn.tokens_in = None,
            |turn| turn.tokens_out = Some(0),
            |turn| turn.ts_claim += 1,
            |turn| turn.seq += 100,
            |turn| turn.prev_hash = b"0".to_vec(),
        ];
        for at in 0..5 {
            for (number, change) in changes.iter().enumerate() {
                let (mut turns, witnesses) = conversation();
                change(&mut turns[at]);
                // The first encoding binds no reaches.
                let bound = number != 3 || turns[at].version == 2;
                assert_eq!(!look(&turns, &witnesses).is_empty(), bound, "turn {at}, change {number}");
            }
        }
    }

    #[test]
    fn what_is_cut_off_is_found_by_its_witness() {
        for at in 0..5 {
            let (mut turns, witnesses) = conversation();
            turns.remove(at);
            assert!(!look(&turns, &witnesses).is_empty(), "turn {at}");
        }
        let (turns, mut witnesses) = conversation();
        witnesses.writers.push(("c".to_owned(), "0".repeat(64), 9));
        assert_eq!(look(&turns, &witnesses), [Violation::Witness { writer: "c".to_owned(), seq: 9 }]);
    }

    #[test]
    fn absence_of_a_witness_is_no_violation_and_a_stale_one_counts() {
        let (turns, mut witnesses) = conversation();
        witnesses.tip = Some((String::new(), "b".to_owned()));
        witnesses.writers.clear();
        let first = turns[0].hash().unwrap();
        witnesses.writers.push(("a".to_owned(), first, 1));
        assert_eq!(look(&turns, &witnesses), []);
        witnesses.tip = Some(("x".to_owned(), String::new()));
        assert_eq!(look(&turns, &witnesses), [Violation::TipWithoutWriter]);
    }

    #[test]
    fn a_turn_of_an_unknown_encoding_is_named_and_its_follower_is_not_blamed() {
        let (mut turns, witnesses) = conversation();
        turns[3].version = 99;
        let expected = Violation::UnknownVersion { writer: "a".to_owned(), seq: 4, version: 99 };
        assert_eq!(look(&turns, &witnesses), [expected]);
    }

    #[test]
    fn summaries_cite_what_is_there() {
        let cite = |cited: &str, events: &[u8]| {
            let (mut turns, _) = conversation();
            let mut turn = turns.pop().unwrap();
            turn.events = events.to_vec();
            turn.sources = cited.as_bytes().to_vec();
            turns.push(turn);
            look(&turns, &Witnesses::default())
        };
        let id = conversation().0[0].content_id();
        assert_eq!(cite(&format!("[\"{id}\"]"), b"[]"), []);
        assert_eq!(cite(&format!("[\"{}\"]", "0".repeat(64)), b"[]"), []);
        assert!(matches!(cite(&format!("[ \"{id}\"]"), b"[]")[..], [Violation::Sources { .. }]));
        assert!(matches!(cite("{}", b"[]")[..], [Violation::Sources { .. }]));
        assert!(matches!(cite(&format!("[\"{id}\"]"), b"[1]")[..], [Violation::Derived { .. }]));
        assert!(matches!(cite(&format!("[\"{}\"]", "1".repeat(64)), b"[]")[..], [Violation::Citation { .. }]));
    }
}
