//! `threadkeep retain`

use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::{Span, SpanRelativeTo};
use serde_json::{Value, json};
use threadkeep::blocking::{Store, Threads};
use threadkeep::{
    KeptThread, Protection, ReceiptQuery, RetainOptions, RetentionReceipt, RetentionReport, RetentionRule,
    RetentionRules, StoredRules,
};

use super::App;
use crate::errors::{Code, Failure, Outcome, Report};
use crate::style::Ink;
use crate::table::{Align, Table, cell};
use crate::{human, json, names, output, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep retain --dry-run --max-age 90d               what would go
  threadkeep retain --max-count 200 --workspace shop      take it, once
  threadkeep retain --set --max-age 180d --max-size 2GiB  keep these rules
  threadkeep retain                                       go by the rules that are kept
  threadkeep retain --show
  threadkeep retain --history -n 20
  threadkeep restore 019a2284                             bring one back

Nothing is taken unless this is called, and nothing without rules. What is taken goes into the trash
first; a later run purges it when it has been there for --trash-grace. A thread stays while a living
process writes it, while it is pinned or archived or was changed within --grace, while a message, a
request, a job, a goal or a run of it is open, and while a fork of it is not in the trash. Pinned and
archived threads are not counted.

Ends with 8 when something could not be judged: a thread that is damaged, or every age, when the clock
seems to have leapt.";
const BAR: &str = "{spinner} {pos}/{len} threads";
const RULES: &str = "Rules";

/// Take away what is too many, too old or too large, into the trash first
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RetainArgs {
    /// Say what would go, and take nothing
    #[arg(long)]
    dry_run: bool,
    /// Only this workspace: its name, its id, or a folder of it
    #[arg(long, value_name = "NAME|DIR")]
    workspace: Option<String>,
    /// Keep at most so many threads in each workspace
    #[arg(long, value_name = "N", help_heading = RULES)]
    max_count: Option<u64>,
    /// Keep what was changed within this time: 90d, 26w, 12h …
    #[arg(long, value_name = "DURATION", value_parser = span, help_heading = RULES)]
    max_age: Option<Duration>,
    /// Keep at most so many bytes in each workspace: 500MB, 2GiB …
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = RULES)]
    max_size: Option<u64>,
    /// Keep at most so many bytes in all workspaces together
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = RULES)]
    max_store_size: Option<u64>,
    /// Leave alone what was made, changed or restored within this time [default: 1h]
    #[arg(long, value_name = "DURATION", value_parser = span, help_heading = RULES)]
    grace: Option<Duration>,
    /// Purge what has been in the trash for this long; `never` leaves it there [default: 30d]
    #[arg(long, value_name = "DURATION", value_parser = trash_grace, help_heading = RULES)]
    trash_grace: Option<TrashGrace>,
    /// Count and take archived threads too
    #[arg(long, help_heading = RULES)]
    archived: bool,
    /// Take threads though others were forked from them; what these share stays
    #[arg(long, help_heading = RULES)]
    forked: bool,
    /// Purge what was deleted by hand too
    #[arg(long, help_heading = RULES)]
    deleted: bool,
    /// Leave this thread alone; can be given more than once
    #[arg(long, value_name = "THREAD")]
    spare: Vec<String>,
    /// The clock is right, though nobody used the store for long
    #[arg(long)]
    trust_clock: bool,
    /// Keep these rules, for the store or with --workspace for that alone, and take nothing now
    #[arg(long, conflicts_with_all = ["dry_run", "show", "clear", "history", "spare", "trust_clock"])]
    set: bool,
    /// Say which rules are kept
    #[arg(long, conflicts_with_all = ["dry_run", "clear", "history", "spare", "trust_clock", "max_count", "max_age", "max_size", "max_store_size", "grace", "trash_grace", "archived", "forked", "deleted"])]
    show: bool,
    /// Forget the rules of the store, or with --workspace those of that alone
    #[arg(long, conflicts_with_all = ["dry_run", "history", "spare", "trust_clock", "max_count", "max_age", "max_size", "max_store_size", "grace", "trash_grace", "archived", "forked", "deleted"])]
    clear: bool,
    /// List what was taken and what came back, the newest first
    #[arg(long, conflicts_with_all = ["dry_run", "spare", "trust_clock", "max_count", "max_age", "max_size", "max_store_size", "grace", "trash_grace", "archived", "forked", "deleted"])]
    history: bool,
    /// With --history: at most this many, up to 1000
    #[arg(short = 'n', long, value_name = "N", requires = "history", default_value_t = 100)]
    limit: usize,
    /// With --history: go on where an earlier page ended
    #[arg(long, requires = "history")]
    cursor: Option<String>,
}

