//! Sessions of agents that keep theirs in a database: the file is made in memory, and given as bytes.

use rusqlite::Connection;

/// The bytes of a new database that `fill` has filled.
///
/// # Errors
/// What `fill` fails with: the engine itself has nothing to wait for and nowhere to write.
pub(crate) fn image(fill: impl FnOnce(&Connection) -> rusqlite::Result<()>) -> rusqlite::Result<Vec<u8>> {
    let mut database = Connection::open_in_memory()?;
    database.execute_batch("BEGIN")?;
    fill(&database)?;
    database.execute_batch("COMMIT")?;
    let image = database.serialize("main")?.to_vec();
    Ok(image)
}
