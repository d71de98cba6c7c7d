//! Persistence policies by the words of the command line.

use threadkeep::{Kind, Policy};
use threadkeep_agents::codex::Codex;

/// What `--policy` takes, for its help.
pub(crate) const WORDS: &str = "all, codex-limited, codex-extended or KIND,KIND...";

/// Reads a policy: a name, or the kinds that are kept.
pub(crate) fn parse(words: &str) -> Result<Policy, String> {
    let named = match words {
        "all" => Some(Policy::All),
        "codex-limited" => Some(Codex::limited()),
        "codex-extended" => Some(Codex::extended()),
        _ => None,
    };
    if let Some(policy) = named {
        return Ok(policy);
    }
    let kinds: Vec<Kind> = words.split(',').map(|word| Kind::from_word(word.trim())).collect();
    // A kind of a newer version can be written, but a slip of the pen would drop everything.
    let unknown = kinds.iter().find(|kind| matches!(kind, Kind::Unknown(_)));
    match unknown {
        Some(kind) => Err(format!("`{kind}` is neither a policy nor a kind; there are {WORDS}")),
        None => Ok(Policy::Only(kinds)),
    }
}

#[cfg(test)]
mod tests {
    use threadkeep::{Kind, Policy};

    use super::parse;

    #[test]
    fn policies_have_names_and_kinds_are_listed() {
        assert_eq!(parse("all"), Ok(Policy::All));
        assert_eq!(parse("codex-extended").unwrap().name(), "codex-extended");
        assert_eq!(parse("codex-limited").unwrap().name(), "codex-limited");
        assert_eq!(parse("message, tool_call"), Ok(Policy::Only(vec![Kind::Message, Kind::ToolCall])));
        for wrong in ["", "codex", "message,", "messages"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
