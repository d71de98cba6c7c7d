//! What the server's errors mean: for the caller, and for the transaction that met them.

use std::io::ErrorKind;

use rustls::CertificateError;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::error::Error;

/// What becomes of a transaction in which a statement failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It would fail again.
    Final,
    /// Others were in the way; run again it may succeed.
    Again,
    /// The connection is gone, and with it the transaction.
    Lost,
}

/// A statement that failed.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) error: Error,
    pub(crate) fate: Fate,
}

/// Keys that are handed out as one more than the greatest: who is second runs again.
const COUNTED_KEYS: [&str; 3] = ["branches_pkey", "writers_pkey", "sources_pkey"];

/// Tells the server's errors apart by their codes.
pub(crate) fn judge(error: &tokio_postgres::Error, place: &str) -> Refusal {
    match error.as_db_error() {
        Some(said) => Refusal { error: translate(said, place), fate: fate_of(said) },
        None if is_about_values(error) => Refusal { error: Error::Backend { detail: words(error) }, fate: Fate::Final },
        None => Refusal { error: lost(place, words(error)), fate: Fate::Lost },
    }
}

/// The error for a connection that is gone.
pub(crate) fn lost(place: &str, detail: impl Into<String>) -> Error {
    Error::Io { operation: "reach", path: place.to_owned(), kind: ErrorKind::ConnectionAborted, detail: detail.into() }
}

/// The error for a commit that was sent and not answered.
pub(crate) fn unanswered(place: &str, detail: &str) -> Error {
    let detail = format!(
        "the connection was lost while the commit was on its way, so it is not known whether it was stored ({detail}); \
         look before it is asked for again"
    );
    Error::Io { operation: "commit to", path: place.to_owned(), kind: ErrorKind::ConnectionAborted, detail }
}

/// Whether an error of the server says for certain that a commit did not happen. One that ends the session may have come
/// after it.
pub(crate) fn is_certain(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|said| said.parsed_severity() == Some(Severity::Error) && !is_lost(said.code()))
}

/// An error while a connection was made, and whether it may pass by itself.
pub(crate) fn judge_connecting(error: &tokio_postgres::Error, place: &str) -> (Error, bool) {
    if let Some((detail, may_pass)) = distrust(error) {
        let kind = ErrorKind::InvalidData;
        return (Error::Io { operation: "connect to", path: place.to_owned(), kind, detail }, may_pass);
    }
    let Some(said) = error.as_db_error() else {
        let kind = io_kind(error);
        let may_pass = kind.is_some() || error.is_closed();
        let kind = kind.unwrap_or(ErrorKind::NotConnected);
        return (Error::Io { operation: "connect to", path: place.to_owned(), kind, detail: words(error) }, may_pass);
    };
    let detail = format!("{} ({})", said.message(), said.code().code());
    let refused = |kind| Error::Io { operation: "connect to", path: place.to_owned(), kind, detail: detail.clone() };
    match *said.code() {
        SqlState::TOO_MANY_CONNECTIONS => (Error::Busy { detail }, true),
        SqlState::CANNOT_CONNECT_NOW | SqlState::ADMIN_SHUTDOWN | SqlState::CRASH_SHUTDOWN => {
            (refused(ErrorKind::NotConnected), true)
        }
        SqlState::INVALID_CATALOG_NAME => (Error::NotFound { what: "database", id: place.to_owned() }, false),
        _ => (refused(ErrorKind::PermissionDenied), false),
    }
}

/// What is wrong with a certificate, or with the encryption itself, and what to do; and whether it may pass by itself.
fn distrust(error: &tokio_postgres::Error) -> Option<(String, bool)> {
    let cause = std::error::Error::source(error)?.downcast_ref::<std::io::Error>()?;
    let cause = cause.get_ref()?.downcast_ref::<rustls::Error>()?;
    let words = match cause {
        rustls::Error::InvalidCertificate(problem) => match problem {
            CertificateError::UnknownIssuer => {
                "the server's certificate is signed by no authority that is known here; name a file of its authority with sslrootcert"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the server's certificate has expired; the server needs a new one"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet; compare the clocks of both machines"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the server's certificate is for another host; put the name that it was made for into the address"
            }
            _ => "the server's certificate can't be trusted",
        },
        rustls::Error::AlertReceived(_) => {
            return Some((
                format!("the server ended the encryption ({cause}); it may want a certificate: sslcert and sslkey"),
                false,
            ));
        }
        _ => return Some((format!("the encryption failed: {cause}"), true)),
    };
    Some((format!("{words} ({cause})"), false))
}

fn translate(said: &DbError, place: &str) -> Error {
    let detail = format!("{} ({})", said.message(), said.code().code());
    let code = said.code();
    match *code {
        SqlState::UNIQUE_VIOLATION => Error::AlreadyExists { what: "row", id: detail },
        SqlState::DISK_FULL => Error::StorageFull { detail },
        SqlState::READ_ONLY_SQL_TRANSACTION | SqlState::INSUFFICIENT_PRIVILEGE => Error::ReadOnly { detail },
        SqlState::LOCK_NOT_AVAILABLE
        | SqlState::QUERY_CANCELED
        | SqlState::T_R_SERIALIZATION_FAILURE
        | SqlState::T_R_DEADLOCK_DETECTED => Error::Busy { detail },
        SqlState::DATA_CORRUPTED
        | SqlState::INDEX_CORRUPTED
        | SqlState::UNDEFINED_TABLE
        | SqlState::UNDEFINED_COLUMN
        | SqlState::INVALID_SCHEMA_NAME => Error::corrupt(place, detail),
        // Names of statements are given once in a process, so somebody else uses this session.
        SqlState::DUPLICATE_PSTATEMENT => Error::Conflict {
            what: "session",
            expected: "one that no other client uses: a pooler has to keep one for each (session mode)".to_owned(),
            found: detail,
        },
        SqlState::PROGRAM_LIMIT_EXCEEDED => Error::invalid("content", detail),
        _ if is_lost(code) => lost(place, detail),
        // The class of all broken constraints.
        _ if code.code().starts_with("23") => {
            Error::Conflict { what: "constraint", expected: "rows that fit together".to_owned(), found: detail }
        }
        _ => Error::Backend { detail },
    }
}

fn fate_of(said: &DbError) -> Fate {
    match *said.code() {
        SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED => Fate::Again,
        // What a row refers to was deleted, or is referred to since, by another transaction: a payload, a workspace, an item.
        SqlState::FOREIGN_KEY_VIOLATION => Fate::Again,
        SqlState::UNIQUE_VIOLATION if said.constraint().is_some_and(|name| COUNTED_KEYS.contains(&name)) => Fate::Again,
        // A statement was prepared for another schema, or is not known to this session any more.
        SqlState::FEATURE_NOT_SUPPORTED | SqlState::INVALID_SQL_STATEMENT_NAME => Fate::Lost,
        _ if is_lost(said.code()) || said.parsed_severity() != Some(Severity::Error) => Fate::Lost,
        _ => Fate::Final,
    }
}

/// Whether the server says that it is ending the session: shutting down, timed out, or cut off from its client.
fn is_lost(code: &SqlState) -> bool {
    let code = code.code();
    code.starts_with("08") || code.starts_with("57P") || code == "25P03"
}

/// Whether the client itself refused a value or a row.
fn is_about_values(error: &tokio_postgres::Error) -> bool {
    !error.is_closed() && io_kind(error).is_none() && std::error::Error::source(error).is_some()
}

fn io_kind(error: &tokio_postgres::Error) -> Option<ErrorKind> {
    let cause = std::error::Error::source(error)?;
    cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind)
}

fn words(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
