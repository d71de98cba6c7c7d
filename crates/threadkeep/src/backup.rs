//! Backups: a copy of a store in one file, made while it is in use, and putting such a copy in a store's place.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use crate::concurrency::block_on;
use crate::db::copy;
use crate::db::migrations::{self, State};
use crate::db::pragmas::{self, Journal};
use crate::db::replace::{self, COMPANIONS, copy_file, is_there, make_folder, new_file};
use crate::db::sqlite::{self, DATABASE, Header, Location, SqliteTx};
use crate::db::{Tx, query_one, statements};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::log::append::mint_uuid;
use crate::store::{Inner, Store, StoreOptions, on_a_thread};

/// What a companion that holds something says: the database is not complete without it.
const HALVES: [&str; 2] = ["-wal", "-journal"];

statements! {
    HOLDER = "SELECT label, pid, hostname FROM claims WHERE holder = ?1 ORDER BY acquired_at LIMIT 1";
    // Whoever held a thread when the backup was made must not go on in what is restored.
    FENCE_HOLDERS = "UPDATE threads SET epoch = epoch + 1 WHERE id IN (SELECT thread FROM claims)";
    END_CLAIMS = "DELETE FROM claims";
}

/// A backup that was made and verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackupReport {
    /// The file.
    pub file: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// How many threads it holds, the trash and what is left of purged ones included.
    pub threads: u64,
    /// How many items it holds.
    pub items: u64,
}

/// A backup that was verified and put in a store's place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RestoreReport {
    /// The store's database.
    pub file: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// How many threads it holds, the trash and what is left of purged ones included.
    pub threads: u64,
    /// How many items it holds.
    pub items: u64,
    /// How many threads were being written when the backup was made; whoever wrote them is fenced off.
    pub ended_claims: u64,
    /// The folder that the store that was there before is kept in.
    pub replaced: Option<PathBuf>,
}

impl Store {
    /// Copies the store into one file while any number of programs write it, and verifies the copy: it holds everything that
    /// was acknowledged before the call.
    ///
    /// In a folder the file is named `threadkeep.db`, so that the folder can be opened as a store; a folder that is named with a
    /// slash at its end is made. The file is complete and synced when it appears under its name, and replaces nothing.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] when there is such a file; [`Error::Invalid`] for a link, and inside the store's own folder
    /// anywhere but in `backups/`; [`Error::Corrupt`] when the copy does not verify, because what is stored does not;
    /// [`Error::Unsupported`] in memory. No file is left then.
    pub async fn backup(&self, to: &Path) -> Result<BackupReport> {
        self.backup_with(to, |_, _| {}).await
    }

