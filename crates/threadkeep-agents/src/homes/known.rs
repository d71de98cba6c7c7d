//! The agents, and where each keeps its sessions. Paths are written with slashes.

/// What a path begins at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    /// The home directory.
    Home,
    /// XDG's data folder, for agents that use it on every system.
    XdgData,
    /// XDG's data folder, on Linux alone.
    LinuxData,
    /// A program's data on the other systems: Application Support, or the local `AppData`.
    Support,
    /// A program's settings: XDG's folder, Application Support, or the roaming `AppData`.
    Config,
    /// The roaming `AppData`, on Windows alone.
    Roaming,
    /// The `User` folder of each editor, and of its server.
    Editors,
}

/// Where an agent keeps its sessions.
pub(super) struct Agent {
    /// Its short name; a codec that reads it has the same.
    pub(super) id: &'static str,
    /// Variables that name a folder, and where the sessions are below it. The first names the agent's whole home.
    pub(super) variables: &'static [(&'static str, &'static [&'static str])],
    /// Where it keeps them when no variable is set.
    pub(super) folders: &'static [(Base, &'static str)],
    /// Where it keeps them whatever variables are set.
    pub(super) always: &'static [(Base, &'static str)],
    /// Where it keeps them inside of a project's folder.
    pub(super) in_projects: &'static [&'static str],
}

const NONE: Agent = Agent { id: "", variables: &[], folders: &[], always: &[], in_projects: &[] };

/// Editors that run each other's extensions, by the names of their folders of settings.
pub(super) const EDITORS: &[&str] =
    &["Code", "Code - Insiders", "VSCodium", "Code - OSS", "Cursor", "Windsurf", "Windsurf - Next", "Trae", "Kiro"];
/// Their servers, which run extensions on a machine that is worked on from another.
pub(super) const SERVERS: &[&str] =
    &[".vscode-server", ".vscode-server-insiders", ".vscodium-server", ".cursor-server", ".windsurf-server"];

use Base::{Config, Editors, Home, LinuxData, Roaming, Support, XdgData};

