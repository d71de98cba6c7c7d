//! Programs of the machine that the suites need: strace, a C compiler, mounts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;
use crate::report::Stop;

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a command to its end; its words when it fails.
pub(crate) fn run(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

/// Runs a command as root, where that needs no password.
fn as_root(words: &[&str]) -> Result<String> {
    match words.split_first() {
        Some((program, args)) if is_root() => run(program, args),
        _ => run("sudo", &[&["-n"], words].concat()),
    }
}

/// Sees to it that a program is there; installs its package where that needs no password.
pub(crate) fn need_program(program: &str, package: &str) -> Result<()> {
    let there = |word: &str| run("sh", &["-c", &format!("command -v {word}")]).map(drop);
    there(program).or_else(|_| {
        as_root(&["apt-get", "update"])?;
        as_root(&["apt-get", "install", "-y", "--no-install-recommends", package])?;
        there(program)
    })
}

/// Installs packages and starts nothing of what is in them, where that needs no password.
pub(crate) fn install_quietly(packages: &str) -> Result<()> {
    let policy = "/usr/sbin/policy-rc.d";
    let script = format!(
        "set -e; own=; if [ ! -e {policy} ]; then own=1; printf '#!/bin/sh\\nexit 101\\n' >{policy}; chmod 755 {policy}; fi
        trap 'if [ -n \"$own\" ]; then rm -f {policy}; fi' EXIT
        export DEBIAN_FRONTEND=noninteractive
        apt-get update; apt-get install -y --no-install-recommends {packages}"
    );
    as_root(&["sh", "-c", &script]).map(drop)
}

/// Sees to it that the programs of a PostgreSQL server are there; gives their folder.
pub(crate) fn need_postgres() -> Result<PathBuf, Stop> {
    let find = || {
        let script = "ls -d /usr/lib/postgresql/*/bin /usr/pgsql-*/bin 2>/dev/null | sort -V | while read -r folder; do
            if [ -x \"$folder/postgres\" ] && [ -x \"$folder/initdb\" ]; then echo \"$folder\"; break; fi; done";
        run("sh", &["-c", script]).ok().map(|found| found.trim().to_owned()).filter(|found| !found.is_empty())
    };
    let install = || {
        install_quietly("postgresql-common")?;
        let no_cluster = "s/^#\\?create_main_cluster.*/create_main_cluster = false/";
        as_root(&["sed", "-i", no_cluster, "/etc/postgresql-common/createcluster.conf"])?;
        install_quietly("postgresql")
    };
    if let Some(found) = find() {
        return Ok(found.into());
    }
    let lacking = |words: &str| Stop::Skip {
        reason: format!("the programs of PostgreSQL are missing and can't be installed: {words}"),
        by_system: false,
    };
    install().map_err(|words| lacking(&words))?;
    find().map(PathBuf::from).ok_or_else(|| lacking("they are not where they were looked for"))
}

/// Unmounts what is mounted at a place; whoever was killed may still be letting its files go.
pub(crate) fn unmount(place: &Path) -> Result<()> {
    let mut outcome = Ok(());
    for _ in 0..100 {
        outcome = run("umount", &[&place.display().to_string()]).map(drop);
        if outcome.is_ok() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    outcome
}

/// Sees to it that strace is there and may trace.
pub(crate) fn need_strace() -> Result<(), Stop> {
    if need_program("strace", "strace").is_err() {
        return Err(Stop::Skip { reason: "strace is missing and can't be installed".to_owned(), by_system: false });
    }
    let probe = run("strace", &["-f", "-qq", "-o", "/dev/null", "-e", "inject=fsync:error=EIO:when=1", "true"]);
    probe.map(drop).map_err(|words| Stop::Skip {
        reason: format!("the kernel feature ptrace is not allowed here: {words}"),
        by_system: true,
    })
}

/// Builds a C source; a library to preload, or a program.
pub(crate) fn compile(source: &str, folder: &Path, name: &str, shared: bool) -> Result<PathBuf, Stop> {
    let (input, output) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&input, source).map_err(|error| Stop::Broken(error.to_string()))?;
    let (input, out) = (input.display().to_string(), output.display().to_string());
    let mut args = vec!["-O1", "-o", &out, &input];
    if shared {
        args.extend(["-shared", "-fPIC", "-ldl"]);
    }
    match run("cc", &args) {
        Ok(_) => Ok(output),
        Err(reason) => Err(Stop::Skip { reason, by_system: false }),
    }
}

/// Copies a folder and what is below it.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let told = |error: std::io::Error| format!("copying {}: {error}", from.display());
    std::fs::create_dir_all(to).map_err(told)?;
    for entry in std::fs::read_dir(from).map_err(told)? {
        let entry = entry.map_err(told)?;
        let target = to.join(entry.file_name());
        if entry.file_type().map_err(told)?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target).map_err(told)?;
        }
    }
    Ok(())
}

