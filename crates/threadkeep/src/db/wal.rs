//! The write-ahead log as a file: whether what its index promises is really in it.
//!
//! When a sync fails, a system may forget what was written since the last good one, while the index that processes share still
//! counts it. Read or copied into the database, what stands in its place would be damage. The format is SQLite's
//! (`fileformat2.html`, section 4).

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::os::fd::IntoRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::db::sqlite::{open_private, open_to_look};
use crate::error::{Error, Result};

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
const USUAL_PAGE: usize = 4_096;
const MAGIC: u32 = 0x377f_0682;
/// Both copies of the header of the index.
const INDEX_HEADER: usize = 96;

/// Where pages stand in a log.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// The size of pages, as the log's header says.
    pub(crate) page: Option<usize>,
    /// The number of each page, and where its bytes begin, in the order in which they were written.
    pub(crate) places: Vec<(u32, u64)>,
}

/// All pages of the log that were committed in its present round, also those behind a damaged place, which the engine reads no more.
pub(crate) fn read_all(log: &File) -> std::io::Result<Frames> {
    let mut header = [0; HEADER];
    if read_at(log, &mut header, 0)?.is_none() {
        return Ok(Frames::default());
    }
    let told = usize::try_from(word(&header, 8, true)).unwrap_or(0);
    let is_known = word(&header, 0, true) & !1 == MAGIC;
    let page = if is_known && (512..=65_536).contains(&told) && told.is_power_of_two() { told } else { USUAL_PAGE };
    let mut salts = header.get(16..24).filter(|_| is_known).map(<[u8]>::to_vec);
    let (mut frames, mut committed) = (Frames { page: Some(page), places: Vec::new() }, 0);
    let mut frame = [0; FRAME_HEADER];
    let mut at = HEADER as u64;
    while read_at(log, &mut frame, at)?.is_some() {
        let (number, size) = (word(&frame, 0, true), word(&frame, 4, true));
        // Where the header is damaged the first frame tells of which round the log is.
        let own = salts.get_or_insert_with(|| frame.get(8..16).unwrap_or_default().to_vec());
        if frame.get(8..16) == Some(own) && number > 0 {
            frames.places.push((number, at + FRAME_HEADER as u64));
            if size > 0 {
                committed = frames.places.len();
            }
        }
        at += (FRAME_HEADER + page) as u64;
    }
    frames.places.truncate(committed);
    Ok(frames)
}

fn read_at(file: &File, bytes: &mut [u8], at: u64) -> std::io::Result<Option<()>> {
    match file.read_exact_at(bytes, at) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        read => read.map(Some),
    }
}

/// How many frames the log really holds: those that belong to it, one after the other, by their checksums.
pub(crate) fn frames(path: &Path) -> Result<u64> {
    let file = match open_to_look(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        file => file.map_err(|error| Error::io("open", path, &error))?,
    };
    count(file).map_err(|error| Error::io("read", path, &error))
}

/// Makes every process build the index anew from the log, as after a crash. The caller has the right to write.
pub(crate) fn forget_index(path: &Path) -> Result<()> {
    let index = open_private(path)?;
    let forgotten = index.write_all_at(&[0; INDEX_HEADER], 0);
    // It stays open for as long as the process lives: closing it would drop the locks that SQLite has on the index.
    let _kept = index.into_raw_fd();
    forgotten.map_err(|error| Error::io("reset", path, &error))
}

fn count(file: File) -> std::io::Result<u64> {
    let mut input = BufReader::with_capacity(1 << 20, file);
    let mut header = [0; HEADER];
    if !fill(&mut input, &mut header)? {
        return Ok(0);
    }
    let big = word(&header, 0, true) & 1 == 1;
    let page = usize::try_from(word(&header, 8, true)).unwrap_or(0);
    let mut sum = checksum((0, 0), header.get(..24).unwrap_or_default(), big);
    if word(&header, 0, true) & !1 != MAGIC || page == 0 || sum != (word(&header, 24, true), word(&header, 28, true)) {
        return Ok(0);
    }
    let mut frame = vec![0; FRAME_HEADER + page];
    let mut found = 0;
    while fill(&mut input, &mut frame)? {
        sum = checksum(sum, frame.get(..8).unwrap_or_default(), big);
        sum = checksum(sum, frame.get(FRAME_HEADER..).unwrap_or_default(), big);
        let is_next = frame.get(8..16) == header.get(16..24);
        if !is_next || sum != (word(&frame, 16, true), word(&frame, 20, true)) {
            break;
        }
        found += 1;
    }
    Ok(found)
}

/// Reads so many bytes; says whether there were as many.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<bool> {
    match input.read_exact(buffer) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

fn checksum(from: (u32, u32), bytes: &[u8], big: bool) -> (u32, u32) {
    let (mut first, mut second) = from;
    for pair in bytes.chunks_exact(8) {
        first = first.wrapping_add(word(pair, 0, big)).wrapping_add(second);
        second = second.wrapping_add(word(pair, 4, big)).wrapping_add(first);
    }
    (first, second)
}

fn word(bytes: &[u8], at: usize, big: bool) -> u32 {
    let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
    if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use rusqlite::Connection;

    use super::{forget_index, frames};

    fn promised(connection: &Connection) -> u64 {
        let read = |row: &rusqlite::Row<'_>| row.get::<_, i64>(1);
        u64::try_from(connection.query_row("PRAGMA wal_checkpoint(NOOP)", [], read).unwrap()).unwrap()
    }

    /// What the log held is forgotten behind the back of two connections: each sees the last state that is whole.
    #[test]
    fn an_index_that_promises_too_much_is_built_anew_for_everybody() {
        let temp = tempfile::tempdir().unwrap();
        let (database, log) = (temp.path().join("x.db"), temp.path().join("x.db-wal"));
        let open = || Connection::open(&database).unwrap();
        let (writer, reader) = (open(), open());
        writer.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
        let rows = |connection: &Connection| {
            connection.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)).unwrap()
        };
        let whole = promised(&writer);
        assert_eq!((frames(&log).unwrap(), rows(&reader)), (whole, 1));
        writer.execute_batch("INSERT INTO t VALUES (2); INSERT INTO t VALUES (3)").unwrap();
        assert_eq!(frames(&log).unwrap(), promised(&writer));

        let file = std::fs::File::options().write(true).open(&log).unwrap();
        let length = file.metadata().unwrap().len();
        let frame = (length - 32) / promised(&writer);
        let kept = 32 + whole * frame;
        file.write_all_at(&vec![0; usize::try_from(length - kept).unwrap()], kept).unwrap();
        assert_eq!(frames(&log).unwrap(), whole);
        assert!(promised(&writer) > whole);

        forget_index(&temp.path().join("x.db-shm")).unwrap();
        assert_eq!((rows(&reader), rows(&writer), promised(&reader)), (1, 1, whole));
        writer.execute_batch("INSERT INTO t VALUES (4)").unwrap();
        assert_eq!((rows(&reader), frames(&log).unwrap()), (2, promised(&writer)));
        let check: String = reader.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
    }
}
