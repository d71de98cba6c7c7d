//! `threadkeep artifact`

use clap::{Args, Subcommand};
use serde_json::json;
use threadkeep::{Artifact, ArtifactId, ArtifactKind, ArtifactQuery, ArtifactRelation, ArtifactsOf, NewArtifact};

use super::{App, prompt};
use crate::errors::{Code, Outcome};
use crate::names::Target;
use crate::style::Ink;
use crate::table::{Align, Table, cell};
use crate::{human, json, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep artifact add 019a2284 active --kind decision --body 'keep the old format'
  threadkeep artifact add 019a2284 last --kind commit --relation realizes --locator 4f2a91c
  git diff | threadkeep artifact add 019a2284 last --kind file_change --body -
  threadkeep artifact list 019a2284 --task active
  threadkeep artifact show 019a2284 019a22f1

PROMPT is its id or the beginning of it; `last` is the last one of the path, and `active` the one
that says what is to be done. Whose task an artifact belongs to follows from its prompt. Adding
needs the right to write the thread.";

/// Keep what came of prompts: decisions, plans, changed files, commits
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ArtifactArgs {
    #[command(subcommand)]
    what: ArtifactCommand,
}

#[derive(Debug, Subcommand)]
enum ArtifactCommand {
    /// Store an artifact of a prompt; it is synced when this ends
    Add(AddArgs),
    /// List the artifacts of a thread's path, the last ones first
    List(ListArgs),
    /// Say all that an artifact says
    Show {
        /// The thread
        thread: String,
        /// The artifact: its id or the beginning of it
        artifact: String,
    },
}

#[derive(Debug, Args)]
struct AddArgs {
    /// The thread
    thread: String,
    /// The prompt that it is of
    prompt: String,
    /// What it is: `plan_revision`, `compaction_checkpoint`, `file_change`, `turn_outcome`, commit, decision
    #[arg(long, value_name = "WORD")]
    kind: String,
    /// What it is to the prompt: `derived_from`, updates, summarizes, realizes
    #[arg(long, value_name = "WORD", default_value = "derived_from")]
    relation: String,
    /// Where it is: a path, an address, a commit
    #[arg(long, value_name = "WORDS")]
    locator: Option<String>,
    /// What it says; `-` reads standard input
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// A JSON object, kept to the byte
    #[arg(long, value_name = "JSON", default_value = "{}")]
    metadata: String,
    /// Its id, so that a repeated call stores it once
    #[arg(long, value_name = "UUID")]
    id: Option<ArtifactId>,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// The thread; with a depth the path up to there
    #[arg(value_name = "THREAD[@DEPTH]")]
    thread: String,
    /// Only those of this prompt
    #[arg(long, value_name = "PROMPT", conflicts_with = "task")]
    prompt: Option<String>,
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
pub(super) fn run(args: &ArtifactArgs, app: &mut App) -> Outcome {
    match &args.what {
        ArtifactCommand::Add(args) => add(args, app),
        ArtifactCommand::List(args) => list(args, app),
        ArtifactCommand::Show { thread, artifact } => {
            let store = app.read()?;
            let thread = store.find(thread)?;
            let artifact = store.artifact(&thread, store.find_artifact(&thread, artifact)?)?;
            show(app, &artifact)
        }
    }
}

fn add(args: &AddArgs, app: &mut App) -> Outcome {
    let body = args.body.as_deref().map(prompt::read_text).transpose()?;
    let store = app.write()?;
    let thread = store.find(&args.thread)?;
    let new = NewArtifact {
        id: args.id,
        prompt: prompt::find(&store, &thread, &args.prompt)?,
        kind: ArtifactKind::from_word(&args.kind),
        relation: ArtifactRelation::from_word(&args.relation),
        locator: args.locator.clone(),
        body,
        metadata: args.metadata.clone(),
    };
    let stored = super::under_claim(&store, &thread, |live| Ok(live.add_artifact(new)?))?;
    let artifact = &stored.artifact;
    if app.out.is_json() {
        app.out.document(&json!({"artifact": json::artifact(artifact), "repeated": stored.repeated}))?;
        return Ok(Code::Done);
    }
    let verb = if stored.repeated { "Was stored before" } else { "Stored" };
    let id = app.out.paint(Ink::Dim, &artifact.id.to_string());
    app.out.line(format!("{verb} as number {} @{}: {id}", artifact.number, artifact.address.depth))?;
    Ok(Code::Done)
}

fn list(args: &ListArgs, app: &mut App) -> Outcome {
    let store = app.read()?;
    let target = Target::find(&store, &args.thread)?;
    let of = match (&args.prompt, &args.task) {
        (Some(name), _) => ArtifactsOf::Prompt(prompt::find(&store, &target.thread, name)?),
        (None, Some(name)) => {
            let id = prompt::find(&store, &target.thread, name)?;
            ArtifactsOf::Task(store.prompt(&target.thread, id)?.receipt.root)
        }
        (None, None) => ArtifactsOf::Path,
    };
    let query = ArtifactQuery {
        at: target.address(&store, None)?,
        of,
        newest_first: !args.reverse,
        limit: args.limit,
        cursor: args.cursor.clone(),
    };
    let page = store.artifacts(&target.thread, query)?;
    if app.out.is_json() {
        let mut listing = app.out.listing(&[("total", page.total.into())], "artifacts")?;
        page.entries.iter().try_for_each(|artifact| listing.push(&json::artifact(artifact)))?;
        listing.finish(page.next_cursor.as_deref())?;
        return Ok(Code::Done);
    }
    if page.entries.is_empty() {
        app.out.line(if page.total == 0 { "No such artifact." } else { "Nothing on this page." })?;
        return Ok(Code::Done);
    }
    let columns = [
        ("id", Align::Left),
        ("no", Align::Right),
        ("at", Align::Right),
        ("kind", Align::Left),
        ("relation", Align::Left),
        ("stored", Align::Left),
        ("artifact", Align::Flexible),
    ];
    let (mut table, now) = (Table::new(&columns), super::now());
    for artifact in &page.entries {
        let ink = if artifact.damage.is_some() { Ink::Bad } else { Ink::Plain };
        table.row(vec![
            cell(Ink::Dim, artifact.id.to_string()),
            cell(Ink::Plain, artifact.number.to_string()),
            cell(Ink::Plain, format!("@{}", artifact.address.depth)),
            cell(Ink::Plain, text::one_line(artifact.kind.as_str())),
            cell(Ink::Plain, text::one_line(artifact.relation.as_str())),
            cell(Ink::Dim, human::ago(artifact.created_at, now)),
            cell(ink, words(artifact)),
        ]);
    }
    table.write(&mut app.out)?;
    if let Some(next) = page.next_cursor {
        app.out.line(format!("\nMore: the same with --cursor {next}"))?;
    }
    Ok(Code::Done)
}

/// What there is to say of an artifact in a line.
fn words(artifact: &Artifact) -> String {
    if let Some(damage) = &artifact.damage {
        return format!("damaged: {}", text::one_line(damage));
    }
    let said = [artifact.locator.as_deref(), artifact.body.as_deref()];
    said.into_iter().flatten().map(text::one_line).collect::<Vec<_>>().join("  ")
}

fn show(app: &mut App, artifact: &Artifact) -> Outcome {
    if app.out.is_json() {
        app.out.document(&json!({"artifact": json::artifact(artifact)}))?;
        return Ok(Code::Done);
    }
    let lines = [
        Some(("id", artifact.id.to_string())),
        Some(("number", artifact.number.to_string())),
        Some((
            "is",
            format!("{}, {}", text::one_line(artifact.kind.as_str()), text::one_line(artifact.relation.as_str())),
        )),
        Some(("prompt", artifact.prompt.to_string())),
        Some(("root", artifact.root.to_string())),
        Some(("at", format!("@{}", artifact.address.depth))),
        artifact.turn.map(|turn| ("turn", turn.to_string())),
        artifact.locator.as_ref().map(|locator| ("locator", text::one_line(locator))),
        Some(("metadata", text::one_line(&artifact.metadata))).filter(|_| artifact.metadata != "{}"),
        Some(("stored", human::ago(artifact.created_at, super::now()))),
        artifact.redaction.as_ref().map(|told| ("redacted", text::one_line(&told.to_string()))),
    ];
    for (name, value) in lines.into_iter().flatten() {
        app.out.line(format!("  {name:<9} {value}"))?;
    }
    if let Some(body) = &artifact.body {
        app.out.line("")?;
        app.out.line(text::clean(body))?;
    }
    Ok(Code::Done)
}
