//! Where the store is, and how a verb may open it.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use threadkeep::blocking::Store;
use threadkeep::{Error, Rules, StoreOptions};

use crate::errors::{Code, Failure, NO_STORE_HINT, Report};
use crate::views;

const FOLDER: &str = "threadkeep";
const DATABASE: &str = "threadkeep.db";
const KEYS: &str = "keys";

/// Where the store is, and where its keys are if that was said.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    at: At,
    keys: Option<PathBuf>,
    masking: Option<Rules>,
}

#[derive(Debug, Clone)]
enum At {
    /// In a folder.
    Folder(PathBuf),
    /// On a server. The options show no password.
    Server {
        /// How the store is opened.
        options: Box<StoreOptions>,
        /// The address without its password.
        shown: String,
    },
}

impl Place {
    /// Decides the place: what was given, else `THREADKEEP_HOME`, else the user's data folder.
    pub(crate) fn find(given: Option<&Path>, keys: Option<&Path>) -> Result<Self, Failure> {
        let home = env::var_os("THREADKEEP_HOME");
        if keys.is_some_and(|keys| keys.as_os_str().is_empty()) {
            return Err(Report::usage("--keys (or THREADKEEP_KEYS) is empty").into());
        }
        Ok(Self { at: choose(given, home.as_deref(), default_folder)?, keys: keys.map(Path::to_owned), masking: None })
    }

    /// The same place, where everything that is written is masked by these rules.
    pub(crate) fn masking(self, rules: Option<Rules>) -> Self {
        Self { masking: rules, ..self }
    }

    /// Its name for people: no secret is in it.
    pub(crate) fn shown(&self) -> String {
        self.at.shown()
    }

