//! `threadkeep show`

mod finding;
pub(super) mod neighbours;

use std::path::Path;

use clap::Args;
use threadkeep::blocking::{Store, Threads};
use threadkeep::{Address, Error, Item, ItemQuery, ListQuery, Page, Shelves, StoreOptions, Thread, ThreadId};
use threadkeep_agents::import::{ImportOptions, Importer};

use self::finding::Finding;
use self::neighbours::Neighbours;
use super::{App, rollout};
use crate::around::around;
use crate::conversation::Conversation;
use crate::errors::{Code, Failure, Outcome};
use crate::marking::Words;
use crate::masking::{MaskingArgs, Veil};
use crate::names::{self, Target};
use crate::output::Output;
use crate::style::Ink;
use crate::views::{self, Views};
use crate::{human, json, markdown, text};

/// How many items are read at a time.
const PAGE: usize = 256;

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep show -                      the newest thread
  threadkeep show 019a2284 --last 10     its last ten items
  threadkeep show 019a2284@12            its path up to depth 12: what a fork there would see
  threadkeep show 019a2284@12 --around 3  what was said before and after that, on its branch
  threadkeep show 019a2284 --find 'rate limit'   every place where that stands, on every branch
  threadkeep show 019a2284 --branch try-2
  threadkeep show 'Fix the login test' --markdown > login.md
  threadkeep show 019a2284 --mask-secrets --markdown > to-share.md
  threadkeep show ./rollout-2026-11-30.jsonl  a file: a rollout, or what an agent wrote
  threadkeep show 019a2284 --json --raw | jq -r '.items[].content'

JSON: {thread, items, next_cursor}; with --around {thread, at, items, more_before, more_after}; with --find {thread,
  places: [{address, item, branch, depth, active, kind, role, created_at, range, line_number, line, mark}], next_cursor}
`range` is in bytes of the item's `text`, `mark` in bytes of `line`, which is cut 400 bytes before and behind the place.";

/// Read a thread's active path, or any other branch
///
/// People see the conversation: events, settings and other side records are hidden (and counted), long results and
/// instructions are cut; --all shows everything. With --json every item of the path is there.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ShowArgs {
    /// The thread; with @DEPTH its path ends there. The path of a file that ends in .jsonl or .jsonl.zst shows what is
    /// in it, and stores nothing
    #[arg(value_name = "THREAD[@DEPTH]|FILE")]
    thread: String,
    /// Only the last N items
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "limit")]
    last: Option<usize>,
    /// Only items from this depth on
    #[arg(long, value_name = "DEPTH", default_value_t = 0)]
    from: u32,
    /// Only items up to this depth
    #[arg(long, value_name = "DEPTH")]
    to: Option<u32>,
    /// The path of this branch: its label, its id or the beginning of it
    #[arg(short, long)]
    branch: Option<String>,
    /// Only the item at @DEPTH, the head by default, and up to K items before and behind it on its branch
    #[arg(long, value_name = "K", conflicts_with_all = ["last", "limit", "cursor", "from", "to", "context", "raw", "markdown"])]
    around: Option<usize>,
    /// Only the places where this text stands, whatever its case: on every branch, or up to @DEPTH or on --branch
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        conflicts_with_all = ["last", "limit", "cursor", "around", "context", "raw", "markdown"]
    )]
    find: Option<String>,
    /// What a model is given to go on: the latest summary and what follows it
    #[arg(long, conflicts_with = "branch")]
    context: bool,
    /// The stored bytes, one item after the other
    #[arg(long, conflicts_with = "markdown")]
    raw: bool,
    /// A Markdown document
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Hide nothing and cut nothing
    #[arg(long)]
    all: bool,
    /// At most this many items; all by default
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Go on where an earlier page of the same items ended
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    masking: MaskingArgs,
}

/// Shows.
pub(super) fn run(args: &ShowArgs, app: &mut App) -> Outcome {
    if !names_a_file(&args.thread) {
        let store = app.read()?;
        return show(args, app, &store, &args.thread);
    }
    let (store, thread, is_whole) = read_file(Path::new(&args.thread))?;
    let shown = show(args, app, &store, thread.as_str())?;
    Ok(if is_whole { shown } else { Code::Partial })
}

/// Whether a word that stands for a thread is the path of a file of lines.
pub(super) fn names_a_file(name: &str) -> bool {
    [".jsonl", ".jsonl.zst"].iter().any(|end| name.ends_with(end)) && Path::new(name).is_file()
}

