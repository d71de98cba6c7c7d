//! The databases of agents: looked at in a copy, so that nothing is ever written where an agent works.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, DirBuilder};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, ToSql};
use serde_json::Value;

use super::asides::{Asides, Lists};
use super::files;
use super::packed::Packed;
use super::source::Failure;
use super::whole::{Made, Take, mark_of};
use crate::codec::{Codec, Layout, Query, Tables};
use crate::document::{self, Document};
use crate::segments::{MAX_LINE_BYTES, Segment, value_end};

/// How often a database that changes while it is copied is copied anew.
const COPY_ATTEMPTS: usize = 4;
/// How much is kept of a damaged document in a column.
const MAX_KEPT_BYTES: u64 = 64 << 20;
/// Behind a database's name: what is not in it yet, and what has to be undone in it if its writer died.
const LOG: &str = "-wal";
const JOURNAL: &str = "-journal";
const MAGIC: &[u8] = b"SQLite format 3\0";
/// The longest id of a session that is taken for one.
const MAX_ID_BYTES: usize = 512;
/// A column of this prefix holds JSON.
const JSON: &str = "json:";
/// A column of this prefix holds a document, whose elements are records of their own.
const ELEMENTS: &str = "elements:";

/// What tells that a database has not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// Made from the sizes and times of the file and of its logs.
    pub(super) mark: i64,
    /// When the later one of them was changed, in nanoseconds since the epoch.
    pub(super) mtime: i64,
    /// Their bytes together.
    pub(super) size: u64,
}

/// Whether a file is a database, by its first bytes.
pub(super) fn is_database(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut head));
    read.is_ok() && head == MAGIC
}

/// Looks at a database without opening it.
pub(super) fn mark(path: &Path) -> io::Result<Mark> {
    let mut hasher = blake3::Hasher::new();
    let mut all = Mark { mark: 0, mtime: 0, size: 0 };
    for ending in ["", LOG, JOURNAL] {
        let meta = match fs::metadata(with(path, ending)) {
            Ok(meta) => meta,
            Err(error) if !ending.is_empty() && error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let mtime = files::mtime(&meta);
        hasher.update(&meta.ino().to_le_bytes()).update(&meta.len().to_le_bytes()).update(&mtime.to_le_bytes());
        all.mtime = all.mtime.max(mtime);
        all.size += meta.len();
    }
    all.mark = i64::try_from(mark_of(&hasher.finalize())).unwrap_or(i64::MAX);
    Ok(all)
}

/// A database's name with an ending behind it.
fn with(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// A copy of an agent's database, and where its sessions are in it. The copy goes with it.
#[derive(Debug)]
pub(super) struct Database {
    path: PathBuf,
    connection: Connection,
    codec: Arc<dyn Codec>,
    layout: Layout,
    asides: Rc<Asides>,
    /// Declared last, so that the connection is closed before its files go.
    _folder: Private,
}

/// A session in a database.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) database: Rc<Database>,
    pub(super) id: String,
}

/// A session as the list of sessions has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) id: String,
    /// When it was last changed, in milliseconds since the epoch.
    pub(super) updated: i64,
    /// Made from all that the list says of it.
    pub(super) mark: i64,
}

impl Database {
    /// Copies a database and finds the agent whose it is; gives nothing when no codec knows it.
    pub(super) fn open(path: &Path, codecs: &[Arc<dyn Codec>]) -> Result<Option<Self>, String> {
        let folder = Private::new().map_err(|error| format!("no folder for a copy of it: {error}"))?;
        let copy = copy(path, &folder.0)?;
        let connection = open(&copy).map_err(|error| reason(&error))?;
        let tables = tables(&connection).map_err(|error| reason(&error))?;
        let known = codecs.iter().find_map(|codec| Some((Arc::clone(codec), codec.layout(&tables)?)));
        Ok(known.map(|(codec, layout)| {
            let asides = Rc::new(Asides::read(&*codec, path, &Lists::default()));
            Self { path: path.to_owned(), connection, codec, layout, asides, _folder: folder }
        }))
    }

