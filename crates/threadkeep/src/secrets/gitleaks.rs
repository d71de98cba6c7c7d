//! Rules in the format of gitleaks, the field's standard.

use std::sync::Arc;

use aho_corasick::AhoCorasick;
use serde::Deserialize;

use crate::error::{Error, Result};
use crate::secrets::marker;
use crate::secrets::rule::{Allowed, Alphabet, Parts, Rule, SecretGroup, Target, allowed_regex};

/// The maintained set; `gitleaks/README.md` says where it is from.
pub(super) const MAINTAINED: &str = include_str!("gitleaks/gitleaks.toml");
/// What it lacks.
pub(super) const OURS: &str = include_str!("gitleaks/more.toml");

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct File {
    extend: Extend,
    rules: Vec<Raw>,
    allowlist: Option<RawAllowed>,
    allowlists: Vec<RawAllowed>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Extend {
    use_default: bool,
    path: String,
    url: String,
    disabled_rules: Vec<String>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Raw {
    id: String,
    description: String,
    regex: Option<String>,
    path: Option<String>,
    secret_group: usize,
    entropy: f64,
    keywords: Vec<String>,
    allowlist: Option<RawAllowed>,
    allowlists: Vec<RawAllowed>,
    /// Rules that must match nearby.
    required: Vec<toml::Value>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawAllowed {
    condition: String,
    commits: Vec<String>,
    paths: Vec<String>,
    regex_target: String,
    regexes: Vec<String>,
    stopwords: Vec<String>,
    /// Of an allowlist of the whole file: the rules that it is for; all of them when none is named.
    target_rules: Vec<String>,
}

/// Reads a file of rules.
pub(super) fn read(text: &str) -> Result<Vec<Rule>> {
    let file: File = toml::from_str(text).map_err(|error| Error::invalid("rules", error.to_string()))?;
    if !file.extend.path.is_empty() || !file.extend.url.is_empty() {
        let reason = "they extend another file, which is not read; only `extend.useDefault` is known";
        return Err(Error::invalid("rules", reason));
    }
    let mut rules = Vec::new();
    if file.extend.use_default {
        let mut base = maintained()?;
        base.retain(|rule| !file.extend.disabled_rules.contains(&rule.parts.id));
        base.retain(|rule| !file.rules.iter().any(|own| own.id == rule.parts.id));
        rules = base;
    }
    rules.extend(compile(&file)?);
    Ok(rules)
}

/// The rules that come with the library.
pub(super) fn maintained() -> Result<Vec<Rule>> {
    let read = |text| -> Result<Vec<Rule>> {
        let file: File = toml::from_str(text).map_err(|error| Error::invalid("rules", error.to_string()))?;
        compile(&file)
    };
    let mut rules = read(MAINTAINED)?;
    rules.extend(read(OURS)?);
    Ok(rules)
}

fn compile(file: &File) -> Result<Vec<Rule>> {
    let shared = file.allowlist.iter().chain(&file.allowlists).map(|raw| Ok((raw, allowed("allowlist", raw)?)));
    let shared: Vec<(&RawAllowed, Option<Arc<Allowed>>)> = shared.collect::<Result<_>>()?;
    let mut rules = Vec::with_capacity(file.rules.len());
    for raw in &file.rules {
        if raw.id.is_empty() {
            return Err(Error::invalid("rules", "one of them has no id"));
        }
        if !raw.required.is_empty() {
            let reason = format!("`{}` requires other rules nearby, which is not offered", raw.id);
            return Err(Error::invalid("rules", reason));
        }
        let Some(regex) = &raw.regex else {
            // It judges the name of a file, and content has none.
            if raw.path.is_some() {
                continue;
            }
            return Err(Error::invalid("rules", format!("`{}` has no regex", raw.id)));
        };
        let of_file = shared
            .iter()
            .filter(|(list, _)| list.target_rules.is_empty() || list.target_rules.contains(&raw.id))
            .filter_map(|(_, allowed)| allowed.clone());
        let own = raw.allowlist.iter().chain(&raw.allowlists).map(|list| allowed(&raw.id, list));
        let own: Vec<Option<Arc<Allowed>>> = own.collect::<Result<_>>()?;
        let parts = Parts {
            id: marker::fit_id(&raw.id),
            description: raw.description.clone(),
            keywords: raw.keywords.clone(),
            entropy: raw.entropy,
            secret: match raw.secret_group {
                0 => SecretGroup::First,
                number => SecretGroup::Number(number),
            },
            allowed: of_file.chain(own.into_iter().flatten()).collect(),
        };
        rules.push(Rule::new(parts, &translated(regex), Alphabet::Bytes)?);
    }
    Ok(rules)
}

/// An allowlist, as far as it can hold of content, which has neither a path nor a commit.
fn allowed(id: &str, raw: &RawAllowed) -> Result<Option<Arc<Allowed>>> {
    let all = match raw.condition.to_ascii_uppercase().as_str() {
        "" | "OR" | "||" => false,
        "AND" | "&&" => true,
        other => return Err(Error::invalid("rules", format!("an allowlist of `{id}` has the condition `{other}`"))),
    };
    if all && !(raw.paths.is_empty() && raw.commits.is_empty()) {
        return Ok(None);
    }
    let target = match raw.regex_target.as_str() {
        "" | "secret" => Target::Secret,
        "match" => Target::Match,
        "line" => Target::Line,
        other => return Err(Error::invalid("rules", format!("an allowlist of `{id}` has the target `{other}`"))),
    };
    let regexes: Vec<_> =
        raw.regexes.iter().map(|pattern| allowed_regex(id, &translated(pattern))).collect::<Result<_>>()?;
    let words = match raw.stopwords.is_empty() {
        true => None,
        false => Some(
            AhoCorasick::builder()
                .ascii_case_insensitive(true)
                .build(&raw.stopwords)
                .map_err(|error| Error::invalid("rules", format!("the stop words of `{id}`: {error}")))?,
        ),
    };
    if regexes.is_empty() && words.is_none() {
        return Ok(None);
    }
    let both = all && words.is_some() && !regexes.is_empty();
    Ok(Some(Arc::new(Allowed { target, regexes, words, both })))
}

/// The same pattern in the words of this engine: where Go takes a brace or a bracket for itself, it is escaped.
fn translated(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    let mut class_at = None;
    while let Some(letter) = rest.chars().next() {
        let tail = rest.get(letter.len_utf8()..).unwrap_or_default();
        let length = match (letter, class_at) {
            ('\\', _) => letter.len_utf8() + tail.chars().next().map_or(0, char::len_utf8),
            ('[', None) => {
                class_at = Some(out.len());
                let negated = 1 + usize::from(tail.starts_with('^'));
                // A bracket that closes at once stands for itself.
                negated + usize::from(rest.get(negated..).is_some_and(|inner| inner.starts_with(']')))
            }
            ('[', Some(_)) if !tail.starts_with(':') => {
                out.push('\\');
                1
            }
            ('[', Some(_)) => tail.find(":]").map_or(1, |end| end + 3),
            (']', Some(_)) => {
                class_at = None;
                1
            }
            ('&' | '~', Some(_)) => {
                out.push('\\');
                1
            }
            ('-', Some(_)) if tail.starts_with('-') => {
                out.push('\\');
                1
            }
            ('{', None) if !begins_with_count(tail) => {
                out.push('\\');
                1
            }
            _ => letter.len_utf8(),
        };
        let (taken, left) = rest.split_at_checked(length).unwrap_or((rest, ""));
        out.push_str(taken);
        rest = left;
    }
    out
}

/// Whether this goes on like `3}`, `3,}` or `3,5}`.
fn begins_with_count(text: &str) -> bool {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let first = digits(text);
    let after = text.get(first..).unwrap_or_default();
    let after = match after.strip_prefix(',') {
        Some(more) => more.get(digits(more)..).unwrap_or_default(),
        None => after,
    };
    first > 0 && after.starts_with('}')
}

#[cfg(test)]
mod tests {
    use super::translated;

    #[test]
    fn what_go_takes_for_itself_is_escaped() {
        for (given, expected) in [
            (r"^\$(?:\d+|{\d+})$", r"^\$(?:\d+|\{\d+})$"),
            (r"a{2}b{2,}c{2,3}{x}", r"a{2}b{2,}c{2,3}\{x}"),
            (r"[[{]\[[^]]*", r"[\[{]\[[^]]*"),
            (r"[a~&&b--c]", r"[a\~\&\&b\--c]"),
            (r"[[:alpha:]_]", r"[[:alpha:]_]"),
            (r"\{\{ü}}", r"\{\{ü}}"),
        ] {
            assert_eq!(translated(given), expected);
        }
    }
}
