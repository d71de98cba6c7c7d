//! Receipts, pure: what the item of a prompt or of an artifact says, and what must be true of a prompt among others.
//!
//! The content of both is a JSON [`View`](crate::View), so whoever reads items reads them, and beside the view an object that says
//! the rest. All of it is hashed into the chain of the thread, the pointers too.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::{ArtifactId, ItemId, PromptId};
use crate::item::{ARTIFACT_FORMAT, PROMPT_FORMAT, Role, open_words};
use crate::screen::Screen;
use crate::secrets::{Found, Masked, Rules};
use crate::view::Part;

/// So many prompts may follow each other from a root, both ends counted.
pub const MAX_LINEAGE: u32 = 256;

open_words! {
    /// Who a prompt comes from. One of a word that is not known is kept and shown, and nothing follows from it.
    PromptOrigin {
        /// The person.
        Operator = "operator",
        /// The harness, which tries a prompt again.
        HarnessRetry = "harness_retry",
    }
}

open_words! {
    /// What an artifact is.
    ArtifactKind {
        /// A plan, or a change of one.
        PlanRevision = "plan_revision",
        /// A summary that stands for what came before it.
        CompactionCheckpoint = "compaction_checkpoint",
        /// A file that was changed.
        FileChange = "file_change",
        /// How a turn ended.
        TurnOutcome = "turn_outcome",
        /// A commit.
        Commit = "commit",
        /// Something that was decided.
        Decision = "decision",
    }
}

open_words! {
    /// What an artifact is to its prompt.
    ArtifactRelation {
        /// It came of it.
        DerivedFrom = "derived_from",
        /// It brings something of it up to date.
        Updates = "updates",
        /// It says it in short.
        Summarizes = "summarizes",
        /// It is what was asked for.
        Realizes = "realizes",
    }
}

/// Where a prompt stands among others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) id: PromptId,
    pub(crate) origin: PromptOrigin,
    pub(crate) parent: Option<PromptId>,
    pub(crate) root: PromptId,
    pub(crate) active: PromptId,
    pub(crate) generation: u32,
}

impl Line {
    /// The place of a new prompt: a fresh one is its own task, one that continues or tries again leaves its parent's in force.
    pub(crate) fn behind(id: PromptId, origin: PromptOrigin, parent: Option<&Self>) -> Result<Self> {
        if let PromptOrigin::Unknown(word) = &origin {
            return Err(Error::invalid("origin", format!("`{word}`; a prompt is of the operator or a harness retry")));
        }
        if let Some(unknown) = parent.filter(|parent| matches!(parent.origin, PromptOrigin::Unknown(_))) {
            let (expected, found) = ("a prompt of a known origin".to_owned(), unknown.origin.to_string());
            return Err(Error::Conflict { what: "parent", expected, found });
        }
        let line = match parent {
            None if origin == PromptOrigin::HarnessRetry => {
                return Err(Error::invalid("parent", "a retry points at the prompt that it tries again"));
            }
            None => Self { id, origin, parent: None, root: id, active: id, generation: 1 },
            Some(parent) => Self {
                id,
                origin,
                parent: Some(parent.id),
                root: parent.root,
                active: parent.active,
                generation: parent.generation.saturating_add(1),
            },
        };
        if line.generation > MAX_LINEAGE {
            let reason = format!("{MAX_LINEAGE} prompts follow each other already; begin a task of its own");
            return Err(Error::invalid("parent", reason));
        }
        Ok(line)
    }

    /// What is wrong with a stored place, given that of the parent, if anything is.
    pub(crate) fn problem(&self, parent: Option<&Self>) -> Option<String> {
        let is_known = !matches!(self.origin, PromptOrigin::Unknown(_));
        let (root, generation) = match parent {
            None => (self.id, 1),
            Some(parent) => (parent.root, parent.generation.saturating_add(1)),
        };
        if self.parent != parent.map(|parent| parent.id) {
            return Some("it names another parent".to_owned());
        }
        if self.root != root {
            return Some(format!("it names the root {}, and that is {root}", self.root));
        }
        if self.generation != generation || generation > MAX_LINEAGE {
            let most = generation.min(MAX_LINEAGE);
            return Some(format!(
                "it says that it is the {}th prompt from its root, and it is the {most}th",
                self.generation
            ));
        }
        if parent.is_none() && self.origin == PromptOrigin::HarnessRetry {
            return Some("it is a retry, and of nothing".to_owned());
        }
        let active = parent.map_or(self.id, |parent| parent.active);
        // What another version of the library makes of a word of its own is not known here.
        (is_known && self.active != active)
            .then(|| format!("it names the active prompt {}, and that is {active}", self.active))
    }
}

