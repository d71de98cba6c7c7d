//! Repairing a store: a plan that says what would be done, and doing what a plan says to the state that it was made for.
//!
//! Nothing of what is there is changed. A new database is made beside it of all that can be read page by page and of the rollouts,
//! every item by the rule of verification; then it takes the old one's place, which is kept. Whenever that is cut short there is
//! the old store or the new one.

pub(crate) mod admit;
pub(crate) mod settle;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde::Serialize;

use crate::backup::{Look, Unused, WorkFolder, alone, set_journal, size_of};
use crate::concurrency::block_on;
use crate::db::copy;
use crate::db::fts::SqliteIndex;
use crate::db::index::Index as _;
use crate::db::migrations;
use crate::db::pragmas::Journal;
use crate::db::replace;
use crate::db::salvage::Salvage;
use crate::db::sqlite::{self, DATABASE, SqliteTx, engine_error};
use crate::error::{Error, Result};
use crate::examine::{DAMAGED_INDEX, examine};
use crate::finding::{Examination, Severity};
use crate::id::{BranchId, ItemKey, ThreadId};
use crate::item::Hash;
use crate::log::append::mint_uuid;
use crate::log::path;
use crate::log::verify::Break;
use crate::repair::admit::{Admission, Described};
use crate::repair::settle::{Settled, settle};
use crate::rollout::{self, files};
use crate::store::{Store, StoreOptions, on_a_thread};

/// Up to this size a file is looked at as a whole to tell its state from another; of a larger one both ends.
const WHOLE_FILE: u64 = 64 << 20;
const END_OF_FILE: usize = 1 << 20;
/// The folder in which the old files are kept begins with this.
const KEPT: &str = replace::KEPT;
/// What a repair could not let in, line by line, in the folder of what is kept.
const HELD_BACK: &str = "held-back.jsonl";

/// What an examination found, and what can be done about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Checkup {
    /// What was found.
    pub examination: Examination,
    /// What would be done, step by step; empty when nothing has to be or can be.
    pub steps: Vec<RepairStep>,
    /// Names this plan and the state of the store that it is for. `None` where there is nothing that [`Store::repair`] can do: the
    /// steps are then for whoever looks after the server.
    pub fingerprint: Option<String>,
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RepairStep {
    /// The stable kebab-case name of this kind of step.
    pub code: &'static str,
    /// What is done, for people.
    pub what: String,
}

/// What a repair did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RepairReport {
    /// The plan that was carried out.
    pub fingerprint: String,
    /// The folder in which everything that was replaced is kept, as it was. `None` when a replacement that had been cut off was
    /// ended, which keeps nothing more.
    pub kept: Option<PathBuf>,
    /// Every thread of which anything is known, in the order of their ids.
    pub threads: Vec<RepairedThread>,
    /// Items that are in the store now.
    pub items: u64,
    /// Of these, those that the rollouts had and the database had not.
    pub from_rollouts: u64,
    /// Rows of items that were found and that follow from nothing that is left: listed in `held-back.jsonl` in the kept folder.
    pub held_back: u64,
    /// Imported files of which something is lost: they are read anew by the next import.
    pub dropped_files: Vec<String>,
    /// Rollouts of which nothing, or no more, was taken, and why.
    pub refused_rollouts: Vec<(String, String)>,
    /// Threads that do not verify: seals state what is lost. By thread, with the reasons.
    pub invalid: Vec<(ThreadId, Vec<String>)>,
    /// What is wrong with the seals themselves.
    pub seals: Vec<String>,
}

/// What became of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RepairedThread {
    /// The thread.
    pub thread: ThreadId,
    /// How many items its row said that it wrote; `None` when the row is lost.
    pub before: Option<u64>,
    /// How many it has now.
    pub after: u64,
    /// How many of them the rollouts had and the database had not.
    pub from_rollouts: u64,
    /// Where its title and the like come from.
    pub described: Described,
    /// What is known to have been there and is lost.
    pub lost: Vec<LostItems>,
}

