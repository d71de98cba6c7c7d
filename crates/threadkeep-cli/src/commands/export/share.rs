//! A thread as one file for other people: what is in it, cut and masked. How it looks is for the sheets to say.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use threadkeep::blocking::Store;
use threadkeep::{
    Address, Branch, BranchId, Item, ItemQuery, Kind, Part, Role, Rules, Thread, ThreadId, Timestamp, Tree, Usage, View,
};
use threadkeep_agents::conversation::{Block, MediaData};

use super::home_paths::HomePaths;
use super::{ExportArgs, file};
use crate::commands::App;
use crate::errors::{Code, Failure, Outcome};
use crate::masking::Veil;
use crate::names::Target;
use crate::output;
use crate::style::Ink;
use crate::views::{self, Views};
use crate::{conversation, human, text};

/// How many items are read at a time; the store bounds their bytes.
const PAGE: usize = 64;
/// How much is shown of the arguments of a call, and of a result.
const PIECE_BYTES: usize = 16 << 10;
const PIECE_LINES: usize = 300;
/// How large a picture may be, and all of them together, as bytes of their files.
const PICTURE_BYTES: usize = 2 << 20;
const PICTURES_BYTES: usize = 24 << 20;
/// Pictures that a browser shows and that can't do anything.
const PICTURE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// How much of a call is shown while it is folded.
const BRIEF: usize = 160;

/// What stands at the top.
#[derive(Debug, Clone, Default)]
pub(super) struct Head {
    pub(super) title: String,
    /// What is known of the thread, in the order in which it is shown.
    pub(super) facts: Vec<(&'static str, String)>,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    User,
    Assistant,
    /// Instructions to the model.
    System,
    /// A tool was called, or answered.
    Tool,
    /// The agent summed up what came before.
    Summary,
    /// It is not said who.
    Nobody,
}

impl Speaker {
    /// The word for people.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::User => "User",
            Self::Assistant => "Assistant",
            Self::System => "Instructions",
            Self::Tool => "Tool",
            Self::Summary => "Summary of what came before",
            Self::Nobody => "Message",
        }
    }
}

/// An item.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) depth: u32,
    pub(super) speaker: Speaker,
    pub(super) time: Timestamp,
    pub(super) pieces: Vec<Piece>,
    /// Tokens, where the item states them.
    pub(super) usage: Option<Usage>,
    /// What else is to be known, such as branches that leave here.
    pub(super) notes: Vec<String>,
}

/// A part of an item.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    /// Words, as Markdown.
    Prose(String),
    /// What the model thought.
    Thought(String),
    /// A call of a tool.
    Call {
        name: String,
        /// What says most of it, on one line.
        brief: String,
        arguments: Extract,
    },
    /// What came back.
    Result { output: Extract, is_error: bool },
    /// A picture: its media type and its bytes in base64.
    Picture { media_type: &'static str, base64: String },
    /// What stands for something that is not shown.
    Note(String),
}

/// A text that may be cut.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Extract {
    pub(super) text: String,
    /// What was left out, for people.
    pub(super) left_out: Option<String>,
    /// How many lines there were.
    pub(super) lines: usize,
}

impl Extract {
    /// The beginning of a text, whole lines where it has some.
    pub(super) fn of(words: &str) -> Self {
        let words = words.trim_end_matches(['\n', '\r']);
        let lines = if words.is_empty() { 0 } else { words.matches('\n').count() + 1 };
        let by_lines = words.match_indices('\n').nth(PIECE_LINES - 1).map_or(words.len(), |(at, _)| at);
        let mut end = words.floor_char_boundary(by_lines.min(PIECE_BYTES));
        if end < words.len()
            && let Some(whole) = words.get(..end).and_then(|part| part.rfind('\n')).filter(|whole| *whole > end / 2)
            && end != by_lines
        {
            end = whole;
        }
        let text = words.get(..end).unwrap_or_default().to_owned();
        let rest = words.get(end..).unwrap_or_default();
        let left_out = (!rest.is_empty()).then(|| {
            let more = rest.trim_start_matches('\n');
            let size = human::bytes(i64::try_from(more.len()).unwrap_or(i64::MAX));
            let count = i128::try_from(more.matches('\n').count() + 1).unwrap_or(i128::MAX);
            format!("… {} ({size}) left out", human::counted(count, "more line", "more lines"))
        });
        Self { text, left_out, lines }
    }
}

