//! The pages of a database read one by one, without the engine: what is left of a file that the engine reads no more.
//!
//! The engine ends at the first page that is damaged. Here every page stands for itself: it is known by its own first bytes, and
//! each row on it by the shape of its values, wherever in the file it stands. Pages come from the database and from its log, also
//! from behind a damaged place of the log. Nothing is judged here; what a row says has to prove itself elsewhere. The format is
//! SQLite's (`fileformat2.html`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::db::sqlite::{beside, open_to_look};
use crate::db::{Owned, wal};
use crate::error::{Error, Result};
use crate::item::MAX_CONTENT_BYTES;

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// The size of pages where the file itself says none: that of every store.
const PAGE: usize = 4_096;
/// The bytes of the file's header before the first page's own.
const FILE_HEADER: usize = 100;
/// More than a row holds beside its content.
const MAX_ROW: usize = MAX_CONTENT_BYTES + (16 << 20);

/// A row as it stands on a page.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    /// `None` on the pages of indexes, and of tables that are kept like one.
    pub(crate) rowid: Option<i64>,
    pub(crate) values: Vec<Owned>,
    /// Whether the page is the newest of its number that can be read.
    pub(crate) is_newest: bool,
}

/// What was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Pages of the database, and pages in its log.
    pub(crate) pages: u64,
    pub(crate) frames: u64,
    /// Rows that could not be read on pages that could.
    pub(crate) unread: u64,
}

/// Visits every row that stands on any page of a database and of the log beside it.
pub(crate) fn rows(database: &Path, visit: &mut dyn FnMut(Found) -> Result<()>) -> Result<Account> {
    let image = Image::open(database)?;
    let mut account = Account { pages: image.count, frames: image.frames, unread: 0 };
    for number in image.numbers() {
        let mut is_newest = true;
        for place in image.versions(number) {
            let Some(page) = image.read(place) else { continue };
            let Some(kind) = Kind::of(&page, number) else { continue };
            for cell in cells(&page, number, kind) {
                match image.row(&page, cell, kind) {
                    Some((rowid, values)) => visit(Found { rowid, values, is_newest })?,
                    None => account.unread += 1,
                }
            }
            is_newest = false;
        }
    }
    Ok(account)
}

/// What kind of a page may hold rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    TableLeaf,
    IndexLeaf,
    IndexInner,
}

impl Kind {
    fn of(page: &[u8], number: u32) -> Option<Self> {
        match page.get(header_at(number))? {
            0x0d => Some(Self::TableLeaf),
            0x0a => Some(Self::IndexLeaf),
            0x02 => Some(Self::IndexInner),
            _ => None,
        }
    }

    fn header_bytes(self) -> usize {
        if self == Self::IndexInner { 12 } else { 8 }
    }
}

fn header_at(number: u32) -> usize {
    if number == 1 { FILE_HEADER } else { 0 }
}

/// Where the rows of a page begin, as its own list says.
fn cells(page: &[u8], number: u32, kind: Kind) -> Vec<usize> {
    let header = header_at(number);
    let count = short(page, header + 3).unwrap_or(0);
    let list = header + kind.header_bytes();
    let places = (0..count).map_while(|cell| short(page, list + 2 * cell));
    places.filter(|place| *place >= list + 2 * count && *place < page.len()).collect()
}

/// A version of a page: in the database, or in the log.
#[derive(Debug, Clone, Copy)]
enum Place {
    Database(u64),
    Log(u64),
}

/// A database and its log as files.
struct Image {
    database: Option<File>,
    log: Option<File>,
    page: usize,
    usable: usize,
    count: u64,
    frames: u64,
    /// The places in the log of each page's versions, the oldest first.
    logged: BTreeMap<u32, Vec<u64>>,
}

