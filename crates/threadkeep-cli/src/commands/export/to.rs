//! A thread as a session of an agent.

use std::env;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use threadkeep::blocking::Store;
use threadkeep_agents::codec::Codec;
use threadkeep_agents::export::{Before, Existing, Export, Exported, Installed, Mask, codec_for, install};

use super::super::App;
use super::{ExportArgs, file};
use crate::errors::{Code, Failure, Outcome, Report};
use crate::masking::{MaskingArgs, Veil};
use crate::names::Target;
use crate::style::Ink;
use crate::{human, output};

/// Where a session is put, and what may be in its way.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PlacingArgs {
    /// Put it where the agent lists it, in this home of it
    #[arg(long, value_name = "DIR", requires = "to", conflicts_with = "output")]
    pub(crate) home: Option<PathBuf>,
    /// The folder to go on in, where it is another than the thread's
    #[arg(long, value_name = "DIR", requires = "to")]
    pub(crate) cwd: Option<PathBuf>,
    /// Replace a session that is there already and differs
    #[arg(long, requires = "to")]
    pub(crate) overwrite: bool,
}

/// Exports to an agent.
pub(super) fn run(args: &ExportArgs, thread: &str, agent: &str, is_placed: bool, app: &mut App) -> Outcome {
    let store = app.read()?;
    with_export(&store, thread, agent, &args.placing, &args.masking, |export, veil| {
        if is_placed {
            let installed = put(export, &args.placing)?;
            tell_losses(&installed.exported);
            veil.tell(("record", "records"));
            if app.out.is_json() {
                app.out.document(&placed(export, &installed, &args.placing))?;
            } else {
                app.out.line(words(&installed, &args.placing))?;
            }
            return Ok(Code::Done);
        }
        let Some(path) = &args.output else {
            let exported = export.write(&mut |bytes| app.out.bytes(bytes))?;
            tell_losses(&exported);
            veil.tell(("record", "records"));
            return Ok(Code::Done);
        };
        let exported =
            file::write_whole(path, |out| export.write(&mut |bytes| out.write_all(bytes).map_err(Failure::from)))?;
        tell_losses(&exported);
        veil.tell(("record", "records"));
        if app.out.is_json() {
            app.out.document(&document(export, path, &exported))?;
        } else {
            app.out.line(format!("Wrote {} to {}", size(&exported), path.display()))?;
        }
        Ok(Code::Done)
    })
}

/// Runs something with an export of the thread, or of a path of it, that a word on the command line names.
pub(crate) fn with_export(
    store: &Store,
    thread: &str,
    agent: &str,
    placing: &PlacingArgs,
    masking: &MaskingArgs,
    run: impl FnOnce(&Export<'_>, &Veil) -> Outcome,
) -> Outcome {
    let codec = codec_for(agent)?;
    let target = Target::find(store, thread)?;
    let at = target.address(store, None)?;
    let veil = Veil::new(masking)?;
    let mask: &Mask<'_> = &|bytes| veil.bytes(bytes);
    let mut export = Export::new(store, &target.thread, at, codec, mask)?;
    if let Some(folder) = &placing.cwd {
        export = export.in_folder(std::path::absolute(folder)?);
    }
    run(&export, &veil)
}

/// Puts a session where its agent finds it; what is in its way and differs is told.
fn put(export: &Export<'_>, placing: &PlacingArgs) -> Result<Installed, Failure> {
    let (home, _) = home(export.codec(), placing)?;
    let existing = existing(placing);
    let installed = install(export, &home, existing)?;
    if installed.before == Before::Same || installed.is_written(existing) {
        return Ok(installed);
    }
    Err(in_the_way(&installed).into())
}

/// Why a session that is there is not replaced.
pub(crate) fn in_the_way(installed: &Installed) -> Report {
    let file = installed.file.display();
    let (how, hint) = match installed.before {
        Before::Beginning => ("is the beginning of this one", "--overwrite puts the whole in its place".to_owned()),
        Before::Further => {
            ("goes further than the thread here", format!("`threadkeep import {file}` takes in what is new"))
        }
        Before::Nothing | Before::Same | Before::Other => {
            ("differs", "--overwrite puts this one in its place".to_owned())
        }
    };
    let message = format!("a session is there already, and it {how}: {file}");
    Report::new(Code::NotDone, "already-exists", message).hint(hint)
}

pub(crate) fn existing(placing: &PlacingArgs) -> Existing {
    if placing.overwrite { Existing::Replace } else { Existing::Keep }
}

/// The agent's home, and whether it is another than the one that it uses without being told.
pub(crate) fn home(codec: &dyn Codec, placing: &PlacingArgs) -> Result<(PathBuf, bool), Failure> {
    let unknown = || Report::usage(format!("no home of {} is known", codec.agent())).hint("name it with --home DIR");
    Ok(known_home(codec, placing)?.ok_or_else(unknown)?)
}

/// The home that is named or set, or the agent's own, where there is one; and whether it is another than that.
pub(crate) fn known_home(codec: &dyn Codec, placing: &PlacingArgs) -> Result<Option<(PathBuf, bool)>, Failure> {
    let own = etcetera::home_dir().ok().filter(|home| home.is_absolute()).and_then(|home| codec.root(&home));
    let set = codec.variable().and_then(env::var_os).filter(|home| !home.is_empty()).map(PathBuf::from);
    let told = placing.home.clone().or(set);
    let Some(home) = told.clone().or_else(|| own.clone()) else { return Ok(None) };
    let home = std::path::absolute(home)?;
    let is_other = told.is_some() && own.as_deref() != Some(&home);
    Ok(Some((home, is_other)))
}

/// What a program is told of an export.
pub(crate) fn document(export: &Export<'_>, path: &Path, exported: &Exported) -> Value {
    let losses: Vec<Value> =
        exported.losses.iter().map(|loss| json!({"what": loss.what, "count": loss.count})).collect();
    json!({
        "thread": export.thread(),
        "agent": export.codec().agent(),
        "session": export.codec().session_id(export.session()),
        "file": path.display().to_string(),
        "bytes": exported.bytes,
        "written": true,
        "records": exported.records,
        "messages": exported.messages,
        "losses": losses,
        "companions": [],
    })
}

/// What a program is told of a session that was put in its place.
pub(crate) fn placed(export: &Export<'_>, installed: &Installed, placing: &PlacingArgs) -> Value {
    let mut document = document(export, &installed.file, &installed.exported);
    if let Some(fields) = document.as_object_mut() {
        let companions: Vec<String> = installed.companions.iter().map(|path| path.display().to_string()).collect();
        fields.insert("written".to_owned(), json!(installed.is_written(existing(placing))));
        fields.insert("companions".to_owned(), json!(companions));
    }
    document
}

/// What people are told of it.
pub(crate) fn words(installed: &Installed, placing: &PlacingArgs) -> String {
    let file = installed.file.display();
    match installed.is_written(existing(placing)) {
        true => format!("Wrote {} to {file}", size(&installed.exported)),
        false => format!("Nothing to write: {file} is the same"),
    }
}

fn size(exported: &Exported) -> String {
    human::bytes(i64::try_from(exported.bytes).unwrap_or(i64::MAX))
}

/// Tells people what was left behind.
pub(crate) fn tell_losses(exported: &Exported) {
    for loss in &exported.losses {
        output::tell(Ink::Warn, "lost", &format!("{} × {}", human::count(loss.count), loss.what));
    }
}
