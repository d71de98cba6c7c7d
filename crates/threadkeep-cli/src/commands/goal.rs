//! `threadkeep goal`

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use threadkeep::{
    Change, Goal, GoalCheck, GoalPatch, GoalQuery, GoalStatus, GoalUsage, NewGoal, PauseReason, Uuid, gap_fingerprint,
};

use super::App;
use crate::errors::{Code, Outcome, Report};
use crate::style::Ink;
use crate::table::{Align, Table, cell};
use crate::{human, json, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep goal set 019a2284 'make the login tests pass' --tokens 500000 --time 2h
  threadkeep goal show 019a2284
  threadkeep goal accrue 019a2284 --tokens 1834 --time 12s
  threadkeep goal mark 019a2284 paused
  threadkeep goal edit 019a2284 --tokens 900000 && threadkeep goal mark 019a2284 active
  threadkeep goal history 019a2284

A goal that is active becomes budget_limited with the usage that uses a budget up, and paused when the
same gap is met three times in a row. Nobody needs the right to write the thread: goals may be changed
while an agent works.";

/// Set, follow and change what a thread is to reach, and what that may cost
///
/// A thread has one goal at most. Another objective or another budget begins a revision; the revisions before it stay in the
/// history, each with what it had cost.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct GoalArgs {
    #[command(subcommand)]
    what: GoalCommand,
}