/// How long something stays in the trash.
#[derive(Debug, Clone, Copy)]
enum TrashGrace {
    For(Duration),
    Never,
}

/// Answers.
pub(super) fn run(args: &RetainArgs, app: &mut App) -> Outcome {
    let is_reading = args.dry_run || args.show || args.history;
    let store = if is_reading { app.read()? } else { app.write()? };
    match &args.workspace {
        None => answer(args, app, &store, &store),
        Some(name) => {
            let workspace = store.workspace_by_id(names::find_workspace(&store, name)?.id)?;
            answer(args, app, &store, &workspace)
        }
    }
}

fn answer(args: &RetainArgs, app: &mut App, store: &Store, at: &Threads) -> Outcome {
    match () {
        () if args.set => set(args, app, store, at),
        () if args.show => show(app, store, &at.all_retention()?),
        () if args.clear => clear(app, at),
        () if args.history => history(args, app, at),
        () => retain(args, app, store, at),
    }
}

fn set(args: &RetainArgs, app: &mut App, store: &Store, at: &Threads) -> Outcome {
    let Some(rules) = args.rules() else {
        let report = Report::usage("--set needs rules, such as --max-age 180d");
        return Err(report.hint("`--clear` forgets those that are kept").into());
    };
    at.set_retention(rules)?;
    show(app, store, &at.all_retention()?)
}

fn clear(app: &mut App, at: &Threads) -> Outcome {
    let were_there = at.clear_retention()?;
    match app.out.is_json() {
        true => app.out.document(&json!({"cleared": were_there}))?,
        false => app.out.line(if were_there { "The rules are forgotten." } else { "There were no rules." })?,
    }
    Ok(if were_there { Code::Done } else { Code::NotDone })
}

fn retain(args: &RetainArgs, app: &mut App, store: &Store, at: &Threads) -> Outcome {
    let options = RetainOptions {
        rules: args.rules(),
        dry_run: args.dry_run,
        spare: args.spare.iter().map(|name| at.find(name)).collect::<Result<_, _>>()?,
        trust_clock: args.trust_clock,
    };
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template(BAR) {
        bar.set_style(style);
    }
    let shown = bar.clone();
    let progress = move |done, total| {
        shown.set_length(total);
        shown.set_position(done);
    };
    let report = at.retain_with(options, progress);
    bar.finish_and_clear();
    let report = report?;
    let is_partial = report.held_back.is_some()
        || !report.notices.is_empty()
        || report.kept.iter().any(|kept| matches!(kept.why, Protection::Damaged | Protection::Mirrored));
    match app.out.is_json() {
        true => app.out.document(&document(&report))?,
        false => write(app, store, &report)?,
    }
    Ok(if is_partial { Code::Partial } else { Code::Done })
}

