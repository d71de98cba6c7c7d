//! Who waits for news of a store, and how they are woken.
//!
//! News are hints and nothing else: whoever is woken reads the store, and whoever begins to wait has read it after it
//! asked to be woken. So a hint may come twice or for nothing, and one that is lost costs time and no item. What this very
//! store commits is told here; what others commit comes over the driver's [`Wire`].

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Poll, Waker};

use crate::concurrency::Mutex;
use crate::error::Result;

/// How many names an ear keeps, before it keeps only that something changed.
const NAMES_KEPT: usize = 256;

/// What a commit changed, as far as it matters to who waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Touched {
    Thread(String),
    /// What belongs to no thread.
    Beside,
    /// Any of them.
    Anything,
}

/// Between this store and the others that use the same database.
pub(crate) trait Wire: Send + Sync + Debug {
    /// Begins to ring the board when others have committed, and once when it has begun. It is open at most once.
    fn open(&self, board: Weak<Board>) -> Result<()>;

    /// Ends that.
    fn close(&self);

    /// Tells the others, soon. Never waits.
    fn tell(&self, touched: &Touched);
}

/// Who is told of everything that this very store commits, where it is committed: it must not wait for anything.
pub(crate) trait Hear: Send + Sync + Debug {
    fn hear(&self, touched: &Touched);
}

/// All who wait for news of a store.
#[derive(Debug, Default)]
pub(crate) struct Board {
    own: Mutex<Vec<Weak<dyn Hear>>>,
    desk: Mutex<Desk>,
    /// How many ears there are; held while the wire is opened and closed.
    ears: Mutex<usize>,
    wire: Option<Box<dyn Wire>>,
}

#[derive(Debug, Default)]
struct Desk {
    next: u64,
    /// Ears for one thread, by its name.
    threads: HashMap<String, HashMap<u64, Hearing>>,
    /// Ears for everything.
    store: HashMap<u64, Hearing>,
}

/// What an ear heard since it was last asked, and who waits for more.
#[derive(Debug, Default)]
struct Hearing {
    heard: Heard,
    waiting: Option<Waker>,
}

/// What was heard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Heard {
    #[default]
    Nothing,
    /// These threads changed.
    Threads(BTreeSet<String>),
    Anything,
}

impl Board {
    pub(crate) fn with_wire(wire: Box<dyn Wire>) -> Self {
        Self { wire: Some(wire), ..Self::default() }
    }

    /// Tells this one too what is committed through this store from now on, as long as it is there.
    pub(crate) fn tell_too(&self, own: Weak<dyn Hear>) {
        let mut all = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.strong_count() > 0);
        all.push(own);
    }

    /// Tells everybody what was committed through this store.
    pub(crate) fn tell(&self, touched: &Touched) {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.iter().filter_map(Weak::upgrade).for_each(|own| own.hear(touched));
        drop(own);
        if let Some(wire) = &self.wire {
            wire.tell(touched);
        }
        self.ring(touched);
    }

    /// Wakes who waits for this.
    pub(crate) fn ring(&self, touched: &Touched) {
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        let Desk { threads, store, .. } = &mut *desk;
        let of_threads: Vec<&mut Hearing> = match touched {
            Touched::Thread(name) => threads.get_mut(name).into_iter().flat_map(HashMap::values_mut).collect(),
            Touched::Beside => Vec::new(),
            Touched::Anything => threads.values_mut().flat_map(HashMap::values_mut).collect(),
        };
        let woken: Vec<Waker> =
            of_threads.into_iter().chain(store.values_mut()).filter_map(|ear| ear.hear(touched)).collect();
        drop(desk);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Begins to listen: for what touches a thread, or for everything. What is committed from now on is heard.
    pub(crate) fn listen(self: &Arc<Self>, thread: Option<String>) -> Result<Ear> {
        let mut ears = self.ears.lock().unwrap_or_else(PoisonError::into_inner);
        if *ears == 0
            && let Some(wire) = &self.wire
        {
            wire.open(Arc::downgrade(self))?;
        }
        *ears += 1;
        drop(ears);
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        let number = desk.next;
        desk.next += 1;
        desk.ears(thread.as_deref()).insert(number, Hearing::default());
        drop(desk);
        Ok(Ear { board: Arc::clone(self), thread, number })
    }
}

impl Desk {
    /// The ears for a thread, or for everything.
    fn ears(&mut self, thread: Option<&str>) -> &mut HashMap<u64, Hearing> {
        match thread {
            Some(name) => self.threads.entry(name.to_owned()).or_default(),
            None => &mut self.store,
        }
    }
}

impl Hearing {
    fn hear(&mut self, touched: &Touched) -> Option<Waker> {
        match (&mut self.heard, touched) {
            (heard @ Heard::Nothing, Touched::Thread(name)) => *heard = Heard::Threads(BTreeSet::from([name.clone()])),
            (Heard::Threads(names), Touched::Thread(name)) if names.len() < NAMES_KEPT => {
                if !names.contains(name) {
                    names.insert(name.clone());
                }
            }
            (heard, _) => *heard = Heard::Anything,
        }
        self.waiting.take()
    }
}

/// Hears what changes, until it is dropped.
#[derive(Debug)]
pub(crate) struct Ear {
    board: Arc<Board>,
    thread: Option<String>,
    number: u64,
}

impl Ear {
    /// What was heard since it was last asked. To be asked before the store is read: what comes while it is read is then heard.
    pub(crate) fn take(&self) -> Heard {
        let mut desk = self.board.desk.lock().unwrap_or_else(PoisonError::into_inner);
        let ear = desk.ears(self.thread.as_deref()).get_mut(&self.number);
        ear.map(|ear| std::mem::take(&mut ear.heard)).unwrap_or_default()
    }

    /// Waits until something was heard, and leaves it to be taken.
    pub(crate) async fn heard(&self) {
        std::future::poll_fn(|context| {
            let mut desk = self.board.desk.lock().unwrap_or_else(PoisonError::into_inner);
            match desk.ears(self.thread.as_deref()).get_mut(&self.number) {
                Some(ear) if ear.heard == Heard::Nothing => {
                    ear.waiting = Some(context.waker().clone());
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            }
        })
        .await;
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let mut desk = self.board.desk.lock().unwrap_or_else(PoisonError::into_inner);
        desk.ears(self.thread.as_deref()).remove(&self.number);
        if let Some(name) = &self.thread
            && desk.threads.get(name).is_some_and(HashMap::is_empty)
        {
            desk.threads.remove(name);
        }
        drop(desk);
        let mut ears = self.board.ears.lock().unwrap_or_else(PoisonError::into_inner);
        *ears -= 1;
        if *ears == 0
            && let Some(wire) = &self.board.wire
        {
            wire.close();
        }
    }
}