/// Items of a branch that are lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LostItems {
    /// The branch.
    pub branch: BranchId,
    /// The first depth that is lost.
    pub from: u32,
    /// The last depth that is known to have been there.
    pub to: u32,
}

impl Store {
    /// Looks at a store as [`Store::examine`] does, and says what can be done about what is wrong. It writes nothing. When it is to
    /// be `full`, all threads are verified as well, which names what only their content shows.
    ///
    /// # Errors
    /// As [`Store::examine`].
    pub async fn plan_repair(options: StoreOptions, full: bool) -> Result<Checkup> {
        on_a_thread("threadkeep-plan", move || plan(&options, full)).await
    }

    /// Does what the plan of this fingerprint says.
    ///
    /// The database is read page by page, with its log and also behind damaged places of it, and the rollouts in the store's folder
    /// are read. A new database takes in every item that follows from its parent by the rule of verification, and all else that fits
    /// them; it gets the schema and the indexes that it should have. What was there is kept as it was, in a folder in the store's
    /// folder. Killed at any moment, this leaves the old store or the new one, and the next opening or repair ends what was begun.
    ///
    /// # Errors
    /// [`Error::Conflict`] when the store is in another state than the plan was made for, or needs no repair: plan anew;
    /// [`Error::Busy`] while any program has the store open; [`Error::Unsupported`] on a server and in memory;
    /// [`Error::StorageFull`] when there is no room for a second database. The store is as it was then.
    pub async fn repair(options: StoreOptions, fingerprint: &str) -> Result<RepairReport> {
        let fingerprint = fingerprint.to_owned();
        on_a_thread("threadkeep-repair", move || repair(&options, &fingerprint)).await
    }
}

fn plan(options: &StoreOptions, full: bool) -> Result<Checkup> {
    let mut examination = examine(options, full)?;
    let Some(folder) = options.folder.as_deref() else {
        let steps = steps_on_a_server(&examination);
        return Ok(Checkup { examination, steps, fingerprint: None });
    };
    if full && examination.worst() != Some(Severity::Error) {
        verify_content(&mut examination, options);
        examination = examination.sorted();
    }
    let steps = steps_in_a_folder(&examination, folder);
    let fingerprint = match steps.is_empty() {
        true => None,
        false => Some(fingerprint_of(&examination, &steps, &state_of(folder)?)),
    };
    Ok(Checkup { examination, steps, fingerprint })
}

/// Finds threads whose content is damaged on pages in which the engine finds nothing wrong.
fn verify_content(found: &mut Examination, options: &StoreOptions) {
    let verified = block_on(async {
        let store = Store::open(options.clone().read_only()).await?;
        store.verify_all(|_| {}).await
    });
    match verified {
        Ok(report) => {
            for (thread, breaks) in &report.invalid {
                let what = breaks.first().map(|first| first.reason.clone()).unwrap_or_default();
                let way_out = "the plan below brings back what verifies; `threadkeep verify` names every place";
                found.error("broken", format!("thread {thread}"), (what, way_out));
            }
        }
        // The schema is older, or there is no store: both are findings already.
        Err(Error::ReadOnly { .. } | Error::NotFound { .. }) => {}
        Err(error) => {
            let place = found.place.clone();
            found.refused(&place, &error);
        }
    }
}

/// The code of the step that leaves the making of a new search index to the next search.
const DROP_INDEX: &str = "drop-index";

