//! A text read character by character: as it stands, or as the JSON that it is; and the sequences that steer a terminal.

/// A text whose characters are asked for by their place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    text: &'a str,
    is_json: bool,
}

impl<'a> Source<'a> {
    /// The text as it stands.
    pub(crate) fn plain(text: &'a str) -> Self {
        Self { text, is_json: false }
    }

    /// The text with the escapes of JSON read as what they mean, if it is a JSON document: its `\n` is no `n`.
    pub(crate) fn of_tool(text: &'a str) -> Self {
        let is_document =
            text.trim_start().starts_with(['{', '[', '"']) && memchr::memchr(b'\\', text.as_bytes()).is_some();
        Self { text, is_json: is_document && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() }
    }

    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    pub(crate) fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    /// Whether the byte may begin a character that is not the byte itself.
    pub(crate) fn is_special(&self, byte: u8) -> bool {
        byte >= 0x80 || (self.is_json && byte == b'\\')
    }

    /// The end of the run of ASCII letters and digits that begins here.
    pub(crate) fn ascii_run(&self, at: usize) -> usize {
        let rest = self.text.as_bytes().get(at..).unwrap_or_default();
        at + rest.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(rest.len())
    }

    /// The next place at or after `at` where a character begins.
    pub(crate) fn boundary(&self, at: usize) -> usize {
        (at..self.len()).find(|at| self.text.is_char_boundary(*at)).unwrap_or(self.len())
    }

    /// The place after the first white space from `at` on, if that is before `most`; `at` if none is, or at the beginning.
    pub(crate) fn after_space(&self, at: usize, most: usize) -> usize {
        let part = self.text.get(at..most).filter(|_| at > 0).unwrap_or_default();
        part.char_indices().find(|(_, c)| c.is_whitespace()).map_or(at, |(index, c)| at + index + c.len_utf8())
    }

    /// The text without white space at its ends.
    pub(crate) fn trimmed(&self) -> std::ops::Range<usize> {
        let start = self.len() - self.text.trim_start().len();
        start..self.text.trim_end().len().max(start)
    }

    /// The character at a place, and the place after it.
    pub(crate) fn char_at(&self, at: usize) -> Option<(char, usize)> {
        let c = self.text.get(at..)?.chars().next()?;
        if c == '\\' && self.is_json {
            return Some(self.escaped(at));
        }
        Some((c, at + c.len_utf8()))
    }

    /// What the escape at a place means.
    fn escaped(&self, at: usize) -> (char, usize) {
        let c = match self.byte(at + 1) {
            Some(b'n') => '\n',
            Some(b't') => '\t',
            Some(b'r') => '\r',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'u') => return self.escaped_unit(at),
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            _ => return ('\\', at + 1),
        };
        (c, at + 2)
    }

    fn escaped_unit(&self, at: usize) -> (char, usize) {
        let Some(first) = self.unit(at) else { return ('\\', at + 1) };
        if let Some(c) = char::from_u32(first) {
            return (c, at + 6);
        }
        let second =
            self.unit(at + 6).filter(|second| (0xd800..0xdc00).contains(&first) && (0xdc00..0xe000).contains(second));
        let pair = second.and_then(|second| char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)));
        pair.map_or((char::REPLACEMENT_CHARACTER, at + 6), |c| (c, at + 12))
    }

    /// The number of the `\uXXXX` at a place.
    fn unit(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 6)?.strip_prefix("\\u")?;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
    }

    /// The end of the terminal sequence whose escape character ended before `at`; `at` itself if none is here.
    ///
    /// A sequence ends at its final character. One that is cut off, or that a control character breaks, is text.
    pub(crate) fn sequence_end(&self, at: usize) -> usize {
        let end = match self.char_at(at) {
            Some(('[', next)) => self.after_parameters(next, '0'..='?'),
            Some((']' | 'P' | 'X' | '^' | '_', next)) => self.after_string(next),
            Some((' '..='/', _)) => self.after_parameters(at, ' '..='/'),
            Some(('0'..='~', next)) => Some(next),
            _ => None,
        };
        end.unwrap_or(at)
    }

    /// The end of a sequence of parameters, intermediate characters and a final one.
    fn after_parameters(&self, mut at: usize, parameters: std::ops::RangeInclusive<char>) -> Option<usize> {
        loop {
            let (c, next) = self.char_at(at)?;
            match c {
                ' '..='/' => {}
                _ if parameters.contains(&c) => {}
                '0'..='~' => return Some(next),
                _ => return None,
            }
            at = next;
        }
    }

    /// The end of a string for the terminal, such as a title or the target of a link.
    fn after_string(&self, mut at: usize) -> Option<usize> {
        loop {
            let (c, next) = self.char_at(at)?;
            match c {
                '\u{7}' | '\u{9c}' => return Some(next),
                '\u{1b}' => return self.char_at(next).filter(|(c, _)| *c == '\\').map(|(_, end)| end),
                '\0'..='\u{1f}' => return None,
                _ => at = next,
            }
        }
    }
}
