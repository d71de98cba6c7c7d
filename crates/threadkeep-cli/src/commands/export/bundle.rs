//! `threadkeep export --bundle`

use std::io::IsTerminal as _;
use std::path::Path;

use clap::Args;
use serde_json::json;
use threadkeep::{BundleReport, Rules, ThreadId};

use super::ExportArgs;
use super::file::write_whole;
use crate::bundles::{self, Written};
use crate::commands::App;
use crate::encryption::EncryptionArgs;
use crate::errors::{Code, Failure, Outcome, Report};
use crate::human;
use crate::output;
use crate::style::Ink;

/// How threads become one file.
#[derive(Debug, Args)]
#[command(next_help_heading = "Bundles")]
pub(super) struct BundleArgs {
    /// Carry the store's seals too, which name all of its threads: proof that nothing was cut
    #[arg(long, requires = "bundle")]
    with_seals: bool,
    #[command(flatten)]
    encryption: EncryptionArgs,
}

pub(super) fn run(args: &ExportArgs, app: &mut App) -> Outcome {
    let store = app.read()?;
    let threads = args.threads.iter().map(|name| Ok(store.find(name)?)).collect::<Result<Vec<ThreadId>, Failure>>()?;
    let mask = mask(args)?;
    let what = |scratch| Written {
        scratch,
        mask: mask.clone(),
        with_seals: args.bundling.with_seals,
        encryption: &args.bundling.encryption,
    };
    let Some(path) = &args.output else {
        if std::io::stdout().is_terminal() {
            return Err(Report::usage("a bundle is no text").hint("give -o FILE, or lead it into a program").into());
        }
        let mut out = std::io::stdout();
        tell(&bundles::write(&store, &threads, what(&std::env::temp_dir()), &mut out)?);
        return Ok(Code::Done);
    };
    // Where the bundle goes there is room for it; but what is to be read by some alone is nowhere else than here.
    let beside = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let scratch = if args.bundling.encryption.is_wanted() { std::env::temp_dir() } else { beside.to_owned() };
    let report = write_whole(path, |file| bundles::write(&store, &threads, what(&scratch), file))?;
    if app.out.is_json() {
        let bundle = &report.manifest;
        app.out.document(&json!({
            "file": path,
            "bytes": report.bytes,
            "threads": bundle.threads,
            "masked": bundle.masked,
            "masked_items": report.masked_items,
            "sealed": bundle.anchors.is_some(),
            "encrypted": args.bundling.encryption.is_wanted(),
        }))?;
    } else {
        let threads = human::counted(report.manifest.threads.len() as u64, "thread", "threads");
        let size = human::bytes(i64::try_from(report.bytes).unwrap_or(i64::MAX));
        app.out.line(format!("Wrote {threads} ({size}) to {}", path.display()))?;
        tell(&report);
    }
    Ok(Code::Done)
}

/// What is masked: what is known to be a secret, and what was named besides.
fn mask(args: &ExportArgs) -> Result<Option<Rules>, Failure> {
    match args.masking.rules()? {
        _ if args.unmasked => Ok(None),
        Some(more) => Ok(Some(Rules::maintained()?.and(&more))),
        None => Ok(Some(Rules::maintained()?)),
    }
}

fn tell(report: &BundleReport) {
    if report.masked_items > 0 {
        let items = human::counted(report.masked_items, "item", "items");
        let words = format!("secrets in {items} are masked in the bundle; --unmasked leaves them as they are");
        output::tell(Ink::Warn, "note", &words);
    }
}