/// What is done in a store's folder, if anything can be.
fn steps_in_a_folder(found: &Examination, folder: &Path) -> Vec<RepairStep> {
    if replace::is_unfinished(folder) {
        let what = "end the replacement of the database that was decided on and cut off".to_owned();
        return vec![RepairStep { code: "complete", what }];
    }
    let errors = || found.findings.iter().filter(|finding| finding.severity == Severity::Error);
    let is_damaged = errors().any(|finding| matches!(finding.code, "damaged" | "broken" | "half-migrated"));
    let is_drift = |code: &str| matches!(code, "schema-missing" | "schema-differs");
    // What an index or a rule says is made anew; where a table is another one, somebody has changed the store on purpose.
    let of_a_part = |place: &str| place.starts_with("index ") || place.starts_with("trigger ");
    let drifts: Vec<bool> =
        errors().filter(|finding| is_drift(finding.code)).map(|finding| of_a_part(&finding.place)).collect();
    let is_mendable = !drifts.is_empty() && drifts.iter().all(|is_part| *is_part);
    // A newer version knows rows that this one would leave behind.
    let is_in_the_way = found.findings.iter().any(|finding| {
        matches!(
            finding.code,
            "schema-newer" | "schema-older" | "foreign-store" | "no-store" | "busy" | "access-refused"
        )
    });
    if is_in_the_way {
        return Vec::new();
    }
    if is_damaged || is_mendable {
        return steps_of_a_repair(folder);
    }
    let has_damaged_index = found.findings.iter().any(|finding| finding.code == DAMAGED_INDEX);
    let what = "throw the search index away; the next search makes it anew of what is stored".to_owned();
    has_damaged_index.then_some(RepairStep { code: DROP_INDEX, what }).into_iter().collect()
}