/// All agents that are known.
pub(super) const AGENTS: &[Agent] = &[
    Agent {
        id: "claude-code",
        variables: &[("CLAUDE_CONFIG_DIR", &["projects"])],
        folders: &[
            (Home, ".claude/projects"),
            (Home, ".config/claude/projects"),
            (Config, "Claude/local-agent-mode-sessions"),
        ],
        ..NONE
    },
    Agent {
        id: "codex",
        variables: &[("CODEX_HOME", &["sessions", "archived_sessions"])],
        folders: &[(Home, ".codex/sessions"), (Home, ".codex/archived_sessions")],
        ..NONE
    },
    Agent {
        id: "opencode",
        folders: &[
            (XdgData, "opencode/storage"),
            (XdgData, "opencode/project"),
            (XdgData, "opencode/opencode.db"),
            (XdgData, "opencode/opencode-*.db"),
        ],
        ..NONE
    },
    Agent {
        id: "copilot-cli",
        variables: &[("COPILOT_HOME", &["session-state", "history-session-state"])],
        folders: &[(Home, ".copilot/session-state"), (Home, ".copilot/history-session-state")],
        ..NONE
    },
    Agent {
        id: "gemini-cli",
        variables: &[("GEMINI_CLI_HOME", &[".gemini/tmp"])],
        folders: &[(Home, ".gemini/tmp")],
        ..NONE
    },
    Agent {
        id: "antigravity",
        folders: &[
            (Home, ".gemini/antigravity/brain"),
            (Home, ".gemini/antigravity-cli/brain"),
            (Home, ".gemini/antigravity-ide/brain"),
        ],
        ..NONE
    },
    Agent {
        id: "pi",
        variables: &[("PI_CODING_AGENT_DIR", &["sessions"]), ("PI_CODING_AGENT_SESSION_DIR", &[""])],
        folders: &[(Home, ".pi/agent/sessions")],
        ..NONE
    },
    Agent {
        id: "openclaw",
        variables: &[("OPENCLAW_STATE_DIR", &["agents"])],
        folders: &[(Home, ".openclaw/agents"), (Home, ".clawdbot/agents"), (Home, ".moltbot/agents")],
        ..NONE
    },
    Agent { id: "omp", folders: &[(Home, ".omp/agent/sessions")], ..NONE },
    Agent {
        id: "qwen-code",
        variables: &[("QWEN_RUNTIME_DIR", &["projects", "tmp"])],
        folders: &[(Home, ".qwen/projects"), (Home, ".qwen/tmp")],
        ..NONE
    },
    Agent {
        id: "cursor",
        folders: &[
            (Home, ".cursor/projects"),
            (Home, ".cursor/chats"),
            (Config, "Cursor/User/globalStorage/state.vscdb"),
            (Config, "Cursor/User/workspaceStorage"),
        ],
        ..NONE
    },
    Agent {
        id: "vscode-copilot-chat",
        folders: &[(Editors, "workspaceStorage"), (Editors, "globalStorage/emptyWindowChatSessions")],
        ..NONE
    },
    Agent {
        id: "cline",
        variables: &[
            ("CLINE_DIR", &["data/sessions", "data/tasks"]),
            ("CLINE_DATA_DIR", &["sessions", "tasks"]),
            ("CLINE_SESSION_DATA_DIR", &[""]),
        ],
        folders: &[(Home, ".cline/data/sessions"), (Home, ".cline/data/tasks")],
        always: &[(Editors, "globalStorage/saoudrizwan.claude-dev/tasks")],
        ..NONE
    },
    Agent { id: "roo-code", folders: &[(Editors, "globalStorage/rooveterinaryinc.roo-cline/tasks")], ..NONE },
    Agent { id: "kilo-code", folders: &[(Editors, "globalStorage/kilocode.kilo-code/tasks")], ..NONE },
    Agent {
        id: "goose",
        variables: &[("GOOSE_PATH_ROOT", &["data/sessions"])],
        folders: &[(XdgData, "goose/sessions"), (Roaming, "Block/goose/data/sessions")],
        ..NONE
    },
    Agent { id: "zed", folders: &[(LinuxData, "zed/threads/threads.db"), (Support, "Zed/threads/threads.db")], ..NONE },
    Agent { id: "crush", in_projects: &[".crush/crush.db"], ..NONE },
    Agent {
        id: "codewhale",
        variables: &[("CODEWHALE_HOME", &["state.db", "sessions"])],
        folders: &[
            (Home, ".codewhale/state.db"),
            (Home, ".codewhale/sessions"),
            (Home, ".deepseek/state.db"),
            (Home, ".deepseek/sessions"),
        ],
        ..NONE
    },
    Agent { id: "amp", folders: &[(XdgData, "amp/threads")], ..NONE },
    Agent { id: "newt", folders: &[(Home, ".newt/conversations.db"), (Home, ".newt/conversations")], ..NONE },
    Agent { id: "aider", in_projects: &[".aider.chat.history.md"], ..NONE },
    Agent { id: "kimi", folders: &[(Home, ".kimi-code/sessions")], ..NONE },
    Agent {
        id: "grok-build",
        variables: &[("GROK_HOME", &["sessions"])],
        folders: &[(Home, ".grok/sessions")],
        ..NONE
    },
    Agent {
        id: "hermes",
        variables: &[("HERMES_HOME", &["state.db", "sessions"])],
        folders: &[(Home, ".hermes/state.db"), (Home, ".hermes/sessions"), (Home, ".hermes/profiles")],
        ..NONE
    },
    Agent { id: "droid", folders: &[(Home, ".factory/sessions")], ..NONE },
    Agent {
        id: "continue",
        variables: &[("CONTINUE_GLOBAL_DIR", &["sessions"])],
        folders: &[(Home, ".continue/sessions")],
        ..NONE
    },
];
