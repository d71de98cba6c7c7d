//! PostgreSQL servers of the suites' own. They end when nobody holds them any more, and when the suites end, in whatever way.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use postgres::NoTls;
use rustix::process::Signal;

use crate::Result;
use crate::child::{Child, HANG};
use crate::report::Stop;
use crate::tools;

/// Whom the servers know.
pub(crate) const USER: &str = "threadkeep";
/// Who runs the servers where this is root, which PostgreSQL refuses to be run by.
const ACCOUNT: &str = "postgres";
/// Nothing that a power cut would have to be survived for, and small enough for any machine.
const SETTINGS: &str = "
fsync = off
full_page_writes = off
max_connections = 1000
shared_buffers = 32MB
max_wal_size = 256MB
dynamic_shared_memory_type = mmap
";

/// A server with its data.
#[derive(Debug)]
pub(crate) struct Server {
    folder: PathBuf,
    programs: PathBuf,
    /// What it runs behind, if anything.
    wrapper: Vec<String>,
    running: Mutex<Option<Child>>,
}

impl Server {
    /// Makes a server behind the words of another program, if there are any, with settings beside the usual ones, and starts it.
    pub(crate) fn start(wrapper: &[&str], settings: &str) -> Result<Self, Stop> {
        let programs = tools::need_postgres()?;
        let wrapper = wrapper.iter().map(|word| (*word).to_owned()).collect();
        let server = Self { folder: own_folder()?, programs, wrapper, running: Mutex::default() };
        server.fill(settings)?;
        server.go_on()?;
        Ok(server)
    }

    fn fill(&self, settings: &str) -> Result<()> {
        let told = |error: std::io::Error| format!("the settings of a server: {error}");
        let initdb = self.programs.join("initdb").display().to_string();
        let data = self.data().display().to_string();
        let args = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--username", USER, "-D", &data];
        let words = [&as_account()[..], &[initdb.as_str()], &args].concat();
        let (program, args) = words.split_first().ok_or("no program")?;
        tools::run(program, args)?;
        let append = |name: &str| OpenOptions::new().append(true).open(self.data().join(name));
        let mut file = append("pg_hba.conf").map_err(told)?;
        writeln!(file, "host all all samenet trust").map_err(told)?;
        let mut file = append("postgresql.conf").map_err(told)?;
        let folder = self.folder.display();
        let listen = if settings.contains("listen_addresses") { "" } else { "listen_addresses = ''" };
        writeln!(file, "{SETTINGS}{listen}\nunix_socket_directories = '{folder}'\n{settings}").map_err(told)
    }

    /// Where its data is.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Where its socket is.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts it, where it does not run, and waits until it takes connections.
    pub(crate) fn go_on(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            self.launch()?;
            // Whoever was killed may still hold its memory; then the server ends at once and is started again.
            match self.admin() {
                Ok(_) => return Ok(()),
                Err(words) if begun.elapsed() > HANG => {
                    let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                    let last: Vec<&str> = log.lines().rev().take(5).collect();
                    return Err(format!("PostgreSQL does not start: {words}: {last:?}"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    fn launch(&self) -> Result<()> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.as_ref().is_some_and(Child::is_alive) {
            return Ok(());
        }
        let wrapper = self.wrapper.iter().map(String::as_str).chain(as_account());
        let mut words = wrapper.chain(["sh", "-c", "exec \"$0\" -D \"$1/data\" >>\"$1/log\" 2>&1"]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).arg(self.programs.join("postgres")).arg(&self.folder).current_dir("/").env("LC_ALL", "C");
        *running = Some(Child::start(command)?);
        Ok(())
    }

    /// Ends it at once, without a checkpoint, and waits until it has ended.
    pub(crate) fn stop(&self) -> Result<()> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(child) = running else { return Ok(()) };
        child.signal(Signal::QUIT);
        child.finish().map(drop)
    }

    /// Kills it with no chance to tell anybody.
    pub(crate) fn kill(&self) {
        drop(self.running.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// A connection of its owner.
    pub(crate) fn admin(&self) -> Result<postgres::Client> {
        let mut config = postgres::Config::new();
        config.host_path(&self.folder).user(USER).dbname("postgres").application_name("torture");
        config.connect(NoTls).map_err(|error| error.to_string())
    }

    /// The address of a store on it.
    pub(crate) fn address(&self, schema: &str) -> String {
        format!("postgres://{USER}@/postgres?host={}&schema={schema}", self.folder.display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop());
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// The words that run a program as who may run PostgreSQL, and end it with the one that started it.
pub(crate) fn as_account() -> Vec<&'static str> {
    if !tools::is_root() {
        return vec!["setpriv", "--pdeathsig", "KILL"];
    }
    vec!["setpriv", "--reuid", ACCOUNT, "--regid", ACCOUNT, "--clear-groups", "--pdeathsig", "KILL"]
}

/// A folder in memory that belongs to who runs PostgreSQL, with a name short enough for a socket in it.
pub(crate) fn own_folder() -> Result<PathBuf> {
    let folder = crate::plan::fast_folder()?.keep();
    if tools::is_root() {
        let owner = format!("{ACCOUNT}:{ACCOUNT}");
        tools::run("chown", &[&owner, &folder.display().to_string()])?;
    }
    Ok(folder)
}
