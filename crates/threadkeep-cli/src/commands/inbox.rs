//! `threadkeep inbox`

use std::io::Read as _;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use threadkeep::{
    Message, MessageEnd, MessageFormat, MessageId, MessagePolicy, MessageQuery, MessageState, NewMessage, PromptAs,
    TakeInto, TakeMessage, TurnEnd, TurnStatus, Uuid,
};

use super::{App, goal, under_claim};
use crate::errors::{Code, Outcome, Report};
use crate::style::Ink;
use crate::table::{Align, Table, cell};
use crate::{human, json, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep inbox inject 019a2284 'use the staging database' --policy steer --key ticket-17
  git log -1 --format=%B | threadkeep inbox inject 019a2284 - --expires 2h
  threadkeep inbox list 019a2284 --state queued
  threadkeep inbox take 019a2284                       write the next message's prompt
  threadkeep inbox acted 019a2284 019a22f1 --outcome 'done in 4 minutes'
  threadkeep inbox wait 019a2284 --timeout 30s && threadkeep inbox take 019a2284

Anybody may send, while an agent works or not; the same key again sends nothing twice. Only the
holder of the thread takes, each message once: its prompt is in the thread as soon as it is taken.
What was taken and not acted on when its holder ended is never sent again by itself; `list` calls
it unfinished.";

/// Send messages into threads, and take them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct InboxArgs {
    #[command(subcommand)]
    what: InboxCommand,
}

#[derive(Debug, Subcommand)]
enum InboxCommand {
    /// Put a message into a thread's inbox
    Inject(InjectArgs),
    /// List the messages of a thread, those that were accepted last first
    List(ListArgs),
    /// Say all that is known of a message
    Show {
        /// The thread
        thread: String,
        /// The message: its id or the beginning of it
        message: String,
    },
    /// Take the next message: write its prompt into the thread, and begin a turn with it
    ///
    /// Ends with 1 when no message waits.
    Take(TakeArgs),
    /// Say what became of a message that was taken; ends its turn if that is still open
    Acted {
        /// The thread
        thread: String,
        /// The message: its id or the beginning of it
        message: String,
        /// What there is to say of it
        #[arg(long, value_name = "WORDS")]
        outcome: Option<String>,
        /// Nothing will come of it
        #[arg(long, requires = "outcome")]
        failed: bool,
    },
    /// Take a message back that nobody took yet
    Withdraw {
        /// The thread
        thread: String,
        /// The message: its id or the beginning of it
        message: String,
        /// Why
        #[arg(long, value_name = "WORDS")]
        reason: Option<String>,
    },
    /// Put the messages that wait into another order, which names each of them once
    Reorder {
        /// The thread
        thread: String,
        /// The messages, the one to be taken first at the beginning
        #[arg(required = true)]
        messages: Vec<String>,
    },
    /// Wait until a message could be taken
    ///
    /// Ends with 1 when none came in time.
    Wait {
        /// The thread
        thread: String,
        /// How long to wait: 90s, 2h30m … [default: for ever]
        #[arg(long, value_name = "DURATION", value_parser = goal::duration)]
        timeout: Option<Duration>,
        /// Where its prompt would go
        #[arg(long, value_enum, default_value_t = Into::Either)]
        into: Into,
    },
}