/// Where an artifact stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tie {
    pub(crate) id: ArtifactId,
    pub(crate) number: i64,
    pub(crate) prompt: PromptId,
    pub(crate) root: PromptId,
    pub(crate) kind: ArtifactKind,
    pub(crate) relation: ArtifactRelation,
}

/// What an item says that is a receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claim {
    Prompt(Line),
    Artifact(Tie),
}

/// What an item of this format says of itself; `None` for one that is no receipt, and an error for one that can't be read as what it
/// is.
pub(crate) fn claim(id: ItemId, format: &str, content: &[u8]) -> Option<Result<Claim, String>> {
    match format {
        PROMPT_FORMAT => {
            let id = PromptId::from_item(id);
            Some(PromptContent::read(content).map(|content| Claim::Prompt(content.prompt.line(id))))
        }
        ARTIFACT_FORMAT => {
            let id = ArtifactId::from_item(id);
            Some(ArtifactContent::read(content).map(|content| Claim::Artifact(content.artifact.tie(id))))
        }
        _ => None,
    }
}

/// Whether an item of this format is a receipt.
pub(crate) fn is_receipt(format: &str) -> bool {
    matches!(format, PROMPT_FORMAT | ARTIFACT_FORMAT)
}

/// Refuses an item that says it is a receipt and did not come as one.
pub(crate) fn refuse_unasked(format: &str) -> Result<()> {
    match format {
        PROMPT_FORMAT => Err(Error::invalid("format", "a prompt is stored as a receipt by `begin_prompt`")),
        ARTIFACT_FORMAT => Err(Error::invalid("format", "an artifact is stored by `add_artifact`")),
        _ => Ok(()),
    }
}

/// The content of a prompt's item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PromptContent {
    role: Option<Role>,
    /// One text: what the model is given.
    parts: Vec<Part>,
    pub(crate) prompt: PromptRecord,
}

/// What a prompt's item says beside what the model is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PromptRecord {
    origin: PromptOrigin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<PromptId>,
    root: PromptId,
    active: PromptId,
    generation: u32,
    /// What was typed, where that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    raw: Option<Raw>,
}

/// Bytes as JSON has them: text, or text and what is none in turns. So secrets are found in them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Raw {
    Text(String),
    /// Each piece is text, and behind it bytes in hex that are no UTF-8.
    Pieces(Vec<(String, String)>),
}

impl PromptRecord {
    fn line(&self, id: PromptId) -> Line {
        let Self { origin, parent, root, active, generation, .. } = self.clone();
        Line { id, origin, parent, root, active, generation }
    }
}

impl PromptContent {
    /// The content of a prompt that stands there.
    pub(crate) fn new(line: &Line, raw: &[u8], text: &str) -> Self {
        let Line { origin, parent, root, active, generation, .. } = line.clone();
        let raw = (raw != text.as_bytes()).then(|| Raw::of(raw));
        Self {
            role: Some(Role::User),
            parts: vec![Part::Text { text: text.to_owned() }],
            prompt: PromptRecord { origin, parent, root, active, generation, raw },
        }
    }

    pub(crate) fn read(content: &[u8]) -> Result<Self, String> {
        let read: Self =
            serde_json::from_slice(content).map_err(|error| format!("it is no receipt of a prompt: {error}"))?;
        match (read.parts.as_slice(), read.prompt.raw.as_ref().map(Raw::bytes)) {
            ([Part::Text { .. }], None | Some(Some(_))) => Ok(read),
            ([Part::Text { .. }], _) => {
                Err("it is no receipt of a prompt: what was typed has no such bytes".to_owned())
            }
            _ => Err("it is no receipt of a prompt: it does not hold one text".to_owned()),
        }
    }

