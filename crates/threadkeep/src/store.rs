//! The handles that users hold: [`Store`], [`Workspace`], and the [`Threads`] that each of them sees.

mod checkpoints;
mod documents;
mod goals;
mod inbox;
mod jobs;
mod prompts;
mod redacting;
mod requests;
mod retaining;
mod roadmaps;
mod runs;
mod sealing;
mod tools;
mod verifying;
mod visible;

pub(crate) use goals::accrual_terms;
pub use redacting::{RedactOptions, RedactReport, RedactedPlace};
pub use sealing::{SealReport, Sealed};
pub use verifying::VerifyOptions;

use std::collections::HashMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::claim::Holder;
use crate::claims::{self, Liveness, Pulse};
use crate::concurrency::atomic::AtomicBool;
use crate::concurrency::{Mutex, block_on, thread};
use crate::db::fts::SqliteIndex;
use crate::db::index::Index;
#[cfg(feature = "postgres")]
use crate::db::postgres::{self, Opening, address::Address};
use crate::db::sqlite::{self, Location};
use crate::db::writer::SqliteDriver;
use crate::db::{Db, Sync, Terms, Tx, Value, migrations, query_one, statements};
use crate::error::{Error, Result};
use crate::host::{Host, SystemHost};
use crate::id::{ItemId, ThreadId, WorkspaceId, WriterId};
use crate::keys::KeyFolder;
use crate::live::LiveThread;
use crate::log::append::mint_uuid;
use crate::planted::{self, Defect};
use crate::rollout::live::LiveMirror;
use crate::rollout::setting::{self, LiveRollouts};
use crate::rollout::{files, leading};
use crate::screen::{self, Incoming, Screen, Screened};
use crate::search::document::Readers;
use crate::search::idle::Idle;
use crate::search::indexing::Indexer;
use crate::secrets::Rules;
use crate::sources::{self, FilePart, KnownRecord, SourceFile, SourceStamp};
use crate::stats::{self, Stats};
use crate::thread::{NewThread, Status, Thread};
use crate::threads::{Creation, Scope};
use crate::time::Timestamp;
use crate::view::ViewCodec;
use crate::workspaces::{self, Keys, WorkspaceInfo};
use crate::writers;

/// The folder of keys inside a store's folder.
const KEYS: &str = "keys";
const DEFAULT_BUSY_BOUND: Duration = Duration::from_secs(30);

statements! {
    READ_FACT = "SELECT value FROM facts WHERE name = ?1";
    WRITE_FACT = "INSERT INTO facts (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING";
    // An empty transaction, and an update to the same value, would not reach the disk.
    SYNC_BARRIER = "INSERT INTO counters (name, value) VALUES ('barrier', 1) ON CONFLICT (name) DO UPDATE SET value = counters.value + 1";
}

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub(crate) folder: Option<PathBuf>,
    #[cfg(feature = "postgres")]
    pub(crate) address: Option<Address>,
    pub(crate) read_only: bool,
    pub(crate) busy_bound: Duration,
    pub(crate) label: String,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) migrations: &'static [migrations::Migration],
    pub(crate) keys: Option<PathBuf>,
    pub(crate) seals_at_shutdown: bool,
    pub(crate) anew: bool,
    pub(crate) screen: Screen,
    pub(crate) live_rollouts: LiveRollouts,
    pub(crate) readers: Vec<Arc<dyn ViewCodec>>,
}

