//! `threadkeep prompt`

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use threadkeep::blocking::Store;
use threadkeep::{
    Error, NewPrompt, Prompt, PromptId, PromptOrigin, PromptQuery, PromptTurn, Receipt, StoredPrompt, ThreadId,
};

use super::App;
use crate::errors::{Code, Failure, Outcome};
use crate::names::{self, Target};
use crate::style::Ink;
use crate::table::{Align, Table, cell};
use crate::{human, json, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep prompt add 019a2284 'make the test pass'            a task of its own
  threadkeep prompt add 019a2284 'and the docs' --continues active
  threadkeep prompt add 019a2284 - --retry last < prompt.txt
  threadkeep prompt list 019a2284
  threadkeep prompt show 019a2284                                what is to be done
  threadkeep prompt show 019a2284 last --raw > typed.txt         to the byte
  threadkeep prompt lineage 019a2284 last

PROMPT is its id or the beginning of it, with `prompt:` or without; `last` is the last one of the
path, and `active` the one that says what is to be done: what continues a task and what tries it
again leave that task in force. Adding needs the right to write the thread.";

/// Store prompts with what they follow from, before any work on them begins, and read them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PromptArgs {
    #[command(subcommand)]
    what: PromptCommand,
}

#[derive(Debug, Subcommand)]
enum PromptCommand {
    /// Store a prompt and begin its turn; it is synced when this ends
    Add(AddArgs),
    /// List the prompts of a thread's path, the last ones first
    List(ListArgs),
    /// Write a prompt as the model is given it, and say where it stands
    Show {
        /// The thread
        thread: String,
        /// The prompt
        #[arg(default_value = "active")]
        prompt: String,
        /// Write what was typed and nothing else, to the byte
        #[arg(long)]
        raw: bool,
    },
    /// Show the prompts from one up to the first of its task
    Lineage {
        /// The thread
        thread: String,
        /// The prompt
        #[arg(default_value = "last")]
        prompt: String,
    },
}

#[derive(Debug, Args)]
struct AddArgs {
    /// The thread
    thread: String,
    /// What the model is given; `-` reads standard input
    text: String,
    /// The file that holds what was typed, any bytes [default: the same]
    #[arg(long, value_name = "FILE")]
    raw: Option<PathBuf>,
    /// The prompt whose task it continues
    #[arg(long, value_name = "PROMPT", conflicts_with = "retry")]
    continues: Option<String>,
    /// The prompt that the harness tries again with it
    #[arg(long, value_name = "PROMPT")]
    retry: Option<String>,
    /// Its id, so that a repeated call stores it once
    #[arg(long, value_name = "UUID")]
    id: Option<PromptId>,
    /// It comes into the open turn and begins none
    #[arg(long)]
    open_turn: bool,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// The thread; with a depth the path up to there
    #[arg(value_name = "THREAD[@DEPTH]")]
    thread: String,
    /// Only those of the task that this prompt belongs to
    #[arg(long, value_name = "PROMPT")]
    task: Option<String>,
    /// The first ones first
    #[arg(long)]
    reverse: bool,
    /// At most this many, up to 256
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Go on where an earlier page of the same list ended
    #[arg(long)]
    cursor: Option<String>,
}

/// Answers.
pub(super) fn run(args: &PromptArgs, app: &mut App) -> Outcome {
    match &args.what {
        PromptCommand::Add(args) => add(args, app),
        PromptCommand::List(args) => list(args, app),
        PromptCommand::Show { thread, prompt, raw } => {
            let store = app.read()?;
            let thread = store.find(thread)?;
            let prompt = store.prompt(&thread, find(&store, &thread, prompt)?)?;
            if *raw && !app.out.is_json() {
                app.out.bytes(&prompt.raw)?;
                return Ok(Code::Done);
            }
            show(app, &prompt)
        }
        PromptCommand::Lineage { thread, prompt } => {
            let store = app.read()?;
            let thread = store.find(thread)?;
            let lineage = store.prompt_lineage(&thread, find(&store, &thread, prompt)?)?;
            write_lineage(app, &store, &thread, &lineage)
        }
    }
}

