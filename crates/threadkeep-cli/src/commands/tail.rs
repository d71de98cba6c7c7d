//! `threadkeep tail`

use std::thread::sleep;
use std::time::Duration;

use clap::Args;
use threadkeep::blocking::Store;
use threadkeep::{Address, Item, ItemQuery, ThreadId};

use super::App;
use crate::conversation::Conversation;
use crate::errors::{Code, Failure, Outcome};
use crate::style::Ink;
use crate::views::{self, Views};
use crate::{json, names};

/// How often the store is asked for news.
const INTERVAL: Duration = Duration::from_millis(200);
const PAGE: usize = 256;

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep tail -                      the last items of the newest thread
  threadkeep tail -f 019a2284            and what comes, until Ctrl-C
  threadkeep tail -f - --json | jq -r .text

With --json every item is a line of its own, as it comes.";

/// Show the last items of a thread, and follow it while it is written
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TailArgs {
    /// The thread
    thread: String,
    /// Go on with what is appended, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// How many items to begin with
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    lines: usize,
    /// Hide nothing and cut nothing
    #[arg(long)]
    all: bool,
}

/// Tails.
pub(super) fn run(args: &TailArgs, app: &mut App) -> Outcome {
    let store = app.read()?;
    let id = store.find(&args.thread)?;
    let everything = args.all || app.out.is_json();
    let mut tail = Tail { store, id, views: Views::new(), words: Conversation::new(args.all), everything };
    let mut head = tail.store.get(&tail.id)?.head;
    for item in tail.last(args.lines, head)? {
        tail.write(app, &item)?;
    }
    app.out.flush()?;
    if !args.follow {
        return Ok(Code::Done);
    }
    loop {
        sleep(INTERVAL);
        let now = tail.store.get(&tail.id)?.head;
        if now != head {
            tail.follow(app, head, now)?;
            app.out.flush()?;
            head = now;
        }
    }
}

struct Tail {
    store: Store,
    id: ThreadId,
    views: Views,
    words: Conversation,
    everything: bool,
}

impl Tail {
    fn is_shown(&self, item: &Item) -> bool {
        self.everything || views::is_conversation(item, &self.views.read(item))
    }

    fn write(&mut self, app: &mut App, item: &Item) -> Result<(), Failure> {
        let view = self.views.read(item);
        if app.out.is_json() {
            return app.out.document(&json::item(item, &view));
        }
        self.words.write(&mut app.out, item, &view)
    }

    /// The last items that are shown, oldest first.
    fn last(&self, count: usize, at: Option<Address>) -> Result<Vec<Item>, Failure> {
        let mut query = ItemQuery { at, newest_first: true, ..ItemQuery::default() };
        let mut items = Vec::new();
        while items.len() < count && at.is_some() {
            query.limit = (count - items.len()).min(PAGE);
            let page = self.store.items(&self.id, query.clone())?;
            items.extend(page.entries.into_iter().filter(|item| self.is_shown(item)));
            query.cursor = page.next_cursor;
            if query.cursor.is_none() {
                break;
            }
        }
        items.reverse();
        Ok(items)
    }

    /// Shows what is on the path to `now` and was not on the path to `before`.
    fn follow(&mut self, app: &mut App, before: Option<Address>, now: Option<Address>) -> Result<(), Failure> {
        let shared = self.shared(before, now)?;
        if before.map(|before| before.depth) != shared && !app.out.is_json() {
            let words = match shared {
                Some(depth) => format!("— rewound to @{depth} —"),
                None => "— begun afresh —".to_owned(),
            };
            app.out.line(format!("\n{}", app.out.paint(Ink::Warn, &words)))?;
        }
        let Some(now) = now else { return Ok(()) };
        let from = shared.map_or(0, |depth| depth + 1);
        let mut query = ItemQuery { at: Some(now), from, limit: PAGE, ..ItemQuery::default() };
        loop {
            let page = self.store.items(&self.id, query.clone())?;
            for item in page.entries.iter().filter(|item| self.is_shown(item)).cloned().collect::<Vec<_>>() {
                self.write(app, &item)?;
            }
            match page.next_cursor {
                None => return Ok(()),
                cursor => query.cursor = cursor,
            }
        }
    }

    /// The last depth that both paths share.
    fn shared(&self, before: Option<Address>, now: Option<Address>) -> Result<Option<u32>, Failure> {
        let (Some(before), Some(now)) = (before, now) else { return Ok(None) };
        if before.branch == now.branch {
            return Ok(Some(before.depth.min(now.depth)));
        }
        let tree = self.store.tree(&self.id)?;
        let (before, now) = (names::path(&tree, Some(before)), names::path(&tree, Some(now)));
        // Towards the root the first branch on both paths is where they part.
        let meet = now.iter().find_map(|part| {
            let other = before.iter().find(|other| other.branch == part.branch)?;
            Some(part.depth.min(other.depth))
        });
        Ok(meet)
    }
}
