//! Where the store is, and how a verb may open it.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use threadkeep::blocking::Store;
use threadkeep::{Error, StoreOptions};

use crate::errors::{Code, Failure, NO_STORE_HINT, Report};

const FOLDER: &str = "threadkeep";
const DATABASE: &str = "threadkeep.db";

/// The folder of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    folder: PathBuf,
}

impl Place {
    /// Decides the folder: what was given, else `THREADKEEP_HOME`, else the user's data folder.
    pub(crate) fn find(given: Option<&Path>) -> Result<Self, Failure> {
        let home = env::var_os("THREADKEEP_HOME");
        Ok(Self { folder: choose(given, home.as_deref(), default_folder)? })
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether a store is there.
    pub(crate) fn exists(&self) -> bool {
        self.folder.join(DATABASE).symlink_metadata().is_ok()
    }

    /// Opens an existing store for reading. A store with an older schema is brought forward.
    pub(crate) fn read(&self) -> Result<Store, Failure> {
        self.require()?;
        match Store::open(StoreOptions::folder(&self.folder).read_only()) {
            // Either its schema is older, or the folder can't be written, and then this says so too.
            Err(Error::ReadOnly { .. }) => Ok(Store::open(self.options())?),
            outcome => Ok(outcome?),
        }
    }

    /// Opens an existing store for writing.
    pub(crate) fn write(&self) -> Result<Store, Failure> {
        self.require()?;
        Ok(Store::open(self.options())?)
    }

    /// Opens a store for writing and makes it when there is none.
    pub(crate) fn create(&self) -> Result<Store, Failure> {
        Ok(Store::open(self.options())?)
    }

    /// How the store is opened for writing.
    pub(crate) fn options(&self) -> StoreOptions {
        StoreOptions::folder(&self.folder).label("threadkeep")
    }

    fn require(&self) -> Result<(), Failure> {
        if self.exists() {
            return Ok(());
        }
        let message = format!("no store in {}", self.folder.display());
        Err(Report::new(Code::NotFound, "not-found", message).hint(NO_STORE_HINT).into())
    }
}

fn choose(
    given: Option<&Path>,
    home: Option<&OsStr>,
    default: impl FnOnce() -> Result<PathBuf, Failure>,
) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        return checked(given).map(Path::to_owned);
    }
    let Some(home) = home else { return default() };
    // A guess would read and write somewhere that the user did not mean.
    if Path::new(home).is_absolute() {
        return Ok(home.into());
    }
    let found = if home.is_empty() { "is empty" } else { "is not an absolute path" };
    let hint = "set it to an absolute path, or unset it for the default";
    Err(Report::usage(format!("THREADKEEP_HOME {found}")).hint(hint).into())
}

fn checked(given: &Path) -> Result<&Path, Failure> {
    if given.as_os_str().is_empty() {
        return Err(Report::usage("--store (or THREADKEEP_STORE) is empty").into());
    }
    if given.to_str().is_some_and(|text| text.contains("://")) {
        let message = format!("{} is an address; this version opens folders", given.display());
        return Err(Report::usage(message).into());
    }
    Ok(given)
}

fn default_folder() -> Result<PathBuf, Failure> {
    let folder = etcetera::choose_base_strategy().ok().map(|base| base.data_dir().join(FOLDER));
    folder.filter(|folder| folder.is_absolute()).ok_or_else(|| {
        let report = Report::usage("no home folder is known, so there is no default store");
        report.hint("give --store DIR, or set THREADKEEP_HOME").into()
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::{Path, PathBuf};

    use super::choose;

    fn chosen(given: Option<&str>, home: Option<&str>) -> Option<PathBuf> {
        choose(given.map(Path::new), home.map(OsStr::new), || Ok("/default".into())).ok()
    }

    #[test]
    fn the_flag_comes_before_the_variable_and_the_default() {
        assert_eq!(chosen(Some("s"), Some("/home")), Some("s".into()));
        assert_eq!(chosen(None, Some("/home")), Some("/home".into()));
        assert_eq!(chosen(None, None), Some("/default".into()));
    }

    #[test]
    fn an_empty_or_relative_home_is_never_replaced_by_the_default() {
        assert_eq!(chosen(None, Some("")), None);
        assert_eq!(chosen(None, Some("relative")), None);
        assert_eq!(chosen(Some(""), Some("/home")), None);
        assert_eq!(chosen(Some("postgres://host/db"), None), None);
    }
}
