//! `threadkeep redact`

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use threadkeep::blocking::Store;
use threadkeep::{Address, RedactOptions, RedactReport, RedactedPlace, Rules, ThreadId};

use super::App;
use crate::errors::{Code, Failure, Outcome, Report};
use crate::human;
use crate::names::{self, Target};
use crate::output::{self, Output};
use crate::style::Ink;

/// How many places are shown to people; programs get a thousand.
const SHOWN: usize = 20;
const BAR: &str = "{spinner} {pos:>10} of {len} threads {wide_bar} {eta:>4}";

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep redact 019a2284@12 --reason 'a key was pasted'
  threadkeep redact 019a2284@12 019a2284@14 --with-derived --reason 'a key was pasted'
  threadkeep redact --secrets                         what the rules find in all threads; changes nothing
  threadkeep redact --secrets --apply --reason 'cleaning up before sharing'
  threadkeep redact 019a2284 --pattern 'sk-[a-z0-9]{20,}' --apply --reason 'a key was pasted'
  printf %s \"$KEY\" | threadkeep redact --literal-from - --apply --reason 'it was rotated'

With THREAD@DEPTH the whole content goes. Rules mask what they find, and leave the rest of an item as
it is; what they take away is gone as well. Without --apply they only say what there is.

What nobody can take away for you: backups and copies of the store, rollouts in other folders, and the
files that threads were imported from. Rotate a key that leaked whatever you redact.";

/// Take content away for good: a secret that leaked
///
/// The chain still verifies, and the record says who took the content away, when and why. Every fork that shares an item loses it
/// too. Then the store's files are written anew, so that no byte of it is left in them; that takes as much room again as the
/// store, and writers wait meanwhile. Exits with 8 when something was left.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RedactArgs {
    /// Items to take away; with rules the threads to look through, all of them when none is named
    #[arg(value_name = "THREAD[@DEPTH]")]
    targets: Vec<String>,
    /// On this branch: its label, its id or the beginning of it
    #[arg(short, long)]
    branch: Option<String>,
    /// Why; it stays readable
    #[arg(short, long, value_name = "TEXT")]
    reason: Option<String>,
    /// Who; this user by default
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Also the items that cite a redacted one, such as summaries of it
    #[arg(long)]
    with_derived: bool,
    /// Also the items that hold a large payload of the same bytes
    #[arg(long)]
    with_same_payload: bool,
    /// Mask what the rules for common secrets find
    #[arg(long)]
    secrets: bool,
    /// Mask what this regular expression matches
    #[arg(long, value_name = "REGEX")]
    pattern: Vec<String>,
    /// Mask the secret that this file holds, or standard input with `-`, so that it is in no list of commands
    #[arg(long, value_name = "FILE")]
    literal_from: Option<PathBuf>,
    /// Mask what the rules in this file find, which is in the format of gitleaks
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Mask what was found; without it rules only say what there is
    #[arg(long)]
    apply: bool,
    /// Remove the traces that an earlier redaction could not
    #[arg(long, exclusive = true)]
    finish: bool,
}

/// Redacts.
pub(super) fn run(args: &RedactArgs, app: &mut App) -> Outcome {
    if args.finish {
        return finish(app);
    }
    let rules = args.rules()?;
    let store = if rules.is_none() || args.apply { app.write()? } else { app.read()? };
    let report = match rules {
        Some(rules) => mask(args, &store, rules)?,
        None => remove(args, &store)?,
    };
    let changed = args.apply || report.erased.is_some();
    if app.out.is_json() {
        app.out.document(&report)?;
    } else {
        write(&mut app.out, &store, &report, changed)?;
    }
    let left = report.erased == Some(false) || !report.problems.is_empty();
    Ok(if left { Code::Partial } else { Code::Done })
}

fn finish(app: &mut App) -> Outcome {
    let store = app.write()?;
    let remains = store.erase()?;
    if app.out.is_json() {
        app.out.document(&serde_json::json!({"remains": remains}))?;
    } else {
        app.out.line("Wrote the store anew: nothing is left in it of what was taken away before")?;
        tell_remains(&remains);
    }
    Ok(Code::Done)
}

impl RedactArgs {
    /// What is to be masked; `None` when items are named.
    fn rules(&self) -> Result<Option<Rules>, Failure> {
        let mut all: Vec<Rules> = Vec::new();
        if self.secrets {
            all.push(Rules::maintained()?);
        }
        for pattern in &self.pattern {
            all.push(Rules::pattern(pattern)?);
        }
        if let Some(file) = &self.literal_from {
            all.push(Rules::literal(read_secret(file)?)?);
        }
        if let Some(file) = &self.rules {
            let text = fs::read_to_string(file);
            let text = text.map_err(|error| Report::usage(format!("--rules {}: {error}", file.display())))?;
            all.push(Rules::gitleaks(&text)?);
        }
        let rules = all.into_iter().reduce(|these, those| these.and(&those));
        if rules.is_none() && self.targets.is_empty() {
            let report = Report::usage("name an item (THREAD@DEPTH), or what to look for (--secrets, --pattern …)");
            return Err(report.into());
        }
        if (rules.is_none() || self.apply) && self.reason.is_none() {
            return Err(Report::usage("--reason is missing: it stays on record, for whoever finds the gap").into());
        }
        if rules.is_some() && (self.with_derived || self.with_same_payload || self.branch.is_some()) {
            let report = Report::usage("--branch and --with-… are for items that are named; rules look at every item");
            return Err(report.into());
        }
        Ok(rules)
    }