/// What stands at the bottom.
#[derive(Debug, Clone, Default)]
pub(super) struct Foot {
    /// Whether something is not here, and what was masked: a sentence each.
    pub(super) sentences: Vec<String>,
}

/// How a thread looks in a file.
pub(super) trait Sheet {
    /// The beginning of the file.
    fn head(&mut self, head: &Head) -> String;
    /// An item.
    fn entry(&mut self, entry: &Entry) -> String;
    /// The end of the file.
    fn foot(&mut self, foot: &Foot) -> String;
    /// Whether pictures are shown.
    fn shows_pictures(&self) -> bool;
}

/// Writes a thread as a file for other people.
pub(super) fn run(args: &ExportArgs, thread: &str, app: &mut App, sheet: &mut dyn Sheet) -> Outcome {
    let store = app.read()?;
    let target = Target::find(&store, thread)?;
    let at = target.address(&store, None)?;
    let share = Share::new(&store, &target.thread, at, args)?;
    let Some(path) = &args.output else {
        share.write(sheet, &mut |words| app.out.bytes(words.as_bytes()))?;
        share.tell();
        return Ok(Code::Done);
    };
    let bytes = file::write_whole(path, |file| {
        let mut bytes = 0_u64;
        share.write(sheet, &mut |words| {
            bytes += words.len() as u64;
            Ok(file.write_all(words.as_bytes())?)
        })?;
        Ok(bytes)
    })?;
    share.tell();
    let file = path.display().to_string();
    if app.out.is_json() {
        let document = serde_json::json!({
            "thread": target.thread,
            "file": file,
            "bytes": bytes,
            "masked": {"items": share.secrets(), "home_paths": share.homes.as_ref().map_or(0, HomePaths::count)},
        });
        app.out.document(&document)?;
    } else {
        app.out.line(format!("Wrote {} to {file}", human::bytes(i64::try_from(bytes).unwrap_or(i64::MAX))))?;
    }
    Ok(Code::Done)
}

/// What is shared, and what is masked in it.
struct Share<'a> {
    store: &'a Store,
    thread: Thread,
    at: Option<Address>,
    tree: Tree,
    views: Views,
    veil: Veil,
    rules: Option<Rules>,
    /// Nothing where homes are not masked.
    homes: Option<HomePaths>,
    /// What was masked in words that only reading the record shows.
    found: Cell<u64>,
}

impl<'a> Share<'a> {
    fn new(store: &'a Store, id: &ThreadId, at: Option<Address>, args: &ExportArgs) -> Result<Self, Failure> {
        let given = args.masking.rules()?;
        let rules = match (args.unmasked, given) {
            (true, given) => given,
            (false, None) => Some(Rules::maintained()?),
            (false, Some(given)) => Some(Rules::maintained()?.and(&given)),
        };
        let own = etcetera::home_dir().ok().and_then(|home| home.to_str().map(str::to_owned));
        let veil = Veil::of(rules.clone());
        let mut thread = store.get(id)?;
        veil.thread(&mut thread);
        let homes = (!args.unmasked).then(|| HomePaths::of(own));
        let tree = store.tree(id)?;
        let at = at.or(thread.head);
        Ok(Self { store, thread, at, tree, views: Views::new(), veil, rules, homes, found: Cell::new(0) })
    }