    /// What was typed and what the model is given.
    pub(crate) fn texts(&self) -> (Vec<u8>, String) {
        let text = match self.parts.first() {
            Some(Part::Text { text }) => text.clone(),
            _ => String::new(),
        };
        let raw = self.prompt.raw.as_ref().and_then(Raw::bytes);
        (raw.unwrap_or_else(|| text.clone().into_bytes()), text)
    }

    pub(crate) fn line(&self, id: PromptId) -> Line {
        self.prompt.line(id)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The same with other words.
    fn with(&self, id: PromptId, raw: &[u8], text: &str) -> Self {
        Self::new(&self.line(id), raw, text)
    }
}

impl Raw {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => {
                let mut pieces: Vec<(String, String)> = Vec::new();
                for chunk in bytes.utf8_chunks() {
                    let hex: String = chunk.invalid().iter().map(|byte| format!("{byte:02x}")).collect();
                    match pieces.last_mut() {
                        Some((_, last)) if chunk.valid().is_empty() => last.push_str(&hex),
                        _ => pieces.push((chunk.valid().to_owned(), hex)),
                    }
                }
                Self::Pieces(pieces)
            }
        }
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Self::Text(text) => Some(text.clone().into_bytes()),
            Self::Pieces(pieces) => {
                let mut bytes = Vec::new();
                for (text, hex) in pieces {
                    bytes.extend_from_slice(text.as_bytes());
                    let digits: Vec<u32> = hex.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
                    for pair in digits.chunks(2) {
                        let [high, low] = pair else { return None };
                        bytes.push(u8::try_from(high * 16 + low).ok()?);
                    }
                }
                Some(bytes)
            }
        }
    }
}

/// The content of an artifact's item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ArtifactContent {
    /// The body, as a note; nothing without one.
    parts: Vec<Part>,
    artifact: ArtifactRecord,
}

/// What an artifact's item says beside its body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ArtifactRecord {
    number: i64,
    prompt: PromptId,
    root: PromptId,
    kind: ArtifactKind,
    relation: ArtifactRelation,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    locator: Option<String>,
    /// An object as its own text, so that it stays as it was given to the byte.
    metadata: String,
}

impl ArtifactRecord {
    fn tie(&self, id: ArtifactId) -> Tie {
        let Self { number, prompt, root, kind, relation, .. } = self.clone();
        Tie { id, number, prompt, root, kind, relation }
    }
}

/// What an artifact says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArtifactTexts {
    pub(crate) locator: Option<String>,
    pub(crate) body: Option<String>,
    pub(crate) metadata: String,
}

impl ArtifactContent {
    pub(crate) fn new(tie: &Tie, texts: &ArtifactTexts) -> Self {
        let Tie { number, prompt, root, kind, relation, .. } = tie.clone();
        let ArtifactTexts { locator, body, metadata } = texts.clone();
        Self {
            parts: body.map(|text| Part::Note { text }).into_iter().collect(),
            artifact: ArtifactRecord { number, prompt, root, kind, relation, locator, metadata },
        }
    }

    pub(crate) fn read(content: &[u8]) -> Result<Self, String> {
        let read: Self = serde_json::from_slice(content).map_err(|error| format!("it is no artifact: {error}"))?;
        match read.parts.as_slice() {
            [] | [Part::Note { .. }] => Ok(read),
            _ => Err("it is no artifact: it holds more than one body".to_owned()),
        }
    }

    pub(crate) fn texts(&self) -> ArtifactTexts {
        let body = match self.parts.first() {
            Some(Part::Note { text }) => Some(text.clone()),
            _ => None,
        };
        ArtifactTexts { locator: self.artifact.locator.clone(), body, metadata: self.artifact.metadata.clone() }
    }