impl StoreOptions {
    /// A store in this folder; the folder is created (for its owner alone) when it is missing.
    pub fn folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()), ..Self::memory() }
    }

    /// A store in a PostgreSQL database: `postgres://USER:PASSWORD@HOST:PORT/DATABASE?schema=NAME`.
    ///
    /// The schema (`threadkeep` unless it is named) is made when it is missing and holds nothing else. Several hosts, sockets
    /// (`?host=FOLDER`), `sslmode`, `sslrootcert` and the other parameters are those of every client of PostgreSQL. The
    /// password is shown nowhere.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what is no such address.
    #[cfg(feature = "postgres")]
    pub fn postgres(address: &str) -> Result<Self> {
        let address = Some(Address::parse(address)?);
        Ok(Self { address, migrations: migrations::POSTGRES, ..Self::memory() })
    }

    /// A store in memory, gone with its last handle.
    pub fn memory() -> Self {
        Self {
            folder: None,
            #[cfg(feature = "postgres")]
            address: None,
            read_only: false,
            busy_bound: DEFAULT_BUSY_BOUND,
            label: "threadkeep".to_owned(),
            host: Arc::new(SystemHost),
            migrations: migrations::SQLITE,
            keys: None,
            seals_at_shutdown: false,
            anew: false,
            screen: Screen::default(),
            live_rollouts: LiveRollouts::AsStored,
            readers: Vec::new(),
        }
    }

    /// The place of the store, for people: its folder, or its address without the password.
    pub fn place(&self) -> String {
        #[cfg(feature = "postgres")]
        if let Some(address) = &self.address {
            return address.to_string();
        }
        self.folder.as_ref().map_or_else(|| "memory".to_owned(), |folder| folder.display().to_string())
    }

    fn is_in_memory(&self) -> bool {
        #[cfg(feature = "postgres")]
        if self.address.is_some() {
            return false;
        }
        self.folder.is_none()
    }

    /// Opens for reading only; nothing is created, and writing answers [`Error::ReadOnly`].
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// How long a write waits for other processes before [`Error::Busy`]; 30 seconds by default.
    #[must_use]
    pub fn busy_bound(mut self, bound: Duration) -> Self {
        self.busy_bound = bound;
        self
    }

    /// Begins a store though the folder shows that one was there, when its database is missing or empty: for whoever brings everything
    /// back, from rollouts or from another store. A database that holds anything is not touched by this.
    #[must_use]
    pub fn begin_anew(mut self) -> Self {
        self.anew = true;
        self
    }

    /// What this program is called in the errors that others get while it writes a thread.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// The folder of the keys that seals are signed with; by default `keys` in the store's folder. A store on a server or in memory
    /// has none unless it is named here. Nothing is made there until a key is.
    #[must_use]
    pub fn keys(mut self, folder: impl Into<PathBuf>) -> Self {
        self.keys = Some(folder.into());
        self
    }

    /// Seals every thread when its live handle is shut down.
    #[must_use]
    pub fn seal_at_shutdown(mut self) -> Self {
        self.seals_at_shutdown = true;
        self
    }

    /// Lets `function` see everything that is about to be written, before a digest, a preview or anything else is made of it;
    /// it may leave it, replace it or refuse it ([`Error::Invalid`]).
    ///
    /// It sees new items (those of [`LiveThread`], of [`crate::ThreadStore`] and of imports, parts of files beside them included) and
    /// texts of metadata. It does not see what is copied, restored or rebuilt: that is taken over as it is. It is called where the call
    /// was made, may not call the store, and must say the same of the same bytes: then an append that is repeated is answered
    /// as the first one was. Several functions are asked in the order in which they were added, each about what the one before left.
    #[must_use]
    pub fn on_write(
        mut self,
        function: impl Fn(&Incoming<'_>) -> Screened + Send + std::marker::Sync + 'static,
    ) -> Self {
        self.screen.add(function);
        self
    }

    /// Masks secrets in everything that is about to be written; see [`Rules::mask`] and [`StoreOptions::on_write`].
    ///
    /// Content that can't be masked in part is replaced as a whole, by what says so.
    #[must_use]
    pub fn mask_at_write(self, rules: Rules) -> Self {
        self.on_write(screen::masking(rules))
    }

    /// Whether rollouts are kept while the store is written through this handle; by default as the store says.
    #[must_use]
    pub fn live_rollouts(mut self, live: LiveRollouts) -> Self {
        self.live_rollouts = live;
        self
    }

    /// Reads the items of one more format, so that search finds what they say. Items in formats that nothing here reads are
    /// searched by their bytes.
    #[must_use]
    pub fn read_with(mut self, codec: Arc<dyn ViewCodec>) -> Self {
        self.readers.push(codec);
        self
    }

    /// The clock, the randomness and the machine to use.
    #[must_use]
    pub fn host(mut self, host: Arc<dyn Host>) -> Self {
        self.host = host;
        self
    }

    /// How the store on a server is opened, if it is on one.
    #[cfg(feature = "postgres")]
    pub(crate) fn opening(&self) -> Option<Opening> {
        Some(Opening {
            address: self.address.clone()?,
            read_only: self.read_only,
            busy_bound: self.busy_bound,
            label: self.label.clone(),
            migrations: self.migrations,
            now: self.host.now().0,
        })
    }

    #[cfg(test)]
    pub(crate) fn migrations(mut self, migrations: &'static [migrations::Migration]) -> Self {
        self.migrations = migrations;
        self
    }
}

