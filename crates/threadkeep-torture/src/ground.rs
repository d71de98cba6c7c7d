//! Where the stores of a suite are: in folders, or in schemas on a server. A store on a server is named by its address, in the
//! place of a folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use postgres::NoTls;
use tempfile::TempDir;
use threadkeep::StoreOptions;

use crate::Result;
use crate::child::{HANG, SILENT};
use crate::server::Server;

/// What every address of a store begins with.
const SCHEME: &str = "postgres://";
/// Separates a server's address from the name of a store on it.
const SCHEMA: &str = "&schema=";
/// Longer than a claim outlives its holder, in milliseconds.
const LEASE_AND_MORE: i64 = 121_000;

/// Room for stores, and for the files beside them; removed at the end.
#[derive(Debug)]
pub(crate) struct Ground {
    folder: TempDir,
    /// And what tells this room from others on the server.
    server: Option<(Arc<Server>, u64)>,
}

impl Ground {
    /// Stores below the folder, or on the server if there is one.
    pub(crate) fn new(folder: TempDir, server: Option<Arc<Server>>) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Self { folder, server: server.map(|server| (server, NUMBER.fetch_add(1, Ordering::SeqCst))) }
    }

    /// A store by its name.
    pub(crate) fn store(&self, name: &str) -> PathBuf {
        match &self.server {
            None => self.folder.path().join(name),
            Some((server, number)) => PathBuf::from(server.address(&format!("{name}_{number}"))),
        }
    }

    /// A folder for files that are no store.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Whether a store is on a server.
pub(crate) fn is_remote(store: &Path) -> bool {
    store.to_str().is_some_and(|text| text.starts_with(SCHEME))
}

/// How a store is opened.
pub(crate) fn options(store: &Path) -> threadkeep::Result<StoreOptions> {
    match store.to_str().filter(|_| is_remote(store)) {
        Some(address) => StoreOptions::postgres(address),
        None => Ok(StoreOptions::folder(store)),
    }
}

/// Changes a store behind the library's back.
pub(crate) fn tamper(store: &Path, sql: &str) -> Result<()> {
    if is_remote(store) {
        return connect(store)?.batch_execute(sql).map_err(|error| error.to_string());
    }
    let connection = rusqlite::Connection::open(store.join("threadkeep.db")).map_err(|error| error.to_string())?;
    connection.busy_timeout(Duration::from_secs(10)).map_err(|error| error.to_string())?;
    connection.execute_batch(sql).map_err(|error| error.to_string())
}

/// Sees to it that a dead process counts as dead. Beside a store's files its lock says so; on a server whatever it had begun has to
/// come to its end first, and then its lease has to run out, for which nobody waits here.
pub(crate) fn bury(store: &Path, label: &str) -> Result<()> {
    if !is_remote(store) {
        return Ok(());
    }
    let told = |error: postgres::Error| error.to_string();
    let mut connection = connect(store)?;
    let begun = Instant::now();
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
    while connection.query_one(sessions, &[&label]).map_err(told)?.get::<_, i64>(0) > 0 {
        if begun.elapsed() > HANG {
            return Err(SILENT.to_owned());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    for table in ["claims", "jobs", "requests"] {
        let age = format!("UPDATE {table} SET heartbeat_at = heartbeat_at - $1 WHERE label = $2");
        connection.execute(&age, &[&LEASE_AND_MORE, &label]).map_err(told)?;
    }
    Ok(())
}

/// A connection that sees the tables of a store on a server.
fn connect(store: &Path) -> Result<postgres::Client> {
    let address = store.to_str().unwrap_or_default();
    let (server, schema) = address.split_once(SCHEMA).ok_or("an address without a schema")?;
    let mut client = postgres::Client::connect(server, NoTls).map_err(|error| error.to_string())?;
    client.batch_execute(&format!("SET search_path = {schema}")).map_err(|error| error.to_string())?;
    Ok(client)
}
