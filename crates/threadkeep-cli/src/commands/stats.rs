//! `threadkeep stats`

use clap::Args;
use serde_json::Value;
use threadkeep::{JobStats, Stats, WordCount};

use super::App;
use crate::errors::{Code, Failure, Outcome};
use crate::style::Ink;
use crate::table::{Align, Table, cell};
use crate::{human, json, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep stats
  threadkeep stats --json | jq .file_bytes
  threadkeep stats --json | jq .jobs.queued";

/// Say what the store holds and how large it is
///
/// Counting the bytes reads every item once.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct StatsArgs {}

/// Counts.
pub(super) fn run(_args: &StatsArgs, app: &mut App) -> Outcome {
    let folder = app.place()?.shown();
    let store = app.read()?;
    let stats = store.stats()?;
    if app.out.is_json() {
        let mut document = json::stats(&stats);
        document.insert("store".to_owned(), folder.into());
        document.insert("store_id".to_owned(), store.id().to_string().into());
        app.out.document(&Value::Object(document))?;
        return Ok(Code::Done);
    }
    write(app, &folder, &stats)?;
    Ok(Code::Done)
}

/// How many jobs there are, and how many of them in each status.
fn jobs(stats: &Stats) -> String {
    let total: i64 = stats.jobs.iter().map(|jobs| jobs.jobs).sum();
    let counted = |jobs: &JobStats| format!("{} {}", human::count(jobs.jobs), text::one_line(jobs.status.as_str()));
    let by_status: Vec<String> = stats.jobs.iter().map(counted).collect();
    match by_status.is_empty() {
        true => human::count(total),
        false => format!("{}: {}", human::count(total), by_status.join(", ")),
    }
}

/// How many there are, and how many of them of each word.
fn by_word(counts: &[WordCount]) -> String {
    let total: i64 = counts.iter().map(|it| it.count).sum();
    let counted = |it: &WordCount| format!("{} {}", human::count(it.count), text::one_line(&it.word));
    match counts.is_empty() {
        true => human::count(total),
        false => format!("{}: {}", human::count(total), counts.iter().map(counted).collect::<Vec<_>>().join(", ")),
    }
}

fn documents(stats: &Stats) -> String {
    match stats.documents {
        0 => human::count(0),
        number => {
            format!("{} in {}", human::count(number), human::counted(stats.document_versions, "version", "versions"))
        }
    }
}

fn checkpoints(stats: &Stats) -> String {
    let (given, stored) = (human::bytes(stats.checkpoint_bytes), human::bytes(stats.stored_checkpoint_bytes));
    match stats.checkpoints {
        0 => human::count(0),
        number => format!("{} of {given}, stored in {stored}", human::count(number)),
    }
}

fn write(app: &mut App, folder: &str, stats: &Stats) -> Result<(), Failure> {
    let out = &mut app.out;
    out.line(out.paint(Ink::Strong, &text::one_line(folder)))?;
    let given = stats.content_bytes;
    let stored = stats.stored_bytes.saturating_add(stats.stored_blob_bytes);
    let shelves = format!(
        "{} active, {} archived, {} in the trash",
        human::count(stats.active),
        human::count(stats.archived),
        human::count(stats.trashed)
    );
    for (name, value) in [
        ("threads", shelves),
        ("workspaces", human::count(stats.workspaces)),
        ("items", human::count(stats.items)),
        ("branches", human::count(stats.branches)),
        ("turns", human::count(stats.turns)),
        ("content", format!("{}, stored in {}", human::bytes(given), human::bytes(stored))),
        ("blobs", format!("{} of {}", human::count(stats.blobs), human::bytes(stats.blob_bytes))),
        ("goals", human::count(stats.goals)),
        ("jobs", jobs(stats)),
        ("checkpoints", checkpoints(stats)),
        ("prompts", human::count(stats.prompts)),
        ("artifacts", human::count(stats.artifacts)),
        ("documents", documents(stats)),
        ("roadmaps", human::count(stats.roadmaps)),
        ("runs", by_word(&stats.runs)),
        ("messages", by_word(&stats.messages)),
        ("requests", by_word(&stats.requests)),
        ("on disk", human::bytes(stats.file_bytes)),
    ] {
        out.line(format!("  {name:<11} {value}"))?;
    }
    if stats.agents.is_empty() {
        return Ok(());
    }
    out.line("")?;
    let columns = [("agent", Align::Left), ("threads", Align::Right), ("items", Align::Right)];
    let mut table = Table::new(&columns);
    for agent in &stats.agents {
        let name = if agent.agent.is_empty() { "(none)" } else { &agent.agent };
        table.row(vec![
            cell(Ink::Plain, name),
            cell(Ink::Plain, human::count(agent.threads)),
            cell(Ink::Plain, human::count(agent.items)),
        ]);
    }
    table.write(out)
}