#[derive(Debug, Args)]
struct InjectArgs {
    /// The thread
    thread: String,
    /// What it says; `-` reads standard input
    body: String,
    /// The body is JSON, and is kept byte by byte
    #[arg(long)]
    body_is_json: bool,
    /// The sender's own name for it, so that a repeated call sends it once
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// What it wants when the thread is busy
    #[arg(long, value_enum, default_value_t = Policy::Enqueue)]
    policy: Policy,
    /// Greater ones are taken first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// How long it may wait: 90s, 2h30m … [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = goal::duration)]
    expires: Option<Duration>,
    /// Who sends it [default: the user]
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
    /// What it is sent with
    #[arg(long, value_name = "WORDS")]
    source: Option<String>,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// The thread
    thread: String,
    /// Only those in this state: queued, taken, delivered, acted, failed, expired, withdrawn, rejected
    #[arg(long, value_name = "WORD")]
    state: Option<String>,
    /// Those that were accepted first at the beginning
    #[arg(long)]
    reverse: bool,
    /// At most this many, up to 1000
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Go on where an earlier page of the same list ended
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, Args)]
struct TakeArgs {
    /// The thread
    thread: String,
    /// Where its prompt goes
    #[arg(long, value_enum, default_value_t = Into::Either)]
    into: Into,
    /// So that a repeated call finds the message that this one took
    #[arg(long, value_name = "UUID")]
    token: Option<Uuid>,
    /// Take it though an earlier holder left a message unfinished
    #[arg(long)]
    past_unfinished: bool,
    /// Store its prompt as a receipt: a task of its own
    #[arg(long)]
    receipt: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Policy {
    /// It waits in the line
    Enqueue,
    /// It is rejected
    Reject,
    /// It goes before the others, and may come into the open turn
    Steer,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Into {
    /// Into the open turn when there is one, which only messages do that steer; else it begins a turn
    Either,
    /// It begins a turn; one that is open is marked as interrupted
    NewTurn,
    /// The first that steers comes into the open turn
    OpenTurn,
}

impl Into {
    fn take(self) -> TakeInto {
        match self {
            Self::Either => TakeInto::Either,
            Self::NewTurn => TakeInto::NewTurn,
            Self::OpenTurn => TakeInto::OpenTurn,
        }
    }
}

/// Answers.
pub(super) fn run(args: &InboxArgs, app: &mut App) -> Outcome {
    match &args.what {
        InboxCommand::Inject(args) => inject(args, app),
        InboxCommand::List(args) => list(args, app),
        InboxCommand::Show { thread, message } => {
            let store = app.read()?;
            let thread = store.find(thread)?;
            let message = store.message(&thread, store.find_message(&thread, message)?)?;
            show(app, &message)
        }
        InboxCommand::Take(args) => take(args, app),
        InboxCommand::Acted { thread, message, outcome, failed } => {
            acted(app, (thread, message), outcome.clone(), *failed)
        }
        InboxCommand::Withdraw { thread, message, reason } => {
            let store = app.write()?;
            let thread = store.find(thread)?;
            let id = store.find_message(&thread, message)?;
            let message = store.withdraw_message(&thread, id, reason.clone())?;
            changed(app, &message)
        }
        InboxCommand::Reorder { thread, messages } => {
            let store = app.write()?;
            let thread = store.find(thread)?;
            let find = |name: &String| store.find_message(&thread, name);
            let order = messages.iter().map(find).collect::<Result<Vec<MessageId>, _>>()?;
            store.reorder_messages(&thread, order)?;
            queue(app, &store.message_queue(&thread)?)
        }
        InboxCommand::Wait { thread, timeout, into } => wait(app, thread, *timeout, *into),
    }
}

/// The user's name, as this program is told it.
pub(super) fn user() -> String {
    super::redact::user().unwrap_or_else(|| "somebody".to_owned())
}

fn inject(args: &InjectArgs, app: &mut App) -> Outcome {
    let body = match args.body.as_str() {
        "-" => {
            let mut body = String::new();
            std::io::stdin().read_to_string(&mut body)?;
            body
        }
        body => body.to_owned(),
    };
    let store = app.write()?;
    let thread = store.find(&args.thread)?;
    let message = NewMessage {
        key: args.key.clone(),
        body,
        format: if args.body_is_json { MessageFormat::Json } else { MessageFormat::Text },
        policy: match args.policy {
            Policy::Enqueue => MessagePolicy::Enqueue,
            Policy::Reject => MessagePolicy::Reject,
            Policy::Steer => MessagePolicy::Steer,
        },
        priority: args.priority,
        expires_in: args.expires,
        sender: args.from.clone().unwrap_or_else(user),
        source: args.source.clone(),
    };
    let message = store.inject_message(&thread, message)?;
    changed(app, &message)?;
    Ok(if message.state == MessageState::Rejected { Code::NotDone } else { Code::Done })
}

fn take(args: &TakeArgs, app: &mut App) -> Outcome {
    let store = app.write()?;
    let thread = store.find(&args.thread)?;
    let prompt = if args.receipt { PromptAs::Receipt { parent: None } } else { PromptAs::Item };
    let how = TakeMessage { token: args.token, into: args.into.take(), past_unfinished: args.past_unfinished, prompt };
    let taken = under_claim(&store, &thread, |live| Ok(live.take_message(how)?))?;
    let Some(taken) = taken else {
        let report = Report::new(Code::NotDone, "nothing-waits", "no message waits that could be taken");
        return Err(report.hint("`threadkeep inbox list` shows what there is").into());
    };
    if app.out.is_json() {
        let prompt = json::place(&thread, taken.prompt);
        app.out
            .document(&json!({"message": document(&taken.message), "prompt": prompt, "receipt": taken.receipt, "repeated": taken.repeated}))?;
        return Ok(Code::Done);
    }
    let id = app.out.paint(Ink::Dim, &taken.message.id.to_string());
    app.out.line(format!("{id} from {}, now @{}", text::one_line(&taken.message.sender), taken.prompt.depth))?;
    app.out.line(text::clean(&taken.message.body))?;
    Ok(Code::Done)
}

fn acted(app: &mut App, (thread, message): (&str, &str), outcome: Option<String>, failed: bool) -> Outcome {
    let store = app.write()?;
    let thread = store.find(thread)?;
    let id = store.find_message(&thread, message)?;
    let end = match (failed, outcome) {
        (true, reason) => MessageEnd::Failed { reason: reason.unwrap_or_default() },
        (false, outcome) => MessageEnd::Acted { outcome },
    };
    let message = under_claim(&store, &thread, |live| {
        let message = live.end_message(id, end)?;
        if message.turn.is_some() && store.open_turn(&thread)? == message.turn {
            let status = if failed { TurnStatus::Failed } else { TurnStatus::Completed };
            live.end_turn(TurnEnd { status, ..TurnEnd::completed() })?;
        }
        Ok(message)
    })?;
    changed(app, &message)
}

fn wait(app: &mut App, thread: &str, timeout: Option<Duration>, into: Into) -> Outcome {
    let store = app.read()?;
    let thread = store.find(thread)?;
    let mut watch = store.watch_inbox(&thread, into.take())?;
    let waits = match timeout {
        Some(timeout) => watch.next_within(timeout)?,
        None => watch.next().map(|()| true)?,
    };
    match app.out.is_json() {
        true => app.out.document(&json!({"waits": waits}))?,
        false => app.out.line(if waits { "A message waits." } else { "No message came." })?,
    }
    Ok(if waits { Code::Done } else { Code::NotDone })
}

fn queue(app: &mut App, queue: &[MessageId]) -> Outcome {
    if app.out.is_json() {
        app.out.document(&json!({"queue": queue}))?;
    } else {
        queue.iter().try_for_each(|id| app.out.line(id.to_string()))?;
    }
    Ok(Code::Done)
}

fn changed(app: &mut App, message: &Message) -> Outcome {
    if app.out.is_json() {
        app.out.document(&json!({"message": document(message)}))?;
        return Ok(Code::Done);
    }
    let (body, id) = (text::one_line(&message.body), app.out.paint(Ink::Dim, &message.id.to_string()));
    app.out.line(format!("{}: {}  {id}", text::one_line(message.state.as_str()), text::cut(&body, 60)))?;
    Ok(Code::Done)
}

fn list(args: &ListArgs, app: &mut App) -> Outcome {
    let store = app.read()?;
    let query = MessageQuery {
        state: args.state.as_deref().map(MessageState::from_word),
        ascending: args.reverse,
        limit: args.limit,
        cursor: args.cursor.clone(),
    };
    let page = store.messages(&store.find(&args.thread)?, query)?;
    if app.out.is_json() {
        app.out.page("messages", &page, document)?;
        return Ok(Code::Done);
    }
    if page.entries.is_empty() {
        app.out.line("No such message.")?;
        return Ok(Code::Done);
    }
    let columns = [
        ("id", Align::Left),
        ("state", Align::Left),
        ("policy", Align::Left),
        ("prio", Align::Right),
        ("from", Align::Left),
        ("accepted", Align::Left),
        ("message", Align::Flexible),
    ];
    let mut table = Table::new(&columns);
    let now = super::now();
    for message in &page.entries {
        let body = text::one_line(&message.body);
        let words = match &message.damage {
            Some(damage) => format!("damaged: {}", text::one_line(damage)),
            None => body,
        };
        table.row(vec![
            cell(Ink::Dim, message.id.to_string()),
            cell(state_ink(message), state_words(message)),
            cell(Ink::Plain, text::one_line(message.policy.as_str())),
            cell(Ink::Plain, message.priority.to_string()),
            cell(Ink::Plain, text::one_line(&message.sender)),
            cell(Ink::Dim, human::ago(message.accepted_at, now)),
            cell(Ink::Plain, words),
        ]);
    }
    table.write(&mut app.out)?;
    if let Some(next) = page.next_cursor {
        app.out.line(format!("\nMore: the same with --cursor {next}"))?;
    }
    Ok(Code::Done)
}

fn show(app: &mut App, message: &Message) -> Outcome {
    if app.out.is_json() {
        app.out.document(&json!({"message": document(message)}))?;
        return Ok(Code::Done);
    }
    let now = super::now();
    let opt = |name, value: &Option<String>| value.as_ref().map(|value| (name, text::one_line(value)));
    let time = |name, at: Option<threadkeep::Timestamp>| at.map(|at| (name, human::ago(at, now)));
    let lines = [
        Some(("id", message.id.to_string())),
        Some(("state", state_words(message))),
        opt("key", &message.key),
        Some(("from", text::one_line(&message.sender))),
        opt("source", &message.source),
        Some(("policy", format!("{}, priority {}", text::one_line(message.policy.as_str()), message.priority))),
        Some(("accepted", human::ago(message.accepted_at, now))),
        message.expires_at.map(|at| ("expires", human::moment(at))),
        time("taken", message.taken_at),
        message.prompt.map(|prompt| ("prompt", prompt.to_string())),
        message.turn.map(|turn| ("turn", turn.to_string())),
        time("delivered", message.delivered_at),
        time("ended", message.ended_at),
        opt("outcome", &message.outcome),
    ];
    for (name, value) in lines.into_iter().flatten() {
        app.out.line(format!("  {name:<9} {value}"))?;
    }
    app.out.line("")?;
    app.out.line(text::clean(&message.body))?;
    Ok(Code::Done)
}

fn state_ink(message: &Message) -> Ink {
    match message.state {
        _ if message.unfinished => Ink::Warn,
        MessageState::Failed => Ink::Bad,
        MessageState::Acted => Ink::Good,
        _ => Ink::Plain,
    }
}

fn state_words(message: &Message) -> String {
    let state = text::one_line(message.state.as_str());
    if message.unfinished { format!("{state}, unfinished") } else { state }
}

fn document(message: &Message) -> Value {
    let acted_at = (message.state == MessageState::Acted).then_some(message.ended_at).flatten();
    json!({
        "id": message.id,
        "thread": message.thread,
        "number": message.number,
        "key": message.key,
        "state": message.state,
        "unfinished": message.unfinished,
        "policy": message.policy,
        "priority": message.priority,
        "format": message.format,
        "body": message.body,
        "masked": message.masked,
        "sender": message.sender,
        "source": message.source,
        "prompt": message.prompt,
        "turn": message.turn,
        "accepted_at": json::time(message.accepted_at),
        "expires_at": message.expires_at.map(json::time),
        "taken_at": message.taken_at.map(json::time),
        "delivered_at": message.delivered_at.map(json::time),
        "acted_at": acted_at.map(json::time),
        "ended_at": message.ended_at.map(json::time),
        "outcome": message.outcome,
        "damage": message.damage,
    })
}