#[derive(Debug, Subcommand)]
enum GoalCommand {
    /// Say what a thread's goal is, and how far it is
    Show {
        /// The thread
        thread: String,
    },
    /// Set the goal, in the place of the one that the thread has
    Set {
        /// The thread
        thread: String,
        /// What is to be reached
        objective: String,
        /// Tokens that it may cost
        #[arg(long, value_name = "N")]
        tokens: Option<u64>,
        /// How long it may take: 90s, 2h30m …
        #[arg(long, value_name = "DURATION", value_parser = seconds)]
        time: Option<u64>,
    },
    /// Change what the goal asks for; what it has cost stays
    Edit {
        /// The thread
        thread: String,
        /// What is to be reached
        #[arg(long, value_name = "WORDS")]
        objective: Option<String>,
        /// Tokens that it may cost; `none` takes the budget away
        #[arg(long, value_name = "N|none", value_parser = budget)]
        tokens: Option<Budget>,
        /// How long it may take; `none` takes the budget away
        #[arg(long, value_name = "DURATION|none", value_parser = time_budget)]
        time: Option<Budget>,
    },
    /// Say whether the goal is pursued
    Mark {
        /// The thread
        thread: String,
        /// What it is from now on
        #[arg(value_enum)]
        status: Mark,
        /// Why
        #[arg(long, value_enum)]
        reason: Option<Reason>,
    },
    /// Add usage to the goal
    Accrue {
        /// The thread
        thread: String,
        /// Tokens
        #[arg(long, value_name = "N", default_value_t = 0)]
        tokens: u64,
        /// Time: 90s, 2h30m …
        #[arg(long, value_name = "DURATION", value_parser = seconds, default_value = "0s")]
        time: u64,
        /// How often the agent went on by itself
        #[arg(long, value_name = "N", default_value_t = 0)]
        continuations: u64,
        /// A UUID of this usage: repeated, it is added once
        #[arg(long, value_name = "UUID")]
        id: Option<Uuid>,
    },
    /// Note what is missing to the goal; the same three times in a row pauses it
    Check {
        /// The thread
        thread: String,
        /// Which continuation this was found at
        #[arg(long, value_name = "N")]
        pass: u64,
        /// What is missing; nothing when the goal is reached. Only a fingerprint of it is kept
        gaps: Vec<String>,
    },
    /// List the revisions of the goal, the newest first, and what each has cost
    History {
        /// The thread
        thread: String,
        /// At most this many, up to 1000
        #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
        limit: usize,
        /// Go on where an earlier page ended
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Take the goal away; its revisions stay in the history
    Clear {
        /// The thread
        thread: String,
    },
}

/// A budget, or none.
type Budget = Option<u64>;

#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Mark {
    Active,
    Paused,
    Blocked,
    UsageLimited,
    BudgetLimited,
    Complete,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Reason {
    User,
    Backoff,
    NoProgress,
    UsageLimit,
    BudgetLimit,
}

/// Answers.
pub(super) fn run(args: &GoalArgs, app: &mut App) -> Outcome {
    match &args.what {
        GoalCommand::Show { thread } => {
            let store = app.read()?;
            let goal = store.goal(&store.find(thread)?)?;
            write(app, goal.as_ref())
        }
        GoalCommand::Set { thread, objective, tokens, time } => {
            let new = NewGoal { token_budget: *tokens, seconds_budget: *time, ..NewGoal::new(objective) };
            let store = app.write()?;
            let goal = store.set_goal(&store.find(thread)?, new)?;
            write(app, Some(&goal))
        }
        GoalCommand::Edit { thread, objective, tokens, time } => {
            let change = |budget: &Option<Budget>| match budget {
                None => Change::Keep,
                Some(None) => Change::Clear,
                Some(Some(budget)) => Change::Set(*budget),
            };
            let (token_budget, seconds_budget) = (change(tokens), change(time));
            let objective = objective.clone();
            update(app, thread, GoalPatch { objective, token_budget, seconds_budget, ..GoalPatch::default() })
        }
        GoalCommand::Mark { thread, status, reason } => {
            let (status, pause_reason) = (Some(status_of(*status)), reason.map(reason_of));
            update(app, thread, GoalPatch { status, pause_reason, ..GoalPatch::default() })
        }
        GoalCommand::Accrue { thread, tokens, time, continuations, id } => {
            let (tokens, seconds, continuations) = (*tokens, *time, *continuations);
            let usage = GoalUsage { id: *id, goal: None, tokens, seconds, continuations };
            let store = app.write()?;
            let goal = store.accrue_goal(&store.find(thread)?, usage)?;
            write(app, goal.as_ref())
        }
        GoalCommand::Check { thread, pass, gaps } => {
            let gaps: Vec<&str> = gaps.iter().map(String::as_str).collect();
            let store = app.write()?;
            let found = GoalCheck { gap: gap_fingerprint(&gaps), pass: *pass };
            let goal = store.check_goal(&store.find(thread)?, found)?;
            write(app, goal.as_ref())
        }
        GoalCommand::History { thread, limit, cursor } => history(app, thread, *limit, cursor.clone()),
        GoalCommand::Clear { thread } => {
            let store = app.write()?;
            let cleared = store.clear_goal(&store.find(thread)?)?;
            if app.out.is_json() {
                app.out.document(&json!({"cleared": cleared}))?;
            } else {
                app.out.line(if cleared { "The thread has no goal any more" } else { NO_GOAL })?;
            }
            Ok(Code::Done)
        }
    }
}

const NO_GOAL: &str = "The thread has no goal.";

fn update(app: &mut App, thread: &str, patch: GoalPatch) -> Outcome {
    if patch == GoalPatch::default() {
        return Err(Report::usage("nothing is named that is to change").hint("see `threadkeep help goal edit`").into());
    }
    let store = app.write()?;
    let goal = store.update_goal(&store.find(thread)?, patch)?;
    write(app, Some(&goal))
}

fn write(app: &mut App, goal: Option<&Goal>) -> Outcome {
    if app.out.is_json() {
        app.out.document(&json!({"goal": goal.map(document)}))?;
        return Ok(Code::Done);
    }
    let Some(goal) = goal else {
        app.out.line(NO_GOAL)?;
        return Ok(Code::Done);
    };
    app.out.line(app.out.paint(Ink::Strong, text::clean(&goal.objective).trim()))?;
    let now = super::now();
    let mut lines = vec![
        ("status", status_words(goal)),
        ("tokens", of_budget(human::count(goal.tokens_used), goal.token_budget.map(human::count))),
        ("time", of_budget(time_words(goal.seconds_used), goal.seconds_budget.map(time_words))),
        ("continued", human::counted(goal.continuations, "time", "times")),
        ("revision", format!("{} · {} · begun {}", goal.ordinal, goal.id, human::ago(goal.created_at, now))),
        ("changed", human::ago(goal.updated_at, now)),
    ];
    if let Some(stall) = &goal.stall {
        let met = human::counted(stall.repeats, "time", "times");
        lines.insert(4, ("same gap", format!("{met} in a row, last at pass {}", stall.pass)));
    }
    for (name, value) in lines {
        app.out.line(format!("  {name:<10} {value}"))?;
    }
    Ok(Code::Done)
}

fn history(app: &mut App, thread: &str, limit: usize, cursor: Option<String>) -> Outcome {
    let store = app.read()?;
    let page = store.goal_history(&store.find(thread)?, GoalQuery { limit, cursor })?;
    if app.out.is_json() {
        app.out.page("goals", &page, document)?;
        return Ok(Code::Done);
    }
    let columns = [
        ("", Align::Right),
        ("status", Align::Left),
        ("tokens", Align::Right),
        ("time", Align::Right),
        ("begun", Align::Left),
        ("ended", Align::Left),
        ("objective", Align::Flexible),
    ];
    let mut table = Table::new(&columns);
    let now = super::now();
    for goal in &page.entries {
        table.row(vec![
            cell(Ink::Dim, human::count(goal.ordinal)),
            cell(Ink::Plain, text::one_line(goal.stored_status.as_str())),
            cell(Ink::Plain, human::count(goal.tokens_used)),
            cell(Ink::Plain, time_words(goal.seconds_used)),
            cell(Ink::Dim, human::ago(goal.created_at, now)),
            cell(Ink::Dim, goal.ended_at.map_or_else(String::new, |at| human::ago(at, now))),
            cell(Ink::Plain, text::one_line(&goal.objective)),
        ]);
    }
    table.write(&mut app.out)?;
    if let Some(next) = page.next_cursor {
        app.out.line(format!("\nMore: the same with --cursor {next}"))?;
    }
    Ok(Code::Done)
}

fn document(goal: &Goal) -> Value {
    json!({
        "thread": goal.thread,
        "id": goal.id,
        "ordinal": goal.ordinal,
        "objective": goal.objective,
        "status": goal.status,
        "stored_status": goal.stored_status,
        "pause_reason": goal.pause_reason,
        "token_budget": goal.token_budget,
        "seconds_budget": goal.seconds_budget,
        "tokens_used": goal.tokens_used,
        "seconds_used": goal.seconds_used,
        "continuations": goal.continuations,
        "stall": goal.stall,
        "created_at": json::time(goal.created_at),
        "updated_at": json::time(goal.updated_at),
        "ended_at": goal.ended_at.map(json::time),
    })
}

fn status_words(goal: &Goal) -> String {
    let mut words = goal.status.to_string();
    if let Some(reason) = &goal.pause_reason {
        words = format!("{words} ({})", text::one_line(reason.as_str()));
    }
    if goal.status != goal.stored_status {
        words = format!("{words}, stored as {}", text::one_line(goal.stored_status.as_str()));
    }
    words
}

fn of_budget(used: String, budget: Option<String>) -> String {
    match budget {
        None => used,
        Some(budget) => format!("{used} of {budget}"),
    }
}

fn time_words(seconds: u64) -> String {
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{} h {minutes} min", human::count(hours)),
    }
}

