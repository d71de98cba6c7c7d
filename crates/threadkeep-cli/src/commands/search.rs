//! `threadkeep search`

mod opening;
pub(super) mod words;

use std::collections::HashMap;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use threadkeep::blocking::{Store, Threads};
use threadkeep::{BranchId, FoundThread, Hit, SearchPage, SearchQuery, Shelf, Standing, ThreadId};

use super::App;
use super::list::last_word;
use crate::errors::{Code, Failure, Outcome, Report};
use crate::marking::Marked;
use crate::output;
use crate::style::Ink;
use crate::{human, json, names, text};

/// How many threads a page has where nothing is said.
const THREADS: usize = 20;
/// The same for hits that stand alone.
const HITS: usize = 50;
/// The width of a title beside a hit that stands alone.
const FLAT_TITLE: usize = 48;
/// What stands before a snippet.
const INDENT: &str = "      ";

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep search login test                 items with both words
  threadkeep search '\"rate limit\"' -retry       a phrase, without a word
  threadkeep search 'parse*' OR lexer          a beginning, or another word
  threadkeep search deadlock role:user after:2w
  threadkeep search tool:bash path:active -w . 'cargo test'
  threadkeep search login test --open 2        the second hit, and what was said around it
  threadkeep search login --json | jq -r '.hits[] | .address + \" \" + .snippet'
  threadkeep search --reindex                  make the index anew
  threadkeep search -- --open                  behind -- everything is a word

A word with marks inside is a phrase: parse_config, src/main.rs and --no-verify are found as they are written. Write a
phrase's quotes inside of the shell's: '\"like this\"'.
Filters: role: kind: tool: workspace: agent: thread: title: after: before: path:active|all has:, each also with - before it.
Options may stand before, between and behind the words; a word with - before it that is no option excludes.
A hit's address can be given to other commands: `threadkeep show 019a2284@12`, `threadkeep fork 019a2284@12`. Off the active
path it names the branch: 019a2284@019a2290@15.

JSON: {hits: [{thread, title, workspace_name, agent, shelf, address, item, branch, depth, active, standing, kind, role,
  created_at, shared_with, snippet, marks, cut_before, cut_after, score}],
  threads: [{id, title, workspace_name, agent, shelf, hits, more}], next_cursor, matches, is_all, not_understood, notices}
Hits stand in the order of their threads. `marks` are ranges of bytes of `snippet`; `more` counts hits that are not shown;
`item` to `role` are null where a title fits. `standing` is {on: active_path} or {on: branch, branch, label, leaves_at,
distance}. With --open: {thread, at, items, more_before, more_after, hit}, each item as `show` has it.";

/// Search what was said and done in all threads
///
/// Every word has to be there; hits are grouped by thread, the most relevant first. What a fork shares with its parent is
/// found once. What was acknowledged before is found, also where the index lacks it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct SearchArgs {
    /// Words, "phrases", -not, prefix*, OR, and filters
    #[arg(value_name = "WORDS", required_unless_present = "reindex")]
    words: Vec<String>,
    /// Each hit alone, the most relevant first, and not by thread
    #[arg(long)]
    flat: bool,
    /// At most this many threads, or hits with --flat, up to 200
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<usize>,
    /// Go on where an earlier page of the same search ended
    #[arg(long)]
    cursor: Option<String>,
    /// The width of a snippet in columns; as the terminal by default
    #[arg(long, value_name = "COLUMNS")]
    width: Option<usize>,
    /// Only this project: its id, its name, or a folder in it (`.` is this one)
    #[arg(short, long, value_name = "DIR|ID")]
    workspace: Option<String>,
    /// All projects; this is the default
    #[arg(long, conflicts_with = "workspace")]
    all: bool,
    /// Threads in the trash too
    #[arg(long)]
    trashed: bool,
    /// Show the N-th hit in its context instead, on its branch; the first one without a number
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    open: Option<usize>,
    /// How many items are shown before and behind the one that is opened
    #[arg(long, value_name = "K", default_value_t = 3)]
    context: usize,
    /// How long the index may be brought up to date first; what it lacks then is read from the items, up to 20,000 of them
    ///
    /// Without this the search begins when everything is in the index. The first search of a large store takes a minute for a
    /// million items.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    max_wait: Option<Duration>,
    /// Throw the index away and make it anew first
    #[arg(long)]
    reindex: bool,
}

/// Searches.
pub(super) fn run(args: &SearchArgs, app: &mut App) -> Outcome {
    let store = if args.reindex { app.write()? } else { app.search()? };
    if args.reindex {
        store.drop_index()?;
        index(&store)?;
    } else if args.max_wait.is_none() {
        // A store that can't be written, or an index that can't be made, is searched as it is.
        drop(index(&store));
    }
    match &args.workspace {
        None if args.words.is_empty() => Ok(Code::Done),
        None => search(args, app, &store),
        Some(name) => {
            let id = names::find_workspace(&store, name)?.id;
            search(args, app, &*store.workspace_by_id(id)?)
        }
    }
}

