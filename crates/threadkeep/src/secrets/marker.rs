//! What stands in the place of a secret: ASCII without quotes and backslashes, and nothing of the secret, not even its length.

const OPEN: &str = "[redacted:";
const CLOSE: u8 = b']';
/// What stands in the place of content that could not be masked in part.
pub(super) const WHOLE: &str = "[redacted]";
const LONGEST_ID: usize = 64;

/// What stands in the place of a secret that the rule found.
pub(super) fn of(rule: &str) -> String {
    format!("{OPEN}{rule}]")
}

/// A rule's id as it is shown and as it stands in the marker.
pub(super) fn fit_id(id: &str) -> String {
    let fit = |letter: char| match letter {
        letter if letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-') => letter,
        _ => '-',
    };
    id.chars().take(LONGEST_ID).map(fit).collect()
}

/// Whether this is one marker, or several.
pub(super) fn is_marker(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        let after = rest.strip_prefix(OPEN.as_bytes()).and_then(|after| {
            let id = after.iter().take(LONGEST_ID).take_while(|byte| is_id_byte(**byte)).count();
            after.get(id..)?.strip_prefix(&[CLOSE]).filter(|_| id > 0)
        });
        match after.or_else(|| rest.strip_prefix(WHOLE.as_bytes())) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    !bytes.is_empty()
}

fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use super::{fit_id, is_marker, of};

    #[test]
    fn a_marker_is_known_and_nothing_else_is() {
        for text in [of("a-b"), of("a") + &of("b"), "[redacted]".to_owned(), of(&fit_id("ü \"x\"\\"))] {
            assert!(is_marker(text.as_bytes()), "{text}");
        }
        for text in ["", "[redacted:]", "[redacted:a", "x[redacted:a]", "[redacted:a]x", "[redacted:a b]"] {
            assert!(!is_marker(text.as_bytes()), "{text}");
        }
    }
}
