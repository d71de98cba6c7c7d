//! A unit that runs a watch as a service of the user.

use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::json;
use threadkeep_agents::homes;

use super::WatchArgs;
use crate::commands::App;
use crate::errors::{Code, Failure, Outcome, Report};

/// What runs services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Manager {
    /// A user unit of systemd, for Linux
    Systemd,
    /// An agent of launchd, for macOS
    Launchd,
}

/// What a unit runs, and where.
#[derive(Debug)]
struct Service {
    program: String,
    arguments: Vec<String>,
    /// The store's folder; nothing where the store is on a server, whose address may hold a password.
    folder: Option<String>,
    /// The variables that decide where agents are at home.
    variables: Vec<(String, String)>,
}

/// Prints the unit.
pub(super) fn print(manager: Manager, args: &WatchArgs, app: &mut App) -> Outcome {
    let service = Service::of(args, app)?;
    let unit = match manager {
        Manager::Systemd => service.systemd(),
        Manager::Launchd => service.launchd(),
    };
    match app.out.is_json() {
        true => app.out.document(&json!({"unit": unit}))?,
        false => app.out.bytes(unit.as_bytes())?,
    }
    Ok(Code::Done)
}

impl Service {
    fn of(args: &WatchArgs, app: &App) -> Result<Self, Failure> {
        let program = env::current_exe()?;
        let place = app.place()?;
        let folder = place.folder().map(std::path::absolute).transpose()?;
        let mut arguments = Vec::new();
        if let Some(folder) = &folder {
            arguments.extend(["--store".to_owned(), words(folder)?]);
        }
        if let Some(keys) = &app.keys {
            arguments.extend(["--keys".to_owned(), words(&std::path::absolute(keys)?)?]);
        }
        arguments.push("watch".to_owned());
        for (option, value) in args.options()? {
            arguments.push(option);
            arguments.extend(value);
        }
        let variables = homes::variables().filter_map(|name| Some((name.to_owned(), env::var(name).ok()?)));
        let mut variables: Vec<_> = variables.filter(|(_, value)| !value.is_empty()).collect();
        variables.sort();
        variables.dedup();
        Ok(Self { program: words(&program)?, arguments, folder: folder.as_deref().map(words).transpose()?, variables })
    }

    fn systemd(&self) -> String {
        let command = std::iter::once(&self.program).chain(&self.arguments);
        let command: Vec<String> = command.map(|word| quoted(word)).collect();
        let mut unit = String::from(
            "# ~/.config/systemd/user/threadkeep-watch.service\n\
             # The store has to be there before this starts: threadkeep import --scan\n\
             # systemctl --user enable --now threadkeep-watch\n\
             [Unit]\nDescription=Threadkeep: takes in what coding agents write\nDocumentation=man:threadkeep-watch(1)\n\n\
             [Service]\nType=exec\n",
        );
        let _ = writeln!(unit, "ExecStart={}", command.join(" "));
        for (name, value) in &self.variables {
            let _ = writeln!(unit, "Environment={}", quoted_setting(&format!("{name}={value}")));
        }
        match &self.folder {
            Some(folder) => {
                let _ = writeln!(unit, "ReadWritePaths={}", quoted_setting(folder));
                unit.push_str("RestrictAddressFamilies=AF_UNIX\n");
            }
            None => unit.push_str(
                "# A file of your own, mode 0600, with the line THREADKEEP_STORE=postgres://…\n\
                 EnvironmentFile=%h/.config/threadkeep/watch.env\n\
                 RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6\n",
            ),
        }
        unit.push_str(HARDENED);
        unit
    }

    fn launchd(&self) -> String {
        let mut unit = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <!-- ~/Library/LaunchAgents/org.threadkeep.watch.plist; launchctl bootstrap gui/$UID with its path loads it -->\n\
             <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
             <plist version=\"1.0\">\n<dict>\n  <key>Label</key><string>org.threadkeep.watch</string>\n  <key>ProgramArguments</key>\n  <array>\n",
        );
        for word in std::iter::once(&self.program).chain(&self.arguments) {
            let _ = writeln!(unit, "    <string>{}</string>", escaped(word));
        }
        unit.push_str("  </array>\n");
        if self.folder.is_none() {
            unit.push_str(
                "  <!-- Give it THREADKEEP_STORE from a place that only you can read; it may hold a password. -->\n",
            );
        }
        if !self.variables.is_empty() {
            unit.push_str("  <key>EnvironmentVariables</key>\n  <dict>\n");
            for (name, value) in &self.variables {
                let _ = writeln!(unit, "    <key>{}</key><string>{}</string>", escaped(name), escaped(value));
            }
            unit.push_str("  </dict>\n");
        }
        unit.push_str(
            "  <key>RunAtLoad</key><true/>\n  <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>\n\
             \x20 <key>ProcessType</key><string>Background</string>\n  <key>LowPriorityIO</key><true/>\n\
             \x20 <key>ThrottleInterval</key><integer>10</integer>\n  <key>Umask</key><integer>63</integer>\n</dict>\n</plist>\n",
        );
        unit
    }
}

