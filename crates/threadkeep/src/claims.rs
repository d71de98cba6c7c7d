//! Claims: who may write a thread, and the epochs that fence off everybody else.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::changes::{self, Area, Note, Verb};
use crate::claim::{ClaimInfo, Holder, ReleaseRequest};
use crate::concurrency::{Mutex, mpsc, thread};
use crate::db::sqlite::{create_own_folder, open_private, open_to_look};
use crate::db::{Row, Sync, Tx, WeakDb, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::id::ThreadId;
use crate::item::check_text;
use crate::jobs;
use crate::planted::{self, Defect};
use crate::requests;
use crate::threads::Scope;
use crate::time::Timestamp;

/// Where locks do not reach, a holder is believed to live for this long after its last sign of life.
const LEASE_MILLIS: i64 = 120_000;
const MAX_LABEL_BYTES: usize = 1024;
/// How often a holder gives a sign of life.
pub(crate) const HEARTBEAT_MILLIS: i64 = 30_000;

statements! {
    CLAIM = "SELECT c.holder, c.machine, c.hostname, c.pid, c.label, c.acquired_at, c.heartbeat_at, c.boot, c.namespace,
        c.start_ticks, t.epoch
        FROM threads t LEFT JOIN claims c ON c.thread = t.id WHERE t.id = ?1 AND t.shelf < 2";
    CLAIMS = "SELECT c.holder, c.machine, c.hostname, c.pid, c.label, c.acquired_at, c.heartbeat_at, c.boot, c.namespace,
        c.start_ticks, c.epoch, t.id, t.title, t.preview, c.wanted_by, c.wanted_at
        FROM claims c JOIN threads t ON t.id = c.thread
        WHERE (CAST(?1 AS BYTEA) IS NULL OR t.workspace = ?1) ORDER BY c.acquired_at, t.id";
    RAISE_EPOCH = "UPDATE threads SET epoch = epoch + 1 WHERE id = ?1 AND epoch = ?2 AND shelf < 2";
    WRITE_CLAIM = "INSERT INTO claims (thread, epoch, holder, machine, hostname, pid, label, acquired_at, heartbeat_at,
          boot, namespace, start_ticks)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9, ?10, ?11)
        ON CONFLICT (thread) DO UPDATE SET epoch = excluded.epoch, holder = excluded.holder, machine = excluded.machine,
          hostname = excluded.hostname, pid = excluded.pid, label = excluded.label, acquired_at = excluded.acquired_at,
          heartbeat_at = excluded.heartbeat_at, boot = excluded.boot, namespace = excluded.namespace,
          start_ticks = excluded.start_ticks, wanted_by = NULL, wanted_at = NULL";
    ASK = "UPDATE claims SET wanted_by = ?2, wanted_at = ?3 WHERE thread = ?1";
    ASKED = "SELECT wanted_by, wanted_at FROM claims WHERE thread = ?1 AND epoch = ?2 AND wanted_by IS NOT NULL";
    HOLDER_ID = "SELECT holder FROM claims WHERE thread = ?1";
    RELEASE = "DELETE FROM claims WHERE thread = ?1 AND epoch = ?2";
    HEARTBEAT = "UPDATE claims SET heartbeat_at = ?2 WHERE holder = ?1";
}

/// The claim on a thread as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) holder: Option<Holder>,
    pub(crate) epoch: i64,
    /// When it was read, by the engine's clock where there is one and a holder to be judged.
    pub(crate) at: Option<Timestamp>,
}