fn write(app: &mut App, store: &Store, report: &RetentionReport) -> Result<(), Failure> {
    if report.workspaces == 0 {
        app.out.line("No rules are kept, and none were given: nothing is taken.")?;
        return Ok(());
    }
    taken(app, store, report)?;
    kept(app, store, &report.kept)?;
    let (trashed, purged) = (report.trashed.len() as u64, report.purged.len() as u64);
    let threads = |count| human::counted(count, "thread", "threads");
    let words = match report.dry_run {
        true => format!("{} would go into the trash, {} would be purged", threads(trashed), threads(purged)),
        false => format!("{} in the trash, {} purged", threads(trashed), threads(purged)),
    };
    let room: i64 = report.purged.iter().map(|it| it.bytes).sum();
    let room = if purged > 0 { format!(" ({})", human::bytes(room)) } else { String::new() };
    let stays = match report.kept.len() as u64 {
        0 => String::new(),
        count => format!("; {} kept", threads(count)),
    };
    app.out.line(format!("{words}{room}{stays}"))?;
    if report.freed_bytes > 0 {
        app.out.line(format!("{} given back to the disk", human::bytes(report.freed_bytes)))?;
    }
    if let Some(newest) = report.held_back {
        let words = format!(
            "no age was judged: nothing in this store is between {} and now, and the clock may have leapt; it is believed after \
             a day of use, or with --trust-clock",
            human::moment(newest)
        );
        output::tell(Ink::Warn, "note", &words);
    }
    for notice in &report.notices {
        output::tell(Ink::Warn, "note", &text::one_line(notice));
    }
    Ok(())
}

fn taken(app: &mut App, store: &Store, report: &RetentionReport) -> Result<(), Failure> {
    if report.trashed.is_empty() && report.purged.is_empty() {
        return Ok(());
    }
    let columns = [
        ("thread", Align::Left),
        ("goes", Align::Left),
        ("because", Align::Left),
        ("items", Align::Right),
        ("size", Align::Right),
        ("changed", Align::Left),
        ("name", Align::Flexible),
    ];
    let mut table = Table::new(&columns);
    let now = super::now();
    for (goes, receipt) in
        report.trashed.iter().map(|it| ("trash", it)).chain(report.purged.iter().map(|it| ("for good", it)))
    {
        table.row(vec![
            cell(Ink::Dim, names::short_id(store, &receipt.thread)),
            cell(Ink::Plain, goes),
            cell(Ink::Plain, receipt.rule.as_ref().map(because).unwrap_or_default()),
            cell(Ink::Plain, human::count(receipt.items)),
            cell(Ink::Plain, human::bytes(receipt.bytes)),
            cell(Ink::Dim, human::ago(receipt.changed_at, now)),
            cell(Ink::Plain, receipt.name.as_deref().unwrap_or_default()),
        ]);
    }
    table.write(&mut app.out)?;
    app.out.line("")
}

fn kept(app: &mut App, store: &Store, kept: &[KeptThread]) -> Result<(), Failure> {
    if kept.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&[("thread", Align::Left), ("stays because", Align::Left), ("name", Align::Flexible)]);
    for kept in kept {
        table.row(vec![
            cell(Ink::Dim, names::short_id(store, &kept.thread)),
            cell(Ink::Plain, stays(kept)),
            cell(Ink::Plain, kept.name.as_deref().unwrap_or_default()),
        ]);
    }
    table.write(&mut app.out)?;
    app.out.line("")
}

fn because(rule: &RetentionRule) -> String {
    match rule {
        RetentionRule::Age => "too old",
        RetentionRule::Count => "too many",
        RetentionRule::Bytes => "too large",
        RetentionRule::StoreBytes => "store too large",
        RetentionRule::TrashGrace => "long in the trash",
        other => other.as_str(),
    }
    .to_owned()
}

fn stays(kept: &KeptThread) -> String {
    let why = match &kept.why {
        Protection::Live => "it is being written",
        Protection::Pinned => "it is pinned",
        Protection::Archived => "it is archived",
        Protection::Recent => "it was changed lately",
        Protection::Spared => "it is spared",
        Protection::Forked => "a fork shares it",
        Protection::Message => "a message waits",
        Protection::Request => "a request waits",
        Protection::Job => "a job is open",
        Protection::Goal => "its goal is pursued",
        Protection::Run => "a run is open",
        Protection::Changed => "it changed meanwhile",
        Protection::Mirrored => "rollouts are being written",
        Protection::Damaged => "it is damaged",
        other => other.as_str(),
    };
    match &kept.detail {
        Some(detail) => format!("{why}: {}", text::one_line(detail)),
        None => why.to_owned(),
    }
}

