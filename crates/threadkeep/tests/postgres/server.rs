//! A PostgreSQL of our own, for as long as a test holds it.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use ::postgres::{Config, NoTls};

const OLDEST: u32 = 15;
const NAME: &str = "threadkeep";
/// No TCP, nothing worth keeping, and small enough for any machine.
const SETTINGS: &str = "
listen_addresses = ''
fsync = off
synchronous_commit = off
full_page_writes = off
max_connections = 300
shared_buffers = 16MB
";

/// A running server. The tests that run at the same time share one.
#[derive(Debug)]
pub(crate) struct Server {
    folder: PathBuf,
    janitor: Child,
    answers: Mutex<BufReader<ChildStdout>>,
}

/// The server, started if no test holds it; `None` when there is no PostgreSQL here, which has then been said.
///
/// # Panics
///
/// Where the tests must not be skipped: when `CI` is set.
pub(crate) fn server() -> Option<Arc<Server>> {
    static RUNNING: Mutex<Weak<Server>> = Mutex::new(Weak::new());
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = running.upgrade() {
        return Some(server);
    }
    let server = Arc::new(start_own()?);
    *running = Arc::downgrade(&server);
    Some(server)
}

/// A server that nobody else uses.
pub(crate) fn start_own() -> Option<Server> {
    start_with(SETTINGS)
}

/// A server with these settings.
pub(crate) fn start_with(settings: &str) -> Option<Server> {
    match find_programs().and_then(|programs| Ok((programs, Account::find()?))) {
        Ok((programs, account)) => Some(Server::start(&programs, &account, settings)),
        Err(reason) => {
            assert!(std::env::var_os("CI").is_none(), "in CI nothing is skipped: {reason}");
            // Not by a macro: the harness would keep it for itself.
            writeln!(std::io::stderr(), "SKIP: {reason}").unwrap();
            None
        }
    }
}

/// Starts and stops the server as it is told, a line at a time, and stops it at the end of its input, which comes when the
/// process of the tests ends, in whatever way. The server is its child, so nobody else has to clear it away.
const JANITOR: &str = r#"
stop() {
  if [ -n "$server" ]; then
    kill -QUIT "$server"
    wait "$server"
    server=
  fi
}
while read -r order; do
  case $order in
    start)
      "$1/postgres" -D "$2/data" </dev/null >>"$2/log" 2>&1 &
      server=$!
      ;;
    stop) stop ;;
  esac
  echo done
done
stop
rm -rf "$2"
"#;

impl Server {
    fn start(programs: &Path, account: &Account, settings: &str) -> Self {
        let folder = account.make_folder();
        let mut janitor = account.command(Path::new("sh"));
        janitor.args(["-c", JANITOR, "janitor"]).args([programs, &folder]);
        janitor.stdin(Stdio::piped()).process_group(0);
        janitor.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut janitor = janitor.spawn().unwrap();
        let answers = Mutex::new(BufReader::new(janitor.stdout.take().unwrap()));
        let server = Self { folder, janitor, answers };
        server.fill(programs, account, settings);
        server.order("start");
        server.wait();
        server
    }

