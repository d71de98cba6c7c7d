//! `threadkeep roadmap`

mod draw;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use threadkeep::blocking::{Store, Threads, Workspace};
use threadkeep::{
    Change, Error, NewRoadmap, NodeCounts, NodePatch, NodeStatus, Roadmap, RoadmapId, RoadmapInfo, RoadmapLink,
    RoadmapLinkQuery, RoadmapQuery, RoadmapUpdate,
};

use super::{App, doc};
use crate::errors::{Code, Failure, Outcome};
use crate::style::Ink;
use crate::table::{Align, Table, cell};
use crate::{human, json, names, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep roadmap create release < release.toml
  threadkeep roadmap show release
  threadkeep roadmap set release tests done --result '214 passed'
  threadkeep roadmap update release release.toml --if-version 4
  threadkeep roadmap link 019a2284 release tests      the thread works on this node
  threadkeep roadmap links release --node tests

A roadmap is TOML:
  goal = \"release 1.0\"
  [[subtask]]
  id = \"tests\"
  instruction = \"make the tests pass\"
  deps = [\"fix\"]         # nodes that come before
  parent = \"phase-1\"     # the node that it is a part of
  kind = \"task\"          # or roadmap, phase, plan
  status = \"pending\"     # or running, done, failed

Also: parallel_ok, context, verify, result, and [subtask.caveat_policy]. Any other field is refused.";

/// Keep the roadmaps of a project, and which thread works on which node of them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RoadmapArgs {
    #[command(subcommand)]
    what: RoadmapCommand,
}

#[derive(Debug, Subcommand)]
enum RoadmapCommand {
    /// Make a roadmap
    Create(CreateArgs),
    /// Draw a roadmap: its nodes, how far they are, and who works on them
    Show {
        #[command(flatten)]
        which: Which,
        /// Write its TOML, byte by byte as it was written
        #[arg(long)]
        toml: bool,
    },
    /// Put another text in the place of a roadmap's
    Update(UpdateArgs),
    /// Say how far a node is, and what came of it; the rest of the text stays as it is
    Set(SetArgs),
    /// List roadmaps, those that were changed last first
    List(ListArgs),
    /// Delete a roadmap and the links to it
    Delete {
        #[command(flatten)]
        which: Which,
        /// Only if this version is the current one
        #[arg(long, value_name = "N")]
        if_version: Option<u64>,
    },
    /// Link a thread to a roadmap of its project, or to a node of it
    Link {
        /// The thread
        thread: String,
        /// The roadmap
        roadmap: RoadmapId,
        /// The node
        node: Option<String>,
    },
    /// Take a thread's link away
    Unlink {
        /// The thread
        thread: String,
    },
    /// List the threads that are linked to a roadmap
    Links(LinksArgs),
    /// Say what a thread is linked to
    Of {
        /// The thread
        thread: String,
    },
}

#[derive(Debug, Args)]
struct Which {
    /// The roadmap
    roadmap: RoadmapId,
    /// The project, if several have a roadmap of this name: a name, an id or a folder
    #[arg(short, long)]
    workspace: Option<String>,
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// The name
    roadmap: RoadmapId,
    /// The file that it is read from [default: standard input]
    file: Option<PathBuf>,
    /// What people call it
    #[arg(long)]
    title: Option<String>,
    /// Put it in the place of one of the same name
    #[arg(long)]
    replace: bool,
    /// The folder of the project that it belongs to [default: the current one]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct UpdateArgs {
    #[command(flatten)]
    which: Which,
    /// The file that it is read from [default: standard input]
    file: Option<PathBuf>,
    /// What people call it from now on
    #[arg(long)]
    title: Option<String>,
    /// Only if this version is the current one
    #[arg(long, value_name = "N")]
    if_version: Option<u64>,
}

#[derive(Debug, Args)]
struct SetArgs {
    #[command(flatten)]
    which: Which,
    /// The node
    node: String,
    /// How far it is
    #[arg(value_enum, required_unless_present_any = ["result", "no_result"])]
    status: Option<Status>,
    /// What came of it
    #[arg(long, value_name = "TEXT", conflicts_with = "no_result")]
    result: Option<String>,
    /// Take away what came of it
    #[arg(long)]
    no_result: bool,
    /// Only if this version of the roadmap is the current one
    #[arg(long, value_name = "N")]
    if_version: Option<u64>,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only those of this project: a name, an id or a folder
    #[arg(short, long)]
    workspace: Option<String>,
    /// At most this many, up to 1000
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Go on where an earlier page of the same list ended
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, Args)]
struct LinksArgs {
    #[command(flatten)]
    which: Which,
    /// Only those that are linked to this node
    #[arg(long)]
    node: Option<String>,
    /// At most this many, up to 1000
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Go on where an earlier page of the same list ended
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Status {
    Pending,
    Running,
    Done,
    Failed,
}

impl From<Status> for NodeStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Pending => Self::Pending,
            Status::Running => Self::Running,
            Status::Done => Self::Done,
            Status::Failed => Self::Failed,
        }
    }
}

