//! Appending: the fence, the items and the head, in one transaction.

use std::sync::Arc;

use crate::chain::{self, Link};
use crate::changes::{self, Area, Note, Verb};
use crate::content::{self, Stored};
use crate::db::{Statement, Tx, Value, query_one, statements};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::id::{Address, BranchId, ItemId, ItemKey, ThreadId, WriterId};
use crate::item::{Appended, AppendedItem, Expect, Hash, Kind, NewItem, Role};
use crate::log::order::{self, Top};
use crate::log::standing::Standing;
use crate::log::{blobs, path, receipts};
use crate::planted::{self, Defect};
use crate::time::Timestamp;

statements! {
    // The lock, the fence and the head in one statement. The tick is one more than any thread's.
    FENCE = "UPDATE threads SET tick = CASE WHEN tick < ?4 THEN ?4 ELSE tick END + 1, updated_at = ?3
        WHERE id = ?1 AND epoch = ?2 AND shelf < 2
        RETURNING tick, head, head_hash, head_is_tip, items, branches, turns, open_turn, updated, activity, ended_at";
    WHY_REFUSED = "SELECT epoch, shelf FROM threads WHERE id = ?1";
    SET_HEAD = "UPDATE threads SET head = ?2, head_hash = ?3, head_is_tip = ?4, items = ?5, branches = ?6, turns = ?7,
        open_turn = ?8 WHERE id = ?1";
    // Apart from the head, because it touches four indexes.
    SET_PLACE = "UPDATE threads SET updated = ?2, activity = ?3 WHERE id = ?1";
    // A thread that is gone on with has not ended.
    OPEN_AGAIN = "UPDATE threads SET ended_at = NULL, end_reason = NULL, version = version + 1 WHERE id = ?1";
    INSERT_ITEM = "INSERT INTO items (key, id, turn, kind, role, format, writer, epoch, tick, created_at, source_id, sources,
        chain, salt, digest, hash, size, encoding, content)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";
    // A number is never used again, though its branch was purged.
    NEXT_BRANCH = "SELECT 1 + coalesce(max(number), 0) FROM (SELECT max(key) AS number FROM branches
        UNION ALL SELECT value FROM counters WHERE name = 'purged-branch') AS numbers";
    INSERT_BRANCH = "INSERT INTO branches (key, thread, id, parent, base, tip, tip_hash, cleared, created_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, 0, ?7)";
    LEAVE_BRANCH = "UPDATE branches SET tip = ?2, tip_hash = ?3 WHERE key = ?1";
    BRANCH_TIP = "SELECT thread, tip FROM branches WHERE key = ?1";
    REVIVE_BRANCH = "UPDATE branches SET cleared = 0 WHERE key = ?1 AND cleared <> 0";
    STORED_ITEM = "SELECT i.key, i.salt, i.digest, i.hash, b.thread, b.id, i.encoding FROM items i JOIN branches b ON b.key = i.key >> 32 WHERE i.id = ?1";
}

/// An item with everything done that needs no transaction: its digest, its compression, its id.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    pub(crate) id: ItemId,
    pub(crate) kind: Kind,
    pub(crate) role: Option<Role>,
    pub(crate) format: String,
    pub(crate) created_at: Timestamp,
    pub(crate) source_id: Option<String>,
    pub(crate) sources: Vec<ItemId>,
    pub(crate) salt: [u8; 16],
    pub(crate) digest: Hash,
    pub(crate) size: i64,
    pub(crate) stored: Stored,
    /// Kept to judge a repeated call: the digest under the stored item's salt needs the bytes.
    pub(crate) content: Arc<[u8]>,
    /// Whether a turn of an imported file begins with this item.
    pub(crate) starts_turn: bool,
}

impl Prepared {
    pub(crate) fn new(item: NewItem, host: &dyn Host) -> Result<Self> {
        let mut salt = [0; 16];
        host.fill_random(&mut salt);
        Self::salted(item, salt, host)
    }