    /// As [`Store::backup`], and tells how many pages of how many are copied. Verifying comes after the last one.
    ///
    /// # Errors
    /// As [`Store::backup`].
    pub async fn backup_with(
        &self,
        to: &Path,
        progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<BackupReport> {
        let (inner, to) = (Arc::clone(&self.inner), to.to_owned());
        on_a_thread("threadkeep-backup", move || back_up(&inner, &to, progress)).await
    }

    /// Puts a backup in the place of the store that the options name. A store that is there is kept in `backups/`.
    ///
    /// `from` is a file, or a folder that holds one named `threadkeep.db`. It is verified before anything is touched, and stays
    /// as it is; one of an older schema is brought forward on the way. No claim is restored.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a backup that is cut, damaged, or not complete without the log beside it;
    /// [`Error::ForeignStore`] and [`Error::SchemaTooNew`]; [`Error::Busy`] while any program has the store open.
    pub async fn restore_backup(options: StoreOptions, from: &Path) -> Result<RestoreReport> {
        let from = from.to_owned();
        on_a_thread("threadkeep-restore", move || restore(&options, &from)).await
    }
}

fn back_up(inner: &Inner, to: &Path, mut progress: impl FnMut(u64, u64)) -> Result<BackupReport> {
    let Some(store) = inner.folder.as_deref() else {
        return Err(Error::Unsupported { operation: "backup" });
    };
    let target = Target::find(to, store)?;
    let made = write_backup(inner, store, &target, &mut progress);
    if made.is_err() && target.is_new_folder {
        drop(std::fs::remove_dir(&target.folder));
    }
    made
}

fn write_backup(
    inner: &Inner,
    store: &Path,
    target: &Target,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<BackupReport> {
    let work = WorkFolder::make(&target.folder, &*inner.host)?;
    let database = work.database();
    sqlite::create_file(&database)?;
    let location = Location {
        folder: Some(store.to_owned()),
        read_only: true,
        busy_bound: pragmas::BUSY_TIMEOUT,
        migrations: migrations::SQLITE,
        now: inner.host.now().0,
        anew: false,
    };
    // A connection of its own: the readers and the writer go on.
    copy::copy(&sqlite::connect_again(&location, true)?, &database, progress)?;
    let (threads, items) = verify(StoreOptions::folder(&work.folder).host(Arc::clone(&inner.host)))?;
    let bytes = size_of(&database)?;
    appear(&database, &target.file)?;
    copy::sync(&target.folder)?;
    Ok(BackupReport { file: target.file.clone(), bytes, threads, items })
}

/// Where a backup goes.
#[derive(Debug)]
struct Target {
    /// The folder, without links on the way to it.
    folder: PathBuf,
    file: PathBuf,
    is_new_folder: bool,
}

impl Target {
    /// Decides the file, and makes its folder where that is asked for.
    fn find(to: &Path, store: &Path) -> Result<Self> {
        let invalid = |reason: &str| Error::invalid("backup target", format!("{} {reason}", to.display()));
        // Without a slash at its end, which would follow a link.
        let path: PathBuf = to.components().collect();
        let is_folder = match std::fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_symlink() => return Err(invalid("is a link; name the place that it leads to")),
            Ok(meta) if meta.is_dir() => true,
            Ok(_) => return Err(exists(&path)),
            Err(error) if error.kind() == ErrorKind::NotFound => to.as_os_str().as_bytes().ends_with(b"/"),
            Err(error) => return Err(Error::io("look at", &path, &error)),
        };
        let file = if is_folder { path.join(DATABASE) } else { path };
        let name = file.file_name().ok_or_else(|| invalid("names no file"))?;
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let is_new_folder = !folder.exists();
        let folder = match is_new_folder {
            true => sqlite::real_file(folder)?,
            false => folder.canonicalize().map_err(|error| Error::io("find", folder, &error))?,
        };
        let store = store.canonicalize().map_err(|error| Error::io("find", store, &error))?;
        let backups = store.join("backups");
        if folder.starts_with(&store) && !folder.starts_with(&backups) {
            return Err(invalid("is inside the store; there, backups go into `backups`"));
        }
        let file = folder.join(name);
        if is_new_folder {
            if !is_folder && folder != backups {
                return Err(Error::io("find", &folder, &ErrorKind::NotFound.into()));
            }
            sqlite::create_folder(&folder)?;
        }
        // A log that is left of another database would be taken for that of the backup.
        match COMPANIONS
            .iter()
            .map(|suffix| sqlite::beside(&file, suffix))
            .chain([file.clone()])
            .find(|path| is_there(path))
        {
            Some(found) => Err(exists(&found)),
            None => Ok(Self { folder, file, is_new_folder }),
        }
    }
}

fn restore(options: &StoreOptions, from: &Path) -> Result<RestoreReport> {
    pragmas::check_version()?;
    let Some(folder) = options.folder.as_deref() else {
        return Err(Error::Unsupported { operation: "restore_backup" });
    };
    if options.read_only {
        return Err(Error::ReadOnly { detail: "a store that is opened for reading only can't be replaced".to_owned() });
    }
    let from = find_backup(from)?;
    sqlite::create_folder(folder)?;
    replace::complete(folder, options.busy_bound)?;
    let folder = folder.canonicalize().map_err(|error| Error::io("find", folder, &error))?;
    let file = folder.join(DATABASE);
    if sqlite::real_file(&from)? == file {
        return Err(Error::invalid("backup", format!("{} is the store itself", from.display())));
    }
    let _unused = Unused::make_sure(&folder, options, Look::ByTheEngine)?;
    let work = WorkFolder::make(&folder, &*options.host)?;
    let database = work.database();
    copy_file(&from, &database)?;
    let ended_claims = prepare(&database, options).map_err(|error| sqlite::name_place(error, &from))?;
    let (threads, items) = verify(StoreOptions { folder: Some(work.folder.clone()), ..options.clone() })?;
    set_journal(&database, &folder)?;
    let bytes = size_of(&database)?;
    let replaced = put_in_place(&database, &folder, &*options.host)?;
    Ok(RestoreReport { file, bytes, threads, items, ended_claims, replaced })
}

/// The file of a backup, if it can be one.
fn find_backup(from: &Path) -> Result<PathBuf> {
    let path: PathBuf = from.components().collect();
    let is_folder = match std::fs::symlink_metadata(&path) {
        Ok(meta) => meta.is_dir(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(Error::not_found("backup", from.display())),
        Err(error) => return Err(Error::io("look at", from, &error)),
    };
    let file = if is_folder { path.join(DATABASE) } else { path };
    if let Some(half) = half_of(&file) {
        let detail = format!("it is not complete without {}; make a backup with `backup`", half.display());
        return Err(Error::corrupt(file.display().to_string(), detail));
    }
    match sqlite::inspect(&file)? {
        Header::Ours => Ok(file),
        Header::Empty if is_there(&file) => Err(Error::corrupt(file.display().to_string(), "it is empty")),
        Header::Empty => Err(Error::not_found("backup", file.display())),
    }
}

/// The companion that holds a part of the database.
fn half_of(file: &Path) -> Option<PathBuf> {
    let holds_something = |path: &PathBuf| std::fs::symlink_metadata(path).is_ok_and(|meta| meta.len() > 0);
    HALVES.iter().map(|suffix| sqlite::beside(file, suffix)).find(holds_something)
}

/// Brings a copied backup forward, checks its pages, and ends the claims in it; says how many there were.
fn prepare(database: &Path, options: &StoreOptions) -> Result<u64> {
    let mut connection = alone(database)?;
    let state = migrations::state(&connection, options.migrations)?;
    copy::check(&connection, database)?;
    match state {
        State::Current => {}
        State::Behind => migrations::apply(&mut connection, options.migrations, options.host.now().0)?,
        State::Empty | State::Unrecorded => {
            return Err(Error::corrupt(database.display().to_string(), "it has no schema"));
        }
    }
    pragmas::set_journal(&connection, Journal::Rollback)?;
    let transaction = connection.unchecked_transaction().map_err(sqlite::engine_error)?;
    let tx = &mut SqliteTx { connection: &transaction };
    tx.execute(FENCE_HOLDERS, &[])?;
    let ended = tx.execute(END_CLAIMS, &[])?;
    transaction.commit().map_err(sqlite::engine_error)?;
    connection.close().map_err(|(_, error)| sqlite::engine_error(error))?;
    Ok(u64::try_from(ended).unwrap_or(u64::MAX))
}

/// Gives a verified copy the journal that a store in this folder has: many programs that open it at once could not do that.
pub(crate) fn set_journal(database: &Path, folder: &Path) -> Result<()> {
    let connection = alone(database)?;
    pragmas::set_journal(&connection, sqlite::wanted_journal(folder))?;
    connection.close().map_err(|(_, error)| sqlite::engine_error(error))?;
    match half_of(database) {
        Some(half) => Err(Error::Backend { detail: format!("{} was left by closing it", half.display()) }),
        None => copy::sync(database),
    }
}

/// A connection that needs no index of a log beside the file.
pub(crate) fn alone(database: &Path) -> Result<rusqlite::Connection> {
    let connection = sqlite::connect_to(database)?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(sqlite::engine_error)?;
    Ok(connection)
}

/// Opens a store for reading and verifies all of its threads; says how many threads and items it holds.
fn verify(options: StoreOptions) -> Result<(u64, u64)> {
    block_on(async {
        let store = Store::open(options.read_only()).await?;
        let report = store.verify_all(|_| {}).await?;
        if let Some(problem) = report.seals.first() {
            return Err(Error::corrupt("table seals", problem.clone()));
        }
        match report.invalid.iter().find_map(|(thread, found)| Some((thread, found.first()?))) {
            None => Ok((report.threads, report.items)),
            Some((thread, found)) => {
                let depth = found.depth.map(|depth| format!("@{depth}")).unwrap_or_default();
                Err(Error::corrupt(format!("thread {thread}{depth}"), found.reason.clone()))
            }
        }
    })
}

/// The proof that nobody uses a store, and that nobody begins to while this lives.
#[derive(Debug)]
pub(crate) struct Unused {
    _opening: File,
    /// `None` where no store was yet: nobody can begin to write without the opening lock.
    _gate: Option<File>,
}

/// How it is found out whether anybody has the database open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// By the engine, which brings its log into it on the way.
    ByTheEngine,
    /// By the system's locks: no byte of the files changes.
    FromOutside,
}

impl Unused {
    pub(crate) fn make_sure(folder: &Path, options: &StoreOptions, look: Look) -> Result<Self> {
        let opening = sqlite::lock_opening(folder, options.busy_bound)?;
        let database = folder.join(DATABASE);
        let path = folder.join("write.gate");
        // Where it stands a store has been: a restore that is cut off must leave no such trace.
        let gate = match is_there(&database) || is_there(&path) {
            true => Some(sqlite::open_private(&path)?),
            false => None,
        };
        if let Some(gate) = &gate
            && is_locked(gate, &path)?
        {
            return Err(Error::Busy { detail: "a program is writing to it".to_owned() });
        }
        let location = Location {
            folder: Some(folder.to_owned()),
            read_only: true,
            busy_bound: options.busy_bound,
            migrations: options.migrations,
            now: options.host.now().0,
            anew: false,
        };
        if let Some(holder) = living_holder(folder)? {
            return Err(Error::Busy { detail: format!("it is being written by {}", words_for(&location, &holder)) });
        }
        match look {
            Look::ByTheEngine => Self::ask_the_engine(folder, &database)?,
            Look::FromOutside if copy::is_open_anywhere(&database)? => return Err(in_use()),
            Look::FromOutside => {}
        }
        Ok(Self { _opening: opening, _gate: gate })
    }

