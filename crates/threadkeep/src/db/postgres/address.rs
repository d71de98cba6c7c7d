//! The address of a store in a PostgreSQL database: `postgres://USER:PASSWORD@HOST:PORT/DATABASE?schema=NAME`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::error::{Error, Result};

const DEFAULT_SCHEMA: &str = "threadkeep";
/// What the engine keeps of a name.
const MAX_SCHEMA_BYTES: usize = 63;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A peer that answers nothing for this long is gone: ten seconds of silence, then four probes.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(5), 4);

/// Parameters of the address that are the client's own, with the names that every client of PostgreSQL gives them.
const CLIENT_PARAMETERS: [&str; 14] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "load_balance_hosts",
    "password",
    "port",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// Where a store is on which server. What it shows of itself holds no secret.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) config: Config,
    /// The schema's name, which needs no escaping inside double quotes.
    pub(crate) schema: String,
    pub(crate) certificate: Certificate,
    /// The files of this client's own certificate and of its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
    shown: String,
}

/// How the server's certificate is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Certificate {
    /// Encrypted, for whoever answers.
    Any,
    /// Signed by an authority that the system trusts, for the host's name.
    OfSystem,
    /// Signed by an authority in this file, for the host's name.
    Of(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.shown)
    }
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// `Invalid`; nothing of the text is repeated that may be part of a password.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (base, parameters) = text.split_once('?').unwrap_or((text, ""));
        if base.matches('@').count() > 1 {
            return Err(invalid("write the characters @ : / ? of a password as %40 %3A %2F %3F"));
        }
        let mut ours = Ours::default();
        let mut theirs: Vec<String> = Vec::new();
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').ok_or_else(malformed)?;
            match name {
                "schema" => ours.schema = Some(decode(value)?),
                "sslmode" => ours.mode = Some(decode(value)?),
                "sslrootcert" => ours.root = Some(decode(value)?),
                "sslcert" => ours.certificate = Some(decode(value)?),
                "sslkey" => ours.key = Some(decode(value)?),
                // The client takes a list for one host in this place.
                "host" => theirs.extend(value.split(',').map(|host| format!("host={host}"))),
                name if CLIENT_PARAMETERS.contains(&name) => theirs.push(parameter.to_owned()),
                name => return Err(unknown(name, base)),
            }
        }
        let schema = ours.schema.unwrap_or_else(|| DEFAULT_SCHEMA.to_owned());
        check_schema(&schema)?;
        let (mode, certificate) = encryption(ours.mode.as_deref(), ours.root.as_deref())?;
        let identity = match (ours.certificate, ours.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            _ => return Err(invalid("sslcert and sslkey are given together")),
        };
        let mut config: Config = format!("{base}?{}", theirs.join("&")).parse().map_err(|_| malformed())?;
        if config.get_user().is_none() {
            return Err(invalid("it names no user: postgres://USER@HOST/DATABASE"));
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(invalid("it names no host; a socket's folder is named by ?host=/run/postgresql"));
        }
        let (idle, interval, retries) = KEEPALIVE;
        config.ssl_mode(mode).keepalives_interval(interval).keepalives_retries(retries);
        // Whether it was given can't be seen in the client's settings.
        if !theirs.iter().any(|parameter| parameter.starts_with("keepalives_idle=")) {
            config.keepalives_idle(idle);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(idle + interval * retries);
        }
        let shown = show(&config, &schema);
        Ok(Self { config, schema, certificate, identity, shown })
    }

    /// Whether a connection may have to be encrypted.
    pub(crate) fn may_encrypt(&self) -> bool {
        self.is_remote() && self.config.get_ssl_mode() != SslMode::Disable
    }

    /// Whether it names servers that can replace each other.
    pub(crate) fn names_several(&self) -> bool {
        self.config.get_hosts().len().max(self.config.get_hostaddrs().len()) > 1
    }

    /// What the address leaves open to whoever sits between this machine and the server.
    pub(crate) fn weakness(&self) -> Option<&'static str> {
        match (self.is_remote(), self.config.get_ssl_mode()) {
            (false, _) => None,
            (true, SslMode::Disable) => Some("the connection is not encrypted (sslmode=disable)"),
            (true, _) if self.certificate == Certificate::Any => {
                Some("the server's certificate is not verified; sslmode=verify-full does that")
            }
            (true, _) => None,
        }
    }

    fn is_remote(&self) -> bool {
        self.config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(_)))
            || !self.config.get_hostaddrs().is_empty()
    }
}

#[derive(Default)]
struct Ours {
    schema: Option<String>,
    mode: Option<String>,
    root: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
}

/// The words of `sslmode` as every client of PostgreSQL means them, or more strictly: the name is always compared when the
/// certificate is.
fn encryption(mode: Option<&str>, root: Option<&str>) -> Result<(SslMode, Certificate)> {
    let given = root.map(|root| Certificate::Of(Path::new(root).to_owned()));
    Ok(match mode.unwrap_or("prefer") {
        "disable" => (SslMode::Disable, Certificate::Any),
        "prefer" => (SslMode::Prefer, Certificate::Any),
        "require" => (SslMode::Require, given.unwrap_or(Certificate::Any)),
        "verify-ca" | "verify-full" => (SslMode::Require, given.unwrap_or(Certificate::OfSystem)),
        _ => return Err(invalid("sslmode is one of disable, prefer, require, verify-full")),
    })
}