    pub(crate) fn tie(&self, id: ArtifactId) -> Tie {
        self.artifact.tie(id)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// What stands in the place of a receipt whose words are taken away: where it stands among others, and nothing that it said. `None`
/// for content that is no receipt, or can't be read as one.
pub(crate) fn without_words(id: ItemId, format: &str, content: &[u8]) -> Option<Vec<u8>> {
    let gone = Rules::whole_marker();
    match format {
        PROMPT_FORMAT => {
            let content = PromptContent::read(content).ok()?;
            Some(content.with(PromptId::from_item(id), gone.as_bytes(), gone).bytes())
        }
        ARTIFACT_FORMAT => {
            let content = ArtifactContent::read(content).ok()?;
            let before = content.texts();
            let body = before.body.map(|_| gone.to_owned());
            let locator = before.locator.map(|_| gone.to_owned());
            let texts = ArtifactTexts { locator, body, metadata: "{}".to_owned() };
            Some(ArtifactContent::new(&content.tie(ArtifactId::from_item(id)), &texts).bytes())
        }
        _ => None,
    }
}

/// Masks what rules find in the words of a receipt; what says where it stands is not looked at. `None` for content that is no receipt.
pub(crate) fn mask(id: ItemId, format: &str, content: &[u8], rules: &Rules) -> Option<Masked> {
    let mut found = Vec::new();
    let bytes = match format {
        PROMPT_FORMAT => {
            let content = PromptContent::read(content).ok()?;
            let (raw, text) = content.texts();
            let raw = masked(rules, raw, &mut found, None);
            let text = masked(rules, text.into_bytes(), &mut found, None);
            content.with(PromptId::from_item(id), &raw, &String::from_utf8_lossy(&text)).bytes()
        }
        ARTIFACT_FORMAT => {
            let content = ArtifactContent::read(content).ok()?;
            let ArtifactTexts { locator, body, metadata } = content.texts();
            let mut text = |text: String, otherwise| {
                String::from_utf8_lossy(&masked(rules, text.into_bytes(), &mut found, otherwise)).into_owned()
            };
            let locator = locator.map(|locator| text(locator, None));
            let body = body.map(|body| text(body, None));
            let texts = ArtifactTexts { locator, body, metadata: text(metadata, Some("{}")) };
            ArtifactContent::new(&content.tie(ArtifactId::from_item(id)), &texts).bytes()
        }
        _ => return None,
    };
    Some(if found.is_empty() { Masked::NothingFound } else { Masked::Masked { bytes, found } })
}

/// The bytes without their secrets; `otherwise` where they can't be masked in part.
fn masked(rules: &Rules, bytes: Vec<u8>, all: &mut Vec<Found>, otherwise: Option<&str>) -> Vec<u8> {
    match rules.mask(&bytes) {
        Masked::NothingFound => bytes,
        Masked::Masked { bytes, found } => {
            all.extend(found);
            bytes
        }
        Masked::CannotMask => {
            all.extend(rules.find(&bytes));
            otherwise.unwrap_or(Rules::whole_marker()).as_bytes().to_vec()
        }
    }
}

/// Screens what an artifact says. Metadata in whose place something else is to be stored than an object becomes an object of it.
pub(crate) fn screen_artifact(screen: &Screen, texts: &mut ArtifactTexts) -> Result<()> {
    screen.text("locator", &mut texts.locator)?;
    screen.text("body", &mut texts.body)?;
    let mut metadata = Some(std::mem::take(&mut texts.metadata));
    screen.json("metadata", &mut metadata)?;
    texts.metadata = metadata.unwrap_or_default();
    if serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&texts.metadata).is_err() {
        texts.metadata = "{}".to_owned();
    }
    Ok(())
}

/// The same receipt as another item, behind prompts that have other names now.
pub(crate) fn renamed(
    (format, content): (&str, &[u8]),
    id: ItemId,
    number: i64,
    name_now: &dyn Fn(PromptId) -> PromptId,
) -> Result<Vec<u8>, String> {
    match format {
        PROMPT_FORMAT => {
            let mut content = PromptContent::read(content)?;
            let record = &mut content.prompt;
            record.parent = record.parent.map(name_now);
            (record.root, record.active) = (name_now(record.root), name_now(record.active));
            Ok(content.bytes())
        }
        ARTIFACT_FORMAT => {
            let content = ArtifactContent::read(content)?;
            let tie = content.tie(ArtifactId::from_item(id));
            let tie = Tie { number, prompt: name_now(tie.prompt), root: name_now(tie.root), ..tie };
            Ok(ArtifactContent::new(&tie, &content.texts()).bytes())
        }
        _ => Err(format!("the format {format} is no receipt's")),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{
        ArtifactContent, ArtifactKind, ArtifactRelation, ArtifactTexts, Claim, Line, MAX_LINEAGE, PromptContent,
        PromptOrigin, Tie, claim, mask, without_words,
    };
    use crate::id::{ArtifactId, ItemId, PromptId};
    use crate::item::{ARTIFACT_FORMAT, PROMPT_FORMAT};
    use crate::secrets::{Masked, Rules};
    use crate::view::View;

    fn id(number: u128) -> PromptId {
        PromptId::from_uuid(Uuid::from_u128(number))
    }

    fn fresh(number: u128) -> Line {
        Line::behind(id(number), PromptOrigin::Operator, None).unwrap()
    }

    fn after(number: u128, origin: PromptOrigin, parent: &Line) -> Line {
        Line::behind(id(number), origin, Some(parent)).unwrap()
    }

    #[test]
    fn continuations_and_retries_leave_the_task_in_force() {
        let task = fresh(1);
        let retry = after(2, PromptOrigin::HarnessRetry, &task);
        let more = after(3, PromptOrigin::Operator, &retry);
        assert_eq!((task.root, task.active, task.generation), (id(1), id(1), 1));
        assert_eq!((retry.root, retry.active, retry.generation), (id(1), id(1), 2));
        assert_eq!((more.root, more.active, more.parent, more.generation), (id(1), id(1), Some(id(2)), 3));
        assert!(Line::behind(id(4), PromptOrigin::HarnessRetry, None).is_err());
        assert!(Line::behind(id(4), PromptOrigin::Unknown("web".into()), None).is_err());
        let unknown = Line { origin: PromptOrigin::Unknown("web".into()), ..task };
        assert!(Line::behind(id(4), PromptOrigin::Operator, Some(&unknown)).is_err());
    }

    #[test]
    fn a_lineage_has_a_bound() {
        let mut last = fresh(1);
        for number in 2..=MAX_LINEAGE {
            last = after(u128::from(number), PromptOrigin::Operator, &last);
        }
        assert_eq!(last.generation, MAX_LINEAGE);
        assert!(Line::behind(id(999), PromptOrigin::Operator, Some(&last)).is_err());
    }

    #[test]
    fn each_pointer_that_is_wrong_is_told() {
        let task = fresh(1);
        let sound = after(2, PromptOrigin::Operator, &task);
        assert_eq!(sound.problem(Some(&task)), None);
        assert_eq!(task.problem(None), None);
        let wrong = [
            Line { parent: Some(id(7)), ..sound.clone() },
            Line { root: id(2), ..sound.clone() },
            Line { active: id(2), ..sound.clone() },
            Line { generation: 3, ..sound.clone() },
        ];
        wrong.iter().for_each(|line| assert!(line.problem(Some(&task)).is_some(), "{line:?}"));
        assert!(Line { origin: PromptOrigin::HarnessRetry, ..task.clone() }.problem(None).is_some());
        let unknown = Line { origin: PromptOrigin::Unknown("web".into()), active: id(9), ..sound };
        assert_eq!(unknown.problem(Some(&task)), None, "what follows from an unknown word is not known");
    }

    #[test]
    fn any_bytes_come_back() {
        for raw in [&b"plain"[..], b"", b"nul \0 and \xff\xfe then \xc3", b"\xf0\x9f\x98", "π".as_bytes()] {
            let text = String::from_utf8_lossy(raw).into_owned();
            let content = PromptContent::new(&fresh(1), raw, &text);
            let read = PromptContent::read(&content.bytes()).unwrap();
            assert_eq!(read.texts(), (raw.to_vec(), text.clone()));
            assert_eq!(read.line(id(1)), fresh(1));
            let view: View = serde_json::from_slice(&content.bytes()).unwrap();
            assert_eq!(view.to_text(), text, "whoever reads views reads it");
        }
        let once = PromptContent::new(&fresh(1), b"the same words", "the same words").bytes();
        assert_eq!(String::from_utf8(once).unwrap().matches("the same words").count(), 1);
    }

    #[test]
    fn what_is_no_receipt_is_told() {
        let item = ItemId::from_uuid(Uuid::from_u128(1));
        assert_eq!(claim(item, "threadkeep/1", b"{}"), None);
        for hostile in [&b""[..], b"{}", b"[]", br#"{"parts":[],"prompt":{}}"#, b"\xff", br#"{"artifact":7}"#] {
            assert!(matches!(claim(item, PROMPT_FORMAT, hostile), Some(Err(_))));
            assert!(matches!(claim(item, ARTIFACT_FORMAT, hostile), Some(Err(_))));
        }
        let odd = br#"{"role":"user","parts":[{"type":"text","text":"x"}],"prompt":{"origin":"operator","root":"prompt:00000000-0000-0000-0000-000000000001","active":"prompt:00000000-0000-0000-0000-000000000001","generation":1,"raw":[["x","f"]]}}"#;
        assert!(matches!(claim(item, PROMPT_FORMAT, odd), Some(Err(_))), "half a byte");
    }

    #[test]
    fn words_are_masked_and_places_are_not() {
        let item = ItemId::from_uuid(Uuid::from_u128(1));
        // A rule that would find an id, had it been asked.
        let rules =
            Rules::literal("00000000-0000-0000-0000-000000000001").unwrap().and(&Rules::literal("hunter2!").unwrap());
        let content = PromptContent::new(&fresh(1), b"\xff hunter2!", "use hunter2!").bytes();
        let Some(Masked::Masked { bytes, found }) = mask(item, PROMPT_FORMAT, &content, &rules) else {
            panic!("not masked")
        };
        assert_eq!(found.len(), 2);
        let read = PromptContent::read(&bytes).unwrap();
        assert_eq!(read.texts(), (b"\xff [redacted:literal]".to_vec(), "use [redacted:literal]".to_owned()));
        assert_eq!(claim(item, PROMPT_FORMAT, &bytes), Some(Ok(Claim::Prompt(fresh(1)))));
        assert_eq!(mask(item, PROMPT_FORMAT, &bytes, &rules), Some(Masked::NothingFound));
        let bare = without_words(item, PROMPT_FORMAT, &content).unwrap();
        assert_eq!(claim(item, PROMPT_FORMAT, &bare), Some(Ok(Claim::Prompt(fresh(1)))));
        assert!(!String::from_utf8(bare).unwrap().contains("hunter2!"));
    }

    #[test]
    fn metadata_stays_as_it_was_given() {
        let item = ItemId::from_uuid(Uuid::from_u128(5));
        let tie = Tie {
            id: ArtifactId::from_item(item),
            number: 3,
            prompt: id(2),
            root: id(1),
            kind: ArtifactKind::Commit,
            relation: ArtifactRelation::Realizes,
        };
        let texts = ArtifactTexts {
            locator: Some("src/lib.rs".into()),
            body: Some("what changed".into()),
            metadata: " {\"b\" : 1.0,\n\"a\":\"hunter2!\", \"a\":2}".into(),
        };
        let content = ArtifactContent::new(&tie, &texts).bytes();
        let read = ArtifactContent::read(&content).unwrap();
        assert_eq!((read.texts(), read.tie(tie.id)), (texts, tie.clone()));
        let rules = Rules::literal("hunter2!").unwrap();
        let Some(Masked::Masked { bytes, .. }) = mask(item, ARTIFACT_FORMAT, &content, &rules) else {
            panic!("not masked")
        };
        let masked = ArtifactContent::read(&bytes).unwrap();
        assert_eq!(masked.texts().metadata, " {\"b\" : 1.0,\n\"a\":\"[redacted:literal]\", \"a\":2}");
        let bare = ArtifactContent::read(&without_words(item, ARTIFACT_FORMAT, &content).unwrap()).unwrap();
        assert_eq!((bare.texts().metadata.as_str(), bare.tie(tie.id)), ("{}", tie));
    }
}
