//! Receipts of prompts: what was asked, as it was typed and as the model is given it, and what it follows from.
//!
//! A receipt is the item of its prompt, so all that it says is bound by the thread's chain, and is in forks, copies and rollouts as the
//! item is. Which prompt came before it is not kept: the path says so.

use crate::db::Tx;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::id::{Address, ItemId, ItemKey, PromptId, ThreadId, WriterId, ids_from};
use crate::item::{Expect, Item, Kind, NewItem, PROMPT_FORMAT, Redaction, Role};
use crate::log::append::{After, Append, Prepared, Run, TurnRule, append, mint_id, why_refused};
use crate::log::receipts::{self, IndexRow, PathPage, Sought, Stored};
use crate::log::{head, path};
use crate::receipt::{Line, MAX_LINEAGE, PromptContent, PromptOrigin};
use crate::screen::Screen;
use crate::threads;
use crate::time::Timestamp;
use crate::turns;

/// The most that a prompt may have of what was typed, and of what the model is given: 16 MiB each.
pub const MAX_PROMPT_BYTES: usize = 16 << 20;
/// So many ids are told of what a beginning could mean.
const MOST_CANDIDATES: usize = 8;

/// Where a new prompt goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PromptTurn {
    /// It begins a turn. One that is still open is marked as interrupted.
    #[default]
    New,
    /// It comes into the open turn.
    Open,
}

/// A prompt to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPrompt {
    /// Chosen by the caller to make a retry safe; minted when `None`.
    pub id: Option<PromptId>,
    /// What was typed: any bytes, up to [`MAX_PROMPT_BYTES`]. Stored once when the model is given the same.
    pub raw: Vec<u8>,
    /// What the model is given, up to as many bytes.
    pub text: String,
    /// Who it comes from.
    pub origin: PromptOrigin,
    /// The prompt that it continues, or tries again: one on the thread's path.
    pub parent: Option<PromptId>,
    /// Where it goes.
    pub turn: PromptTurn,
}

impl NewPrompt {
    /// A task of its own: what was typed is what the model is given.
    pub fn task(text: impl Into<String>) -> Self {
        let text = text.into();
        let (origin, turn) = (PromptOrigin::Operator, PromptTurn::New);
        Self { id: None, raw: text.clone().into_bytes(), text, origin, parent: None, turn }
    }

    /// More of a task: what that is about stays in force.
    pub fn continuing(parent: PromptId, text: impl Into<String>) -> Self {
        Self { parent: Some(parent), ..Self::task(text) }
    }

    /// The harness tries a prompt again.
    pub fn retry(of: PromptId, text: impl Into<String>) -> Self {
        Self { origin: PromptOrigin::HarnessRetry, ..Self::continuing(of, text) }
    }
}

/// Where a prompt stands, in its thread and among other prompts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Its name.
    pub id: PromptId,
    /// The thread that wrote it; for shared ancestors not the one it was read through.
    pub thread: ThreadId,
    /// Where its item stands.
    pub address: Address,
    /// Its turn, by the ordinal in the thread that wrote it.
    pub turn: Option<i64>,
    /// Who it comes from.
    pub origin: PromptOrigin,
    /// The prompt that it continues, or tries again.
    pub parent: Option<PromptId>,
    /// The first prompt of its task, which may be itself.
    pub root: PromptId,
    /// The prompt that says what is to be done while this one is worked at: its own task, or its parent's.
    pub active: PromptId,
    /// How many prompts lead from the root to it, itself counted.
    pub generation: u32,
    /// When it was stored, for people.
    pub created_at: Timestamp,
}

/// A prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// Where it stands.
    pub receipt: Receipt,
    /// The prompt before it on its path, whatever that is about.
    pub previous: Option<PromptId>,
    /// What was typed, to the byte; what stands in its place after a redaction.
    pub raw: Vec<u8>,
    /// What the model is given.
    pub text: String,
    /// Who took words away, when and why.
    pub redaction: Option<Redaction>,
    /// In a list: why it can't be read. What stands in its other fields is not to be believed then.
    pub damage: Option<String>,
}

/// What storing a prompt did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPrompt {
    /// Where it stands.
    pub receipt: Receipt,
    /// The prompt before it on its path.
    pub previous: Option<PromptId>,
    /// Whether an earlier call stored it.
    pub repeated: bool,
}

/// What is worked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptContext {
    /// The last prompt of the path.
    pub submitted: Prompt,
    /// The prompt that says what is to be done: that of the last prompt whose origin is known.
    pub active: Option<Prompt>,
}

