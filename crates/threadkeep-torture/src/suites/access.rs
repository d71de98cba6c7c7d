//! T15: who can read a store, what links in it do, and names that try to leave it.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use threadkeep::blocking::Store;
use threadkeep::{StoreOptions, ThreadId};

use crate::Result;
use crate::child::Child;
use crate::oracle::{Rule, Tally};
use crate::plan::{self, Plan, Random};
use crate::report::{Outcome, Stop};
use crate::suites::{Writing, kills};
use crate::{tools, work};

const UMASKS: [&str; 3] = ["000", "022", "077"];
const OTHERS: u32 = 0o077;
/// What may stand in a store; a link in the place of each is planted.
const PLACES: [&str; 8] = [
    "threadkeep.db",
    "threadkeep.db-wal",
    "threadkeep.db-shm",
    "threadkeep.db-journal",
    "open.lock",
    "write.gate",
    "write.line",
    "holders",
];
const PARTS: [&str; 16] =
    ["..", "/", "\\", "%2e%2e", "\0", "\u{2024}", "~", " ", "a", "CON", "-rf", "*", "\n", "é", "\u{202e}", ":"];

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    modes(plan, outcome)?;
    strangers(plan, outcome)?;
    links(plan, outcome)?;
    names(plan, outcome)?;
    Ok(())
}

/// Files are the owner's alone, while they are written and afterwards, whatever the process's mask is.
fn modes(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let mut looked_at = 0;
    for umask in UMASKS {
        let folder = plan::fast_folder()?;
        let store = folder.path().join("store");
        let writing = Writing { lanes: "main=0,other=1", life: 1, level: "synced", batches: 0, lie: false };
        let mut command = writing.command(plan, &store);
        command.arg("--umask").arg(umask);
        let writer = Child::start(command)?;
        writer.hear_until("A")?;
        for _ in 0..20 {
            let (seen, open) = open_to_others(&store)?;
            looked_at += seen;
            open.iter().for_each(|path| {
                outcome.tally.add(Rule::Misbehaved, format!("umask {umask}: {path} is open to others"));
            });
            std::thread::sleep(Duration::from_millis(2));
        }
        writer.kill();
        let (_, open) = open_to_others(&store)?;
        open.iter()
            .for_each(|path| outcome.tally.add(Rule::Misbehaved, format!("umask {umask}: {path} is open to others")));
        let planted = store.join("planted");
        std::fs::write(&planted, "").map_err(|error| error.to_string())?;
        std::fs::set_permissions(&planted, std::fs::Permissions::from_mode(0o644))
            .map_err(|error| error.to_string())?;
        outcome.control(
            format!("a file that others can read, under umask {umask}"),
            !open_to_others(&store)?.1.is_empty(),
        );
    }
    outcome.figure("looks at the modes of files", looked_at);
    Ok(())
}

/// The files and folders of a store: how many, and which of them others may use.
fn open_to_others(store: &Path) -> Result<(u64, Vec<String>)> {
    let (mut seen, mut open, mut waiting) = (0, Vec::new(), vec![store.to_owned()]);
    while let Some(path) = waiting.pop() {
        // A file may go between listing and looking.
        let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
        seen += 1;
        if meta.permissions().mode() & OTHERS != 0 {
            open.push(path.display().to_string());
        }
        if meta.is_dir() {
            let entries = std::fs::read_dir(&path).map_err(|error| error.to_string())?;
            waiting.extend(entries.filter_map(|entry| entry.ok().map(|entry| entry.path())));
        }
    }
    Ok((seen, open))
}

/// Another user reads nothing of a store that stands in a folder which everybody may enter.
fn strangers(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let as_nobody = |path: &Path| {
        let path = path.display().to_string();
        tools::run("setpriv", &["--reuid", "65534", "--regid", "65534", "--clear-groups", "cat", &path])
    };
    let folder = plan::fast_folder()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))
        .map_err(|error| error.to_string())?;
    let readable = folder.path().join("readable");
    std::fs::write(&readable, "x").map_err(|error| error.to_string())?;
    if !tools::is_root() || as_nobody(&readable).is_err() {
        outcome.figure("reads as another user", "SKIP this needs root and setpriv");
        return Ok(());
    }
    let store = folder.path().join("store");
    kills::prepare(plan, &store, &[("main", 0)])?;
    let mut tried = 0;
    for entry in std::fs::read_dir(&store).map_err(|error| error.to_string())?.filter_map(std::result::Result::ok) {
        if entry.path().is_file() {
            tried += 1;
            if as_nobody(&entry.path()).is_ok() {
                outcome.tally.add(Rule::Misbehaved, format!("another user reads {}", entry.path().display()));
            }
        }
    }
    outcome.figure("files refused to another user", tried);
    Ok(())
}