/// Reads the claim on a thread.
pub(crate) fn read(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Claim> {
    let claim = query_one(tx, CLAIM, &[thread.as_str().into()], |row| {
        Ok(Claim { holder: read_holder(row)?, epoch: row.int(10)?, at: None })
    })?;
    let claim = claim.ok_or_else(|| Error::not_found("thread", thread))?;
    let at = judged_at(tx, claim.holder.is_some())?;
    Ok(Claim { at, ..claim })
}

/// The time by which holders are judged, from the engine's clock where it has one; not asked for when there is none to judge.
pub(crate) fn judged_at(tx: &mut dyn Tx, any_holder: bool) -> Result<Option<Timestamp>> {
    let clock = if any_holder { tx.clock()? } else { None };
    Ok(clock.map(Timestamp))
}

/// The id of whoever claims a thread, alive or not.
pub(crate) fn holder_id(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Option<String>> {
    query_one(tx, HOLDER_ID, &[thread.as_str().into()], |row| Ok(row.text(0)?.to_owned()))
}

/// Takes the claim if nobody took it since it was read at `epoch`; gives the new epoch.
pub(crate) fn take(tx: &mut dyn Tx, thread: &ThreadId, epoch: i64, holder: &Holder) -> Result<Option<i64>> {
    if tx.execute(RAISE_EPOCH, &[thread.as_str().into(), epoch.into()])? == 0 {
        return Ok(None);
    }
    // The lease is judged by the clock that it was written by.
    let since = tx.clock()?.unwrap_or(holder.acquired_at.0);
    let args = [
        thread.as_str().into(),
        (epoch + 1).into(),
        holder.id.as_str().into(),
        holder.machine.as_str().into(),
        holder.hostname.as_str().into(),
        holder.pid.into(),
        holder.label.as_str().into(),
        since.into(),
        holder.boot.as_str().into(),
        holder.namespace.as_str().into(),
        holder.start_ticks.into(),
    ];
    tx.execute(WRITE_CLAIM, &args)?;
    note(tx, thread, Verb::Created, Timestamp(since))?;
    Ok(Some(epoch + 1))
}

/// Whether this holder has the claim at this epoch: an earlier run took it, and its commit was not answered.
pub(crate) fn has_taken(tx: &mut dyn Tx, thread: &ThreadId, epoch: i64, holder: &str) -> Result<bool> {
    let claim = read(tx, thread)?;
    Ok(claim.epoch == epoch && claim.holder.is_some_and(|found| found.id == holder))
}

/// Gives the claim up; one that was taken over since stays with its new holder.
pub(crate) fn release(tx: &mut dyn Tx, thread: &ThreadId, epoch: i64, now: Timestamp) -> Result<()> {
    let epoch = if planted::is(Defect::ReleasesOthersClaims) { read(tx, thread)?.epoch } else { epoch };
    match tx.execute(RELEASE, &[thread.as_str().into(), epoch.into()])? {
        0 => Ok(()),
        _ => note(tx, thread, Verb::Deleted, now),
    }
}

/// Notes for those who follow that a thread has another holder, or none.
fn note(tx: &mut dyn Tx, thread: &ThreadId, verb: Verb, now: Timestamp) -> Result<()> {
    changes::note(tx, thread, None, Note { area: Area::Claim, verb, subject: None, now })
}

/// Asks the holder of a thread to hand it over.
pub(crate) fn ask(tx: &mut dyn Tx, thread: &ThreadId, request: &ReleaseRequest) -> Result<()> {
    check_text("label", &request.by, MAX_LABEL_BYTES)?;
    match tx.execute(ASK, &[thread.as_str().into(), request.by.as_str().into(), request.at.0.into()])? {
        0 => Err(Error::not_found("claim on thread", thread)),
        _ => Ok(()),
    }
}

/// Who asks for the claim at this epoch, if anybody does.
pub(crate) fn asked(tx: &mut dyn Tx, thread: &ThreadId, epoch: i64) -> Result<Option<ReleaseRequest>> {
    query_one(tx, ASKED, &[thread.as_str().into(), epoch.into()], |row| {
        Ok(ReleaseRequest { by: row.text(0)?.to_owned(), at: Timestamp(row.int(1)?) })
    })
}

/// All claims, the oldest first; whether their holders are alive is for the caller to find out.
pub(crate) fn list(tx: &mut dyn Tx, scope: Scope) -> Result<Vec<ClaimInfo>> {
    let read = |row: &Row<'_>| {
        let thread = row.parse(11, ThreadId::new(row.text(11)?).ok(), "a thread id")?;
        let name = row.opt_text(12)?.or(row.opt_text(13)?).unwrap_or_else(|| thread.as_str()).to_owned();
        let wanted = row.opt_text(14)?.zip(row.opt_int(15)?);
        Ok(ClaimInfo {
            name,
            epoch: row.int(10)?,
            holder: row.parse(0, read_holder(row)?, "a holder")?,
            live: false,
            wanted: wanted.map(|(by, at)| ReleaseRequest { by: by.to_owned(), at: Timestamp(at) }),
            thread,
        })
    };
    query_all(tx, CLAIMS, &[scope.arg()], read)
}

/// Gives a sign of life for every claim of a holder, for every job that it runs, and for every request that it owns.
pub(crate) fn heartbeat(tx: &mut dyn Tx, holder: &str, now: Timestamp) -> Result<()> {
    let now = tx.clock()?.unwrap_or(now.0);
    tx.execute(HEARTBEAT, &[holder.into(), now.into()])?;
    jobs::heartbeat(tx, holder, Timestamp(now))?;
    requests::heartbeat(tx, holder, Timestamp(now))
}

fn read_holder(row: &Row<'_>) -> Result<Option<Holder>> {
    let Some(id) = row.opt_text(0)? else {
        return Ok(None);
    };
    Ok(Some(Holder {
        id: id.to_owned(),
        machine: row.text(1)?.to_owned(),
        hostname: row.text(2)?.to_owned(),
        pid: row.int(3)?,
        label: row.text(4)?.to_owned(),
        acquired_at: Timestamp(row.int(5)?),
        heartbeat_at: Timestamp(row.int(6)?),
        boot: row.text(7)?.to_owned(),
        namespace: row.text(8)?.to_owned(),
        start_ticks: row.int(9)?,
    }))
}

/// Gives signs of life for a holder that has nothing to write, where a lock does not show that it lives.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// Dropped to end it.
    _stop: mpsc::Sender<()>,
}