    /// As [`Prepared::new`], with a salt from the host: many are asked for at once where there are many items.
    pub(crate) fn salted(item: NewItem, salt: [u8; 16], host: &dyn Host) -> Result<Self> {
        item.check()?;
        let now = host.now();
        Ok(Self {
            id: item.id.unwrap_or_else(|| mint_id(host, now)),
            digest: chain::content_digest(&item.kind, item.role.as_ref(), &item.format, &salt, &item.content),
            size: i64::try_from(item.content.len()).unwrap_or(i64::MAX),
            stored: content::encode(match item.content.get(..64 << 10) {
                Some(cut) if planted::is(Defect::CutsLongContent) => cut,
                _ => &item.content,
            }),
            content: item.content.into(),
            created_at: item.created_at.unwrap_or(now),
            kind: item.kind,
            role: item.role,
            format: item.format,
            source_id: item.source_id,
            sources: item.sources,
            salt,
            starts_turn: false,
        })
    }
}

/// A UUIDv7 from the host's clock and randomness.
pub(crate) fn mint_id(host: &dyn Host, now: Timestamp) -> ItemId {
    ItemId::from_uuid(mint_uuid(host, now))
}

pub(crate) fn mint_uuid(host: &dyn Host, now: Timestamp) -> uuid::Uuid {
    let mut random = [0; 10];
    host.fill_random(&mut random);
    let millis = u64::try_from(now.0).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

/// What a run of items continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// The thread's head.
    Head,
    /// Nothing: a new root.
    Nothing,
    /// This item of the thread.
    Address(Address),
    /// This item of the thread, by its id.
    Item(ItemId),
}

/// How the items get their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnRule {
    /// The open turn, if there is one.
    Open,
    /// A new turn begins with the first item and stays open.
    Begin,
    /// As imported: a turn begins with each item that says so, and items before it belong to the turn they continue.
    Imported,
}

/// Items that continue one another.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) after: After,
    pub(crate) items: Arc<[Prepared]>,
}

/// An append, ready to be run any number of times.
#[derive(Debug, Clone)]
pub(crate) struct Append {
    pub(crate) thread: ThreadId,
    pub(crate) epoch: i64,
    pub(crate) writer: (i64, WriterId),
    pub(crate) now: Timestamp,
    pub(crate) expect: Expect,
    pub(crate) turns: TurnRule,
    pub(crate) runs: Vec<Run>,
    /// An item that must be stored before these: the last one that was queued.
    pub(crate) requires: Option<ItemId>,
    /// The last item that this handle was told is stored and synced: where it is missing, the store is an older copy of itself.
    pub(crate) builds_on: Option<ItemId>,
}

impl Append {
    pub(crate) fn last_id(&self) -> Option<ItemId> {
        self.runs.last().and_then(|run| run.items.last()).map(|item| item.id)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.runs.iter().flat_map(|run| run.items.iter()).map(|item| item.content.len()).sum()
    }
}

/// Appends. On a refusal nothing is stored.
pub(crate) fn append(tx: &mut dyn Tx, request: &Append) -> Result<Appended> {
    append_from(tx, request, &mut None)
}

/// Appends; where the thread is known to stand it is not read. Leaves where it stands now, as long as that can be gone on from.
pub(crate) fn append_from(tx: &mut dyn Tx, request: &Append, standing: &mut Option<Standing>) -> Result<Appended> {
    if let Some(known) = standing.take()
        && known.serves(request)
        && let Some((appended, now)) = known.go_on(tx, request)?
    {
        *standing = Some(now);
        return Ok(appended);
    }
    if let Some(before) = request.requires
        && path::key_by_id(tx, before)?.is_none()
    {
        let found = "it is not stored".to_owned();
        return Err(Error::Conflict { what: "order", expected: before.to_string(), found });
    }
    let (appended, now) = append_anywhere(tx, request, &mut |_, _| {})?;
    *standing = now;
    Ok(appended)
}

/// Appends, and tells where each item stands.
pub(crate) fn append_telling(
    tx: &mut dyn Tx,
    request: &Append,
    tell: &mut dyn FnMut(ItemId, ItemKey),
) -> Result<Appended> {
    append_anywhere(tx, request, tell).map(|(appended, _)| appended)
}