fn show(app: &mut App, store: &Store, all: &[StoredRules]) -> Outcome {
    if app.out.is_json() {
        app.out.document(&json!({"rules": all.iter().map(rules_document).collect::<Vec<_>>()}))?;
        return Ok(Code::Done);
    }
    if all.is_empty() {
        app.out.line("No rules are kept: nothing is ever taken.")?;
    }
    for stored in all {
        let whose = match stored.workspace {
            None => "the store".to_owned(),
            Some(id) => format!("workspace {}", text::one_line(&store.workspace_by_id(id)?.info().name)),
        };
        app.out.line(app.out.paint(Ink::Strong, &whose))?;
        for (name, value) in words(&stored.rules) {
            app.out.line(format!("  {name:<15} {value}"))?;
        }
    }
    Ok(Code::Done)
}

fn words(rules: &RetentionRules) -> Vec<(&'static str, String)> {
    let size = |bytes: u64| human::bytes(i64::try_from(bytes).unwrap_or(i64::MAX));
    let also: Vec<&str> = [(rules.archived, "archived"), (rules.forked, "forked"), (rules.deleted, "deleted by hand")]
        .into_iter()
        .filter_map(|(is_set, word)| is_set.then_some(word))
        .collect();
    let lines = [
        rules.max_count.map(|count| ("max count", human::count(count))),
        rules.max_age.map(|age| ("max age", time(age))),
        rules.max_bytes.map(|bytes| ("max size", size(bytes))),
        rules.max_store_bytes.map(|bytes| ("max store size", size(bytes))),
        Some(("grace", time(rules.grace))),
        Some(("trash grace", rules.trash_grace.map_or_else(|| "never".to_owned(), time))),
        (!also.is_empty()).then(|| ("also", also.join(", "))),
    ];
    lines.into_iter().flatten().collect()
}

fn history(args: &RetainArgs, app: &mut App, at: &Threads) -> Outcome {
    let query = ReceiptQuery { thread: None, limit: args.limit, cursor: args.cursor.clone() };
    let page = at.retention_receipts(query)?;
    if app.out.is_json() {
        app.out.page("receipts", &page, receipt)?;
        return Ok(Code::Done);
    }
    if page.entries.is_empty() {
        app.out.line("Nothing was ever taken.")?;
        return Ok(Code::Done);
    }
    let columns = [
        ("thread", Align::Left),
        ("what", Align::Left),
        ("because", Align::Left),
        ("items", Align::Right),
        ("size", Align::Right),
        ("when", Align::Left),
        ("name", Align::Flexible),
    ];
    let mut table = Table::new(&columns);
    let now = super::now();
    for receipt in &page.entries {
        table.row(vec![
            cell(Ink::Dim, receipt.thread.as_str()),
            cell(Ink::Plain, receipt.step.as_str()),
            cell(Ink::Plain, receipt.rule.as_ref().map(because).unwrap_or_default()),
            cell(Ink::Plain, human::count(receipt.items)),
            cell(Ink::Plain, human::bytes(receipt.bytes)),
            cell(Ink::Dim, human::ago(receipt.at, now)),
            cell(Ink::Plain, receipt.name.as_deref().unwrap_or_default()),
        ]);
    }
    table.write(&mut app.out)?;
    if let Some(next) = page.next_cursor {
        app.out.line(format!("\nMore: the same with --cursor {next}"))?;
    }
    Ok(Code::Done)
}

fn document(report: &RetentionReport) -> Value {
    json!({
        "run": report.run,
        "dry_run": report.dry_run,
        "at": json::time(report.at),
        "workspaces": report.workspaces,
        "trashed": report.trashed.iter().map(receipt).collect::<Vec<_>>(),
        "purged": report.purged.iter().map(receipt).collect::<Vec<_>>(),
        "kept": report.kept.iter().map(kept_document).collect::<Vec<_>>(),
        "freed_bytes": report.freed_bytes,
        "held_back": report.held_back.map(json::time),
        "notices": report.notices,
    })
}

fn receipt(receipt: &RetentionReceipt) -> Value {
    json!({
        "number": receipt.number,
        "run": receipt.run,
        "thread": receipt.thread,
        "workspace": receipt.workspace,
        "name": receipt.name,
        "step": receipt.step,
        "rule": receipt.rule,
        "bound": receipt.bound,
        "items": receipt.items,
        "bytes": receipt.bytes,
        "head_hash": receipt.head_hash.map(|hash| hash.to_string()),
        "changed_at": json::time(receipt.changed_at),
        "record": receipt.record,
        "at": json::time(receipt.at),
    })
}

