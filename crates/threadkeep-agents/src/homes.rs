//! Where agents keep their sessions, on every system: data, and pure functions over it.
//!
//! An agent that no codec reads yet is here too, so that whoever looks for sessions is told of all that lie there.

use std::path::{Path, PathBuf};

mod known;

use known::{AGENTS, Agent, Base, EDITORS, SERVERS};

/// A kind of operating system: it decides where programs keep their files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Linux, and others that follow the XDG base directories.
    Linux,
    /// macOS.
    MacOs,
    /// Windows.
    Windows,
}

impl System {
    /// The one that this program was built for.
    pub const fn here() -> Self {
        if cfg!(target_os = "macos") {
            Self::MacOs
        } else if cfg!(windows) {
            Self::Windows
        } else {
            Self::Linux
        }
    }
}

/// What has to be known of a machine to say where agents keep their sessions on it.
#[derive(Clone, Copy)]
pub struct Machine<'a> {
    /// Its system.
    pub system: System,
    /// The person's home directory.
    pub home: &'a Path,
    /// Looks up an environment variable; the library reads none by itself.
    pub variable: &'a dyn Fn(&str) -> Option<PathBuf>,
}

impl std::fmt::Debug for Machine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("system", &self.system).field("home", &self.home).finish_non_exhaustive()
    }
}

/// A place where an agent keeps sessions: a folder, or a file that holds them all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// The agent's short name.
    pub agent: &'static str,
    /// The folder or the file. The name of a candidate may end in one that holds a `*`.
    pub path: PathBuf,
    /// Whether a codec reads this agent's sessions. What is not read yet can only be told of.
    pub is_read: bool,
}

/// Every place where a known agent would keep sessions on such a machine, each once, whether it is there or not.
///
/// A variable that is set takes the place of the folders that its agent has without it. Nothing is looked at.
pub fn candidates(machine: &Machine<'_>) -> Vec<Home> {
    let mut homes = Vec::new();
    let codecs = crate::codecs();
    let read = |agent: &str| codecs.iter().any(|codec| codec.agent() == agent);
    // What a codec says of itself comes first: it is certainly read.
    for codec in &codecs {
        let agent = codec.agent();
        let known = AGENTS.iter().any(|known| known.id == agent);
        let named = codec.variable().and_then(machine.variable).filter(|folder| !folder.as_os_str().is_empty());
        let own = match named {
            _ if known => Vec::new(),
            Some(folder) => vec![folder],
            None => codec.homes(machine.home),
        };
        homes.extend(own.into_iter().map(|path| Home { agent, path, is_read: true }));
    }
    for agent in AGENTS {
        let is_read = read(agent.id);
        homes.extend(agent.homes(machine).into_iter().map(|path| Home { agent: agent.id, path, is_read }));
    }
    each_once(homes)
}

/// Where known agents keep sessions inside of these projects' folders, each once, whether it is there or not.
pub fn of_projects(projects: &[PathBuf]) -> Vec<Home> {
    let codecs = crate::codecs();
    let mut homes = Vec::new();
    for project in projects {
        for agent in AGENTS {
            let is_read = codecs.iter().any(|codec| codec.agent() == agent.id);
            let paths = agent.in_projects.iter().map(|below| join(project, below));
            homes.extend(paths.map(|path| Home { agent: agent.id, path, is_read }));
        }
    }
    each_once(homes)
}

/// Every variable that decides where agents keep their sessions.
pub fn variables() -> impl Iterator<Item = &'static str> {
    let folders = ["XDG_DATA_HOME", "XDG_CONFIG_HOME", "APPDATA", "LOCALAPPDATA"];
    AGENTS.iter().flat_map(|agent| agent.variables.iter().map(|(name, _)| *name)).chain(folders)
}

/// Those of the candidates that are there. Patterns become what fits them.
pub fn existing(candidates: Vec<Home>) -> Vec<Home> {
    let mut homes = Vec::new();
    for home in candidates {
        let paths = expand(&home.path);
        homes.extend(paths.into_iter().filter(|path| path.exists()).map(|path| Home { path, ..home.clone() }));
    }
    each_once(homes)
}