/// A link in the place of one of the store's files leads nobody out of the store.
fn links(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let folder = plan::fast_folder()?;
    let template = folder.path().join("template");
    kills::prepare(plan, &template, &[("main", 0)])?;
    let (mut planted, mut refused) = (0, 0);
    for place in PLACES {
        for dangling in [false, true] {
            let (store, outside) = (folder.path().join("store"), folder.path().join("outside"));
            tools::fresh_copy(&template, &store)?;
            drop(std::fs::remove_dir_all(&outside));
            let target = plant(&outside, place, dangling).map_err(|error| error.to_string())?;
            let path = store.join(place);
            drop(std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path)));
            symlink(&target, &path).map_err(|error| error.to_string())?;
            let before = contents(&outside)?;
            let writing = Writing { lanes: "main=0", life: 2, level: "synced", batches: 0, lie: false };
            let writer = Child::start(writing.command(plan, &store))?;
            planted += 1;
            refused += u64::from(writer.hear_until("A").is_err());
            // While it writes: at its end it tidies up.
            if contents(&outside)? != before {
                let words = if dangling { "to nothing" } else { "to something" };
                let words = format!("a link {words} in the place of {place} was followed out of the store");
                outcome.tally.add(Rule::Misbehaved, words);
            }
        }
    }
    outcome.figure("links planted", planted);
    outcome.figure("of these refused", refused);
    Ok(())
}

/// Makes the target of a link, unless it shall lead to nothing.
fn plant(outside: &Path, place: &str, dangling: bool) -> std::io::Result<PathBuf> {
    std::fs::create_dir_all(outside)?;
    let target = outside.join("target");
    match (dangling, place) {
        (true, _) => {}
        (false, "holders") => std::fs::create_dir_all(&target)?,
        (false, _) => std::fs::write(&target, "another file")?,
    }
    Ok(target)
}

/// Names and bytes of everything below a folder.
fn contents(folder: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let (mut found, mut waiting) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).map_err(|error| error.to_string())?;
            waiting.extend(entries.filter_map(|entry| entry.ok().map(|entry| entry.path())));
            found.push((path, Vec::new()));
        } else {
            let bytes = std::fs::read(&path).unwrap_or_default();
            found.push((path, bytes));
        }
    }
    found.sort();
    Ok(found)
}

/// Names that are no thread ids are refused, and looking them up finds nothing and makes nothing.
fn names(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let folder = plan::fast_folder()?;
    let path = folder.path().join("store");
    kills::prepare(plan, &path, &[("main", 0)])?;
    let store = Store::open(StoreOptions::folder(&path).label("names")).map_err(|error| error.to_string())?;
    let before = listing(folder.path())?;
    let mut random = plan.random("names");
    let tried = plan.pick(200, 2_000, 10_000);
    let mut tally = Tally::default();
    for _ in 0..tried {
        let name = hostile(&mut random);
        if ThreadId::new(name.as_str()).is_ok() {
            tally.add(Rule::Misbehaved, format!("the thread id {name:?} is accepted"));
        }
        // `-` alone means the latest thread.
        if name != "-"
            && let Ok(found) = store.find(&name)
        {
            tally.add(Rule::Misbehaved, format!("{name:?} finds {found}"));
        }
    }
    if listing(folder.path())? != before {
        tally.add(Rule::Misbehaved, "looking names up changed what stands in the folder");
    }
    outcome.tally.absorb(tally, "names");
    outcome.figure("hostile names", tried);
    // A name that is fine must be found: else nothing would ever be.
    let main = work::thread_id("main")?;
    outcome.control("a thread that is there is found", store.find("main").is_ok_and(|found| found == main));
    Ok(())
}

fn listing(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(contents(folder)?.into_iter().map(|(path, _)| path).collect())
}

/// A name of parts, one of which at least no id may hold.
fn hostile(random: &mut Random) -> String {
    let part = |random: &mut Random| {
        let at = usize::try_from(random.below(PARTS.len() as u64)).unwrap_or(0);
        PARTS.get(at).copied().unwrap_or("..")
    };
    let mut name = String::from(
        ["..", "/", "-", "\0", "é", " "].get(usize::try_from(random.below(6)).unwrap_or(0)).copied().unwrap_or("/"),
    );
    for _ in 0..random.below(5) {
        name.push_str(part(random));
    }
    if random.below(10) == 0 {
        name = "x".repeat(300);
    }
    name
}