/// A store. Cheap to clone; all clones share one writer. It derefs to all of its [`Threads`].
#[derive(Debug, Clone)]
pub struct Store {
    threads: Threads,
    /// Threads that are live through [`crate::ThreadStore`].
    pub(crate) registry: Arc<Mutex<HashMap<ThreadId, LiveThread>>>,
}

/// One workspace of a store. It derefs to the [`Threads`] of that workspace: another's can't be seen or touched, except
/// ancestors that its own threads share.
#[derive(Debug, Clone)]
pub struct Workspace {
    threads: Threads,
    info: WorkspaceInfo,
}

/// The threads that a handle sees.
#[derive(Debug, Clone)]
pub struct Threads {
    pub(crate) inner: Arc<Inner>,
    pub(crate) scope: Scope,
}

impl Deref for Store {
    type Target = Threads;

    fn deref(&self) -> &Threads {
        &self.threads
    }
}

impl Deref for Workspace {
    type Target = Threads;

    fn deref(&self) -> &Threads {
        &self.threads
    }
}

/// What all handles of a store share.
#[derive(Debug)]
pub(crate) struct Inner {
    /// First, so that it is dropped first: it reads what it writes to its files.
    pub(crate) mirror: Option<LiveMirror>,
    /// Likewise: it reads what it indexes.
    idle: Mutex<Option<Idle>>,
    /// Next, so that everything is written before the holder's file goes.
    pub(crate) db: Db,
    pub(crate) host: Arc<dyn Host>,
    holder: Holder,
    liveness: Liveness,
    writer: Mutex<Option<(i64, WriterId)>>,
    pub(crate) id: uuid::Uuid,
    pub(crate) folder: Option<PathBuf>,
    read_only: bool,
    is_in_memory: bool,
    notices: Vec<String>,
    last_heartbeat: Mutex<Timestamp>,
    pulse: Mutex<Option<Pulse>>,
    keys: Option<KeyFolder>,
    pub(crate) seals_at_shutdown: bool,
    pub(crate) screen: Screen,
    pub(crate) indexer: Arc<Indexer>,
    /// Whether the feed of changes is known to have been begun.
    pub(crate) feed_is_begun: AtomicBool,
}

impl Store {
    /// Opens a store, creating it or bringing its schema forward where that is needed.
    ///
    /// Any number of processes may open an empty folder at once. Opening does no work that grows with the store.
    ///
    /// # Errors
    /// [`Error::ForeignStore`] and [`Error::SchemaTooNew`] leave the file untouched; [`Error::Corrupt`] names what is
    /// damaged; [`Error::Busy`] when another process migrates for longer than the bound.
    pub async fn open(options: StoreOptions) -> Result<Self> {
        Ok(Self::on(on_a_thread("threadkeep-open", move || open_inner(options)).await?))
    }

    pub(crate) fn on(inner: Inner) -> Self {
        let threads = Threads { inner: Arc::new(inner), scope: Scope::All };
        Self { threads, registry: Arc::default() }
    }

    /// The store's lasting id.
    pub fn id(&self) -> uuid::Uuid {
        self.inner.id
    }

    /// What the caller should know of how the store was opened, such as a weaker journal on a network file system.
    pub fn notices(&self) -> &[String] {
        &self.inner.notices
    }

    /// The workspace of a project's folder, made if it is new. Work trees and sub-folders share their repository's.
    ///
    /// # Errors
    /// As every write.
    pub async fn workspace(&self, folder: &Path) -> Result<Workspace> {
        let keys = Keys::of(&self.inner.host.project(folder), &self.inner.holder.machine);
        let now = self.inner.host.now();
        let fresh = WorkspaceId::from_uuid(mint_uuid(&*self.inner.host, now));
        let known = self.inner.db.read({
            let keys = keys.clone();
            move |tx| workspaces::find(tx, &keys)?.map(|id| workspaces::get(tx, id)).transpose()
        });
        let has_all =
            |info: &WorkspaceInfo| keys.own.iter().all(|key| info.keys.iter().any(|(_, have)| *have == key.key));
        let info = match known.await? {
            Some(info) if has_all(&info) => info,
            _ => {
                let resolve = move |tx: &mut dyn Tx| workspaces::resolve(tx, &keys, fresh, now);
                self.inner.db.write(Sync::Synced.free().repeatable(), resolve).await?
            }
        };
        Ok(self.enter(info))
    }

