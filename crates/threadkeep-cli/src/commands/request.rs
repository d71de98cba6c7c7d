//! `threadkeep request`

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use threadkeep::blocking::Store;
use threadkeep::{
    Answer, Danger, Effect, Hash, NewRequest, Principal, Request, RequestId, RequestKind, RequestOption, RequestQuery,
    RequestState, Unowned, UseAnswer, UsedAnswer, Uuid, call_fingerprint,
};

use super::inbox::user;
use super::{App, goal};
use crate::errors::{Code, Failure, Outcome, Report};
use crate::style::Ink;
use crate::table::{Align, Table, cell};
use crate::{human, json, names, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep request ask 'push to main' --call 'git push origin main' --thread 019a2284 --wait 5m
  threadkeep request list --state pending
  threadkeep request answer 019a22f1 allow_once --by ana
  threadkeep request consume 019a22f1 --call 'git push origin main' && git push origin main
  threadkeep request ask 'let the laptop in' --enrolment --detail '{\"key\":\"ed25519:…\"}'
  threadkeep request cancel 019a22f1 --note 'not needed any more'

A request has one outcome: the first answer, that it was cancelled, or that its time is over. Its
answer is used once, for the very call that was asked about. With --remote somebody answers from
elsewhere, who can't grant what lasts, whatever the request says. What is not known grants nothing.";

/// Ask for approvals and enrolments, answer them, and use the answers
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RequestArgs {
    #[command(subcommand)]
    what: RequestCommand,
}

#[derive(Debug, Subcommand)]
enum RequestCommand {
    /// Ask
    Ask(AskArgs),
    /// List requests, those that were asked last first
    List(ListArgs),
    /// Say all that is known of a request
    Show {
        /// The request: its id or the beginning of it
        request: String,
    },
    /// Answer a request that waits
    Answer {
        /// The request: its id or the beginning of it
        request: String,
        /// The option, as `show` names it
        option: String,
        #[command(flatten)]
        by: ByArgs,
    },
    /// Cancel a request that waits
    Cancel {
        /// The request: its id or the beginning of it
        request: String,
        #[command(flatten)]
        by: ByArgs,
    },
    /// Use the answer to a request, once; ends with 0 when it was granted and with 1 when it was not
    Consume {
        /// The request: its id or the beginning of it
        request: String,
        #[command(flatten)]
        call: CallArgs,
        /// So that a repeated call gives the same answer
        #[arg(long, value_name = "UUID")]
        token: Option<Uuid>,
    },
}

#[derive(Debug, Args)]
struct ByArgs {
    /// Who does it [default: the user]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// They are not at this machine
    #[arg(long)]
    remote: bool,
    /// What they have to say
    #[arg(long, value_name = "WORDS")]
    note: Option<String>,
}

impl ByArgs {
    fn principal(&self) -> Principal {
        let name = self.by.clone().unwrap_or_else(user);
        if self.remote { Principal::remote(name) } else { Principal::local(name) }
    }
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("about").required(true))]
struct CallArgs {
    /// The call: everything that makes it what it is
    #[arg(long, value_name = "TEXT", group = "about")]
    call: Option<String>,
    /// The file that holds the call
    #[arg(long, value_name = "FILE", group = "about")]
    call_file: Option<PathBuf>,
    /// The call's fingerprint, as `show` prints it
    #[arg(long, value_name = "HEX", group = "about")]
    fingerprint: Option<Hash>,
}

impl CallArgs {
    fn fingerprint(&self) -> Result<Option<Hash>, Failure> {
        Ok(match (&self.call, &self.call_file, self.fingerprint) {
            (Some(call), _, _) => Some(call_fingerprint(call.as_bytes())),
            (_, Some(file), _) => Some(call_fingerprint(&std::fs::read(file)?)),
            (_, _, fingerprint) => fingerprint,
        })
    }
}