    fn ask_the_engine(folder: &Path, database: &Path) -> Result<()> {
        match sqlite::inspect_store(folder, database, false) {
            Ok(Header::Ours) => match copy::is_in_use(database) {
                Ok(true) => return Err(in_use()),
                Ok(false) => {}
                // A backup is what helps a store that can't be opened.
                Err(error) => tracing::warn!(%error, "the store to replace can't be opened"),
            },
            Ok(Header::Empty) => {}
            Err(foreign @ Error::ForeignStore { .. }) => return Err(foreign),
            Err(error) => tracing::warn!(%error, "the store to replace is damaged"),
        }
        Ok(())
    }
}

fn in_use() -> Error {
    Error::Busy { detail: "another program or handle has it open".to_owned() }
}

/// The id of a holder that is alive.
fn living_holder(folder: &Path) -> Result<Option<String>> {
    let holders = folder.join("holders");
    let entries = match std::fs::read_dir(&holders) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("read", &holders, &error)),
    };
    for entry in entries {
        let path = entry.map_err(|error| Error::io("read", &holders, &error))?.path();
        match File::open(&path) {
            Ok(file) if is_locked(&file, &path)? => {
                return Ok(path.file_name().map(|name| name.to_string_lossy().into_owned()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("open", &path, &error)),
        }
    }
    Ok(None)
}

/// Takes the lock, or says that somebody has it. Where locks do not exist the engine's own decide alone.
fn is_locked(file: &File, path: &Path) -> Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => Ok(false),
        Err(TryLockError::Error(error)) => Err(Error::io("lock", path, &error)),
    }
}