    /// The workspace of a project's folder, if the store knows it. Writes nothing.
    ///
    /// # Errors
    /// As every read.
    pub async fn find_workspace(&self, folder: &Path) -> Result<Option<Workspace>> {
        let keys = Keys::of(&self.inner.host.project(folder), &self.inner.holder.machine);
        let find = move |tx: &mut dyn Tx| workspaces::find(tx, &keys)?.map(|id| workspaces::get(tx, id)).transpose();
        Ok(self.inner.db.read(find).await?.map(|info| self.enter(info)))
    }

    /// The workspace with this id.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn workspace_by_id(&self, id: WorkspaceId) -> Result<Workspace> {
        let info = self.inner.db.read(move |tx| workspaces::get(tx, id)).await?;
        Ok(self.enter(info))
    }

    /// All workspaces, oldest first.
    ///
    /// # Errors
    /// As every read.
    pub async fn workspaces(&self) -> Result<Vec<WorkspaceInfo>> {
        self.inner.db.read(workspaces::list).await
    }

    /// Merges one workspace into another: its keys and threads move, and nothing is hidden.
    ///
    /// # Errors
    /// [`Error::NotFound`] when either is unknown.
    pub async fn remap(&self, from: WorkspaceId, to: WorkspaceId) -> Result<WorkspaceInfo> {
        self.inner.db.write(Sync::Synced, move |tx| workspaces::remap(tx, from, to)).await
    }

    /// What the store holds. Counting bytes reads every item once.
    ///
    /// # Errors
    /// As every read.
    pub async fn stats(&self) -> Result<Stats> {
        let mut stats = self.inner.db.read(stats::count).await?;
        if let Some(folder) = self.inner.folder.as_deref() {
            stats.file_bytes = file_bytes(folder);
        }
        Ok(stats)
    }

    /// Gives the room of what was deleted back to the disk: what is stored is written anew without gaps.
    ///
    /// Takes the time and the room of writing the store anew, while writers wait. The same work is done by
    /// [`Threads::erase`]; nothing that is stored changes.
    ///
    /// # Errors
    /// As every write; [`Error::StorageFull`] when there is no room for a second copy.
    pub async fn compact(&self) -> Result<Compacted> {
        let bytes_before = self.bytes_on_disk().await?;
        let (remains, is_over) = self.inner.erase().await?;
        // What a server keeps in its log and elsewhere is of what was taken away, and no room of the store's.
        let remains = if is_over { Vec::new() } else { remains };
        Ok(Compacted { bytes_before, bytes_after: self.bytes_on_disk().await?, remains })
    }

    async fn bytes_on_disk(&self) -> Result<i64> {
        match self.inner.folder.as_deref() {
            Some(folder) => Ok(file_bytes(folder)),
            None => self.inner.db.read(stats::bytes_on_disk).await,
        }
    }

    /// What the store knows of an imported file.
    ///
    /// # Errors
    /// As every read.
    pub async fn source(&self, path: impl Into<String>) -> Result<Option<SourceFile>> {
        let path = path.into();
        self.inner.db.read(move |tx| sources::find(tx, &path)).await
    }

    /// Notes a file whose sessions were imported as sources of their own, such as a database, so that the next import sees by its
    /// size and time that nothing in it has changed. `thread` and what tells of parts are of no use in it.
    ///
    /// # Errors
    /// [`Error::Conflict`] when a session was imported from the path; [`Error::Invalid`] for one that can't be stored.
    pub async fn note_container(&self, source: SourceFile) -> Result<()> {
        let now = self.inner.host.now();
        let source = SourceFile { thread: None, ..source };
        self.inner.db.write(Sync::Written, move |tx| sources::note_container(tx, &source, now)).await
    }

    /// A page of the stamps of imported files in the order of their paths, after `after`.
    ///
    /// # Errors
    /// As every read.
    pub async fn source_stamps(&self, after: impl Into<String>, limit: usize) -> Result<Vec<SourceStamp>> {
        let (after, limit) = (after.into(), i64::try_from(limit).unwrap_or(i64::MAX));
        self.inner.db.read(move |tx| sources::stamps(tx, &after, limit)).await
    }

    /// A page of the placed records of an imported file, after a position; begin with -1.
    ///
    /// # Errors
    /// As every read.
    pub async fn known_records(&self, path: impl Into<String>, after: i64, limit: usize) -> Result<Vec<KnownRecord>> {
        let (path, limit) = (path.into(), i64::try_from(limit).unwrap_or(i64::MAX));
        self.inner.db.read(move |tx| sources::known_records(tx, &path, after, limit)).await
    }

    /// A page of the exact bytes of an imported file, after a position; begin with -1, and go on until none is left. Between two
    /// parts that do not touch stands one line feed. A page ends with the part that reaches beyond 8 MiB, however many are wanted.
    ///
    /// # Errors
    /// As every read.
    pub async fn source_parts(&self, path: impl Into<String>, after: i64, limit: usize) -> Result<Vec<FilePart>> {
        let (path, limit) = (path.into(), i64::try_from(limit).unwrap_or(i64::MAX));
        self.inner.db.read(move |tx| sources::parts(tx, &path, after, limit)).await
    }

    /// A page of those parts of an imported file that are stored otherwise than they stood in it: secrets were masked, or content
    /// was redacted. Otherwise as [`Store::source_parts`].
    ///
    /// # Errors
    /// As every read.
    pub async fn changed_source_parts(
        &self,
        path: impl Into<String>,
        after: i64,
        limit: usize,
    ) -> Result<Vec<FilePart>> {
        let (path, limit) = (path.into(), i64::try_from(limit).unwrap_or(i64::MAX));
        self.inner.db.read(move |tx| sources::changed_parts(tx, &path, after, limit)).await
    }

    /// Which of these items are stored.
    ///
    /// # Errors
    /// As every read.
    pub async fn stored_items(&self, ids: Vec<ItemId>) -> Result<Vec<ItemId>> {
        self.inner.db.read(move |tx| sources::stored(tx, &ids)).await
    }

    /// What a part of a file that is imported will be stored as, by what the store was opened with
    /// ([`StoreOptions::on_write`]); `None` when it will be stored as it is. For importers: what they say of a record has to
    /// come from this, and their batches say so ([`crate::ImportBatch::screened`]).
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is refused.
    pub fn screened(&self, path: &str, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner.screen.imported(path, bytes)
    }

    /// Makes everything that was acknowledged before this call survive a power loss.
    ///
    /// # Errors
    /// As every write.
    pub async fn sync(&self) -> Result<()> {
        self.inner.sync().await
    }

    fn enter(&self, info: WorkspaceInfo) -> Workspace {
        let threads = Threads { inner: Arc::clone(&self.inner), scope: Scope::Workspace(info.id) };
        Workspace { threads, info }
    }
}