fn append_anywhere(
    tx: &mut dyn Tx,
    request: &Append,
    tell: &mut dyn FnMut(ItemId, ItemKey),
) -> Result<(Appended, Option<Standing>)> {
    let mut pen = Pen::take(tx, &request.thread, request.epoch, request.writer, request.now)?;
    check_age(tx, request)?;
    pen.expect(tx, request.expect)?;
    let mut items = Vec::new();
    for run in &request.runs {
        pen.go_to(tx, run.after)?;
        for item in run.items.iter() {
            pen.turn_for(tx, item, request.turns, items.is_empty())?;
            items.push(pen.write(tx, item)?);
            pen.head().into_iter().for_each(|key| tell(item.id, key));
            if planted::is(Defect::CommitsBatchInPieces) {
                pen.put_down(tx, Area::Items)?;
                commit_halfway(tx)?;
            }
        }
    }
    if planted::is(Defect::CommitsHeadApart) {
        commit_halfway(tx)?;
    }
    pen.put_down(tx, Area::Items)?;
    if !items.is_empty() {
        pen.open_again(tx)?;
    }
    Ok((Appended { items, repeated: false, replaced: 0, dropped: 0 }, pen.standing(request)))
}

/// Refuses to go on over a store that no longer holds what it had acknowledged to this very holder.
fn check_age(tx: &mut dyn Tx, request: &Append) -> Result<()> {
    match request.builds_on {
        Some(item) if path::key_by_id(tx, item)?.is_none() => {
            let lost = format!("item {item}, which was acknowledged and synced, is not in it any more");
            Err(went_back(&request.thread, &lost))
        }
        _ => Ok(()),
    }
}

/// What is said to a holder whose store is older than what it knows of it.
fn went_back(thread: &ThreadId, lost: &str) -> Error {
    let detail = format!(
        "{lost}: an older copy was put in the place of the store, and writing on would part from what is lost; put the right \
         data back, or open the thread again to go on from what is there"
    );
    Error::corrupt(format!("thread {thread}"), detail)
}

/// Ends the transaction and begins another one, which only planted defects do.
fn commit_halfway(tx: &mut dyn Tx) -> Result<()> {
    let parts = ["COMMIT", "BEGIN IMMEDIATE", "SAVEPOINT request"];
    parts.into_iter().try_for_each(|sql| tx.execute(Statement { name: "halfway", sql }, &[]).map(drop))
}

/// Judges a refused append: if all of its items are stored in this thread, in this order, with this content, then an earlier
/// call did it and its answer was lost.
pub(crate) fn find_repeated(tx: &mut dyn Tx, request: &Append) -> Result<Option<Appended>> {
    let mut items = Vec::new();
    let mut last: Option<ItemKey> = None;
    for item in request.runs.iter().flat_map(|run| run.items.iter()) {
        let Some(stored) = query_one(tx, STORED_ITEM, &[item.id.as_bytes().as_slice().into()], |row| {
            let salt = row.opt_blob(1)?.and_then(|salt| <[u8; 16]>::try_from(salt).ok());
            let digest = row.parse(2, Hash::from_slice(row.blob(2)?), "a hash")?;
            let hash = row.parse(3, Hash::from_slice(row.blob(3)?), "a hash")?;
            let branch = row.parse(5, ItemId::from_slice(row.blob(5)?), "an id")?;
            let same_thread = row.text(4)? == request.thread.as_str();
            let salt = if content::is_redacted(row.int(6)?) { Salt::Redacted } else { Salt::Stored(salt) };
            Ok((ItemKey(row.int(0)?), salt, digest, hash, same_thread, branch))
        })?
        else {
            return Ok(None);
        };
        let (key, salt, digest, hash, same_thread, branch) = stored;
        let digest_under =
            |salt| chain::content_digest(&item.kind, item.role.as_ref(), &item.format, &salt, &item.content);
        let is_same = match salt {
            Salt::Stored(salt) => salt.map(digest_under) == Some(digest),
            // What it was can't be compared any more, and ids are never used twice.
            Salt::Redacted => true,
        };
        let in_order = last.is_none_or(|last| last.depth() < key.depth());
        if !same_thread || !is_same || !in_order {
            return Ok(None);
        }
        last = Some(key);
        items.push(AppendedItem { id: item.id, branch, depth: key.depth(), hash });
    }
    Ok((!items.is_empty()).then_some(Appended { items, repeated: true, replaced: 0, dropped: 0 }))
}

