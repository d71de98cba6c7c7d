//! Stores on a real PostgreSQL, held against SQLite: the schema, its rules, every statement text, every byte; and what happens
//! to the server.
//!
//! The server is started by the tests themselves, listens on a socket in a folder of its own, and is gone when they end.

#![cfg(test)]

#[path = "postgres/changes.rs"]
mod changes;
#[path = "postgres/differential.rs"]
mod differential;
#[path = "postgres/doctor.rs"]
mod doctor;
#[path = "postgres/documents.rs"]
mod documents;
#[path = "postgres/dump.rs"]
mod dump;
#[path = "postgres/faults.rs"]
mod faults;
#[path = "upgrades/fixed_host.rs"]
mod fixed_host;
#[path = "postgres/leases.rs"]
mod leases;
#[path = "postgres/migrated.rs"]
mod migrated;
#[path = "postgres/news.rs"]
mod news;
#[path = "postgres/opening.rs"]
mod opening;
#[path = "postgres/payloads.rs"]
mod payloads;
#[path = "postgres/processes.rs"]
mod processes;
#[path = "postgres/redaction.rs"]
mod redaction;
#[path = "upgrades/retention.rs"]
mod retained;
#[path = "postgres/roles.rs"]
mod roles;
#[path = "postgres/rules.rs"]
mod rules;
#[path = "upgrades/sample.rs"]
mod sample;
#[path = "postgres/schema.rs"]
mod schema;
#[path = "postgres/search_index.rs"]
mod search_index;
#[path = "postgres/searching.rs"]
mod searching;
#[path = "postgres/server.rs"]
mod server;
#[path = "postgres/statements.rs"]
mod statements;
#[path = "upgrades/steering.rs"]
mod steering;
#[path = "postgres/tls.rs"]
mod tls;
#[path = "postgres/upgrades.rs"]
mod upgrades;