/// The variable that names another folder for what an agent keeps, if one is known.
pub(crate) fn variable(agent: &str) -> Option<&'static str> {
    let agent = AGENTS.iter().find(|known| known.id == agent)?;
    agent.variables.first().map(|(name, _)| *name)
}

/// Where an agent keeps its sessions below a home directory on this system, where no variable says otherwise.
pub(crate) fn below(agent: &str, home: &Path) -> Vec<PathBuf> {
    let machine = Machine { system: System::here(), home, variable: &|_| None };
    let agent = AGENTS.iter().find(|known| known.id == agent);
    agent.map(|agent| agent.homes(&machine)).unwrap_or_default()
}

impl Agent {
    fn homes(&self, machine: &Machine<'_>) -> Vec<PathBuf> {
        let mut named = Vec::new();
        for (name, below) in self.variables {
            if let Some(folder) = machine.named(name) {
                named.extend(below.iter().map(|below| join(&folder, below)));
            }
        }
        let folders = if named.is_empty() { self.folders } else { &[] };
        let mut paths = named;
        for (base, below) in folders.iter().chain(self.always) {
            paths.extend(machine.base(*base).into_iter().map(|base| join(&base, below)));
        }
        paths
    }
}

impl Machine<'_> {
    fn named(&self, variable: &str) -> Option<PathBuf> {
        (self.variable)(variable).filter(|folder| !folder.as_os_str().is_empty())
    }

    /// A folder of the XDG base directories; a relative one is to be ignored.
    fn xdg(&self, variable: &str, default: &str) -> PathBuf {
        let named = self.named(variable).filter(|folder| folder.is_absolute());
        named.unwrap_or_else(|| join(self.home, default))
    }

    fn base(&self, base: Base) -> Vec<PathBuf> {
        let support = || join(self.home, "Library/Application Support");
        let roaming = || self.named("APPDATA").unwrap_or_else(|| join(self.home, "AppData/Roaming"));
        let local = || self.named("LOCALAPPDATA").unwrap_or_else(|| join(self.home, "AppData/Local"));
        match (base, self.system) {
            (Base::Home, _) => vec![self.home.to_owned()],
            (Base::XdgData, _) | (Base::LinuxData, System::Linux) => vec![self.xdg("XDG_DATA_HOME", ".local/share")],
            (Base::Config, System::Linux) => vec![self.xdg("XDG_CONFIG_HOME", ".config")],
            (Base::Support | Base::Config, System::MacOs) => vec![support()],
            (Base::Support, System::Windows) => vec![local()],
            (Base::Config | Base::Roaming, System::Windows) => vec![roaming()],
            (Base::LinuxData | Base::Support | Base::Roaming, _) => Vec::new(),
            (Base::Editors, _) => {
                let config = self.base(Base::Config);
                let windows =
                    config.iter().flat_map(|config| EDITORS.iter().map(|name| join(config, name).join("User")));
                let servers = SERVERS.iter().map(|name| join(self.home, name).join("data").join("User"));
                windows.chain(servers).collect()
            }
        }
    }
}

/// Joins a path that is written with slashes, whatever this system's separator is.
fn join(folder: &Path, below: &str) -> PathBuf {
    below.split('/').filter(|part| !part.is_empty()).fold(folder.to_owned(), |path, part| path.join(part))
}

/// Each path once. A codec that reads a place says more of it than the list of agents that are known.
fn each_once(homes: Vec<Home>) -> Vec<Home> {
    let mut once: Vec<Home> = Vec::with_capacity(homes.len());
    for home in homes {
        match once.iter_mut().find(|known| known.path == home.path) {
            Some(known) if home.is_read && !known.is_read => *known = home,
            Some(_) => {}
            None => once.push(home),
        }
    }
    once
}