/// Answers.
pub(super) fn run(args: &RoadmapArgs, app: &mut App) -> Outcome {
    match &args.what {
        RoadmapCommand::Create(args) => create(args, app),
        RoadmapCommand::Show { which, toml } => show(app, which, *toml),
        RoadmapCommand::Update(args) => update(args, app),
        RoadmapCommand::Set(args) => set(args, app),
        RoadmapCommand::List(args) => list(args, app),
        RoadmapCommand::Delete { which, if_version } => delete(app, which, *if_version),
        RoadmapCommand::Link { thread, roadmap, node } => {
            let store = app.write()?;
            let link = store.link_roadmap(&store.find(thread)?, roadmap, node.clone())?;
            linked(app, &store, Some(&link))
        }
        RoadmapCommand::Unlink { thread } => {
            let store = app.write()?;
            let unlinked = store.unlink_roadmap(&store.find(thread)?)?;
            if app.out.is_json() {
                app.out.document(&json!({"unlinked": unlinked}))?;
            } else {
                app.out.line(if unlinked { "It is linked to nothing now." } else { "It was linked to nothing." })?;
            }
            Ok(Code::Done)
        }
        RoadmapCommand::Links(args) => links(args, app),
        RoadmapCommand::Of { thread } => {
            let store = app.read()?;
            let link = store.roadmap_link(&store.find(thread)?)?;
            linked(app, &store, link.as_ref())
        }
    }
}

/// The project that is named, if one is.
fn place(store: &Store, workspace: Option<&String>) -> Result<Option<Workspace>, Failure> {
    let Some(name) = workspace else { return Ok(None) };
    Ok(Some(store.workspace_by_id(names::find_workspace(store, name)?.id)?))
}

/// The threads of the project, or of the whole store.
fn seen<'a>(store: &'a Store, place: Option<&'a Workspace>) -> &'a Threads {
    match place {
        Some(place) => place,
        None => store,
    }
}

fn create(args: &CreateArgs, app: &mut App) -> Outcome {
    let text = doc::read_whole_text(args.file.as_deref())?;
    let store = app.create()?;
    let place = match &args.workspace {
        Some(folder) => store.workspace(folder)?,
        None => store.workspace(&std::env::current_dir()?)?,
    };
    let new =
        NewRoadmap { title: args.title.clone(), replace: args.replace, ..NewRoadmap::new(args.roadmap.clone(), text) };
    let info = place.create_roadmap(new)?;
    changed(app, &info)
}

fn update(args: &UpdateArgs, app: &mut App) -> Outcome {
    let text = doc::read_whole_text(args.file.as_deref())?;
    let store = app.write()?;
    let place = place(&store, args.which.workspace.as_ref())?;
    let title = args.title.clone().map_or(Change::Keep, Change::Set);
    let update = RoadmapUpdate { title, expect: args.if_version, ..RoadmapUpdate::new(text) };
    let info = seen(&store, place.as_ref()).update_roadmap(&args.which.roadmap, update)?;
    changed(app, &info)
}

