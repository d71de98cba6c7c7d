//! `cargo bench -p threadkeep-bench [-- [--quick] [P1 P4 …]]`; `BENCH_ROOT` names the folder for the stores.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints its table, and its progress beside it"
)]

use std::path::PathBuf;
use std::time::Instant;

use threadkeep_bench::plan::{Plan, Sizes};

fn main() -> threadkeep_bench::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // Without `--bench` this is a test that it runs.
    let quick = args.iter().any(|arg| arg == "--quick") || !args.iter().any(|arg| arg == "--bench");
    let plan = Plan {
        only: args.into_iter().filter(|arg| !arg.starts_with('-')).collect(),
        root: std::env::var_os("BENCH_ROOT").map_or_else(std::env::temp_dir, PathBuf::from),
        writers_program: env!("CARGO_BIN_EXE_threadkeep-bench-writers").into(),
        sizes: if quick { Sizes::QUICK } else { Sizes::FULL },
    };
    let start = Instant::now();
    let report =
        threadkeep_bench::run(&plan, &mut |what| eprintln!("{:>6.1} s  {what}", start.elapsed().as_secs_f64()))?;
    eprintln!("{:>6.1} s  done", start.elapsed().as_secs_f64());
    print!("{report}");
    Ok(())
}
