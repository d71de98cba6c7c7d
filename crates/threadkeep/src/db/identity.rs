//! What tells a file from every other one, and which databases this process has open.
//!
//! The system drops all locks that a process has on a file as soon as the process closes any descriptor of it. Whoever reads a
//! database that is open here, beside the engine, takes the engine's locks away, and other processes then remove the log that
//! this one writes. So such a file is opened by the engine alone, which knows this.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};

/// The device and the number of a file.
pub(crate) type Identity = (u64, u64);

/// How many handles of this process have a database open.
static OPEN: Mutex<BTreeMap<Identity, usize>> = Mutex::new(BTreeMap::new());

/// The identity of the file that a name leads to.
pub(crate) fn of(path: &Path) -> Result<Identity> {
    without_times(path).map_or_else(|| with_times(path), Ok)
}

fn with_times(path: &Path) -> Result<Identity> {
    let meta = std::fs::symlink_metadata(path).map_err(|error| Error::io("look at", path, &error))?;
    Ok((meta.dev(), meta.ino()))
}

/// Asks for nothing but the number: Linux gives a file whose times were looked at a new time with the next write, however soon
/// that comes, and a sync then has to write the times as well, which costs as much as the rest of it.
#[cfg(target_os = "linux")]
fn without_times(path: &Path) -> Option<Identity> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO).ok()?;
    Some((makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino))
}

#[cfg(not(target_os = "linux"))]
fn without_times(_: &Path) -> Option<Identity> {
    None
}

/// Says for as long as it lives that this process has a database open.
#[derive(Debug)]
pub(crate) struct OpenHere(Identity);

impl OpenHere {
    /// Says so; before the engine opens it.
    pub(crate) fn register(database: &Path) -> Result<Self> {
        let mut open = lock();
        let identity = of(database)?;
        *open.entry(identity).or_default() += 1;
        Ok(Self(identity))
    }
}

impl Drop for OpenHere {
    fn drop(&mut self) {
        let mut open = lock();
        if let Some(count) = open.get_mut(&self.0) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.0);
            }
        }
    }
}

/// Does something that opens and closes the file; `None` when this process has it open, and so nothing is done.
pub(crate) fn unless_open_here<T>(database: &Path, with_the_file: impl FnOnce() -> T) -> Option<T> {
    let open = lock();
    let is_open = of(database).is_ok_and(|identity| open.contains_key(&identity));
    (!is_open).then(with_the_file)
}

fn lock() -> MutexGuard<'static, BTreeMap<Identity, usize>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{of, with_times};

    #[test]
    fn a_file_has_one_identity_however_it_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "").unwrap();
        assert_eq!(of(&path).unwrap(), with_times(&path).unwrap());
        std::os::unix::fs::symlink(&path, folder.path().join("link")).unwrap();
        assert_ne!(of(&folder.path().join("link")).unwrap(), of(&path).unwrap(), "a link is not what it leads to");
        assert!(of(&folder.path().join("nothing")).is_err());
    }
}
