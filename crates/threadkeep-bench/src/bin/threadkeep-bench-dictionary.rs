//! Trains the dictionary that content is compressed with, on what a store keeps of the files in some folders.

fn main() -> threadkeep_bench::Result<()> {
    threadkeep_bench::dictionary::make(std::env::args_os().skip(1))
}
