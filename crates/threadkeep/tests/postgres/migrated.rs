//! Schemas that the migrations made, for who looks at the tables themselves.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use postgres::{Client, NoTls};

use crate::server::Server;

/// A migrated schema on a running server.
#[derive(Debug)]
pub(crate) struct Migrated {
    server: Arc<Server>,
    name: String,
}

impl Migrated {
    /// A schema of its own, made by the migrations in one transaction.
    pub(crate) fn new(server: &Arc<Server>) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("store_{}", NUMBER.fetch_add(1, Ordering::SeqCst));
        let schema = Self { server: Arc::clone(server), name };
        let mut client = schema.connect();
        client.batch_execute(&format!("CREATE SCHEMA {}", schema.name)).unwrap();
        let mut tx = client.transaction().unwrap();
        for (file, text) in migrations("postgres") {
            tx.batch_execute(&text).unwrap_or_else(|error| panic!("{file}: {}", said(&error)));
        }
        tx.commit().unwrap();
        schema
    }

    pub(crate) fn connect(&self) -> Client {
        let mut config = self.server.config();
        config.options(&format!("-c search_path={}", self.name));
        config.connect(NoTls).unwrap()
    }
}

/// The migrations of an engine in order, by file name.
pub(crate) fn migrations(engine: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(engine);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no migration for {engine}");
    paths.into_iter().map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap())).collect()
}

/// What the server says of an error; the client's own words alone are "db error".
pub(crate) fn said(error: &postgres::Error) -> String {
    error
        .as_db_error()
        .map_or_else(|| error.to_string(), |refusal| format!("{} ({})", refusal.message(), refusal.code().code()))
}