/// A question for a page of the prompts on a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptQuery {
    /// The end of the path; the thread's head when `None`.
    pub at: Option<Address>,
    /// Only those of this task: with this root.
    pub root: Option<PromptId>,
    /// Begin at the end and go towards the root of the path.
    pub newest_first: bool,
    /// The page's size; 0 only counts, more than 256 is 256. A page of large prompts ends earlier.
    pub limit: usize,
    /// Where the page starts. It keeps to the path that the first page saw.
    pub cursor: Option<String>,
}

impl Default for PromptQuery {
    fn default() -> Self {
        Self { at: None, root: None, newest_first: false, limit: 100, cursor: None }
    }
}

/// A page of the receipts on a path, with how many there are on the whole path at the time of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptPage<T> {
    /// Those of the page.
    pub entries: Vec<T>,
    /// How many there are.
    pub total: u64,
    /// Where the next page starts, if there is one.
    pub next_cursor: Option<String>,
}

/// Who writes a receipt, under which claim.
pub(crate) struct Scribe<'a> {
    pub(crate) thread: &'a ThreadId,
    pub(crate) epoch: i64,
    pub(crate) writer: (i64, WriterId),
    pub(crate) now: Timestamp,
    /// The last item that the holder was told is stored and synced.
    pub(crate) builds_on: Option<ItemId>,
    pub(crate) host: &'a dyn Host,
}

impl Scribe<'_> {
    /// Refuses a holder that was fenced off before anything else is judged.
    pub(crate) fn check(&self, tx: &mut dyn Tx) -> Result<()> {
        match threads::is_at(tx, self.thread, self.epoch)? {
            true => Ok(()),
            false => Err(why_refused(tx, self.thread, self.epoch)?),
        }
    }

    /// Writes a receipt's item after the head.
    pub(crate) fn write(&self, tx: &mut dyn Tx, item: NewItem, turns: TurnRule) -> Result<()> {
        let items = [Prepared::new(item, self.host)?];
        let request = Append {
            thread: self.thread.clone(),
            epoch: self.epoch,
            writer: self.writer,
            now: self.now,
            expect: Expect::Any,
            turns,
            runs: vec![Run { after: After::Head, items: items.into() }],
            requires: None,
            builds_on: self.builds_on,
        };
        append(tx, &request).map(drop)
    }
}

/// What of a prompt goes into its receipt.
pub(crate) struct Draft<'a> {
    pub(crate) raw: &'a [u8],
    pub(crate) text: &'a str,
    pub(crate) origin: &'a PromptOrigin,
    pub(crate) parent: Option<PromptId>,
}

/// Screens a prompt. What was typed and what the model is given stay the same where they were.
pub(crate) fn screen(screen: &Screen, prompt: &mut NewPrompt) -> Result<()> {
    let is_typed = prompt.raw == prompt.text.as_bytes();
    let mut text = Some(std::mem::take(&mut prompt.text));
    screen.text("text", &mut text)?;
    prompt.text = text.unwrap_or_default();
    if is_typed {
        prompt.raw = prompt.text.clone().into_bytes();
        return Ok(());
    }
    let raw = std::mem::take(&mut prompt.raw);
    let mut typed = NewItem { role: Some(Role::User), ..NewItem::raw(Kind::Message, PROMPT_FORMAT, raw) };
    screen.item(&mut typed)?;
    prompt.raw = typed.content;
    Ok(())
}

/// Refuses a prompt that can't be kept.
pub(crate) fn check(prompt: &NewPrompt) -> Result<()> {
    for (field, bytes) in [("raw", prompt.raw.len()), ("text", prompt.text.len())] {
        if bytes > MAX_PROMPT_BYTES {
            let reason = format!("{bytes} bytes; a prompt has at most {MAX_PROMPT_BYTES} of it");
            return Err(Error::invalid(field, reason));
        }
    }
    Ok(())
}

/// Stores a prompt and begins its turn. A repeated call finds it, also for a holder that was fenced off since.
pub(crate) fn begin(tx: &mut dyn Tx, by: &Scribe<'_>, id: PromptId, new: &NewPrompt) -> Result<StoredPrompt> {
    if let Some(known) = known(tx, by.thread, id, new)? {
        return Ok(known);
    }
    by.check(tx)?;
    let draft = Draft { raw: &new.raw, text: &new.text, origin: &new.origin, parent: new.parent };
    let item = compose(tx, by.thread, id, &draft)?;
    let turns = match new.turn {
        PromptTurn::New => TurnRule::Begin,
        PromptTurn::Open => TurnRule::Open,
    };
    if new.turn == PromptTurn::Open && turns::open(tx, by.thread)?.is_none() {
        return Err(Error::not_found("open turn", by.thread));
    }
    by.write(tx, item, turns)?;
    let (key, line) = row(tx, id)?;
    stored(tx, (key, &line), false)
}

