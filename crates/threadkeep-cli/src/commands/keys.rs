//! `threadkeep keys`

use clap::{Args, Subcommand};
use serde_json::json;
use threadkeep::{Key, KeyFolder, SystemHost, print_key};

use super::App;
use crate::errors::{Code, Failure, Outcome, Report};
use crate::style::Ink;
use crate::{human, json, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep keys create                    the first key; `threadkeep seal` signs with it
  threadkeep keys list
  threadkeep keys rotate                    a new key, which the old one vouches for
  threadkeep keys export > ann.pub          what others need to believe the seals

Keys lie in `keys` in the store's folder, and for a store on a server in the default store's;
--keys DIR (or THREADKEEP_KEYS) names another folder. Keep the folder where who can change the store can't
change it, or the public key and the seals outside: see `threadkeep seal --out`.";

/// Make, list and replace the keys that seals are signed with
///
/// A key is an Ed25519 key; it is named by 16 hex digits of the BLAKE3 hash of its public part. The private part is in a file
/// that only its owner can read.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct KeysArgs {
    #[command(subcommand)]
    what: KeysCommand,
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// Make the first key
    Create,
    /// List the keys
    List,
    /// Make a new key in the place of the one that signs, whose private part is deleted
    Rotate,
    /// Write a public key to standard output
    Export {
        /// The key; the one that signs when none is named
        key: Option<String>,
    },
}

/// Answers.
pub(super) fn run(args: &KeysArgs, app: &mut App) -> Outcome {
    let place = app.place()?;
    let folder = place.keys().ok_or_else(|| Report::usage("no home folder is known; --keys DIR names the folder"))?;
    let folder = KeyFolder::at(folder);
    match &args.what {
        KeysCommand::Create => made(app, &folder.create(&SystemHost)?, &folder, "Made"),
        KeysCommand::Rotate => made(app, &folder.rotate(&SystemHost)?, &folder, "In its place"),
        KeysCommand::List => list(app, &folder),
        KeysCommand::Export { key } => export(app, &folder, key.as_deref()),
    }
}

fn made(app: &mut App, key: &Key, folder: &KeyFolder, words: &str) -> Outcome {
    if app.out.is_json() {
        let shown = folder.path().display().to_string();
        app.out.document(&json!({"key": json::key(key), "folder": shown}))?;
        return Ok(Code::Done);
    }
    let mark = app.out.paint(Ink::Good, "✓");
    app.out.line(format!("{mark} {words}: key {}", key.info.id))?;
    app.out.line(app.out.paint(Ink::Dim, &text::one_line(&folder.path().to_string_lossy())))?;
    Ok(Code::Done)
}

fn list(app: &mut App, folder: &KeyFolder) -> Outcome {
    let keys = folder.list()?;
    if app.out.is_json() {
        let shown = folder.path().display().to_string();
        let keys: Vec<_> = keys.iter().map(json::key).collect();
        app.out.document(&json!({"folder": shown, "keys": keys}))?;
        return Ok(Code::Done);
    }
    if keys.is_empty() {
        app.out.line("No keys; `threadkeep keys create` makes one")?;
    }
    for key in &keys {
        let state = if key.active { "signs" } else { "signed" };
        let since = human::date(key.info.created_at);
        let voucher = key.info.vouched_by.as_ref().map(|it| format!(", vouched for by {}", it.public.id()));
        app.out.line(format!("{}  {state:<6}  {since}{}", key.info.id, voucher.unwrap_or_default()))?;
    }
    Ok(Code::Done)
}

fn export(app: &mut App, folder: &KeyFolder, named: Option<&str>) -> Outcome {
    let mut keys = folder.list()?;
    keys.retain(|key| named.map_or(key.active, |named| key.info.id.starts_with(named)));
    let key = match (keys.pop(), keys.is_empty()) {
        (Some(key), true) => key,
        (Some(_), false) => return Err(Report::usage("more than one key begins so").into()),
        (None, _) => return Err(missing(named)),
    };
    if app.out.is_json() {
        app.out.document(&json!({"key": json::key(&key)}))?;
    } else {
        app.out.bytes(print_key(&key.info)?.as_bytes())?;
    }
    Ok(Code::Done)
}

fn missing(named: Option<&str>) -> Failure {
    let message = named.map_or_else(|| "no key signs here".to_owned(), |named| format!("no key `{named}`"));
    Report::new(Code::NotFound, "not-found", message).hint("`threadkeep keys list` shows them").into()
}
