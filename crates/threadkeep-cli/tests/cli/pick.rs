//! Picking at a real terminal: what is seen, what is printed, and the terminal as it was afterwards.

use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::sandbox::Sandbox;

/// Nothing here takes long; only what never comes is given up at last.
const GIVEN_UP: Duration = Duration::from_secs(60);
const SIZE: PtySize = PtySize { rows: 24, cols: 100, pixel_width: 0, pixel_height: 0 };

/// A shell at a terminal of its own.
struct Terminal {
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn std::io::Write + Send>,
    seen: Arc<(Mutex<Seen>, Condvar)>,
    child: Box<dyn portable_pty::Child + Send + Sync>,
}

struct Seen {
    screen: vt100::Parser,
    ended: bool,
}

impl Terminal {
    /// Runs a script of a shell, in which `$T` is the program and its store.
    fn run(sandbox: &Sandbox, script: &str) -> Self {
        let pair = native_pty_system().openpty(SIZE).unwrap();
        let mut command = CommandBuilder::new("/bin/sh");
        command.env_clear();
        command.env("HOME", sandbox.path("home"));
        command.env("PATH", "/usr/bin:/bin");
        command.env("TERM", "xterm-256color");
        let program = env!("CARGO_BIN_EXE_threadkeep");
        command.env("T", format!("{program} --store {}", sandbox.path("store").display()));
        command.cwd(sandbox.path("project"));
        command.args(["-c", script]);
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let seen = Seen { screen: vt100::Parser::new(some(SIZE.rows), some(SIZE.cols), 0), ended: false };
        let seen = Arc::new((Mutex::new(seen), Condvar::new()));
        let mut output = pair.master.try_clone_reader().unwrap();
        let shown = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            loop {
                // The terminal is gone when its last process is.
                let count = output.read(&mut bytes).unwrap_or(0);
                let mut seen = shown.0.lock().unwrap();
                seen.screen.process(&bytes[..count]);
                seen.ended = count == 0;
                shown.1.notify_all();
                if count == 0 {
                    return;
                }
            }
        });
        Self { keys: pair.master.take_writer().unwrap(), master: pair.master, seen, child }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits until the screen is as it is wanted, and gives it.
    fn until(&self, what: &str, is_it: impl Fn(&vt100::Screen) -> bool) -> String {
        let begun = Instant::now();
        let mut seen = self.seen.0.lock().unwrap();
        loop {
            if is_it(seen.screen.screen()) {
                return seen.screen.screen().contents();
            }
            let left = GIVEN_UP.checked_sub(begun.elapsed()).filter(|_| !seen.ended);
            let Some(left) = left else {
                panic!("never came: {what}; this is seen:\n{}", seen.screen.screen().contents());
            };
            seen = self.seen.1.wait_timeout(seen, left).unwrap().0;
        }
    }

    fn until_seen(&self, text: &str) -> String {
        self.until(text, |screen| screen.contents().contains(text))
    }

    /// Waits for the end, and gives what is left on the screen.
    fn end(mut self) -> String {
        let begun = Instant::now();
        let mut seen = self.seen.0.lock().unwrap();
        while !seen.ended {
            let left = GIVEN_UP.checked_sub(begun.elapsed());
            let left = left.unwrap_or_else(|| panic!("it does not end:\n{}", seen.screen.screen().contents()));
            seen = self.seen.1.wait_timeout(seen, left).unwrap().0;
        }
        let screen = seen.screen.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste());
        self.child.wait().unwrap();
        screen.contents()
    }
}

fn some(number: u16) -> NonZero<u16> {
    NonZero::new(number).unwrap()
}

/// The modes of the terminal before and after, and what was printed and the exit code between them.
fn picking(arguments: &str) -> String {
    format!(
        "before=$(stty -g); picked=$($T pick {arguments}); code=$?; \
         test \"$before\" = \"$(stty -g)\" && modes=same || modes=changed; echo \"[$picked] $code $modes.\""
    )
}

fn threads() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "Fix the login test", &["The login test fails on Mondays", "It was the clock"]);
    sandbox.thread("two", "日本語の題名", &["some words"]);
    sandbox.thread("three", "\u{1b}[31mRed\u{202e} herring", &["\u{1b}[2J\u{9b}2J gone"]);
    sandbox
}

#[test]
fn what_is_typed_chooses_and_the_id_is_printed() {
    let sandbox = threads();
    let mut terminal = Terminal::run(&sandbox, &picking(""));
    // The emulator of the terminal shows no U+FFFD.
    let titles = ["3/3", "Fix the login test", "日本語の題名", "␛[31mRed herring"];
    terminal.until("three titles", |screen| titles.iter().all(|title| screen.contents().contains(title)));
    terminal.press("fxlogin");
    terminal.until("one thread that fits", |screen| {
        screen.contents().contains("1/3") && !screen.contents().contains("herring")
    });
    assert!(terminal.until_seen("login test fails on Mondays").contains("Fix the login test"));
    terminal.press("\r");
    assert_eq!(terminal.end().trim(), "[one] 0 same.");
}

