//! The ids of imported items: made from what they are and what they continue, so that reading a file again finds them.

use threadkeep::{ItemId, ThreadId, Timestamp, Uuid};

const DOMAIN: &[u8] = b"threadkeep.import.v1";

/// The id of a record that continues `parent` in `thread`.
///
/// Equal bytes in an equal place have an equal id, whatever file they were read from; a record that was changed, and all
/// that follow it, have others. It is a UUIDv7 whose time is the record's own, so that ids rise with the records.
pub(super) fn item_id(thread: &ThreadId, parent: Option<ItemId>, bytes: &[u8], at: Option<Timestamp>) -> ItemId {
    let mut hasher = blake3::Hasher::new();
    let mut add = |part: &[u8]| {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    };
    add(DOMAIN);
    add(thread.as_str().as_bytes());
    add(parent.as_ref().map(|id| id.as_bytes().as_slice()).unwrap_or_default());
    add(bytes);
    let hash = hasher.finalize();
    let mut random = [0; 10];
    for (to, from) in random.iter_mut().zip(hash.as_bytes()) {
        *to = *from;
    }
    let millis = at.and_then(|at| u64::try_from(at.millis()).ok()).unwrap_or(0);
    ItemId::from_uuid(Uuid::from_u128(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid().as_u128()))
}

/// The thread id that a session's id is, made fit where it is none.
pub(super) fn thread_id(session: &str) -> Option<ThreadId> {
    let fit: String = session
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-') { letter } else { '-' })
        .take(100)
        .collect();
    let fit = fit.trim_start_matches(|letter: char| !letter.is_ascii_alphanumeric());
    ThreadId::new(fit).ok()
}

/// Another id for a session whose own id is taken by a different conversation: the same for the same file.
pub(super) fn other_thread_id(session: &ThreadId, file: &str) -> Option<ThreadId> {
    let hash = blake3::hash(file.as_bytes()).to_hex();
    ThreadId::new(format!("{session}-{}", hash.get(..8)?)).ok()
}

#[cfg(test)]
mod tests {
    use threadkeep::{ThreadId, Timestamp};

    use super::{item_id, other_thread_id, thread_id};

    #[test]
    fn an_id_is_made_from_the_place_and_the_bytes() {
        let (a, b) = (ThreadId::new("a").unwrap(), ThreadId::new("b").unwrap());
        let at = Some(Timestamp(1_767_323_045_678));
        let root = item_id(&a, None, b"x", at);
        assert_eq!(root, item_id(&a, None, b"x", at));
        let others = [item_id(&b, None, b"x", at), item_id(&a, Some(root), b"x", at), item_id(&a, None, b"y", at)];
        assert!(!others.contains(&root));
        assert_eq!(root.as_uuid().get_version_num(), 7);
    }

    #[test]
    fn hostile_session_ids_become_thread_ids_or_nothing() {
        assert_eq!(thread_id("../../etc/passwd").unwrap().as_str(), "etc-passwd");
        assert_eq!(thread_id("a b"), ThreadId::new("a-b").ok());
        assert_eq!(thread_id("…"), None);
        let session = thread_id(&"x".repeat(500)).unwrap();
        assert!(other_thread_id(&session, "/f").is_some());
    }
}