/// Reads a file into a store that is gone in the end; says whether nothing of it was lost.
pub(super) fn read_file(path: &Path) -> Result<(Store, ThreadId, bool), Failure> {
    let store = Store::open(views::read_all(StoreOptions::memory()))?;
    match store.rebuild_from_rollouts(path, |_| {}) {
        Ok(report) => {
            rollout::tell_lines(&report.problems);
            if let Some(problem) = report.carried.problems.into_iter().next() {
                let place = path.display().to_string();
                return Err(Error::Corrupt { place, detail: problem.reason }.into());
            }
            let thread = store.thread_of_rollout(path)?.id;
            return Ok((store, thread, report.problems.is_empty()));
        }
        // Not one of ours.
        Err(Error::Invalid { field: "rollout", .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let report = Importer::new(&store, ImportOptions::default()).run(&[path.to_owned()], &mut |_| {})?;
    let query = ListQuery { limit: 1, shelves: Shelves::Both, ..ListQuery::default() };
    let thread = store.list(query)?.entries.into_iter().next().map(|thread| thread.id);
    let unknown =
        || Error::Invalid { field: "file", reason: format!("nothing here knows how to read {}", path.display()) };
    Ok((store, thread.ok_or_else(unknown)?, report.problems.is_empty()))
}

fn show(args: &ShowArgs, app: &mut App, store: &Store, name: &str) -> Outcome {
    let target = Target::find(store, name)?;
    let at = target.address(store, args.branch.as_deref())?;
    let veil = Veil::new(&args.masking)?;
    let mut thread = store.get(&target.thread)?;
    veil.thread(&mut thread);
    let (from, to) = (args.from, args.to);
    let query = ItemQuery { at, from, to, cursor: args.cursor.clone(), ..ItemQuery::default() };
    let mut pages = Pages { store, thread: &target.thread, context: args.context, query, veil: &veil };
    let reading = Reading { args, views: Views::new() };
    let outcome = if let Some(wanted) = &args.find {
        let (threads, thread, veil) = (&**store, &thread, &veil);
        Finding { threads, thread, path: at, from, to, wanted, veil }.show(app)
    } else if let Some(count) = args.around {
        show_around(args, count, app, &pages, &thread)
    } else if app.out.is_json() {
        reading.write_json(app, &thread, &mut pages)
    } else if args.raw {
        reading.write_raw(app, &mut pages)
    } else if args.markdown {
        reading.write_markdown(app, &thread, &mut pages)
    } else {
        reading.write_words(app, store, &thread, at, &mut pages)
    };
    veil.tell(("item", "items"));
    outcome
}

fn show_around(args: &ShowArgs, count: usize, app: &mut App, path: &Pages<'_>, thread: &Thread) -> Outcome {
    let views = Views::new();
    let everything = args.all || app.out.is_json();
    let wanted = |item: &Item| everything || views::is_conversation(item, &views.read(item));
    let at = path.query.at.or(thread.head);
    let near = at.map(|at| around(path.store, &thread.id, at, count, wanted));
    let mut near = near.transpose()?.unwrap_or_default();
    near.items.iter_mut().for_each(|item| path.veil.item(item));
    let id = names::short_id(path.store, &thread.id);
    let address = match at {
        None => id.clone(),
        Some(at) => names::of_item(path.store, &thread.id, at)?,
    };
    let neighbours = Neighbours { thread, near: &near, at, address: &address, views: &views };
    match app.out.is_json() {
        true => app.out.document(&neighbours.document())?,
        false => neighbours.write(&mut app.out, &id, Words::default(), args.all)?,
    }
    Ok(Code::Done)
}

/// The pages of what is shown.
struct Pages<'a> {
    store: &'a Store,
    thread: &'a ThreadId,
    context: bool,
    query: ItemQuery,
    /// Masks what is read.
    veil: &'a Veil,
}

impl Pages<'_> {
    fn next(&mut self, limit: usize) -> Result<Page<Item>, Failure> {
        self.query.limit = limit.min(PAGE);
        let query = self.query.clone();
        let mut page = match self.context {
            true => self.store.model_context(self.thread, query),
            false => self.store.items(self.thread, query),
        }?;
        self.query.cursor.clone_from(&page.next_cursor);
        page.entries.iter_mut().for_each(|item| self.veil.item(item));
        Ok(page)
    }

    /// The last items that are wanted, oldest first, and the cursor of what comes before them.
    fn last(
        &mut self,
        count: usize,
        wanted: impl Fn(&Item) -> bool,
    ) -> Result<(Vec<Item>, Option<String>, u64), Failure> {
        self.query.newest_first = true;
        let (mut items, mut hidden) = (Vec::new(), 0);
        while items.len() < count {
            let page = self.next(count - items.len())?;
            for item in page.entries {
                if wanted(&item) { items.push(item) } else { hidden += 1 }
            }
            if page.next_cursor.is_none() {
                break;
            }
        }
        items.reverse();
        Ok((items, self.query.cursor.clone(), hidden))
    }
}

struct Reading<'a> {
    args: &'a ShowArgs,
    views: Views,
}

