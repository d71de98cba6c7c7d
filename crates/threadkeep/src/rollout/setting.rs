//! Whether a store keeps its rollouts while it is written: a fact of the store, so that every program that writes it obeys.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files;
use crate::db::{Tx, Value, query_one, statements};
use crate::error::{Error, Result};

const FACT: &str = "live-rollouts";

statements! {
    LIVE_FACT = "SELECT value FROM facts WHERE name = ?1";
    PUT_LIVE_FACT = "INSERT INTO facts (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    DROP_LIVE_FACT = "DELETE FROM facts WHERE name = ?1";
}

/// Whether a program keeps rollouts while it writes a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LiveRollouts {
    /// As the store says; see [`crate::Store::set_live_rollouts`].
    #[default]
    AsStored,
    /// Not at all, whatever the store says.
    Off,
    /// In the store's folder, whatever the store says. A store without a folder keeps none.
    On,
    /// In this folder, whatever the store says.
    In(PathBuf),
}

/// What the store says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Fact {
    /// The folder; `None` for the one in the store's folder.
    folder: Option<PathBuf>,
}

/// The folder that rollouts are kept in while the store is written, if they are.
pub(crate) fn folder_of(tx: &mut dyn Tx, wanted: &LiveRollouts, store: Option<&Path>) -> Result<Option<PathBuf>> {
    let default = || store.map(|folder| folder.join(files::FOLDER));
    match wanted {
        LiveRollouts::Off => Ok(None),
        LiveRollouts::On => Ok(default()),
        LiveRollouts::In(folder) => Ok(Some(folder.clone())),
        LiveRollouts::AsStored => {
            let fact = query_one(tx, LIVE_FACT, &[FACT.into()], |row| {
                row.parse(0, serde_json::from_slice::<Fact>(row.blob(0)?).ok(), "a folder of rollouts")
            })?;
            Ok(fact.and_then(|fact| fact.folder.or_else(default)))
        }
    }
}

/// Writes down where rollouts are to be kept, or that they are not.
pub(crate) fn put(tx: &mut dyn Tx, folder: Option<Option<&Path>>) -> Result<()> {
    let Some(folder) = folder else { return tx.execute(DROP_LIVE_FACT, &[FACT.into()]).map(drop) };
    let fact = Fact { folder: folder.map(Path::to_owned) };
    let unfit = |_| Error::invalid("rollouts", "the name of the folder is no text");
    let bytes = serde_json::to_vec(&fact).map_err(unfit)?;
    tx.execute(PUT_LIVE_FACT, &[FACT.into(), Value::Blob(&bytes)]).map(drop)
}