#[derive(Debug, Args)]
struct AskArgs {
    /// What people read first
    subject: String,
    /// The call that is asked about: everything that makes it what it is
    #[arg(long, value_name = "TEXT", required_unless_present_any = ["call_file", "enrolment"], conflicts_with = "call_file")]
    call: Option<String>,
    /// The file that holds the call
    #[arg(long, value_name = "FILE")]
    call_file: Option<PathBuf>,
    /// All there is to know
    #[arg(long, value_name = "JSON")]
    detail: Option<String>,
    /// Propose to let the candidate in that --detail describes
    #[arg(long, requires = "detail", conflicts_with_all = ["call", "call_file"])]
    enrolment: bool,
    /// The thread that it is about; it is purged with it
    #[arg(long)]
    thread: Option<String>,
    /// The folder of the project that it belongs to [default: the current one]
    #[arg(long, value_name = "DIR", conflicts_with = "thread")]
    workspace: Option<PathBuf>,
    /// How much can go wrong
    #[arg(long, value_enum, default_value_t = Level::High)]
    danger: Level,
    /// An answer that may be given, in the place of the usual ones; EFFECT is `allow_once`, `allow_thread`, `allow_always` or `deny`
    #[arg(long = "option", value_name = "ID=EFFECT[=LABEL]", value_parser = option)]
    options: Vec<RequestOption>,
    /// No answer is taken from elsewhere
    #[arg(long)]
    here_only: bool,
    /// How long it can be answered: 90s, 2h30m …
    #[arg(long, value_name = "DURATION", value_parser = goal::duration, default_value = "5m")]
    expires: Duration,
    /// It can be answered for ever
    #[arg(long, conflicts_with = "expires")]
    never_expires: bool,
    /// It can't be answered when whoever asked is gone
    #[arg(long)]
    needs_owner: bool,
    /// Wait so long for the answer
    #[arg(long, value_name = "DURATION", value_parser = goal::duration)]
    wait: Option<Duration>,
    /// The id, so that a repeated call asks once
    #[arg(long, value_name = "UUID")]
    id: Option<RequestId>,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only those in this state: pending, answered, cancelled, expired
    #[arg(long, value_name = "WORD")]
    state: Option<String>,
    /// Only those of this kind: approval, enrolment
    #[arg(long, value_name = "WORD")]
    kind: Option<String>,
    /// Only those about this thread
    #[arg(long)]
    thread: Option<String>,
    /// Only those of this project: a name, an id or a folder
    #[arg(short, long, conflicts_with = "thread")]
    workspace: Option<String>,
    /// Those that were asked first at the beginning
    #[arg(long)]
    reverse: bool,
    /// At most this many, up to 1000
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Go on where an earlier page of the same list ended
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Level {
    Low,
    High,
}

/// Answers.
pub(super) fn run(args: &RequestArgs, app: &mut App) -> Outcome {
    match &args.what {
        RequestCommand::Ask(args) => ask(args, app),
        RequestCommand::List(args) => list(args, app),
        RequestCommand::Show { request } => {
            let store = app.read()?;
            let request = store.request(store.find_request(request)?)?;
            show(app, &store, &request)
        }
        RequestCommand::Answer { request, option, by } => {
            let store = app.write()?;
            let answer = Answer { option: option.clone(), by: by.principal(), note: by.note.clone() };
            let request = store.answer_request(store.find_request(request)?, answer)?;
            changed(app, &request)
        }
        RequestCommand::Cancel { request, by } => {
            let store = app.write()?;
            let request = store.cancel_request(store.find_request(request)?, by.principal(), by.note.clone())?;
            changed(app, &request)
        }
        RequestCommand::Consume { request, call, token } => {
            let store = app.write()?;
            let fingerprint = call.fingerprint()?.ok_or_else(|| Report::usage("no call is given"))?;
            let id = store.find_request(request)?;
            consume(app, &store.use_answer(id, UseAnswer { fingerprint, token: *token })?)
        }
    }
}

fn ask(args: &AskArgs, app: &mut App) -> Outcome {
    let store = app.create()?;
    let thread = args.thread.as_ref().map(|thread| store.find(thread)).transpose()?;
    let call = match (&args.call, &args.call_file) {
        (Some(call), _) => call.clone().into_bytes(),
        (None, Some(file)) => std::fs::read(file)?,
        (None, None) => Vec::new(),
    };
    let detail = args.detail.clone();
    let mut new = match &detail {
        Some(candidate) if args.enrolment => NewRequest::enrolment(&args.subject, candidate),
        _ => NewRequest { detail, ..NewRequest::approval(&args.subject, &call) },
    };
    if !args.options.is_empty() {
        new.options.clone_from(&args.options);
    }
    new.options.iter_mut().filter(|_| args.here_only).for_each(|option| option.remote = false);
    let new = NewRequest {
        id: args.id,
        thread: thread.clone(),
        danger: match args.danger {
            Level::Low => Danger::Low,
            Level::High => Danger::High,
        },
        expires_in: (!args.never_expires).then_some(args.expires),
        unowned: if args.needs_owner { Unowned::Refused } else { Unowned::Answerable },
        ..new
    };
    let asked = match (thread, &args.workspace) {
        (Some(_), _) => store.ask_request(new)?,
        (None, Some(folder)) => store.workspace(folder)?.ask_request(new)?,
        (None, None) => store.workspace(&std::env::current_dir()?)?.ask_request(new)?,
    };
    match args.wait {
        Some(bound) => wait(app, &store, &asked, bound),
        None => changed(app, &asked),
    }
}

/// Waits for the answer, as long as there can be one; ends with 0 when it was granted.
fn wait(app: &mut App, store: &Store, asked: &Request, bound: Duration) -> Outcome {
    let mut watch = store.watch_request(asked.id)?;
    let began = Instant::now();
    let left = |until: Option<threadkeep::Timestamp>| {
        let bound = bound.saturating_sub(began.elapsed());
        let open = until.map(|until| u64::try_from(until.millis().saturating_sub(super::now().millis())).unwrap_or(0));
        open.map_or(bound, |open| bound.min(Duration::from_millis(open)))
    };
    let resolved = watch.next_within(left(asked.expires_at))?;
    let request = match resolved {
        Some(request) => request,
        None => store.request(asked.id)?,
    };
    changed(app, &request)?;
    let is_granted = request.answer.is_some_and(|answer| grants(&answer.effect));
    Ok(if is_granted { Code::Done } else { Code::NotDone })
}

fn consume(app: &mut App, used: &UsedAnswer) -> Outcome {
    let granted = grants(&used.effect);
    if app.out.is_json() {
        let request = document(&used.request);
        let answer = json!({"granted": granted, "effect": used.effect, "repeated": used.repeated, "request": request});
        app.out.document(&answer)?;
    } else {
        let words = if granted { "Granted" } else { "Denied" };
        app.out.line(format!("{words}: {}", text::one_line(used.effect.as_str())))?;
    }
    Ok(if granted { Code::Done } else { Code::NotDone })
}

fn grants(effect: &Effect) -> bool {
    matches!(effect, Effect::AllowOnce | Effect::AllowThread | Effect::AllowAlways)
}

/// Reads `ID=EFFECT` or `ID=EFFECT=LABEL`.
fn option(words: &str) -> Result<RequestOption, String> {
    let mut parts = words.splitn(3, '=');
    let (Some(id), Some(effect)) = (parts.next(), parts.next()) else {
        return Err("an option is written ID=EFFECT or ID=EFFECT=LABEL".to_owned());
    };
    Ok(RequestOption::new(id, parts.next().unwrap_or(id), Effect::from_word(effect)))
}

fn changed(app: &mut App, request: &Request) -> Outcome {
    if app.out.is_json() {
        app.out.document(&json!({"request": document(request)}))?;
        return Ok(Code::Done);
    }
    let (subject, id) = (text::one_line(&request.subject), app.out.paint(Ink::Dim, &request.id.to_string()));
    app.out.line(format!("{}: {}  {id}", state_words(request), text::cut(&subject, 60)))?;
    Ok(Code::Done)
}

fn list(args: &ListArgs, app: &mut App) -> Outcome {
    let store = app.read()?;
    let query = RequestQuery {
        state: args.state.as_deref().map(RequestState::from_word),
        kind: args.kind.as_deref().map(RequestKind::from_word),
        thread: args.thread.as_ref().map(|thread| store.find(thread)).transpose()?,
        ascending: args.reverse,
        limit: args.limit,
        cursor: args.cursor.clone(),
    };
    let page = match &args.workspace {
        None => store.requests(query)?,
        Some(name) => store.workspace_by_id(names::find_workspace(&store, name)?.id)?.requests(query)?,
    };
    if app.out.is_json() {
        app.out.page("requests", &page, document)?;
        return Ok(Code::Done);
    }
    if page.entries.is_empty() {
        app.out.line("No such request.")?;
        return Ok(Code::Done);
    }
    let columns = [
        ("id", Align::Left),
        ("kind", Align::Left),
        ("state", Align::Left),
        ("danger", Align::Left),
        ("asked", Align::Left),
        ("request", Align::Flexible),
    ];
    let mut table = Table::new(&columns);
    let now = super::now();
    for request in &page.entries {
        let words = match &request.damage {
            Some(damage) => format!("damaged: {}", text::one_line(damage)),
            None => text::one_line(&request.subject),
        };
        table.row(vec![
            cell(Ink::Dim, request.id.to_string()),
            cell(Ink::Plain, text::one_line(request.kind.as_str())),
            cell(state_ink(request), state_words(request)),
            cell(if request.danger == Danger::Low { Ink::Plain } else { Ink::Warn }, request.danger.as_str()),
            cell(Ink::Dim, human::ago(request.created_at, now)),
            cell(Ink::Plain, words),
        ]);
    }
    table.write(&mut app.out)?;
    if let Some(next) = page.next_cursor {
        app.out.line(format!("\nMore: the same with --cursor {next}"))?;
    }
    Ok(Code::Done)
}

fn show(app: &mut App, store: &Store, request: &Request) -> Outcome {
    if app.out.is_json() {
        app.out.document(&json!({"request": document(request)}))?;
        return Ok(Code::Done);
    }
    let now = super::now();
    app.out.line(app.out.paint(Ink::Strong, &text::one_line(&request.subject)))?;
    let opt = |name, value: &Option<String>| value.as_ref().map(|value| (name, text::one_line(value)));
    let by = request.resolved_by.as_ref();
    let lines = [
        Some(("id", request.id.to_string())),
        Some(("kind", format!("{}, danger: {}", text::one_line(request.kind.as_str()), request.danger))),
        Some(("state", state_words(request))),
        request.thread.as_ref().map(|thread| ("thread", names::short_id(store, thread))),
        Some(("call", request.fingerprint.to_string())),
        opt("detail", &request.detail),
        Some(("owner", text::one_line(&request.owner.to_string()))),
        Some(("asked", human::ago(request.created_at, now))),
        request.expires_at.map(|at| ("expires", human::moment(at))),
        request.resolved_at.map(|at| ("resolved", human::ago(at, now))),
        by.map(|by| ("by", format!("{} ({})", text::one_line(&by.name), text::one_line(by.channel.as_str())))),
        opt("note", &request.note),
        request.consumed_at.map(|at| ("used", human::ago(at, now))),
        opt("damaged", &request.damage),
    ];
    for (name, value) in lines.into_iter().flatten() {
        app.out.line(format!("  {name:<9} {value}"))?;
    }
    for option in &request.options {
        let place = if option.remote { "" } else { ", here only" };
        let (id, label) = (text::one_line(&option.id), text::one_line(&option.label));
        app.out.line(format!("  option    {id}: {label} ({}{place})", text::one_line(option.effect.as_str())))?;
    }
    Ok(Code::Done)
}

fn state_ink(request: &Request) -> Ink {
    match (&request.state, &request.answer) {
        (RequestState::Pending, _) if !request.owned => Ink::Warn,
        (RequestState::Answered, Some(answer)) if grants(&answer.effect) => Ink::Good,
        (RequestState::Answered, _) => Ink::Bad,
        _ => Ink::Plain,
    }
}

fn state_words(request: &Request) -> String {
    match (&request.state, &request.answer) {
        (RequestState::Pending, _) if !request.owned => "pending, unowned".to_owned(),
        (RequestState::Answered, Some(answer)) => format!("answered {}", text::one_line(answer.effect.as_str())),
        (state, _) => text::one_line(state.as_str()),
    }
}

fn document(request: &Request) -> Value {
    let detail = |text: &String| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text.as_str()));
    json!({
        "id": request.id,
        "workspace": request.workspace,
        "thread": request.thread,
        "kind": request.kind,
        "subject": request.subject,
        "detail": request.detail.as_ref().map(detail),
        "fingerprint": request.fingerprint,
        "danger": request.danger,
        "options": request.options,
        "state": request.state,
        "owner": json::holder(&request.owner),
        "owned": request.owned,
        "unowned": request.unowned,
        "masked": request.masked,
        "created_at": json::time(request.created_at),
        "expires_at": request.expires_at.map(json::time),
        "resolved_at": request.resolved_at.map(json::time),
        "resolved_by": request.resolved_by,
        "answer": request.answer,
        "note": request.note,
        "consumed_at": request.consumed_at.map(json::time),
        "damage": request.damage,
    })
}
