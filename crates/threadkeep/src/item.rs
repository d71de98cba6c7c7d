//! Items: the append-only unit of a thread.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::{Address, BranchId, ItemId, ThreadId, WriterId};
use crate::time::Timestamp;
use crate::view::{Part, View};

/// The largest content of one item: 256 MiB.
pub const MAX_CONTENT_BYTES: usize = 256 << 20;
/// The format tag of content that Threadkeep itself defines: a JSON [`View`].
pub const FORMAT: &str = "threadkeep/1";
/// The format tag of a prompt that was stored as a receipt: a JSON [`View`] that also says where the prompt stands among others.
pub const PROMPT_FORMAT: &str = "threadkeep.prompt/1";
/// The format tag of an artifact: a JSON [`View`] that also says what the artifact is and which prompt it is of.
pub const ARTIFACT_FORMAT: &str = "threadkeep.artifact/1";
const MAX_TAG_BYTES: usize = 64;
const MAX_SOURCE_ID_BYTES: usize = 512;

/// Declares an enum of known words that keeps an unknown word as it is.
///
/// An unknown word is stored, shown and inert: no code path treats it as one of the known ones.
macro_rules! open_words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$vmeta])* $variant,)+
            /// A word that this version does not know, kept as it is.
            Unknown(String),
        }

        impl $name {
            /// The stored word.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Unknown(word) => word,
                }
            }

            /// Reads a stored word; never fails.
            pub fn from_word(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)+
                    other => Self::Unknown(other.to_owned()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                Ok(Self::from_word(&String::deserialize(deserializer)?))
            }
        }
    };
}
pub(crate) use open_words;

open_words! {
    /// What an item is.
    Kind {
        /// Words of a person, a model or the harness.
        Message = "message",
        /// What a model thought.
        Reasoning = "reasoning",
        /// A call of a tool.
        ToolCall = "tool_call",
        /// The result of a call.
        ToolResult = "tool_result",
        /// A summary that stands for what came before it; the model's context starts at the latest one.
        Compaction = "compaction",
        /// Something that happened: a hook, a progress line, an error, an abort.
        Event = "event",
        /// Settings in force from here on: model, policies, working directory.
        Context = "context",
    }
}

open_words! {
    /// Who an item speaks for.
    Role {
        /// The person.
        User = "user",
        /// The model.
        Assistant = "assistant",
        /// The harness's instructions.
        System = "system",
        /// Instructions of the embedding program.
        Developer = "developer",
        /// A tool.
        Tool = "tool",
    }
}

/// An item to be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewItem {
    /// Chosen by the caller to make a retry safe; minted when `None`.
    pub id: Option<ItemId>,
    /// What it is.
    pub kind: Kind,
    /// Who speaks.
    pub role: Option<Role>,
    /// Which codec reads `content`.
    pub format: String,
    /// The exact bytes that are stored and hashed.
    pub content: Vec<u8>,
    /// When it was made; the store's clock when `None`.
    pub created_at: Option<Timestamp>,
    /// The id that an imported record carried in its own file. Indexed, not unique.
    pub source_id: Option<String>,
    /// Items on this item's own path that it was derived from.
    pub sources: Vec<ItemId>,
}

impl NewItem {
    /// An item whose content is `view`, in Threadkeep's own format.
    pub fn from_view(kind: Kind, view: &View) -> Self {
        let content = serde_json::to_vec(view).unwrap_or_default();
        Self { role: view.role.clone(), ..Self::raw(kind, FORMAT, content) }
    }

    /// A message of `role` that says `text`.
    pub fn message(role: Role, text: impl Into<String>) -> Self {
        Self::from_view(Kind::Message, &View::text(Some(role), text))
    }

    /// A call of the tool `name`; `arguments` is JSON text.
    pub fn tool_call(call_id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        let part = Part::ToolCall { call_id: call_id.into(), name: name.into(), arguments: arguments.into() };
        Self::from_view(Kind::ToolCall, &View { role: Some(Role::Assistant), parts: vec![part], ..View::default() })
    }

    /// The result of the call `call_id`.
    pub fn tool_result(call_id: impl Into<String>, output: impl Into<String>, is_error: bool) -> Self {
        let part = Part::ToolResult { call_id: call_id.into(), output: output.into(), is_error };
        Self::from_view(Kind::ToolResult, &View { role: Some(Role::Tool), parts: vec![part], ..View::default() })
    }

    /// Exact bytes in a format that some codec reads.
    pub fn raw(kind: Kind, format: impl Into<String>, content: Vec<u8>) -> Self {
        Self {
            id: None,
            kind,
            role: None,
            format: format.into(),
            content,
            created_at: None,
            source_id: None,
            sources: Vec::new(),
        }
    }

    /// The same item under an id that the caller chose.
    #[must_use]
    pub fn with_id(mut self, id: ItemId) -> Self {
        self.id = Some(id);
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_tag("kind", self.kind.as_str())?;
        check_tag("format", &self.format)?;
        if let Some(role) = &self.role {
            check_tag("role", role.as_str())?;
        }
        if let Some(id) = &self.source_id {
            check_text("source_id", id, MAX_SOURCE_ID_BYTES)?;
        }
        if self.content.len() > MAX_CONTENT_BYTES {
            let bytes = self.content.len();
            return Err(Error::invalid("content", format!("{bytes} bytes; an item holds at most {MAX_CONTENT_BYTES}")));
        }
        Ok(())
    }
}