impl Image {
    fn open(database: &Path) -> Result<Self> {
        let open = |path: &Path| match open_to_look(path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("open", path, &error)),
        };
        let log_path = beside(database, "-wal");
        let (file, log) = (open(database)?, open(&log_path)?);
        let mut header = Vec::new();
        if let Some(file) = &file {
            header = vec![0; FILE_HEADER];
            if file.read_exact_at(&mut header, 0).is_err() {
                header.clear();
            }
        }
        let told = header.starts_with(MAGIC).then(|| short(&header, 16)).flatten();
        let told = told.map(|size| if size == 1 { 65_536 } else { size }).filter(|size| is_page_size(*size));
        let logged = match &log {
            Some(log) => wal::read_all(log).map_err(|error| Error::io("read", &log_path, &error))?,
            None => wal::Frames::default(),
        };
        let page = told.or(logged.page.filter(|size| is_page_size(*size))).unwrap_or(PAGE);
        let reserved = if told.is_some() { usize::from(header.get(20).copied().unwrap_or(0)) } else { 0 };
        let usable = page.saturating_sub(if reserved <= 32 { reserved } else { 0 });
        let length = file.as_ref().map_or(Ok(0), |file| file.metadata().map(|meta| meta.len()));
        let length = length.map_err(|error| Error::io("look at", database, &error))?;
        let mut image = Self {
            database: file,
            log,
            page,
            usable,
            count: length / page as u64,
            frames: logged.places.len() as u64,
            logged: BTreeMap::new(),
        };
        for (number, place) in logged.places {
            image.logged.entry(number).or_default().push(place);
        }
        Ok(image)
    }

    fn numbers(&self) -> impl Iterator<Item = u32> {
        let count = u32::try_from(self.count).unwrap_or(u32::MAX);
        let beyond: Vec<u32> = self.logged.keys().copied().filter(|number| *number > count).collect();
        (1..=count).chain(beyond)
    }

    /// All that is known of a page, the newest first.
    fn versions(&self, number: u32) -> Vec<Place> {
        let logged = self.logged.get(&number).into_iter().flatten().rev().map(|place| Place::Log(*place));
        let before = u64::from(number).checked_sub(1);
        let own = before.filter(|before| *before < self.count).map(|before| Place::Database(before * self.page as u64));
        logged.chain(own).collect()
    }

    fn read(&self, place: Place) -> Option<Vec<u8>> {
        let mut bytes = vec![0; self.page];
        let (file, at) = match place {
            Place::Database(at) => (self.database.as_ref()?, at),
            Place::Log(at) => (self.log.as_ref()?, at),
        };
        file.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }

    /// Reads a row: its number where it has one, and its values.
    fn row(&self, page: &[u8], mut at: usize, kind: Kind) -> Option<(Option<i64>, Vec<Owned>)> {
        if kind == Kind::IndexInner {
            at += 4;
        }
        let size = usize::try_from(varint(page, &mut at)?).ok().filter(|size| *size <= MAX_ROW)?;
        let rowid = match kind {
            Kind::TableLeaf => Some(varint(page, &mut at)?),
            Kind::IndexLeaf | Kind::IndexInner => None,
        };
        let local = self.local(size, kind);
        let mut payload = page.get(at..at + local)?.to_vec();
        if local < size {
            self.follow(word(page, at + local)?, size, &mut payload)?;
        }
        Some((rowid, record(&payload)?))
    }

    /// How much of a row stands on its page.
    fn local(&self, size: usize, kind: Kind) -> usize {
        let most = match kind {
            Kind::TableLeaf => self.usable - 35,
            Kind::IndexLeaf | Kind::IndexInner => (self.usable - 12) * 64 / 255 - 23,
        };
        if size <= most {
            return size;
        }
        let least = (self.usable - 12) * 32 / 255 - 23;
        let part = least + (size - least) % (self.usable - 4);
        if part <= most { part } else { least }
    }

    /// Reads the rest of a row from the pages that it goes on to.
    fn follow(&self, mut next: u32, size: usize, payload: &mut Vec<u8>) -> Option<()> {
        while payload.len() < size {
            let place = *self.versions(next).first().filter(|_| next > 0)?;
            let page = self.read(place)?;
            next = word(&page, 0)?;
            let more = (size - payload.len()).min(self.usable - 4);
            payload.extend_from_slice(page.get(4..4 + more)?);
        }
        Some(())
    }
}

fn is_page_size(size: usize) -> bool {
    (512..=65_536).contains(&size) && size.is_power_of_two()
}

/// The values of a row.
fn record(payload: &[u8]) -> Option<Vec<Owned>> {
    let mut at = 0;
    let header = usize::try_from(varint(payload, &mut at)?).ok()?;
    let (mut body, mut values) = (header, Vec::new());
    while at < header {
        let kind = varint(payload, &mut at)?;
        values.push(value(payload, kind, &mut body)?);
    }
    (at == header && body == payload.len()).then_some(values)
}

fn value(payload: &[u8], kind: i64, body: &mut usize) -> Option<Owned> {
    let mut take = |length: usize| {
        let bytes = payload.get(*body..body.checked_add(length)?)?;
        *body += length;
        Some(bytes)
    };
    Some(match kind {
        0 => Owned::Null,
        8 => Owned::Int(0),
        9 => Owned::Int(1),
        1..=4 => signed(take(usize::try_from(kind).ok()?)?),
        5 => signed(take(6)?),
        6 => signed(take(8)?),
        kind if kind >= 12 => {
            let bytes = take(usize::try_from((kind - 12) / 2).ok()?)?;
            match kind % 2 {
                0 => Owned::Blob(bytes.to_vec()),
                // One damaged letter costs no row; what is chained has to prove itself.
                _ => Owned::Text(String::from_utf8_lossy(bytes).into_owned()),
            }
        }
        // No table of a store holds floating-point numbers, and two kinds are reserved.
        _ => return None,
    })
}

