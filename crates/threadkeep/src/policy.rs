//! Persistence policies: what of what is appended a thread keeps.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::item::{Kind, NewItem};

/// The longest stored form of a policy.
const MAX_POLICY_BYTES: usize = 64 << 10;

/// What a thread keeps. Items that it does not keep are dropped before they are stored, silently and by intent.
///
/// It is stored with the thread, so that it holds for every later holder too, and travels with copies of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Policy {
    /// Everything.
    #[default]
    All,
    /// These kinds only.
    Only(Vec<Kind>),
    /// These records of one format, by what they say they are.
    Records(RecordPolicy),
}

/// Which records of one agent's format a thread keeps. The words of records come from the format's codec
/// ([`crate::ViewCodec::record`]): a type and its subtypes with `/` between them, such as `event_msg/token_count`.
///
/// Nothing is dropped that the policy can't judge: items of other formats are kept, records of types that it does not choose
/// among, records that can't be read, and all of them where the store was opened without the format's codec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordPolicy {
    /// What people call it: `codex-limited`.
    pub name: String,
    /// The format whose records are judged.
    pub format: String,
    /// The types among whose records is chosen.
    pub among: Vec<String>,
    /// The words of the records of those types that are kept; `x/*` stands for `x` and all that begins with `x/`.
    pub keep: Vec<String>,
    /// The words of the records that are stored in a shorter form, as the codec makes it ([`crate::ViewCodec::shortened`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shorten: Vec<String>,
}

impl Policy {
    /// Whether an item of this kind is kept, as far as its kind decides that.
    pub fn keeps(&self, kind: &Kind) -> bool {
        match self {
            Self::All | Self::Records(_) => true,
            Self::Only(kinds) => kinds.contains(kind),
        }
    }

    /// A short name for people: `all`, the kinds, or the name of a choice among records.
    pub fn name(&self) -> String {
        match self {
            Self::All => "all".to_owned(),
            Self::Only(kinds) => kinds.iter().map(Kind::as_str).collect::<Vec<_>>().join(","),
            Self::Records(records) => records.name.clone(),
        }
    }

    /// What is kept of an item; `record` tells what a record of a format says it is, `shortened` gives its shorter form.
    pub(crate) fn admit(
        &self,
        item: NewItem,
        record: impl FnOnce(&NewItem) -> Option<String>,
        shortened: impl FnOnce(&NewItem) -> Option<Vec<u8>>,
    ) -> Option<NewItem> {
        let records = match self {
            Self::All => return Some(item),
            Self::Only(kinds) => return kinds.contains(&item.kind).then_some(item),
            Self::Records(records) if records.format != item.format => return Some(item),
            Self::Records(records) => records,
        };
        let Some(word) = record(&item) else { return Some(item) };
        if !records.keeps(&word) {
            return None;
        }
        let shorter = if records.shortens(&word) { shortened(&item) } else { None };
        Some(match shorter {
            Some(content) => NewItem { content, ..item },
            None => item,
        })
    }

    /// Refuses what can't be stored or can mean nothing.
    pub(crate) fn check(&self) -> Result<()> {
        let invalid = |reason: &str| Err(Error::invalid("policy", reason));
        let words: Vec<&str> = match self {
            Self::All => Vec::new(),
            Self::Only(kinds) => kinds.iter().map(Kind::as_str).collect(),
            Self::Records(records) => {
                let lists = [&records.among, &records.keep, &records.shorten];
                let own = [records.name.as_str(), records.format.as_str()];
                own.into_iter().chain(lists.into_iter().flatten().map(String::as_str)).collect()
            }
        };
        if words.iter().any(|word| word.trim().is_empty() || word.contains('\0')) {
            return invalid("a name, a format, a kind or the word of a record is empty or has a NUL");
        }
        if serde_json::to_string(self).map_or(usize::MAX, |text| text.len()) > MAX_POLICY_BYTES {
            return invalid("it is longer than 64 KiB");
        }
        Ok(())
    }
}

impl RecordPolicy {
    /// Whether a record that says it is this is kept.
    pub fn keeps(&self, word: &str) -> bool {
        let kind = word.split('/').next().unwrap_or_default();
        !self.among.iter().any(|among| among == kind) || self.keep.iter().any(|pattern| covers(pattern, word))
    }

