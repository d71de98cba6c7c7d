//! Which arguments of a search are words, and which are options.
//!
//! A query may hold words that begin with a dash, before and behind the options. What is no option is a word; so it is put
//! behind `--`, where nothing is taken for an option.

use std::ffi::OsString;

use clap::{Arg, Command};

/// Puts the words of a search behind `--`, and gives `--open` the number that follows it. Other command lines stay.
pub(in crate::commands) fn put_apart(arguments: Vec<OsString>, program: &Command) -> Vec<OsString> {
    let Some(verb) = place_of_verb(&arguments, program) else { return arguments };
    let Some(search) = program.find_subcommand("search") else { return arguments };
    if arguments.get(verb).is_none_or(|name| name != search.get_name()) {
        return arguments;
    }
    let options: Vec<&Arg> = search.get_arguments().chain(program.get_arguments()).collect();
    let (mut before, mut words) = (Vec::new(), Vec::new());
    let mut rest = arguments.iter().skip(verb + 1).peekable();
    while let Some(argument) = rest.next() {
        if argument == "--" {
            words.extend(rest.by_ref().cloned());
            break;
        }
        let Some(option) = option(argument, &options) else {
            words.push(argument.clone());
            continue;
        };
        before.push(argument.clone());
        match option {
            Takes::Nothing => {}
            Takes::Next => before.extend(rest.next().cloned()),
            Takes::Number => {
                if let Some(number) = rest.next_if(|next| next.to_str().is_some_and(is_number)) {
                    before.pop();
                    let mut joined = argument.clone();
                    joined.push("=");
                    joined.push(number);
                    before.push(joined);
                }
            }
        }
    }
    let mut all: Vec<OsString> = arguments.iter().take(verb + 1).cloned().collect();
    all.append(&mut before);
    if !words.is_empty() {
        all.push("--".into());
        all.append(&mut words);
    }
    all
}

/// What an option takes of what follows it.
enum Takes {
    Nothing,
    Next,
    /// The next one if that is a number.
    Number,
}

fn place_of_verb(arguments: &[OsString], program: &Command) -> Option<usize> {
    let options: Vec<&Arg> = program.get_arguments().collect();
    let mut at = 1;
    loop {
        let argument = arguments.get(at)?;
        match option(argument, &options) {
            Some(Takes::Next) => at += 2,
            Some(_) => at += 1,
            None if argument.to_str().is_some_and(|text| text.starts_with('-')) => return None,
            None => return Some(at),
        }
    }
}

/// What this option takes; `None` for what is a word. An option is written out, or a dash and one letter.
fn option(argument: &OsString, options: &[&Arg]) -> Option<Takes> {
    let text = argument.to_str()?;
    if matches!(text, "-h" | "--help") {
        return Some(Takes::Nothing);
    }
    let (name, has_value) = match text.split_once('=') {
        Some((name, _)) => (name, true),
        None => (text, false),
    };
    let is_it = |option: &&&Arg| match name.strip_prefix("--") {
        Some(long) => option.get_long() == Some(long),
        None => {
            let letter = name.strip_prefix('-').map(|letters| letters.chars().collect::<Vec<_>>());
            matches!(letter.as_deref(), Some([letter]) if option.get_short() == Some(*letter)) && !has_value
        }
    };
    let found = options.iter().find(is_it)?;
    if has_value || !found.get_action().takes_values() {
        return Some(Takes::Nothing);
    }
    Some(if found.is_require_equals_set() { Takes::Number } else { Takes::Next })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::put_apart;
    use crate::commands::Cli;

    fn apart(line: &[&str]) -> String {
        let line = line.iter().map(Into::into).collect();
        let apart = put_apart(line, &Cli::command());
        apart.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_is_no_option_is_a_word() {
        for (line, expected) in [
            (&["t", "search", "login"][..], "t search -- login"),
            (&["t", "search", "login", "--json", "test"], "t search --json -- login test"),
            (&["t", "search", "-foo", "--no-verify", "-n", "5"], "t search -n 5 -- -foo --no-verify"),
            (&["t", "search", "--limit=5", "-"], "t search --limit=5 -- -"),
            (&["t", "search", "-n5", "-w=x", "-h"], "t search -h -- -n5 -w=x"),
            (&["t", "search", "a", "--open", "2", "b"], "t search --open=2 -- a b"),
            (&["t", "search", "--open", "a"], "t search --open -- a"),
            (&["t", "search", "--flat", "--", "--flat", "--"], "t search --flat -- --flat --"),
            (&["t", "--store", "search", "search", "-x"], "t --store search search -- -x"),
            (
                &["t", "--json", "--store=s", "search", "--store", "-s", "-x"],
                "t --json --store=s search --store -s -- -x",
            ),
            (&["t", "search"], "t search"),
            (&["t", "search", "a", "--limit"], "t search --limit -- a"),
            (&["t", "list", "search", "-x"], "t list search -x"),
            (&["t", "--nonsense", "search", "-x"], "t --nonsense search -x"),
            (&["t"], "t"),
        ] {
            assert_eq!(apart(line), expected, "{line:?}");
        }
    }
}
