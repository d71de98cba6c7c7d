//! Examining a store: what is wrong with it or with where it is, also when it can't be opened.

use std::path::Path;

use crate::claims::{self, Liveness};
use crate::db::Tx;
use crate::db::fts::{self, SqliteIndex};
use crate::db::look;
#[cfg(feature = "postgres")]
use crate::db::postgres;
use crate::db::sqlite::{self, Location};
use crate::error::{Error, Result};
use crate::finding::Examination;
use crate::host::Host;
use crate::rollout;
use crate::rollout::leading::{self, AT_EXAMINATION};
use crate::store::{Store, StoreOptions, on_a_thread};
use crate::threads::Scope;

/// The code of the finding that the search index can't be used as it is.
pub(crate) const DAMAGED_INDEX: &str = "search-index-damaged";

impl Store {
    /// Looks at a store and at where it is, and says what is wrong. It writes nothing, and works also where the store can't be
    /// opened: what is in the way is a finding then.
    ///
    /// In a folder: rights, the file system, the header, the schema against that which the migrations make, the log, the pages (for
    /// five seconds, or all of them when it is to be `full`), claims, and whether a rollout holds what the store lacks (of the 1,000
    /// that its index named last, or of all), and the search index. On a server: the way to it, its settings, the role's
    /// rights, the schema, limits, its own upkeep, and claims. Content is not looked at: that is what verifying does.
    ///
    /// # Errors
    /// [`Error::Unsupported`] in memory.
    pub async fn examine(options: StoreOptions, full: bool) -> Result<Examination> {
        on_a_thread("threadkeep-examine", move || examine(&options, full)).await
    }
}

pub(crate) fn examine(options: &StoreOptions, full: bool) -> Result<Examination> {
    let mut found = Examination::of(options.place());
    #[cfg(feature = "postgres")]
    if let Some(opening) = options.opening() {
        found.fact("engine", "postgresql");
        if let Some(mut looked) = postgres::look::look(&mut found, opening, &*options.host) {
            let place = found.place.clone();
            look_at_claims(&mut found, &place, &mut looked.tx(), &Liveness::leases(), &*options.host);
            look_at_kept_rollouts(&mut found, &place, &mut looked.tx(), None);
        }
        return Ok(found.sorted());
    }
    let Some(folder) = options.folder.as_deref() else {
        return Err(Error::Unsupported { operation: "examine" });
    };
    found.fact("engine", "sqlite");
    let location = Location {
        folder: options.folder.clone(),
        read_only: true,
        busy_bound: options.busy_bound,
        migrations: options.migrations,
        now: options.host.now().0,
        anew: false,
    };
    if let Some(mut looked) = look::look(&mut found, &location, folder, full) {
        let liveness = Liveness::locks(Some(folder), sqlite::shared_file_system(folder).is_some());
        let place = found.place.clone();
        look_at_claims(&mut found, &place, &mut looked.tx(), &liveness, &*options.host);
        look_at_rollouts(&mut found, &mut looked.tx(), folder, full);
        look_at_kept_rollouts(&mut found, &place, &mut looked.tx(), Some(folder));
        look_at_index(&mut found, folder, full);
    }
    Ok(found.sorted())
}

/// A damaged search index is in nobody's way: it is made anew of the store.
fn look_at_index(found: &mut Examination, folder: &Path, full: bool) {
    match SqliteIndex::check(folder, full) {
        Ok(()) | Err(Error::Busy { .. }) => {}
        Err(error) => {
            let way_out = "the plan below throws it away, and so does `threadkeep search --reindex`; nothing of the store is lost";
            let place = folder.join(fts::FOLDER).display().to_string();
            found.warn(DAMAGED_INDEX, place, (error.to_string(), way_out));
        }
    }
}

/// Says how the rollouts stand that are kept while the store is written.
fn look_at_kept_rollouts(found: &mut Examination, place: &str, tx: &mut dyn Tx, folder: Option<&Path>) {
    if let Err(error) = rollout::look(found, tx, folder) {
        found.refused(place, &error);
    }
}

fn look_at_claims(found: &mut Examination, place: &str, tx: &mut dyn Tx, liveness: &Liveness, host: &dyn Host) {
    let listed = claims::list(tx, Scope::All).and_then(|claims| Ok((claims, claims::judged_at(tx, true)?)));
    let (claims, at) = match listed {
        Ok(listed) => listed,
        Err(error) => return found.refused(place, &error),
    };
    let now = at.unwrap_or_else(|| host.now());
    let (mut live, mut dead) = (0, 0);
    for claim in claims {
        if liveness.looks_alive(&claim.holder, now) {
            live += 1;
            continue;
        }
        dead += 1;
        let what =
            format!("it was being written by {}, which is dead: last seen {}", claim.holder, claim.holder.heartbeat_at);
        let way_out = "nothing has to be done: whoever resumes the thread next replaces it";
        found.note("dead-claim", format!("thread {}", claim.thread), (what, way_out));
    }
    found.fact("claims_live", live);
    found.fact("claims_dead", dead);
}

/// Finds rollouts that lead: of the newest ones, or of all.
fn look_at_rollouts(found: &mut Examination, tx: &mut dyn Tx, folder: &Path, full: bool) {
    match leading::beside(tx, folder, (!full).then_some(AT_EXAMINATION)) {
        Ok(leading) => {
            for rollout in leading {
                let way_out = rollout.way_out();
                found.error("rollout-leads", rollout.file.display().to_string(), (rollout.what, &way_out));
            }
        }
        Err(error) => found.refused(&folder.display().to_string(), &error),
    }
}

#[cfg(test)]
mod tests {
    use super::examine;
    use crate::concurrency::block_on;
    use crate::db::migrations::{Migration, SQLITE};
    use crate::finding::Severity;
    use crate::store::{Store, StoreOptions};

    #[test]
    fn older_and_newer_schemas_are_told_apart_and_left_as_they_are() {
        let number = i64::try_from(SQLITE.len()).unwrap() + 1;
        let more = Migration { number, name: "more", sql: "CREATE TABLE more (x INTEGER) STRICT" };
        let newer: &'static [Migration] = Vec::leak([SQLITE, &[more]].concat());
        let temp = tempfile::tempdir().unwrap();
        let older = StoreOptions::folder(temp.path().join("store"));
        let said = |options: &StoreOptions| {
            let findings = examine(options, false).unwrap().findings;
            findings.into_iter().map(|finding| (finding.severity, finding.code)).collect::<Vec<_>>()
        };
        drop(block_on(Store::open(older.clone())).unwrap());
        assert_eq!(said(&older.clone().migrations(newer)), [(Severity::Warning, "schema-older")]);
        assert_eq!(said(&older), []);
        drop(block_on(Store::open(older.clone().migrations(newer))).unwrap());
        assert_eq!(said(&older), [(Severity::Error, "schema-newer")]);
        assert_eq!(said(&older.migrations(newer)), []);
    }
}
