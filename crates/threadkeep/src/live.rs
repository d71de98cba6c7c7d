//! Live threads: a claim, appends under it, and the promise of what each acknowledgement is worth.

mod checkpoints;
mod documents;
mod goals;
mod importing;
mod inbox;
mod keeping;
mod prompts;
mod repairing;
mod requests;
mod roadmaps;
mod taken;
mod tools;
mod under_claim;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use async_lock::Mutex;

use crate::claim::ReleaseRequest;
use crate::claims;
use crate::concurrency;
use crate::db::room::Place;
use crate::db::{Pending, Sync, Terms, Tx};
use crate::error::{Error, Result};
use crate::id::{Address, ItemId, ThreadId, WriterId};
use crate::item::{Appended, Durability, Expect, Item, Kind, NewItem, Role};
use crate::live::taken::Taken;
use crate::live::under_claim::UnderClaim;
use crate::log::append::{After, Append, Prepared, Run, TurnRule, append, append_from, find_repeated};
use crate::log::read::ItemQuery;
use crate::log::standing::Standing;
use crate::log::{head, path};
use crate::planted::{self, Defect};
use crate::policy::Policy;
use crate::receipt;
use crate::store::{Inner, Threads};
use crate::thread::{Page, Thread};
use crate::threads::{self, Creation, Scope};
use crate::turn::{TurnEnd, TurnEnded};
use crate::turns;
use crate::view::{Part, View};

pub use importing::Importing;

/// How many bytes may be on their way unacknowledged before an append waits.
const QUEUE_BYTES: usize = 8 << 20;
/// After so many appends that were not synced, all of them are.
const MOST_UNSYNCED: usize = 1_024;
/// How often taking a claim is tried anew when another process is faster.
const CLAIM_ATTEMPTS: usize = 16;

/// A thread that this handle may write. Cheap to clone; clones share the claim, which is released with the last of them.
#[derive(Debug, Clone)]
pub struct LiveThread {
    live: Arc<Live>,
}

#[derive(Debug)]
struct Live {
    inner: Arc<Inner>,
    id: ThreadId,
    state: Mutex<State>,
    /// Where the thread stands, by the last append. Only a hint: the append that goes on from it compares.
    standing: Arc<concurrency::Mutex<Option<Standing>>>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    policy: Policy,
    /// Appends that were not waited for, in order.
    queue: VecDeque<Queued>,
    /// Appends that failed for a reason that may pass, in order.
    unsaved: VecDeque<Arc<Append>>,
    /// Appends that were not waited for and were refused for good.
    refused: VecDeque<Arc<Append>>,
    /// A request that may give up the claim. Kept here until its answer is known, so that a handle whose caller stopped waiting
    /// does not write on without its claim.
    leaving: Option<Leaving>,
    /// The last items of the appends that are stored and may not be synced.
    unsynced: Vec<ItemId>,
    /// The last item that is stored and synced, as far as this handle was told.
    acknowledged: Option<ItemId>,
}

#[derive(Debug)]
enum Phase {
    /// Nothing is stored yet.
    Unborn(Box<Creation>),
    /// Storing and claiming it is on its way. Kept here, so that a caller who stops waiting for it loses nothing.
    Birth(Box<Creation>, Pending<Option<i64>>, Taken),
    /// The claim is held at this epoch.
    Open(i64),
    /// Shut down or discarded.
    Closed,
}

/// A request after which the claim may be gone.
#[derive(Debug)]
enum Leaving {
    EndOfTurn(Pending<TurnEnded>),
    Shutdown(Pending<()>),
}

/// What became of it.
struct Left {
    released: bool,
    turn: Option<TurnEnded>,
}

impl Leaving {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Left>> {
        match self {
            Self::EndOfTurn(pending) => Pin::new(pending)
                .poll(context)
                .map_ok(|turn| Left { released: turn.handed_over.is_some(), turn: Some(turn) }),
            Self::Shutdown(pending) => Pin::new(pending).poll(context).map_ok(|()| Left { released: true, turn: None }),
        }
    }
}

#[derive(Debug)]
struct Queued {
    request: Arc<Append>,
    pending: Pending<Appended>,
    bytes: usize,
}

/// How an append is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AppendOptions {
    /// What the acknowledgement promises.
    pub durability: Durability,
    /// How the thread must be found.
    pub expect: Expect,
    /// The item to continue from instead of the head; a branch begins there, or goes on where it ended.
    pub after: Option<Address>,
}

impl LiveThread {
    pub(crate) fn unborn(inner: Arc<Inner>, creation: Creation) -> Self {
        let (id, policy) = (creation.id.clone(), creation.policy.clone());
        Self::with_phase(inner, id, policy, Phase::Unborn(Box::new(creation)))
    }