/// Names a holder as well as the store can; it may be too damaged to say anything.
fn words_for(location: &Location, holder: &str) -> String {
    let read = || {
        let connection = sqlite::connect_again(location, true)?;
        query_one(&mut SqliteTx { connection: &connection }, HOLDER, &[holder.into()], |row| {
            Ok(format!("{} (process {} on {})", row.text(0)?, row.int(1)?, row.text(2)?))
        })
    };
    read().ok().flatten().unwrap_or_else(|| format!("holder {holder}"))
}

/// Puts a complete database in the store's place, and says where the store that was there is kept.
///
/// Whenever this is cut short there is a complete database in the place, so that nobody makes an empty store there.
fn put_in_place(database: &Path, folder: &Path, host: &dyn Host) -> Result<Option<PathBuf>> {
    let file = folder.join(DATABASE);
    if replace::files_of(folder).is_empty() {
        appear(database, &file)?;
        copy::sync(folder)?;
        return Ok(None);
    }
    let backups = folder.join("backups");
    sqlite::create_own_folder(&backups)?;
    let kept = backups.join(format!("replaced-{}-{}", host.now().0, std::process::id()));
    make_folder(&kept)?;
    match replace::put_in_place(database, folder, &kept) {
        Ok(()) => Ok(Some(kept)),
        Err(error) => {
            // Once it is decided, what was there has no other name.
            if !replace::is_unfinished(folder) {
                drop(std::fs::remove_dir_all(&kept));
            }
            Err(error)
        }
    }
}