/// Puts a fresh copy of a store in the place of the last one.
pub(crate) fn fresh_copy(template: &Path, store: &Path) -> Result<()> {
    if store.exists() {
        std::fs::remove_dir_all(store).map_err(|error| format!("removing {}: {error}", store.display()))?;
    }
    if template.exists() { copy_folder(template, store) } else { Ok(()) }
}

/// A fault that strace injects into calls of one name.
#[derive(Debug, Clone)]
pub(crate) struct Injection {
    /// The system call.
    pub(crate) call: String,
    /// What happens, as strace writes it: `signal=SIGKILL`, `error=EIO`.
    pub(crate) what: String,
    /// At which call of a thread.
    pub(crate) at: u64,
    /// From that call on, for ever.
    pub(crate) sticky: bool,
}

impl Injection {
    /// Its name in a report.
    pub(crate) fn words(&self) -> String {
        format!("{} {} at {}{}", self.call, self.what, self.at, if self.sticky { " and after" } else { "" })
    }
}

/// A command under strace. With `only` set it sees nothing but calls on the files of a store.
pub(crate) fn strace(
    inner: &Command,
    only: Option<&Path>,
    trace: &str,
    fault: Option<&Injection>,
    log: &Path,
) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-y", "-s", "24", "-e", "signal=none", "-o"]).arg(log);
    command.arg("-e").arg(format!("trace={trace}"));
    if let Some(store) = only {
        let names = ["threadkeep.db", "threadkeep.db-wal", "threadkeep.db-shm", "threadkeep.db-journal", "open.lock"];
        let names = names.into_iter().chain(["write.gate", "write.line", "holders"]);
        for path in names.map(|name| store.join(name)).chain([store.to_owned()]) {
            command.arg("-P").arg(path);
        }
    }
    if let Some(Injection { call, what, at, sticky }) = fault {
        let forever = if *sticky { "+" } else { "" };
        command.arg("-e").arg(format!("inject={call}:{what}:when={at}{forever}"));
    }
    command.arg(inner.get_program()).args(inner.get_args());
    command
}

/// How often each call was made in a log, by the thread that made it most often: strace counts each thread for itself.
pub(crate) fn counted_calls(log: &Path) -> Result<Vec<(String, u64)>> {
    let text = std::fs::read_to_string(log).map_err(|error| format!("the log of strace: {error}"))?;
    let mut counts = std::collections::BTreeMap::<(&str, &str), u64>::new();
    for line in text.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let Some((call, _)) = rest.trim_start().split_once('(') else { continue };
        if call.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            *counts.entry((call, thread)).or_default() += 1;
        }
    }
    let mut most = std::collections::BTreeMap::<String, u64>::new();
    for ((call, _), count) in counts {
        let known = most.entry(call.to_owned()).or_default();
        *known = count.max(*known);
    }
    Ok(most.into_iter().collect())
}