/// Whether content of this format is a JSON [`View`], of whatever else it says.
pub fn holds_view(format: &str) -> bool {
    matches!(format, FORMAT | PROMPT_FORMAT | ARTIFACT_FORMAT)
}

/// Refuses a word that is empty, too long, or can't be stored.
pub(crate) fn check_tag(field: &'static str, word: &str) -> Result<()> {
    if word.is_empty() {
        return Err(Error::invalid(field, "it is empty"));
    }
    check_text(field, word, MAX_TAG_BYTES)
}

/// Refuses what PostgreSQL's TEXT can't hold, on every engine.
pub(crate) fn check_text(field: &'static str, text: &str, max_bytes: usize) -> Result<()> {
    if text.contains('\0') {
        return Err(Error::invalid(field, "it contains a NUL character"));
    }
    if text.len() > max_bytes {
        return Err(Error::invalid(field, format!("{} bytes; at most {max_bytes} are kept", text.len())));
    }
    Ok(())
}

/// Refuses what is no JSON, on writing. JSON has no NUL, so both engines hold it as text.
pub(crate) fn check_json(field: &'static str, text: &str, max_bytes: usize) -> Result<()> {
    check_text(field, text, max_bytes)?;
    let read = serde_json::from_str::<serde::de::IgnoredAny>(text);
    read.map(drop).map_err(|error| Error::invalid(field, format!("it is no JSON: {error}")))
}

/// A stored item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its unique id.
    pub id: ItemId,
    /// The thread that wrote it; for shared ancestors not the thread it was read through.
    pub thread: ThreadId,
    /// The branch it stands on.
    pub branch: BranchId,
    /// Its distance from the root of its path.
    pub depth: u32,
    /// The turn it belongs to, by its ordinal in the thread that wrote it.
    pub turn: Option<i64>,
    /// What it is.
    pub kind: Kind,
    /// Who speaks.
    pub role: Option<Role>,
    /// Which codec reads `content`.
    pub format: String,
    /// Who wrote it.
    pub writer: WriterId,
    /// The claim's epoch it was written under.
    pub epoch: i64,
    /// The store's logical time of the append.
    pub tick: i64,
    /// When it was made, for people.
    pub created_at: Timestamp,
    /// The id that an imported record carried in its own file.
    pub source_id: Option<String>,
    /// Items it was derived from.
    pub sources: Vec<ItemId>,
    /// The exact bytes that were given; after a redaction what stands in their place, which may be nothing.
    pub content: Vec<u8>,
    /// The digest of kind, role, format, salt and content, as it was written.
    pub digest: Hash,
    /// The link of the chain at this item.
    pub hash: Hash,
    /// Who took content away, when and why.
    pub redaction: Option<Box<Redaction>>,
}

/// What is known of content that was taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redaction {
    /// Who took it away.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// Why.
    pub reason: String,
    /// The rule that found it.
    pub rule: Option<String>,
    /// Whether the rest of the content is still there.
    pub masked: bool,
}

impl fmt::Display for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.masked { "partly redacted" } else { "redacted" };
        write!(f, "{what} by {} at {}: {}", self.by, self.at, self.reason)
    }
}

impl Item {
    /// Where it stands.
    pub fn address(&self) -> Address {
        Address { branch: self.branch, depth: self.depth }
    }
}

/// A BLAKE3 hash, 32 bytes, shown as lower-case hex.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    pub(crate) fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hash {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let hash = blake3::Hash::from_hex(text).map_err(|_| Error::invalid("hash", "it is not 64 hex digits"))?;
        Ok(Self(*hash.as_bytes()))
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// How an append must find the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expect {
    /// The head may be anywhere.
    #[default]
    Any,
    /// The head must be this item; `None` is an empty (or cleared) thread.
    Head(Option<Address>),
}

/// What an acknowledgement promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Survives a power loss: the commit is synced to the disk.
    #[default]
    Synced,
    /// Survives the death of the process: the commit has reached the operating system.
    Written,
    /// In memory only, until the writer has taken it; `flush` waits for that.
    Queued,
}

/// What an append stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Appended {
    /// One entry per item, in order.
    pub items: Vec<AppendedItem>,
    /// Whether these items were there before: a repeated call whose first answer was lost.
    pub repeated: bool,
    /// How many of the items have other content than was given, by what the store was opened with
    /// ([`crate::StoreOptions::on_write`]). Also known of items that are only queued.
    pub replaced: usize,
    /// How many of the items that were given the thread's policy does not keep ([`crate::Policy`]); they are in none of the entries.
    pub dropped: usize,
}

/// The place and the hash of one appended item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AppendedItem {
    /// Its id.
    pub id: ItemId,
    /// The branch it stands on.
    pub branch: BranchId,
    /// Its depth.
    pub depth: u32,
    /// Its link of the chain.
    pub hash: Hash,
}

impl AppendedItem {
    /// Where it stands.
    pub fn address(&self) -> Address {
        Address { branch: self.branch, depth: self.depth }
    }
}
