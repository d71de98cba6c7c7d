//! Bundles on the command line: written by `export --bundle`, taken in by `import`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use threadkeep::blocking::Store;
use threadkeep::{
    Bundle, BundleOptions, BundleReport, CopyProgress, CopyReport, Error, FolderMove, Rules, SystemHost, TakeBundle,
    ThreadId,
};

use crate::encryption::{DecryptionArgs, EncryptionArgs};
use crate::errors::{Failure, Report};

const BAR: &str = "{spinner} {pos:>10} of {len} items {wide_bar} {eta:>4}  {msg}";
/// Enough of a file to see what it is.
const HEAD_BYTES: u64 = 64;

/// How a bundle is read.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Bundles")]
pub(crate) struct TakingArgs {
    /// A folder that the threads name, and what it is on this machine; may be given several times
    #[arg(long = "move", value_name = "FROM=TO", value_parser = parse_move)]
    moves: Vec<FolderMove>,
    #[command(flatten)]
    decryption: DecryptionArgs,
}

impl TakingArgs {
    /// Whether something was said of how a bundle is to be read.
    pub(crate) fn is_given(&self) -> bool {
        !self.moves.is_empty() || self.decryption.is_given()
    }
}

fn parse_move(text: &str) -> Result<FolderMove, String> {
    match text.split_once('=') {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => {
            Ok(FolderMove { from: from.to_owned(), to: to.to_owned() })
        }
        _ => Err("it is FROM=TO, two folders".to_owned()),
    }
}

/// Writes threads as a bundle to where the encryption leads.
pub(crate) fn write(
    store: &Store,
    threads: &[ThreadId],
    what: Written<'_>,
    out: &mut (dyn std::io::Write + Send),
) -> Result<BundleReport, Failure> {
    let options = BundleOptions { scratch: what.scratch.to_owned(), mask: what.mask, with_seals: what.with_seals };
    let bar = Bar::new();
    what.encryption.write(out, |out| {
        let report = store.write_bundle(threads, &options, out, &mut |so_far| bar.show(so_far))?;
        bar.0.finish_and_clear();
        Ok(report)
    })
}

/// How a bundle is written.
#[derive(Debug)]
pub(crate) struct Written<'a> {
    /// A folder with room for the threads twice.
    pub(crate) scratch: &'a Path,
    pub(crate) mask: Option<Rules>,
    pub(crate) with_seals: bool,
    pub(crate) encryption: &'a EncryptionArgs,
}

/// Whether a file is a bundle, or something encrypted, which nothing else that is imported is.
pub(crate) fn is_bundle(path: &Path) -> bool {
    let mut head = Vec::new();
    let is_file = path.metadata().is_ok_and(|meta| meta.is_file());
    let read = is_file && File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head)).is_ok();
    read && (Bundle::is_bundle(&head) || DecryptionArgs::is_encrypted(&head))
}

/// What was taken of a bundle.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) file: PathBuf,
    pub(crate) bundle: Bundle,
    /// Nothing with a dry run.
    pub(crate) report: Option<CopyReport>,
    /// Threads of the bundle that the store did not have.
    pub(crate) new: u64,
}

impl Taken {
    /// How many items the threads of the bundle have.
    pub(crate) fn items(&self) -> u64 {
        self.bundle.manifest().threads.iter().map(|thread| thread.items).sum()
    }

    /// What machines read.
    pub(crate) fn document(&self) -> Value {
        let manifest = self.bundle.manifest();
        json!({
            "file": self.file,
            "created_at": manifest.created_at,
            "masked": manifest.masked,
            "sealed_by": self.bundle.sealed_by(),
            "threads": manifest.threads,
        })
    }
}

/// Opens a bundle and takes its threads into the store, or only looks at it.
pub(crate) fn take(path: &Path, args: &TakingArgs, store: &Store, dry_run: bool) -> Result<Taken, Failure> {
    let bundle = open(path, &args.decryption)?;
    let threads = &bundle.manifest().threads;
    let new =
        threads.iter().filter(|thread| matches!(store.get(&thread.id), Err(Error::NotFound { .. }))).count() as u64;
    let mut report = None;
    if !dry_run {
        let bar = Bar::new();
        let what = TakeBundle { threads: None, moves: args.moves.clone() };
        report = Some(store.take_bundle(&bundle, what, &mut |so_far| bar.show(so_far))?);
        bar.0.finish_and_clear();
    }
    Ok(Taken { file: path.to_owned(), bundle, report, new })
}

fn open(path: &Path, decryption: &DecryptionArgs) -> Result<Bundle, Failure> {
    let failed = |error: &std::io::Error| Error::Io {
        operation: "open",
        path: path.display().to_string(),
        kind: error.kind(),
        detail: error.to_string(),
    };
    let mut head = Vec::new();
    let file = File::open(path).map_err(|error| failed(&error))?;
    (&file).take(HEAD_BYTES).read_to_end(&mut head).map_err(|error| failed(&error))?;
    let file = File::open(path).map_err(|error| failed(&error))?;
    let mut input: Box<dyn Read + Send> =
        if DecryptionArgs::is_encrypted(&head) { decryption.read(file, path)? } else { Box::new(file) };
    let opened = Store::open_bundle(&mut *input, &std::env::temp_dir(), Arc::new(SystemHost));
    opened.map_err(|error| match error {
        Error::Corrupt { place, detail } => {
            let place = format!("{}: {place}", path.display());
            let report = crate::errors::report(&Error::Corrupt { place, detail });
            report.hint("it was cut or changed on its way; make it again with `export --bundle`").into()
        }
        Error::Invalid { field: "bundle", reason } => {
            Report::usage(format!("{}: what it holds is no bundle: {reason}", path.display())).into()
        }
        other => other.into(),
    })
}

/// Draws on standard error, and only when that is a terminal.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template(BAR) {
            bar.set_style(style);
        }
        Self(bar)
    }

    fn show(&self, so_far: CopyProgress) {
        self.0.set_length(so_far.items_total);
        self.0.set_position(so_far.items_done);
        self.0.set_message(format!("{}/{} threads", so_far.threads_done, so_far.threads_total));
    }
}
