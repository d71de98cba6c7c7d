//! What a search costs without us: a plain FTS5 table that ranks all that fits, and `rg` over lines of JSON.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use rusqlite::{Connection, params};

use super::questions::{Question, thread_name};
use super::{as_f64, program};
use crate::corpus::Corpus;
use crate::{Error, Result};

const ITEMS: &str = "
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    CREATE TABLE items (id INTEGER PRIMARY KEY, thread TEXT NOT NULL, kind TEXT NOT NULL, role TEXT, at INTEGER NOT NULL, text TEXT NOT NULL);
    CREATE VIRTUAL TABLE plain USING fts5(text, content='items', content_rowid='id', tokenize='unicode61');";
const ITEM: &str = "INSERT INTO items (thread, kind, role, at, text) VALUES (?1, ?2, ?3, ?4, ?5)";
/// What ends `rg` when nothing fits.
const NOTHING: i32 = 1;

/// A table of the items, and an FTS5 table over it as its documentation has it.
#[derive(Debug)]
pub(super) struct Plain {
    connection: Connection,
    /// How long indexing took.
    pub(super) seconds: f64,
    /// What the index takes.
    pub(super) bytes: f64,
}

/// A file of lines for each conversation.
#[derive(Debug)]
pub(super) struct Lines {
    rg: PathBuf,
    folder: PathBuf,
}

/// What `rg` is asked for.
#[derive(Debug, Clone)]
pub(super) struct Grep {
    /// Before the folder.
    pub(super) args: Vec<String>,
    /// The only file to look into.
    pub(super) file: Option<String>,
}

impl Plain {
    pub(super) fn fill(corpus: &Corpus, path: &Path) -> Result<Self> {
        let connection = Connection::open(path)?;
        connection.execute_batch(ITEMS)?;
        connection.execute_batch("BEGIN")?;
        {
            let mut insert = connection.prepare(ITEM)?;
            for conversation in corpus.conversations() {
                let thread = thread_name(conversation.number);
                for item in &conversation.items {
                    let role = item.view.role.as_ref().map(threadkeep::Role::as_str);
                    let (kind, at) = (item.kind.as_str(), item.at.millis());
                    insert.execute(params![thread, kind, role, at, item.view.to_text()])?;
                }
            }
        }
        connection.execute_batch("COMMIT")?;
        let before = std::fs::metadata(path)?.len();
        let start = Instant::now();
        connection.execute_batch("INSERT INTO plain(plain) VALUES ('rebuild')")?;
        let seconds = start.elapsed().as_secs_f64();
        let bytes = as_f64(std::fs::metadata(path)?.len() - before);
        Ok(Self { connection, seconds, bytes })
    }

    /// The twenty best hits, each with a snippet; gives how many there are.
    pub(super) fn search(&self, question: &Question) -> Result<usize> {
        let from = match question.condition.as_str() {
            "" => "plain WHERE plain MATCH ?1".to_owned(),
            condition => format!("plain JOIN items i ON i.id = plain.rowid WHERE plain MATCH ?1 AND {condition}"),
        };
        let sql =
            format!("SELECT plain.rowid, snippet(plain, 0, '', '', '…', 24) FROM {from} ORDER BY plain.rank LIMIT 20");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query([&question.plain])?;
        let mut found = 0;
        while let Some(row) = rows.next()? {
            row.get_ref(1)?.as_str()?;
            found += 1;
        }
        Ok(found)
    }

    pub(super) fn append(&self, text: &str) -> Result<()> {
        let none: Option<&str> = None;
        self.connection.prepare_cached(ITEM)?.execute(params!["last", "message", none, 0, text])?;
        let sql = "INSERT INTO plain (rowid, text) VALUES (last_insert_rowid(), ?1)";
        self.connection.prepare_cached(sql)?.execute([text])?;
        Ok(())
    }
}

impl Lines {
    /// Writes the files, if there is an `rg` to look through them.
    pub(super) fn write(corpus: &Corpus, folder: &Path) -> Result<Option<Self>> {
        let Some(rg) = program("rg") else { return Ok(None) };
        std::fs::create_dir(folder)?;
        for conversation in corpus.conversations() {
            let path = folder.join(file_name(conversation.number));
            let mut file = BufWriter::new(File::create(path)?);
            for item in &conversation.items {
                let role = item.view.role.as_ref().map_or("", threadkeep::Role::as_str);
                write!(file, r#"{{"kind":"{}","said_by":"{role}","at":"{}","content":"#, item.kind, item.at)?;
                file.write_all(&item.to_item().content)?;
                file.write_all(b"}\n")?;
            }
            file.flush()?;
        }
        Ok(Some(Self { rg, folder: folder.to_owned() }))
    }

    /// Counts the lines that fit; gives in how many files there are any.
    pub(super) fn search(&self, grep: &Grep) -> Result<usize> {
        let place = grep.file.as_ref().map_or_else(|| self.folder.clone(), |file| self.folder.join(file));
        let mut command = Command::new(&self.rg);
        command.args(["--no-config", "--ignore-case", "--count", "--no-messages", "--with-filename"]);
        let output = command.args(&grep.args).arg(place).stdin(Stdio::null()).output()?;
        if output.status.success() || output.status.code() == Some(NOTHING) {
            return Ok(output.stdout.iter().filter(|byte| **byte == b'\n').count());
        }
        Err(Error::from(format!("rg: {}", String::from_utf8_lossy(&output.stderr))))
    }
}

pub(super) fn file_name(number: u32) -> String {
    format!("{number:06}.jsonl")
}
