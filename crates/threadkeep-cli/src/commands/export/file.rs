//! Writing a file that is there whole or not at all.

use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use threadkeep::Error;

use crate::errors::{Failure, Report};

/// Writes beside the file, for its owner alone, and puts it in place when it is whole.
pub(super) fn write_whole<T>(
    path: &Path,
    fill: impl FnOnce(&mut (dyn Write + Send)) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let name = path
        .file_name()
        .filter(|_| !path.is_dir())
        .ok_or_else(|| Report::usage(format!("{} is not the name of a file", path.display())))?;
    // A device, or a program that reads, is no place for a file to be put.
    if path.metadata().is_ok_and(|meta| !meta.is_file()) {
        let report = Report::usage(format!("{} is no file", path.display()));
        return Err(report.hint("without -o it is written to standard output, which can lead there").into());
    }
    let failed = |operation, error: &std::io::Error| Error::Io {
        operation,
        path: path.display().to_string(),
        kind: error.kind(),
        detail: error.to_string(),
    };
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(hidden);
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(&part);
    let mut file = BufWriter::new(file.map_err(|error| failed("create", &error))?);
    let written = fill(&mut file).and_then(|written| {
        file.flush()?;
        file.get_ref().sync_all()?;
        fs::rename(&part, path).map_err(|error| failed("write", &error))?;
        Ok(written)
    });
    if written.is_err() {
        // The failure is told; that a part of the file stays too would only distract from it.
        let _ = fs::remove_file(&part);
    }
    written
}