fn set(args: &SetArgs, app: &mut App) -> Outcome {
    let store = app.write()?;
    let place = place(&store, args.which.workspace.as_ref())?;
    let result = match (&args.result, args.no_result) {
        (Some(result), _) => Change::Set(result.clone()),
        (None, true) => Change::Clear,
        (None, false) => Change::Keep,
    };
    let patch = NodePatch { status: args.status.map(NodeStatus::from), result, expect: args.if_version };
    let info = seen(&store, place.as_ref()).set_roadmap_node(&args.which.roadmap, &args.node, patch)?;
    changed(app, &info)
}

fn delete(app: &mut App, which: &Which, if_version: Option<u64>) -> Outcome {
    let store = app.write()?;
    let place = place(&store, which.workspace.as_ref())?;
    if !seen(&store, place.as_ref()).delete_roadmap(&which.roadmap, if_version)? {
        return Err(missing(which).into());
    }
    if app.out.is_json() {
        app.out.document(&json!({"deleted": which.roadmap}))?;
    } else {
        app.out.line(format!("Deleted {}", which.roadmap))?;
    }
    Ok(Code::Done)
}

fn missing(which: &Which) -> Error {
    Error::NotFound { what: "roadmap", id: which.roadmap.to_string() }
}

fn changed(app: &mut App, info: &RoadmapInfo) -> Outcome {
    if app.out.is_json() {
        app.out.document(&json!({"roadmap": document(info)}))?;
        return Ok(Code::Done);
    }
    app.out.line(format!("{} is at version {}: {}", info.id, info.version, progress(&info.nodes)))?;
    Ok(Code::Done)
}

/// How far the nodes are, in words.
fn progress(nodes: &NodeCounts) -> String {
    let mut words = vec![format!("{} of {} done", human::count(nodes.done), human::count(nodes.all()))];
    for (count, word) in [(nodes.running, "running"), (nodes.failed, "failed")] {
        if count > 0 {
            words.push(format!("{} {word}", human::count(count)));
        }
    }
    words.join(", ")
}

fn show(app: &mut App, which: &Which, toml: bool) -> Outcome {
    let store = app.read()?;
    let place = place(&store, which.workspace.as_ref())?;
    let threads = seen(&store, place.as_ref());
    let Roadmap { info, tree, text } = threads.roadmap(&which.roadmap)?.ok_or_else(|| missing(which))?;
    if app.out.is_json() {
        let mut document = document(&info);
        if let Some(fields) = document.as_object_mut() {
            fields.insert("tree".to_owned(), serde_json::to_value(&tree)?);
            fields.insert("text".to_owned(), text.into());
        }
        app.out.document(&json!({"roadmap": document}))?;
        return Ok(Code::Done);
    }
    if toml {
        app.out.bytes(text.as_bytes())?;
        return Ok(Code::Done);
    }
    let page =
        threads.roadmap_links(&which.roadmap, RoadmapLinkQuery { limit: 1_000, ..RoadmapLinkQuery::default() })?;
    let workers = page.entries.into_iter().map(|link| (link.node, names::short_id(&store, &link.thread))).collect();
    draw::roadmap(&mut app.out, &info, &tree, &workers)?;
    Ok(Code::Done)
}

