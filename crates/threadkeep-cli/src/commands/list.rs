//! `threadkeep list`

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use threadkeep::blocking::{Store, Threads};
use threadkeep::{ItemQuery, Lineage, ListQuery, Page, Shelves, SortKey, Thread, Timestamp};

use super::App;
use crate::errors::{Code, Failure, Outcome, Report};
use crate::style::Ink;
use crate::table::{Align, Table, cell};
use crate::{human, json, names, text};

/// How many threads people get at once.
const FOR_PEOPLE: usize = 50;
/// The largest page that a store gives.
const LARGEST: usize = 1_000;

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep list                        the newest 50 threads of all projects
  threadkeep list -w .                   those of the project of this folder
  threadkeep list --agent codex --text login
  threadkeep list --archived --sort created
  threadkeep list --json | jq -r '.threads[].id'

Marks: ● is being written now, ★ pinned, a archived, x in the trash, ! damaged.";

/// List threads, newest first
///
/// All projects are listed; --workspace asks for one. People get 50 threads at a time and programs (--json) all of them,
/// unless --limit says otherwise. The number of items of a fork includes those that it shares.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, visible_alias = "ls")]
pub(super) struct ListArgs {
    /// Only this project: its id, its name, or a folder in it (`.` is this one)
    #[arg(short, long, value_name = "DIR|ID")]
    workspace: Option<String>,
    /// All projects; this is the default
    #[arg(long, conflicts_with = "workspace")]
    all: bool,
    /// Only this agent's threads, such as codex or claude-code
    #[arg(short, long)]
    agent: Option<String>,
    /// Archived threads instead of active ones
    #[arg(long)]
    archived: bool,
    /// Threads in the trash instead
    #[arg(long, conflicts_with = "archived")]
    trash: bool,
    /// Only threads whose title or first prompt contains this
    #[arg(long, value_name = "WORDS")]
    text: Option<String>,
    /// Only threads that were started in this folder
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Only forks of this thread
    #[arg(long, value_name = "THREAD")]
    forks_of: Option<String>,
    /// Only threads that this thread spawned
    #[arg(long, value_name = "THREAD", conflicts_with = "forks_of")]
    children_of: Option<String>,
    /// Only threads that have branched
    #[arg(long)]
    branchpoints: bool,
    /// The order
    #[arg(long, value_enum, default_value_t = Sort::Activity)]
    sort: Sort,
    /// Oldest first
    #[arg(long)]
    reverse: bool,
    /// At most this many threads, up to 1000
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<usize>,
    /// Go on where an earlier page of the same list ended
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// By the last item
    Activity,
    /// By the last change of any kind
    Updated,
    /// By when they were begun
    Created,
}

/// Lists.
pub(super) fn run(args: &ListArgs, app: &mut App) -> Outcome {
    let store = app.read()?;
    let query = query(args, &store, app.out.is_json())?;
    match &args.workspace {
        None => write(args, query, app, &store),
        Some(name) => {
            let id = names::find_workspace(&store, name)?.id;
            let workspace = store.workspace_by_id(id)?;
            write(args, query, app, &workspace)
        }
    }
}

fn query(args: &ListArgs, store: &Store, is_json: bool) -> Result<ListQuery, Failure> {
    let lineage = match (&args.forks_of, &args.children_of) {
        (Some(name), _) => Some(Lineage::ForksOf(store.find(name)?)),
        (_, Some(name)) => Some(Lineage::ChildrenOf(store.find(name)?)),
        (None, None) => None,
    };
    Ok(ListQuery {
        branched: args.branchpoints,
        sort: match args.sort {
            Sort::Activity => SortKey::Activity,
            Sort::Updated => SortKey::Updated,
            Sort::Created => SortKey::Created,
        },
        ascending: args.reverse,
        shelves: match (args.archived, args.trash) {
            (true, _) => Shelves::Archived,
            (_, true) => Shelves::Trash,
            _ => Shelves::Active,
        },
        agent: args.agent.clone(),
        cwd: args.cwd.as_deref().map(folder).transpose()?,
        text: args.text.clone(),
        lineage,
        limit: args.limit.unwrap_or(if is_json { LARGEST } else { FOR_PEOPLE }),
        cursor: args.cursor.clone(),
        ..ListQuery::default()
    })
}