    fn write(&self, sheet: &mut dyn Sheet, put: &mut dyn FnMut(&str) -> Result<(), Failure>) -> Result<(), Failure> {
        put(&sheet.head(&self.head()))?;
        let leaving = Leaving::of(&self.tree, self.at);
        let mut query = ItemQuery { at: self.at, limit: PAGE, ..ItemQuery::default() };
        let (mut hidden, mut left) = (0_u64, PICTURES_BYTES);
        while self.at.is_some() {
            let page = self.store.items(&self.thread.id, query.clone())?;
            for item in page.entries {
                let notes = leaving.notes(&item);
                match self.entry(item, notes, sheet.shows_pictures().then_some(&mut left)) {
                    Some(entry) => put(&sheet.entry(&entry))?,
                    None => hidden += 1,
                }
            }
            query.cursor = page.next_cursor;
            if query.cursor.is_none() {
                break;
            }
        }
        put(&sheet.foot(&self.foot(hidden, leaving.elsewhere)))
    }

    fn head(&self) -> Head {
        let (thread, details) = (&self.thread, &self.thread.details);
        let items = self.at.map_or(0, |at| i64::from(at.depth) + 1);
        let tokens = details.usage.map(tokens);
        let until = self.at.filter(|at| thread.head != Some(*at)).map(|at| format!("up to @{}", at.depth));
        let facts = [
            ("Agent", details.agent.clone()),
            ("Model", details.model.clone()),
            ("Begun", Some(moment(thread.created_at))),
            ("Last used", Some(moment(thread.updated_at))),
            ("Workspace", Some(thread.workspace_name.clone())),
            ("Folder", details.cwd.clone()),
            ("Git branch", details.git_branch.clone()),
            ("Items", Some([Some(human::count(items)), until].into_iter().flatten().collect::<Vec<_>>().join(", "))),
            ("Tokens", tokens),
            ("Thread", Some(thread.id.to_string())),
        ];
        let known =
            facts.into_iter().filter_map(|(name, fact)| Some((name, fact.filter(|fact| !fact.trim().is_empty())?)));
        Head { title: self.line(thread.name()), facts: known.map(|(name, fact)| (name, self.line(&fact))).collect() }
    }

    fn foot(&self, hidden: u64, elsewhere: usize) -> Foot {
        let mut sentences = Vec::new();
        if hidden > 0 {
            let left_out = human::counted(hidden, "event or setting is", "events and settings are");
            sentences.push(format!("{left_out} left out."));
        }
        if elsewhere > 0 {
            let count = i128::try_from(elsewhere).unwrap_or(i128::MAX);
            let branches = human::counted(count, "other branch of the thread is", "other branches of the thread are");
            sentences.push(format!("{branches} not shown."));
        }
        sentences.extend(self.masked());
        sentences.push("Written by threadkeep.".to_owned());
        Foot { sentences }
    }

