//! The turns of G1 through LangGraph's PostgreSQL checkpointer, in a database of its own on the same server.

use std::path::{Path, PathBuf};
use std::process::Command;

use postgres::{Client, NoTls};

use crate::measure::quantile;
use crate::plan::Plan;
use crate::report::{Report, Target};
use crate::{Error, Result};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/langgraph_postgres.py");
/// What is measured; newer ones may be slower or faster.
const PACKAGES: [&str; 2] = ["langgraph-checkpoint-postgres==3.2.0", "psycopg[binary]==3.3.9"];
/// Among how many processes the writers are divided: one process of Python would hold them back.
const PROCESSES: usize = 4;
const DATABASE: &str = "threadkeep_bench_langgraph";

/// Runs the turns and compares them with our rate, where the plan names a Python to run them with.
///
/// # Errors
/// When the packages can't be installed, or the peer fails.
pub fn turns(plan: &Plan, server: &str, ours: f64, report: &mut Report) -> Result<()> {
    let Some(python) = &plan.python else {
        report.note("G1: LangGraph's checkpointer was not measured: BENCH_PYTHON names no Python");
        return Ok(());
    };
    let folder = tempfile::Builder::new().prefix("threadkeep-bench-python-").tempdir_in(&plan.root)?;
    let python = install(python, folder.path())?;
    let address = fresh_database(server)?;
    let threads = plan.sizes.writers.div_ceil(PROCESSES);
    let each = plan.sizes.calls_of_all.div_ceil(plan.sizes.writers);
    let mut rates = Vec::new();
    for _ in 0..plan.sizes.server_rounds {
        let mut command = Command::new(&python);
        command.args([SCRIPT, &address]).args([PROCESSES, threads, each].map(|number| number.to_string()));
        rates.push(said(&mut command)?.trim().parse::<f64>()?);
    }
    let theirs = quantile(&rates, 500);
    let writers = PROCESSES * threads;
    let what = format!("… against {writers} writers through LangGraph's PostgreSQL checkpointer ({})", PACKAGES[0]);
    let sides = (format!("{ours:.0}/s"), format!("{theirs:.0}/s"));
    report.compare("G1", what, sides, ours / theirs, Target::AtLeast(1.0));
    Ok(())
}

/// Makes an environment with the peer in it; gives its Python.
fn install(python: &Path, folder: &Path) -> Result<PathBuf> {
    said(Command::new(python).args(["-m", "venv"]).arg(folder))?;
    let python = folder.join("bin/python");
    said(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES))?;
    Ok(python)
}

/// The server's address with an empty database instead of the one that it names.
fn fresh_database(server: &str) -> Result<String> {
    let mut client = Client::connect(server, NoTls)?;
    client.batch_execute(&format!("DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)"))?;
    client.batch_execute(&format!("CREATE DATABASE {DATABASE}"))?;
    let (before, parameters) = server.split_once('?').ok_or("the address has no parameters")?;
    let (authority, _) = before.rsplit_once('/').ok_or("the address names no database")?;
    Ok(format!("{authority}/{DATABASE}?{parameters}"))
}

fn said(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Error::from(format!("{command:?}: {words}")));
    }
    Ok(String::from_utf8(output.stdout)?)
}
