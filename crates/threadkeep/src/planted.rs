//! Defects that real stores had, built in on purpose to see whether the torture suites find them.
//!
//! Only the feature `planted-defects` builds them in, and then one at most is at work. Without it [`is`] is `false` while
//! the code is compiled, and nothing of them is left.

#[cfg(feature = "planted-defects")]
mod switch;

#[cfg(feature = "planted-defects")]
pub use switch::planted_defects;

macro_rules! defects {
    ($(#[doc = $words:literal] $name:ident,)+) => {
        /// What can be built in.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Defect {
            $(#[doc = $words] $name,)+
        }

        /// Every defect with its name and what it does.
        #[cfg(feature = "planted-defects")]
        const ALL: &[(Defect, &str, &str)] = &[$((Defect::$name, stringify!($name), $words)),+];
    };
}

defects! {
    // The commit.
    /// `Synced` commits are synced at the next checkpoint only.
    SyncsAtCheckpoints,
    /// Nothing is ever synced.
    NeverSyncs,
    /// A flush waits for what was queued and syncs nothing.
    FlushesWithoutSync,
    /// The removal of a rollback journal is not synced.
    LeavesJournalUnsynced,
    /// The folders on the way to a new store are not synced.
    LeavesFoldersUnsynced,
    /// Requests are answered before their transaction is committed.
    AcksBeforeCommit,
    /// Requests are answered as stored though the commit failed.
    AcksFailedCommit,
    /// When a commit fails, only the first request of its group is told.
    TellsTheFirstOnly,
    /// What a refused request had written until then is stored.
    KeepsHalfRequests,
    /// Each item of a batch is committed on its own.
    CommitsBatchInPieces,
    /// Items are committed before the head that names them.
    CommitsHeadApart,
    /// The right to write is never given to the next process.
    NeverLeavesGate,
    /// A database that was moved, replaced or removed is written further.
    WritesMovedFile,

    // Redactions.
    /// Content is taken away and nothing is put on record.
    RedactsOffRecord,

    // The handle.
    /// What failed for a reason that may pass is forgotten.
    ForgetsWhatFailed,
    /// New appends are stored before those that failed and were kept.
    OvertakesWhatWasKept,
    /// Queued appends do not wait for the one before them.
    QueuesWithoutOrder,
    /// An append that is repeated with the same ids is refused.
    RefusesRepeats,

    // The log.
    /// The head that a caller expects is not compared.
    IgnoresExpectedHead,
    /// An append under an epoch that is no longer current is stored.
    LetsStaleWritersAppend,
    /// An append goes on from where its handle knows the thread to stand, wherever it stands.
    GoesOnWithoutComparing,
    /// Each thread counts its ticks alone.
    TicksAlone,
    /// The order between threads is that of the clock.
    OrdersByClock,
    /// Content is cut after 64 KiB.
    CutsLongContent,

    // Claims.
    /// Every holder is taken for dead.
    StealsFromTheLiving,
    /// Every holder is taken for alive.
    KeepsDeadHolders,
    /// A holder lives as long as there is a process of its number.
    TrustsProcessNumbers,
    /// A holder that gave no sign of life for two minutes is taken for dead, though it holds its lock.
    TrustsTheClock,
    /// Looking whether a holder lives removes its lock file.
    UnlinksLocksOfTheLiving,
    /// Giving up a claim ends it, whoever holds it by then.
    ReleasesOthersClaims,

    // Opening.
    /// A new store is committed before the record of its schema.
    CreatesInPieces,
    /// A store's schema is brought forward step by step, each committed before it is on record.
    MigratesInPieces,
    /// The store has another id each time it is opened.
    MintsIdAnew,
    /// A connection that the system let be opened for reading only is kept for writing.
    KeepsReadOnlyConnection,
    /// Others can read the files.
    OpensFilesToOthers,
    /// Others can enter the folders.
    OpensFoldersToOthers,
    /// Links in the place of the store's files are followed.
    FollowsLinks,

    // Verifying and backing up.
    /// Verifying does not count the items.
    VerifiesWithoutCount,
    /// Verifying does not compute the hashes of items anew.
    VerifiesWithoutHashes,
    /// Verifying does not read the content.
    VerifiesWithoutContent,
    /// Verifying does not check the signatures of seals.
    VerifiesWithoutSignatures,
    /// Verifying does not check that what seals state is what was signed.
    VerifiesWithoutSealDigests,
    /// Verifying does not compare the store with what seals state.
    VerifiesWithoutStatements,
    /// Verifying does not look for the newest seal that is known outside of the store.
    VerifiesWithoutLastSeal,
    /// A backup is a copy of the database's file, without its log.
    BacksUpWithoutLog,
}

/// Whether this defect is at work.
#[cfg(not(feature = "planted-defects"))]
pub(crate) const fn is(_: Defect) -> bool {
    false
}

/// Whether this defect is at work.
#[cfg(feature = "planted-defects")]
pub(crate) fn is(defect: Defect) -> bool {
    switch::chosen() == Some(defect)
}
