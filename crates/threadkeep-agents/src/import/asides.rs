//! What small files beside sessions say of them: read once, told with every step of an import.

use std::path::{Path, PathBuf};

use super::files;
use crate::codec::{Aside, Codec, ThreadFacts};
use crate::companion::Companion;

/// What stands between a codec's state and the mark of a title.
const TITLE: &[u8] = b"\ntitle ";
const MARK_BYTES: usize = 32;

/// What the files beside a session, or beside a database of sessions, say.
#[derive(Debug)]
pub(super) struct Asides(Vec<Aside>);

impl Asides {
    /// Reads those that are there.
    pub(super) fn read(codec: &dyn Codec, session: &Path) -> Self {
        let says = |path: PathBuf| files::small(&path).and_then(|bytes| codec.aside(session, &path, &bytes));
        Self(codec.beside(session).into_iter().filter_map(says).collect())
    }

    /// Adds what they say; gives whether the title is theirs.
    pub(super) fn tell(&self, facts: &mut ThreadFacts) -> bool {
        let own = facts.title.clone();
        self.0.iter().for_each(|aside| aside.tell(facts));
        facts.title != own
    }

    /// What else they hold of the session.
    pub(super) fn companions(&self) -> impl Iterator<Item = &Companion> {
        self.0.iter().flat_map(|aside| &aside.companions)
    }

    /// What is wrong with them.
    pub(super) fn remarks(&self) -> impl Iterator<Item = &String> {
        self.0.iter().flat_map(|aside| &aside.remarks)
    }
}

/// What is kept of a file of lines: the codec's state, and behind it the mark of a title that a file beside it gave.
pub(super) fn with_title(mut state: Vec<u8>, title: Option<&str>) -> Vec<u8> {
    if let Some(title) = title {
        state.extend_from_slice(TITLE);
        state.extend_from_slice(mark_of(title).as_bytes());
    }
    state
}

/// What is kept of a file of lines, taken apart: the codec's state, and the mark of the title.
fn split(state: &[u8]) -> (&[u8], Option<&[u8]>) {
    let parts = state.len().checked_sub(TITLE.len() + MARK_BYTES).map(|at| state.split_at(at));
    match parts.and_then(|(own, rest)| Some((own, rest.strip_prefix(TITLE)?))) {
        Some((own, mark)) => (own, Some(mark)),
        None => (state, None),
    }
}

/// The codec's part of what is kept of a file of lines.
pub(crate) fn state_of_codec(state: &[u8]) -> &[u8] {
    split(state).0
}

/// Whether a file beside a session gave this title when the state was written.
pub(super) fn gave(state: &[u8], title: &str) -> bool {
    split(state).1 == Some(mark_of(title).as_bytes())
}

fn mark_of(title: &str) -> String {
    blake3::hash(title.as_bytes()).to_hex().chars().take(MARK_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::{gave, state_of_codec, with_title};

    #[test]
    fn a_state_knows_the_title_that_was_given_beside_it() {
        let state = with_title(b"{\"a\":1}".to_vec(), Some("A title"));
        assert_eq!(state_of_codec(&state), b"{\"a\":1}");
        assert!(gave(&state, "A title") && !gave(&state, "another"));
        for plain in [b"".as_slice(), b"{\"title\":\"A title\"}", &[b'x'; 64]] {
            assert_eq!(with_title(plain.to_vec(), None), plain);
            assert_eq!(state_of_codec(plain), plain);
            assert!(!gave(plain, "A title"));
        }
    }
}
