//! Manual pages and completions: of every command, and fit for what reads them.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::sandbox::Sandbox;

#[test]
fn every_command_has_a_page() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("man/man1");
    sandbox.ok(&["man", "--out", folder.to_str().unwrap()]);
    let pages: BTreeSet<String> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    for page in
        ["threadkeep.1", "threadkeep-watch.1", "threadkeep-export.1", "threadkeep-man.1", "threadkeep-inbox-list.1"]
    {
        assert!(pages.contains(page), "{page} of {pages:?}");
    }
    let page = fs::read_to_string(folder.join("threadkeep-watch.1")).unwrap();
    for part in [".TH threadkeep-watch", ".SH NAME", ".SH OPTIONS", "print\\-service", "EXAMPLES"] {
        assert!(page.contains(part), "{part} is missing in {page}");
    }
    assert!(sandbox.ok(&["man"]).contains(".TH threadkeep"));
    let Ok(read) = Command::new("man").args(["--warnings", "-l"]).arg(folder.join("threadkeep-watch.1")).output()
    else {
        return;
    };
    assert!(read.stderr.is_empty(), "{}", String::from_utf8_lossy(&read.stderr));
}

#[test]
fn completions_know_the_verbs() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = sandbox.ok(&["completions", shell]);
        for word in ["watch", "man", "print-service", "poll", "once", "unmasked", "html", "markdown", "project"] {
            assert!(script.contains(word), "{word} is missing for {shell}");
        }
        let file = sandbox.path(shell);
        fs::write(&file, script).unwrap();
        if let Ok(output) = Command::new(shell).arg("-n").arg(&file).output()
            && ["bash", "fish", "zsh"].contains(&shell)
        {
            assert!(output.status.success(), "{output:?}");
        }
    }
}
