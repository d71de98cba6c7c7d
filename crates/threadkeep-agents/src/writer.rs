//! What every codec that can be exported to offers: it writes a session as its agent's own file.
//!
//! A writer is pure: messages in, bytes out. It opens no file and knows no store; the export does both. What it makes up (ids,
//! times) follows from the session and from the message's place in it alone, so that the same thread gives the same file.

mod answers;
mod calls;
mod database;
mod losses;
mod paired;
mod store;
mod turns;

use std::path::{Path, PathBuf};

use threadkeep::Timestamp;
use uuid::Uuid;

use crate::conversation::{MediaData, Message};

pub(crate) use answers::{Answers, WholeAnswer, texts};
pub(crate) use calls::{Calls, tool_name};
pub(crate) use database::{Image, image};
pub(crate) use losses::{Losses, lost};
pub(crate) use paired::{Paired, Pairing, Waits, says};
pub use store::{Dated, Entry, Said, StoreWriter, Whole};
pub(crate) use turns::{Acts, Answer, Chain, Outcome, Turns};

/// The folder of a session that has none, for agents that want one: they refuse a folder that does not exist.
pub(crate) const NOWHERE: &str = "/";

/// Stands in a companion for the agent's home, where a path in JSON begins with it: whoever puts it there knows the path. Within what
/// a person wrote no path begins so, since its quotes are escaped.
pub(crate) const HOME: &str = "{agent home}";

/// What is said of a session beside its messages.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// The session's id in the file that is written. Agents want a UUID; one that is none is replaced by one made from it.
    pub id: String,
    /// Its title, where it has one.
    pub title: Option<String>,
    /// Its first prompt, cut to a line.
    pub preview: Option<String>,
    /// The folder that the agent works in; agents list sessions by it.
    pub cwd: Option<PathBuf>,
    /// What the agent calls the folder, where it has names for them ([`crate::codec::Codec::project`]).
    pub project: Option<String>,
    /// The model of the last answer, as its agent names it.
    pub model: Option<String>,
    /// The model's provider.
    pub provider: Option<String>,
    /// The version of the agent's program that is claimed, where the format needs one and the thread came from that agent.
    pub cli_version: Option<String>,
    /// Git commit.
    pub git_sha: Option<String>,
    /// Git branch.
    pub git_branch: Option<String>,
    /// Git origin.
    pub git_origin: Option<String>,
    /// The session that it was forked from.
    pub forked_from: Option<String>,
    /// When it was begun.
    pub created_at: Timestamp,
    /// When it was last gone on with.
    pub updated_at: Timestamp,
}

impl Session {
    /// A session of which only this is known.
    pub fn new(id: impl Into<String>, at: Timestamp) -> Self {
        Self {
            id: id.into(),
            title: None,
            preview: None,
            cwd: None,
            project: None,
            model: None,
            provider: None,
            cli_version: None,
            git_sha: None,
            git_branch: None,
            git_origin: None,
            forked_from: None,
            created_at: at,
            updated_at: at,
        }
    }

    /// The session's id as the UUID that agents want: itself where it is one, else one made from it.
    pub fn uuid(&self) -> Uuid {
        Uuid::parse_str(&self.id).unwrap_or_else(|_| self.made("session", 0))
    }

    /// An id that the file needs and the thread has not: the same for the same session, word and number.
    pub fn made(&self, what: &str, number: u64) -> Uuid {
        let mut hasher = blake3::Hasher::new_derive_key("threadkeep 2026 ids in exported sessions");
        hasher
            .update(self.id.as_bytes())
            .update(&[0])
            .update(what.as_bytes())
            .update(&[0])
            .update(&number.to_le_bytes());
        let mut bytes = [0; 16];
        hasher.finalize_xof().fill(&mut bytes);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }
}

/// A path in a folder's name as several agents have it: all but letters and digits of ASCII are dashes, by UTF-16's count.
pub(crate) fn dashed(path: &Path) -> Option<String> {
    let mut name = String::new();
    for letter in path.to_str()?.chars() {
        match letter {
            letter if letter.is_ascii_alphanumeric() => name.push(letter),
            letter => name.extend(std::iter::repeat_n('-', letter.len_utf16())),
        }
    }
    Some(name)
}