impl Workspace {
    /// The workspace's id, name and keys as they were when it was entered.
    pub fn info(&self) -> &WorkspaceInfo {
        &self.info
    }

    /// A new thread. Nothing is stored until its first append, `persist` or `flush`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the metadata can't be stored.
    pub fn create(&self, thread: NewThread) -> Result<LiveThread> {
        let creation = self.inner.creation(self.info.id, thread)?;
        Ok(LiveThread::unborn(Arc::clone(&self.inner), creation))
    }

    /// A new thread that is stored, claimed and listed at once.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] when the id is taken.
    pub async fn create_now(&self, thread: NewThread) -> Result<LiveThread> {
        let live = self.create(thread)?;
        live.persist().await?;
        Ok(live)
    }
}

impl Inner {
    /// A store on a driver that has opened it.
    pub(crate) fn on(
        db: Db,
        index: Arc<dyn Index>,
        options: StoreOptions,
        liveness: Liveness,
        notices: Vec<String>,
    ) -> Result<Self> {
        let is_in_memory = options.is_in_memory();
        let host = options.host;
        let (now, process) = (host.now(), host.process());
        let holder = Holder {
            id: mint_uuid(&*host, now).to_string(),
            machine: host.machine(),
            hostname: host.hostname(),
            pid: process.pid,
            start_ticks: process.start_ticks,
            boot: process.boot,
            namespace: process.namespace,
            label: options.label,
            acquired_at: now,
            heartbeat_at: now,
        };
        let keys = options.keys.or_else(|| options.folder.as_ref().map(|folder| folder.join(KEYS)));
        let mut inner = Self {
            mirror: None,
            idle: Mutex::new(None),
            id: store_id(&db, &*host, now)?,
            db,
            liveness,
            holder,
            writer: Mutex::new(None),
            read_only: options.read_only,
            is_in_memory,
            folder: options.folder,
            notices,
            last_heartbeat: Mutex::new(now),
            pulse: Mutex::new(None),
            keys: keys.map(KeyFolder::at),
            seals_at_shutdown: options.seals_at_shutdown,
            screen: options.screen,
            indexer: Indexer::new(index, Readers::new(options.readers)),
            feed_is_begun: AtomicBool::new(false),
            host,
        };
        inner.notices.extend(block_on(inner.notice_of_age()));
        inner.notices.extend(block_on(inner.unerased())?);
        let leading = block_on(leading::notices(&inner));
        inner.start_mirror(options.live_rollouts)?;
        if let (Some(mirror), false) = (&inner.mirror, leading.is_empty()) {
            let words =
                "rollouts that lead are moved, unchanged, before others are written in their place; they are then in";
            inner.notices.push(format!("{words} {}", mirror.root.join(files::ASIDE).display()));
        }
        inner.notices.extend(leading);
        if inner.indexer.index.exists().unwrap_or_default() {
            inner.index_when_idle()?;
        }
        Ok(inner)
    }