/// What a stored item's digest was computed with.
enum Salt {
    Stored(Option<[u8; 16]>),
    /// It is gone with the content.
    Redacted,
}

/// A thread held for writing inside a transaction.
pub(crate) struct Pen<'a> {
    thread: &'a ThreadId,
    epoch: i64,
    writer: (i64, WriterId),
    now: Timestamp,
    tick: i64,
    head: Option<(ItemKey, Hash)>,
    /// Whether the head is the last item of a branch of this thread.
    head_is_tip: bool,
    branch_id: Option<ItemId>,
    items: i64,
    branches: i64,
    turns: i64,
    open_turn: Option<i64>,
    turn: Option<i64>,
    /// A turn whose row is to be written with its first item; whether it came from an imported file.
    begins_turn: Option<bool>,
    /// Its places in the orders by update and by activity, and what is on top of them.
    places: (i64, i64),
    top: Top,
    /// Whether the thread was marked as ended.
    has_ended: bool,
}

impl<'a> Pen<'a> {
    /// Locks the thread and checks the epoch.
    pub(crate) fn take(
        tx: &mut dyn Tx,
        thread: &'a ThreadId,
        epoch: i64,
        writer: (i64, WriterId),
        now: Timestamp,
    ) -> Result<Self> {
        let top = Top::read(tx)?;
        let fence = if planted::is(Defect::LetsStaleWritersAppend) { current_epoch(tx, thread)? } else { epoch };
        let tick = if planted::is(Defect::OrdersByClock) { now.0 } else { top.tick };
        let pen = query_one(tx, FENCE, &[thread.as_str().into(), fence.into(), now.0.into(), tick.into()], |row| {
            let hash = row.opt_blob(2)?.and_then(Hash::from_slice);
            Ok(Self {
                thread,
                epoch,
                writer,
                now,
                tick: row.int(0)?,
                head: row.opt_int(1)?.map(ItemKey).zip(hash),
                head_is_tip: row.int(3)? == 1,
                branch_id: None,
                items: row.int(4)?,
                branches: row.int(5)?,
                turns: row.int(6)?,
                open_turn: row.opt_int(7)?,
                turn: row.opt_int(7)?,
                begins_turn: None,
                places: (row.int(8)?, row.int(9)?),
                top: Top::default(),
                has_ended: row.opt_int(10)?.is_some(),
            })
        })?;
        match pen {
            Some(pen) => Ok(Self { top, ..pen }),
            None => Err(why_refused(tx, thread, epoch)?),
        }
    }

    fn expect(&self, tx: &mut dyn Tx, expect: Expect) -> Result<()> {
        let Expect::Head(expected) = expect else {
            return Ok(());
        };
        let found = self.head.map(|(key, _)| path::address_of(tx, key)).transpose()?;
        if found == expected || planted::is(Defect::IgnoresExpectedHead) {
            return Ok(());
        }
        let show = |address: Option<Address>| address.map_or_else(|| "an empty thread".to_owned(), |it| it.to_string());
        Err(Error::Conflict { what: "head", expected: show(expected), found: show(found) })
    }

    /// Moves to what the next items continue.
    fn go_to(&mut self, tx: &mut dyn Tx, after: After) -> Result<()> {
        let target = match after {
            After::Head => return Ok(()),
            After::Nothing => return self.leave(tx),
            After::Address(address) => super::head::resolve(tx, self.thread, address)?,
            After::Item(id) => {
                let key = path::key_by_id(tx, id)?.ok_or_else(|| Error::not_found("item", id))?;
                let address = path::address_of(tx, key)?;
                self.turn = path::link_at(tx, key)?.and_then(|(_, turn)| turn);
                super::head::resolve(tx, self.thread, address)?
            }
        };
        self.move_to(tx, target)
    }