/// Finds a prompt of a thread by its id or the beginning of it, or by what it is there.
pub(super) fn find(store: &Store, thread: &ThreadId, name: &str) -> Result<PromptId, Failure> {
    let context = match name {
        "active" | "last" => store.prompt_context(thread, None)?,
        _ => return Ok(store.find_prompt(thread, name)?),
    };
    let missing = || Error::NotFound { what: "prompt", id: format!("{name} of {thread}") };
    let context = context.ok_or_else(missing)?;
    let prompt = if name == "last" { Some(context.submitted) } else { context.active };
    Ok(prompt.ok_or_else(missing)?.receipt.id)
}

fn add(args: &AddArgs, app: &mut App) -> Outcome {
    let given = read_text(&args.text)?;
    let store = app.write()?;
    let thread = store.find(&args.thread)?;
    let parent = args.continues.as_ref().or(args.retry.as_ref());
    let parent = parent.map(|name| find(&store, &thread, name)).transpose()?;
    let origin = if args.retry.is_some() { PromptOrigin::HarnessRetry } else { PromptOrigin::Operator };
    let turn = if args.open_turn { PromptTurn::Open } else { PromptTurn::New };
    let new = NewPrompt { id: args.id, origin, parent, turn, ..NewPrompt::task(given) };
    let new = match &args.raw {
        Some(file) => NewPrompt { raw: fs::read(file)?, ..new },
        None => new,
    };
    let stored = super::under_claim(&store, &thread, |live| Ok(live.begin_prompt(new)?))?;
    told(app, &stored)
}

/// What is given on the command line, or on standard input.
pub(super) fn read_text(given: &str) -> Result<String, Failure> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    let mut words = String::new();
    std::io::stdin().read_to_string(&mut words)?;
    Ok(words)
}

fn told(app: &mut App, stored: &StoredPrompt) -> Outcome {
    let receipt = &stored.receipt;
    if app.out.is_json() {
        let prompt = json::with(json::receipt(receipt), [("previous", json!(stored.previous))]);
        app.out.document(&json!({"prompt": prompt, "repeated": stored.repeated}))?;
        return Ok(Code::Done);
    }
    let verb = if stored.repeated { "Was stored before" } else { "Stored" };
    let task =
        if receipt.active == receipt.id { "a task of its own".to_owned() } else { format!("of {}", receipt.active) };
    let id = app.out.paint(Ink::Dim, &receipt.id.to_string());
    app.out.line(format!("{verb} @{}, {task}: {id}", receipt.address.depth))?;
    Ok(Code::Done)
}

fn list(args: &ListArgs, app: &mut App) -> Outcome {
    let store = app.read()?;
    let target = Target::find(&store, &args.thread)?;
    let task = args.task.as_ref().map(|name| {
        let id = find(&store, &target.thread, name)?;
        Ok::<_, Failure>(store.prompt(&target.thread, id)?.receipt.root)
    });
    let query = PromptQuery {
        at: target.address(&store, None)?,
        root: task.transpose()?,
        newest_first: !args.reverse,
        limit: args.limit,
        cursor: args.cursor.clone(),
    };
    let page = store.prompts(&target.thread, query)?;
    if app.out.is_json() {
        let mut listing = app.out.listing(&[("total", page.total.into())], "prompts")?;
        page.entries.iter().try_for_each(|prompt| listing.push(&json::prompt(prompt)))?;
        listing.finish(page.next_cursor.as_deref())?;
        return Ok(Code::Done);
    }
    if page.entries.is_empty() {
        app.out.line(if page.total == 0 { "No such prompt." } else { "Nothing on this page." })?;
        return Ok(Code::Done);
    }
    let columns = [
        ("id", Align::Left),
        ("at", Align::Right),
        ("is", Align::Left),
        ("asked", Align::Left),
        ("prompt", Align::Flexible),
    ];
    let (mut table, now) = (Table::new(&columns), super::now());
    for prompt in &page.entries {
        let receipt = &prompt.receipt;
        let words = match &prompt.damage {
            Some(damage) => format!("damaged: {}", text::one_line(damage)),
            None => text::one_line(&prompt.text),
        };
        let ink = if prompt.damage.is_some() { Ink::Bad } else { Ink::Plain };
        table.row(vec![
            cell(Ink::Dim, receipt.id.to_string()),
            cell(Ink::Plain, format!("@{}", receipt.address.depth)),
            cell(Ink::Plain, what_it_is(receipt)),
            cell(Ink::Dim, human::ago(receipt.created_at, now)),
            cell(ink, words),
        ]);
    }
    table.write(&mut app.out)?;
    if let Some(next) = page.next_cursor {
        let left = page.total.saturating_sub(page.entries.len() as u64);
        app.out.line(format!("\n{left} others; more: the same with --cursor {next}"))?;
    }
    Ok(Code::Done)
}