    /// Has the server stopped, which it then is, or started, which takes until it can be connected to: whoever connects to one that
    /// was to be stopped may find the one that was there.
    pub(crate) fn order(&self, order: &str) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(self.janitor.stdin.as_ref().unwrap(), "{order}").unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n", "{order}: the server's janitor has gone");
    }

    fn fill(&self, programs: &Path, account: &Account, chosen: &str) {
        let data = self.folder.join("data");
        let mut initdb = account.command(&programs.join("initdb"));
        initdb.args("--auth=trust --encoding=UTF8 --locale=C --no-sync".split(' '));
        initdb.args(["--username", NAME, "-D"]).arg(&data);
        let made = initdb.output().unwrap();
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "initdb: {said}");
        let settings = data.join("postgresql.conf");
        let mut settings = OpenOptions::new().append(true).open(settings).unwrap();
        let folder = self.folder().display();
        writeln!(settings, "{chosen}unix_socket_directories = '{folder}'").unwrap();
    }

    /// Waits until connections are taken.
    fn wait(&self) {
        let bound = Instant::now() + Duration::from_secs(120);
        while let Err(error) = self.config().connect(NoTls) {
            let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            let is_fatal = |line: &str| {
                line.contains("FATAL:")
                    && !["starting up", "shutting down", "terminating", "not yet accepting", "recovery"]
                        .iter()
                        .any(|word| line.contains(word))
            };
            let is_over = log.lines().any(is_fatal) || Instant::now() > bound;
            assert!(!is_over, "PostgreSQL does not start: {error}\n{log}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The folder that its socket is in.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn config(&self) -> Config {
        let mut config = Config::new();
        config.host_path(&self.folder).user(NAME).dbname("postgres");
        config
    }

    /// The address of its database.
    pub(crate) fn database(&self) -> String {
        format!("postgres://{NAME}@/postgres?host={}", self.folder.display())
    }

    /// The address of a store that does not exist yet.
    pub(crate) fn address(&self) -> String {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        format!("{}&schema=fresh_{number}", self.database())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        if let Err(error) = self.janitor.wait() {
            eprintln!("the server in {} may still run: {error}", self.folder.display());
        }
    }
}

/// The folder of the oldest `initdb` and `postgres` that serve: the statements must work there too.
pub(crate) fn find_programs() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    for (parent, prefix) in [("/usr/lib/postgresql", ""), ("/usr", "pgsql-"), ("/opt/homebrew/opt", "postgresql")] {
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
        let versions = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
        folders.extend(versions.map(|entry| entry.path().join("bin")));
    }
    let complete = |folder: &PathBuf| folder.join("initdb").is_file() && folder.join("postgres").is_file();
    let found = folders.into_iter().filter(complete).filter_map(|folder| Some((version_of(&folder)?, folder)));
    let best = found.filter(|(version, _)| *version >= OLDEST).min_by_key(|(version, _)| *version);
    best.map(|(_, folder)| folder)
        .ok_or_else(|| format!("no server programs of PostgreSQL {OLDEST} or newer; `./scripts/test` installs them"))
}

fn version_of(programs: &Path) -> Option<u32> {
    let said = Command::new(programs.join("initdb")).arg("--version").output().ok()?.stdout;
    let version = String::from_utf8(said).ok()?.split_whitespace().nth(2)?.to_owned();
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Who runs the server: PostgreSQL refuses to be run by root.
#[derive(Debug, Clone, Copy)]
struct Account {
    other: Option<(u32, u32)>,
}

impl Account {
    fn find() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self { other: None });
        }
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let ids = |name: &str| {
            let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
            let mut fields = line.split(':').skip(2);
            Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
        };
        let other = ids("postgres").or_else(|| ids("nobody"));
        other
            .map(|ids| Self { other: Some(ids) })
            .ok_or_else(|| "root has no other user to run PostgreSQL as".to_owned())
    }

    fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // The settings of the caller's own server are none of ours.
        let inherited = std::env::vars_os().map(|(name, _)| name);
        for name in inherited.filter(|name| name.to_string_lossy().starts_with("PG")) {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C").current_dir("/");
        if let Some((user, group)) = self.other {
            command.uid(user).gid(group);
        }
        command
    }

    /// A folder that this account owns and can reach, with a name short enough for a socket in it.
    fn make_folder(self) -> PathBuf {
        let folder = tempfile::Builder::new().prefix("threadkeep-pg-").tempdir_in("/tmp").unwrap();
        if let Some((user, group)) = self.other {
            std::os::unix::fs::chown(folder.path(), Some(user), Some(group)).unwrap();
        }
        folder.keep()
    }
}
