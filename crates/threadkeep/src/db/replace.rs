//! Putting a complete database in a store's place, so that whenever it is cut short there is the old store or the new one.
//!
//! A database is several files, and no system exchanges them at once. So the new one first gets a name of its own beside the old
//! one, complete and synced: from that moment on it is the store. Whoever opens the store next ends what was begun: the old files
//! lose their names, and the new one gets the database's. The old files have other names by then, in the folder they are kept in.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::db::copy;
use crate::db::sqlite::{self, DATABASE};
use crate::error::{Error, Result};

/// What stands beside a database and belongs to it.
pub(crate) const COMPANIONS: [&str; 3] = ["-wal", "-journal", "-shm"];
/// The name of a database that is the store already and has not come into its place yet.
pub(crate) const NEXT: &str = "threadkeep.next";

/// The folders in which repairs keep what they replaced begin with this.
pub(crate) const KEPT: &str = "kept-";

/// The files that are in the place of a store's database.
pub(crate) fn files_of(folder: &Path) -> Vec<PathBuf> {
    let file = folder.join(DATABASE);
    let names = [""].iter().chain(&COMPANIONS).map(|suffix| sqlite::beside(&file, suffix));
    names.filter(|path| is_there(path)).collect()
}

/// Puts a complete and synced database in the store's place. What was there is kept in `kept`, a folder that is there already.
/// The caller holds the opening lock, and knows that nobody has the store open.
pub(crate) fn put_in_place(database: &Path, folder: &Path, kept: &Path) -> Result<()> {
    keep(&files_of(folder), kept)?;
    let next = folder.join(NEXT);
    std::fs::rename(database, &next).map_err(|error| Error::io("rename", database, &error))?;
    copy::sync(folder)?;
    finish(folder)
}

/// Ends what was cut off after the new store was decided on. Does nothing, and looks at one name, where nothing was.
pub(crate) fn complete(folder: &Path, bound: Duration) -> Result<()> {
    if !is_there(&folder.join(NEXT)) {
        return Ok(());
    }
    let _lock = sqlite::lock_opening(folder, bound)?;
    // Another process may have ended it meanwhile.
    if is_there(&folder.join(NEXT)) { finish(folder) } else { Ok(()) }
}

/// Whether a replacement was cut off that the next opening ends.
pub(crate) fn is_unfinished(folder: &Path) -> bool {
    is_there(&folder.join(NEXT))
}

fn finish(folder: &Path) -> Result<()> {
    let (file, next) = (folder.join(DATABASE), folder.join(NEXT));
    for suffix in COMPANIONS {
        remove(&sqlite::beside(&file, suffix))?;
    }
    // A log that a power cut brought back would be taken for that of the new database.
    copy::sync(folder)?;
    std::fs::rename(&next, &file).map_err(|error| Error::io("rename", &next, &error))?;
    copy::sync(folder)
}

/// Gives files a second name in a folder, and makes that survive a power cut.
fn keep(files: &[PathBuf], kept: &Path) -> Result<()> {
    for file in files {
        let Some(name) = file.file_name() else { continue };
        let place = kept.join(name);
        match std::fs::hard_link(file, &place) {
            Ok(()) => {}
            // Some file systems know one name for a file only.
            Err(_) => copy_file(file, &place)?,
        }
    }
    copy::sync(kept)?;
    kept.parent().map_or(Ok(()), copy::sync)
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("remove", path, &error)),
        _ => Ok(()),
    }
}

/// Copies the bytes of a file that nobody writes into a new one.
pub(crate) fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let nofollow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let source = OpenOptions::new().read(true).custom_flags(nofollow).open(from);
    let mut source = source.map_err(|error| Error::io("open", from, &error))?;
    let mut copy = new_file(to).map_err(|error| Error::io("create", to, &error))?;
    std::io::copy(&mut source, &mut copy).map_err(|error| Error::io("copy", from, &error))?;
    copy.sync_all().map_err(|error| Error::io("sync", to, &error))
}

/// Makes a file that only its owner can read, where there is none.
pub(crate) fn new_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Makes a folder that only its owner can enter, where there is none.
pub(crate) fn make_folder(folder: &Path) -> Result<()> {
    DirBuilder::new().mode(0o700).create(folder).map_err(|error| Error::io("create the folder", folder, &error))
}

/// Whether anything has this name.
pub(crate) fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{NEXT, complete, files_of};
    use crate::db::sqlite::{DATABASE, beside};

    #[test]
    fn what_was_decided_is_ended_by_the_next_who_comes() {
        let temp = tempfile::tempdir().unwrap();
        let (folder, file) = (temp.path(), temp.path().join(DATABASE));
        // As it is after each of the steps that follow the decision.
        for left in [&["", "-wal", "-shm"][..], &["", "-wal"], &[""], &[]] {
            for suffix in left {
                std::fs::write(beside(&file, suffix), "old").unwrap();
            }
            std::fs::write(folder.join(NEXT), "new").unwrap();
            complete(folder, Duration::ZERO).unwrap();
            assert_eq!(files_of(folder), std::slice::from_ref(&file));
            assert_eq!(std::fs::read(&file).unwrap(), b"new");
            complete(folder, Duration::ZERO).unwrap();
            std::fs::remove_file(&file).unwrap();
        }
    }
}