fn check_schema(schema: &str) -> Result<()> {
    let is_plain = schema.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    let begins_well = schema.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
    if !is_plain || !begins_well || schema.len() > MAX_SCHEMA_BYTES {
        return Err(invalid("a schema's name has 1 to 63 characters of a-z 0-9 _ and begins with no digit"));
    }
    if schema.starts_with("pg_") || schema == "information_schema" {
        return Err(invalid("that schema belongs to the server"));
    }
    Ok(())
}

fn show(config: &Config, schema: &str) -> String {
    let hosts = config.get_hosts().iter().enumerate().map(|(index, host)| {
        let ports = config.get_ports();
        let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            #[cfg(unix)]
            Host::Unix(path) => format!("{}:{port}", path.display()),
        }
    });
    let hosts = hosts.collect::<Vec<_>>().join(",");
    let user = config.get_user().unwrap_or_default();
    format!("postgres://{user}@{hosts}/{}?schema={schema}", config.get_dbname().unwrap_or(user))
}

fn decode(value: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or_else(malformed)?;
        bytes.push(byte);
        rest = rest.get(2..).unwrap_or_default();
    }
    String::from_utf8(bytes).map_err(|_| malformed())
}

/// Names a parameter that is not known, unless it may be the rest of a password: then no host has come before it.
fn unknown(name: &str, base: &str) -> Error {
    let is_plain =
        base.contains('@') && name.len() <= 32 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if is_plain { invalid(&format!("the parameter `{name}` is not known")) } else { malformed() }
}

fn malformed() -> Error {
    invalid("it must read postgres://USER:PASSWORD@HOST:PORT/DATABASE?schema=NAME, with %40 for an @ in a password")
}

fn invalid(reason: &str) -> Error {
    Error::invalid("store address", reason)
}

#[cfg(test)]
mod tests {
    use super::{Address, Certificate};
    use crate::error::Error;

    #[test]
    fn an_address_is_read_and_shown_without_its_password() {
        let text = "postgres://ann:s%40cret@db.example:6432/work?schema=team_a&sslmode=verify-full&application_name=x";
        let address = Address::parse(text).unwrap();
        assert_eq!(address.schema, "team_a");
        assert_eq!(address.certificate, Certificate::OfSystem);
        assert_eq!(address.config.get_password(), Some(b"s@cret".as_slice()));
        assert_eq!(address.to_string(), "postgres://ann@db.example:6432/work?schema=team_a");
        assert!(!format!("{address:?}").contains("cret"));
    }

    #[test]
    fn a_socket_and_several_hosts_are_addresses() {
        let socket = Address::parse("postgresql://ann@/work?host=/run/postgresql").unwrap();
        assert!(!socket.may_encrypt());
        assert_eq!(socket.to_string(), "postgres://ann@/run/postgresql:5432/work?schema=threadkeep");
        let two = Address::parse("postgres://ann@a,b:5433/work?target_session_attrs=read-write").unwrap();
        assert_eq!(two.to_string(), "postgres://ann@a:5432,b:5433/work?schema=threadkeep");
        assert!(two.may_encrypt() && two.names_several() && !socket.names_several());
        let sockets = Address::parse("postgres://ann@/work?host=/run/a,/run/b&port=5432,5433").unwrap();
        assert_eq!(sockets.to_string(), "postgres://ann@/run/a:5432,/run/b:5433/work?schema=threadkeep");
        assert!(sockets.names_several());
        let idle = |text: &str| Address::parse(text).unwrap().config.get_keepalives_idle().as_secs();
        assert_eq!(idle("postgres://ann@a/work"), 10);
        assert_eq!(idle("postgres://ann@a/work?keepalives_idle=3"), 3);
    }

    #[test]
    fn what_is_no_address_is_refused_and_no_part_of_a_password_is_repeated() {
        for text in [
            "postgres://ann:secret@ret@host/db",
            "postgres://ann:sec?secret@host/db",
            "postgres://ann:sec?secret=1@host/db",
            "postgres://ann:12?secret@host/db?schema=x",
            "postgres://host/db?schema=x",
            "postgres://ann@/db",
            "postgres://ann@host/db?schema=A",
            "postgres://ann@host/db?schema=",
            "postgres://ann@host/db?schema=pg_catalog",
            "postgres://ann@host/db?schema=a%22b",
            "postgres://ann@host/db?sslmode=sometimes",
            "postgres://ann@host:port/db",
            "postgres://ann@host/db?secret",
            "postgres://ann@host/db?sslcert=a",
        ] {
            let refused = Address::parse(text).unwrap_err();
            assert!(matches!(refused, Error::Invalid { field: "store address", .. }), "{text}: {refused:?}");
            assert!(!refused.to_string().contains("secret"), "{text}: {refused}");
        }
        let named = Address::parse("postgres://ann@host/db?colour=red").unwrap_err();
        assert!(named.to_string().contains("`colour`"));
    }
}