/// Lets a complete file appear under its name; whatever bears that name already stays.
fn appear(from: &Path, to: &Path) -> Result<()> {
    // Renaming would replace what appeared there since it was looked; a second name does not.
    let named = std::fs::hard_link(from, to).or_else(|error| match error.kind() {
        ErrorKind::AlreadyExists => Err(error),
        // Some file systems know one name for a file only: there an empty file of our own is replaced.
        _ => new_file(to).and_then(|_placeholder| std::fs::rename(from, to)),
    });
    named.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => exists(to),
        _ => Error::io("name", to, &error),
    })
}

/// A folder beside the place where a file is to appear, for nobody else, and gone in the end.
#[derive(Debug)]
pub(crate) struct WorkFolder {
    pub(crate) folder: PathBuf,
}

impl WorkFolder {
    pub(crate) fn make(beside: &Path, host: &dyn Host) -> Result<Self> {
        let folder = beside.join(format!(".threadkeep-{}", mint_uuid(host, host.now())));
        make_folder(&folder)?;
        Ok(Self { folder })
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.folder.join(DATABASE)
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

fn exists(path: &Path) -> Error {
    Error::AlreadyExists { what: "file", id: path.display().to_string() }
}

pub(crate) fn size_of(path: &Path) -> Result<u64> {
    std::fs::metadata(path).map(|meta| meta.len()).map_err(|error| Error::io("look at", path, &error))
}

#[cfg(test)]
mod tests {
    use super::{Store, StoreOptions};
    use crate::db::migrations::{Migration, SQLITE};
    use crate::error::Error;
    use crate::{NewThread, ThreadId};

    #[test]
    fn a_backup_of_an_older_schema_is_brought_forward_and_stays_as_it_is() {
        pollster::block_on(async {
            let temp = tempfile::tempdir().unwrap();
            let (folder, backup) = (temp.path().join("store"), temp.path().join("backup.db"));
            let store = Store::open(StoreOptions::folder(&folder)).await.unwrap();
            let id = ThreadId::new("t").unwrap();
            let thread = NewThread { id: Some(id.clone()), ..NewThread::default() };
            store.workspace("/w".as_ref()).await.unwrap().create_now(thread).await.unwrap().shutdown().await.unwrap();
            store.backup(&backup).await.unwrap();
            let bytes = std::fs::read(&backup).unwrap();

            let number = i64::try_from(SQLITE.len()).unwrap() + 1;
            let more = Migration { number, name: "more", sql: "CREATE TABLE more (x INTEGER) STRICT" };
            let newer: &'static [Migration] = Vec::leak([SQLITE, &[more]].concat());
            let restored = temp.path().join("restored");
            let report =
                Store::restore_backup(StoreOptions::folder(&restored).migrations(newer), &backup).await.unwrap();
            assert_eq!(report.threads, 1);
            assert!(std::fs::read(&backup).unwrap() == bytes);
            let refused = Store::open(StoreOptions::folder(&restored)).await.unwrap_err();
            assert!(matches!(refused, Error::SchemaTooNew { .. }), "{refused:?}");
            let opened = Store::open(StoreOptions::folder(&restored).migrations(newer)).await.unwrap();
            assert!(opened.get(&id).await.is_ok());
        });
    }
}
