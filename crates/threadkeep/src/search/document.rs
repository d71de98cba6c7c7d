//! What the index keeps of an item: its words, and the tags that filters ask for.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use uuid::Uuid;

use super::text::{self, Field, NormalText};
use crate::db::index::Terms;
use crate::id::WorkspaceId;
use crate::item::{Kind, Role, holds_view};
use crate::time::Timestamp;
use crate::view::{Part, View, ViewCodec};

/// Larger contents are found by what they are and when they were made, not by their words: reading one takes several times its
/// size in memory.
pub(crate) const MAX_READ: i64 = 8 << 20;
/// The tag of every document.
pub(crate) const EVERY: &str = "x:all";
/// The tag of every title.
pub(crate) const TITLE: &str = "x:title";

/// The readers of formats that the program knows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Readers(Vec<Arc<dyn ViewCodec>>);

/// An item as the index reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) key: i64,
    pub(crate) kind: Kind,
    pub(crate) role: Option<Role>,
    pub(crate) format: String,
    pub(crate) created_at: Timestamp,
    pub(crate) content: Vec<u8>,
}

impl Readers {
    pub(crate) fn new(codecs: Vec<Arc<dyn ViewCodec>>) -> Self {
        Self(codecs)
    }

    /// What an item says; where nothing here reads its format, its bytes.
    pub(crate) fn read(&self, source: &Source) -> View {
        if source.content.is_empty() {
            return View::default();
        }
        let known = if holds_view(&source.format) {
            serde_json::from_slice(&source.content).ok()
        } else {
            let codec = self.of(&source.format);
            codec.map(|codec| codec.view(&source.kind, &source.content)).filter(|view| !view.damaged)
        };
        known.unwrap_or_else(|| by_its_bytes(source))
    }

    /// Whether the calls of tools in an item get their results in items of their own.
    pub(crate) fn awaits_result(&self, source: &Source) -> bool {
        self.of(&source.format).is_none_or(|codec| codec.awaits_result(&source.content))
    }

    /// What a record says it is, where its format is known.
    pub(crate) fn record(&self, format: &str, content: &[u8]) -> Option<String> {
        self.of(format)?.record(content)
    }

    /// A shorter form of a record, where its format is known and has one.
    pub(crate) fn shortened(&self, format: &str, content: &[u8]) -> Option<Vec<u8>> {
        self.of(format)?.shortened(content)
    }

    fn of(&self, format: &str) -> Option<&Arc<dyn ViewCodec>> {
        self.0.iter().find(|codec| codec.format() == format)
    }
}

fn by_its_bytes(source: &Source) -> View {
    let text = String::from_utf8_lossy(&source.content).into_owned();
    let part = match source.kind {
        Kind::Message => Part::Text { text },
        Kind::Reasoning => Part::Reasoning { text },
        Kind::ToolCall => Part::ToolCall { call_id: String::new(), name: String::new(), arguments: text },
        Kind::ToolResult => Part::ToolResult { call_id: String::new(), output: text, is_error: false },
        _ => Part::Note { text },
    };
    View { role: source.role.clone(), parts: vec![part], ..View::default() }
}

/// The texts of an item that are searched, each with what it is.
pub(crate) fn fields<'a>(kind: &Kind, view: &'a View) -> Vec<(Field, &'a str)> {
    let mut fields = Vec::with_capacity(view.parts.len());
    for part in &view.parts {
        match part {
            Part::Text { text } if *kind == Kind::Compaction => fields.push((Field::Note, text.as_str())),
            Part::Text { text } => fields.push((Field::Said, text.as_str())),
            Part::Reasoning { text } => fields.push((Field::Reasoning, text.as_str())),
            Part::ToolCall { name, arguments, .. } => {
                fields.extend([(Field::Call, name.as_str()), (Field::Call, arguments.as_str())]);
            }
            Part::ToolResult { output, .. } => fields.push((Field::Result, output.as_str())),
            Part::Note { text } => fields.push((Field::Note, text.as_str())),
            Part::Media { .. } => {}
        }
    }
    fields.retain(|(_, text)| !text.is_empty());
    fields
}

/// The terms of an item. `tools` names the tools of calls that came before it on its branch.
pub(crate) fn terms(source: &Source, view: &View, workspace: Option<WorkspaceId>, tools: &Tools) -> Terms {
    let normal = text::normal(&fields(&source.kind, view));
    Terms { tags: tags(source, view, workspace, tools), ..streams(&normal) }
}

/// The terms of a thread's title.
pub(crate) fn title_terms(title: &str, workspace: Option<WorkspaceId>) -> Terms {
    let normal = text::normal(&[(Field::Title, title)]);
    let mut tags = vec![EVERY.to_owned(), TITLE.to_owned()];
    tags.extend(workspace.map(workspace_tag));
    Terms { tags: tags.join(" "), ..streams(&normal) }
}

/// What tells one title from another.
pub(crate) fn stamp(title: &str) -> i64 {
    let hash = blake3::hash(title.as_bytes());
    hash.as_bytes().first_chunk::<8>().map_or(0, |first| i64::from_le_bytes(*first))
}

fn streams(normal: &NormalText) -> Terms {
    Terms { words: normal.words.joined().to_owned(), parts: normal.parts.joined().to_owned(), tags: String::new() }
}

/// The tools whose calls were seen, by the ids of the calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tools(HashMap<String, String>);

impl Tools {
    /// Remembers the calls of an item.
    pub(crate) fn see(&mut self, view: &View) {
        for part in &view.parts {
            if let Part::ToolCall { call_id, name, .. } = part
                && !call_id.is_empty()
            {
                self.0.insert(call_id.clone(), name.clone());
            }
        }
    }