impl Reading<'_> {
    fn wanted(&self, item: &Item) -> bool {
        self.args.all || views::is_conversation(item, &self.views.read(item))
    }

    /// Visits what is to be shown, page by page; gives how many items were hidden and the cursor of the rest.
    fn visit(
        &self,
        pages: &mut Pages<'_>,
        wanted: impl Fn(&Item) -> bool,
        mut visit: impl FnMut(&Item) -> Result<(), Failure>,
    ) -> Result<(u64, Option<String>), Failure> {
        if let Some(count) = self.args.last {
            let (items, cursor, hidden) = pages.last(count, wanted)?;
            items.iter().try_for_each(visit)?;
            return Ok((hidden, cursor));
        }
        let mut left = self.args.limit.unwrap_or(usize::MAX);
        let mut hidden = 0;
        loop {
            let page = pages.next(left)?;
            left = left.saturating_sub(page.entries.len());
            for item in &page.entries {
                if wanted(item) { visit(item)? } else { hidden += 1 }
            }
            if left == 0 || page.next_cursor.is_none() {
                return Ok((hidden, page.next_cursor));
            }
        }
    }

    fn write_json(&self, app: &mut App, thread: &Thread, pages: &mut Pages<'_>) -> Outcome {
        let mut listing = app.out.listing(&[("thread", json::thread(thread))], "items")?;
        let veil = pages.veil;
        let visited = self.visit(
            pages,
            |_| true,
            |item| {
                let view = self.views.read(item);
                let mut value = if self.args.raw { json::raw_item(item, &view) } else { json::item(item, &view) };
                veil.mark(item, &mut value);
                listing.push(&value)
            },
        );
        match visited {
            Ok((_, cursor)) => listing.finish(cursor.as_deref())?,
            Err(failure) => return Err(listing.fail(failure)),
        }
        Ok(Code::Done)
    }

    fn write_raw(&self, app: &mut App, pages: &mut Pages<'_>) -> Outcome {
        self.visit(
            pages,
            |_| true,
            |item| {
                app.out.bytes(&item.content)?;
                if item.content.ends_with(b"\n") { Ok(()) } else { app.out.bytes(b"\n") }
            },
        )?;
        Ok(Code::Done)
    }

    fn write_markdown(&self, app: &mut App, thread: &Thread, pages: &mut Pages<'_>) -> Outcome {
        let out = &mut app.out;
        markdown::write_head(out, thread)?;
        let mut speaker = String::new();
        let (hidden, _) = self.visit(
            pages,
            |item| self.wanted(item),
            |item| markdown::write_item(out, item, &self.views.read(item), &mut speaker),
        )?;
        markdown::write_end(out, hidden)?;
        Ok(Code::Done)
    }

    fn write_words(
        &self,
        app: &mut App,
        store: &Threads,
        thread: &Thread,
        at: Option<Address>,
        pages: &mut Pages<'_>,
    ) -> Outcome {
        let out = &mut app.out;
        let id = names::short_id(store, &thread.id);
        write_head(out, thread, &id)?;
        if let Some(branch) = &self.args.branch {
            let branch = format!("The path of branch {}, which may not be the active one.", text::one_line(branch));
            out.line(out.paint(Ink::Warn, &branch))?;
        } else if let Some(at) = at.filter(|at| thread.head != Some(*at)) {
            out.line(out.paint(Ink::Dim, &format!("Up to @{}.", at.depth)))?;
        }
        let mut conversation = Conversation::new(self.args.all);
        let (hidden, cursor) =
            self.visit(pages, |item| self.wanted(item), |item| conversation.write(out, item, &self.views.read(item)))?;
        let mut foot = Vec::new();
        if hidden > 0 {
            let hidden = human::counted(hidden, "event or setting is", "events and settings are");
            foot.push(format!("{hidden} hidden: --all shows them."));
        }
        if let Some(cursor) = cursor {
            let what = if self.args.last.is_some() { "Earlier" } else { "More" };
            foot.push(format!("{what}: the same with --cursor {cursor}"));
        }
        if thread.branches > 1 {
            foot.push(format!("{} branches: threadkeep tree {id}", thread.branches));
        }
        if !foot.is_empty() {
            out.line(format!("\n{}", out.paint(Ink::Dim, &foot.join("\n"))))?;
        }
        Ok(Code::Done)
    }
}

/// Writes a thread's name and what it is.
pub(super) fn write_head(out: &mut Output, thread: &Thread, id: &str) -> Result<(), Failure> {
    let details = &thread.details;
    let name = text::one_line(thread.name());
    let name = text::cut(&name, out.width()).into_owned();
    out.line(out.paint(Ink::Strong, &name))?;
    let items = thread.items + json::shared_items(thread);
    let tokens = details.usage.map(|usage| usage.input.saturating_add(usage.output));
    let facts = [
        Some(id.to_owned()),
        details.agent.clone(),
        details.model.clone(),
        Some(thread.workspace_name.clone()),
        details.git_branch.clone(),
        Some(human::counted(items, "item", "items")),
        tokens.map(|tokens| format!("{} tokens", human::short(tokens))),
        Some(human::date(thread.created_at)),
        thread.archived_at.map(|_| "archived".to_owned()),
        thread.trashed_at.map(|_| "in the trash".to_owned()),
        thread.forked_from.as_ref().map(|parent| format!("forked from {parent}")),
        thread.holder.as_ref().filter(|_| thread.live).map(|holder| format!("● written by {holder}")),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().map(|fact| text::one_line(&fact)).collect();
    out.line(out.paint(Ink::Dim, &facts.join(" · ")))
}