    pub(crate) async fn resume(inner: Arc<Inner>, id: ThreadId) -> Result<Self> {
        let (claiming, epoch) = take_claim(&inner, &id).await?;
        let policy = {
            let id = id.clone();
            inner.db.read(move |tx| threads::policy(tx, &id)).await?
        };
        claiming.hand_over();
        Ok(Self::with_phase(inner, id, policy, Phase::Open(epoch)))
    }

    /// Takes the claim whoever holds it, and says so in the thread.
    pub(crate) async fn take_over(inner: Arc<Inner>, id: ThreadId, reason: String) -> Result<Self> {
        if reason.trim().is_empty() {
            return Err(Error::invalid("reason", "whoever finds the thread taken over wants to know why"));
        }
        let (holder, writer) = (inner.holder()?, inner.writer().await?);
        for _ in 0..CLAIM_ATTEMPTS {
            let mut claiming = Claiming::new(&inner, &id);
            let (thread, holder, reason) = (id.clone(), holder.clone(), reason.clone());
            let (host, taken, screen) = (Arc::clone(&inner.host), claiming.taken.clone(), inner.screen.clone());
            // All in one transaction: however many take it over at once, each of them does, one after the other.
            let take = move |tx: &mut dyn Tx| {
                let earlier = taken.begin_run();
                threads::lock(tx, &thread)?;
                let claim = claims::read(tx, &thread)?;
                if let Some(epoch) = earlier
                    && claims::has_taken(tx, &thread, epoch, &holder.id)?
                {
                    taken.set(Some(epoch));
                    return Ok(Some(epoch));
                }
                let from = claim.holder.map_or_else(|| "nobody".to_owned(), |from| from.to_string());
                let text = format!("{} took this thread over from {from}: {reason}", holder.label);
                let view = View { role: Some(Role::System), parts: vec![Part::Note { text }], ..View::default() };
                let mut event = NewItem::from_view(Kind::Event, &view);
                screen.item(&mut event)?;
                let event = Prepared::new(event, &*host)?;
                let epoch = claims::take(tx, &thread, claim.epoch, &holder)?;
                if let Some(epoch) = epoch {
                    let request = Append {
                        thread: thread.clone(),
                        epoch,
                        writer,
                        now: host.now(),
                        expect: Expect::Any,
                        turns: TurnRule::Open,
                        runs: vec![Run { after: After::Head, items: Arc::new([event]) }],
                        requires: None,
                        builds_on: None,
                    };
                    append(tx, &request)?;
                }
                taken.set(epoch);
                Ok(epoch)
            };
            if let Some(epoch) = claiming.take(take).await? {
                let thread = id.clone();
                let policy = inner.db.read(move |tx| threads::policy(tx, &thread)).await?;
                claiming.hand_over();
                return Ok(Self::with_phase(inner, id, policy, Phase::Open(epoch)));
            }
        }
        Err(Error::Busy { detail: format!("others took the claim on {id} {CLAIM_ATTEMPTS} times") })
    }

    fn with_phase(inner: Arc<Inner>, id: ThreadId, policy: Policy, phase: Phase) -> Self {
        let (queue, unsaved, refused) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let (leaving, unsynced, acknowledged) = (None, Vec::new(), None);
        let state = State { phase, policy, queue, unsaved, refused, leaving, unsynced, acknowledged };
        let standing = Arc::default();
        Self { live: Arc::new(Live { inner, id, state: Mutex::new(state), standing }) }
    }

    /// The thread's id; chosen or minted before anything is stored.
    pub fn id(&self) -> &ThreadId {
        &self.live.id
    }