    /// Sets the head to an item of the thread.
    pub(crate) fn move_to(&mut self, tx: &mut dyn Tx, target: ItemKey) -> Result<()> {
        if self.head.is_some_and(|(key, _)| key == target) {
            return Ok(());
        }
        let (hash, turn) =
            path::link_at(tx, target)?.ok_or_else(|| Error::corrupt(format!("item {}", target.0), "it is missing"))?;
        self.leave(tx)?;
        let tip = query_one(tx, BRANCH_TIP, &[target.branch().into()], |row| {
            Ok((row.text(0)? == self.thread.as_str(), path::depth(row, 1)?))
        })?;
        self.head = Some((target, hash));
        self.head_is_tip = tip == Some((true, target.depth()));
        self.turn = self.open_turn.or(turn);
        if tip.is_some_and(|(own, _)| own) {
            tx.execute(REVIVE_BRANCH, &[target.branch().into()])?;
        }
        Ok(())
    }

    /// Leaves the branch that the head stands on; the tip was known from the head alone until now.
    pub(crate) fn leave(&mut self, tx: &mut dyn Tx) -> Result<()> {
        if let Some((key, hash)) = self.head.take()
            && self.head_is_tip
        {
            record_tip(tx, key, hash)?;
        }
        self.head_is_tip = false;
        self.branch_id = None;
        Ok(())
    }

    /// Stays where it stands, but goes on from there on a branch of its own, also where nothing follows.
    pub(super) fn branch_off(&mut self, tx: &mut dyn Tx) -> Result<()> {
        let head = self.head;
        self.leave(tx)?;
        self.head = head;
        Ok(())
    }

    /// Writes one item after the head, in this turn.
    pub(super) fn write_in(&mut self, tx: &mut dyn Tx, item: &Prepared, turn: Option<i64>) -> Result<AppendedItem> {
        self.turn = turn;
        self.write(tx, item)
    }

    fn turn_for(&mut self, tx: &mut dyn Tx, item: &Prepared, rule: TurnRule, first: bool) -> Result<()> {
        match rule {
            TurnRule::Begin if first => {
                if let Some(open) = self.open_turn {
                    let last = self.head.map(|(key, _)| key);
                    crate::turns::interrupt(tx, self.thread, open, last, self.now)?;
                }
                self.turns += 1;
                self.open_turn = Some(self.turns);
                self.turn = self.open_turn;
                self.begins_turn = Some(false);
            }
            TurnRule::Imported if item.starts_turn => {
                if let (Some(turn), Some((key, _))) = (self.turn, self.head) {
                    crate::turns::close_imported(tx, self.thread, turn, key, item.created_at)?;
                }
                self.turns += 1;
                self.turn = Some(self.turns);
                self.begins_turn = Some(true);
            }
            TurnRule::Begin | TurnRule::Open | TurnRule::Imported => {}
        }
        Ok(())
    }

    /// Writes one item after the head.
    fn write(&mut self, tx: &mut dyn Tx, item: &Prepared) -> Result<AppendedItem> {
        self.check_sources(tx, item)?;
        let parent = self.head.map_or_else(|| chain::genesis(self.thread), |(_, hash)| hash);
        let hash = chain::item_hash(&Link {
            thread: self.thread,
            parent,
            id: item.id,
            turn: self.turn,
            writer: self.writer.1,
            epoch: self.epoch,
            tick: self.tick,
            created_at: item.created_at,
            digest: item.digest,
            sources: &item.sources,
        });
        let depth = match self.head {
            None => 0,
            Some((key, _)) => key.depth().checked_add(1).ok_or_else(|| Error::invalid("depth", "the path is full"))?,
        };
        let key = match self.head {
            Some((key, _)) if self.head_is_tip => ItemKey::new(key.branch(), depth),
            _ => self.begin_branch(tx, item.id, depth, hash)?,
        };
        let stamp = Stamp { turn: self.turn, writer: self.writer, epoch: self.epoch, tick: self.tick };
        insert_item(tx, self.thread, key, item, hash, &stamp)?;
        if let (Some(imported), Some(turn)) = (self.begins_turn.take(), self.turn) {
            crate::turns::begin(tx, self.thread, turn, key, item.created_at, imported)?;
        }
        self.head = Some((key, hash));
        self.head_is_tip = true;
        self.items += 1;
        let branch = match self.branch_id {
            Some(id) => id,
            None => path::address_of(tx, key)?.branch,
        };
        self.branch_id = Some(branch);
        Ok(AppendedItem { id: item.id, branch, depth, hash })
    }

