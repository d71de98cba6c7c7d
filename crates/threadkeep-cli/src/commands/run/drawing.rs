//! A run drawn as a tree.

use serde_json::Value;
use threadkeep::{Candidate, Judgement, Run, RunNode, RunPart, RunStatus, TreeQuery};

use super::{candidate_document, document, part_document};
use crate::commands::{App, now};
use crate::errors::{Code, Failure, Outcome};
use crate::output::Output;
use crate::style::Ink;
use crate::{human, text};

/// Draws a run, page by page to its end unless a limit is given.
pub(super) fn show(app: &mut App, name: &str, limit: Option<usize>, cursor: Option<String>) -> Outcome {
    let store = app.read()?;
    let id = store.find_run(name)?;
    let mut query = TreeQuery { cursor, ..TreeQuery::default() };
    query.limit = limit.unwrap_or(query.limit);
    let mut page = store.run_tree(&id, query.clone())?;
    if app.out.is_json() {
        let mut listing = app.out.listing(&[("run", document(&page.run))], "nodes")?;
        loop {
            page.nodes.iter().try_for_each(|node| listing.push(&node_document(node)))?;
            query.cursor = page.next_cursor.clone();
            if limit.is_some() || query.cursor.is_none() {
                listing.finish(page.next_cursor.as_deref())?;
                return Ok(Code::Done);
            }
            page = match store.run_tree(&id, query.clone()) {
                Ok(page) => page,
                Err(error) => return Err(listing.fail(error.into())),
            };
        }
    }
    if query.cursor.is_none() {
        write_head(&mut app.out, &page.run)?;
    }
    let mut nodes = 0;
    loop {
        for node in &page.nodes {
            let line = line(&app.out, node);
            app.out.line(line)?;
        }
        nodes += page.nodes.len();
        query.cursor = page.next_cursor.clone();
        if limit.is_some() || query.cursor.is_none() {
            break;
        }
        page = store.run_tree(&id, query.clone())?;
    }
    match page.next_cursor {
        Some(next) => app.out.line(format!("\nMore: the same with --cursor {next}"))?,
        None if nodes == 0 => app.out.line("Nothing belongs to it yet.")?,
        None => {}
    }
    Ok(Code::Done)
}

fn write_head(out: &mut Output, run: &Run) -> Result<(), Failure> {
    let status = out.paint(ink(&run.status), &text::one_line(run.status.as_str()));
    out.line(format!("{}  {status}", out.paint(Ink::Strong, &text::one_line(&run.workflow))))?;
    let now = now();
    let opt = |name, value: &Option<String>| value.as_ref().map(|value| (name, text::one_line(value)));
    let lines = [
        Some(("id", run.id.to_string())),
        opt("goal", &run.goal),
        opt("reason", &run.reason),
        run.thread.as_ref().map(|thread| ("thread", thread.to_string())),
        opt("input", &run.input_hash),
        opt("metadata", &run.metadata),
        Some(("started", human::ago(run.started_at, now))),
        run.completed_at.map(|at| ("ended", human::ago(at, now))),
        opt("damaged", &run.damage),
    ];
    for (name, value) in lines.into_iter().flatten() {
        out.line(format!("  {name:<9} {value}"))?;
    }
    out.line("")
}

fn node_document(node: &RunNode) -> Value {
    match node {
        RunNode::Part(part) => part_document(part),
        RunNode::Candidate(candidate) => candidate_document(candidate),
    }
}

fn line(out: &Output, node: &RunNode) -> String {
    match node {
        RunNode::Part(part) => part_line(out, part, node.depth()),
        RunNode::Candidate(candidate) => candidate_line(out, candidate, node.depth()),
    }
}

fn part_line(out: &Output, part: &RunPart, depth: usize) -> String {
    let mark = out.paint(ink(&part.status), mark(&part.status));
    let name = text::one_line(part.kind.name());
    let about = text::one_line(part.kind.about());
    let words = match (&part.damage, &part.reason, &part.result) {
        (Some(damage), ..) => format!("damaged: {damage}"),
        (None, Some(reason), _) => reason.clone(),
        (None, None, Some(result)) => result.clone(),
        (None, None, None) => String::new(),
    };
    let head = format!("{} {}  {}", part.kind.word(), text::cut(&name, 40), text::cut(&about, 40));
    let status = text::one_line(part.status.as_str());
    tail(out, depth, &mark, &format!("{head}  {status}"), &words, part.id.as_str())
}

pub(super) fn candidate_line(out: &Output, candidate: &Candidate, depth: usize) -> String {
    let judgement = &candidate.judgement;
    let (ink, mark) = match judgement.passed {
        Some(true) => (Ink::Good, "✓"),
        Some(false) => (Ink::Bad, "✕"),
        None => (Ink::Dim, "·"),
    };
    let words = match (&candidate.damage, &judgement.rationale) {
        (Some(damage), _) => format!("damaged: {damage}"),
        (None, rationale) => rationale.clone().unwrap_or_default(),
    };
    let name = text::one_line(&candidate.candidate);
    let head = format!("candidate {}{}", text::cut(&name, 40), judged(judgement));
    tail(out, depth, &out.paint(ink, mark), &head, &words, candidate.id.as_str())
}

/// What was found of a candidate, behind its name.
pub(super) fn judged(judgement: &Judgement) -> String {
    let score = judgement.score.as_ref().map(|score| format!("  score {score}")).unwrap_or_default();
    let passed = match judgement.passed {
        Some(true) => "  passed",
        Some(false) => "  not passed",
        None => "",
    };
    format!("{score}{passed}")
}

fn tail(out: &Output, depth: usize, mark: &str, head: &str, words: &str, id: &str) -> String {
    let indent = "   ".repeat(depth);
    let taken = text::width(&format!("{indent}● {head}    {id}"));
    let words = text::one_line(text::cut(words, 400).as_ref());
    let words = text::cut(&words, out.width().saturating_sub(taken).max(12)).into_owned();
    let words = if words.is_empty() { words } else { format!("  {words}") };
    format!("{indent}{mark} {head}{}  {}", out.paint(Ink::Dim, &words), out.paint(Ink::Dim, id))
}

pub(super) fn ink(status: &RunStatus) -> Ink {
    match status {
        RunStatus::Completed => Ink::Good,
        RunStatus::Failed => Ink::Bad,
        RunStatus::Interrupted => Ink::Warn,
        RunStatus::Running => Ink::Strong,
        _ => Ink::Plain,
    }
}

fn mark(status: &RunStatus) -> &'static str {
    match status {
        RunStatus::Pending => "○",
        RunStatus::Running => "●",
        RunStatus::Paused => "‖",
        RunStatus::Completed => "✓",
        RunStatus::Failed => "✕",
        RunStatus::Cancelled => "–",
        RunStatus::Interrupted => "!",
        _ => "?",
    }
}
