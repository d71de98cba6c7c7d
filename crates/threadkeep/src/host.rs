//! What the library is given of the machine it runs on.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::time::Timestamp;

/// The clock, the randomness and the identity of a machine, and what it knows of a project's folder.
///
/// The store takes time and chance from here alone, so that tests can set both.
pub trait Host: Send + Sync + fmt::Debug {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// Fills the buffer with random bytes that nobody can guess.
    fn fill_random(&self, buffer: &mut [u8]);

    /// A name of this machine that stays the same over restarts.
    fn machine(&self) -> String;

    /// The name that people know this machine by.
    fn hostname(&self) -> String;

    /// Which process this is. Shown to whoever finds a thread held; nothing is decided by it.
    fn process(&self) -> ProcessIdentity {
        ProcessIdentity::of_this_process()
    }

    /// What is known of a project's folder. The folder need not exist.
    fn project(&self, path: &Path) -> ProjectFacts;
}

/// What tells a process from every other one, in the numbers of its own system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// Its number; another container may count from elsewhere.
    pub pid: i64,
    /// When it was started, in clock ticks since the system was; numbers are used again, and these are not.
    pub start_ticks: i64,
    /// The id of the system's start; empty where that is not known.
    pub boot: String,
    /// The namespace that its number belongs to; empty where that is not known.
    pub namespace: String,
}

impl ProcessIdentity {
    /// Reads them from the system.
    pub fn of_this_process() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        let stat = read("/proc/self/stat");
        // The second field is a name in parentheses that may hold anything; the start is the twentieth after it.
        let start = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse().ok());
        let namespace = std::fs::read_link("/proc/self/ns/pid").map(|link| link.to_string_lossy().into_owned());
        Self {
            pid: i64::from(std::process::id()),
            start_ticks: start.unwrap_or(0),
            boot: read("/proc/sys/kernel/random/boot_id"),
            namespace: namespace.unwrap_or_default(),
        }
    }
}

/// What a folder says about the project it belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectFacts {
    /// The folder with links resolved, or made absolute and cleaned as text where it does not exist.
    pub path: PathBuf,
    /// The git folder that all work trees of the repository share.
    pub git_common_dir: Option<PathBuf>,
    /// The URL of `origin`, as configured.
    pub origin: Option<String>,
}

/// The machine that the program runs on.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemHost;

impl Host for SystemHost {
    #[expect(clippy::disallowed_methods, reason = "this is where the time comes from")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn fill_random(&self, buffer: &mut [u8]) {
        if getrandom::fill(buffer).is_err() {
            // No source of randomness: a UUID from the standard generator's process-unique hasher state is the best left.
            fallback_random(buffer);
        }
    }

    fn machine(&self) -> String {
        let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let id = read("/etc/machine-id").or_else(|| read("/var/lib/dbus/machine-id"));
        id.filter(|id| !id.is_empty()).unwrap_or_else(|| self.hostname())
    }

    fn hostname(&self) -> String {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        if name.is_empty() { "localhost".to_owned() } else { name }
    }

    fn project(&self, path: &Path) -> ProjectFacts {
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| clean(path));
        let Some(git_common_dir) = git_common_dir(&path) else {
            return ProjectFacts { path, ..ProjectFacts::default() };
        };
        let origin = std::fs::read_to_string(git_common_dir.join("config")).ok().and_then(|text| origin_url(&text));
        ProjectFacts { path, git_common_dir: Some(git_common_dir), origin }
    }
}

fn fallback_random(buffer: &mut [u8]) {
    use std::hash::{BuildHasher as _, Hasher as _};
    for chunk in buffer.chunks_mut(8) {
        let word = std::hash::RandomState::new().build_hasher().finish().to_le_bytes();
        for (to, from) in chunk.iter_mut().zip(word) {
            *to = from;
        }
    }
}

/// Makes a path that does not exist comparable: absolute, without `.` and `..`.
fn clean(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut out = PathBuf::new();
    for part in absolute.components() {
        match part {
            std::path::Component::ParentDir => drop(out.pop()),
            std::path::Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

/// Finds the git folder by walking up: `.git` is a folder, or a file that names the work tree's own folder, which names the shared one.
fn git_common_dir(path: &Path) -> Option<PathBuf> {
    let dot_git = path.ancestors().map(|folder| folder.join(".git")).find(|candidate| candidate.exists())?;
    if dot_git.is_dir() {
        return std::fs::canonicalize(dot_git).ok();
    }
    let text = std::fs::read_to_string(&dot_git).ok()?;
    let named = text.lines().find_map(|line| line.strip_prefix("gitdir:"))?.trim();
    let work_tree_dir = dot_git.parent()?.join(named);
    let common = std::fs::read_to_string(work_tree_dir.join("commondir")).ok();
    let shared = common.map_or_else(|| work_tree_dir.clone(), |text| work_tree_dir.join(text.trim()));
    std::fs::canonicalize(shared).ok()
}

/// The first URL of the remote `origin` in a git configuration file.
fn origin_url(config: &str) -> Option<String> {
    let mut in_origin = false;
    for line in config.lines().map(str::trim) {
        if line.starts_with('[') {
            in_origin = line.to_ascii_lowercase().starts_with("[remote ") && line.contains("\"origin\"");
        } else if in_origin
            && let Some((name, value)) = line.split_once('=')
            && name.trim().eq_ignore_ascii_case("url")
        {
            let url = value.trim().trim_matches('"');
            return (!url.is_empty()).then(|| url.to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Host as _, SystemHost, clean, origin_url};

    #[test]
    fn the_origin_is_read_whatever_stands_around_it() {
        let config = "[core]\n\tbare = false\n[Remote \"upstream\"]\n url = u\n[remote \"origin\"]\n\tfetch = x\n\tURL = \"git@example.org:a/b.git\"\n";
        assert_eq!(origin_url(config).as_deref(), Some("git@example.org:a/b.git"));
        assert_eq!(origin_url("[remote \"origin\"]\n[core]\nurl = no\n"), None);
    }

    #[test]
    fn a_path_that_does_not_exist_is_cleaned_as_text() {
        assert_eq!(clean("/a/./b/../c".as_ref()), std::path::PathBuf::from("/a/c"));
    }

    #[test]
    fn work_trees_and_sub_folders_share_the_git_folder() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("main/.git/worktrees/w")).unwrap();
        std::fs::create_dir_all(root.join("main/src")).unwrap();
        std::fs::create_dir_all(root.join("w")).unwrap();
        std::fs::write(root.join("main/.git/worktrees/w/commondir"), "../..\n").unwrap();
        let gitdir = format!("gitdir: {}\n", root.join("main/.git/worktrees/w").display());
        std::fs::write(root.join("w/.git"), gitdir).unwrap();
        let common = root.join("main/.git");
        assert_eq!(SystemHost.project(&root.join("main/src")).git_common_dir.as_ref(), Some(&common));
        assert_eq!(SystemHost.project(&root.join("w")).git_common_dir.as_ref(), Some(&common));
    }
}
