//! The file beside the database that names threads.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::json::{Word, read};
use crate::segments::{Segment, Segments};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Entry {
    thread_id: Word,
    thread_name: Word,
}

/// The names that `session_index.jsonl` gives to threads, by thread id.
///
/// The last line of a thread counts, also when it takes the name away; lines that are torn, glued or no entries are stepped over.
pub fn thread_names(index: &[u8]) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for segment in Segments::new(index).map_while(Result::ok) {
        // A last line without its end is none yet for those who wait for more; here nothing more comes.
        let (Segment::Record { bytes, .. } | Segment::Tail { bytes, .. }) = segment else {
            continue;
        };
        let Ok((entry, _)) = read::<Entry>(&bytes) else {
            continue;
        };
        match (entry.thread_id.0, entry.thread_name.0) {
            (Some(id), Some(name)) => drop(names.insert(id, name)),
            (Some(id), None) => drop(names.remove(&id)),
            (None, _) => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::thread_names;

    #[test]
    fn the_last_line_counts_and_damage_is_stepped_over() {
        let index = concat!(
            "{\"thread_id\":\"a\",\"thread_name\":\"one\",\"updated_at\":1,\"rollout_path\":null}\n",
            "{\"thread_id\":\"b\",\"thread_name\":\"two\"}{\"thread_id\":\"a\",\"thread_name\":\"three\"}\n",
            "{\"thread_id\":\"c\",\"thread_na\n",
            "{\"thread_id\":\"b\",\"thread_name\":null}\n",
            "{\"thread_id\":\"d\",\"thread_name\":\"fo",
        );
        let names = thread_names(index.as_bytes());
        assert_eq!(names.into_iter().collect::<Vec<_>>(), [("a".to_owned(), "three".to_owned())]);
    }
}