fn steps_of_a_repair(folder: &Path) -> Vec<RepairStep> {
    let step = |code, what: String| RepairStep { code, what };
    let there: Vec<String> = replace::files_of(folder)
        .iter()
        .filter_map(|file| file.file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    let mut steps = Vec::new();
    let read: Vec<&str> = there.iter().map(String::as_str).filter(|name| !name.ends_with("-shm")).collect();
    let has_rollouts = folder.join(files::FOLDER).is_dir();
    if !read.is_empty() {
        let read = read.join(" and ");
        steps.push(step(
            "read-pages",
            format!("read {read} page by page, also behind damage, and take every whole row"),
        ));
    }
    if has_rollouts {
        let what = "take from the rollouts, thread by thread, the items that the database has not";
        steps.push(step("read-rollouts", what.to_owned()));
    }
    let what = match (there.is_empty(), has_rollouts) {
        (true, false) => {
            "make an empty store: nothing is left to bring back (restore a backup instead if there is one)"
        }
        _ => {
            "make a new database with the right schema and new indexes, and let in each item that verifies; list what does not"
        }
    };
    steps.push(step("rebuild", what.to_owned()));
    if !there.is_empty() {
        let what = format!("keep {} as they are, in a new folder `{KEPT}…` in the store's folder", there.join(", "));
        steps.push(step("keep-aside", what));
    }
    steps.push(step("replace", "put the new database in the place, end all claims, and verify all threads".to_owned()));
    steps
}

/// What an operator of a server does: there the server alone reads its pages.
fn steps_on_a_server(found: &Examination) -> Vec<RepairStep> {
    let has =
        |code: &str| found.findings.iter().any(|finding| finding.code == code && finding.severity == Severity::Error);
    let step = |code, what: &str| RepairStep { code, what: what.to_owned() };
    if has("damaged") {
        return vec![
            step("keep-aside", "stop the server and copy its data folder as it is"),
            step(
                "check",
                "let `pg_amcheck --heapallindexed` name the damaged tables and indexes; REINDEX damaged indexes",
            ),
            step("restore-backup", "restore the newest good base backup and its log (point-in-time recovery)"),
            step("rebuild", "or make a new store of the rollouts: `threadkeep --store NEW rollout rebuild --from DIR`"),
            step("verify", "`threadkeep verify --all`, with anchors if there are any"),
        ];
    }
    if has("schema-missing") || has("schema-differs") {
        return vec![
            step("make-parts", "make what is missing as it is written in the findings, as the owner of the schema"),
            step("copy", "or copy the store into a new one, which has the right schema: `threadkeep copy`"),
        ];
    }
    Vec::new()
}

/// What tells the state of a store's files from every other one.
fn state_of(folder: &Path) -> Result<Vec<(String, u64, Hash)>> {
    let mut files = replace::files_of(folder);
    files.retain(|file| !file.to_string_lossy().ends_with("-shm"));
    let next = folder.join(replace::NEXT);
    if replace::is_there(&next) {
        files.push(next);
    }
    let mut state = Vec::new();
    for file in files {
        state.push((file.display().to_string(), size_of(&file)?, print_of(&file)?));
    }
    let rollouts = folder.join(files::FOLDER);
    if rollouts.is_dir() {
        for file in files::walk(&rollouts)?.0 {
            let meta = std::fs::metadata(&file).map_err(|error| Error::io("look at", &file, &error))?;
            let changed = format!("{:?}", meta.modified().ok());
            state.push((file.display().to_string(), meta.len(), Hash::of(changed.as_bytes())));
        }
    }
    Ok(state)
}

fn print_of(path: &Path) -> Result<Hash> {
    use std::os::unix::fs::FileExt as _;
    let failed = |error: std::io::Error| Error::io("read", path, &error);
    let file = sqlite::open_to_look(path).map_err(|error| Error::io("open", path, &error))?;
    let length = file.metadata().map_err(failed)?.len();
    if length <= WHOLE_FILE {
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        return Ok(Hash::of(&bytes));
    }
    let mut bytes = vec![0; 2 * END_OF_FILE];
    let (first, last) = bytes.split_at_mut(END_OF_FILE);
    file.read_exact_at(first, 0).map_err(failed)?;
    file.read_exact_at(last, length - END_OF_FILE as u64).map_err(failed)?;
    Ok(Hash::of(&bytes))
}

fn fingerprint_of(found: &Examination, steps: &[RepairStep], state: &[(String, u64, Hash)]) -> String {
    let errors = found.findings.iter().filter(|finding| finding.severity == Severity::Error);
    let findings: Vec<_> = errors.map(|finding| (finding.code, finding.place.as_str())).collect();
    let steps: Vec<_> = steps.iter().map(|step| step.code).collect();
    let words = format!("threadkeep.repair.v1 {findings:?} {steps:?} {state:?}");
    Hash::of(words.as_bytes()).to_string().chars().take(16).collect()
}

fn repair(options: &StoreOptions, fingerprint: &str) -> Result<RepairReport> {
    let Some(folder) = options.folder.as_deref() else {
        return Err(Error::Unsupported { operation: "repair" });
    };
    if options.read_only {
        return Err(Error::ReadOnly { detail: "a store that is opened for reading only can't be repaired".to_owned() });
    }
    // A plan of a full look is found again by a full look.
    let mut checkup = plan(options, false)?;
    if checkup.fingerprint.as_deref() != Some(fingerprint) {
        checkup = plan(options, true)?;
    }
    match checkup.fingerprint.as_deref() {
        Some(found) if found == fingerprint => {}
        found => return Err(other_plan(fingerprint, found)),
    }
    let folder = &folder.canonicalize().map_err(|error| Error::io("find", folder, &error))?;
    if replace::is_unfinished(folder) {
        replace::complete(folder, options.busy_bound)?;
        return Ok(report_of(fingerprint, None, Settled::default()));
    }
    let state = state_of(options.folder.as_deref().unwrap_or(folder))?;
    let _unused = Unused::make_sure(folder, options, Look::FromOutside)?;
    // Nobody can change it from here on.
    if state != state_of(options.folder.as_deref().unwrap_or(folder))? {
        return Err(other_plan(fingerprint, None));
    }
    if checkup.steps.iter().all(|step| step.code == DROP_INDEX) {
        SqliteIndex::in_folder(folder, Journal::Wal, false).clear()?;
        return Ok(report_of(fingerprint, None, Settled::default()));
    }
    rebuild(options, folder, fingerprint)
}

fn other_plan(given: &str, found: Option<&str>) -> Error {
    let found = found.map_or_else(|| "nothing that a repair mends".to_owned(), |found| format!("the plan {found}"));
    Error::Conflict { what: "plan", expected: format!("the plan {given}"), found }
}

fn rebuild(options: &StoreOptions, folder: &Path, fingerprint: &str) -> Result<RepairReport> {
    let host = &*options.host;
    let work = WorkFolder::make(folder, host)?;
    let salvage = Salvage::collect(&folder.join(DATABASE), &work.folder.join("found.db"), options.migrations)?;
    let rollouts = read_rollouts(folder)?;
    let database = work.database();
    let mut report = {
        let connection = make_database(&database, options)?;
        let transaction = connection.unchecked_transaction().map_err(engine_error)?;
        let store = remembered_store(options, folder).unwrap_or_else(|| mint_uuid(host, host.now()));
        let mut admission = Admission::begin(&transaction, &salvage, &rollouts.rollouts, store, host.now())?;
        admission.take_items()?;
        let settled = settle(&admission, &salvage, &rollouts.rollouts)?;
        let mut report = report_of(fingerprint, None, settled);
        report.refused_rollouts = admission.refused().map(|(id, reason)| (id.to_string(), reason.to_owned())).collect();
        transaction.commit().map_err(engine_error)?;
        check(&connection, &database)?;
        connection.close().map_err(|(_, error)| engine_error(error))?;
        report
    };
    let unread = rollouts.report.problems.iter();
    report.refused_rollouts.extend(unread.map(|problem| (problem.file.display().to_string(), problem.reason.clone())));
    verify(&work.folder, options, &mut report)?;
    set_journal(&database, folder)?;
    let kept = folder.join(format!("{KEPT}{}", mint_uuid(host, host.now())));
    replace::make_folder(&kept)?;
    let placed = list_held_back(&salvage, &database, &kept.join(HELD_BACK)).and_then(|held_back| {
        report.held_back = held_back;
        replace::put_in_place(&database, folder, &kept)
    });
    if let Err(error) = placed {
        if !replace::is_unfinished(folder) {
            drop(std::fs::remove_dir_all(&kept));
        }
        return Err(error);
    }
    report.kept = Some(kept);
    Ok(report)
}

fn read_rollouts(folder: &Path) -> Result<rollout::Read> {
    let root = folder.join(files::FOLDER);
    // A link in its place leads to what is not the store's.
    match std::fs::symlink_metadata(&root) {
        Ok(meta) if meta.is_dir() => rollout::read_all(&root),
        _ => Ok(rollout::Read::default()),
    }
}

/// The store that the folder of keys remembers, if it is one.
fn remembered_store(options: &StoreOptions, folder: &Path) -> Option<uuid::Uuid> {
    let keys = options.keys.clone().unwrap_or_else(|| folder.join("keys"));
    let remembered = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        name.to_str()?.strip_prefix("last-")?.strip_suffix(".json")?.parse().ok()
    };
    let mut stores = std::fs::read_dir(keys).ok()?.flatten().filter_map(remembered);
    stores.next().filter(|_| stores.next().is_none())
}

