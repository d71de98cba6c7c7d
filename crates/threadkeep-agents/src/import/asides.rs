//! What small files beside sessions say of them: read once, told with every step of an import.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::files::{self, Stat};
use crate::codec::{Aside, Codec, ThreadFacts};
use crate::companion::Companion;

/// What stands between a codec's state and the mark of a title.
const TITLE: &[u8] = b"\ntitle ";
const MARK_BYTES: usize = 32;
/// How large a file beside a session may be …
const MAX_BYTES: u64 = 4 << 20;
/// … and a list of many sessions.
const MAX_LIST_BYTES: u64 = 32 << 20;
/// So many lists are held: sessions of several agents come in turns.
const MOST_LISTS: usize = 4;

/// What the files beside a session, or beside a database of sessions, say.
#[derive(Debug)]
pub(super) struct Asides(Vec<Rc<Aside>>);

/// Lists of many sessions, each read once as long as it stays the same ([`Codec::is_list`]), the last one used first.
#[derive(Debug, Default)]
pub(super) struct Lists(RefCell<Vec<List>>);

#[derive(Debug)]
struct List {
    agent: &'static str,
    path: PathBuf,
    stat: Stat,
    says: Option<Rc<Aside>>,
}

impl Lists {
    fn read(&self, codec: &dyn Codec, session: &Path, path: &Path) -> Option<Rc<Aside>> {
        let (stat, agent) = (files::stat(path, MAX_LIST_BYTES)?, codec.agent());
        let mut lists = self.0.borrow_mut();
        let is_known = |list: &List| list.agent == agent && list.path == path && list.stat == stat;
        let list = match lists.iter().position(is_known) {
            Some(at) => lists.remove(at),
            None => {
                let says = files::small(path, MAX_LIST_BYTES).and_then(|bytes| codec.aside(session, path, &bytes));
                List { agent, path: path.to_owned(), stat, says: says.map(Rc::new) }
            }
        };
        let says = list.says.clone();
        lists.insert(0, list);
        lists.truncate(MOST_LISTS);
        says
    }
}

impl Asides {
    /// Reads those that are there.
    pub(super) fn read(codec: &dyn Codec, session: &Path, lists: &Lists) -> Self {
        let says = |path: PathBuf| match codec.is_list(&path) {
            true => lists.read(codec, session, &path),
            false => files::small(&path, MAX_BYTES).and_then(|bytes| codec.aside(session, &path, &bytes)).map(Rc::new),
        };
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
    use std::fs;
    use std::rc::Rc;

    use super::{Asides, Lists, MAX_BYTES, MOST_LISTS, gave, state_of_codec, with_title};
    use crate::codec::ThreadFacts;
    use crate::export::codec_for;

    /// Ten thousand tasks and a list of ten thousand would be read ten thousand times over.
    #[test]
    fn a_list_of_sessions_is_read_once_as_long_as_it_stays_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let codec = codec_for("cline").unwrap();
        let path = |storage: usize, name: &str| folder.path().join(format!("{storage}/saoudrizwan.claude-dev/{name}"));
        let write = |storage: usize, words: &str| {
            let list = path(storage, "state/taskHistory.json");
            fs::create_dir_all(list.parent().unwrap()).unwrap();
            // Larger than files may be that are read for each session.
            let tasks: Vec<_> = (0..3).map(|id| serde_json::json!({"id": id.to_string(), "task": words})).collect();
            fs::write(list, serde_json::to_vec_pretty(&tasks).unwrap()).unwrap();
        };
        let lists = Lists::default();
        let read = |storage: usize, id: &str| {
            let session = path(storage, &format!("tasks/{id}/api_conversation_history.json"));
            let asides = Asides::read(&*codec, &session, &lists);
            let mut facts = ThreadFacts { session_id: Some(id.to_owned()), ..ThreadFacts::default() };
            asides.tell(&mut facts);
            (Rc::clone(&asides.0[0]), facts.preview.unwrap_or_default())
        };
        let long = "a long word ".repeat(usize::try_from(MAX_BYTES).unwrap() / 30);
        write(0, &long);
        let (first, preview) = read(0, "1");
        assert!(preview.starts_with("a long word"));
        for storage in 1..MOST_LISTS {
            write(storage, "of others");
            assert_eq!(read(storage, "1").1, "of others");
        }
        assert!(Rc::ptr_eq(&first, &read(0, "2").0), "it was read again");
        write(0, "other words");
        assert_eq!(read(0, "2").1, "other words");
        // Those that were not used for long are forgotten.
        (1..=MOST_LISTS).for_each(|storage| write(storage, "of others"));
        (1..=MOST_LISTS).for_each(|storage| drop(read(storage, "1")));
        assert_eq!(lists.0.borrow().len(), MOST_LISTS);
    }

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
