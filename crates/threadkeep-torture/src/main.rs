//! Threadkeep under kills, power cuts and failing system calls. The method and the figures are in `docs/reliability.md`.
//!
//! The program starts itself again for everything that may die: writers, readers and checkers are processes of their own.
#![expect(clippy::print_stdout, reason = "a program that prints what it found, and whose children speak through it")]

mod actor;
mod aftermath;
mod checker;
mod child;
mod ground;
mod oracle;
mod plan;
mod recording;
mod report;
mod scenario;
mod script;
mod server;
mod suites;
mod tools;
mod work;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::plan::{Plan, Size};

/// What ends a step that can't go on, in words for the report.
type Result<T, E = String> = std::result::Result<T, E>;

/// Runs suites of faults against a store, and judges what is left by one set of rules.
#[derive(Debug, Parser)]
#[command(name = "threadkeep-torture", args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Cli {
    #[command(subcommand)]
    inner: Option<Inner>,
    /// The suites, by id or name, `all`, or rows of the public bug reports: `b17`, or `bugs` for those with targets of their own.
    #[arg(required = true)]
    suites: Vec<String>,
    /// How much is done.
    #[arg(long, value_enum, default_value_t = Size::Pr)]
    size: Size,
    /// Repeats a run with the choices of an earlier one.
    #[arg(long)]
    seed: Option<u64>,
    /// Runs one scenario alone of a suite that has several.
    #[arg(long)]
    only: Option<String>,
    /// Prints one JSON object for each suite.
    #[arg(long)]
    json: bool,
}

/// What the program does when it was started by itself.
#[derive(Debug, Subcommand)]
enum Inner {
    #[command(hide = true)]
    Act(actor::Act),
    #[command(hide = true)]
    ChangeBeside(suites::ChangeBeside),
    #[command(hide = true)]
    Check(checker::Check),
    #[command(hide = true)]
    CheckMany(checker::CheckMany),
    #[command(hide = true)]
    Devour(suites::Devour),
    #[command(hide = true)]
    Drill(suites::Drill),
    #[command(hide = true)]
    Dump(suites::Dump),
    #[command(hide = true)]
    Fill(suites::Fill),
    #[command(hide = true)]
    Grow(suites::Grow),
    #[command(hide = true)]
    KeepRetaining(suites::KeepRetaining),
    #[command(hide = true)]
    Lay(suites::Lay),
    #[command(hide = true)]
    Look(suites::Look),
    #[command(hide = true)]
    Play(suites::Play),
    #[command(hide = true)]
    Renumber(suites::Renumber),
    #[command(hide = true)]
    Write(work::Write),
    #[command(hide = true)]
    Read(work::Read),
    #[command(hide = true)]
    Import(work::Import),
    #[command(hide = true)]
    Checkpoint(work::Checkpoint),
    #[command(hide = true)]
    Scenario(scenario::Scenario),
    #[command(hide = true)]
    Script(script::Script),
    #[command(hide = true)]
    Steer(suites::Steer),
    #[command(hide = true)]
    Survey(suites::Survey),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.inner.is_some() {
        child::end_with_parent();
    }
    let done = match cli.inner {
        Some(Inner::Act(act)) => actor::play(&act),
        Some(Inner::ChangeBeside(change)) => suites::play_changes(&change),
        Some(Inner::Check(check)) => checker::play(&check),
        Some(Inner::CheckMany(check)) => checker::play_many(&check),
        Some(Inner::Devour(devour)) => suites::play_reading(&devour),
        Some(Inner::Drill(drill)) => suites::play_drill(&drill),
        Some(Inner::Dump(dump)) => suites::play_dump(&dump),
        Some(Inner::Fill(fill)) => suites::play_filling(&fill),
        Some(Inner::Grow(grow)) => suites::play_growing(&grow),
        Some(Inner::KeepRetaining(keep)) => suites::play_retaining(&keep),
        Some(Inner::Lay(lay)) => suites::play_layer(&lay),
        Some(Inner::Look(look)) => suites::play_look(&look),
        Some(Inner::Play(play)) => suites::play(&play),
        Some(Inner::Renumber(renumber)) => suites::play_renumber(&renumber),
        Some(Inner::Write(write)) => work::play_writer(&write),
        Some(Inner::Read(read)) => work::play_reader(&read),
        Some(Inner::Import(import)) => work::play_importer(&import),
        Some(Inner::Checkpoint(checkpoint)) => work::play_checkpointer(&checkpoint),
        Some(Inner::Scenario(scenario)) => scenario::play(&scenario),
        Some(Inner::Script(script)) => script::play(&script),
        Some(Inner::Steer(steer)) => suites::play_steering(&steer),
        Some(Inner::Survey(survey)) => suites::play_survey(&survey),
        None => {
            let plan = Plan::new(cli.size, cli.seed, cli.only);
            return match plan.and_then(|plan| suites::run(&plan, &cli.suites, cli.json)) {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) => ExitCode::FAILURE,
                Err(words) => {
                    println!("{words}");
                    ExitCode::from(2)
                }
            };
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            child::say(format_args!("X {words}"));
            ExitCode::from(3)
        }
    }
}