/// The item of a prompt that comes after the thread's head.
pub(crate) fn compose(tx: &mut dyn Tx, thread: &ThreadId, id: PromptId, draft: &Draft<'_>) -> Result<NewItem> {
    let parent = draft.parent.map(|parent| on_path(tx, thread, parent)).transpose()?;
    let line = Line::behind(id, draft.origin.clone(), parent.as_ref())?;
    let content = PromptContent::new(&line, draft.raw, draft.text).bytes();
    let item = NewItem { role: Some(Role::User), ..NewItem::raw(Kind::Message, PROMPT_FORMAT, content) };
    Ok(item.with_id(id.item()))
}

/// The place of a prompt that must be on the thread's path, and whose row its item bears out: what follows from a row that was altered
/// would be hashed into the chain.
pub(crate) fn on_path(tx: &mut dyn Tx, thread: &ThreadId, id: PromptId) -> Result<Line> {
    let (key, line) = receipts::prompt_row(tx, id)?.ok_or_else(|| Error::not_found("prompt", id))?;
    let is_on_path = match head::head_of(tx, thread)?.0 {
        Some(head) => path::contains(tx, head, key)?,
        None => false,
    };
    if !is_on_path {
        if !receipts::is_reached(tx, thread, key)? {
            return Err(Error::not_found("prompt", id));
        }
        let (expected, found) = ("a prompt on the thread's path".to_owned(), format!("{id}, on another branch"));
        return Err(Error::Conflict { what: "prompt", expected, found });
    }
    receipts::read(tx, key, &IndexRow::Prompt(line.clone()))?;
    Ok(line)
}

/// Reads a prompt that the thread reaches.
pub(crate) fn get(tx: &mut dyn Tx, thread: &ThreadId, id: PromptId) -> Result<Prompt> {
    let (key, line) = reached(tx, thread, id)?;
    let stored = receipts::read(tx, key, &IndexRow::Prompt(line.clone()))?;
    if let Some(parent) = line.parent {
        let (_, parent) = parent_of(tx, key, &line, parent)?;
        check_line(&line, Some(&parent))?;
    } else {
        check_line(&line, None)?;
    }
    prompt(tx, &stored, &line)
}

/// Finds a prompt that the thread reaches by its id, or by an unambiguous beginning of it.
pub(crate) fn find(tx: &mut dyn Tx, thread: &ThreadId, name: &str) -> Result<PromptId> {
    let found = find_receipt(tx, thread, (true, "prompt"), (name, PromptId::MARK))?;
    Ok(PromptId::from_item(found))
}

