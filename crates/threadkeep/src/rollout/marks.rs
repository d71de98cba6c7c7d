//! How far a folder of rollouts is known to be in step with its store, in the folder itself.
//!
//! Every program that writes the store and its rollouts leaves a mark while it does: how far the store was when it came. A mark
//! whose program is gone says that from there on rollouts may lag. One file says up to where they do not; it never goes past a
//! mark.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files::Folder;
use crate::db::{Tx, copy, query_one, sqlite, statements};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::log::append::mint_uuid;
use crate::records;

/// The folder of the marks.
const MARKS: &str = ".writers";
/// The file that says how far the rollouts are in step.
const IN_STEP: &str = ".in-step";
const MOST_BYTES: u64 = 4 << 10;
/// A transaction that runs beside others may be committed at a place that is lower by as much.
const SLACK: i64 = 64;

statements! {
    HIGHEST_PLACE = "SELECT updated FROM threads ORDER BY updated DESC LIMIT 1";
}

/// A moment of a store. What changed after it stands at the same place in the order by update or behind it, or is a purge or a
/// redaction on record with a greater number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moment {
    pub(crate) updated: i64,
    pub(crate) records: i64,
}

impl Moment {
    /// Before everything.
    pub(crate) const FIRST: Self = Self { updated: i64::MIN, records: 0 };

    pub(crate) fn now(tx: &mut dyn Tx) -> Result<Self> {
        let updated = query_one(tx, HIGHEST_PLACE, &[], |row| row.int(0))?.unwrap_or(0);
        // An engine with a clock of its own runs transactions beside one another.
        let slack = if tx.clock()?.is_some() { SLACK } else { 0 };
        let updated = updated.saturating_sub(slack);
        Ok(Self { updated, records: records::last(tx)?.0 })
    }

    pub(crate) fn earlier(self, other: Self) -> Self {
        Self { updated: self.updated.min(other.updated), records: self.records.min(other.records) }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Noted {
    store: uuid::Uuid,
    #[serde(flatten)]
    moment: Moment,
}

/// This program's mark; it stays when it is dropped, and says then that its program is gone.
#[derive(Debug)]
pub(crate) struct Mark {
    path: PathBuf,
    _lock: File,
}

impl Mark {
    /// Leaves a mark that is there after a power cut.
    pub(crate) fn leave(root: &Path, host: &dyn Host, store: uuid::Uuid, moment: Moment) -> Result<Self> {
        sqlite::create_own_folder(root)?;
        let folder = root.join(MARKS);
        sqlite::create_own_folder(&folder)?;
        let name = mint_uuid(host, host.now()).to_string();
        let (fresh, path) = (folder.join(format!(".{name}")), folder.join(name));
        let mut file = create(&fresh)?;
        match file.try_lock() {
            Ok(()) => {}
            // Where locks do not exist every mark looks like one of a program that is gone, and its threads are looked at.
            Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(Error::io("lock", &fresh, &error)),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Busy { detail: format!("{} is locked", fresh.display()) });
            }
        }
        let put = write(&mut file, &fresh, store, moment)
            .and_then(|()| std::fs::rename(&fresh, &path).map_err(|error| Error::io("rename", &fresh, &error)));
        put.inspect_err(|_| drop(std::fs::remove_file(&fresh)))?;
        copy::sync(&folder)?;
        copy::sync(root)?;
        Ok(Self { path, _lock: file })
    }

    /// Takes the mark away: all that this program wrote is in the rollouts.
    pub(crate) fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.path).map_err(|error| Error::io("remove", &self.path, &error))
    }
}

/// The marks of others.
#[derive(Debug, Default)]
pub(crate) struct Others(Vec<Seen>);

#[derive(Debug)]
struct Seen {
    path: PathBuf,
    /// `None` for one that was on its way to its name.
    moment: Option<Moment>,
    is_gone: bool,
}

impl Others {
    /// Looks at all marks but the own one.
    pub(crate) fn look(root: &Path, own: Option<&Mark>) -> Result<Self> {
        let folder = root.join(MARKS);
        let entries = match std::fs::read_dir(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            entries => entries.map_err(|error| Error::io("read", &folder, &error))?,
        };
        let mut found = Self::default();
        for entry in entries {
            let path = entry.map_err(|error| Error::io("read", &folder, &error))?.path();
            if own.is_some_and(|own| own.path == path) {
                continue;
            }
            let Ok(mut file) = sqlite::open_to_look(&path) else { continue };
            let is_gone = !matches!(file.try_lock(), Err(TryLockError::WouldBlock));
            let is_whole = !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            // One that can't be read may be as old as the store.
            let moment = is_whole.then(|| read(&mut file).map_or(Moment::FIRST, |noted| noted.moment));
            found.0.push(Seen { path, moment, is_gone });
        }
        Ok(found)
    }

    /// The earliest moment among them.
    pub(crate) fn earliest(&self) -> Option<Moment> {
        self.0.iter().filter_map(|seen| seen.moment).reduce(Moment::earlier)
    }

    /// How many programs are gone that left a mark.
    pub(crate) fn count_gone(&self) -> usize {
        self.0.iter().filter(|seen| seen.is_gone && seen.moment.is_some()).count()
    }

    /// Leaves out those whose programs were gone when these were looked at.
    pub(crate) fn without_gone(mut self, earlier: &Self) -> Self {
        self.0.retain(|seen| !earlier.0.iter().any(|gone| gone.is_gone && gone.path == seen.path));
        self
    }

    /// Takes away the marks of those that are gone: what they wrote is in the rollouts by now.
    pub(crate) fn clear_gone(&self) -> Result<()> {
        for Seen { path, .. } in self.0.iter().filter(|seen| seen.is_gone) {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", path, &error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Up to which moment the rollouts of a store are in step; nothing when that is not known.
pub(crate) fn in_step(root: &Path, store: uuid::Uuid) -> Option<Moment> {
    let noted = read(&mut sqlite::open_to_look(&root.join(IN_STEP)).ok()?)?;
    (noted.store == store).then_some(noted.moment)
}

/// Says that the rollouts are in step up to a moment, or to the earliest mark of others.
pub(crate) fn note_in_step(
    folder: &Folder,
    host: &dyn Host,
    store: uuid::Uuid,
    moment: Moment,
    others: &Others,
) -> Result<()> {
    let moment = others.earliest().map_or(moment, |earliest| earliest.earlier(moment));
    if in_step(&folder.root, store) == Some(moment) {
        return Ok(());
    }
    let fresh = folder.root.join(MARKS).join(format!(".{}", mint_uuid(host, host.now())));
    sqlite::create_own_folder(&folder.root.join(MARKS))?;
    let mut file = create(&fresh)?;
    let path = folder.root.join(IN_STEP);
    let put = write(&mut file, &fresh, store, moment)
        .and_then(|()| std::fs::rename(&fresh, &path).map_err(|error| Error::io("rename", &fresh, &error)));
    put.inspect_err(|_| drop(std::fs::remove_file(&fresh)))?;
    copy::sync(&folder.root)
}

fn create(path: &Path) -> Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
    file.map_err(|error| Error::io("create", path, &error))
}

fn write(file: &mut File, path: &Path, store: uuid::Uuid, moment: Moment) -> Result<()> {
    let bytes = serde_json::to_vec(&Noted { store, moment }).unwrap_or_default();
    file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(|error| Error::io("write", path, &error))
}

fn read(file: &mut File) -> Option<Noted> {
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}