    /// What was masked, in a sentence.
    fn masked(&self) -> Option<String> {
        let homes = self.homes.as_ref().map_or(0, HomePaths::count);
        let secrets = (self.secrets() > 0)
            .then(|| format!("what looks like secrets in {}", human::counted(self.secrets(), "place", "places")));
        let homes = (homes > 0).then(|| human::counted(homes, "path of a home folder", "paths of home folders"));
        let parts: Vec<String> = [secrets, homes].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("Masked: {}.", parts.join(", ")))
    }

    /// Says what was masked to whoever exports.
    fn tell(&self) {
        match self.masked() {
            Some(masked) => output::tell(Ink::Warn, "note", &format!("{masked} Look at it before you send it.")),
            None if self.homes.is_none() => output::tell(Ink::Warn, "note", "nothing is masked in it"),
            None => {}
        }
    }

    /// An item as it is shown; nothing where it belongs to no conversation.
    fn entry(&self, mut item: Item, notes: Vec<String>, pictures: Option<&mut usize>) -> Option<Entry> {
        // Pictures are read before anything is masked: a mark in the middle of one would only break it.
        let shown = pictures.map(|left| self.pictures(&item, left)).unwrap_or_default();
        self.veil.item(&mut item);
        let view = self.views.read(&item);
        if !views::is_conversation(&item, &view) {
            return None;
        }
        let mut pieces: Vec<Piece> = view.parts.iter().filter_map(|part| self.piece(part, shown.is_empty())).collect();
        pieces.extend(shown);
        let mut notes = notes;
        if view.damaged {
            notes.push("Damaged: shown as well as it can be read.".to_owned());
        }
        if view.synthetic {
            notes.push("Nobody said this: it stands for a result that never came.".to_owned());
        }
        if let Some(told) = item.redaction.as_deref().filter(|told| told.masked) {
            notes.push(format!("Partly redacted, {}.", moment(told.at)));
        }
        let notes = notes.iter().map(|note| self.line(note)).collect();
        let speaker = speaker(&item, &view);
        Some(Entry { depth: item.depth, speaker, time: item.created_at, pieces, usage: view.usage, notes })
    }

    fn piece(&self, part: &Part, names_media: bool) -> Option<Piece> {
        Some(match part {
            Part::Text { text } => Piece::Prose(self.words(text)),
            Part::Reasoning { text } if text.trim().is_empty() => return None,
            Part::Reasoning { text } => Piece::Thought(self.words(text)),
            Part::ToolCall { name, arguments, .. } => {
                let arguments = self.words(&pretty(arguments));
                let brief = text::cut(&conversation::brief(&arguments), BRIEF).into_owned();
                Piece::Call { name: self.line(name), brief, arguments: Extract::of(&arguments) }
            }
            Part::ToolResult { output, is_error, .. } => {
                Piece::Result { output: Extract::of(&self.words(output)), is_error: *is_error }
            }
            Part::Media { media_type, bytes } if names_media => Piece::Note(conversation::media(media_type, *bytes)),
            Part::Media { .. } => return None,
            Part::Note { text } => Piece::Note(self.line(text)),
            other => Piece::Note(self.line(&format!("{other:?}"))),
        })
    }

    /// The pictures that the record holds, as far as there is room for them.
    fn pictures(&self, item: &Item, left: &mut usize) -> Vec<Piece> {
        let message = if item.redaction.is_some() { None } else { self.views.message(item) };
        let mut pieces = Vec::new();
        for block in message.iter().flat_map(|message| &message.blocks) {
            media(block, left, &mut pieces);
        }
        pieces
    }

    /// How many places were masked.
    fn secrets(&self) -> u64 {
        self.veil.count() + self.found.get()
    }

    /// A text with what is masked in it.
    fn words(&self, words: &str) -> String {
        // What only shows when the record is read was not found in its bytes.
        let masked = self.rules.as_ref().and_then(|rules| rules.mask_text(words));
        self.found.set(self.found.get() + u64::from(masked.is_some()));
        let words = masked.as_deref().unwrap_or(words);
        self.homes.as_ref().map_or_else(|| words.to_owned(), |homes| homes.mask(words))
    }

    fn line(&self, words: &str) -> String {
        text::one_line(&self.words(words))
    }
}

/// The branches that leave a path.
struct Leaving {
    at: HashMap<(BranchId, u32), Vec<String>>,
    /// How many branches are not on the path.
    elsewhere: usize,
}

impl Leaving {
    fn of(tree: &Tree, at: Option<Address>) -> Self {
        let branches: HashMap<BranchId, &Branch> = tree.branches.iter().map(|branch| (branch.id, branch)).collect();
        let mut path = HashSet::new();
        let mut found = Self { at: HashMap::new(), elsewhere: 0 };
        let mut next = at.map(|at| at.branch);
        while let Some(id) = next.filter(|id| path.insert(*id)) {
            let parent = branches.get(&id).and_then(|branch| branch.parent);
            next = parent.map(|parent| parent.branch);
            // The path leaves the branch that it came along, which goes on.
            if let Some(parent) = parent
                && let Some(branch) = branches.get(&parent.branch)
                && let Some(items) = branch.tip.checked_sub(parent.depth).filter(|items| *items > 0)
            {
                found.add(branch, parent, items);
            }
        }
        for branch in tree.branches.iter().filter(|branch| !path.contains(&branch.id)) {
            match branch.parent.filter(|parent| path.contains(&parent.branch)) {
                Some(parent) => found.add(branch, parent, branch.items()),
                None => found.elsewhere += 1,
            }
        }
        found
    }