/// A time as files have it; one that no calendar has is the beginning of time.
pub(crate) fn time(at: Timestamp) -> String {
    let text = at.to_string();
    if Timestamp::parse(&text).is_some() { text } else { Timestamp(0).to_string() }
}

/// Whether hosts of models take this picture: one of the four kinds that all of them know, in base64 or at an address.
pub(crate) fn is_picture(media_type: &str, data: &MediaData) -> bool {
    let known = ["image/png", "image/jpeg", "image/gif", "image/webp"].contains(&media_type);
    match data {
        MediaData::Base64(data) => known && is_base64(data),
        MediaData::Reference(place) => media_type.starts_with("image") && place.starts_with("https://"),
        MediaData::Absent => false,
    }
}

fn is_base64(data: &str) -> bool {
    let digits = data.trim_end_matches('=');
    let plain = digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
    plain && !digits.is_empty() && data.len().is_multiple_of(4) && data.len() - digits.len() <= 2
}

/// Writes one session, message by message, in the order of its path.
///
/// A file is made in one of three ways. Another agent's session: `begin`, then `message` for each. One that the same agent wrote, not
/// as it lies in its file (a fork, or another branch): `begin`, then `carry` for each of its records and `message` for what
/// Threadkeep has of its own. The agent's own file with something behind it: its bytes are given as they are, each record is told
/// to `keep`, then `message` follows, and `begin` is never called. `finish` is always last.
pub trait Writer: Send {
    /// What stands before the first message.
    fn begin(&mut self, out: &mut Vec<u8>);

    /// One message. Whole lines, or whole elements, so that what was written up to here can be finished at any time.
    fn message(&mut self, message: &Message, out: &mut Vec<u8>);

    /// What stands behind the last message; nothing is written after it.
    fn finish(&mut self, out: &mut Vec<u8>) -> Written;

    /// Writes a record of the agent's own into another session than the one that it was read from, or not behind the record
    /// that it stood behind: its bytes, but for ids and links. Gives `false`, and writes nothing, where only a message can be
    /// made of it.
    fn carry(&mut self, record: &[u8], out: &mut Vec<u8>) -> bool {
        let _ = (record, out);
        false
    }

    /// Takes note of a record that stands in the file as it is, so that what is written behind it goes on from it. Gives `false`
    /// for the first record of a file that the agent can't go on from; then the whole session is written anew.
    fn keep(&mut self, record: &[u8]) -> bool {
        let _ = record;
        false
    }

    /// Writes what stands in the place of a record that was taken away, under the id that it had, if others need it there.
    fn gap(&mut self, id: Option<&str>, out: &mut Vec<u8>) {
        let _ = (id, out);
    }
}

/// What was written beside the session's file, and what was not.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Written {
    /// Other files that the agent wants, by their paths below its home.
    pub companions: Vec<Companion>,
    /// What the format has no place for, or its agent would refuse.
    pub losses: Vec<Loss>,
}

/// A file beside the session's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Companion {
    /// Below the agent's home.
    pub path: PathBuf,
    /// What it holds, or what is put behind what it holds.
    pub bytes: Vec<u8>,
    /// Whether the file is shared by sessions, so that lines are put behind those that are there.
    pub shared: bool,
}

/// Something that was left behind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// For people: what, and why.
    pub what: &'static str,
    /// How often.
    pub count: u64,
}

/// What lies in an agent's home, as far as the names of its folders depend on it. Paths are below the home.
pub trait Home {
    /// What a small file holds; nothing when there is none.
    fn file(&self, path: &Path) -> Option<Vec<u8>>;

    /// The names of what lies in a folder.
    fn names(&self, folder: &Path) -> Vec<String>;
}

/// A program and what it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// The program's name.
    pub program: &'static str,
    /// Its arguments.
    pub arguments: Vec<String>,
}