/// Finds a receipt by its id, with or without its mark, or by an unambiguous beginning.
pub(crate) fn find_receipt(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    (are_prompts, what): (bool, &'static str),
    (name, mark): (&str, &str),
) -> Result<ItemId> {
    let missing = || Error::not_found(what, name);
    let (least, greatest) = ids_from(name.strip_prefix(mark).unwrap_or(name)).ok_or_else(missing)?;
    let range = (*least.as_bytes(), *greatest.as_bytes());
    let mut found = receipts::ids_from(tx, thread, are_prompts, range)?;
    match found.pop() {
        Some(one) if found.is_empty() => Ok(one),
        Some(last) => {
            found.push(last);
            let candidates = found.iter().take(MOST_CANDIDATES).map(|id| format!("{mark}{id}")).collect();
            Err(Error::Ambiguous { given: name.to_owned(), candidates })
        }
        None => Err(missing()),
    }
}

/// The prompts from one to its root, itself first.
pub(crate) fn lineage(tx: &mut dyn Tx, thread: &ThreadId, id: PromptId) -> Result<Vec<Receipt>> {
    let (key, line) = reached(tx, thread, id)?;
    Ok(climb(tx, key, line)?.0)
}

/// Goes from a prompt to its root and checks every step: rows against items, pointers against each other and against the path. The
/// keys come along.
fn climb(tx: &mut dyn Tx, key: ItemKey, line: Line) -> Result<(Vec<Receipt>, Vec<ItemKey>)> {
    let (mut lineage, mut keys) = (Vec::new(), Vec::new());
    let mut next = Some((key, line));
    while let Some((key, line)) = next.take() {
        if lineage.len() >= usize::try_from(MAX_LINEAGE).unwrap_or(usize::MAX) {
            return Err(Error::corrupt(line.id.to_string(), format!("more than {MAX_LINEAGE} prompts lead to it")));
        }
        let stored = receipts::read(tx, key, &IndexRow::Prompt(line.clone()))?;
        lineage.push(receipt(&stored, &line));
        keys.push(key);
        // Whatever it points at stands before it, so no way leads round.
        next = line.parent.map(|parent| parent_of(tx, key, &line, parent)).transpose()?;
        check_line(&line, next.as_ref().map(|(_, parent)| parent))?;
    }
    Ok((lineage, keys))
}

fn check_line(line: &Line, parent: Option<&Line>) -> Result<()> {
    line.problem(parent).map_or(Ok(()), |problem| Err(Error::corrupt(line.id.to_string(), problem)))
}

/// The parent of a prompt, which must stand before it on its path.
fn parent_of(tx: &mut dyn Tx, key: ItemKey, line: &Line, parent: PromptId) -> Result<(ItemKey, Line)> {
    let damaged = |detail: String| Error::corrupt(line.id.to_string(), detail);
    let Some((at, above)) = receipts::prompt_row(tx, parent)? else {
        return Err(damaged(format!("its parent {parent} is missing")));
    };
    if at.depth() >= key.depth() || !path::contains(tx, key, at)? {
        return Err(damaged(format!("its parent {parent} does not stand before it on its path")));
    }
    Ok((at, above))
}

/// What is worked at on a path: its last prompt, and the one that says what is to be done. `None` when there is no prompt on it.
pub(crate) fn context(tx: &mut dyn Tx, thread: &ThreadId, at: Option<Address>) -> Result<Option<PromptContext>> {
    let end = match at {
        Some(address) => Some(head::resolve(tx, thread, address)?),
        None => head::head_of(tx, thread)?.0,
    };
    let Some(end) = end else { return Ok(None) };
    let Some(last) = receipts::last_prompt(tx, end, false, false)? else { return Ok(None) };
    let submitted = read_at(tx, last)?;
    let Some(known) = receipts::last_prompt(tx, end, false, true)? else {
        return Ok(Some(PromptContext { submitted, active: None }));
    };
    let line = line_at(tx, known)?;
    let named = line.active;
    let (lineage, keys) = climb(tx, known, line)?;
    let at = lineage.iter().position(|receipt| receipt.id == named).and_then(|at| keys.get(at)).copied();
    let at =
        at.ok_or_else(|| Error::corrupt(named.to_string(), "it is active and not in the lineage of what follows it"))?;
    let active = Some(read_at(tx, at)?);
    Ok(Some(PromptContext { submitted, active }))
}

/// Reads a page of the prompts on a path. A damaged one is listed, and says so.
pub(crate) fn page(tx: &mut dyn Tx, thread: &ThreadId, query: &PromptQuery) -> Result<ReceiptPage<Prompt>> {
    let sought = query.root.map_or(Sought::Prompts, Sought::PromptsUnder);
    let PromptQuery { at, newest_first, limit, .. } = *query;
    let asked = PathPage { at, newest_first, limit, cursor: query.cursor.as_deref() };
    let keys = receipts::page(tx, thread, sought, asked)?;
    let total = keys.total;
    let (entries, next_cursor) = keys.read(tx, |tx, key| {
        let prompt = match read_at(tx, key) {
            Err(Error::Corrupt { place, detail }) => damaged(tx, key, format!("{place}: {detail}"))?,
            prompt => prompt?,
        };
        let bytes = prompt.raw.len() + prompt.text.len();
        Ok((prompt, bytes))
    })?;
    Ok(ReceiptPage { entries, total, next_cursor })
}

fn reached(tx: &mut dyn Tx, thread: &ThreadId, id: PromptId) -> Result<(ItemKey, Line)> {
    let missing = || Error::not_found("prompt", id);
    let (key, line) = receipts::prompt_row(tx, id)?.ok_or_else(missing)?;
    if receipts::is_reached(tx, thread, key)? { Ok((key, line)) } else { Err(missing()) }
}

fn row(tx: &mut dyn Tx, id: PromptId) -> Result<(ItemKey, Line)> {
    let missing = || Error::corrupt("table prompts", "the row that was just written is missing");
    receipts::prompt_row(tx, id)?.ok_or_else(missing)
}

fn line_at(tx: &mut dyn Tx, key: ItemKey) -> Result<Line> {
    match receipts::row_at(tx, key, true)? {
        Some(IndexRow::Prompt(line)) => Ok(line),
        _ => Err(Error::corrupt(format!("item {}", key.0), "its row in the index of receipts is missing")),
    }
}

fn read_at(tx: &mut dyn Tx, key: ItemKey) -> Result<Prompt> {
    let line = line_at(tx, key)?;
    let stored = receipts::read(tx, key, &IndexRow::Prompt(line.clone()))?;
    prompt(tx, &stored, &line)
}

fn prompt(tx: &mut dyn Tx, stored: &Stored, line: &Line) -> Result<Prompt> {
    let content =
        PromptContent::read(&stored.content).map_err(|problem| Error::corrupt(line.id.to_string(), problem))?;
    let (raw, text) = content.texts();
    let previous = previous(tx, stored.key)?;
    let receipt = receipt(stored, line);
    Ok(Prompt { receipt, previous, raw, text, redaction: stored.redaction.clone(), damage: None })
}

fn previous(tx: &mut dyn Tx, key: ItemKey) -> Result<Option<PromptId>> {
    let Some(before) = receipts::last_prompt(tx, key, true, false)? else { return Ok(None) };
    Ok(path::id_of(tx, before)?.map(PromptId::from_item))
}

/// What there is to show of a prompt that can't be read.
fn damaged(tx: &mut dyn Tx, key: ItemKey, damage: String) -> Result<Prompt> {
    let id = PromptId::from_item(path::id_of(tx, key)?.unwrap_or_else(|| ItemId::from_uuid(uuid::Uuid::nil())));
    let (address, thread) = (path::address_of(tx, key)?, receipts::writer_of(tx, key)?);
    let receipt = Receipt {
        id,
        thread,
        address,
        turn: None,
        origin: PromptOrigin::Unknown("damaged".to_owned()),
        parent: None,
        root: id,
        active: id,
        generation: 1,
        created_at: Timestamp(0),
    };
    let (raw, text) = (Vec::new(), String::new());
    Ok(Prompt { receipt, previous: None, raw, text, redaction: None, damage: Some(damage) })
}

fn receipt(stored: &Stored, line: &Line) -> Receipt {
    let Line { id, origin, parent, root, active, generation } = line.clone();
    let (thread, address, turn, created_at) = (stored.thread.clone(), stored.address, stored.turn, stored.created_at);
    Receipt { id, thread, address, turn, origin, parent, root, active, generation, created_at }
}

fn stored(tx: &mut dyn Tx, (key, line): (ItemKey, &Line), repeated: bool) -> Result<StoredPrompt> {
    let stored = receipts::read(tx, key, &IndexRow::Prompt(line.clone()))?;
    Ok(StoredPrompt { receipt: receipt(&stored, line), previous: previous(tx, key)?, repeated })
}

/// What an earlier call has stored under this id.
fn known(tx: &mut dyn Tx, thread: &ThreadId, id: PromptId, new: &NewPrompt) -> Result<Option<StoredPrompt>> {
    let Some((key, line)) = receipts::prompt_row(tx, id)? else { return Ok(None) };
    let found = receipts::read(tx, key, &IndexRow::Prompt(line.clone()))?;
    let content = PromptContent::read(&found.content).map_err(|problem| Error::corrupt(id.to_string(), problem))?;
    // What it said can't be compared any more when words were taken away.
    let has_same_words = found.redaction.is_some() || content.texts() == (new.raw.clone(), new.text.clone());
    let is_same = found.thread == *thread && has_same_words && (&line.origin, line.parent) == (&new.origin, new.parent);
    match is_same {
        true => stored(tx, (key, &line), true).map(Some),
        false => Err(Error::AlreadyExists { what: "prompt", id: id.to_string() }),
    }
}

/// The id that a prompt gets.
pub(crate) fn id_of(prompt: Option<PromptId>, host: &dyn Host) -> PromptId {
    prompt.unwrap_or_else(|| PromptId::from_item(mint_id(host, host.now())))
}

/// What the item of a receipt says, for a reader that has the item alone.
impl TryFrom<&Item> for Receipt {
    type Error = Error;

    fn try_from(item: &Item) -> Result<Self> {
        let place = || format!("item {}", item.id);
        let content = match item.format.as_str() {
            PROMPT_FORMAT => PromptContent::read(&item.content).map_err(|problem| Error::corrupt(place(), problem))?,
            _ => return Err(Error::invalid("item", "it is no receipt of a prompt")),
        };
        let Line { id, origin, parent, root, active, generation } = content.line(PromptId::from_item(item.id));
        let (thread, address, turn, created_at) = (item.thread.clone(), item.address(), item.turn, item.created_at);
        Ok(Self { id, thread, address, turn, origin, parent, root, active, generation, created_at })
    }
}