    /// Whether a record that says it is this is stored in a shorter form.
    pub fn shortens(&self, word: &str) -> bool {
        self.shorten.iter().any(|pattern| covers(pattern, word))
    }
}

fn covers(pattern: &str, word: &str) -> bool {
    match pattern.strip_suffix("/*") {
        None => pattern == word,
        Some(above) => word.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
    }
}

#[cfg(test)]
mod tests {
    use super::{Policy, RecordPolicy};
    use crate::item::{Kind, NewItem};

    fn records() -> RecordPolicy {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        RecordPolicy {
            name: "a choice".to_owned(),
            format: "lines".to_owned(),
            among: words(&["event", "item"]),
            keep: words(&["event/said", "event/done/plan", "item/*"]),
            shorten: words(&["item/long"]),
        }
    }

    fn admitted(format: &str, content: &str) -> Option<Vec<u8>> {
        let item = NewItem::raw(Kind::Event, format, content.into());
        let word = |item: &NewItem| String::from_utf8(item.content.clone()).ok().filter(|word| !word.is_empty());
        let kept = Policy::Records(records()).admit(item, word, |_| Some(b"short".to_vec()));
        kept.map(|item| item.content)
    }

    #[test]
    fn a_policy_keeps_what_it_names() {
        assert!(Policy::All.keeps(&Kind::Unknown("x".into())));
        assert!(!Policy::Only(vec![Kind::Message]).keeps(&Kind::Event));
        assert!(Policy::Records(records()).keeps(&Kind::Event), "the kind decides nothing there");
    }

    #[test]
    fn records_are_chosen_among_the_types_that_are_named() {
        for kept in ["event/said", "event/done/plan", "item", "item/call", "item/call/of", "other", "other/said"] {
            assert!(records().keeps(kept), "{kept}");
        }
        for dropped in ["event", "event/done", "event/done/plan/b", "event/saidx", "event/said/more"] {
            assert!(!records().keeps(dropped), "{dropped}");
        }
        assert!(
            !RecordPolicy { keep: Vec::new(), ..records() }.keeps("item"),
            "nothing is kept of what is named nowhere"
        );
    }

    #[test]
    fn what_can_not_be_judged_is_kept() {
        assert_eq!(admitted("lines", "event/delta"), None);
        assert_eq!(admitted("lines", "event/said").as_deref(), Some(b"event/said".as_slice()));
        assert_eq!(admitted("lines", "item/long").as_deref(), Some(b"short".as_slice()));
        assert_eq!(admitted("threadkeep/1", "event/delta").as_deref(), Some(b"event/delta".as_slice()));
        assert_eq!(
            admitted("lines", "").as_deref(),
            Some(b"".as_slice()),
            "what can't be read is no reason to drop it"
        );
    }

    #[test]
    fn the_stored_forms_are_read_for_ever() {
        let forms = [
            (r#""all""#, Policy::All),
            (r#"{"only":["message","tool_call"]}"#, Policy::Only(vec![Kind::Message, Kind::ToolCall])),
            (
                r#"{"records":{"name":"a choice","format":"lines","among":["event","item"],"keep":["event/said","event/done/plan","item/*"],"shorten":["item/long"]}}"#,
                Policy::Records(records()),
            ),
        ];
        for (text, policy) in forms {
            assert_eq!(serde_json::from_str::<Policy>(text).unwrap(), policy);
            assert_eq!(serde_json::to_string(&policy).unwrap(), text);
        }
    }

    #[test]
    fn policies_that_can_mean_nothing_are_refused() {
        let empty = |word: &str| vec![word.to_owned()];
        for policy in [
            Policy::Only(vec![Kind::Unknown(" ".to_owned())]),
            Policy::Records(RecordPolicy { format: String::new(), ..records() }),
            Policy::Records(RecordPolicy { keep: empty(""), ..records() }),
            Policy::Records(RecordPolicy { among: empty("a\0b"), ..records() }),
            Policy::Records(RecordPolicy { name: "x".repeat(70_000), ..records() }),
        ] {
            policy.check().unwrap_err();
        }
        for policy in [Policy::All, Policy::Only(Vec::new()), Policy::Records(records())] {
            policy.check().unwrap();
        }
    }
}