/// It reads what agents wrote, writes its store, and does nothing else.
const HARDENED: &str = "\
Restart=on-failure
RestartSec=5
Nice=10
IOSchedulingClass=idle
UMask=0077
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service

[Install]
WantedBy=default.target
";

impl WatchArgs {
    /// The options again, with absolute paths.
    fn options(&self) -> Result<Vec<(String, Option<String>)>, Failure> {
        let absolute = |path: &PathBuf| words(&std::path::absolute(path)?);
        let mut options = Vec::new();
        if let Some(agent) = &self.agent {
            options.push(("--agent".to_owned(), Some(agent.clone())));
        }
        if let Some(seconds) = self.poll {
            options.push(("--poll".to_owned(), Some(seconds.to_string())));
        }
        for project in &self.projects {
            options.push(("--project".to_owned(), Some(absolute(project)?)));
        }
        for (option, value) in self.masking.options() {
            options.push((option, value));
        }
        if !self.paths.is_empty() {
            options.push(("--".to_owned(), None));
        }
        for path in &self.paths {
            options.push((absolute(path)?, None));
        }
        Ok(options)
    }
}

/// A path as it stands in a unit, which is text.
fn words(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().filter(|text| !text.contains(['\n', '\r', '\0']));
    let refused = || Report::usage(format!("{} can't be written into a unit", path.display()));
    Ok(text.ok_or_else(refused)?.to_owned())
}

/// A word of a command line of systemd.
fn quoted(word: &str) -> String {
    quoted_setting(&word.replace('$', "$$"))
}

/// A word of a setting of systemd.
fn quoted_setting(word: &str) -> String {
    let word = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:,+@".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word } else { format!("\"{word}\"") }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::Service;

    fn service() -> Service {
        Service {
            program: "/opt/thread keep/threadkeep".into(),
            arguments: ["--store", "/home/ann/50% \"off\"$HOME", "watch", "--", "/srv/a&b"].map(str::to_owned).into(),
            folder: Some("/home/ann/50% \"off\"$HOME".into()),
            variables: vec![("CODEX_HOME".into(), "/srv/co dex".into())],
        }
    }

    #[test]
    fn words_of_a_unit_mean_themselves() {
        let unit = service().systemd();
        let line = "ExecStart=\"/opt/thread keep/threadkeep\" --store \"/home/ann/50%% \\\"off\\\"$$HOME\" watch -- \"/srv/a&b\"\n";
        assert!(unit.contains(line), "{unit}");
        assert!(unit.contains("Environment=\"CODEX_HOME=/srv/co dex\"\n"), "{unit}");
        assert!(unit.contains("ReadWritePaths=\"/home/ann/50%% \\\"off\\\"$HOME\"\n"), "{unit}");
        assert!(unit.contains("ProtectHome=read-only") && unit.contains("WantedBy=default.target"));
    }

    #[test]
    fn a_property_list_is_well_formed() {
        let unit = service().launchd();
        assert!(unit.contains("<string>/srv/a&amp;b</string>") && !unit.contains("a&b"), "{unit}");
        assert!(unit.contains("<key>CODEX_HOME</key><string>/srv/co dex</string>"), "{unit}");
        for tag in ["dict", "array", "plist"] {
            assert_eq!(unit.matches(&format!("<{tag}")).count(), unit.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn the_address_of_a_server_stands_in_no_unit() {
        let server = Service { folder: None, arguments: vec!["watch".into()], ..service() };
        assert!(server.systemd().contains("EnvironmentFile=%h/.config/threadkeep/watch.env"));
        assert!(!server.systemd().contains("--store"));
    }
}