    /// Begins to keep rollouts, if they are to be kept.
    fn start_mirror(&mut self, wanted: LiveRollouts) -> Result<()> {
        if self.read_only || wanted == LiveRollouts::Off {
            return Ok(());
        }
        let store = self.folder.clone();
        let folder = move |tx: &mut dyn Tx| setting::folder_of(tx, &wanted, store.as_deref());
        let Some(root) = block_on(self.db.read(folder))? else { return Ok(()) };
        let (mirror, notice) = LiveMirror::start(self.source(), root, self.holder.id.clone())?;
        self.mirror = Some(mirror);
        self.notices.extend(notice);
        Ok(())
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.read_only {
            true => Err(Error::ReadOnly { detail: "it was opened for reading only".to_owned() }),
            false => Ok(()),
        }
    }

    /// From now on the search index is brought up to date while nobody writes.
    pub(crate) fn index_when_idle(&self) -> Result<()> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // In memory a search does all that there is to do.
        if idle.is_none() && !self.read_only && !self.is_in_memory {
            *idle = Some(Idle::start(Arc::clone(&self.indexer), self.db.clone())?);
        }
        Ok(())
    }

    /// What is read of the store by whoever must not keep it open.
    pub(crate) fn source(&self) -> Source {
        Source { db: self.db.clone(), host: Arc::clone(&self.host), store: self.id }
    }

    /// This store's holder, announced as alive.
    pub(crate) fn holder(&self) -> Result<Holder> {
        if self.read_only {
            return Err(Error::ReadOnly { detail: "it was opened for reading only".to_owned() });
        }
        self.liveness.announce(&self.holder.id)?;
        let mut pulse = self.pulse.lock().unwrap_or_else(PoisonError::into_inner);
        if self.liveness.needs_signs() && pulse.is_none() {
            *pulse = Some(Pulse::start(self.db.downgrade(), Arc::clone(&self.host), self.holder.id.clone())?);
        }
        drop(pulse);
        let now = self.host.now();
        Ok(Holder { acquired_at: now, heartbeat_at: now, ..self.holder.clone() })
    }

    /// Whether a holder is alive, at the time by the engine's clock where there is one.
    pub(crate) fn is_alive(&self, holder: &Holder, at: Option<Timestamp>) -> bool {
        holder.id == self.holder.id || self.liveness.is_alive(holder, at.unwrap_or_else(|| self.host.now()))
    }

    /// This machine's writer in this store.
    pub(crate) async fn writer(&self) -> Result<(i64, WriterId)> {
        if let Some(writer) = *self.writer.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(writer);
        }
        let now = self.host.now();
        let (machine, fresh) = (self.holder.machine.clone(), WriterId::from_uuid(mint_uuid(&*self.host, now)));
        let known = self.db.read({
            let machine = machine.clone();
            move |tx| writers::find(tx, &machine)
        });
        let writer = match known.await? {
            Some(writer) => writer,
            None => {
                let mint = move |tx: &mut dyn Tx| writers::mint(tx, &machine, fresh, now);
                self.db.write(Sync::Synced.free().repeatable(), mint).await?
            }
        };
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(writer);
        Ok(writer)
    }

    pub(crate) async fn sync(&self) -> Result<()> {
        if planted::is(Defect::FlushesWithoutSync) {
            return Ok(());
        }
        sync(&self.db).await
    }

    /// Whether it is time for a sign of life; answers yes to one caller.
    pub(crate) fn heartbeat_is_due(&self, now: Timestamp) -> bool {
        let mut last = self.last_heartbeat.lock().unwrap_or_else(PoisonError::into_inner);
        let due = now.0.saturating_sub(last.0) >= claims::HEARTBEAT_MILLIS || now.0 < last.0;
        // Where there is a pulse it does that alone: here it would lock the claims of other threads for a commit.
        if due && !self.liveness.has_leases_only() {
            *last = now;
            return true;
        }
        false
    }

    pub(crate) fn holder_id(&self) -> &str {
        &self.holder.id
    }

    fn mark_live(&self, mut thread: Thread, at: Option<Timestamp>) -> Thread {
        thread.live = thread.holder.as_ref().is_some_and(|holder| self.is_alive(holder, at));
        thread
    }

    fn creation(&self, workspace: WorkspaceId, mut thread: NewThread) -> Result<Creation> {
        let now = self.host.now();
        let id = match thread.id {
            Some(id) => id,
            None => ThreadId::new(mint_uuid(&*self.host, now).to_string())?,
        };
        self.screen.details(&mut thread.details)?;
        thread.details.check()?;
        Ok(Creation {
            id,
            workspace,
            details: thread.details,
            status: thread.status.unwrap_or(Status::Idle),
            ephemeral: thread.ephemeral,
            policy: thread.policy,
            forked_from: thread.forked_from,
            created_at: thread.created_at.unwrap_or(now),
            now,
        })
    }
}

