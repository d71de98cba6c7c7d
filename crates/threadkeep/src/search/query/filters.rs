//! The filters of a query: what must hold for an item besides its words.

use super::dates::Calendar;
use super::{Node, phrase, shortened};
use crate::item::{Kind, Role};
use crate::search::text::folded;
use crate::time::Timestamp;

/// What must hold for an item besides its words. Each filter holds by itself; what one names more than once is an `OR`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filters {
    /// Who speaks.
    pub role: Sides<Role>,
    /// What the item is.
    pub kind: Sides<Kind>,
    /// The tool that is called, or whose result it is, folded.
    pub tool: Sides<String>,
    /// The workspace: its id, the beginning of one, or a path, as typed.
    pub workspace: Sides<String>,
    /// The agent that the thread is from, folded.
    pub agent: Sides<String>,
    /// The thread: its id or the beginning of one, as typed.
    pub thread: Sides<String>,
    /// Phrases in the title of the thread.
    pub title: Sides<Node>,
    /// What the item contains.
    pub has: Sides<Has>,
    /// The first point in time of what is wanted.
    pub from: Option<Timestamp>,
    /// The point in time before which all of what is wanted is.
    pub until: Option<Timestamp>,
    /// Where in its thread the item lies; anywhere if it is not said.
    pub path: Option<OnPath>,
}

/// The values of one filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sides<T> {
    /// One of these must hold, if there are any.
    pub any: Vec<T>,
    /// None of these may hold.
    pub none: Vec<T>,
}

impl<T> Default for Sides<T> {
    fn default() -> Self {
        Self { any: Vec::new(), none: Vec::new() }
    }
}

impl<T> Sides<T> {
    /// Whether the filter says nothing.
    pub fn is_empty(&self) -> bool {
        self.any.is_empty() && self.none.is_empty()
    }

    /// Whether an item passes that is what `is` says of it.
    pub fn admits(&self, mut is: impl FnMut(&T) -> bool) -> bool {
        (self.any.is_empty() || self.any.iter().any(&mut is)) && !self.none.iter().any(is)
    }

    fn add(&mut self, is_negated: bool, value: T)
    where
        T: PartialEq,
    {
        let side = if is_negated { &mut self.none } else { &mut self.any };
        if !side.contains(&value) {
            side.push(value);
        }
    }
}

/// Where in its thread an item lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnPath {
    /// On the active path.
    Active,
    /// Beside the active path.
    Beside,
    /// Anywhere.
    All,
}

/// What an item can contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Has {
    /// A tool that failed.
    Error,
    /// A picture or another file.
    Media,
    /// A block of code.
    Code,
    /// What the model thought.
    Reasoning,
    /// A link.
    Link,
    /// A picture.
    Image,
    /// What the store made in the place of what never came.
    Synthetic,
}

impl Has {
    const ALL: [(&'static str, Self); 7] = [
        ("error", Self::Error),
        ("media", Self::Media),
        ("code", Self::Code),
        ("reasoning", Self::Reasoning),
        ("link", Self::Link),
        ("image", Self::Image),
        ("synthetic", Self::Synthetic),
    ];

    /// The word that the filter and the index have for it.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, has)| *has == self).map_or("", |(word, _)| word)
    }
}

/// The names of the filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Role,
    Kind,
    Tool,
    Workspace,
    Agent,
    Thread,
    Title,
    After,
    Before,
    Path,
    Has,
}

impl Key {
    const ALL: [(&'static str, Self); 11] = [
        ("role", Self::Role),
        ("kind", Self::Kind),
        ("tool", Self::Tool),
        ("workspace", Self::Workspace),
        ("agent", Self::Agent),
        ("thread", Self::Thread),
        ("title", Self::Title),
        ("after", Self::After),
        ("before", Self::Before),
        ("path", Self::Path),
        ("has", Self::Has),
    ];

    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, key)| *key)
    }

    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, key)| *key == self).map_or("", |(name, _)| name)
    }
}

/// Words that people have for a role besides its own.
const ROLES: [(&str, Role); 5] = [
    ("human", Role::User),
    ("me", Role::User),
    ("model", Role::Assistant),
    ("ai", Role::Assistant),
    ("agent", Role::Assistant),
];

/// Words that people have for a kind besides its own.
const KINDS: [(&str, Kind); 4] = [
    ("call", Kind::ToolCall),
    ("result", Kind::ToolResult),
    ("summary", Kind::Compaction),
    ("thinking", Kind::Reasoning),
];

/// Filters while the query is being read.
#[derive(Debug, Default)]
pub(super) struct Reading {
    filters: Filters,
    after: Times,
    before: Times,
}

/// The times that one filter named.
#[derive(Debug, Default)]
struct Times {
    /// What is named more than once is an `OR`: the widest of these.
    any: Option<Timestamp>,
    /// None of these may hold: the narrowest.
    none: Option<Timestamp>,
}