impl Pulse {
    /// Starts it; it ends with this value or with the store.
    pub(crate) fn start(db: WeakDb, host: Arc<dyn Host>, holder: String) -> Result<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let period = Duration::from_millis(HEARTBEAT_MILLIS.unsigned_abs());
        let beat = move || {
            while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(period) {
                let Some(db) = db.upgrade() else { return };
                let (holder, now) = (holder.clone(), host.now());
                // Nobody waits for it: a sign that fails is followed by another.
                drop(db.write_now(Sync::Written.free().repeatable(), move |tx| heartbeat(tx, &holder, now)));
            }
        };
        let thread = thread::Builder::new().name("threadkeep-pulse".to_owned()).spawn(beat);
        thread.map_err(|error| Error::Backend { detail: format!("no thread for signs of life: {error}") })?;
        Ok(Self { _stop: stop })
    }
}

/// Tells living holders from dead ones by the locks that they hold on their own files, and where there are no such locks, by
/// the age of their last sign of life.
///
/// A process number would not do: another container sees other numbers, and numbers are used again.
#[derive(Debug)]
pub(crate) struct Liveness {
    proof: Proof,
    /// This store's own file, locked.
    own: Mutex<Option<(PathBuf, File)>>,
}

#[derive(Debug)]
enum Proof {
    /// In memory every holder is this very store.
    Own,
    /// A lock on a file in the folder.
    Lock {
        folder: PathBuf,
        /// Whether other machines see the folder, so that a free lock proves nothing.
        shared: bool,
    },
    /// A lease, by the clock of the server.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "there is no server"))]
    Lease,
}