/// An empty database with the schema of a store, in which nobody looks for damage while it is filled.
fn make_database(database: &Path, options: &StoreOptions) -> Result<Connection> {
    sqlite::create_file(database)?;
    let mut connection = alone(database)?;
    let settings = "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = DELETE; PRAGMA synchronous = OFF;
        PRAGMA foreign_keys = OFF";
    connection.execute_batch(settings).map_err(engine_error)?;
    migrations::apply(&mut connection, options.migrations, options.host.now().0)?;
    Ok(connection)
}

/// Refuses a new database that is not whole itself.
fn check(connection: &Connection, database: &Path) -> Result<()> {
    copy::check(connection, database)?;
    let broken = "SELECT \"table\", parent FROM pragma_foreign_key_check LIMIT 1";
    let found = connection.prepare(broken).and_then(|mut broken| {
        let mut rows = broken.query([])?;
        rows.next()?.map(|row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).transpose()
    });
    match found.map_err(engine_error)? {
        None => Ok(()),
        Some((table, parent)) => {
            let detail = format!("rows of {table} refer to rows of {parent} that are not there");
            Err(Error::corrupt(database.display().to_string(), detail))
        }
    }
}

/// Says what seals miss in the new store.
fn verify(folder: &Path, options: &StoreOptions, report: &mut RepairReport) -> Result<()> {
    let options = StoreOptions { folder: Some(folder.to_owned()), ..options.clone() };
    let verified = block_on(async { Store::open(options.read_only()).await?.verify_all(|_| {}).await })?;
    let reasons = |breaks: Vec<Break>| breaks.into_iter().map(|found| found.reason).collect();
    report.invalid = verified.invalid.into_iter().map(|(thread, breaks)| (thread, reasons(breaks))).collect();
    report.seals = verified.seals;
    Ok(())
}