    /// Whether both are clones of one handle.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.live, &other.live)
    }

    /// Appends items after the head, all or none, at the default durability.
    ///
    /// # Errors
    /// As [`LiveThread::append_with`].
    pub async fn append(&self, items: Vec<NewItem>) -> Result<Appended> {
        self.append_with(items, AppendOptions::default()).await
    }

    /// Appends items, all or none.
    ///
    /// What the thread's policy does not keep is dropped first; if none is left, nothing is touched. With
    /// [`Durability::Queued`] the answer names no places: the items are on their way, in order.
    ///
    /// A call may be repeated with the same ids when its answer was lost: if all of its items are stored in this order with
    /// this content, the answer is that of the first call.
    ///
    /// # Errors
    /// After [`Error::StorageFull`], [`Error::Busy`] and [`Error::Io`] the items are kept: [`LiveThread::flush`] stores them
    /// when the cause has passed, and so does the next append. [`Error::ClaimLost`] ends the handle;
    /// [`LiveThread::take_unsaved`] gives back what it kept. Any other refusal stores and keeps nothing. When a queued append
    /// was refused since, the next call answers with that refusal and is not tried.
    pub async fn append_with(&self, items: Vec<NewItem>, options: AppendOptions) -> Result<Appended> {
        let mut state = self.live.state.lock().await;
        self.check_open(&mut state).await?;
        let given = items.len();
        let kept = self.kept(&state, items);
        let (dropped, mut replaced) = (given - kept.len(), 0);
        let prepared = kept.into_iter().map(|item| self.prepare(item, &mut replaced)).collect::<Result<Arc<[_]>>>()?;
        if prepared.is_empty() {
            return Ok(Appended { items: Vec::new(), repeated: false, replaced: 0, dropped });
        }
        let after = options.after.map_or(After::Head, After::Address);
        let request = self.request(vec![Run { after, items: prepared }], options.expect, TurnRule::Open);
        let appended = match options.durability {
            Durability::Queued => self.enqueue(&mut state, request).await?,
            Durability::Written => self.settle_and_send(&mut state, request, Sync::Written).await?,
            Durability::Synced => self.settle_and_send(&mut state, request, Sync::Synced).await?,
        };
        Ok(Appended { replaced, dropped, ..appended })
    }

    /// Begins a turn with its prompt, which is synced before this returns. A turn that is still open is marked as interrupted.
    ///
    /// # Errors
    /// As [`LiveThread::append_with`].
    pub async fn begin_turn(&self, prompt: NewItem) -> Result<Appended> {
        let mut state = self.live.state.lock().await;
        self.check_open(&mut state).await?;
        let mut replaced = 0;
        let prepared = self.prepare(prompt, &mut replaced)?;
        let runs = vec![Run { after: After::Head, items: Arc::new([prepared]) }];
        let request = self.request(runs, Expect::Any, TurnRule::Begin);
        let appended = self.settle_and_send(&mut state, request, Sync::Synced).await?;
        Ok(Appended { replaced, ..appended })
    }

    /// Ends the open turn. When somebody has asked for the thread, this hands it over, in the same transaction: the claim is
    /// given up and the handle is closed.
    ///
    /// # Errors
    /// [`Error::NotFound`] when no turn is open.
    pub async fn end_turn(&self, mut end: TurnEnd) -> Result<TurnEnded> {
        self.live.inner.screen.text("outcome", &mut end.outcome)?;
        let mut state = self.live.state.lock().await;
        let change = move |tx: &mut dyn Tx, claim: &UnderClaim<'_>| {
            let ordinal = turns::end(tx, claim.thread, claim.epoch, claim.writer, claim.now, &end)?;
            let handed_over = claims::asked(tx, claim.thread, claim.epoch)?;
            if handed_over.is_some() {
                claims::release(tx, claim.thread, claim.epoch, claim.now)?;
            }
            Ok(TurnEnded { ordinal, handed_over })
        };
        // A second run would find no open turn.
        let pending = self.send_under_claim(&mut state, 0, self.terms(Sync::Synced), change).await?;
        state.leaving = Some(Leaving::EndOfTurn(pending));
        let missing = || Error::Backend { detail: "the end of the turn was not answered".to_owned() };
        self.leave(&mut state).await?.ok_or_else(missing)
    }

    /// Who has asked for the thread, if anybody has. [`LiveThread::end_turn`] hands it over, and so does
    /// [`LiveThread::shutdown`].
    ///
    /// # Errors
    /// As every read.
    pub async fn release_requested(&self) -> Result<Option<ReleaseRequest>> {
        let mut state = self.live.state.lock().await;
        drop(self.leave(&mut state).await);
        let Phase::Open(epoch) = state.phase else { return Ok(None) };
        drop(state);
        let id = self.live.id.clone();
        self.live.inner.db.read(move |tx| claims::asked(tx, &id, epoch)).await
    }

    /// Moves the head back (or anywhere) to an item of this thread. What came after it stays, on its branch.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the thread does not reach the item.
    pub async fn rewind(&self, to: Address) -> Result<()> {
        let rewind = move |tx: &mut dyn Tx, claim: &UnderClaim<'_>| {
            head::set_head(tx, claim.thread, claim.epoch, claim.writer, claim.now, to)
        };
        self.under_claim(self.terms(Sync::Synced).repeatable(), rewind).await
    }

    /// Starts afresh: the next append begins a new root. What was written stays readable by its addresses. Gives the number
    /// of items that the active path had.
    ///
    /// # Errors
    /// As every write under a claim.
    pub async fn clear(&self) -> Result<u64> {
        let clear = |tx: &mut dyn Tx, claim: &UnderClaim<'_>| {
            head::clear(tx, claim.thread, claim.epoch, claim.writer, claim.now)
        };
        // A second run would not know how long the path was.
        self.under_claim(self.terms(Sync::Synced), clear).await
    }

    /// Where the thread stands; `None` when nothing is stored or it was cleared.
    ///
    /// # Errors
    /// As every read.
    pub async fn head(&self) -> Result<Option<Address>> {
        let mut state = self.live.state.lock().await;
        if matches!(state.phase, Phase::Unborn(_)) {
            return Ok(None);
        }
        self.check_open(&mut state).await?;
        self.materialise(&mut state, Sync::Synced).await?;
        self.settle(&mut state).await?;
        let id = self.live.id.clone();
        let read = move |tx: &mut dyn Tx| head::head_of(tx, &id)?.0.map(|key| path::address_of(tx, key)).transpose();
        self.live.inner.db.read(read).await
    }

    /// Reads a page of this thread's path, everything that was appended (and queued) before included.
    ///
    /// # Errors
    /// [`Error::NotFound`] when nothing is stored yet.
    pub async fn load_history(&self, query: ItemQuery) -> Result<Page<Item>> {
        self.settled().await?;
        self.threads().items(&self.live.id, query).await
    }

    /// Reads this thread's metadata, archived or not.
    ///
    /// # Errors
    /// [`Error::NotFound`] when nothing is stored yet.
    pub async fn read(&self) -> Result<Thread> {
        self.settled().await?;
        self.threads().get(&self.live.id).await
    }

    /// Stores the thread itself, if it is not stored yet, and everything that was appended. Repeating it changes nothing.
    ///
    /// # Errors
    /// As [`LiveThread::append_with`].
    pub async fn persist(&self) -> Result<()> {
        let mut state = self.live.state.lock().await;
        self.check_open(&mut state).await?;
        self.materialise(&mut state, Sync::Synced).await?;
        self.settle(&mut state).await
    }

    /// A barrier: when it returns, everything that this handle was told is stored survives a power loss, and everything that
    /// was queued or kept after a failure is stored.
    ///
    /// # Errors
    /// As [`LiveThread::append_with`]; what could not be stored is still kept.
    pub async fn flush(&self) -> Result<()> {
        let mut state = self.live.state.lock().await;
        self.check_open(&mut state).await?;
        self.flush_held(&mut state).await
    }

    async fn flush_held(&self, state: &mut State) -> Result<()> {
        if matches!(state.phase, Phase::Unborn(_)) && state.unsaved.is_empty() {
            return Ok(());
        }
        self.materialise(state, Sync::Synced).await?;
        self.settle(state).await?;
        self.live.inner.sync().await?;
        self.check_unsynced(state).await
    }

    /// Finds out whether the disk lost what was stored and not synced, when a sync failed in between, whosesoever that was. It
    /// is told once.
    async fn check_unsynced(&self, state: &mut State) -> Result<()> {
        if state.unsynced.is_empty() {
            return Ok(());
        }
        let stored = state.unsynced.clone();
        let find = move |tx: &mut dyn Tx| {
            for last in &stored {
                if path::key_by_id(tx, *last)?.is_none() {
                    return Ok(Some(*last));
                }
            }
            Ok(None)
        };
        let lost = self.live.inner.db.read(find).await?;
        let last = state.unsynced.pop();
        state.unsynced.clear();
        let Some(lost) = lost else {
            state.acknowledged = last.or(state.acknowledged);
            return Ok(());
        };
        let detail = format!("the disk lost {lost} and what follows it, which was written and not synced yet");
        Err(Error::corrupt(format!("thread {}", self.live.id), detail))
    }

    /// Syncs what was written when that has become much, so that what the disk loses of it can always be told.
    async fn bound_unsynced(&self, state: &mut State) -> Result<()> {
        if state.unsynced.len() < MOST_UNSYNCED {
            return Ok(());
        }
        self.live.inner.sync().await?;
        self.check_unsynced(state).await
    }

    /// Flushes, gives up the claim and closes the handle. Where rollouts are kept, the thread's is up to date then, or could not
    /// be written, which fails nothing. When flushing fails the handle stays open, so that it can be tried
    /// again. Where the store was opened so, the thread is sealed last: when that fails, all is stored and the handle is closed.
    ///
    /// # Errors
    /// As [`LiveThread::flush`]; as [`crate::Store::seal`].
    pub async fn shutdown(&self) -> Result<()> {
        let mut state = self.live.state.lock().await;
        self.check_open(&mut state).await?;
        self.flush_held(&mut state).await?;
        match give_up(&self.live.inner, &self.live.id, &state.phase) {
            Some(release) => {
                state.leaving = Some(Leaving::Shutdown(release));
                self.leave(&mut state).await?;
            }
            None => state.phase = Phase::Closed,
        }
        if let Some(mirror) = &self.live.inner.mirror {
            mirror.drain(Some(&self.live.id)).await;
        }
        match self.live.inner.seals_at_shutdown {
            true => self.live.inner.seal_thread(&self.live.id).await,
            false => Ok(()),
        }
    }

    /// Closes the handle without flushing: what is stored stays, what was kept after a failure is dropped. Repeating it
    /// changes nothing.
    ///
    /// # Errors
    /// When the claim can't be given up; it then ends with the process.
    pub async fn discard(&self) -> Result<()> {
        let mut state = self.live.state.lock().await;
        state.queue.clear();
        state.unsaved.clear();
        state.refused.clear();
        let phase = std::mem::replace(&mut state.phase, Phase::Closed);
        match give_up(&self.live.inner, &self.live.id, &phase) {
            Some(release) => release.await,
            None => Ok(()),
        }
    }

    /// Gives back the items that could not be stored, and forgets them: those of queued appends that were refused, then those
    /// that were kept, each in order. For a handle that lost its claim, or whose caller gives up.
    pub async fn take_unsaved(&self) -> Vec<NewItem> {
        let mut state = self.live.state.lock().await;
        // What fails here is in the lists that are given back.
        drop(self.collect(&mut state, true).await);
        let refused = std::mem::take(&mut state.refused);
        let requests = refused.into_iter().chain(state.unsaved.drain(..));
        requests
            .flat_map(|request| request.runs.iter().flat_map(|run| run.items.iter().map(to_new)).collect::<Vec<_>>())
            .collect()
    }

    /// Screens an item and makes it ready; counts it if its content was replaced.
    fn prepare(&self, mut item: NewItem, replaced: &mut usize) -> Result<Prepared> {
        receipt::refuse_unasked(&item.format)?;
        *replaced += usize::from(self.live.inner.screen.item(&mut item)?);
        Prepared::new(item, &*self.live.inner.host)
    }

    /// Of a write that belongs to the thread.
    fn terms(&self, sync: Sync) -> Terms {
        sync.within(self.live.id.as_str())
    }

    /// Waits for what was queued; a closed handle has nothing on its way.
    pub(crate) async fn settled(&self) -> Result<()> {
        let mut state = self.live.state.lock().await;
        drop(self.leave(&mut state).await);
        match state.phase {
            Phase::Open(_) | Phase::Birth(..) => {
                self.materialise(&mut state, Sync::Synced).await?;
                self.settle(&mut state).await
            }
            Phase::Unborn(_) | Phase::Closed => Ok(()),
        }
    }

    fn threads(&self) -> Threads {
        Threads { inner: Arc::clone(&self.live.inner), scope: Scope::All }
    }

    /// Waits for a request that may give up the claim, if one is on its way; a handle without its claim is closed.
    async fn leave(&self, state: &mut State) -> Result<Option<TurnEnded>> {
        let Some(leaving) = &mut state.leaving else { return Ok(None) };
        let outcome = std::future::poll_fn(|context| leaving.poll(context)).await;
        state.leaving = None;
        let left = outcome?;
        if left.released {
            state.phase = Phase::Closed;
        }
        Ok(left.turn)
    }

    async fn check_open(&self, state: &mut State) -> Result<()> {
        // Who asked for it has stopped waiting, and is told nothing of a failure.
        drop(self.leave(state).await);
        match state.phase {
            Phase::Closed => Err(Error::Closed { thread: self.live.id.clone() }),
            Phase::Unborn(_) | Phase::Birth(..) | Phase::Open(_) => Ok(()),
        }
    }

    /// Stores and claims the thread if that has not happened; gives the epoch.
    async fn materialise(&self, state: &mut State, sync: Sync) -> Result<i64> {
        if matches!(state.phase, Phase::Birth(..))
            && let Ok(epoch) = self.await_birth(state).await
        {
            return Ok(epoch);
        }
        // What an abandoned attempt failed of says nothing of this one.
        self.give_birth(state, sync).await?;
        self.await_birth(state).await
    }

    /// Sends the request that stores and claims the thread.
    async fn give_birth(&self, state: &mut State, sync: Sync) -> Result<()> {
        let Phase::Unborn(creation) = &state.phase else { return Ok(()) };
        let (creation, holder) = (creation.clone(), self.live.inner.holder()?);
        let (row, taken) = (creation.clone(), Taken::default());
        let place = self.live.inner.db.place(0).await;
        let create = {
            let taken = taken.clone();
            move |tx: &mut dyn Tx| {
                let earlier = if taken.begin_run().is_some() { threads::created(tx, &row)? } else { None };
                let epoch = match earlier {
                    Some(epoch) if claims::has_taken(tx, &row.id, epoch, &holder.id)? => Some(epoch),
                    _ => {
                        let epoch = threads::create(tx, &row)?;
                        claims::take(tx, &row.id, epoch, &holder)?
                    }
                };
                taken.set(epoch);
                Ok(epoch)
            }
        };
        let terms = self.terms(sync).repeatable();
        let pending = self.live.inner.db.write_undoable(place, terms, create, taken.undo());
        state.phase = Phase::Birth(creation, pending, taken);
        Ok(())
    }

    async fn await_birth(&self, state: &mut State) -> Result<i64> {
        let outcome = match &mut state.phase {
            Phase::Open(epoch) => return Ok(*epoch),
            Phase::Birth(_, pending, _) => std::future::poll_fn(|context| Pin::new(&mut *pending).poll(context)).await,
            Phase::Unborn(_) | Phase::Closed => return Err(Error::Closed { thread: self.live.id.clone() }),
        };
        let missing = || Error::corrupt("table threads", "the row that was just written is missing");
        match outcome.and_then(|epoch| epoch.ok_or_else(missing)) {
            Ok(epoch) => {
                state.phase = Phase::Open(epoch);
                Ok(epoch)
            }
            Err(error) => {
                if let Phase::Birth(creation, ..) = std::mem::replace(&mut state.phase, Phase::Closed) {
                    state.phase = Phase::Unborn(creation);
                }
                Err(error)
            }
        }
    }

    /// An append that can be kept and retried; who writes it, under which epoch, is stamped on when it is sent.
    fn request(&self, runs: Vec<Run>, expect: Expect, turns: TurnRule) -> Append {
        let (thread, now) = (self.live.id.clone(), self.live.inner.host.now());
        let writer = (0, WriterId::from_uuid(uuid::Uuid::nil()));
        Append { thread, epoch: 0, writer, now, expect, turns, runs, requires: None, builds_on: None }
    }

    /// Makes an append ready to be sent; stores and claims the thread first, if that has not happened.
    async fn stamp(&self, state: &mut State, request: &Append) -> Result<Append> {
        let epoch = self.materialise(state, Sync::Synced).await?;
        let writer = self.live.inner.writer().await?;
        Ok(Append { epoch, writer, builds_on: state.acknowledged, ..request.clone() })
    }

    /// Sends an append without waiting for it.
    async fn enqueue(&self, state: &mut State, request: Append) -> Result<Appended> {
        let ready = match self.make_room(state).await {
            Ok(()) => self.stamp(state, &request).await,
            Err(error) => Err(error),
        };
        let ready = match ready {
            Ok(ready) => ready,
            Err(error) => {
                keep(state, Arc::new(request), &error);
                return Err(error);
            }
        };
        let before = state.queue.back().and_then(|queued| queued.request.last_id());
        let before = before.filter(|_| !planted::is(Defect::QueuesWithoutOrder));
        let request = Arc::new(Append { requires: before, ..ready });
        let bytes = request.bytes();
        let place = self.live.inner.db.place(bytes).await;
        let pending = self.send(place, &request, Sync::Written);
        state.queue.push_back(Queued { request, pending, bytes });
        Ok(Appended { items: Vec::new(), repeated: false, replaced: 0, dropped: 0 })
    }

    async fn settle_and_send(&self, state: &mut State, request: Append, sync: Sync) -> Result<Appended> {
        let outcome = self.try_to_send(state, &request, sync).await;
        match &outcome {
            Ok(appended) if sync == Sync::Written => state.unsynced.extend(appended.items.last().map(|item| item.id)),
            Ok(appended) => state.acknowledged = appended.items.last().map(|item| item.id).or(state.acknowledged),
            Err(error) => keep(state, Arc::new(request), error),
        }
        outcome
    }

    async fn try_to_send(&self, state: &mut State, request: &Append, sync: Sync) -> Result<Appended> {
        if !planted::is(Defect::OvertakesWhatWasKept) {
            self.settle(state).await?;
        }
        self.bound_unsynced(state).await?;
        let request = Arc::new(self.stamp(state, request).await?);
        let place = self.live.inner.db.place(request.bytes()).await;
        self.judge(&request, sync, self.send(place, &request, sync).await).await
    }

    /// Waits until the queue is within its bound, and stores what must come before anything new.
    async fn make_room(&self, state: &mut State) -> Result<()> {
        self.collect(state, false).await?;
        self.bound_unsynced(state).await?;
        while state.queue.iter().map(|queued| queued.bytes).sum::<usize>() > QUEUE_BYTES {
            self.collect_one(state).await?;
        }
        if !state.unsaved.is_empty() {
            // What was queued behind something that failed can't be stored either, and has to be kept before what comes now.
            self.settle(state).await?;
        }
        Ok(())
    }

    fn send(&self, place: Place, request: &Arc<Append>, sync: Sync) -> Pending<Appended> {
        let request = Arc::clone(request);
        let inner = &self.live.inner;
        let heartbeat = inner.heartbeat_is_due(request.now).then(|| {
            // Its lock file may have been removed; if it can't be put back, the epoch still fences.
            drop(inner.holder());
            inner.holder_id().to_owned()
        });
        let known = Arc::clone(&self.live.standing);
        // A second run of what was stored is refused, and the refusal is judged by the items' ids.
        inner.db.write_in(place, self.terms(sync).repeatable(), move |tx| {
            if let Some(holder) = &heartbeat {
                claims::heartbeat(tx, holder, request.now)?;
            }
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            append_from(tx, &request, &mut known)
        })
    }

    /// Answers a refusal with the result of an earlier call, if that stored the same items.
    async fn judge(&self, request: &Arc<Append>, sync: Sync, outcome: Result<Appended>) -> Result<Appended> {
        let refused = matches!(
            outcome,
            Err(Error::Conflict { .. } | Error::ClaimLost { .. } | Error::AlreadyExists { .. } | Error::Backend { .. })
        );
        if !refused || planted::is(Defect::RefusesRepeats) {
            return outcome;
        }
        let repeated = {
            let request = Arc::clone(request);
            self.live.inner.db.read(move |tx| find_repeated(tx, &request)).await?
        };
        let Some(repeated) = repeated else { return outcome };
        if sync == Sync::Synced {
            // The first call may have been worth less than this one asks for.
            self.live.inner.sync().await?;
        }
        Ok(repeated)
    }

    /// Waits for everything that was queued, and stores what was kept after a failure.
    async fn settle(&self, state: &mut State) -> Result<()> {
        self.collect(state, true).await?;
        self.retry_unsaved(state).await
    }

    /// Takes the answers that have come (or all of them).
    async fn collect(&self, state: &mut State, wait: bool) -> Result<()> {
        let mut first_error = None;
        while let Some(front) = state.queue.front_mut() {
            let answer = match front.pending.poll_now() {
                None if !wait => break,
                None => {
                    let outcome = self.collect_one(state).await;
                    first_error = first_error.or(outcome.err());
                    continue;
                }
                Some(answer) => answer,
            };
            let Some(queued) = state.queue.pop_front() else {
                break;
            };
            first_error = first_error.or(self.keep_failed(state, queued.request, answer).await.err());
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Waits for the first answer. The append stays in the queue until the answer is there, so that a caller who stops waiting
    /// loses nothing.
    async fn collect_one(&self, state: &mut State) -> Result<()> {
        let Some(front) = state.queue.front_mut() else { return Ok(()) };
        let answer = std::future::poll_fn(|context| Pin::new(&mut front.pending).poll(context)).await;
        let Some(queued) = state.queue.pop_front() else { return Ok(()) };
        self.keep_failed(state, queued.request, answer).await
    }

    /// Keeps what failed for a reason that may pass, and what could not follow it.
    async fn keep_failed(&self, state: &mut State, request: Arc<Append>, answer: Result<Appended>) -> Result<()> {
        let Err(error) = answer else {
            state.unsynced.extend(request.last_id());
            return Ok(());
        };
        // Kept before it is judged: the caller may stop waiting for the judgement.
        state.unsaved.push_back(Arc::clone(&request));
        if self.judge(&request, Sync::Written, Err(error.clone())).await.is_ok() {
            state.unsaved.pop_back();
            return Ok(());
        }
        // What could not follow an append that failed is stored after it.
        if error.is_retryable() || matches!(error, Error::Conflict { what: "order", .. }) {
            return Ok(());
        }
        if !matches!(error, Error::ClaimLost { .. }) {
            state.refused.extend(state.unsaved.pop_back());
        }
        Err(error)
    }

    /// Stores what was kept, in order. What is refused for good is put aside and told once.
    async fn retry_unsaved(&self, state: &mut State) -> Result<()> {
        while let Some(request) = state.unsaved.front().cloned() {
            let request = Append { requires: None, ..self.stamp(state, &request).await? };
            let request = Arc::new(request);
            let place = self.live.inner.db.place(request.bytes()).await;
            let outcome = self.judge(&request, Sync::Synced, self.send(place, &request, Sync::Synced).await).await;
            match outcome {
                Ok(_) => drop(state.unsaved.pop_front()),
                Err(error) if error.is_retryable() || matches!(error, Error::ClaimLost { .. }) => return Err(error),
                Err(error) => {
                    state.refused.extend(state.unsaved.pop_front());
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

impl Drop for Live {
    /// Gives up the claim; what was queued is written before that.
    fn drop(&mut self) {
        let release = give_up(&self.inner, &self.id, &self.state.get_mut().phase);
        // Nobody waits: if it fails, the claim ends with the process.
        drop(release);
    }
}

/// Gives up what a handle in this phase holds, after everything it asked for.
fn give_up(inner: &Inner, id: &ThreadId, phase: &Phase) -> Option<Pending<()>> {
    match phase {
        Phase::Open(epoch) => {
            let (terms, id, epoch) = (Sync::Written.within(id.as_str()).repeatable(), id.clone(), *epoch);
            let now = inner.host.now();
            Some(inner.db.write_now(terms, move |tx| claims::release(tx, &id, epoch, now)))
        }
        Phase::Birth(_, _, taken) => Some(taken.give_up(inner, id)),
        Phase::Unborn(_) | Phase::Closed => None,
    }
}

/// Takes the claim on a stored thread from nobody or from a dead holder.
async fn take_claim(inner: &Arc<Inner>, id: &ThreadId) -> Result<(Claiming, i64)> {
    let holder = inner.holder()?;
    for _ in 0..CLAIM_ATTEMPTS {
        let thread = id.clone();
        let mut claim = inner.db.read(move |tx| claims::read(tx, &thread)).await?;
        if claim.holder.as_ref().is_some_and(|current| current.id == holder.id) {
            // A handle of this store that was dropped may have its release in the writer's queue: ask behind it.
            let thread = id.clone();
            let terms = Sync::Written.within(id.as_str()).repeatable();
            claim = inner.db.write(terms, move |tx| claims::read(tx, &thread)).await?;
        }
        if let Some(current) = claim.holder.filter(|current| inner.is_alive(current, claim.at)) {
            return Err(Error::ClaimHeld { thread: id.clone(), holder: Box::new(current) });
        }
        let mut claiming = Claiming::new(inner, id);
        let (thread, holder, taken) = (id.clone(), holder.clone(), claiming.taken.clone());
        let take = move |tx: &mut dyn Tx| {
            let epoch = match taken.begin_run() {
                Some(epoch) if claims::has_taken(tx, &thread, epoch, &holder.id)? => Some(epoch),
                _ => claims::take(tx, &thread, claim.epoch, &holder)?,
            };
            taken.set(epoch);
            Ok(epoch)
        };
        if let Some(epoch) = claiming.take(take).await? {
            return Ok((claiming, epoch));
        }
    }
    Err(Error::Busy { detail: format!("others took and gave up the claim on {id} {CLAIM_ATTEMPTS} times") })
}

/// A claim that is being taken. Dropped before a handle has it, it is given up again: the caller may stop waiting at any time.
struct Claiming {
    inner: Arc<Inner>,
    id: ThreadId,
    taken: Taken,
    /// Whether it may be taken, and nobody else would give it up.
    is_open: bool,
}

impl Claiming {
    fn new(inner: &Arc<Inner>, id: &ThreadId) -> Self {
        Self { inner: Arc::clone(inner), id: id.clone(), taken: Taken::default(), is_open: false }
    }

    /// Sends the request that takes it and records that in `taken`; gives the epoch, unless somebody else was faster.
    async fn take<F>(&mut self, run: F) -> Result<Option<i64>>
    where
        F: FnMut(&mut dyn Tx) -> Result<Option<i64>> + Send + 'static,
    {
        let place = self.inner.db.place(0).await;
        self.is_open = true;
        let terms = Sync::Synced.within(self.id.as_str()).repeatable();
        let outcome = self.inner.db.write_undoable(place, terms, run, self.taken.undo()).await;
        self.is_open = matches!(outcome, Ok(Some(_)));
        outcome
    }

    /// Leaves the claim to a handle, which gives it up from now on.
    fn hand_over(mut self) {
        self.is_open = false;
    }
}

impl Drop for Claiming {
    fn drop(&mut self) {
        if self.is_open {
            drop(self.taken.give_up(&self.inner, &self.id));
        }
    }
}

/// Keeps an append that failed for a reason that may pass, or that a handle without its claim has to give back.
fn keep(state: &mut State, request: Arc<Append>, error: &Error) {
    let may_pass = error.is_retryable() && !planted::is(Defect::ForgetsWhatFailed);
    if may_pass || matches!(error, Error::ClaimLost { .. }) {
        state.unsaved.push_back(request);
    }
}

fn to_new(item: &Prepared) -> NewItem {
    NewItem {
        id: Some(item.id),
        kind: item.kind.clone(),
        role: item.role.clone(),
        format: item.format.clone(),
        content: item.content.to_vec(),
        created_at: Some(item.created_at),
        source_id: item.source_id.clone(),
        sources: item.sources.clone(),
    }
}