fn kept_document(kept: &KeptThread) -> Value {
    json!({
        "thread": kept.thread,
        "workspace": kept.workspace,
        "name": kept.name,
        "rule": kept.rule,
        "why": kept.why,
        "detail": kept.detail,
    })
}

fn rules_document(stored: &StoredRules) -> Value {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let rules = &stored.rules;
    json!({
        "workspace": stored.workspace,
        "max_count": rules.max_count,
        "max_age_ms": rules.max_age.map(millis),
        "max_bytes": rules.max_bytes,
        "max_store_bytes": rules.max_store_bytes,
        "grace_ms": millis(rules.grace),
        "trash_grace_ms": rules.trash_grace.map(millis),
        "archived": rules.archived,
        "forked": rules.forked,
        "deleted": rules.deleted,
    })
}

impl RetainArgs {
    /// The rules that were given; `None` when none was.
    fn rules(&self) -> Option<RetentionRules> {
        let is_given = self.max_count.is_some()
            || self.max_age.is_some()
            || self.max_size.is_some()
            || self.max_store_size.is_some()
            || self.grace.is_some()
            || self.trash_grace.is_some()
            || self.archived
            || self.forked
            || self.deleted;
        is_given.then(|| RetentionRules {
            max_count: self.max_count,
            max_age: self.max_age,
            max_bytes: self.max_size,
            max_store_bytes: self.max_store_size,
            grace: self.grace.unwrap_or(RetentionRules::GRACE),
            trash_grace: match self.trash_grace {
                None => Some(RetentionRules::TRASH_GRACE),
                Some(TrashGrace::For(grace)) => Some(grace),
                Some(TrashGrace::Never) => None,
            },
            archived: self.archived,
            forked: self.forked,
            deleted: self.deleted,
        })
    }
}

/// Reads what people write: `90d`, `26w`, `1d 12h`, `PT1H`. A day has 24 hours.
fn span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no duration; 90d, 26w, 12h and PT1H are");
    let span: Span = text.parse().map_err(|_| wrong())?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    Duration::try_from(duration).map_err(|_| wrong())
}

fn trash_grace(text: &str) -> Result<TrashGrace, String> {
    match text {
        "never" => Ok(TrashGrace::Never),
        other => span(other).map(TrashGrace::For),
    }
}

/// Reads what people write: `500MB`, `2GiB`, `1024`.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no size; 500MB, 2GiB and 1048576 are");
    let digits = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return Err(wrong()),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).ok_or_else(wrong)
}

/// A duration as it can be given again.
fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        _ if duration.subsec_millis() != 0 => format!("{}ms", duration.as_millis()),
        0 => "0s".to_owned(),
        _ if seconds.is_multiple_of(86_400) => format!("{}d", seconds / 86_400),
        _ if seconds.is_multiple_of(3_600) => format!("{}h", seconds / 3_600),
        _ if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{size, span, time};

    #[test]
    fn durations_are_read_as_people_write_them_and_shown_so_that_they_can_be_given_again() {
        for (text, seconds) in [("90d", 7_776_000), ("2w", 1_209_600), ("1d 12h", 129_600), ("PT1H", 3_600), ("0s", 0)]
        {
            assert_eq!(span(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in ["", "soon", "-5d", "1mo", "1y", "90"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
        for seconds in [0, 59, 60, 3_600, 129_600, 7_776_000] {
            let duration = Duration::from_secs(seconds);
            assert_eq!(span(&time(duration)), Ok(duration), "{seconds}");
        }
        assert_eq!(span(&time(Duration::from_millis(1_500))), Ok(Duration::from_millis(1_500)));
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [("1024", 1_024), ("500MB", 500_000_000), ("2GiB", 2 << 30), ("3 k", 3 << 10)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "big", "-1", "1.5G", "99999999999T", "5 apples"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