/// Lists the rows of items that were found and are not in the new database; says how many there are.
fn list_held_back(salvage: &Salvage, database: &Path, list: &Path) -> Result<u64> {
    let connection = alone(database)?;
    let (mut after, mut count) = (i64::MIN, 0);
    let mut lines = None;
    loop {
        let keys = salvage.keys_after(after)?;
        let Some(last) = keys.last() else { break };
        after = *last;
        for key in keys {
            let here = path::link_at(&mut SqliteTx { connection: &connection }, ItemKey(key))?;
            if here.is_some() {
                continue;
            }
            for row in salvage.items(ItemKey(key))? {
                count += 1;
                let lines = match &mut lines {
                    Some(lines) => lines,
                    None => {
                        let file = replace::new_file(list).map_err(|error| Error::io("create", list, &error))?;
                        lines.insert(std::io::BufWriter::new(file))
                    }
                };
                let line = held_back_line(ItemKey(key), &row);
                writeln!(lines, "{line}").map_err(|error| Error::io("write", list, &error))?;
            }
        }
    }
    if let Some(lines) = lines {
        let written = lines.into_inner().map_err(std::io::IntoInnerError::into_error).and_then(|file| file.sync_all());
        written.map_err(|error| Error::io("write", list, &error))?;
    }
    connection.close().map_err(|(_, error)| engine_error(error))?;
    Ok(count)
}

fn held_back_line(key: ItemKey, row: &[crate::db::Owned]) -> serde_json::Value {
    use crate::db::Owned;
    use base64::Engine as _;
    let value = |value: &Owned| match value {
        Owned::Null => serde_json::Value::Null,
        Owned::Int(number) => (*number).into(),
        Owned::Text(text) => text.as_str().into(),
        Owned::Blob(bytes) => {
            serde_json::json!({ "base64": base64::engine::general_purpose::STANDARD.encode(bytes) })
        }
    };
    serde_json::json!({
        "branch_number": key.branch(),
        "depth": key.depth(),
        "row": row.iter().map(value).collect::<Vec<_>>(),
    })
}

fn report_of(fingerprint: &str, kept: Option<PathBuf>, settled: Settled) -> RepairReport {
    let mut threads = settled.threads;
    threads.sort_by(|one, other| one.thread.cmp(&other.thread));
    RepairReport {
        fingerprint: fingerprint.to_owned(),
        kept,
        items: threads.iter().map(|thread| thread.after).sum(),
        from_rollouts: threads.iter().map(|thread| thread.from_rollouts).sum(),
        threads,
        held_back: 0,
        dropped_files: settled.dropped_files,
        refused_rollouts: Vec::new(),
        invalid: Vec::new(),
        seals: Vec::new(),
    }
}