    /// The store's folder; a store on a server has none.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match &self.at {
            At::Folder(folder) => Some(folder),
            At::Server { .. } => None,
        }
    }

    /// Refuses what only a store in a folder can do.
    pub(crate) fn require_folder(&self, operation: &'static str) -> Result<(), Failure> {
        match &self.at {
            At::Folder(_) => Ok(()),
            At::Server { .. } => Err(Error::Unsupported { operation }.into()),
        }
    }

    /// Whether a store is there.
    pub(crate) fn exists(&self) -> Result<bool, Failure> {
        match &self.at {
            At::Folder(folder) => Ok(folder.join(DATABASE).symlink_metadata().is_ok()),
            At::Server { options, .. } => match Store::open((**options).clone().read_only()) {
                // An older schema is a store.
                Ok(_) | Err(Error::ReadOnly { .. }) => Ok(true),
                Err(Error::NotFound { what: "store", .. }) => Ok(false),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Opens an existing store for reading. A store with an older schema is brought forward.
    pub(crate) fn read(&self) -> Result<Store, Failure> {
        match Store::open(self.options().read_only()) {
            // Either its schema is older, or the place can't be written, and then this says so too.
            Err(Error::ReadOnly { .. }) => Ok(Store::open(self.options())?),
            Err(Error::NotFound { what: "store", .. }) => Err(self.missing()),
            outcome => Ok(outcome?),
        }
    }

    /// Opens an existing store to search it: for writing where that can be, since the index is brought up to date by whoever
    /// searches.
    pub(crate) fn search(&self) -> Result<Store, Failure> {
        self.require()?;
        // What is in the way of writing need not be in the way of reading; if it is, that says what it is.
        Store::open(self.options()).or_else(|_| self.read())
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

    /// Opens the store for writing, begun anew where there is none, also in the place of one that was lost.
    pub(crate) fn begin_anew(&self) -> Result<Store, Failure> {
        Ok(Store::open(self.options().begin_anew())?)
    }

    /// How the store is opened for writing.
    pub(crate) fn options(&self) -> StoreOptions {
        let options = match &self.at {
            At::Folder(folder) => StoreOptions::folder(folder),
            At::Server { options, .. } => (**options).clone(),
        };
        let options = match &self.masking {
            Some(rules) => options.mask_at_write(rules.clone()),
            None => options,
        };
        let options = views::read_all(options).label("threadkeep");
        match self.keys() {
            Some(keys) => options.keys(keys),
            None => options,
        }
    }

    /// The folder of keys: what was given, else `keys` in the store's folder; for a store on a server, in the default store's.
    pub(crate) fn keys(&self) -> Option<PathBuf> {
        if let Some(keys) = &self.keys {
            return Some(keys.clone());
        }
        let beside = match &self.at {
            At::Folder(folder) => Some(folder.clone()),
            At::Server { .. } => {
                let home = env::var_os("THREADKEEP_HOME").map(PathBuf::from).filter(|home| home.is_absolute());
                home.or_else(|| default_folder().ok())
            }
        };
        beside.map(|folder| folder.join(KEYS))
    }

    fn require(&self) -> Result<(), Failure> {
        if self.exists()? {
            return Ok(());
        }
        // Where a store was there is more to say than that there is none.
        match Store::open(self.options().read_only()) {
            Err(error @ Error::Corrupt { .. }) => Err(error.into()),
            _ => Err(self.missing()),
        }
    }

    fn missing(&self) -> Failure {
        let message = format!("no store in {}", self.shown());
        Report::new(Code::NotFound, "not-found", message).hint(NO_STORE_HINT).into()
    }
}

impl At {
    fn shown(&self) -> String {
        match self {
            Self::Folder(folder) => folder.display().to_string(),
            Self::Server { shown, .. } => shown.clone(),
        }
    }
}

fn choose(
    given: Option<&Path>,
    home: Option<&OsStr>,
    default: impl FnOnce() -> Result<PathBuf, Failure>,
) -> Result<At, Failure> {
    if let Some(given) = given {
        return named(given);
    }
    let Some(home) = home else { return default().map(At::Folder) };
    // A guess would read and write somewhere that the user did not mean.
    if Path::new(home).is_absolute() {
        return Ok(At::Folder(home.into()));
    }
    let found = if home.is_empty() { "is empty" } else { "is not an absolute path" };
    let hint = "set it to an absolute path, or unset it for the default";
    Err(Report::usage(format!("THREADKEEP_HOME {found}")).hint(hint).into())
}

/// The place that was named on the command line.
fn named(given: &Path) -> Result<At, Failure> {
    if given.as_os_str().is_empty() {
        return Err(Report::usage("--store (or THREADKEEP_STORE) is empty").into());
    }
    match given.to_str().and_then(|text| Some((text, text.split_once("://")?.0))) {
        None => Ok(At::Folder(given.to_owned())),
        Some((address, "postgres" | "postgresql")) => {
            let options = StoreOptions::postgres(address)?;
            Ok(At::Server { shown: options.place(), options: Box::new(options) })
        }
        // The address is not repeated: it may hold a password.
        Some((_, scheme)) => {
            let message = format!("--store (or THREADKEEP_STORE) is an address of the kind {scheme}://");
            Err(Report::usage(message).hint("give a folder, or postgres://USER@HOST/DATABASE").into())
        }
    }
}

fn default_folder() -> Result<PathBuf, Failure> {
    let folder = etcetera::choose_base_strategy().ok().map(|base| base.data_dir().join(FOLDER));
    folder.filter(|folder| folder.is_absolute()).ok_or_else(|| {
        let report = Report::usage("no home folder is known, so there is no default store");
        report.hint("give --store DIR|URL, or set THREADKEEP_HOME").into()
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::Path;

    use super::{At, choose};

    fn chosen(given: Option<&str>, home: Option<&str>) -> Option<String> {
        choose(given.map(Path::new), home.map(OsStr::new), || Ok("/default".into())).ok().map(|place| place.shown())
    }

    #[test]
    fn the_flag_comes_before_the_variable_and_the_default() {
        assert_eq!(chosen(Some("s"), Some("/home")).as_deref(), Some("s"));
        assert_eq!(chosen(None, Some("/home")).as_deref(), Some("/home"));
        assert_eq!(chosen(None, None).as_deref(), Some("/default"));
    }

    #[test]
    fn an_empty_or_relative_home_is_never_replaced_by_the_default() {
        assert_eq!(chosen(None, Some("")), None);
        assert_eq!(chosen(None, Some("relative")), None);
        assert_eq!(chosen(Some(""), Some("/home")), None);
    }

    #[test]
    fn an_address_is_a_place_that_shows_no_password() {
        let place = choose(Some(Path::new("postgres://ann:secret@host/db?schema=s")), None, || Ok("/".into())).unwrap();
        assert!(matches!(place, At::Server { .. }));
        assert_eq!(place.shown(), "postgres://ann@host:5432/db?schema=s");
        assert!(!format!("{place:?}").contains("secret"));
        assert_eq!(chosen(Some("mysql://ann:secret@host/db"), None), None);
    }
}
