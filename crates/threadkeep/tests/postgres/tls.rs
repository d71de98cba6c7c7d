//! Encrypted connections to a server that has certificates, and every way in which they can be wrong.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use postgres::NoTls;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
};
use tempfile::TempDir;
use threadkeep::blocking::Store;
use threadkeep::{Error, NewItem, NewThread, Role, Severity, StoreOptions};

use crate::server::{Server, start_own};

/// Characters that mean something in an address.
const PASSWORD: &str = "hid%40den%3A%2F%3F";
const PASSWORD_AS_IT_IS: &str = "hid@den:/?";

type Authority = CertifiedIssuer<'static, KeyPair>;

/// A server that encrypts, and the folder with what its clients need.
struct Encrypted {
    server: Server,
    files: TempDir,
    port: u16,
}

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate of an authority with its key, both as text.
fn certificate(authority: &Authority, name: &str, for_client: bool, until: i32) -> (String, String) {
    let mut params = CertificateParams::new(if for_client { vec![] } else { vec![name.to_owned()] }).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages =
        vec![if for_client { ExtendedKeyUsagePurpose::ClientAuth } else { ExtendedKeyUsagePurpose::ServerAuth }];
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(until, 1, 1));
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, authority).unwrap().pem(), key.serialize_pem())
}

impl Encrypted {
    fn start(authority: &Authority) -> Option<Self> {
        let server = start_own()?;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let own = Self { server, files: TempDir::new().unwrap(), port };
        own.server.order("stop");
        let settings = format!("listen_addresses = '127.0.0.1'\nport = {port}\nssl = on\nssl_ca_file = 'root.crt'\n");
        let data = own.server.folder().join("data");
        let before = std::fs::read_to_string(data.join("postgresql.conf")).unwrap();
        own.give("postgresql.conf", &(before + &settings));
        own.give("root.crt", &authority.pem());
        own.give(
            "pg_hba.conf",
            "local all all trust\nhostssl all by_certificate 127.0.0.1/32 cert\nhostssl all secret 127.0.0.1/32 scram-sha-256\n\
             host all plain 127.0.0.1/32 scram-sha-256\n",
        );
        std::fs::write(own.file("ca.pem"), authority.pem()).unwrap();
        let (pem, key) = certificate(authority, "localhost", false, 2999);
        own.present(&pem, &key);
        let mut admin = own.admin();
        for role in ["secret", "plain", "by_certificate"] {
            let made = format!(
                "CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD_AS_IT_IS}'; GRANT CREATE ON DATABASE postgres TO {role}"
            );
            admin.batch_execute(&made).unwrap();
        }
        Some(own)
    }

    /// Puts a file of the server's in its place, as the server's user.
    fn give(&self, name: &str, text: &str) {
        let path = self.server.folder().join("data").join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let owner = std::fs::metadata(self.server.folder()).unwrap();
        std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }

    /// Starts the server with another certificate.
    fn present(&self, pem: &str, key: &str) {
        self.server.order("stop");
        self.give("server.crt", pem);
        self.give("server.key", key);
        self.server.order("start");
        drop(self.admin());
    }

    /// Starts the server with another line of settings.
    fn set(&self, line: &str) {
        self.server.order("stop");
        let before = std::fs::read_to_string(self.server.folder().join("data/postgresql.conf")).unwrap();
        self.give("postgresql.conf", &format!("{before}{line}\n"));
        self.server.order("start");
        drop(self.admin());
    }

