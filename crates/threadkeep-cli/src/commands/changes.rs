//! `threadkeep changes`

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use threadkeep::blocking::{ChangeFollower, Store};
use threadkeep::{ActivityQuery, ChangeEntry, ChangeQuery, Error};

use super::App;
use crate::errors::{Code, Failure, Outcome, Report};
use crate::names::short_id;
use crate::output::Output;
use crate::style::Ink;
use crate::table::{Align, Table, cell};
use crate::{human, json, text};

/// How often is looked whether anybody still reads the output.
const GLANCE: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep changes -f                          whatever changes from now on, in any program
  threadkeep changes 019a2284                    what changed in a thread, oldest first
  threadkeep changes --index --json              how far every thread is, and the cursor to go on from
  threadkeep changes --since CURSOR -f --json    what came after it: nothing twice, nothing left out
  threadkeep changes --keep 500000               keep more of them

A change says what was changed and not how: read the thread, the goal or the job for that. The store keeps the newest 100,000
changes at least; a cursor that is older than what is kept is refused, and `--index` gives a new one.";

/// Show or follow what changes in the store: items, threads, claims, goals, jobs and everything else
///
/// The changes of a thread come in the order of their commits, and nothing ever comes before a cursor that was given.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ChangesArgs {
    /// The thread; of the whole store without one
    thread: Option<String>,
    /// Begin behind this cursor [default: with the oldest change; with --follow from now on]
    #[arg(long, value_name = "CURSOR", visible_alias = "cursor")]
    since: Option<String>,
    /// Go on with what comes, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// At most this many, up to 10000
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1_000)]
    limit: usize,
    /// List how far every thread is, and the cursor from which on changes are to be read
    #[arg(long, conflicts_with_all = ["follow", "keep", "thread"])]
    index: bool,
    /// Keep this many changes at least from now on, 1000 or more
    #[arg(long, value_name = "N", conflicts_with_all = ["follow", "thread", "since"])]
    keep: Option<u64>,
}

/// Shows what changed.
pub(super) fn run(args: &ChangesArgs, app: &mut App) -> Outcome {
    if let Some(count) = args.keep {
        app.write()?.keep_changes(count)?;
        match app.out.is_json() {
            true => app.out.document(&json!({"kept": count}))?,
            false => app.out.line(format!("Keeps the newest {} changes at least", human::count(count)))?,
        }
        return Ok(Code::Done);
    }
    let store = open(app)?;
    if args.index {
        return index(app, &store, args);
    }
    let thread = args.thread.as_deref().map(|name| store.find(name)).transpose()?;
    let query = ChangeQuery { since: args.since.clone(), thread, limit: args.limit };
    match args.follow {
        true => follow(app, &store, query),
        false => list(app, &store, query),
    }
}

/// Opens the store for reading its feed, which is begun by the first who asks for it.
pub(super) fn open(app: &App) -> Result<Store, Failure> {
    let store = app.read()?;
    match store.latest_change() {
        Err(Error::ReadOnly { .. }) => {
            app.write()?.latest_change()?;
            Ok(app.read()?)
        }
        begun => Ok(begun.map(|_| store)?),
    }
}

/// The line for a change.
pub(super) fn line(store: &Store, out: &Output, change: &ChangeEntry) -> String {
    let place = change.thread.as_ref().map_or_else(|| "-".to_owned(), |thread| short_id(store, thread));
    let subject = change.subject.as_deref().map(|it| format!(" {}", text::one_line(it))).unwrap_or_default();
    let words = format!("{:<10} {}{subject}", change.area, change.verb);
    format!("{}  {place:<10} {words}", out.paint(Ink::Dim, &human::moment(change.at)))
}

/// The document for a change.
pub(super) fn document(change: &ChangeEntry) -> Value {
    json!({
        "cursor": change.cursor,
        "workspace": change.workspace,
        "thread": change.thread,
        "area": change.area,
        "verb": change.verb,
        "subject": change.subject,
        "tick": change.tick,
        "at": json::time(change.at),
    })
}

fn list(app: &mut App, store: &Store, query: ChangeQuery) -> Outcome {
    let page = store.changes(query)?;
    let next = page.more.then_some(page.cursor.as_str());
    if app.out.is_json() {
        let before = [("cursor", json!(page.cursor)), ("pending", json!(page.pending))];
        let mut listing = app.out.listing(&before, "changes")?;
        page.changes.iter().try_for_each(|change| listing.push(&document(change)))?;
        listing.finish(next)?;
        return Ok(Code::Done);
    }
    for change in &page.changes {
        let line = line(store, &app.out, change);
        app.out.line(line)?;
    }
    if let Some(next) = next {
        app.out.line(format!("\nMore: the same with --since {next}"))?;
    }
    Ok(Code::Done)
}

/// Shows what comes, until nobody reads it any more.
fn follow(app: &mut App, store: &Store, mut query: ChangeQuery) -> Outcome {
    if query.limit == 0 {
        return Err(Report::usage("--limit 0 would never show anything").hint("leave it out").into());
    }
    if query.since.is_none() {
        query.since = Some(store.latest_change()?);
    }
    let mut follower = store.follow_changes(query)?;
    loop {
        show(app, store, &mut follower)?;
        if app.out.is_closed() {
            return Err(Failure::BrokenPipe);
        }
    }
}

fn show(app: &mut App, store: &Store, follower: &mut ChangeFollower) -> Result<(), Failure> {
    for change in follower.next_within(GLANCE)? {
        match app.out.is_json() {
            true => app.out.document(&document(&change))?,
            false => {
                let line = line(store, &app.out, &change);
                app.out.line(line)?;
            }
        }
    }
    app.out.flush()
}

fn index(app: &mut App, store: &Store, args: &ChangesArgs) -> Outcome {
    let page = store.activity(ActivityQuery { limit: args.limit, cursor: args.since.clone() })?;
    if app.out.is_json() {
        let mut listing = app.out.listing(&[("since", json!(page.since))], "threads")?;
        for it in &page.threads {
            listing.push(&json!({
                "thread": it.thread,
                "tick": it.tick,
                "activity": it.activity,
                "updated_at": json::time(it.updated_at),
                "shelf": it.shelf,
            }))?;
        }
        listing.finish(page.next_cursor.as_deref())?;
        return Ok(Code::Done);
    }
    let columns =
        [("thread", Align::Left), ("tick", Align::Right), ("activity", Align::Right), ("changed", Align::Left)];
    let mut table = Table::new(&columns);
    let now = super::now();
    for it in &page.threads {
        table.row(vec![
            cell(Ink::Plain, it.thread.as_str()),
            cell(Ink::Plain, human::count(it.tick)),
            cell(Ink::Plain, human::count(it.activity)),
            cell(Ink::Dim, human::ago(it.updated_at, now)),
        ]);
    }
    table.write(&mut app.out)?;
    if let Some(next) = &page.next_cursor {
        app.out.line(format!("\nMore: the same with --since {next}"))?;
    }
    app.out.line(format!("\nWhat changes after this: threadkeep changes --since {}", page.since))?;
    Ok(Code::Done)
}