/// The paths that a name with a `*` in it stands for; any other stands for itself.
fn expand(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (Some((start, end)), Some(folder)) = (name.split_once('*'), path.parent()) else {
        return vec![path.to_owned()];
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let fits = |name: &str| name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end);
    let named = entries.filter(|entry| entry.file_name().to_str().is_some_and(fits));
    let mut paths: Vec<PathBuf> = named.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::{AGENTS, Home, Machine, System, candidates, existing, of_projects};
    use std::collections::HashMap;
    use std::path::{Path, PathBuf};

    fn paths(system: System, home: &str, variables: &[(&str, &str)], agent: &str) -> Vec<String> {
        let variables: HashMap<&str, &str> = variables.iter().copied().collect();
        let variable = |name: &str| variables.get(name).map(PathBuf::from);
        let machine = Machine { system, home: Path::new(home), variable: &variable };
        let homes = candidates(&machine).into_iter().filter(|home| home.agent == agent);
        homes.map(|home| home.path.to_string_lossy().replace('\\', "/")).collect()
    }

    #[test]
    fn the_same_agent_is_at_home_elsewhere_on_each_system() {
        let zed = |system, home, variables| paths(system, home, variables, "zed");
        assert_eq!(zed(System::Linux, "/home/ann", &[]), ["/home/ann/.local/share/zed/threads/threads.db"]);
        assert_eq!(zed(System::Linux, "/home/ann", &[("XDG_DATA_HOME", "/data")]), ["/data/zed/threads/threads.db"]);
        assert_eq!(
            zed(System::Linux, "/home/ann", &[("XDG_DATA_HOME", "not/absolute")]),
            ["/home/ann/.local/share/zed/threads/threads.db"]
        );
        assert_eq!(
            zed(System::MacOs, "/Users/ann", &[]),
            ["/Users/ann/Library/Application Support/Zed/threads/threads.db"]
        );
        assert_eq!(
            zed(System::Windows, "C:/Users/ann", &[("LOCALAPPDATA", "D:\\Local")]),
            ["D:/Local/Zed/threads/threads.db"]
        );
        assert_eq!(zed(System::Windows, "C:/Users/ann", &[]), ["C:/Users/ann/AppData/Local/Zed/threads/threads.db"]);
    }

    #[test]
    fn opencode_stays_with_xdg_everywhere_and_goose_does_not() {
        for (system, home) in [(System::Linux, "/h"), (System::MacOs, "/h"), (System::Windows, "C:/Users/ann")] {
            let found = paths(system, home, &[], "opencode");
            assert_eq!(found.first().unwrap(), &format!("{home}/.local/share/opencode/storage"));
        }
        let goose = paths(System::Windows, "C:/Users/ann", &[("APPDATA", "C:/Users/ann/AppData/Roaming")], "goose");
        assert!(goose.contains(&"C:/Users/ann/AppData/Roaming/Block/goose/data/sessions".to_owned()), "{goose:?}");
        assert!(!paths(System::Linux, "/h", &[], "goose").iter().any(|path| path.contains("Block")));
    }

    #[test]
    fn a_variable_takes_the_place_of_the_folders() {
        for system in [System::Linux, System::MacOs, System::Windows] {
            assert_eq!(paths(system, "/h", &[("CODEX_HOME", "/x")], "codex"), ["/x/sessions", "/x/archived_sessions"]);
            assert_eq!(
                paths(system, "/h", &[("CODEX_HOME", "")], "codex"),
                ["/h/.codex/sessions", "/h/.codex/archived_sessions"]
            );
            assert_eq!(paths(system, "/h", &[("CLAUDE_CONFIG_DIR", "/c")], "claude-code"), ["/c/projects"]);
        }
        assert_eq!(paths(System::Linux, "/h", &[("GEMINI_CLI_HOME", "/g")], "gemini-cli"), ["/g/.gemini/tmp"]);
    }

    #[test]
    fn extensions_are_looked_for_below_every_editor() {
        let cline = paths(System::MacOs, "/Users/ann", &[], "cline");
        for editor in ["Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf"] {
            let path = format!(
                "/Users/ann/Library/Application Support/{editor}/User/globalStorage/saoudrizwan.claude-dev/tasks"
            );
            assert!(cline.contains(&path), "{editor}: {cline:?}");
        }
        let server = "/home/ann/.vscode-server/data/User/globalStorage/rooveterinaryinc.roo-cline/tasks".to_owned();
        assert!(paths(System::Linux, "/home/ann", &[], "roo-code").contains(&server));
        let roaming = paths(System::Windows, "C:/Users/ann", &[("APPDATA", "R:/")], "vscode-copilot-chat");
        assert!(roaming.contains(&"R:/Code/User/workspaceStorage".to_owned()), "{roaming:?}");
    }

    #[test]
    fn a_variable_does_not_move_what_editors_keep() {
        let cline = paths(System::Linux, "/h", &[("CLINE_DIR", "/c")], "cline");
        assert_eq!(cline.first().unwrap(), "/c/data/sessions");
        assert!(!cline.iter().any(|path| path.contains("/.cline/")), "{cline:?}");
        let extension = "/h/.config/Code/User/globalStorage/saoudrizwan.claude-dev/tasks";
        assert!(cline.iter().any(|path| path == extension), "{cline:?}");
    }

    #[test]
    fn no_path_is_named_twice_and_each_read_agent_has_a_home() {
        for system in [System::Linux, System::MacOs, System::Windows] {
            let machine = Machine { system, home: Path::new("/h"), variable: &|_| None };
            let all = candidates(&machine);
            let mut paths: Vec<_> = all.iter().map(|home| &home.path).collect();
            let count = paths.len();
            paths.sort();
            paths.dedup();
            assert_eq!(paths.len(), count);
            let projects = of_projects(&[PathBuf::from("/w")]);
            for codec in crate::codecs() {
                assert!(
                    all.iter().chain(&projects).any(|home| home.agent == codec.agent() && home.is_read),
                    "{}",
                    codec.agent()
                );
            }
            assert!(all.iter().any(|home| !home.path.starts_with("/h/.codex")));
        }
    }

    #[test]
    fn agents_are_listed_once_and_are_somewhere() {
        for (index, agent) in AGENTS.iter().enumerate() {
            assert!(!agent.folders.is_empty() || !agent.in_projects.is_empty(), "{}", agent.id);
            assert!(AGENTS.iter().skip(index + 1).all(|other| other.id != agent.id), "{}", agent.id);
            let plain = |path: &str| !path.starts_with('/') && !path.contains('\\') && !path.contains("..");
            assert!(agent.folders.iter().all(|(_, path)| plain(path)), "{}", agent.id);
        }
    }

    #[test]
    fn what_lies_in_projects_is_found_when_the_projects_are_named() {
        let machine = Machine { system: System::Linux, home: Path::new("/h"), variable: &|_| None };
        assert!(candidates(&machine).iter().all(|home| home.agent != "aider"));
        let found = of_projects(&[PathBuf::from("/w/shop")]);
        let has = |agent, path| found.iter().any(|home: &Home| home.agent == agent && home.path == Path::new(path));
        assert!(has("aider", "/w/shop/.aider.chat.history.md") && has("crush", "/w/shop/.crush/crush.db"), "{found:?}");
    }

    #[test]
    fn only_what_is_there_is_found_and_patterns_are_filled_in() {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join(".local/share/opencode");
        std::fs::create_dir_all(data.join("storage")).unwrap();
        for name in ["opencode-beta.db", "opencode-dev.db", "opencode.db-wal", "other.db"] {
            std::fs::write(data.join(name), "").unwrap();
        }
        let machine = Machine { system: System::Linux, home: home.path(), variable: &|_| None };
        let found = existing(candidates(&machine));
        let names: Vec<_> = found.iter().map(|home| home.path.file_name().unwrap().to_string_lossy()).collect();
        assert_eq!(names, ["storage", "opencode-beta.db", "opencode-dev.db"]);
        assert!(found.iter().all(|home| home.agent == "opencode"));
    }
}
