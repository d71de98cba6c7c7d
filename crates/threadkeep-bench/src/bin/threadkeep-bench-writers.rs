//! A process of writers, which the benchmark starts.

fn main() -> threadkeep_bench::Result<()> {
    threadkeep_bench::contention::writers::play(std::env::args().skip(1))
}