impl Liveness {
    pub(crate) fn locks(store: Option<&Path>, shared: bool) -> Self {
        let proof = match store {
            Some(store) => Proof::Lock { folder: store.join("holders"), shared },
            None => Proof::Own,
        };
        Self { proof, own: Mutex::new(None) }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn leases() -> Self {
        Self { proof: Proof::Lease, own: Mutex::new(None) }
    }

    /// Whether a holder has to give signs of life, because its lock does not show everywhere that it lives.
    pub(crate) fn needs_signs(&self) -> bool {
        matches!(self.proof, Proof::Lock { shared: true, .. } | Proof::Lease)
    }

    /// Whether there are no locks at all.
    pub(crate) fn has_leases_only(&self) -> bool {
        matches!(self.proof, Proof::Lease)
    }

    /// Makes this store's holder visible as alive until the process ends or the store is dropped; again, if somebody has removed
    /// or replaced its file.
    pub(crate) fn announce(&self, id: &str) -> Result<()> {
        let Proof::Lock { folder, .. } = &self.proof else {
            return Ok(());
        };
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if own.as_ref().is_none_or(|(path, file)| !is_at(path, file)) {
            create_own_folder(folder)?;
            let path = folder.join(id);
            let file = open_private(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(std::fs::TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
                Err(error) => return Err(Error::io("lock", &path, &error.into())),
            }
            *own = Some((path, file));
        }
        Ok(())
    }

    /// Whether the holder is alive. The file of a dead one is removed.
    pub(crate) fn is_alive(&self, holder: &Holder, now: Timestamp) -> bool {
        match self.judge(holder, now) {
            Judged::Alive => {
                if planted::is(Defect::UnlinksLocksOfTheLiving)
                    && let Proof::Lock { folder, .. } = &self.proof
                {
                    drop(std::fs::remove_file(folder.join(&holder.id)));
                }
                true
            }
            Judged::Dead => false,
            Judged::Left(path) => {
                // Nobody can hold it again: its store would have minted another id.
                drop(std::fs::remove_file(path));
                false
            }
        }
    }

    /// Whether the holder is alive, found out without a change to anything.
    pub(crate) fn looks_alive(&self, holder: &Holder, now: Timestamp) -> bool {
        matches!(self.judge(holder, now), Judged::Alive)
    }

    fn judge(&self, holder: &Holder, now: Timestamp) -> Judged {
        let leased = now.0.saturating_sub(holder.heartbeat_at.0) < LEASE_MILLIS;
        let by_lease = if leased { Judged::Alive } else { Judged::Dead };
        let (folder, shared) = match &self.proof {
            Proof::Own => return Judged::Alive,
            Proof::Lease => return by_lease,
            Proof::Lock { folder, shared } => (folder, *shared),
        };
        // The id becomes a file name: only what a store mints is let through.
        if uuid::Uuid::try_parse(&holder.id).is_err() {
            return Judged::Dead;
        }
        if let Some(misjudged) = misjudge(holder, leased) {
            return if misjudged { Judged::Alive } else { Judged::Dead };
        }
        let path = folder.join(&holder.id);
        match open_to_look(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound && shared => by_lease,
            Err(error) if error.kind() == ErrorKind::NotFound => Judged::Dead,
            Err(_) => Judged::Alive,
            // Shared, so that two who look at the same moment don't take each other for the holder.
            Ok(file) => match file.try_lock_shared() {
                Err(std::fs::TryLockError::WouldBlock) => Judged::Alive,
                Err(std::fs::TryLockError::Error(_)) => by_lease,
                Ok(()) if shared => by_lease,
                Ok(()) => Judged::Left(path),
            },
        }
    }
}

/// What is known of a holder.
enum Judged {
    Alive,
    Dead,
    /// Dead, and its file is still there.
    Left(PathBuf),
}

/// Whether this open file is what stands at the path.
fn is_at(path: &Path, file: &File) -> bool {
    let there = path.symlink_metadata().map(|meta| (meta.dev(), meta.ino()));
    let open = file.metadata().map(|meta| (meta.dev(), meta.ino()));
    there.is_ok_and(|there| open.is_ok_and(|open| there == open))
}

/// What planted defects believe of a holder.
fn misjudge(holder: &Holder, leased: bool) -> Option<bool> {
    match () {
        () if planted::is(Defect::StealsFromTheLiving) => Some(false),
        () if planted::is(Defect::KeepsDeadHolders) => Some(true),
        () if planted::is(Defect::TrustsTheClock) => Some(leased),
        () if planted::is(Defect::TrustsProcessNumbers) => {
            Some(Path::new("/proc").join(holder.pid.to_string()).exists())
        }
        () => None,
    }
}

impl Drop for Liveness {
    /// Removes this store's own file. The store drops its writer before this: until everything is written, it lives.
    fn drop(&mut self) {
        let own = self.own.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((path, _file)) = own {
            drop(std::fs::remove_file(path));
        }
    }
}