/// What is read of a store without keeping it open.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) db: Db,
    pub(crate) host: Arc<dyn Host>,
    /// The store's id.
    pub(crate) store: uuid::Uuid,
}

impl Source {
    /// Makes everything that was committed before this call survive a power loss.
    pub(crate) async fn sync(&self) -> Result<()> {
        sync(&self.db).await
    }
}

async fn sync(db: &Db) -> Result<()> {
    let terms = Terms::from(Sync::Synced).repeatable().silent();
    db.write(terms, |tx| tx.execute(SYNC_BARRIER, &[]).map(drop)).await
}

/// Runs something that blocks where it keeps no runtime waiting.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (reply, answer) = futures_channel::oneshot::channel();
    // A caller that no longer waits needs no answer.
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || drop(reply.send(run())));
    spawned.map_err(|error| Error::Backend { detail: format!("no thread for {name}: {error}") })?;
    answer.await.map_err(|_| Error::Backend { detail: format!("{name} ended badly") })?
}

/// A fork says of itself what its parent said, where the caller said nothing.
fn inherit(creation: &mut Creation, source: &Thread) {
    let (details, from) = (&mut creation.details, &source.details);
    creation.forked_from = Some(source.id.clone());
    for (field, parent) in [
        (&mut details.preview, &from.preview),
        (&mut details.agent, &from.agent),
        (&mut details.provider, &from.provider),
        (&mut details.model, &from.model),
        (&mut details.cwd, &from.cwd),
        (&mut details.git_branch, &from.git_branch),
        (&mut details.git_origin, &from.git_origin),
    ] {
        if field.is_none() {
            field.clone_from(parent);
        }
    }
    if details.source.is_none() {
        details.source = Some("fork".to_owned());
    }
}

fn open_inner(options: StoreOptions) -> Result<Inner> {
    #[cfg(feature = "postgres")]
    if let Some(opening) = options.opening() {
        let (driver, notices) = postgres::open(opening)?;
        let index: Arc<dyn Index> = Arc::new(driver.index());
        return Inner::on(Db::new(Arc::new(driver)), index, options, Liveness::leases(), notices);
    }
    let location = Location {
        folder: options.folder.clone(),
        read_only: options.read_only,
        busy_bound: options.busy_bound,
        migrations: options.migrations,
        now: options.host.now().0,
        anew: options.anew,
    };
    let opened = sqlite::open(&location)?;
    let (notices, journal) = (opened.notices.clone(), opened.journal);
    let index: Arc<dyn Index> = Arc::new(match &location.folder {
        Some(folder) => SqliteIndex::in_folder(folder, journal, location.read_only),
        None => SqliteIndex::in_memory(),
    });
    let driver = SqliteDriver::start(&location, opened)?;
    let liveness = Liveness::locks(location.folder.as_deref(), !notices.is_empty());
    Inner::on(Db::new(Arc::new(driver)), index, options, liveness, notices)
}