fn signed(bytes: &[u8]) -> Owned {
    let first = if bytes.first().is_some_and(|byte| byte & 0x80 != 0) { -1 } else { 0 };
    Owned::Int(bytes.iter().fold(first, |value, byte| value << 8 | i64::from(*byte)))
}

/// A number of one to nine bytes.
fn varint(bytes: &[u8], at: &mut usize) -> Option<i64> {
    let mut value: u64 = 0;
    for index in 0..9 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if index == 8 {
            value = value << 8 | u64::from(byte);
            break;
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some(value.cast_signed())
}

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(usize::from(u16::from_be_bytes(bytes)))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::{Found, rows};
    use crate::db::Owned;

    const ROWS: i64 = 300;

    /// Rows of all sizes and kinds, also of a table that is kept like an index.
    fn make(connection: &Connection) {
        let tables = "CREATE TABLE t (k INTEGER PRIMARY KEY, n INTEGER, s TEXT, b BLOB) STRICT;
            CREATE TABLE w (a TEXT, b INTEGER, c BLOB, PRIMARY KEY (a, b)) STRICT, WITHOUT ROWID;";
        connection.execute_batch(tables).unwrap();
        for number in 0..ROWS {
            let length = usize::try_from(number * number % 20_011).unwrap();
            let values = rusqlite::params![
                number,
                number * number * number * -77_777,
                "x".repeat(length % 300),
                vec![7_u8; length]
            ];
            connection.execute("INSERT INTO t VALUES (?1, ?2, ?3, ?4)", values).unwrap();
            connection
                .execute("INSERT INTO w VALUES (?3, ?1, ?4)", rusqlite::params![number, 0, "y", vec![9_u8; length]])
                .unwrap();
        }
    }

    fn found(path: &std::path::Path) -> Vec<Found> {
        let mut found = Vec::new();
        rows(path, &mut |row| {
            found.push(row);
            Ok(())
        })
        .unwrap();
        found
    }

    /// How many of the rows of both tables are there, each as it was written.
    fn count(found: &[Found]) -> (usize, usize) {
        let (mut tables, mut likes) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
        for row in found {
            match row.values.as_slice() {
                [Owned::Null, Owned::Int(number), Owned::Text(text), Owned::Blob(bytes)] => {
                    let key = row.rowid.unwrap();
                    let length = usize::try_from(key * key % 20_011).unwrap();
                    assert_eq!((*number, text.len(), bytes.len()), (key * key * key * -77_777, length % 300, length));
                    tables.insert(key);
                }
                [Owned::Text(_), Owned::Int(number), Owned::Blob(bytes)] => {
                    assert_eq!(bytes.len(), usize::try_from(number * number % 20_011).unwrap());
                    likes.insert(*number);
                }
                _ => {}
            }
        }
        (tables.len(), likes.len())
    }

    #[test]
    fn every_row_is_found_in_the_file_and_in_the_log() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("x.db");
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0").unwrap();
        make(&connection);
        let all = usize::try_from(ROWS).unwrap();
        assert_eq!(count(&found(&path)), (all, all), "in the log");
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        assert_eq!(count(&found(&path)), (all, all), "in the database");
    }

    #[test]
    fn a_damaged_page_costs_its_own_rows_alone() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("x.db");
        make(&Connection::open(&path).unwrap());
        let whole = std::fs::read(&path).unwrap();
        let all = usize::try_from(ROWS).unwrap();
        for page in (0..whole.len() / 4_096).step_by(7) {
            let mut bytes = whole.clone();
            bytes[page * 4_096..(page + 1) * 4_096].fill(0);
            std::fs::write(&path, bytes).unwrap();
            let (tables, likes) = count(&found(&path));
            assert!(tables + likes + 60 > 2 * all, "page {page} cost {} rows", 2 * all - tables - likes);
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("x.db");
        make(&Connection::open(&path).unwrap());
        let whole = std::fs::read(&path).unwrap();
        let mut state: u64 = 7;
        for _ in 0..60 {
            let mut bytes = whole.clone();
            for _ in 0..2_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let place = usize::try_from(state >> 20).unwrap() % bytes.len();
                bytes[place] ^= u8::try_from(state >> 56).unwrap();
            }
            std::fs::write(&path, &bytes).unwrap();
            found_any(&path);
        }
    }

    fn found_any(path: &std::path::Path) -> usize {
        let mut count = 0;
        rows(path, &mut |_| {
            count += 1;
            Ok(())
        })
        .unwrap();
        count
    }
}