/// Brings the index up to date, and shows how far it is where that takes long.
fn index(store: &Store) -> Result<(), Failure> {
    let bar = ProgressBar::no_length();
    if let Ok(style) = ProgressStyle::with_template("{spinner} indexing: {human_pos} items and titles · {elapsed}") {
        bar.set_style(style);
    }
    let shown = bar.clone();
    let indexed = store.index_all(move |status| shown.set_position(u64::try_from(status.documents).unwrap_or(0)));
    bar.finish_and_clear();
    Ok(indexed.map(drop)?)
}

fn search(args: &SearchArgs, app: &mut App, threads: &Threads) -> Outcome {
    let page = threads.search(query(args, app))?;
    for sentence in &page.not_understood {
        output::tell(Ink::Warn, "not understood", sentence);
    }
    for notice in &page.notices {
        output::tell(Ink::Warn, "note", notice);
    }
    let addresses = Addresses::new(threads);
    if let Some(number) = args.open {
        return opening::open(&page, number, args.context, app, &addresses);
    }
    if app.out.is_json() {
        app.out.document(&document(&page))?;
        return Ok(Code::Done);
    }
    Results { args, page: &page, addresses }.write(app)
}

fn query(args: &SearchArgs, app: &App) -> SearchQuery {
    // What is cut off takes a column on either side.
    let room = app.out.width().saturating_sub(INDENT.len() + 2);
    SearchQuery {
        limit: args.limit.unwrap_or(if args.flat { HITS } else { THREADS }),
        per_thread: if args.flat { 0 } else { SearchQuery::default().per_thread },
        cursor: args.cursor.clone(),
        width: args.width.unwrap_or(if app.out.is_json() { SearchQuery::default().width } else { room }),
        trashed: args.trashed,
        zone: super::time_zone(),
        patience: args.max_wait.unwrap_or(SearchQuery::default().patience),
        ..SearchQuery::new(args.words.join(" "))
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "it is no number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// The addresses of hits, as other verbs take them.
pub(crate) struct Addresses<'a> {
    threads: &'a Threads,
    short: std::cell::RefCell<HashMap<ThreadId, Short>>,
}

#[derive(Default, Clone)]
struct Short {
    thread: String,
    branches: HashMap<BranchId, String>,
}

impl<'a> Addresses<'a> {
    pub(crate) fn new(threads: &'a Threads) -> Self {
        Self { threads, short: std::cell::RefCell::default() }
    }

    /// A thread's id, shortened.
    pub(crate) fn thread(&self, id: &ThreadId) -> String {
        self.shortened(id, false).thread
    }

    /// How a hit is named; a title is named by its thread.
    pub(crate) fn hit(&self, thread: &ThreadId, hit: &Hit) -> String {
        let Some(item) = &hit.item else { return self.thread(thread) };
        let is_active = matches!(item.standing, Standing::ActivePath);
        let short = self.shortened(thread, !is_active);
        let full = item.address.branch.to_string();
        let branch = short.branches.get(&item.address.branch).unwrap_or(&full);
        names::item(&short.thread, Some(branch.as_str()).filter(|_| !is_active), item.address.depth)
    }

    fn shortened(&self, id: &ThreadId, branches: bool) -> Short {
        let mut short = self.short.borrow_mut();
        let entry = short
            .entry(id.clone())
            .or_insert_with(|| Short { thread: names::short_id(self.threads, id), branches: HashMap::new() });
        if branches && entry.branches.is_empty() {
            // The thread can be purged meanwhile; then the whole ids stand in the addresses.
            let tree = self.threads.tree(id).ok();
            entry.branches = tree.map(|tree| names::short_branches(&tree).into_iter().collect()).unwrap_or_default();
        }
        entry.clone()
    }
}

/// How a hit is named with whole ids, which stay what they are whatever comes.
pub(crate) fn full_address(thread: &ThreadId, hit: &Hit) -> String {
    let Some(item) = &hit.item else { return thread.to_string() };
    let branch = match item.standing {
        Standing::ActivePath => None,
        _ => Some(item.address.branch.to_string()),
    };
    names::item(thread.as_str(), branch.as_deref(), item.address.depth)
}

/// The document of `--json`.
fn document(page: &SearchPage) -> Value {
    let hits = page.threads.iter().flat_map(|thread| thread.hits.iter().map(move |hit| (thread, hit)));
    let thread = |thread: &FoundThread| {
        json!({
            "id": thread.id,
            "title": thread.title,
            "workspace_name": thread.workspace,
            "agent": thread.agent,
            "shelf": thread.shelf,
            "hits": thread.hits.len(),
            "more": thread.more,
        })
    };
    json!({
        "hits": hits.map(|(thread, hit)| hit_document(thread, hit)).collect::<Vec<_>>(),
        "threads": page.threads.iter().map(thread).collect::<Vec<_>>(),
        "next_cursor": page.next_cursor,
        "matches": page.matches,
        "is_all": page.is_all,
        "not_understood": page.not_understood,
        "notices": page.notices,
    })
}

/// The document of a hit.
pub(crate) fn hit_document(thread: &FoundThread, hit: &Hit) -> Value {
    let item = hit.item.as_ref();
    let marks: Vec<_> = hit.snippet.marks.iter().map(|mark| [mark.start, mark.end]).collect();
    json!({
        "thread": thread.id,
        "title": thread.title,
        "workspace_name": thread.workspace,
        "agent": thread.agent,
        "shelf": thread.shelf,
        "address": full_address(&thread.id, hit),
        "item": item.map(|item| item.id),
        "branch": item.map(|item| item.address.branch),
        "depth": item.map(|item| item.address.depth),
        "active": item.map(|item| matches!(item.standing, Standing::ActivePath)),
        "standing": item.map(|item| &item.standing),
        "kind": item.map(|item| &item.kind),
        "role": item.and_then(|item| item.role.as_ref()),
        "created_at": item.map(|item| json::time(item.created_at)),
        "shared_with": item.map(|item| &item.shared_with),
        "snippet": hit.snippet.text,
        "marks": marks,
        "cut_before": hit.snippet.cut_before,
        "cut_after": hit.snippet.cut_after,
        "score": hit.score,
    })
}

/// What people see.
struct Results<'a> {
    args: &'a SearchArgs,
    page: &'a SearchPage,
    addresses: Addresses<'a>,
}