    fn options(&self) -> RedactOptions {
        RedactOptions {
            reason: self.reason.clone().unwrap_or_default(),
            by: self.by.clone().or_else(user),
            with_derived: self.with_derived,
            with_same_payload: self.with_same_payload,
            erase_later: false,
        }
    }
}

/// The user's name, as the system's tools know it.
pub(super) fn user() -> Option<String> {
    ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok()).filter(|name| !name.is_empty())
}

/// A secret without the line's end that editors put behind it.
fn read_secret(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut secret = Vec::new();
    let read = match file == Path::new("-") {
        true => io::stdin().lock().read_to_end(&mut secret),
        false => fs::File::open(file).and_then(|mut file| file.read_to_end(&mut secret)),
    };
    read.map_err(|error| Report::usage(format!("--literal-from {}: {error}", file.display())))?;
    let end = secret.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    secret.truncate(end);
    Ok(secret)
}

fn mask(args: &RedactArgs, store: &Store, rules: Rules) -> Result<RedactReport, Failure> {
    let threads: Vec<ThreadId> = args.targets.iter().map(|name| store.find(name)).collect::<Result<_, _>>()?;
    let threads = (!threads.is_empty()).then_some(threads);
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template(BAR) {
        bar.set_style(style);
    }
    let shown = bar.clone();
    let progress = move |done, total| {
        shown.set_length(total);
        shown.set_position(done);
    };
    let report = store.redact_matching(threads, rules, args.options(), args.apply, progress);
    bar.finish_and_clear();
    Ok(report?)
}

fn remove(args: &RedactArgs, store: &Store) -> Result<RedactReport, Failure> {
    let mut wanted: Vec<(ThreadId, Vec<Address>)> = Vec::new();
    for name in &args.targets {
        let target = Target::find(store, name)?;
        if target.depth.is_none() {
            let words = format!("`{name}` names no item: say THREAD@DEPTH, as `show` prints the depth");
            return Err(Report::usage(words).hint("`threadkeep delete` and `purge` remove whole threads").into());
        }
        let Some(address) = target.address(store, args.branch.as_deref())? else { continue };
        match wanted.iter_mut().find(|(thread, _)| *thread == target.thread) {
            Some((_, addresses)) => addresses.push(address),
            None => wanted.push((target.thread, vec![address])),
        }
    }
    let mut all = RedactReport::default();
    let last = wanted.len().saturating_sub(1);
    for (at, (thread, addresses)) in wanted.into_iter().enumerate() {
        let options = RedactOptions { erase_later: at < last, ..args.options() };
        all.add(store.redact(&thread, addresses, options)?);
    }
    Ok(all)
}

fn write(out: &mut Output, store: &Store, report: &RedactReport, changed: bool) -> Result<(), Failure> {
    let items = human::counted(report.redacted, "item", "items");
    let looked_at = human::counted(report.looked_at, "item", "items");
    let headline = match (changed, report.redacted) {
        (true, 0) => format!("Nothing to take away in {looked_at}"),
        (true, _) => format!("Redacted {items} of {looked_at}"),
        (false, 0) => format!("Nothing was found in {looked_at}"),
        (false, _) => format!("Would mask {items} of {looked_at}; --apply does it"),
    };
    out.line(out.paint(Ink::Strong, &headline))?;
    for (rule, count) in &report.rules {
        out.line(format!("  {:>6}  {rule}", human::count(*count)))?;
    }
    write_places(out, store, "", &report.places)?;
    for (thread, fields) in &report.beside {
        let fields = fields.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        out.line(format!("  {}  {fields}", names::short_id(store, thread)))?;
    }
    if report.requests > 0 {
        out.line(format!("  {} of no thread", human::counted(report.requests, "request", "requests")))?;
    }
    if report.jobs > 0 {
        out.line(format!("  {} of no thread", human::counted(report.jobs, "job", "jobs")))?;
    }
    if report.roadmaps > 0 {
        out.line(format!("  {}", human::counted(report.roadmaps, "roadmap", "roadmaps")))?;
    }
    if report.runs > 0 {
        out.line(format!("  {} of no thread", human::counted(report.runs, "run", "runs")))?;
    }
    write_places(out, store, "cites it, and was left", &report.derived)?;
    write_places(out, store, "has the same payload, and was left", &report.same_payload)?;
    for problem in &report.problems {
        output::tell(Ink::Warn, "note", &format!("{}: {}", problem.thread, problem.reason));
    }
    tell_remains(&report.remains);
    Ok(())
}

fn write_places(out: &mut Output, store: &Store, why: &str, places: &[RedactedPlace]) -> Result<(), Failure> {
    for place in places.iter().take(SHOWN) {
        let name = format!("{}@{}", names::short_id(store, &place.thread), place.depth);
        let words = if why.is_empty() { place.rules.join(", ") } else { why.to_owned() };
        out.line(format!("  {name}  {words}").trim_end())?;
    }
    if let more @ 1.. = places.len().saturating_sub(SHOWN) {
        out.line(format!("  … {}", human::counted(more as i128, "more item", "more items")))?;
    }
    Ok(())
}

fn tell_remains(remains: &[String]) {
    for words in remains {
        output::tell(Ink::Warn, "still there", words);
    }
}