#[test]
fn the_arrows_move_and_wide_characters_fit() {
    let sandbox = threads();
    let mut terminal = Terminal::run(&sandbox, &picking("--print address"));
    terminal.until_seen("3/3");
    terminal.press("\x1b[B");
    terminal.until("the preview of the second", |screen| screen.contents().contains("some words"));
    terminal.press("題");
    terminal.until("the one with this character", |screen| screen.contents().contains("1/3"));
    terminal.press("\r");
    assert_eq!(terminal.end().trim(), "[two] 0 same.");
}

#[test]
fn items_are_searched_behind_what_is_typed() {
    let sandbox = threads();
    let mut terminal = Terminal::run(&sandbox, &picking("--print address --query clo"));
    terminal.until_seen("❯ clo");
    terminal.press("ck");
    let words = ["❯ clock", "1 hit", "▶ one@1  assistant", "It was the clock"];
    terminal.until("the hit", |screen| words.iter().all(|words| screen.contents().contains(words)));
    terminal.press("\r");
    assert_eq!(terminal.end().trim(), "[one@1] 0 same.");
    let mut terminal = Terminal::run(&sandbox, &picking("--print json --query zebra"));
    terminal.until_seen("Nothing fits.");
    terminal.press("\x15mondays");
    terminal.until_seen("▶ one@0");
    terminal.press("\r");
    let printed = terminal.end().replace('\n', "");
    assert!(printed.contains("\"hit\":{\"thread\":\"one\"") && printed.trim_end().ends_with("] 0 same."), "{printed}");
}

#[test]
fn one_stream_at_the_terminal_is_enough() {
    let sandbox = threads();
    for line in ["echo rubbish | $T pick", "$T pick 2>/dev/null"] {
        let mut terminal = Terminal::run(&sandbox, &format!("picked=$({line}); echo \"[$picked].\""));
        terminal.until_seen("3/3");
        terminal.press("\r");
        assert_eq!(terminal.end().trim(), "[three].", "{line}");
    }
    let terminal = Terminal::run(&sandbox, "echo | $T pick 2>told; echo $?.; cat told");
    assert!(terminal.end().contains("no terminal to pick at"), "a terminal that nobody shows it is not drawn on");
}

#[test]
fn a_step_to_the_shell_and_back() {
    let sandbox = threads();
    let mut terminal =
        Terminal::run(&sandbox, "set -m; $T pick >picked; echo stopped; read -r word; fg; cat picked; echo back.");
    terminal.until_seen("3/3");
    terminal.press("\x1a");
    terminal.until("the shell", |screen| screen.contents().contains("stopped") && !screen.alternate_screen());
    terminal.press("on\n");
    terminal.until("the picker again", |screen| screen.contents().contains("3/3") && screen.alternate_screen());
    terminal.press("\x0cfix");
    terminal.until_seen("❯ fix");
    terminal.press("\r");
    assert!(terminal.end().trim_end().ends_with("one\nback."));
}

#[test]
fn leaving_prints_nothing() {
    let sandbox = threads();
    for keys in ["\x1b", "\x03"] {
        let mut terminal = Terminal::run(&sandbox, &picking("--query log"));
        terminal.until_seen("❯ log");
        terminal.press(keys);
        assert_eq!(terminal.end().trim(), "[] 130 same.", "{keys:?}");
    }
}

#[test]
fn a_signal_gives_the_terminal_back_and_ends_the_program() {
    let sandbox = threads();
    for (signal, code) in [("-TERM", 143), ("-HUP", 129), ("-INT", 130), ("-QUIT", 131)] {
        let script = "ulimit -c 0; before=$(stty -g); sh -c 'echo $$ > pid; exec '\"$T\"' pick > picked'; code=$?; \
                      test \"$before\" = \"$(stty -g)\" && modes=same || modes=changed; \
                      printf '\\n[%s] %s %s.' \"$(cat picked)\" \"$code\" \"$modes\"";
        let terminal = Terminal::run(&sandbox, script);
        terminal.until_seen("3/3");
        let pid = std::fs::read_to_string(sandbox.path("project/pid")).unwrap();
        assert!(Command::new("kill").args([signal, pid.trim()]).status().unwrap().success());
        let screen = terminal.end();
        assert!(screen.ends_with(&format!("[] {code} same.")), "{signal}: {screen}");
    }
}

#[test]
fn a_terminal_that_changes_its_size_is_drawn_anew() {
    let sandbox = threads();
    let mut terminal = Terminal::run(&sandbox, &picking(""));
    terminal.until_seen("3/3");
    for (rows, cols) in [(8, 40), (2, 10), (1, 1), (50, 200)] {
        terminal.seen.0.lock().unwrap().screen.screen_mut().set_size(some(rows), some(cols));
        terminal.master.resize(PtySize { rows, cols, ..SIZE }).unwrap();
    }
    terminal.until_seen("Fix the login test");
    terminal.press("\r");
    assert_eq!(terminal.end().trim(), "[three] 0 same.");
}

#[test]
fn without_a_terminal_it_says_what_there_is_instead() {
    let sandbox = threads();
    let (code, error) = sandbox.failure(&["pick"]);
    assert_eq!((code, &error["kind"]), (1, &"no-terminal".into()));
    let hint = error["hint"].as_str().unwrap();
    assert!(hint.contains("search") && hint.contains("list --json"), "{hint}");
    let terminal = Terminal::run(&sandbox, "TERM=dumb $T pick; echo $?.");
    assert!(terminal.end().contains("nothing can be drawn"));
}
