//! `threadkeep tree`

use std::collections::HashMap;

use clap::Args;
use threadkeep::blocking::Threads;
use threadkeep::{Address, Branch, BranchId, ItemQuery, Kind, Role, ThreadId, Tree};

use super::App;
use super::show::write_head;
use crate::drawing::{self, Run};
use crate::errors::{Code, Failure, Outcome};
use crate::output::Output;
use crate::style::Ink;
use crate::views::{self, Views};
use crate::{human, json, names, text};

/// How far into a run its words are looked for.
const LOOK: usize = 8;

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep tree -
  threadkeep show 019a2284 --branch 019a2290      read one of its branches
  threadkeep rewind 019a2284 --branch 019a2290    go on there
  threadkeep label 019a2284 019a2290 try-2        give it a name

● is the active path, ○ what was left behind, ✕ what was cleared. Each line is a run of items
without a fork, with its depths, its branch where that begins, and the first words in it.";

/// Draw a thread's branches: where they leave, how long they are, and where the head is
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TreeArgs {
    /// The thread
    thread: String,
}

/// Draws.
pub(super) fn run(args: &TreeArgs, app: &mut App) -> Outcome {
    let store = app.read()?;
    let id = store.find(&args.thread)?;
    let tree = store.tree(&id)?;
    if app.out.is_json() {
        app.out.document(&json::tree(&tree))?;
        return Ok(Code::Done);
    }
    write_head(&mut app.out, &store.get(&id)?, &names::short_id(&store, &id))?;
    app.out.line("")?;
    if tree.branches.is_empty() {
        app.out.line("Nothing is written yet.")?;
        return Ok(Code::Done);
    }
    let sketch = Sketch {
        threads: &store,
        tree: &tree,
        branches: tree.branches.iter().map(|branch| (branch.id, branch)).collect(),
        short: names::short_branches(&tree).into_iter().collect(),
        views: Views::new(),
    };
    for run in drawing::draw(&tree) {
        sketch.write(&mut app.out, &run)?;
    }
    let (branches, leaves) = (tree.branches.len() as i128, tree.leaves().len() as i128);
    let branches = human::counted(branches, "branch", "branches");
    let summary = format!("{branches}, {}", human::counted(leaves, "open end", "open ends"));
    app.out.line(format!("\n{}", app.out.paint(Ink::Dim, &summary)))?;
    Ok(Code::Done)
}

struct Sketch<'a> {
    threads: &'a Threads,
    tree: &'a Tree,
    branches: HashMap<BranchId, &'a Branch>,
    short: HashMap<BranchId, String>,
    views: Views,
}

impl Sketch<'_> {
    fn write(&self, out: &mut Output, run: &Run) -> Result<(), Failure> {
        let Some(branch) = self.branches.get(&run.branch) else { return Ok(()) };
        let mark = match (run.active, branch.cleared) {
            (true, _) => out.paint(Ink::Good, "●"),
            (false, true) => out.paint(Ink::Bad, "✕"),
            (false, false) => out.paint(Ink::Dim, "○"),
        };
        let depths = if run.from == run.to { format!("@{}", run.to) } else { format!("@{}–{}", run.from, run.to) };
        let items = human::counted(run.to - run.from + 1, "item", "items");
        let tail = self.tail(branch, run);
        let taken = text::width(&format!("{}● {depths}  {items}    {tail}", run.guides)) + 2;
        let words = self.words(run);
        let words = text::cut(&words, out.width().saturating_sub(taken).max(12)).into_owned();
        let mut line = format!("{}{mark} {}  {}", run.guides, depths, out.paint(Ink::Dim, &items));
        if !words.is_empty() {
            let ink = if run.active { Ink::Plain } else { Ink::Dim };
            line.push_str(&format!("  {}", out.paint(ink, &words)));
        }
        if !tail.is_empty() {
            let ink = if run.head { Ink::Strong } else { Ink::Dim };
            line.push_str(&format!("  {}", out.paint(ink, &tail)));
        }
        out.line(line)
    }

    /// What stands after the words: the branch's name where it begins, whose it is, and the head.
    fn tail(&self, branch: &Branch, run: &Run) -> String {
        let mut tail = Vec::new();
        if run.first {
            tail.extend(self.short.get(&branch.id).cloned());
            tail.extend(branch.label.as_deref().map(|label| format!("[{}]", text::one_line(label))));
            if branch.thread != self.tree.thread {
                tail.push(format!("(shared with {})", branch.thread));
            }
        }
        if run.head {
            tail.push("← head".to_owned());
        }
        tail.join(" ")
    }

    /// The first prompt of a run, or the first words in it.
    fn words(&self, run: &Run) -> String {
        let at = Some(Address { branch: run.branch, depth: run.to });
        let query = ItemQuery { at, from: run.from, limit: LOOK, ..ItemQuery::default() };
        // A tree is worth seeing though some of its items can't be read.
        let items = self.items(&self.tree.thread, query);
        let mut first = None;
        for (item, view) in &items {
            let line = text::one_line(text::cut(&view.to_text(), 400).as_ref());
            let is_users = item.kind == Kind::Message && view.role.as_ref().or(item.role.as_ref()) == Some(&Role::User);
            // What begins with a tag was put there by a program: a command, a reminder.
            if is_users && !line.starts_with('<') {
                return format!("“{line}”");
            }
            first.get_or_insert(line);
        }
        first.unwrap_or_default()
    }

    fn items(&self, thread: &ThreadId, query: ItemQuery) -> Vec<(threadkeep::Item, threadkeep::View)> {
        let items = self.threads.items(thread, query).map(|page| page.entries).unwrap_or_default();
        let read = items.into_iter().map(|item| {
            let view = self.views.read(&item);
            (item, view)
        });
        read.filter(|(item, view)| views::is_conversation(item, view)).collect()
    }
}