impl Reading {
    pub(super) fn is_empty(&self) -> bool {
        let Times { any: None, none: None } = self.after else { return false };
        let Times { any: None, none: None } = self.before else { return false };
        self.filters == Filters::default()
    }

    /// Adds a filter; what is wrong with it, as a sentence, if it can't be followed.
    pub(super) fn add(&mut self, is_negated: bool, key: Key, value: &str, dates: &Calendar<'_>) -> Result<(), String> {
        let filters = &mut self.filters;
        match key {
            Key::Role | Key::Kind | Key::Has => {
                return value
                    .split(',')
                    .filter(|word| !word.is_empty())
                    .try_for_each(|word| self.add_word(is_negated, key, word));
            }
            Key::After | Key::Before => return self.add_time(is_negated, key, value, dates),
            Key::Path => return self.add_path(is_negated, value),
            Key::Tool => filters.tool.add(is_negated, folded(value)),
            Key::Agent => filters.agent.add(is_negated, folded(value)),
            Key::Workspace => filters.workspace.add(is_negated, value.to_owned()),
            Key::Thread => filters.thread.add(is_negated, value.to_owned()),
            Key::Title => match phrase(value) {
                Some(title) => filters.title.add(is_negated, title),
                None => return Err(format!("`title:{}` has no letter, digit or emoji to look for.", shortened(value))),
            },
        }
        Ok(())
    }

    /// Adds one of the words that a filter knows. A word that is not known is looked for all the same where the store may have it.
    fn add_word(&mut self, is_negated: bool, key: Key, word: &str) -> Result<(), String> {
        let lower = word.to_ascii_lowercase();
        let allowed = match key {
            Key::Role => {
                let role = known(&ROLES, word).unwrap_or_else(|| Role::from_word(&lower));
                let is_known = !matches!(role, Role::Unknown(_));
                self.filters.role.add(is_negated, role);
                (!is_known).then_some("user, assistant, system, developer and tool")
            }
            Key::Kind => {
                let kind = known(&KINDS, word).unwrap_or_else(|| Kind::from_word(&lower));
                let is_known = !matches!(kind, Kind::Unknown(_));
                self.filters.kind.add(is_negated, kind);
                (!is_known).then_some("message, reasoning, tool_call, tool_result, compaction, event and context")
            }
            _ => match known(&Has::ALL, word) {
                Some(has) => {
                    self.filters.has.add(is_negated, has);
                    None
                }
                None => Some("error, media, code, reasoning, link, image and synthetic"),
            },
        };
        match allowed {
            None => Ok(()),
            Some(allowed) => {
                Err(format!("`{}:{}` is no word that is known: there are {allowed}.", key.name(), shortened(word)))
            }
        }
    }

    fn add_time(&mut self, is_negated: bool, key: Key, value: &str, dates: &Calendar<'_>) -> Result<(), String> {
        let Some(time) = dates.read(value) else {
            return Err(format!(
                "`{}:{}` is no date: write 12h, 2d, 3w, today, yesterday, 2026-11-01, 2026-11 or 2026-11-01T10:00:00Z.",
                key.name(),
                shortened(value)
            ));
        };
        match (key, is_negated) {
            (Key::After, false) => widen(&mut self.after.any, time, Timestamp::min),
            (Key::After, true) => widen(&mut self.after.none, time, Timestamp::min),
            (_, false) => widen(&mut self.before.any, time, Timestamp::max),
            (_, true) => widen(&mut self.before.none, time, Timestamp::max),
        }
        Ok(())
    }

    fn add_path(&mut self, is_negated: bool, value: &str) -> Result<(), String> {
        let path = match (value.to_ascii_lowercase().as_str(), is_negated) {
            ("active", false) => OnPath::Active,
            ("active", true) => OnPath::Beside,
            ("all", false) => OnPath::All,
            _ => return Err(format!("`path:{}` is no path: write path:active or path:all.", shortened(value))),
        };
        let path = match self.filters.path {
            Some(before) if before != path => OnPath::All,
            _ => path,
        };
        self.filters.path = Some(path);
        Ok(())
    }

    pub(super) fn finish(self) -> Filters {
        Filters {
            from: self.after.any.max(self.before.none),
            until: match (self.before.any, self.after.none) {
                (Some(before), Some(after)) => Some(before.min(after)),
                (before, after) => before.or(after),
            },
            ..self.filters
        }
    }
}

fn widen(side: &mut Option<Timestamp>, time: Timestamp, choose: fn(Timestamp, Timestamp) -> Timestamp) {
    *side = Some(side.map_or(time, |before| choose(before, time)));
}

fn known<T: Clone>(words: &[(&str, T)], word: &str) -> Option<T> {
    words.iter().find(|(known, _)| known.eq_ignore_ascii_case(word)).map(|(_, value)| value.clone())
}
