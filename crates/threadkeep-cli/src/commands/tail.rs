//! `threadkeep tail`

use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use threadkeep::blocking::{ChangeFollower, Follower, Store};
use threadkeep::{Address, Area, ChangeQuery, Error, FollowEnd, Item, ItemQuery, News, ThreadId};

use super::{App, changes, show};
use crate::conversation::Conversation;
use crate::errors::{Code, Failure, Outcome, Report};
use crate::json;
use crate::masking::{MaskingArgs, Veil};
use crate::style::Ink;
use crate::views::{self, Views};

/// How often is looked whether anybody still reads the output. The store is not asked for that.
const GLANCE: Duration = Duration::from_millis(200);
const PAGE: usize = 256;

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep tail -                      the last items of the newest thread
  threadkeep tail -f 019a2284            and what comes, until Ctrl-C
  threadkeep tail -f - --json | jq -r .text
  threadkeep tail -f --changes -         its goal, jobs, checkpoints and all else that changes as well

With --json every item is a line of its own, as it comes; after a rewind the depths go back.
It ends when nobody reads its output any more, and with exit code 3 when the thread is deleted.";

/// Show the last items of a thread, and follow it while it is written
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TailArgs {
    /// The thread, or a file that ends in .jsonl or .jsonl.zst: a rollout, or what an agent wrote
    #[arg(value_name = "THREAD|FILE")]
    thread: String,
    /// Go on with what is appended, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Also say what else of the thread changes: its goal, jobs, documents, claim …
    #[arg(long, requires = "follow")]
    changes: bool,
    /// How many items to begin with
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    lines: usize,
    /// Hide nothing and cut nothing
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    masking: MaskingArgs,
}

/// Tails.
pub(super) fn run(args: &TailArgs, app: &mut App) -> Outcome {
    let is_file = show::names_a_file(&args.thread);
    if is_file && args.follow {
        return Err(Report::usage("a file is not followed").hint("name its thread").into());
    }
    let (store, id, is_whole) = match is_file {
        true => show::read_file(Path::new(&args.thread))?,
        false => {
            let store = if args.changes { changes::open(app)? } else { app.read()? };
            let id = store.find(&args.thread)?;
            (store, id, true)
        }
    };
    let everything = args.all || app.out.is_json();
    let veil = Veil::new(&args.masking)?;
    let mut tail = Tail { views: Views::new(), words: Conversation::new(args.all), everything, veil };
    let head = store.get(&id)?.head;
    for item in tail.last(&store, &id, args.lines, head)? {
        tail.write(app, &item)?;
    }
    app.out.flush()?;
    match args.follow {
        true => {
            let beside = args.changes.then(|| Beside::of(&store, &id)).transpose()?;
            tail.follow(app, store.follow(&id, head)?, beside)
        }
        false => Ok(if is_whole { Code::Done } else { Code::Partial }),
    }
}

struct Tail {
    views: Views,
    words: Conversation,
    everything: bool,
    /// Masks what is read.
    veil: Veil,
}

impl Tail {
    fn is_shown(&self, item: &Item) -> bool {
        self.everything || views::is_conversation(item, &self.views.read(item))
    }

    fn write(&mut self, app: &mut App, item: &Item) -> Result<(), Failure> {
        let view = self.views.read(item);
        if app.out.is_json() {
            let mut document = json::item(item, &view);
            self.veil.mark(item, &mut document);
            return app.out.document(&document);
        }
        self.words.write(&mut app.out, item, &view)
    }

    /// The last items that are shown, oldest first.
    fn last(&self, store: &Store, id: &ThreadId, count: usize, at: Option<Address>) -> Result<Vec<Item>, Failure> {
        let mut query = ItemQuery { at, newest_first: true, ..ItemQuery::default() };
        let mut items = Vec::new();
        while items.len() < count && at.is_some() {
            query.limit = (count - items.len()).min(PAGE);
            let mut page = store.items(id, query.clone())?;
            page.entries.iter_mut().for_each(|item| self.veil.item(item));
            items.extend(page.entries.into_iter().filter(|item| self.is_shown(item)));
            query.cursor = page.next_cursor;
            if query.cursor.is_none() {
                break;
            }
        }
        items.reverse();
        Ok(items)
    }

    /// Shows what comes, until nobody reads it any more or nothing more can come.
    fn follow(&mut self, app: &mut App, mut follower: Follower, mut beside: Option<Beside>) -> Outcome {
        loop {
            match follower.try_next()? {
                None => {
                    while !follower.ready_within(GLANCE) {
                        if let Some(beside) = &mut beside {
                            beside.tell(app)?;
                        }
                        if app.out.is_closed() {
                            return Err(Failure::BrokenPipe);
                        }
                    }
                }
                Some(News::Items(mut items)) => {
                    items.iter_mut().for_each(|item| self.veil.item(item));
                    for item in items.iter().filter(|item| self.is_shown(item)).cloned().collect::<Vec<_>>() {
                        self.write(app, &item)?;
                    }
                }
                Some(News::Back { to }) if !app.out.is_json() => {
                    let words = match to {
                        Some(to) => format!("— rewound to @{} —", to.depth),
                        None => "— begun afresh —".to_owned(),
                    };
                    app.out.line(format!("\n{}", app.out.paint(Ink::Warn, &words)))?;
                }
                Some(News::Ended(end)) => return Err(told_end(&follower, end)),
                Some(_) => {}
            }
            if let Some(beside) = &mut beside {
                beside.tell(app)?;
            }
            app.out.flush()?;
        }
    }
}

/// What changes of a thread beside its items.
struct Beside {
    store: Store,
    follower: ChangeFollower,
}

impl Beside {
    /// From now on.
    fn of(store: &Store, thread: &ThreadId) -> Result<Self, Failure> {
        let since = Some(store.latest_change()?);
        let query = ChangeQuery { since, thread: Some(thread.clone()), ..ChangeQuery::default() };
        Ok(Self { store: store.clone(), follower: store.follow_changes(query)? })
    }

    fn tell(&mut self, app: &mut App) -> Result<(), Failure> {
        // These are told by the items themselves.
        let told = [Area::Items, Area::Head].map(Area::as_str);
        let changes = self.follower.next_within(Duration::ZERO)?;
        for change in changes.iter().filter(|change| !told.contains(&change.area.as_str())) {
            match app.out.is_json() {
                true => app.out.document(&json!({"change": changes::document(change)}))?,
                false => {
                    let line = changes::line(&self.store, &app.out, change);
                    app.out.line(app.out.paint(Ink::Dim, &line))?;
                }
            }
        }
        app.out.flush()
    }
}

fn told_end(follower: &Follower, end: FollowEnd) -> Failure {
    let id = follower.thread();
    match end {
        FollowEnd::Trashed => Report::new(Code::NotFound, "not-found", format!("thread `{id}` was put into the trash"))
            .hint(format!("`threadkeep restore {id}` takes it out"))
            .into(),
        _ => Error::NotFound { what: "thread", id: id.to_string() }.into(),
    }
}