    /// Where it lies.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What stands beside it.
    pub(super) fn asides(&self) -> Rc<Asides> {
        Rc::clone(&self.asides)
    }

    /// The codec that knows it.
    pub(super) fn codec(&self) -> &Arc<dyn Codec> {
        &self.codec
    }

    /// Its sessions, in the order in which the agent lists them.
    pub(super) fn sessions(&self) -> Result<Vec<Listed>, String> {
        let list = || {
            let mut statement = self.connection.prepare(&self.layout.sessions)?;
            let columns = statement.column_count();
            let mut rows = statement.query([])?;
            let mut sessions = Vec::new();
            let mut seen = HashSet::new();
            while let Some(row) = rows.next()? {
                let Some(id) = id_of(row.get_ref(0)?) else { continue };
                let mut hasher = blake3::Hasher::new();
                for at in 0..columns {
                    let text = show(row.get_ref(at)?, false).to_string();
                    hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
                }
                let mark = i64::try_from(mark_of(&hasher.finalize())).unwrap_or(i64::MAX);
                let updated = row.get_ref(1)?.as_i64_or_null().ok().flatten().unwrap_or(0);
                if seen.insert(id.clone()) {
                    sessions.push(Listed { id, updated, mark });
                }
            }
            Ok(sessions)
        };
        list().map_err(|error| reason(&error))
    }

    /// Reads a session's rows, each as a record.
    pub(super) fn read(&self, session: &str, take: &mut Take<'_>) -> Result<(), Failure> {
        self.rows(&self.layout.records, &[&session], take)
    }

    /// Reads the rows that belong to no session, each as a record.
    pub(super) fn shared(&self, take: &mut Take<'_>) -> Result<(), Failure> {
        self.rows(&self.layout.shared, &[], take)
    }

    /// What can't be read of a table costs the rows behind it and no other table.
    fn rows(&self, queries: &[Query], params: &[&dyn ToSql], take: &mut Take<'_>) -> Result<(), Failure> {
        let mut made = Made::new();
        for query in queries {
            if let Err(failure) = self.rows_of(query, params, &mut made, take) {
                match failure {
                    Unread::Database(error) => take(made.damaged(query.name, &[], &reason(&error)))?,
                    Unread::Taking(failure) => return Err(failure),
                }
            }
        }
        Ok(())
    }

    fn rows_of(
        &self,
        query: &Query,
        params: &[&dyn ToSql],
        made: &mut Made,
        take: &mut Take<'_>,
    ) -> Result<(), Unread> {
        let mut statement = self.connection.prepare_cached(&query.sql)?;
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let mut rows = statement.query(params)?;
        let elements = names.first().and_then(|name| name.strip_prefix(ELEMENTS));
        while let Some(row) = rows.next()? {
            if let Some(name) = elements {
                take_elements(query.name, name, row.get_ref(0)?, made, take)?;
                continue;
            }
            let mut line = begun(query.name);
            let fits = self.render(query, &names, row, &mut line)?;
            take(made.row(query.name, line, fits))?;
        }
        Ok(())
    }

