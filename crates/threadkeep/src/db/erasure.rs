//! Removing every trace of what was overwritten or deleted.
//!
//! The engine zeroes what it frees (`secure_delete`), but when it moves rows from one page to another the gap of the old page keeps
//! what stood there, and the log keeps former pages. So the rows that are stored are copied into a new database, which has nothing
//! else, and its pages are put in the place of all former ones in one transaction; then the log is emptied. `VACUUM` does the
//! same, but keeps its copy in memory (our connections keep nothing in temporary folders of the system).

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use crate::db::sqlite::{at, connect_to, create_file, engine_error, real_file};
use crate::db::{Erased, copy};
use crate::error::{Error, Result};

/// What a copy is called while it is made, with a random end.
const COPY: &str = "erasing-";

/// Writes everything anew. The caller has the right to write, and keeps it for as long as this takes.
pub(crate) fn erase(connection: &mut Connection, folder: Option<&Path>) -> Result<Erased> {
    let Some(folder) = folder else {
        connection.execute_batch("VACUUM").map_err(engine_error)?;
        return Ok(Erased { is_over: true, ..Erased::default() });
    };
    clear_away(folder)?;
    let copy = NewCopy::in_folder(connection, folder)?;
    put_in_place(connection, &copy.0)?;
    drop(copy);
    empty_log(connection, folder)
}

/// Removes what an erasure that was cut off has left. Nobody else erases, since the caller has the right to write.
fn clear_away(folder: &Path) -> Result<()> {
    let failed = |error: std::io::Error| Error::io("read", folder, &error);
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(COPY)) {
            std::fs::remove_file(&path).map_err(|error| Error::io("remove", &path, &error))?;
        }
    }
    Ok(())
}

/// A copy that is gone when this is dropped.
struct NewCopy(PathBuf);

impl NewCopy {
    /// Copies the rows that are stored, and nothing else.
    fn in_folder(connection: &Connection, folder: &Path) -> Result<Self> {
        let name = connection.query_row("SELECT lower(hex(randomblob(16)))", [], |row| row.get::<_, String>(0));
        let path = folder.join(format!("{COPY}{}.db", name.map_err(engine_error)?));
        // Before the engine would, which lets others read it.
        create_file(&path)?;
        let copy = Self(real_file(&path)?);
        let text =
            copy.0.to_str().ok_or_else(|| Error::invalid("folder", "its name is no UTF-8, which erasing needs"))?;
        connection.execute("VACUUM INTO ?1", [text]).map_err(|error| at(&copy.0, error))?;
        Ok(copy)
    }
}

impl Drop for NewCopy {
    fn drop(&mut self) {
        // What can't be removed now is by the next one.
        drop(std::fs::remove_file(&self.0));
    }
}

fn put_in_place(connection: &mut Connection, copy: &Path) -> Result<()> {
    let from = connect_to(copy)?;
    copy::check(&from, copy)?;
    let steps = Backup::new(&from, connection).map_err(engine_error)?;
    match steps.step(-1).map_err(engine_error)? {
        StepResult::Done => Ok(()),
        _ => Err(Error::Busy { detail: "another program uses the database; erase again when it has ended".to_owned() }),
    }
}

/// Brings the log into the database and cuts it to nothing, which has to wait for everybody who reads an old state.
fn empty_log(connection: &Connection, folder: &Path) -> Result<Erased> {
    let read = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
    let busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], read).map_err(engine_error)?;
    if busy == 0 {
        return Ok(Erased { is_over: true, ..Erased::default() });
    }
    let log = folder.join("threadkeep.db-wal");
    let why = format!("{}: somebody reads an old state of the store; it goes when that has ended", log.display());
    Ok(Erased { remains: vec![why], is_over: false })
}
