//! The names of people in the paths of their homes, masked.

use std::cell::Cell;

/// What stands in the place of a home.
const HOME: char = '~';
/// A person's name in a path is not longer.
const LONGEST_NAME: usize = 64;
/// What comes before a name, and whether the path is one of Windows. The double ones stand in JSON.
const MARKS: [(&str, bool); 6] = [
    ("/home/", false),
    ("/Users/", false),
    ("\\\\Users\\\\", true),
    ("\\Users\\", true),
    (":/Users/", true),
    ("/var/home/", false),
];
/// What comes before a name in a path whose separators became dashes.
const DASHED: [&str; 2] = ["-home-", "-Users-"];
/// What no name is: folders that are everybody's.
const SHARED: [&str; 4] = ["Shared", "Public", "Default", "All Users"];

/// Masks the paths of homes.
#[derive(Debug, Default)]
pub(super) struct HomePaths {
    /// The home of whoever exports, wherever it is.
    own: Option<String>,
    masked: Cell<u64>,
}

impl HomePaths {
    /// Masks this home, and those that lie where homes do.
    pub(super) fn of(own: Option<String>) -> Self {
        Self { own: own.filter(|own| own.len() > 1), masked: Cell::new(0) }
    }

    /// How many places were masked.
    pub(super) fn count(&self) -> u64 {
        self.masked.get()
    }

    /// The text with homes as `~`.
    pub(super) fn mask(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let mut before = None;
        while !rest.is_empty() {
            if let Some(length) = self.home_at(rest, before, &out) {
                self.masked.set(self.masked.get() + 1);
                // The letter of the drive belongs to the home.
                if rest.starts_with(['\\', ':']) {
                    drop_drive(&mut out);
                }
                out.push(HOME);
                rest = rest.get(length..).unwrap_or_default();
                before = Some(HOME);
                continue;
            }
            // No home begins with anything but these.
            let next = rest.char_indices().skip(1).find(|(_, c)| self.may_begin(*c)).map_or(rest.len(), |(at, _)| at);
            let (plain, following) = rest.split_at(next);
            out.push_str(plain);
            before = plain.chars().next_back();
            rest = following;
        }
        out
    }

    fn may_begin(&self, c: char) -> bool {
        matches!(c, '/' | '\\' | ':' | '-') || self.own.as_deref().is_some_and(|own| own.starts_with(c))
    }

    /// How long the home is that the text begins with.
    fn home_at(&self, text: &str, before: Option<char>, out: &str) -> Option<usize> {
        if let Some(own) = self.own.as_deref().filter(|own| text.starts_with(own))
            && !text.get(own.len()..)?.starts_with(is_of_name)
        {
            return Some(own.len());
        }
        for (mark, is_windows) in MARKS {
            let Some(after) = text.strip_prefix(mark) else { continue };
            if is_windows && !ends_in_drive(out, mark.starts_with(':')) {
                continue;
            }
            // Whatever stands before it: an escape, a colour, an option, the mount of a drive. Too much is masked rather than too little.
            if !is_windows && before == Some(':') && is_drive_colon(out) {
                continue;
            }
            let length = name_length(after, is_windows)?;
            let name = after.get(..length)?;
            if SHARED.contains(&name) {
                return None;
            }
            return Some(mark.len() + length);
        }
        dashed_at(text, before)
    }
}

/// How long the home is in a path that was made a name, as agents do with the folders that they work in.
fn dashed_at(text: &str, before: Option<char>) -> Option<usize> {
    let mark = DASHED
        .into_iter()
        .find(|mark| text.starts_with(mark))
        .filter(|_| !before.is_some_and(char::is_alphanumeric))?;
    let after = text.get(mark.len()..)?;
    let length = after.find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '.')).unwrap_or(after.len());
    (length > 0 && length <= LONGEST_NAME && !SHARED.contains(&after.get(..length)?)).then_some(mark.len() + length)
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '~')
}

/// The length of the name that the text begins with; names of Windows may hold spaces, when a separator comes after them.
fn name_length(text: &str, is_windows: bool) -> Option<usize> {
    let plain = text.find(|c: char| !is_of_name(c) && c != '@' && c != '+').unwrap_or(text.len());
    let spaced = text.find(|c: char| "\\/\"'<>|:*?\r\n".contains(c)).filter(|_| is_windows);
    let length = match spaced {
        Some(end) if text.get(end..)?.starts_with(['\\', '/']) => end,
        _ => plain,
    };
    // A dot at the end ends a sentence.
    let length = text.get(..length)?.trim_end_matches('.').len();
    (length > 0 && length <= LONGEST_NAME).then_some(length)
}

/// Whether a text ends in the letter of a drive, with its colon or before it.
fn ends_in_drive(text: &str, without_colon: bool) -> bool {
    let text = if without_colon { text } else { text.strip_suffix(':').unwrap_or_default() };
    text.ends_with(|c: char| c.is_ascii_alphabetic())
}

fn is_drive_colon(text: &str) -> bool {
    text.strip_suffix(':').is_some_and(|text| {
        let mut letters = text.chars().rev();
        letters.next().is_some_and(|c| c.is_ascii_alphabetic()) && !letters.next().is_some_and(char::is_alphanumeric)
    })
}

fn drop_drive(out: &mut String) {
    if out.ends_with(':') {
        out.pop();
    }
    out.pop();
}

#[cfg(test)]
mod tests {
    use super::HomePaths;
    use proptest::prelude::*;

    #[test]
    fn homes_are_masked_and_nothing_else_is() {
        let paths = HomePaths::of(Some("/data/people/ann".into()));
        for (text, masked) in [
            ("cd /home/ann/shop && ls", "cd ~/shop && ls"),
            ("/home/ann", "~"),
            ("in /Users/ann.lee-2/x, and /home/bob.", "in ~/x, and ~."),
            (r"C:\Users\Ann Lee\shop\a.rs", r"~\shop\a.rs"),
            (r#"{"cwd":"C:\\Users\\ann\\shop"}"#, r#"{"cwd":"~\\shop"}"#),
            ("C:/Users/ann/shop", "~/shop"),
            ("file:///home/ann/shop", "file://~/shop"),
            ("PATH=/home/ann/bin:/home/ann/.local/bin", "PATH=~/bin:~/.local/bin"),
            ("/data/people/ann/x and /data/people/anna/x", "~/x and /data/people/anna/x"),
            ("/srv/home/x and /home/ and /homely/x", "/srv~ and /home/ and /homely/x"),
            (r#"{"command":"cd x\n/home/ann/bin/y"}"#, r#"{"command":"cd x\n~/bin/y"}"#),
            ("\u{1b}[32m/home/ann/x -I/home/ann/inc", "\u{1b}[32m~/x -I~/inc"),
            ("/mnt/c/Users/ann/x", "/mnt/c~/x"),
            ("~/.claude/projects/-home-ann-shop/a.jsonl", "~/.claude/projects/~-shop/a.jsonl"),
            ("/Users/Shared/x", "/Users/Shared/x"),
            ("grüße aus /home/jürgen/日本", "grüße aus ~/日本"),
            ("", ""),
        ] {
            assert_eq!(paths.mask(text), masked, "{text}");
        }
        assert_eq!(paths.count(), 18);
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in r"(?s)[/\\:a-zA-Z~. ]{0,8}(/home/|C:\\Users\\|\\\\Users\\\\)?.{0,40}") {
            let paths = HomePaths::of(None);
            let masked = paths.mask(&text);
            prop_assert!(masked.len() <= text.len());
            prop_assert!(paths.count() > 0 || masked == text);
        }
    }
}