    /// Whether an item answers a call that was not seen.
    pub(crate) fn lacks(&self, view: &View) -> bool {
        view.parts.iter().any(|part| {
            matches!(part, Part::ToolResult { call_id, .. } if !call_id.is_empty() && !self.0.contains_key(call_id))
        })
    }
}

fn tags(source: &Source, view: &View, workspace: Option<WorkspaceId>, tools: &Tools) -> String {
    let mut tags = vec![EVERY.to_owned(), kind_tag(source.kind.as_str()), branch_tag(source.key >> 32)];
    let role = source.role.as_ref().or(view.role.as_ref());
    tags.extend(role.map(|role| role_tag(role.as_str())));
    tags.extend(workspace.map(workspace_tag));
    tags.extend(day_tags(source.created_at));
    tags.extend(view.synthetic.then(|| has_tag("synthetic")));
    for part in &view.parts {
        match part {
            Part::ToolCall { name, .. } => tags.push(tool_tag(name)),
            Part::ToolResult { call_id, is_error, .. } => {
                tags.extend(tools.0.get(call_id).map(|name| tool_tag(name)));
                tags.extend(is_error.then(|| has_tag("error")));
            }
            Part::Reasoning { text } if !text.is_empty() => tags.push(has_tag("reasoning")),
            Part::Media { media_type, .. } => {
                tags.push(has_tag("media"));
                tags.extend(media_type.starts_with("image/").then(|| has_tag("image")));
            }
            _ => {}
        }
        if let Part::Text { text } | Part::Reasoning { text } | Part::Note { text } = part {
            tags.extend(text.contains("```").then(|| has_tag("code")));
            tags.extend((text.contains("http://") || text.contains("https://")).then(|| has_tag("link")));
        }
    }
    tags.sort_unstable();
    tags.dedup();
    tags.join(" ")
}

pub(crate) fn kind_tag(kind: &str) -> String {
    tag("k", kind)
}

pub(crate) fn role_tag(role: &str) -> String {
    tag("r", role)
}

pub(crate) fn tool_tag(name: &str) -> String {
    tag("t", name)
}

pub(crate) fn has_tag(what: &str) -> String {
    tag("h", what)
}

/// A tag, in characters that every engine takes for parts of one term.
fn tag(what: &str, name: &str) -> String {
    let mut out = format!("{what}:");
    for c in text::folded(name).chars() {
        match c {
            _ if c.is_alphanumeric() || "_.:-+#".contains(c) => out.push(c),
            // Writing to a string can't fail.
            _ => drop(write!(out, "%{:x}.", u32::from(c))),
        }
    }
    out
}

pub(crate) fn branch_tag(branch: i64) -> String {
    format!("b:{branch}")
}

pub(crate) fn workspace_tag(workspace: WorkspaceId) -> String {
    format!("w:{}", Uuid::from_bytes(*workspace.as_bytes()).simple())
}

/// The tags of a moment's day and of all that it lies in, in UTC; none where no calendar has it.
fn day_tags(at: Timestamp) -> Vec<String> {
    let Some(date) = date_of(at) else { return Vec::new() };
    SPANS.iter().map(|span| span.tag(date)).collect()
}

pub(crate) fn date_of(at: Timestamp) -> Option<Date> {
    jiff::Timestamp::from_millisecond(at.0).ok().map(|at| TimeZone::UTC.to_datetime(at).date())
}

/// The tags that together say that a day lies between two, both included: as few as there can be.
pub(crate) fn tags_of_days(from: Date, to: Date) -> Vec<String> {
    let mut tags = Vec::new();
    let mut next = Some(from);
    while let Some(day) = next.filter(|day| *day <= to) {
        let fits = |span: &&Span| span.first_of(day) == day && span.last_of(day) <= to;
        let span = SPANS.iter().rev().find(fits).unwrap_or(&Span::Day);
        tags.push(span.tag(day));
        next = span.last_of(day).tomorrow().ok();
    }
    tags
}

/// A stretch of days that has a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Span {
    Day,
    Month,
    Year,
    Decade,
    Century,
}

/// From the shortest to the longest.
const SPANS: [Span; 5] = [Span::Day, Span::Month, Span::Year, Span::Decade, Span::Century];

impl Span {
    fn tag(self, day: Date) -> String {
        let (year, month) = (day.year(), day.month());
        match self {
            Self::Day => format!("d:{year:04}-{month:02}-{:02}", day.day()),
            Self::Month => format!("m:{year:04}-{month:02}"),
            Self::Year => format!("y:{year:04}"),
            Self::Decade => format!("y:{:03}x", year.div_euclid(10)),
            Self::Century => format!("y:{:02}xx", year.div_euclid(100)),
        }
    }

    fn first_of(self, day: Date) -> Date {
        match self {
            Self::Day => day,
            Self::Month => day.first_of_month(),
            Self::Year => day.first_of_year(),
            Self::Decade => first_of(day.year().div_euclid(10) * 10),
            Self::Century => first_of(day.year().div_euclid(100) * 100),
        }
    }

    fn last_of(self, day: Date) -> Date {
        match self {
            Self::Day => day,
            Self::Month => day.last_of_month(),
            Self::Year => day.last_of_year(),
            Self::Decade => first_of(day.year().div_euclid(10) * 10 + 9).last_of_year(),
            Self::Century => first_of(day.year().div_euclid(100) * 100 + 99).last_of_year(),
        }
    }
}

/// The first day of a year; that of the calendar where it has no such year.
fn first_of(year: i16) -> Date {
    Date::new(year, 1, 1).unwrap_or(Date::MIN)
}
