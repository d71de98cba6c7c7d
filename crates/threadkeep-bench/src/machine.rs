//! What the figures were measured on.

use std::fs::{File, read_to_string};
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use crate::Result;
use crate::measure::quantile;
use crate::report::time;

/// The processor, the system and the versions, in one line.
pub fn describe() -> String {
    let line = |path: &str, key: &str| {
        let text = read_to_string(path).unwrap_or_default();
        let found = text.lines().find_map(|line| line.strip_prefix(key));
        found.map_or_else(|| "?".to_owned(), |found| found.trim_matches([' ', '\t', ':']).to_owned())
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu = line("/proc/cpuinfo", "model name");
    let kernel = line("/proc/sys/kernel/osrelease", "");
    let sqlite = rusqlite::version();
    format!("{cpus} CPUs ({cpu}), Linux {kernel}, SQLite {sqlite}")
}

/// What else the machine did in the last minute: the processes that ran or waited for a CPU or the disk, this one included.
pub fn load() -> String {
    let load = read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or("?").to_owned()
}

/// What this process holds in memory, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Now.
    pub now: f64,
    /// At most, since this was last asked.
    pub peak: f64,
}

/// What this process holds; `None` where the system does not tell it.
///
/// # Errors
/// When the system tells it in other words.
pub fn memory() -> Result<Option<Memory>> {
    let Ok(status) = read_to_string("/proc/self/status") else { return Ok(None) };
    let kibibytes = |key: &str| -> Result<f64> {
        let line =
            status.lines().find_map(|line| line.strip_prefix(key)).ok_or("the memory of a process is not told")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0)
    };
    let memory = Memory { now: kibibytes("VmRSS:")?, peak: kibibytes("VmHWM:")? };
    // The next peak counts from here.
    std::fs::write("/proc/self/clear_refs", "5")?;
    Ok(Some(memory))
}

/// How long the disk takes to sync 12 KiB at the end of a file: median and 99th percentile. Virtual disks change their mind
/// about it from one minute to the next, and whatever is synced goes with it.
///
/// # Errors
/// When the file can't be written.
pub fn sync_time(root: &Path, calls: usize) -> Result<String> {
    let path = root.join("sync-time");
    let mut file = File::create(&path)?;
    let mut seconds = Vec::new();
    for _ in 0..calls {
        file.write_all(&[1; 12 << 10])?;
        let start = Instant::now();
        file.sync_data()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    std::fs::remove_file(path)?;
    Ok(format!("{} / {}", time(quantile(&seconds, 500)), time(quantile(&seconds, 990))))
}
