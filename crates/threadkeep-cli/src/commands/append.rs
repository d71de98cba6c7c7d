//! `threadkeep append`

use std::io::{self, BufRead, Read as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::{Value, json};
use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{
    AppendOptions, Appended, Change, Details, Durability, FORMAT, Host as _, ItemId, Kind, MAX_CONTENT_BYTES, NewItem,
    NewThread, Policy, Role, Rules, SystemHost, ThreadId, ThreadPatch, Timestamp, Uuid, View,
};

use super::{App, rollout};
use crate::errors::{Code, Failure, Outcome, Report};
use crate::masking::{self, MaskingArgs};
use crate::style::Ink;
use crate::{names, output, policies, text};

/// The longest line: the largest content, with room for escapes.
const MAX_LINE_BYTES: u64 = 4 * MAX_CONTENT_BYTES as u64;
/// The format of content that names none and is none of the store's own.
const RAW: &str = "raw";
const MAX_PREVIEW: usize = 200;

const EXAMPLES: &str = "\
EXAMPLES:
  echo '{\"kind\":\"message\",\"role\":\"user\",\"text\":\"Why does it fail?\"}' | threadkeep append 019a2284
  threadkeep append --new --title 'Nightly run' < items.jsonl
  threadkeep append 019a2284 --durability written < items.jsonl
  threadkeep append 019a2284 --mask-secrets < items.jsonl
  threadkeep append --new --policy codex-limited < items.jsonl
  threadkeep append 019a2284 --policy message,tool_call,tool_result < items.jsonl
  threadkeep append --rollout ~/copies/019a2284-77b1-7f21-9c0e-3d5a8b6c4e10.jsonl < items.jsonl

Each line of the input is an object:
  kind            message (the default), reasoning, tool_call, tool_result, compaction, event,
                  context
  role            user, assistant, system, developer, tool
  text            words, or instead of them:
  content         the bytes to store, as text or as any JSON value
  content_base64  the bytes to store, in base64
  format          which agent's format the content is in, such as codex; `raw` by default
  id              a UUID for the item, which makes sending it again safe
  created_at      RFC 3339; now by default

Each line of the output is an item that is stored, printed the moment that is certain:
  {\"id\",\"branch\",\"depth\",\"hash\"}
With --new or --rollout a line {\"thread\"} comes first. With --durability queued an item's place is not known
yet, so its branch, depth and hash are null. An item of which secrets were masked has \"masked\": true; one that the thread's
policy does not keep has \"dropped\": true and no place.

Policies: `codex-limited` and `codex-extended` keep of lines in the format `codex` what Codex keeps in its two modes, and
items of other formats; a list of kinds keeps these kinds alone; `all` keeps everything.";

/// Write items into a thread, from JSON lines on standard input
///
/// The thread is claimed meanwhile, so no other program can write it. The first line that is wrong ends the command; what
/// came before it is stored, and the exit code is 8, or 1 when nothing came before it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct AppendArgs {
    /// The thread
    #[arg(required_unless_present_any = ["new", "rollout"], conflicts_with = "new")]
    thread: Option<String>,
    /// Go on with the thread of this rollout, wherever the file is; what the store lacks of it is put there first
    #[arg(long, value_name = "FILE", conflicts_with_all = ["thread", "new"])]
    rollout: Option<PathBuf>,
    /// Begin a new thread
    #[arg(long)]
    new: bool,
    /// The new thread's title
    #[arg(short, long, requires = "new")]
    title: Option<String>,
    /// The new thread's agent
    #[arg(short, long, requires = "new")]
    agent: Option<String>,
    /// The new thread's id; minted by default
    #[arg(long, requires = "new")]
    id: Option<String>,
    /// The folder of the new thread's project; this one by default
    #[arg(short, long, value_name = "DIR", requires = "new")]
    workspace: Option<PathBuf>,
    /// What the thread keeps from here on: all, codex-limited, codex-extended, or the kinds alone that are named; it stays with the
    /// thread
    #[arg(long, value_name = "POLICY", value_parser = policies::parse)]
    policy: Option<Policy>,
    /// What an acknowledgement promises
    #[arg(long, value_enum, default_value_t = Level::Synced)]
    durability: Level,
    #[command(flatten)]
    masking: MaskingArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Level {
    /// It survives a power loss
    Synced,
    /// It survives the death of this process
    Written,
    /// It is on its way; the end of the command waits for it
    Queued,
}

impl From<Level> for Durability {
    fn from(level: Level) -> Self {
        match level {
            Level::Synced => Self::Synced,
            Level::Written => Self::Written,
            Level::Queued => Self::Queued,
        }
    }
}

/// Appends.
pub(super) fn run(args: &AppendArgs, app: &mut App) -> Outcome {
    app.masking = args.masking.rules()?;
    let (store, live) = open(args, app)?;
    if let Some(policy) = args.policy.clone() {
        live.set_policy(policy)?;
    }
    if args.new || args.rollout.is_some() {
        app.out.document(&json!({"thread": live.id()}))?;
        app.out.flush()?;
    }
    let outcome = append_lines(args, app, &store, &live);
    match outcome {
        Ok(code) => {
            live.shutdown()?;
            rollout::tell_status(&store.live_rollouts());
            Ok(code)
        }
        Err(failure) => {
            // What was acknowledged is stored; the rest is the caller's to send again.
            let _ = live.discard();
            Err(failure)
        }
    }
}

fn open(args: &AppendArgs, app: &App) -> Result<(Store, LiveThread), Failure> {
    if let Some(name) = args.thread.as_deref().filter(|_| !args.new) {
        let store = app.write()?;
        let live = store.resume(&store.find(name)?, false)?;
        return Ok((store, live));
    }
    if let Some(file) = &args.rollout {
        // A store is not made for what is surely a slip of the pen.
        if !file.exists() {
            return Err(threadkeep::Error::NotFound { what: "file", id: file.display().to_string() }.into());
        }
        let store = app.create()?;
        let live = store.resume_rollout(file).map_err(|error| damaged(file, error))?;
        return Ok((store, live));
    }
    args.title.as_deref().map(names::check_title).transpose()?;
    let id = args.id.as_deref().map(ThreadId::new).transpose()?;
    let folder = std::path::absolute(args.workspace.clone().unwrap_or_else(|| ".".into()))?;
    let details = Details {
        title: args.title.clone(),
        agent: args.agent.clone(),
        cwd: folder.to_str().map(str::to_owned),
        ..Details::default()
    };
    let store = app.create()?;
    let workspace = store.workspace(&folder)?;
    let policy = args.policy.clone().unwrap_or_default();
    let live = workspace.create_now(NewThread { id, details, policy, ..NewThread::default() })?;
    Ok((store, live))
}

/// A file of which something is lost is not gone on with unasked.
fn damaged(file: &Path, error: threadkeep::Error) -> Failure {
    if !matches!(error, threadkeep::Error::Corrupt { .. }) {
        return error.into();
    }
    let hint = format!(
        "`threadkeep rollout rebuild --from {}` puts in what is left; then append to the thread",
        file.display()
    );
    Report::new(Code::Corrupt, error.kind(), error.to_string()).hint(hint).into()
}

fn append_lines(args: &AppendArgs, app: &mut App, store: &Store, live: &LiveThread) -> Outcome {
    let options = AppendOptions { durability: args.durability.into(), ..AppendOptions::default() };
    let mut input = io::stdin().lock();
    let mut buffer = Vec::new();
    let (mut number, mut appended) = (0_u64, 0_u64);
    let mut nameless = args.new && args.title.is_none();
    while read_line(&mut input, &mut buffer)? {
        number += 1;
        if buffer.trim_ascii().is_empty() {
            continue;
        }
        let item = match read_item(&buffer) {
            Ok(item) => item,
            Err(reason) => return Ok(bad_line(number, &reason, appended)),
        };
        let id = item.id;
        let preview = if nameless { preview(&item, app.masking.as_ref()) } else { None };
        let stored = match live.append_with(vec![item], options) {
            Ok(stored) => stored,
            Err(error @ threadkeep::Error::Invalid { .. }) => {
                return Ok(bad_line(number, &error.to_string(), appended));
            }
            Err(error) => return Err(error.into()),
        };
        acknowledge(app, id, &stored)?;
        appended += 1;
        if let Some(preview) = preview.filter(|_| stored.dropped == 0) {
            let preview = Change::Set(preview);
            store.update(live.id(), ThreadPatch { preview, ..ThreadPatch::default() })?;
            nameless = false;
        }
    }
    Ok(Code::Done)
}

/// Reads a line; says whether there was one.
fn read_line(input: &mut impl BufRead, buffer: &mut Vec<u8>) -> Result<bool, Failure> {
    buffer.clear();
    Ok(input.take(MAX_LINE_BYTES).read_until(b'\n', buffer)? > 0)
}

fn bad_line(number: u64, reason: &str, appended: u64) -> Code {
    output::tell(Ink::Bad, "error", &format!("line {number}: {reason}"));
    let hint = format!("{appended} items are stored; go on from line {number}");
    output::tell(Ink::Hint, "hint", &hint);
    if appended > 0 { Code::Partial } else { Code::NotDone }
}

fn acknowledge(app: &mut App, id: Option<ItemId>, stored: &Appended) -> Result<(), Failure> {
    if stored.items.is_empty() {
        let mut item = json!({"id": id, "branch": null, "depth": null, "hash": null});
        if stored.replaced > 0 {
            masking::mark(&mut item);
        }
        if stored.dropped > 0 {
            mark_dropped(&mut item);
        }
        app.out.document(&item)?;
    }
    for item in &stored.items {
        let mut item = json!(item);
        if stored.replaced > 0 {
            masking::mark(&mut item);
        }
        app.out.document(&item)?;
    }
    app.out.flush()
}

/// Says that the thread's policy does not keep it.
fn mark_dropped(item: &mut Value) {
    if let Value::Object(item) = item {
        item.insert("dropped".to_owned(), true.into());
    }
}

/// A line of the input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default = "message")]
    kind: Kind,
    role: Option<Role>,
    text: Option<String>,
    content: Option<Value>,
    content_base64: Option<String>,
    format: Option<String>,
    id: Option<ItemId>,
    created_at: Option<String>,
}

fn message() -> Kind {
    Kind::Message
}

fn read_item(line: &[u8]) -> Result<NewItem, String> {
    let line: Line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let created_at = match &line.created_at {
        None => None,
        Some(text) => {
            let wrong = || format!("created_at: `{text}` is no RFC 3339 time");
            Some(Timestamp::parse(text).ok_or_else(wrong)?)
        }
    };
    let (format, content) = content(&line)?;
    let mut item = NewItem::raw(line.kind, format, content).with_id(line.id.unwrap_or_else(mint));
    item.role = line.role;
    item.created_at = created_at;
    Ok(item)
}

fn content(line: &Line) -> Result<(String, Vec<u8>), String> {
    let given = (&line.text, &line.content, &line.content_base64);
    let (standard, content) = match given {
        (Some(text), None, None) if line.format.as_deref().is_none_or(|format| format == FORMAT) => {
            let view = View::text(line.role.clone(), text);
            (FORMAT, serde_json::to_vec(&view).map_err(|error| error.to_string())?)
        }
        (Some(_), None, None) => return Err("with `format` the bytes go into `content`".to_owned()),
        (None, Some(Value::String(text)), None) => (RAW, text.clone().into_bytes()),
        (None, Some(value), None) => {
            let own = View::deserialize(value).is_ok();
            (if own { FORMAT } else { RAW }, value.to_string().into_bytes())
        }
        (None, None, Some(text)) => (RAW, STANDARD.decode(text).map_err(|error| format!("content_base64: {error}"))?),
        _ => return Err("exactly one of `text`, `content` and `content_base64` is needed".to_owned()),
    };
    Ok((line.format.clone().unwrap_or_else(|| standard.to_owned()), content))
}

/// An id that is known before the item is sent: a UUID of version 7.
fn mint() -> ItemId {
    let host = SystemHost;
    let mut bytes = [0; 16];
    host.fill_random(&mut bytes);
    let millis = host.now().millis().to_be_bytes();
    for (byte, time) in bytes.iter_mut().zip(millis.into_iter().skip(2)) {
        *byte = time;
    }
    let [_, _, _, _, _, _, version, _, variant, ..] = &mut bytes;
    *version = *version & 0x0f | 0x70;
    *variant = *variant & 0x3f | 0x80;
    ItemId::from_uuid(Uuid::from_bytes(bytes))
}

/// What a thread without a title is called by: its first prompt. It is masked before it is cut: a part of a secret is not found.
fn preview(item: &NewItem, masking: Option<&Rules>) -> Option<String> {
    if item.kind != Kind::Message || item.role != Some(Role::User) || item.format != FORMAT {
        return None;
    }
    let view: View = serde_json::from_slice(&item.content).ok()?;
    let words = view.to_text();
    let masked = masking.and_then(|rules| rules.mask_text(&words));
    let line = text::one_line(masked.as_deref().unwrap_or(&words));
    (!line.is_empty()).then(|| text::cut(&line, MAX_PREVIEW).into_owned())
}

#[cfg(test)]
mod tests {
    use threadkeep::{FORMAT, Kind, Role, Timestamp};

    use super::{mint, read_item};

    #[test]
    fn a_line_becomes_an_item() {
        let item = read_item(br#"{"role":"user","text":"hi","created_at":"2026-01-02T03:04:05Z"}"#).unwrap();
        assert_eq!((item.kind, item.role, item.format.as_str()), (Kind::Message, Some(Role::User), FORMAT));
        assert_eq!(item.created_at, Timestamp::parse("2026-01-02T03:04:05Z"));
        assert_eq!(item.content, br#"{"role":"user","parts":[{"type":"text","text":"hi"}]}"#);
    }

    #[test]
    fn content_is_kept_as_it_is_given() {
        let item = read_item(br#"{"kind":"event","format":"codex","content":"{\"b\" : 1, \"a\":2}"}"#).unwrap();
        assert_eq!((item.format.as_str(), item.content.as_slice()), ("codex", br#"{"b" : 1, "a":2}"#.as_slice()));
        let item = read_item(br#"{"kind":"event","content":{"b":1,"a":2}}"#).unwrap();
        assert_eq!((item.format.as_str(), item.content.as_slice()), ("raw", br#"{"b":1,"a":2}"#.as_slice()));
        let item = read_item(br#"{"content_base64":"AP8="}"#).unwrap();
        assert_eq!(item.content, [0, 255]);
        let item = read_item(br#"{"content":{"parts":[]}}"#).unwrap();
        assert_eq!(item.format, FORMAT);
    }

    #[test]
    fn wrong_lines_are_refused() {
        for line in [
            "",
            "[]",
            "{}",
            "{",
            r#"{"text":"a","content":"b"}"#,
            r#"{"text":"a","txet":"b"}"#,
            r#"{"text":"a","id":"x"}"#,
            r#"{"text":"a","created_at":"yesterday"}"#,
            r#"{"text":"a","format":"codex"}"#,
            r#"{"content_base64":"?"}"#,
            r#"{"text":5}"#,
        ] {
            assert!(read_item(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn minted_ids_are_of_version_7_and_differ() {
        let (one, other) = (mint().to_string(), mint().to_string());
        assert_ne!(one, other);
        assert_eq!(&one[14..15], "7");
        assert!(matches!(&one[19..20], "8" | "9" | "a" | "b"));
        assert_eq!(one[..8], other[..8]);
    }
}