    fn begin_branch(&mut self, tx: &mut dyn Tx, id: ItemId, depth: u32, hash: Hash) -> Result<ItemKey> {
        let parent = self.head.map(|(key, _)| key);
        let branch = NewBranch { thread: self.thread, id, parent, base: depth, hash, created_at: self.now };
        let number = insert_branch(tx, &branch)?;
        self.branches += 1;
        self.branch_id = Some(id);
        Ok(ItemKey::new(number, depth))
    }

    fn check_sources(&self, tx: &mut dyn Tx, item: &Prepared) -> Result<()> {
        for source in &item.sources {
            let key = path::key_by_id(tx, *source)?;
            let on_path = match (self.head, key) {
                (Some((head, _)), Some(key)) => path::contains(tx, head, key)?,
                _ => false,
            };
            if !on_path {
                return Err(Error::invalid(
                    "sources",
                    format!("{source} is not on the path of the item that cites it"),
                ));
            }
        }
        Ok(())
    }

    /// Stores where the thread stands now, and notes of what it has changed.
    pub(crate) fn put_down(&self, tx: &mut dyn Tx, area: Area) -> Result<()> {
        let hash = self.head.as_ref().map(|(_, hash)| hash.0.as_slice());
        let args = [
            self.thread.as_str().into(),
            self.head.map(|(key, _)| key.0).into(),
            hash.into(),
            i64::from(self.head_is_tip).into(),
            self.items.into(),
            self.branches.into(),
            self.turns.into(),
            self.open_turn.into(),
        ];
        tx.execute(SET_HEAD, &args)?;
        let updated = self.top.updated(self.thread, self.tick, self.places.0);
        let activity = self.top.activity(self.thread, self.tick, self.places.1);
        if (updated, activity) != self.places {
            tx.execute(SET_PLACE, &[self.thread.as_str().into(), updated.into(), activity.into()])?;
        }
        match area {
            Area::Items if tx.is_alone() && !self.top.is_followed => Ok(()),
            area => self.note(tx, area),
        }
    }

    /// Takes back that the thread has ended, if that was said.
    fn open_again(&self, tx: &mut dyn Tx) -> Result<()> {
        if !self.has_ended {
            return Ok(());
        }
        tx.execute(OPEN_AGAIN, &[self.thread.as_str().into()])?;
        self.note(tx, Area::Thread)
    }

    /// Notes for those who follow that something of the thread has changed.
    pub(super) fn note(&self, tx: &mut dyn Tx, area: Area) -> Result<()> {
        note(tx, self.thread, self.tick, area, self.now)
    }

    pub(crate) fn head(&self) -> Option<ItemKey> {
        self.head.map(|(key, _)| key)
    }

    /// Where the thread stands after an append.
    fn standing(&self, request: &Append) -> Option<Standing> {
        let (head, hash) = self.head.filter(|_| self.head_is_tip)?;
        let (epoch, tick, open_turn) = (self.epoch, self.tick, self.open_turn);
        Some(Standing { epoch, head, hash, item: request.last_id()?, branch: self.branch_id?, tick, open_turn })
    }

    pub(crate) fn close_turn(&mut self) -> Option<i64> {
        self.turn = None;
        self.open_turn.take()
    }
}

/// A branch to be.
pub(crate) struct NewBranch<'a> {
    pub(crate) thread: &'a ThreadId,
    pub(crate) id: BranchId,
    pub(crate) parent: Option<ItemKey>,
    pub(crate) base: u32,
    /// The hash of its first item.
    pub(crate) hash: Hash,
    pub(crate) created_at: Timestamp,
}

/// Writes the row of a branch; gives its number. Its first item is written next, in the same transaction.
pub(crate) fn insert_branch(tx: &mut dyn Tx, branch: &NewBranch<'_>) -> Result<i64> {
    order::line_up(tx)?;
    let number = query_one(tx, NEXT_BRANCH, &[], |row| row.int(0))?.unwrap_or(1);
    let args = [
        number.into(),
        branch.thread.as_str().into(),
        branch.id.as_bytes().as_slice().into(),
        branch.parent.map(|key| key.0).into(),
        i64::from(branch.base).into(),
        Value::Blob(&branch.hash.0),
        branch.created_at.0.into(),
    ];
    // A taken id is told by the item below, in the item's words.
    tx.execute(INSERT_BRANCH, &args).map_err(|error| taken(error, branch.id))?;
    Ok(number)
}

