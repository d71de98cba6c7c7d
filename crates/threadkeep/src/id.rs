//! Names of things: threads, jobs, roadmaps, runs, items, branches, workspaces, writers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, Result};

const MAX_ID_BYTES: usize = 128;

macro_rules! text_id {
    ($(#[$meta:meta])* $name:ident, $what:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Checks and takes an id.
            ///
            /// # Errors
            /// [`Error::Invalid`] says which rule it breaks.
            pub fn new(id: impl Into<String>) -> Result<Self> {
                let id = id.into();
                match broken_rule(&id) {
                    Some(reason) => Err(Error::invalid($what, reason)),
                    None => Ok(Self(id)),
                }
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                Self::new(text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

text_id! {
    /// The name of a thread: 1 to 128 characters of `A-Z a-z 0-9 . _ -`, beginning with a letter or a digit.
    ///
    /// An id that passes here can't leave a folder when it is part of a file name, and can't be read as a command-line option.
    ThreadId, "thread id"
}
text_id! {
    /// The name of a job, by the rules of a thread's.
    JobId, "job id"
}
text_id! {
    /// The name of a roadmap in its workspace, by the rules of a thread's.
    RoadmapId, "roadmap id"
}

impl RoadmapId {
    /// How long one may be.
    pub(crate) const MAX_BYTES: usize = MAX_ID_BYTES;
}

text_id! {
    /// The name of a workflow run, by the rules of a thread's.
    RunId, "run id"
}
text_id! {
    /// The name of a part of a workflow run (a branch, a leaf, a control node) or of a candidate, by the rules of a thread's.
    PartId, "part id"
}

fn broken_rule(id: &str) -> Option<&'static str> {
    if id.is_empty() {
        Some("it is empty")
    } else if id.len() > MAX_ID_BYTES {
        Some("it is longer than 128 bytes")
    } else if !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')) {
        Some("only A-Z a-z 0-9 . _ - are allowed")
    } else if !id.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        Some("it must begin with a letter or a digit")
    } else {
        None
    }
}

macro_rules! uuid_id {
    ($(#[$meta:meta])* $name:ident, $what:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Takes a UUID as the id.
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The 16 bytes of the id, as they are stored and hashed.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            /// The id as a UUID.
            pub const fn as_uuid(&self) -> Uuid {
                self.0
            }

            pub(crate) fn from_slice(bytes: &[u8]) -> Option<Self> {
                Uuid::from_slice(bytes).ok().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                Uuid::parse_str(text).map(Self).map_err(|_| Error::invalid($what, format!("`{text}` is not a UUID")))
            }
        }
    };
}

uuid_id! {
    /// The name of an item: a UUID, version 7 when the store mints it.
    ItemId, "item id"
}
uuid_id! {
    /// The name of a workspace.
    WorkspaceId, "workspace id"
}
uuid_id! {
    /// The name of a revision of a goal.
    GoalId, "goal id"
}
uuid_id! {
    /// The name of a message in a thread's inbox.
    MessageId, "message id"
}
uuid_id! {
    /// The name of a request.
    RequestId, "request id"
}
uuid_id! {
    /// The identity that items are written by: one per store and machine.
    WriterId, "writer id"
}

/// Declares an id that is the id of an item, and that is written with a word before it, so that it can't be taken for another one.
macro_rules! marked_id {
    ($(#[$meta:meta])* $name:ident, $what:literal, $mark:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(ItemId);

        impl $name {
            /// Stands before the UUID when the id is written.
            pub const MARK: &'static str = $mark;

            /// Takes the id of the item.
            pub const fn from_item(item: ItemId) -> Self {
                Self(item)
            }

            /// Takes a UUID as the id.
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(ItemId::from_uuid(uuid))
            }

            /// The item that it is.
            pub const fn item(&self) -> ItemId {
                self.0
            }

            pub(crate) const fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            pub(crate) fn from_slice(bytes: &[u8]) -> Option<Self> {
                ItemId::from_slice(bytes).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", Self::MARK, self.0)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            /// Reads the id with or without its mark.
            fn from_str(text: &str) -> Result<Self> {
                let uuid = Uuid::parse_str(text.strip_prefix(Self::MARK).unwrap_or(text));
                uuid.map(Self::from_uuid).map_err(|_| Error::invalid($what, format!("`{text}` is not a UUID")))
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

marked_id! {
    /// The name of a prompt that was stored as a receipt: that of its item, written `prompt:` and the UUID.
    PromptId, "prompt id", "prompt:"
}
marked_id! {
    /// The name of an artifact: that of its item, written `artifact:` and the UUID.
    ArtifactId, "artifact id", "artifact:"
}

/// The least and the greatest id that is written with this beginning; `None` for what no id begins with.
pub(crate) fn ids_from(beginning: &str) -> Option<(Uuid, Uuid)> {
    let digits: String = beginning.chars().filter(|sign| *sign != '-').collect();
    let fits = (1..=32).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let filled = |with: &str| Uuid::parse_str(&format!("{digits}{}", with.repeat(32 - digits.len()))).ok();
    if fits { filled("0").zip(filled("f")) } else { None }
}

/// The public name of a branch: the id of its first item.
pub type BranchId = ItemId;

/// Where an item stands: its branch and its distance from the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Address {
    /// The branch, by the id of its first item.
    pub branch: BranchId,
    /// The distance from the root of the path; the root has depth 0.
    pub depth: u32,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.branch, self.depth)
    }
}

/// The store's own key of an item: its branch's number in the upper 31 bits, its depth in the lower 32.
///
/// So a table keyed by it is clustered by (branch, depth), and that pair is unique without a further index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ItemKey(pub(crate) i64);

impl ItemKey {
    pub(crate) const fn new(branch: i64, depth: u32) -> Self {
        Self((branch << 32) | depth as i64)
    }

    pub(crate) const fn branch(self) -> i64 {
        self.0 >> 32
    }

    #[expect(clippy::cast_sign_loss, reason = "the lower 32 bits are the depth")]
    pub(crate) const fn depth(self) -> u32 {
        (self.0 & 0xffff_ffff) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::{ArtifactId, ItemKey, PromptId, ThreadId, ids_from};

    #[test]
    fn hostile_thread_ids_are_refused() {
        let long = "x".repeat(129);
        for id in ["", "..", ".", "../x", "a/b", "a\\b", "a\0b", "%2e%2e\u{2024}", "-rf", "_x", "a b", "é", &long] {
            assert!(ThreadId::new(id).is_err(), "{id:?} must be refused");
        }
        for id in ["a", "thread-1", "01a22845-9b28-7db3", "A.b_c-9", &"x".repeat(128)] {
            assert!(ThreadId::new(id).is_ok(), "{id:?} must be accepted");
        }
    }

    #[test]
    fn the_beginning_of_an_id_says_between_which_it_lies() {
        let (least, greatest) = ids_from("019a2284-9b2").unwrap();
        assert_eq!(least.to_string(), "019a2284-9b20-0000-0000-000000000000");
        assert_eq!(greatest.to_string(), "019a2284-9b2f-ffff-ffff-ffffffffffff");
        for wrong in ["", "-", "x", "0g", "é", &"0".repeat(33)] {
            assert_eq!(ids_from(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_marked_id_is_read_with_its_own_mark_or_without_one() {
        let bare = "019a2284-9b28-7db3-8000-000000000001";
        let prompt: PromptId = bare.parse().unwrap();
        assert_eq!(prompt.to_string(), format!("prompt:{bare}"));
        assert_eq!(prompt.to_string().parse::<PromptId>().unwrap(), prompt);
        assert!(format!("artifact:{bare}").parse::<PromptId>().is_err());
        assert_eq!(format!("artifact:{bare}").parse::<ArtifactId>().unwrap().item(), prompt.item());
    }

    #[test]
    fn an_item_key_keeps_branch_and_depth_and_orders_by_them() {
        let key = ItemKey::new((1 << 31) - 1, u32::MAX);
        assert_eq!((key.branch(), key.depth()), ((1 << 31) - 1, u32::MAX));
        assert!(ItemKey::new(1, u32::MAX) < ItemKey::new(2, 0));
    }
}