    fn add(&mut self, branch: &Branch, leaves: Address, items: u32) {
        self.elsewhere += 1;
        let name = branch.label.as_ref().map_or_else(String::new, |label| format!(" `{label}`"));
        let items = human::counted(items, "item", "items");
        let note = format!("Another branch{name} leaves here, with {items}.");
        self.at.entry((leaves.branch, leaves.depth)).or_default().push(note);
    }

    fn notes(&self, item: &Item) -> Vec<String> {
        self.at.get(&(item.branch, item.depth)).cloned().unwrap_or_default()
    }
}

fn media(block: &Block, left: &mut usize, pieces: &mut Vec<Piece>) {
    match block {
        Block::Result { content, .. } => content.iter().for_each(|block| media(block, left, pieces)),
        Block::Media { media_type, data } => pieces.push(picture(media_type, data, left)),
        _ => {}
    }
}

/// A picture that can be shown, or what stands for it.
pub(super) fn picture(media_type: &str, data: &MediaData, left: &mut usize) -> Piece {
    let MediaData::Base64(data) = data else { return Piece::Note(conversation::media(media_type, 0)) };
    let known = PICTURE_TYPES.iter().find(|known| **known == media_type.trim().to_ascii_lowercase());
    // What is not base64 through and through stands in no attribute.
    let decoded = known.and_then(|_| STANDARD.decode(data.trim()).ok());
    let size = decoded.as_ref().map_or(data.len() / 4 * 3, Vec::len);
    match (known, decoded) {
        (Some(media_type), Some(bytes)) if size <= PICTURE_BYTES.min(*left) => {
            *left -= size;
            Piece::Picture { media_type, base64: STANDARD.encode(bytes) }
        }
        _ => Piece::Note(format!("{} left out", conversation::media(media_type, size as u64))),
    }
}

fn speaker(item: &Item, view: &View) -> Speaker {
    match (&item.kind, view.role.as_ref().or(item.role.as_ref())) {
        (Kind::Compaction, _) => Speaker::Summary,
        (Kind::ToolCall | Kind::ToolResult, _) | (_, Some(Role::Tool)) => Speaker::Tool,
        (Kind::Reasoning, _) | (_, Some(Role::Assistant)) => Speaker::Assistant,
        (_, Some(Role::User)) => Speaker::User,
        (_, Some(_)) => Speaker::System,
        (_, None) => Speaker::Nobody,
    }
}

fn pretty(arguments: &str) -> String {
    let read = serde_json::from_str::<serde_json::Value>(arguments).ok();
    read.and_then(|value| serde_json::to_string_pretty(&value).ok()).unwrap_or_else(|| arguments.to_owned())
}

/// Tokens as people read them.
pub(super) fn tokens(usage: Usage) -> String {
    let cached =
        if usage.cached > 0 { format!(" ({} from a cache)", human::short(usage.cached)) } else { String::new() };
    format!("{} in{cached}, {} out", human::short(usage.input), human::short(usage.output))
}

/// Day and time as people write them, in UTC.
pub(super) fn moment(time: Timestamp) -> String {
    let read = jiff::Timestamp::from_millisecond(time.millis()).ok();
    read.map_or_else(|| human::moment(time), |read| read.strftime("%-d %B %Y, %H:%M UTC").to_string())
}

/// The name under which an item can be linked to.
pub(super) fn anchor(depth: u32) -> String {
    format!("i{depth}")
}
