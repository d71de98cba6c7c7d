//! `cargo bench -p threadkeep-bench [-- [--quick] [P1 P4 …]]`; `BENCH_ROOT` names the folder for the stores,
//! `BENCH_PYTHON` the Python that a peer is installed with and measured, `BENCH_ITEMS` the number of items that are searched.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints its table, and its progress beside it"
)]

#[path = "../../threadkeep/tests/postgres/server.rs"]
#[expect(dead_code, clippy::unwrap_used, clippy::explicit_write, clippy::print_stderr, reason = "the tests' server")]
mod server;

use std::path::PathBuf;
use std::time::Instant;

use threadkeep_bench::plan::{Plan, Sizes};

/// Every commit is synced, as a server does that nobody has set.
const SETTINGS: &str = "
listen_addresses = ''
max_connections = 400
shared_buffers = 256MB
";

fn main() -> threadkeep_bench::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // Without `--bench` this is a test that it runs.
    let quick = args.iter().any(|arg| arg == "--quick") || !args.iter().any(|arg| arg == "--bench");
    let only: Vec<String> = args.into_iter().filter(|arg| !arg.starts_with('-')).collect();
    let wants = |id: &str| only.is_empty() || only.iter().any(|it| it.eq_ignore_ascii_case(id));
    let own = if ["G1", "G2", "G3"].into_iter().any(wants) { server::start_with(SETTINGS) } else { None };
    let mut sizes = if quick { Sizes::QUICK } else { Sizes::FULL };
    if let Some(items) = std::env::var_os("BENCH_ITEMS") {
        sizes.corpus = items.to_string_lossy().parse()?;
    }
    let plan = Plan {
        only,
        server: own.as_ref().map(server::Server::database),
        python: std::env::var_os("BENCH_PYTHON").map(PathBuf::from),
        root: std::env::var_os("BENCH_ROOT").map_or_else(std::env::temp_dir, PathBuf::from),
        writers_program: env!("CARGO_BIN_EXE_threadkeep-bench-writers").into(),
        sizes,
    };
    let start = Instant::now();
    let report =
        threadkeep_bench::run(&plan, &mut |what| eprintln!("{:>6.1} s  {what}", start.elapsed().as_secs_f64()))?;
    eprintln!("{:>6.1} s  done", start.elapsed().as_secs_f64());
    print!("{report}");
    Ok(())
}
