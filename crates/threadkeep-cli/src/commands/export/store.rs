//! Threads as a store of an agent that keeps its sessions in one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use threadkeep::ThreadId;
use threadkeep::blocking::Store;
use threadkeep_agents::codec::Codec;
use threadkeep_agents::export::{Before, Exported, Mask, StoreExport, codec_for, has_store, install_store};

use super::super::App;
use super::{ExportArgs, file, to};
use crate::errors::{Code, Failure, Outcome, Report};
use crate::masking::Veil;
use crate::names::Target;
use crate::style::Ink;
use crate::{human, output};

/// A codec, and the threads that become a store of its agent.
pub(super) type Wanted = (Arc<dyn Codec>, Vec<ThreadId>);

/// What becomes a store, if something does: whole threads, of an agent that keeps its sessions in one.
///
/// # Errors
/// A usage error for options that mean nothing for such an agent.
pub(super) fn wanted(
    args: &ExportArgs,
    agent: &str,
    store: &Store,
    is_placed: bool,
) -> Result<Option<Wanted>, Failure> {
    let codec = codec_for(agent)?;
    if !has_store(&*codec) {
        return Ok(None);
    }
    if args.placing.overwrite {
        let report = Report::usage("a store that is there is never replaced, so --overwrite has no meaning");
        return Err(report.into());
    }
    let alone = || alone(args, agent, is_placed).map(|()| None);
    if args.placing.cwd.is_some() {
        return alone();
    }
    let mut threads = Vec::new();
    for name in &args.threads {
        let target = Target::find(store, name)?;
        if target.address(store, None)?.is_some() {
            return alone();
        }
        threads.push(target.thread);
    }
    Ok(Some((codec, threads)))
}

/// Whether one path of a thread, or one that goes on elsewhere, can be written: it is a file of its own.
fn alone(args: &ExportArgs, agent: &str, is_placed: bool) -> Result<(), Failure> {
    if is_placed {
        let report = Report::usage(format!("one path of {agent} is written with -o FILE alone"));
        return Err(report
            .hint("--home and --install put a store of whole threads there, without @DEPTH and --cwd")
            .into());
    }
    args.output.as_deref().map_or(Ok(()), is_free)
}

/// Exports to a store.
pub(super) fn run(
    args: &ExportArgs,
    store: &Store,
    (codec, threads): (Arc<dyn Codec>, Vec<ThreadId>),
    is_placed: bool,
    app: &mut App,
) -> Outcome {
    let veil = Veil::new(&args.masking)?;
    let mask: &Mask<'_> = &|bytes| veil.bytes(bytes);
    let export = StoreExport::new(store, threads, codec, mask);
    let tell = |exported: &Exported| {
        to::tell_losses(exported);
        veil.tell(("record", "records"));
    };
    if is_placed {
        let (home, _) = to::home(export.codec(), &args.placing)?;
        let installed = install_store(&export, &home)?;
        let is_written = match installed.before {
            Before::Nothing => true,
            Before::Same => false,
            Before::Beginning | Before::Further | Before::Other => {
                let report = in_the_way(&installed.file);
                return Err(report.hint("--home DIR puts the new one elsewhere").into());
            }
        };
        tell(&installed.exported);
        if app.out.is_json() {
            let companions = installed.companions.iter().map(|path| path.display().to_string()).collect();
            app.out.document(&document(&export, &installed.file, &installed.exported, (is_written, companions)))?;
        } else if is_written {
            app.out.line(words(&export, &installed.file, &installed.exported))?;
        } else {
            app.out.line(format!("Nothing to write: {} is the same", installed.file.display()))?;
        }
        return Ok(Code::Done);
    }
    let Some(path) = &args.output else {
        tell(&export.write(&mut |bytes| app.out.bytes(bytes))?);
        return Ok(Code::Done);
    };
    is_free(path)?;
    let exported =
        file::write_whole(path, |out| export.write(&mut |bytes| out.write_all(bytes).map_err(Failure::from)))?;
    tell(&exported);
    if app.out.is_json() {
        app.out.document(&document(&export, path, &exported, (true, Vec::new())))?;
    } else {
        app.out.line(words(&export, path, &exported))?;
    }
    if !exported.companions.is_empty() {
        let files = human::counted(exported.companions.len() as u64, "file", "files");
        let told = format!("{files} beside it, which -o leaves out; they are written with --home DIR");
        output::tell(Ink::Warn, "left out", &told);
    }
    Ok(Code::Done)
}

/// Whether nothing stands where a store is to be written: no file, and no log that would be taken for one of the new store's.
fn is_free(path: &Path) -> Result<(), Failure> {
    let named = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let is_there = |file: &PathBuf| fs::metadata(file).is_ok_and(|meta| meta.is_file());
    match ["", "-wal", "-journal"].into_iter().map(named).find(is_there) {
        Some(there) => Err(in_the_way(&there).hint("-o takes the name of a file that is not there yet").into()),
        None => Ok(()),
    }
}

/// Why a store that is there is not replaced, whatever was asked.
fn in_the_way(file: &Path) -> Report {
    let message = format!("a store is there already, and its threads would be gone: {}", file.display());
    Report::new(Code::NotDone, "already-exists", message)
}

fn words(export: &StoreExport<'_>, file: &Path, exported: &Exported) -> String {
    let threads = human::counted(export.threads().len() as u64, "thread", "threads");
    let size = human::bytes(i64::try_from(exported.bytes).unwrap_or(i64::MAX));
    format!("Wrote {threads} ({size}) to {}", file.display())
}

/// What a program is told of it.
fn document(
    export: &StoreExport<'_>,
    file: &Path,
    exported: &Exported,
    (is_written, companions): (bool, Vec<String>),
) -> Value {
    let losses: Vec<Value> =
        exported.losses.iter().map(|loss| json!({"what": loss.what, "count": loss.count})).collect();
    json!({
        "threads": export.threads(),
        "agent": export.codec().agent(),
        "file": file.display().to_string(),
        "bytes": exported.bytes,
        "written": is_written,
        "records": exported.records,
        "messages": exported.messages,
        "losses": losses,
        "companions": companions,
    })
}
