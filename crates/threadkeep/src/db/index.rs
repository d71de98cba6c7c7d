//! The seam of the search index: documents of terms, and boolean expressions over them. Nothing of what they mean is known here.
//!
//! An index is derived from a store and may lag behind it; it says itself how far it is. Calls block.

use std::fmt;

use crate::db::Tx;
use crate::error::Result;

/// The terms of a document, as they stand in its two streams. A break between terms that are no neighbours is the term `_`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The main stream, separated by spaces. No term holds a space.
    pub(crate) words: String,
    /// The pieces of words, likewise.
    pub(crate) parts: String,
    /// What it is filtered by, likewise; their order has no meaning.
    pub(crate) tags: String,
}

/// The columns of a branch `b` of a thread `t` that say where it ends: its key, the depth of its last item and the link of the
/// chain there. While the head stands at the end of a branch, the head alone says where that is.
macro_rules! tip_columns {
    () => {
        "b.key, CASE WHEN t.head_is_tip = 1 AND t.head >> 32 = b.key THEN t.head & 4294967295 ELSE b.tip END,
         CASE WHEN t.head_is_tip = 1 AND t.head >> 32 = b.key THEN t.head_hash ELSE b.tip_hash END"
    };
}
pub(crate) use tip_columns;

/// What a document is made of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// An item, by its key.
    Item(i64),
    /// A thread's title.
    Title(String),
}

/// A document to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Document {
    /// The number that it has already ([`Index::missing`]); else it gets the next one.
    pub(crate) number: Option<i64>,
    pub(crate) subject: Subject,
    pub(crate) terms: Terms,
    /// Tells one title of a thread from another; 0 for items.
    pub(crate) stamp: i64,
}

/// How far a branch is in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) branch: i64,
    /// The depth of the last item that is in it.
    pub(crate) depth: u32,
    /// The link of the chain there: another one tells that the index was made of another store, or of one that lost commits.
    pub(crate) hash: [u8; 32],
}

/// What changes at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batch {
    /// Items from the first key to the last one, both included, that are taken out first with all that says that they are in it.
    pub(crate) forgotten: Vec<(i64, i64)>,
    /// Titles that are taken out first.
    pub(crate) forgotten_titles: Vec<String>,
    /// In the order in which they get their numbers.
    pub(crate) added: Vec<Document>,
    /// Branches whose progress is gone for good, and those that have come further.
    pub(crate) ended: Vec<i64>,
    pub(crate) reached: Vec<Progress>,
    /// Up to which number what was taken away on purpose is out of the index.
    pub(crate) records: Option<i64>,
}

/// What the index says of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Up to which number what was taken away on purpose is out of the index.
    pub(crate) records: i64,
    /// Other at each change.
    pub(crate) generation: i64,
    /// The greatest number of a document; 0 when there is none.
    pub(crate) top: i64,
}

/// A branch on which the index is not where the store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Behind {
    pub(crate) branch: i64,
    /// How far the index is; `None` when nothing of the branch is in it.
    pub(crate) is: Option<Progress>,
    /// The key of the branch's last item in the store; `None` when the store has no such branch, or one without an item.
    pub(crate) tip: Option<i64>,
}

/// A question to the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expr {
    /// The terms stand one after the other in the main stream, or the others do in that of pieces. The last term may be a beginning.
    Phrase {
        words: Vec<String>,
        parts: Vec<String>,
        is_prefix: bool,
    },
    /// The document has the tag.
    Tag(String),
    All(Vec<Self>),
    Any(Vec<Self>),
    /// Every document that fits the first and not the second.
    Without(Box<Self>, Box<Self>),
}

/// A document that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fit {
    pub(crate) number: i64,
    pub(crate) subject: Subject,
    /// Whether it only may fit: the engine keeps no more of it.
    pub(crate) is_doubtful: bool,
}

/// Whether a change was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changed {
    Yes,
    /// Somebody else is changing it.
    Busy,
}

/// An index. What fails as [`crate::Error::Corrupt`] is an index that has to be made anew.
pub(crate) trait Index: Send + Sync + fmt::Debug {
    /// Reads all that says how far it is. Fails as [`crate::Error::Corrupt`] where that is damaged: else damage that was met while
    /// the store and the index were read together is the store's.
    fn check(&self) -> Result<()>;

    /// Whether there is one already. Where there is none, the next call of another function makes it, if it can.
    fn exists(&self) -> Result<bool>;

    fn standing(&self) -> Result<Standing>;

    /// Where the index is not where the store is, in the order of branches, at most so many; `tx` reads the store. Everything
    /// that was changed before `since`, a place in the order by update, is known to be in step; an engine need not use it.
    fn behind(&self, tx: &mut dyn Tx, since: Option<i64>, most: usize) -> Result<Vec<Behind>>;

    /// Whether there is a document of this item, with its terms or waiting for them.
    fn holds(&self, item: i64) -> Result<bool>;

    /// Documents whose terms went with those of others, and have to be added again under their numbers; at most so many,
    /// greatest number first.
    fn missing(&self, most: usize) -> Result<Vec<(i64, Subject)>>;

    /// Makes a change in one transaction, if nobody else is making one and the index still is in this generation.
    fn change(&self, generation: i64, batch: &Batch) -> Result<Changed>;

    /// The documents that fit, greatest number first, of those whose number is at most `upto`.
    fn find(&self, expr: &Expr, upto: i64, most: usize) -> Result<Vec<Fit>>;

    /// The titles that are in the index: their threads and their stamps.
    fn titles(&self) -> Result<Vec<(String, i64)>>;

    /// The stamp of one thread's title; `None` when it is not in the index.
    fn title_stamp(&self, thread: &str) -> Result<Option<i64>>;

    /// Takes everything out, so that no byte of it is left in any file, whatever state it is in.
    fn clear(&self) -> Result<()>;

    /// Makes sure that no byte of what was taken out is left in any file; says where some may be.
    fn erase(&self) -> Result<Vec<String>>;

    /// What it takes on disk, in bytes.
    fn bytes(&self) -> Result<u64>;
}
