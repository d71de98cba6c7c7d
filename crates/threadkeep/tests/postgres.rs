//! The schema, its rules and every statement text on a real PostgreSQL, held against SQLite.
//!
//! The server is started by the tests themselves, listens on a socket in a folder of its own, and is gone when they end.

#![cfg(test)]

#[path = "postgres/rules.rs"]
mod rules;
#[path = "postgres/schema.rs"]
mod schema;
#[path = "postgres/server.rs"]
mod server;
#[path = "postgres/statements.rs"]
mod statements;