    fn admin(&self) -> postgres::Client {
        let bound = Instant::now() + Duration::from_secs(60);
        loop {
            match self.server.config().port(self.port).connect(NoTls) {
                Ok(client) => return client,
                Err(error) => assert!(Instant::now() < bound, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// The address of a store of this role's, with what follows it.
    fn address(&self, role: &str, host: &str, rest: &str) -> String {
        let rest = rest.replace("CA", &self.file("ca.pem").display().to_string());
        format!("postgres://{role}:{PASSWORD}@{host}:{}/postgres?schema={role}&{rest}", self.port)
    }
}

fn open(address: &str) -> Result<Store, Error> {
    let options = StoreOptions::postgres(address)?;
    assert!(!format!("{options:?} {}", options.place()).contains("hid"), "the options show the password");
    let outcome = Store::open(options.busy_bound(Duration::from_secs(5)));
    assert!(!format!("{outcome:?}").contains("hid"), "the password is shown");
    outcome
}

/// What an examination finds first, and what is refused when the store is opened.
fn refused(address: &str) -> (&'static str, Error) {
    let error = open(address).expect_err(address);
    assert!(!error.to_string().contains("hid"), "{error}");
    let found = Store::examine(StoreOptions::postgres(address).unwrap(), false).unwrap();
    assert!(!format!("{found:?}").contains("hid"), "{found:?}");
    assert_eq!(found.worst(), Some(Severity::Error));
    (found.findings.first().unwrap().code, error)
}

fn assert_certificate(address: &str, words: &str) {
    let (code, error) = refused(address);
    assert!(
        matches!(error, Error::Io { operation: "connect to", kind: ErrorKind::InvalidData, .. }),
        "{address}: {error:?}"
    );
    assert!(error.to_string().contains(words), "{address}: {error}");
    assert_eq!(code, "certificate");
}

fn assert_login(address: &str) {
    let (code, error) = refused(address);
    assert!(
        matches!(error, Error::Io { operation: "connect to", kind: ErrorKind::PermissionDenied, .. }),
        "{address}: {error:?}"
    );
    assert_eq!(code, "login-refused");
}

#[test]
fn certificates_and_passwords_are_judged_as_asked() {
    let ours = authority("ours");
    let Some(own) = Encrypted::start(&ours) else { return };
    modes_give_what_they_say(&own);
    logins_are_typed(&own);
    clients_show_a_certificate(&own, &ours);

    // Its own authority, and none that the system knows.
    assert_certificate(&own.address("secret", "localhost", "sslmode=verify-full"), "sslrootcert");
    assert_certificate(&own.address("secret", "127.0.0.1", "sslmode=verify-full&sslrootcert=CA"), "another host");
    let other = authority("other");
    let (pem, key) = certificate(&other, "localhost", false, 2999);
    own.present(&pem, &key);
    assert_certificate(&own.address("secret", "localhost", "sslmode=verify-full&sslrootcert=CA"), "sslrootcert");
    assert_certificate(&own.address("secret", "localhost", "sslmode=require&sslrootcert=CA"), "sslrootcert");
    open(&own.address("secret", "localhost", "sslmode=require")).unwrap();
    let (pem, key) = certificate(&ours, "localhost", false, 2021);
    own.present(&pem, &key);
    assert_certificate(&own.address("secret", "localhost", "sslmode=verify-full&sslrootcert=CA"), "has expired");
    open(&own.address("secret", "localhost", "sslmode=prefer")).unwrap();

    own.set("ssl = off");
    let (code, error) = refused(&own.address("plain", "localhost", "sslmode=require"));
    assert!(matches!(error, Error::Io { operation: "connect to", kind: ErrorKind::NotConnected, .. }), "{error:?}");
    assert_eq!(code, "no-agreement");
    let store = open(&own.address("plain", "localhost", "sslmode=prefer")).unwrap();
    let said = store.notices().join("\n");
    assert!(said.contains("not verified") || said.contains("not encrypted"), "{said}");
    let found =
        Store::examine(StoreOptions::postgres(&own.address("plain", "localhost", "sslmode=prefer")).unwrap(), false);
    assert!(found.unwrap().findings.iter().any(|it| it.code == "not-encrypted"));
}

fn modes_give_what_they_say(own: &Encrypted) {
    for (role, rest, encrypted, weakness) in [
        ("plain", "sslmode=disable", false, Some("not-encrypted")),
        ("plain", "", true, Some("not-verified")),
        ("plain", "sslmode=prefer", true, Some("not-verified")),
        ("secret", "sslmode=require", true, Some("not-verified")),
        ("secret", "sslmode=require&sslrootcert=CA", true, None),
        ("secret", "sslmode=verify-ca&sslrootcert=CA", true, None),
        ("secret", "sslmode=verify-full&sslrootcert=CA", true, None),
        ("secret", "sslmode=verify-full&sslrootcert=CA&channel_binding=require", true, None),
        ("secret", "sslmode=verify-full&sslrootcert=CA&channel_binding=disable", true, None),
    ] {
        let address = own.address(role, "localhost", rest);
        let store = open(&address).unwrap_or_else(|error| panic!("{rest}: {error}"));
        let live = store.workspace("/w".as_ref()).unwrap().create_now(NewThread::default()).unwrap();
        live.append(vec![NewItem::message(Role::User, "large ".repeat(50_000))]).unwrap();
        assert!(store.verify(live.id()).unwrap().is_intact(), "{rest}");
        let sql = format!(
            "SELECT bool_and(s.ssl), bool_or(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.usename = '{role}'"
        );
        let row = own.admin().query_one(&sql, &[]).unwrap();
        assert_eq!((row.get::<_, bool>(0), row.get::<_, bool>(1)), (encrypted, encrypted), "{rest}");
        let found = Store::examine(StoreOptions::postgres(&address).unwrap(), false).unwrap();
        let weak = found.findings.iter().map(|it| it.code).find(|code| code.starts_with("not-"));
        assert_eq!(weak, weakness, "{rest}: {found:#?}");
        assert!(found.facts.iter().any(|fact| fact.name == "encrypted" && fact.value == encrypted), "{rest}");
    }
}

fn logins_are_typed(own: &Encrypted) {
    let full = "sslmode=verify-full&sslrootcert=CA";
    assert_login(&own.address("secret", "localhost", full).replace(PASSWORD, "hidden"));
    assert_login(&own.address("nobody", "localhost", full));
    assert_login(&own.address("secret", "localhost", "sslmode=disable"));
    // The server is asked for a proof that it does not give without encryption.
    let (code, error) = refused(&own.address("plain", "localhost", "sslmode=disable&channel_binding=require"));
    assert!(matches!(error, Error::Io { operation: "connect to", .. }), "{error:?}");
    assert_eq!(code, "no-agreement");
    let without = own.address("secret", "localhost", full).replace(&format!(":{PASSWORD}@"), "@");
    let (code, error) = refused(&without);
    assert!(error.to_string().contains("password"), "{error}");
    assert_eq!(code, "no-agreement");
    for (file, text) in [("none.pem", ""), ("odd.pem", "no certificate")] {
        std::fs::write(own.file(file), text).unwrap();
        let rest = format!("sslmode=verify-full&sslrootcert={}", own.file(file).display());
        let error = open(&own.address("secret", "localhost", &rest)).unwrap_err();
        assert!(matches!(error, Error::Invalid { field: "store address", .. }), "{error:?}");
    }
    let rest = format!("sslmode=verify-full&sslrootcert={}", own.file("missing.pem").display());
    let error = open(&own.address("secret", "localhost", &rest)).unwrap_err();
    assert!(matches!(error, Error::Io { operation: "read", kind: ErrorKind::NotFound, .. }), "{error:?}");
}

fn clients_show_a_certificate(own: &Encrypted, ours: &Authority) {
    let write = |name: &str, text: &str, mode: u32| {
        std::fs::write(own.file(name), text).unwrap();
        std::fs::set_permissions(own.file(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let files = |certificate: &str, key: &str| {
        let at = |name: &str| own.file(name).display().to_string();
        format!("sslmode=verify-full&sslrootcert=CA&sslcert={}&sslkey={}", at(certificate), at(key))
    };
    let address = |rest: &str| own.address("by_certificate", "localhost", rest);
    let (pem, key) = certificate(ours, "by_certificate", true, 2999);
    write("client.pem", &pem, 0o644);
    write("client.key", &key, 0o600);
    write("loose.key", &key, 0o644);
    open(&address(&files("client.pem", "client.key"))).unwrap();
    let (pem, key) = certificate(ours, "somebody_else", true, 2999);
    write("else.pem", &pem, 0o644);
    write("else.key", &key, 0o600);
    assert_login(&address(&files("else.pem", "else.key")));
    assert_login(&address("sslmode=verify-full&sslrootcert=CA"));
    let (pem, key) = certificate(&authority("other"), "by_certificate", true, 2999);
    write("other.pem", &pem, 0o644);
    write("other.key", &key, 0o600);
    let (_, error) = refused(&address(&files("other.pem", "other.key")));
    assert!(matches!(error, Error::Io { operation: "connect to", .. }), "{error:?}");
    for (certificate, key) in [("client.pem", "loose.key"), ("client.pem", "else.key"), ("client.pem", "ca.pem")] {
        let error = open(&address(&files(certificate, key))).unwrap_err();
        assert!(matches!(error, Error::Invalid { field: "store address", .. }), "{key}: {error:?}");
    }
    assert!(Path::new(&own.file("ca.pem")).exists());
}