/// What a prompt is among others, in a word or two.
fn what_it_is(receipt: &Receipt) -> String {
    match (&receipt.origin, receipt.parent) {
        (PromptOrigin::Operator, None) => "task".to_owned(),
        (PromptOrigin::Operator, Some(_)) => format!("more ({})", receipt.generation),
        (PromptOrigin::HarnessRetry, _) => format!("retry ({})", receipt.generation),
        (other, _) => text::one_line(other.as_str()),
    }
}

fn show(app: &mut App, prompt: &Prompt) -> Outcome {
    if app.out.is_json() {
        app.out.document(&json!({"prompt": json::prompt(prompt)}))?;
        return Ok(Code::Done);
    }
    let receipt = &prompt.receipt;
    let id = |name, id: Option<PromptId>| id.map(|id| (name, id.to_string()));
    let is_typed = prompt.raw == prompt.text.as_bytes();
    let size = i64::try_from(prompt.raw.len()).unwrap_or(i64::MAX);
    let lines = [
        Some(("id", receipt.id.to_string())),
        Some(("is", format!("{} of {}", what_it_is(receipt), text::one_line(receipt.origin.as_str())))),
        Some(("at", format!("@{}", receipt.address.depth))),
        receipt.turn.map(|turn| ("turn", turn.to_string())),
        id("parent", receipt.parent),
        id("root", Some(receipt.root).filter(|root| *root != receipt.id)),
        id("active", Some(receipt.active).filter(|active| *active != receipt.id)),
        id("previous", prompt.previous),
        Some(("asked", human::ago(receipt.created_at, super::now()))),
        (!is_typed).then(|| ("typed", format!("{}, otherwise than given: --raw", human::bytes(size)))),
        prompt.redaction.as_ref().map(|told| ("redacted", text::one_line(&told.to_string()))),
    ];
    for (name, value) in lines.into_iter().flatten() {
        app.out.line(format!("  {name:<9} {value}"))?;
    }
    app.out.line("")?;
    app.out.line(text::clean(&prompt.text))?;
    Ok(Code::Done)
}

fn write_lineage(app: &mut App, store: &Store, thread: &ThreadId, lineage: &[Receipt]) -> Outcome {
    if app.out.is_json() {
        let receipts: Vec<_> = lineage.iter().map(json::receipt).collect();
        app.out.document(&json!({"lineage": receipts}))?;
        return Ok(Code::Done);
    }
    for receipt in lineage {
        let mark = if lineage.first().is_some_and(|first| first.active == receipt.id) { "▸" } else { " " };
        let id = app.out.paint(Ink::Dim, &receipt.id.to_string());
        let place = names::of_item(store, thread, receipt.address)?;
        app.out.line(format!("{mark} {id}  {:<11} {place}", what_it_is(receipt)))?;
    }
    Ok(Code::Done)
}