fn folder(folder: &Path) -> Result<String, Failure> {
    let folder = std::path::absolute(folder)?;
    let text = folder.to_str().map(|text| text.trim_end_matches('/'));
    let text = text.ok_or_else(|| Report::usage("--cwd is not valid UTF-8"))?;
    Ok(if text.is_empty() { "/".to_owned() } else { text.to_owned() })
}

fn write(args: &ListArgs, query: ListQuery, app: &mut App, threads: &Threads) -> Outcome {
    if app.out.is_json() {
        return write_json(args, query, app, threads);
    }
    let page = threads.list(query)?;
    if page.entries.is_empty() {
        app.out.line("No threads here.")?;
        return Ok(Code::Done);
    }
    write_table(args, &page, app, threads)?;
    if let Some(cursor) = &page.next_cursor {
        let more = format!("More: the same with --cursor {cursor}");
        app.out.line(format!("\n{}", app.out.paint(Ink::Dim, &more)))?;
    }
    Ok(Code::Done)
}

fn write_json(args: &ListArgs, mut query: ListQuery, app: &mut App, threads: &Threads) -> Outcome {
    let mut listing = app.out.listing(&[], "threads")?;
    loop {
        let page = match threads.list(query.clone()) {
            Ok(page) => page,
            Err(error) => return Err(listing.fail(error.into())),
        };
        for thread in &page.entries {
            listing.push(&json::thread(thread))?;
        }
        if args.limit.is_some() || page.next_cursor.is_none() {
            listing.finish(page.next_cursor.as_deref())?;
            return Ok(Code::Done);
        }
        query.cursor = page.next_cursor;
    }
}

fn write_table(args: &ListArgs, page: &Page<Thread>, app: &mut App, threads: &Threads) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("", Align::Left),
        ("id", Align::Left),
        ("title", Align::Flexible),
        ("agent", Align::Left),
        ("workspace", Align::Left),
        ("items", Align::Right),
        ("branches", Align::Right),
        ("tokens", Align::Right),
        ("when", Align::Left),
    ]);
    let now = super::now();
    for thread in &page.entries {
        let items = thread.items + json::shared_items(thread);
        let when = if args.sort == Sort::Created { thread.created_at } else { last_word(threads, thread) };
        table.row(vec![
            cell(Ink::Good, marks(thread)),
            cell(Ink::Dim, names::short_id(threads, &thread.id)),
            cell(Ink::Plain, text::cut(&text::one_line(thread.name()), 72)),
            cell(Ink::Plain, thread.details.agent.as_deref().unwrap_or("")),
            cell(Ink::Plain, text::cut(&text::one_line(&thread.workspace_name), 16)),
            cell(Ink::Plain, human::count(items)),
            cell(Ink::Plain, if thread.branches > 1 { human::count(thread.branches) } else { String::new() }),
            cell(Ink::Plain, tokens(thread)),
            cell(Ink::Dim, human::ago(when, now)),
        ]);
    }
    table.write(&mut app.out)
}

/// When the thread's last item was made. An import changes the thread, not its age.
pub(crate) fn last_word(threads: &Threads, thread: &Thread) -> Timestamp {
    let query = ItemQuery { newest_first: true, limit: 1, ..ItemQuery::default() };
    let last = threads.items(&thread.id, query).ok().and_then(|page| page.entries.into_iter().next());
    last.map_or(thread.updated_at, |item| item.created_at)
}

fn marks(thread: &Thread) -> String {
    let marks: [(bool, &str); 5] = [
        (thread.live, "●"),
        (thread.pinned, "★"),
        (thread.archived_at.is_some(), "a"),
        (thread.trashed_at.is_some(), "x"),
        (thread.damage.is_some(), "!"),
    ];
    marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect()
}

fn tokens(thread: &Thread) -> String {
    thread.details.usage.map_or(String::new(), |usage| human::short(usage.input.saturating_add(usage.output)))
}