fn list(args: &ListArgs, app: &mut App) -> Outcome {
    let store = app.read()?;
    let place = place(&store, args.workspace.as_ref())?;
    let query = RoadmapQuery { limit: args.limit, cursor: args.cursor.clone() };
    let page = seen(&store, place.as_ref()).roadmaps(query)?;
    if app.out.is_json() {
        app.out.page("roadmaps", &page, document)?;
        return Ok(Code::Done);
    }
    if page.entries.is_empty() {
        app.out.line("No such roadmap.")?;
        return Ok(Code::Done);
    }
    let columns = [
        ("roadmap", Align::Left),
        ("version", Align::Right),
        ("nodes", Align::Left),
        ("changed", Align::Left),
        ("what for", Align::Flexible),
    ];
    let mut table = Table::new(&columns);
    let now = super::now();
    for info in &page.entries {
        let (nodes, words) = match &info.damage {
            Some(damage) => (cell(Ink::Bad, "unreadable"), text::one_line(damage)),
            None => {
                let words = info.title.as_ref().or(info.goal.as_ref()).map(String::as_str).unwrap_or_default();
                (cell(Ink::Plain, progress(&info.nodes)), text::one_line(words))
            }
        };
        table.row(vec![
            cell(Ink::Plain, info.id.as_str()),
            cell(Ink::Plain, info.version.to_string()),
            nodes,
            cell(Ink::Dim, human::ago(info.updated_at, now)),
            cell(Ink::Plain, words),
        ]);
    }
    table.write(&mut app.out)?;
    if let Some(next) = page.next_cursor {
        app.out.line(format!("\nMore: the same with --cursor {next}"))?;
    }
    Ok(Code::Done)
}

fn links(args: &LinksArgs, app: &mut App) -> Outcome {
    let store = app.read()?;
    let place = place(&store, args.which.workspace.as_ref())?;
    let query = RoadmapLinkQuery { node: args.node.clone(), limit: args.limit, cursor: args.cursor.clone() };
    let page = seen(&store, place.as_ref()).roadmap_links(&args.which.roadmap, query)?;
    if app.out.is_json() {
        app.out.page("links", &page, link_document)?;
        return Ok(Code::Done);
    }
    if page.entries.is_empty() {
        app.out.line("No thread is linked to it.")?;
        return Ok(Code::Done);
    }
    let mut table = Table::new(&[("thread", Align::Left), ("node", Align::Flexible), ("linked", Align::Left)]);
    let now = super::now();
    for link in &page.entries {
        table.row(vec![
            cell(Ink::Plain, names::short_id(&store, &link.thread)),
            cell(Ink::Plain, text::one_line(link.node.as_deref().unwrap_or("-"))),
            cell(Ink::Dim, human::ago(link.linked_at, now)),
        ]);
    }
    table.write(&mut app.out)?;
    if let Some(next) = page.next_cursor {
        app.out.line(format!("\nMore: the same with --cursor {next}"))?;
    }
    Ok(Code::Done)
}

fn linked(app: &mut App, store: &Store, link: Option<&RoadmapLink>) -> Outcome {
    if app.out.is_json() {
        app.out.document(&json!({"link": link.map(link_document)}))?;
        return Ok(Code::Done);
    }
    match link {
        None => app.out.line("It is linked to nothing.")?,
        Some(link) => {
            let node = link.node.as_ref().map(|node| format!(", node {}", text::one_line(node))).unwrap_or_default();
            app.out.line(format!("{} works on {}{node}", names::short_id(store, &link.thread), link.roadmap))?;
        }
    }
    Ok(Code::Done)
}

fn document(info: &RoadmapInfo) -> Value {
    json!({
        "workspace": info.workspace,
        "id": info.id,
        "title": info.title,
        "goal": info.goal,
        "version": info.version,
        "size": info.size,
        "nodes": {
            "total": info.nodes.all(),
            "pending": info.nodes.pending,
            "running": info.nodes.running,
            "done": info.nodes.done,
            "failed": info.nodes.failed,
        },
        "damage": info.damage,
        "created_at": json::time(info.created_at),
        "updated_at": json::time(info.updated_at),
    })
}

fn link_document(link: &RoadmapLink) -> Value {
    json!({
        "thread": link.thread,
        "workspace": link.workspace,
        "roadmap": link.roadmap,
        "node": link.node,
        "linked_at": json::time(link.linked_at),
    })
}
