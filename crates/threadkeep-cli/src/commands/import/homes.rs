//! The homes of agents: which are here, and what would come of them.

use std::env;
use std::path::PathBuf;

use serde_json::{Value, json};
use threadkeep::blocking::Store;
use threadkeep_agents::homes::{self, Home, Machine, System};
use threadkeep_agents::import::{ImportOptions, ImportReport, Importer, Measure, measure};

use super::{Bar, write_problems};
use crate::commands::App;
use crate::errors::{Code, Failure, Outcome, Report};
use crate::output::Output;
use crate::style::Ink;
use crate::table::{Align, Table, cell};
use crate::{human, text};

/// The homes that are here, of all agents or of one.
pub(in crate::commands) fn find(projects: &[PathBuf], agent: Option<&str>) -> Result<Vec<Home>, Failure> {
    let mut found = homes::existing(candidates(projects)?);
    if let Some(agent) = agent {
        found.retain(|home| home.agent == agent);
    }
    Ok(found)
}

/// Where homes can be, whether they are there or not.
pub(in crate::commands) fn candidates(projects: &[PathBuf]) -> Result<Vec<Home>, Failure> {
    let home = etcetera::home_dir().ok().filter(|home| home.is_absolute());
    let unknown = || Report::usage("no home folder is known to look in").hint("name the folders");
    let home = home.ok_or_else(unknown)?;
    let variable = |name: &str| env::var_os(name).map(PathBuf::from);
    let machine = Machine { system: System::here(), home: &home, variable: &variable };
    let mut all = homes::candidates(&machine);
    all.extend(homes::of_projects(projects));
    Ok(all)
}

/// A home with what lies in it and what would come of it.
struct Look<'a> {
    home: &'a Home,
    measure: Measure,
    /// Nothing where the agent's sessions can't be read.
    report: Option<ImportReport>,
}

/// Says what would come, home by home, and stores nothing.
pub(super) fn look(
    store: &Store,
    options: &ImportOptions,
    paths: &[PathBuf],
    homes: &[Home],
    app: &mut App,
) -> Outcome {
    let bar = Bar::new();
    let run = |paths: &[PathBuf]| {
        let report = Importer::new(store, options.clone()).run(paths, &mut |progress| bar.show(&progress));
        report.map_err(Failure::from)
    };
    let mut looks = Vec::new();
    let mut total = run(paths)?;
    for home in homes {
        let report = home.is_read.then(|| run(std::slice::from_ref(&home.path))).transpose()?;
        if let Some(report) = &report {
            total.add_report(report);
        }
        looks.push(Look { home, measure: measure(home), report });
    }
    bar.0.finish_and_clear();
    if app.out.is_json() {
        let mut document = serde_json::to_value(&total)?;
        put(&mut document, looks.iter().map(Look::document).collect());
        app.out.document(&document)?;
    } else {
        write(&mut app.out, &looks, &total)?;
    }
    Ok(if total.files.failed > 0 { Code::Partial } else { Code::Done })
}

/// Adds the homes to the report of an import.
pub(super) fn list(document: &mut Value, homes: &[Home]) {
    put(document, homes.iter().map(described).collect());
}

/// Names the homes that nothing came from because nothing can read them yet.
pub(super) fn write_unread(out: &mut Output, homes: &[Home]) -> Result<(), Failure> {
    let unread: Vec<&Home> = homes.iter().filter(|home| !home.is_read).collect();
    if unread.is_empty() {
        return Ok(());
    }
    out.line("\nNot read yet:")?;
    for home in unread {
        let path = text::one_line(&home.path.display().to_string());
        out.line(format!("  {:<20} {}", home.agent, out.paint(Ink::Dim, &path)))?;
    }
    Ok(())
}

fn put(document: &mut Value, homes: Vec<Value>) {
    if let Value::Object(fields) = document {
        fields.insert("homes".to_owned(), Value::Array(homes));
    }
}

fn described(home: &Home) -> Value {
    json!({"agent": home.agent, "path": home.path.display().to_string(), "read": home.is_read})
}

impl Look<'_> {
    fn document(&self) -> Value {
        let mut document = described(self.home);
        if let Value::Object(fields) = &mut document {
            fields.insert("files".to_owned(), self.measure.files.into());
            fields.insert("bytes".to_owned(), self.measure.bytes.into());
            fields.insert("report".to_owned(), json!(self.report));
        }
        document
    }

    /// What would come, in a few words.
    fn words(&self) -> String {
        let Some(report) = &self.report else { return "not read yet".to_owned() };
        let (files, threads) = (&report.files, &report.threads);
        let told = [
            (threads.new, "new"),
            (threads.updated, "grown"),
            (files.unchanged, "unchanged"),
            (files.failed, "can't be read"),
        ];
        let told = told.iter().filter(|(count, _)| *count > 0);
        let told: Vec<String> = told.map(|(count, word)| format!("{} {word}", human::count(*count))).collect();
        if told.is_empty() { "nothing".to_owned() } else { told.join(", ") }
    }
}

fn write(out: &mut Output, looks: &[Look<'_>], total: &ImportReport) -> Result<(), Failure> {
    if looks.is_empty() {
        return out.line("No agent's sessions were found.");
    }
    let mut table = Table::new(&[
        ("AGENT", Align::Left),
        ("FILES", Align::Right),
        ("SIZE", Align::Right),
        ("WOULD COME", Align::Left),
        ("FOLDER", Align::Left),
    ]);
    for look in looks {
        let size = i64::try_from(look.measure.bytes).unwrap_or(i64::MAX);
        let ink = if look.home.is_read { Ink::Plain } else { Ink::Dim };
        table.row(vec![
            cell(ink, look.home.agent),
            cell(ink, human::count(look.measure.files)),
            cell(ink, human::bytes(size)),
            cell(ink, look.words()),
            cell(Ink::Dim, look.home.path.display().to_string()),
        ]);
    }
    table.write(out)?;
    let records = human::counted(total.items.imported, "record", "records");
    let threads = human::counted(total.threads.new + total.threads.updated, "thread", "threads");
    out.line(format!("\nWould import {records} into {threads}; nothing was stored."))?;
    write_problems(out, &total.problems)
}