impl Results<'_> {
    fn write(&self, app: &mut App) -> Outcome {
        if self.page.threads.is_empty() {
            app.out.line("Nothing found.")?;
            return Ok(Code::Done);
        }
        let mut number = 0;
        for thread in &self.page.threads {
            if !self.args.flat {
                self.write_heading(app, thread)?;
            }
            for hit in &thread.hits {
                number += 1;
                self.write_hit(app, thread, hit, number)?;
            }
            if thread.more > 0 {
                let more = human::counted(thread.more as i128, "more hit", "more hits");
                let query = format!("thread:{}", self.addresses.thread(&thread.id));
                let line = format!("{INDENT}{more} in this thread: add {query}");
                app.out.line(app.out.paint(Ink::Dim, &line))?;
            }
            if !self.args.flat {
                app.out.line("")?;
            }
        }
        if self.args.flat {
            app.out.line("")?;
        }
        self.write_foot(app)
    }

    fn write_heading(&self, app: &mut App, thread: &FoundThread) -> Result<(), Failure> {
        let out = &mut app.out;
        let title = text::cut(&title(thread), out.width()).into_owned();
        let age = self.addresses.threads.get(&thread.id).ok();
        let age = age.map(|found| human::ago(last_word(self.addresses.threads, &found), super::now()));
        let shelf = match thread.shelf {
            Shelf::Archived => Some("archived".to_owned()),
            Shelf::Trashed => Some("in the trash".to_owned()),
            _ => None,
        };
        let id = Some(self.addresses.thread(&thread.id));
        let facts = [Some(thread.workspace.clone()), thread.agent.clone(), age, id, shelf];
        let facts: Vec<_> = facts.into_iter().flatten().map(|fact| text::one_line(&fact)).collect();
        out.line(out.paint(Ink::Strong, &title))?;
        out.line(out.paint(Ink::Dim, &facts.join(" · ")))
    }

    fn write_hit(&self, app: &mut App, thread: &FoundThread, hit: &Hit, number: usize) -> Result<(), Failure> {
        let out = &mut app.out;
        let address = self.addresses.hit(&thread.id, hit);
        let mut line = format!("{number:>4}  {}", out.paint(Ink::Hint, &address));
        match &hit.item {
            None => line.push_str(&out.paint(Ink::Dim, "  the title")),
            Some(item) => {
                let (ink, who) = speaker(item);
                let time = human::moment(item.created_at);
                line.push_str(&format!("  {}  {}", out.paint(ink, &who), out.paint(Ink::Dim, &time)));
                if let Some(standing) = standing(&item.standing) {
                    line.push_str(&format!("  {}", out.paint(Ink::Warn, &standing)));
                }
                let forks = human::counted(item.shared_with.len() as i128, "fork", "forks");
                if !item.shared_with.is_empty() {
                    line.push_str(&out.paint(Ink::Dim, &format!("  also in {forks}")));
                }
            }
        }
        if self.args.flat {
            line.push_str(&out.paint(Ink::Dim, &format!("  {}", text::cut(&title(thread), FLAT_TITLE))));
        }
        out.line(line)?;
        let snippet = snippet(hit);
        out.line(format!("{INDENT}{}", snippet.paint(out, Ink::Plain)).trim_end())
    }

    fn write_foot(&self, app: &mut App) -> Outcome {
        let page = self.page;
        let hits: usize = page.threads.iter().map(|thread| thread.hits.len()).sum();
        let matches = human::count(page.matches as i128);
        let mut foot = vec![match page.is_all {
            true => format!("{} of {matches} shown.", human::counted(hits as i128, "hit", "hits")),
            false => format!("The most relevant of the newest {matches} hits; older ones come on later pages."),
        }];
        let first = page.threads.first().and_then(|thread| Some((thread, thread.hits.first()?)));
        if let Some((thread, hit)) = first {
            let address = self.addresses.hit(&thread.id, hit);
            foot.push(format!("Go on: the same with --open N, or threadkeep show {address} --around 3"));
        }
        if let Some(cursor) = &page.next_cursor {
            foot.push(format!("More: the same with --cursor {cursor}"));
        }
        app.out.line(app.out.paint(Ink::Dim, &foot.join("\n")))?;
        Ok(Code::Done)
    }
}