fn status_of(mark: Mark) -> GoalStatus {
    match mark {
        Mark::Active => GoalStatus::Active,
        Mark::Paused => GoalStatus::Paused,
        Mark::Blocked => GoalStatus::Blocked,
        Mark::UsageLimited => GoalStatus::UsageLimited,
        Mark::BudgetLimited => GoalStatus::BudgetLimited,
        Mark::Complete => GoalStatus::Complete,
    }
}

fn reason_of(reason: Reason) -> PauseReason {
    match reason {
        Reason::User => PauseReason::User,
        Reason::Backoff => PauseReason::Backoff,
        Reason::NoProgress => PauseReason::NoProgress,
        Reason::UsageLimit => PauseReason::UsageLimit,
        Reason::BudgetLimit => PauseReason::BudgetLimit,
    }
}

fn budget(text: &str) -> Result<Budget, String> {
    match text {
        "none" => Ok(None),
        number => number.parse().map(Some).map_err(|_| format!("`{number}` is no number, and not `none`")),
    }
}

fn time_budget(text: &str) -> Result<Budget, String> {
    if text == "none" { Ok(None) } else { seconds(text).map(Some) }
}

/// Whole seconds.
fn seconds(text: &str) -> Result<u64, String> {
    duration(text).map(|duration| duration.as_secs())
}

/// Reads what people and programs write: `90s`, `2h30m`, `PT1H`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no duration; 90s, 15m, 2h30m and PT1H are");
    let duration: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(duration).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{budget, duration, time_budget};

    #[test]
    fn durations_and_budgets_are_read_as_people_write_them() {
        assert_eq!(duration("2h30m").unwrap(), Duration::from_secs(9_000));
        assert_eq!(
            (duration("90s").unwrap(), duration("PT1H").unwrap()),
            (Duration::from_secs(90), Duration::from_secs(3_600))
        );
        assert_eq!((time_budget("none"), budget("none"), budget("7")), (Ok(None), Ok(None), Ok(Some(7))));
        for wrong in ["", "soon", "-5s", "5"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