    /// Writes a row's columns and the rows within it, and closes the object. Says whether that fits in a line; it stops where it
    /// does not.
    fn render(&self, query: &Query, names: &[String], row: &Row<'_>, out: &mut Vec<u8>) -> rusqlite::Result<bool> {
        for (at, name) in names.iter().enumerate() {
            let (name, is_json) = name.strip_prefix(JSON).map_or((name.as_str(), false), |name| (name, true));
            let value = row.get_ref(at)?;
            if let ValueRef::Text(bytes) | ValueRef::Blob(bytes) = value
                && out.len().saturating_add(bytes.len()) > MAX_LINE_BYTES
            {
                return Ok(false);
            }
            if out.last() != Some(&b'{') {
                out.push(b',');
            }
            out.extend_from_slice(format!("{}:", Value::from(name)).as_bytes());
            match value {
                ValueRef::Text(text) if is_json && is_one_value(text) => out.extend_from_slice(text),
                value => out.extend_from_slice(show(value, true).to_string().as_bytes()),
            }
        }
        for inner in &query.within {
            out.extend_from_slice(format!(",{}:[", Value::from(inner.name)).as_bytes());
            let mut statement = self.connection.prepare_cached(&inner.sql)?;
            let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
            let mut rows = statement.query([row.get_ref(0)?.as_str().unwrap_or_default()])?;
            let mut first = true;
            while let Some(row) = rows.next()? {
                if out.len() > MAX_LINE_BYTES {
                    return Ok(false);
                }
                if !std::mem::take(&mut first) {
                    out.push(b',');
                }
                out.push(b'{');
                if !self.render(inner, &names, row, out)? {
                    return Ok(false);
                }
            }
            out.push(b']');
        }
        out.push(b'}');
        Ok(true)
    }
}

impl Made {
    /// A row's record; one that is too long is named alone.
    fn row(&mut self, table: &str, line: Vec<u8>, fits: bool) -> Segment {
        match !fits || line.len() > MAX_LINE_BYTES {
            true => self.damaged(table, &[], &format!("a row is longer than {MAX_LINE_BYTES} bytes")),
            false => self.record(line),
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::File(reason(&error))
    }
}

/// Why the rows of a table were not read to their end.
enum Unread {
    Database(rusqlite::Error),
    Taking(Failure),
}

impl From<rusqlite::Error> for Unread {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl From<Failure> for Unread {
    fn from(failure: Failure) -> Self {
        Self::Taking(failure)
    }
}

/// The beginning of a record that says which table it is from.
fn begun(table: &str) -> Vec<u8> {
    format!("{{\"table\":{}", Value::from(table)).into_bytes()
}

/// A record that holds a JSON value under a name.
fn holding(table: &str, name: &str, value: &[u8]) -> Vec<u8> {
    let mut line = begun(table);
    line.extend_from_slice(format!(",{}:", Value::from(name)).as_bytes());
    line.extend_from_slice(value);
    line.push(b'}');
    line
}

/// Reads a document that stands in a column: what stands around its array as a record, then each of the elements.
///
/// What can't be read costs itself, and the column is kept as it is. Of a document that would not fit in memory nothing is read.
fn take_elements(
    array: &'static str,
    name: &str,
    column: ValueRef<'_>,
    made: &mut Made,
    take: &mut Take<'_>,
) -> Result<(), Failure> {
    let (ValueRef::Text(stored) | ValueRef::Blob(stored)) = column else {
        return take(made.damaged(array, &[], "no document stands there"));
    };
    let packed = Packed::new(stored);
    let path = &[array];
    let frame = document::frame(packed.open()?, path)?;
    let has_frame = is_one_value(&frame);
    if has_frame {
        take(made.row(array, holding(array, name, &frame), true))?;
    }
    for segment in Document::new(packed.open()?, path) {
        match segment? {
            Segment::Record { bytes, .. } => take(made.row(array, holding(array, "value", &bytes), true))?,
            // An element that is a word, say.
            Segment::Opaque { bytes, reason: Some(_), .. } if is_one_value(&bytes) => {
                take(made.row(array, holding(array, "value", &bytes), true))?;
            }
            Segment::Opaque { bytes, reason: Some(reason), .. } => take(made.damaged(array, &bytes, &reason))?,
            Segment::Opaque { .. } | Segment::Tail { .. } => {}
        }
    }
    // What is kept is what can be read of it: nothing looks for secrets in what is packed.
    let readable = || {
        let mut bytes = Vec::new();
        packed.open()?.take(MAX_KEPT_BYTES).read_to_end(&mut bytes).map(|_| bytes)
    };
    match &packed.damage {
        Some(damage) => take(made.damaged(array, &readable()?, &damage.to_string())),
        None if !has_frame => take(made.damaged(array, &readable()?, "what it says of itself can't be read")),
        None => Ok(()),
    }
}

fn is_one_value(text: &[u8]) -> bool {
    matches!(value_end(text), Ok(end) if end > 0 && text.get(end..).unwrap_or_default().trim_ascii().is_empty())
        && std::str::from_utf8(text).is_ok()
}

/// A value of a row as JSON; bytes, and text that is none, in hexadecimal where they are `whole`, else by their length.
fn show(value: ValueRef<'_>, whole: bool) -> Value {
    let bytes = |bytes: &[u8]| {
        let digits = if whole { HEXLOWER.encode(bytes) } else { bytes.len().to_string() };
        serde_json::json!({ "hex": digits })
    };
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::from(number),
        ValueRef::Real(number) => Value::from(number),
        ValueRef::Text(text) => std::str::from_utf8(text).map_or_else(|_| bytes(text), Value::from),
        ValueRef::Blob(blob) => bytes(blob),
    }
}

fn id_of(value: ValueRef<'_>) -> Option<String> {
    let id = match value {
        ValueRef::Integer(id) => id.to_string(),
        value => value.as_str().ok()?.to_owned(),
    };
    (!id.is_empty() && id.len() <= MAX_ID_BYTES && !id.contains('\0')).then_some(id)
}

/// What an error says of the database, for people.
fn reason(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => "it is no database of SQLite, or it is encrypted".to_owned(),
        Some(ErrorCode::DatabaseCorrupt) => format!("the database is damaged: {error}"),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => format!("the database is locked: {error}"),
        _ => error.to_string(),
    }
}