/// The store's id, minted by whoever opens it first.
fn store_id(db: &Db, host: &dyn Host, now: Timestamp) -> Result<uuid::Uuid> {
    let read = |tx: &mut dyn Tx| query_one(tx, READ_FACT, &["store-id".into()], |row| Ok(row.blob(0)?.to_vec()));
    let fresh = mint_uuid(host, now);
    let stored = match block_on(db.read(read))? {
        Some(stored) => Some(stored),
        None => block_on(db.write(Sync::Synced.free().repeatable(), move |tx| {
            tx.execute(WRITE_FACT, &["store-id".into(), Value::Blob(fresh.as_bytes())])?;
            read(tx)
        }))?,
    };
    let id = stored.and_then(|bytes| uuid::Uuid::from_slice(&bytes).ok());
    let id = if planted::is(Defect::MintsIdAnew) { Some(fresh) } else { id };
    id.ok_or_else(|| Error::corrupt("fact `store-id`", "expected 16 bytes"))
}

/// What compacting a store did.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Compacted {
    /// Bytes of the store's files, or of its tables on a server, before.
    pub bytes_before: i64,
    /// The same after.
    pub bytes_after: i64,
    /// What could not be written anew, and why.
    pub remains: Vec<String>,
}

/// The bytes of the store's database and its log.
fn file_bytes(folder: &Path) -> i64 {
    let size = |suffix: &str| {
        std::fs::metadata(folder.join(format!("{}{suffix}", sqlite::DATABASE))).map_or(0, |meta| meta.len())
    };
    i64::try_from(["", "-wal"].into_iter().map(size).sum::<u64>()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Store, StoreOptions};
    use crate::db::migrations::{Migration, SQLITE};
    use crate::error::Error;
    use crate::{NewItem, NewThread, Role, ThreadId};

    /// The schema that is known, and a step more.
    fn with_a_step_more() -> &'static [Migration] {
        let more = Migration { number: 0, name: "more", sql: "CREATE TABLE more (x INTEGER) STRICT" };
        let number = i64::try_from(SQLITE.len()).unwrap() + 1;
        Vec::leak([SQLITE, &[Migration { number, ..more }]].concat())
    }

    async fn write_one(options: StoreOptions) -> ThreadId {
        let store = Store::open(options).await.unwrap();
        let thread = store.workspace("/w".as_ref()).await.unwrap().create(NewThread::default()).unwrap();
        thread.append(vec![NewItem::message(Role::User, "kept")]).await.unwrap();
        thread.shutdown().await.unwrap();
        thread.id().clone()
    }

    #[test]
    fn a_store_is_backed_up_and_brought_forward_and_then_refused_by_older_versions() {
        pollster::block_on(async {
            let temp = tempfile::tempdir().unwrap();
            let folder = temp.path().join("store");
            let id = write_one(StoreOptions::folder(&folder)).await;
            let newer = StoreOptions::folder(&folder).migrations(with_a_step_more());
            let opened: Vec<_> = (0..8)
                .map(|_| {
                    let options = newer.clone();
                    std::thread::spawn(move || pollster::block_on(Store::open(options)).map(drop))
                })
                .collect();
            for thread in opened {
                thread.join().unwrap().unwrap();
            }
            assert_eq!(Store::open(newer).await.unwrap().get(&id).await.unwrap().items, 1);

            let backups: Vec<_> =
                std::fs::read_dir(folder.join("backups")).unwrap().map(|it| it.unwrap().path()).collect();
            assert_eq!(backups.len(), 1, "one of the eight migrated, and made one backup");
            let before = temp.path().join("before");
            std::fs::create_dir(&before).unwrap();
            std::fs::copy(&backups[0], before.join("threadkeep.db")).unwrap();
            let restored = Store::open(StoreOptions::folder(before)).await.unwrap();
            assert!(restored.verify(&id).await.unwrap().is_intact());

            let bytes = std::fs::read(folder.join("threadkeep.db")).unwrap();
            let refused = Store::open(StoreOptions::folder(&folder)).await.unwrap_err();
            assert!(matches!(refused, Error::SchemaTooNew { .. }), "{refused:?}");
            assert!(std::fs::read(folder.join("threadkeep.db")).unwrap() == bytes);

            // The older version goes back to the copy, and keeps what the newer one left.
            let report = Store::restore_backup(StoreOptions::folder(&folder), &backups[0]).await.unwrap();
            let back = Store::open(StoreOptions::folder(&folder)).await.unwrap();
            assert!(back.verify(&id).await.unwrap().is_intact());
            let left = StoreOptions::folder(report.replaced.unwrap()).migrations(with_a_step_more());
            assert_eq!(Store::open(left).await.unwrap().get(&id).await.unwrap().items, 1);
        });
    }
}