fn title(thread: &FoundThread) -> String {
    text::one_line(thread.title.as_deref().unwrap_or(thread.id.as_str()))
}

/// A snippet, made safe once more: what is shown is never what steers.
pub(crate) fn snippet(hit: &Hit) -> Marked {
    let (before, after) = (hit.snippet.cut_before, hit.snippet.cut_after);
    let lead = if before { "…" } else { "" };
    let tail = if after { "…" } else { "" };
    let shift = lead.len();
    let marks: Vec<_> = hit.snippet.marks.iter().map(|mark| mark.start + shift..mark.end + shift).collect();
    Marked::new(&format!("{lead}{}{tail}", hit.snippet.text), &marks)
}

/// Who speaks in a hit, when, and where it lies if not on the active path.
pub(crate) fn facts(hit: &Hit) -> String {
    let Some(item) = &hit.item else { return "the title".to_owned() };
    let facts = [Some(speaker(item).1), Some(human::moment(item.created_at)), standing(&item.standing)];
    facts.into_iter().flatten().collect::<Vec<_>>().join("  ")
}

fn speaker(item: &threadkeep::FoundItem) -> (Ink, String) {
    use threadkeep::{Kind, Role};
    let kind = text::one_line(item.kind.as_str());
    match (&item.kind, &item.role) {
        (Kind::Message, Some(Role::User)) => (Ink::User, Role::User.to_string()),
        (Kind::Message, Some(Role::Assistant)) => (Ink::Assistant, Role::Assistant.to_string()),
        (Kind::Message, Some(role)) => (Ink::Warn, text::one_line(role.as_str())),
        (Kind::ToolCall | Kind::ToolResult, _) => (Ink::Tool, kind.replace('_', " ")),
        (Kind::Reasoning, _) => (Ink::Thought, kind),
        _ => (Ink::Plain, kind.replace('_', " ")),
    }
}

/// Where a hit lies that is not on the active path.
fn standing(standing: &Standing) -> Option<String> {
    let Standing::Branch { label, leaves_at, distance, .. } = standing else { return None };
    // Its id stands in the address.
    let name = label.as_deref().map(|label| format!("branch {}", text::one_line(label)));
    let name = name.unwrap_or_else(|| "another branch".to_owned());
    let items = human::counted(*distance, "item", "items");
    Some(match leaves_at {
        Some(depth) => format!("on {name}, {items} after it left the active path at @{depth}"),
        None => format!("on {name}, which shares nothing with the active path"),
    })
}

/// The hit with this number on the page.
fn numbered(page: &SearchPage, number: usize) -> Result<(&FoundThread, &Hit), Failure> {
    let mut hits = page.threads.iter().flat_map(|thread| thread.hits.iter().map(move |hit| (thread, hit)));
    let count = hits.clone().count();
    let found = number.checked_sub(1).and_then(|index| hits.nth(index));
    found.ok_or_else(|| {
        let there = match count {
            0 => "nothing was found".to_owned(),
            count => format!("there are {}", human::counted(count as i128, "hit", "hits")),
        };
        let report = Report::new(Code::NotFound, "not-found", format!("no hit {number}: {there}"));
        report.hint("hits are counted from 1, as they are shown").into()
    })
}