/// Copies a database and its log. Both are looked at before and after: what changed meanwhile is copied anew, since pages of
/// two states are no database.
fn copy(path: &Path, folder: &Path) -> Result<PathBuf, String> {
    let to = folder.join("copy.db");
    let copy = || -> io::Result<bool> {
        let before = mark(path)?;
        fs::copy(path, &to)?;
        for ending in [LOG, JOURNAL] {
            let copied = fs::copy(with(path, ending), with(&to, ending)).map(drop);
            let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
            match copied {
                // An earlier attempt may have found one.
                Err(error) if gone(&error) => match fs::remove_file(with(&to, ending)) {
                    Err(error) if !gone(&error) => return Err(error),
                    _ => {}
                },
                result => result?,
            }
        }
        Ok(mark(path)? == before)
    };
    for _ in 0..COPY_ATTEMPTS {
        if copy().map_err(|error| error.to_string())? {
            return Ok(to);
        }
    }
    Err("it was written to while it was copied; import it again when its agent rests".to_owned())
}

/// Opens a copy. It may be written, since its log has to be taken in, but not by a statement.
fn open(copy: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(copy, flags)?;
    // The schema is a stranger's: nothing in it is to run.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

fn tables(connection: &Connection) -> rusqlite::Result<Tables> {
    let mut tables = BTreeMap::new();
    let mut names =
        connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'")?;
    let names = names.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut columns = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
    for name in names {
        let found = columns.query_map([&name], |row| row.get(0))?.collect::<rusqlite::Result<BTreeSet<String>>>()?;
        tables.insert(name, found);
    }
    Ok(Tables(tables))
}

/// A folder that only its owner can look into, and that goes when it is no longer used.
#[derive(Debug)]
struct Private(PathBuf);

impl Private {
    fn new() -> io::Result<Self> {
        // A name that is taken is an error: whoever made it may look into it.
        let random = RandomState::new().hash_one(std::process::id());
        let path = std::env::temp_dir().join(format!("threadkeep-import-{random:016x}"));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // What can't be removed is a copy in a folder that is made to be emptied.
        drop(fs::remove_dir_all(&self.0));
    }
}