/// Notes in a branch's row where it ends.
pub(crate) fn record_tip(tx: &mut dyn Tx, tip: ItemKey, hash: Hash) -> Result<()> {
    tx.execute(LEAVE_BRANCH, &[tip.branch().into(), i64::from(tip.depth()).into(), Value::Blob(&hash.0)]).map(drop)
}

/// Notes for those who follow that a thread has new items, or stands elsewhere.
pub(crate) fn note(tx: &mut dyn Tx, thread: &ThreadId, tick: i64, area: Area, now: Timestamp) -> Result<()> {
    let verb = if area == Area::Items { Verb::Created } else { Verb::Changed };
    changes::note(tx, thread, Some(tick), Note { area, verb, subject: None, now })
}

/// Writes the row of an item; its values are those of the table's columns, in their order.
pub(crate) fn insert_row(tx: &mut dyn Tx, id: ItemId, values: &[Value<'_>]) -> Result<()> {
    tx.post(INSERT_ITEM, values).map(drop).map_err(|error| taken(error, id))
}

/// What the items of an append have in common.
pub(crate) struct Stamp {
    pub(crate) turn: Option<i64>,
    pub(crate) writer: (i64, WriterId),
    pub(crate) epoch: i64,
    pub(crate) tick: i64,
}

/// Writes an item that has its place and its hash, with its payloads and its row among the receipts, if it is one.
pub(crate) fn insert_item(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    key: ItemKey,
    item: &Prepared,
    hash: Hash,
    stamp: &Stamp,
) -> Result<()> {
    let sources: Vec<u8> = item.sources.iter().flat_map(|id| *id.as_bytes()).collect();
    let args = [
        key.0.into(),
        item.id.as_bytes().as_slice().into(),
        stamp.turn.into(),
        item.kind.as_str().into(),
        item.role.as_ref().map(Role::as_str).into(),
        item.format.as_str().into(),
        stamp.writer.0.into(),
        stamp.epoch.into(),
        stamp.tick.into(),
        item.created_at.0.into(),
        item.source_id.as_deref().into(),
        (!sources.is_empty()).then_some(sources.as_slice()).into(),
        chain::VERSION.into(),
        Value::Blob(&item.salt),
        Value::Blob(&item.digest.0),
        Value::Blob(&hash.0),
        item.size.into(),
        item.stored.encoding.into(),
        Value::Blob(&item.stored.bytes),
    ];
    insert_row(tx, item.id, &args)?;
    blobs::store(tx, key, &item.stored.blobs)?;
    receipts::index(tx, thread, key, (item.id, &item.format, &item.content))
}

fn taken(error: Error, id: ItemId) -> Error {
    match error {
        Error::AlreadyExists { .. } => Error::AlreadyExists { what: "item", id: id.to_string() },
        other => other,
    }
}

/// What a planted defect compares the epoch with: itself.
fn current_epoch(tx: &mut dyn Tx, thread: &ThreadId) -> Result<i64> {
    Ok(query_one(tx, WHY_REFUSED, &[thread.as_str().into()], |row| row.int(0))?.unwrap_or(0))
}

/// Finds out why the fence let nothing through.
pub(crate) fn why_refused(tx: &mut dyn Tx, thread: &ThreadId, epoch: i64) -> Result<Error> {
    let found = query_one(tx, WHY_REFUSED, &[thread.as_str().into()], |row| Ok((row.int(0)?, row.int(1)?)))?;
    Ok(match found {
        // It never falls.
        Some((stored, _)) if stored < epoch => {
            went_back(thread, &format!("its epoch is {stored}, and this handle was given {epoch}"))
        }
        Some((stored, shelf)) if shelf < 2 && stored != epoch => Error::ClaimLost { thread: thread.clone(), epoch },
        _ => Error::not_found("thread", thread),
    })
}
