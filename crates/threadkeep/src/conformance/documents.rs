//! Documents.

use super::{ensure, ensure_eq, ensure_err, promises, thread_with, workspace};
use crate::blocking::Store;
use crate::error::Error;
use crate::{
    Document, DocumentKind, DocumentQuery, MAX_DOCUMENT_BYTES, NewDocument, NewThread, PlanStep, StepStatus, ThreadId,
    Uuid,
};

fn put(store: &Store, thread: &ThreadId, name: &str, text: &str) -> Result<u64, Error> {
    Ok(store.put_document(thread, NewDocument::new(name, text))?.version)
}

fn text_of(store: &Store, thread: &ThreadId, name: &str) -> Result<Option<String>, Error> {
    Ok(store.document(thread, name, None)?.map(|document| document.text))
}

/// The numbers of all versions, the newest first, with whether each has a text.
fn versions(store: &Store, thread: &ThreadId, name: &str, limit: usize) -> Result<Vec<(u64, bool)>, Error> {
    let mut query = DocumentQuery { limit, cursor: None };
    let mut versions = Vec::new();
    loop {
        let page = store.document_history(thread, name, query.clone())?;
        versions.extend(page.entries.into_iter().map(|version| (version.version, version.digest.is_some())));
        match page.next_cursor {
            None => return Ok(versions),
            cursor => query.cursor = cursor,
        }
    }
}

promises! {
    /// A document comes back byte by byte, under any name, and every version of it.
    fn a_document_comes_back_as_it_was_written(store) {
        let live = thread_with(store, &["a"])?;
        let texts = [
            r#" {"nul":"\u0000","lone":"\ud800","big":123456789012345678901234567890,"e":1.5e300, "again":1,"again":2} "#.to_owned(),
            "null".to_owned(),
            format!("[{}]", vec!["\"a line that repeats\""; 20_000].join(",")),
        ];
        for name in ["before the \u{1F9F5} edit", "-", "../../x"] {
            ensure_eq!(store.document(live.id(), name, None)?, None);
            for (version, text) in (1..).zip(&texts) {
                let info = live.put_document(NewDocument::new(name, text.as_str()))?;
                ensure_eq!((info.version, info.size, &info.kind), (version, text.len() as u64, &DocumentKind::Free));
                ensure_eq!(store.document(live.id(), name, None)?, Some(Document { info, text: text.clone() }));
            }
            for (version, text) in (1..).zip(&texts) {
                ensure_eq!(live.document(name, Some(version))?.map(|found| found.text).as_ref(), Some(text));
            }
            ensure_eq!(store.document(live.id(), name, Some(4))?, None);
            ensure_eq!(store.document(live.id(), name, Some(0))?, None);
            ensure_eq!(store.document(live.id(), name, Some(u64::MAX))?, None);
        }
    }

    /// A version that is not the expected one is named, and nothing is written.
    fn a_document_is_written_in_the_place_of_the_expected_version_alone(store) {
        let live = thread_with(store, &["a"])?;
        let expecting = |version, text: &str| store.put_document(live.id(), NewDocument::new("x", text).expecting(version));
        ensure_err!(expecting(1, "1"), Error::Conflict { what: "version", .. });
        ensure_eq!(expecting(0, "1")?.version, 1);
        ensure_err!(expecting(0, "2"), Error::Conflict { what: "version", .. });
        ensure_eq!(expecting(1, "2")?.version, 2);
        ensure_err!(expecting(1, "3"), Error::Conflict { what: "version", expected: _, found: _ });
        ensure_eq!(text_of(store, live.id(), "x")?, Some("2".to_owned()));
        ensure_err!(store.delete_document(live.id(), "x", Some(1)), Error::Conflict { what: "version", .. });
        ensure_eq!(store.delete_document(live.id(), "x", Some(2))?, true);
        ensure_err!(expecting(2, "4"), Error::Conflict { what: "version", .. });
        ensure_eq!(expecting(0, "4")?.version, 4);
    }

    /// The same write under the same id makes one version, whatever came after it.
    fn a_repeated_write_makes_no_second_version(store) {
        let live = thread_with(store, &["a"])?;
        let id = Some(Uuid::from_u128(7));
        let new = NewDocument { id, ..NewDocument::new("x", "{\"n\":1}").expecting(0) };
        let made = store.put_document(live.id(), new.clone())?;
        ensure_eq!(store.put_document(live.id(), new.clone())?, made);
        put(store, live.id(), "x", "2")?;
        ensure_eq!(live.put_document(new.clone())?, made);
        ensure_eq!(store.patch_document(live.id(), new.clone())?, made);
        ensure_eq!(versions(store, live.id(), "x", 10)?, [(2, true), (1, true)]);
        ensure_err!(store.put_document(live.id(), NewDocument { id, ..NewDocument::new("y", "1") }), Error::AlreadyExists { what: "change", .. });
        ensure_eq!(text_of(store, live.id(), "y")?, None);
        // Another thread has ids of its own.
        let other = thread_with(store, &["a"])?;
        ensure_eq!(store.put_document(other.id(), new)?.version, 1);
    }

    /// A deletion is a version: the document is gone, its history is not, and no number is given twice.
    fn a_deleted_document_keeps_its_history(store) {
        let live = thread_with(store, &["a"])?;
        ensure_eq!(store.delete_document(live.id(), "x", None)?, false);
        ensure_eq!(versions(store, live.id(), "x", 10)?, []);
        put(store, live.id(), "x", "1")?;
        ensure_eq!(store.delete_document(live.id(), "x", None)?, true);
        ensure_eq!(live.delete_document("x", None)?, false);
        ensure_eq!((text_of(store, live.id(), "x")?, store.document(live.id(), "x", Some(2))?), (None, None));
        ensure_eq!(store.documents(live.id(), DocumentQuery::default())?.entries, []);
        ensure_eq!(store.document(live.id(), "x", Some(1))?.map(|found| found.text), Some("1".to_owned()));
        ensure_eq!(put(store, live.id(), "x", "3")?, 3);
        ensure_eq!(versions(store, live.id(), "x", 1)?, [(3, true), (2, false), (1, true)]);
    }

    /// Nothing takes former versions away but a trim, which keeps the current one and as many as it is told.
    fn a_history_is_trimmed_when_that_is_asked_for(store) {
        let live = thread_with(store, &["a"])?;
        for number in 1..=30 {
            ensure_eq!(put(store, live.id(), "x", &number.to_string())?, number);
        }
        put(store, live.id(), "y", "1")?;
        ensure_eq!(versions(store, live.id(), "x", 7)?.len(), 30);
        let ticks: Vec<i64> = store.document_history(live.id(), "x", DocumentQuery::default())?.entries.iter().map(|info| info.tick).collect();
        ensure!(ticks.windows(2).all(|pair| pair[0] > pair[1]));
        ensure_eq!(store.trim_document(live.id(), "x", 3)?, 26);
        ensure_eq!(store.trim_document(live.id(), "x", 3)?, 0);
        ensure_eq!(versions(store, live.id(), "x", 10)?, [(30, true), (29, true), (28, true), (27, true)]);
        ensure_eq!(store.document(live.id(), "x", Some(26))?, None);
        store.delete_document(live.id(), "x", None)?;
        ensure_eq!(store.trim_document(live.id(), "x", 0)?, 4);
        ensure_eq!(versions(store, live.id(), "x", 10)?, [(31, false)]);
        ensure_eq!(put(store, live.id(), "x", "\"again\"")?, 32);
        ensure_eq!(text_of(store, live.id(), "y")?, Some("1".to_owned()));
        ensure_err!(store.trim_document(live.id(), "never", 1), Error::NotFound { what: "document", .. });
    }

    /// A merge patch changes what it names and nothing else; without a document it makes one.
    fn a_document_is_patched(store) {
        let live = thread_with(store, &["a"])?;
        let patch = |text: &str| live.patch_document(NewDocument::new("x", text));
        ensure_eq!(patch(r#"{"a":{"b":1,"c":null},"n":12345678901234567890123}"#)?.version, 1);
        ensure_eq!(text_of(store, live.id(), "x")?, Some(r#"{"a":{"b":1},"n":12345678901234567890123}"#.to_owned()));
        ensure_eq!(store.patch_document(live.id(), NewDocument::new("x", r#"{"a":{"d":2,"b":null}}"#))?.version, 2);
        ensure_eq!(text_of(store, live.id(), "x")?, Some(r#"{"a":{"d":2},"n":12345678901234567890123}"#.to_owned()));
        ensure_err!(store.patch_document(live.id(), NewDocument::new("x", "{}").expecting(1)), Error::Conflict { what: "version", .. });
        ensure_err!(patch("{"), Error::Invalid { field: "patch", .. });
        ensure_err!(store.patch_document(live.id(), NewDocument::new("pin", r#"{"api_key":"x"}"#)), Error::Invalid { field: "document", .. });
        ensure_eq!(versions(store, live.id(), "x", 10)?.len(), 2);
    }

    /// A thread has one scratchpad, one plan and one pin, each of its own schema, and what breaks it is refused with its name.
    fn documents_of_a_kind_are_held_to_it(store) {
        let live = thread_with(store, &["a"])?;
        ensure_eq!((store.scratchpad(live.id())?, store.plan(live.id())?, store.preferences(live.id())?), (None, None, None));
        for kind in ["scratchpad", "plan", "pin"] {
            ensure_eq!(put(store, live.id(), kind, "{}")?, 1);
            ensure_eq!(store.document(live.id(), kind, None)?.map(|found| found.info.kind), Some(DocumentKind::from_word(kind)));
        }
        ensure_eq!(store.preferences(live.id())?, Some(crate::PreferencePin::default()));
        ensure_eq!(store.plan(live.id())?.map(|plan| plan.steps), Some(Vec::new()));
        live.put_document(NewDocument::new("scratchpad", r#"{"where":"src/lib.rs"}"#))?;
        ensure_eq!(store.scratchpad(live.id())?.and_then(|pad| pad.get("where").cloned()), Some("src/lib.rs".to_owned()));
        put(store, live.id(), "plan", r#"{"steps":[{"description":"read","status":"done"},{"description":"write","status":"active"}]}"#)?;
        let write = PlanStep { description: "write".to_owned(), status: StepStatus::Active };
        ensure_eq!(store.plan(live.id())?.and_then(|plan| plan.steps.into_iter().nth(1)), Some(write));
        put(store, live.id(), "pin", r#"{"model":"m","obsessive":true}"#)?;
        for key in ["api_key", "endpoint", "caveats", "sandbox"] {
            match put(store, live.id(), "pin", &format!(r#"{{"model":"m","{key}":"x"}}"#)) {
                Err(Error::Invalid { field: "document", reason }) => ensure!(reason.contains(key)),
                other => ensure_err!(other, Error::Invalid { field: "document", .. }),
            }
        }
        let thirty_one = format!(r#"{{"steps":[{}]}}"#, vec![r#"{"description":"x","status":"todo"}"#; 31].join(","));
        for (name, text) in [("plan", thirty_one.as_str()), ("scratchpad", r#"{"a":1}"#), ("plan", r#"{"steps":[{"description":"x","status":"later"}]}"#), ("pin", "[]")] {
            ensure_err!(put(store, live.id(), name, text), Error::Invalid { field: "document", .. });
            ensure_eq!(versions(store, live.id(), name, 10)?.len(), 2);
        }
        ensure_eq!(store.preferences(live.id())?.and_then(|pin| pin.model), Some("m".to_owned()));
    }

    /// What can't be kept is refused and changes nothing.
    fn documents_that_can_not_be_kept_are_refused(store) {
        let live = thread_with(store, &["a"])?;
        for text in ["", "{", "{} {}", "nul\0"] {
            ensure_err!(put(store, live.id(), "x", text), Error::Invalid { field: "document", .. });
        }
        for name in [String::new(), "a\0b".to_owned(), "x".repeat(257)] {
            ensure_err!(put(store, live.id(), &name, "1"), Error::Invalid { field: "name", .. });
            ensure_eq!(store.document(live.id(), &name, None)?, None);
        }
        let largest = format!("\"{}\"", "x".repeat(MAX_DOCUMENT_BYTES - 2));
        ensure_err!(put(store, live.id(), "x", &format!("{largest} ")), Error::Invalid { field: "document", .. });
        ensure_eq!(put(store, live.id(), "x", &largest)?, 1);
        let missing = ThreadId::new("missing")?;
        ensure_err!(put(store, &missing, "x", "1"), Error::NotFound { what: "thread", .. });
        ensure_err!(store.document(&missing, "x", None), Error::NotFound { what: "thread", .. });
    }

    /// Pages of documents are in the order of their names, and have all of them.
    fn documents_are_listed_in_pages(store) {
        let live = thread_with(store, &["a"])?;
        for number in 0..25 {
            put(store, live.id(), &format!("d{number:02}"), "1")?;
        }
        put(store, live.id(), "pin", "{}")?;
        store.delete_document(live.id(), "d07", None)?;
        let (mut names, mut query) = (Vec::new(), DocumentQuery { limit: 4, cursor: None });
        loop {
            let page = store.documents(live.id(), query.clone())?;
            names.extend(page.entries.into_iter().map(|document| document.name));
            match page.next_cursor {
                None => break,
                cursor => query.cursor = cursor,
            }
        }
        ensure_eq!(names.len(), 25);
        ensure!(names.windows(2).all(|pair| pair[0] < pair[1]));
        let other = thread_with(store, &["a"])?;
        ensure_err!(store.documents(other.id(), query), Error::Invalid { field: "cursor", .. });
        ensure_eq!(store.documents(other.id(), DocumentQuery { limit: 0, cursor: None })?.entries, []);
    }

    /// A holder whose claim was taken over writes no document.
    fn a_fenced_off_holder_writes_no_document(store) {
        let old = thread_with(store, &["a"])?;
        old.put_document(NewDocument::new("x", "1"))?;
        let new = store.take_over(old.id(), "the clause wants it", false)?;
        ensure_err!(old.put_document(NewDocument::new("x", "2")), Error::ClaimLost { .. });
        ensure_err!(old.patch_document(NewDocument::new("x", "2")), Error::ClaimLost { .. });
        ensure_err!(old.delete_document("x", None), Error::ClaimLost { .. });
        ensure_eq!(new.put_document(NewDocument::new("x", "3"))?.version, 2);
        // A thread that is resumed has its documents as they stood.
        new.shutdown()?;
        ensure_eq!(store.resume(old.id(), false)?.document("x", None)?.map(|found| found.text), Some("3".to_owned()));
    }

    /// A purged thread leaves no document to a later thread of its id, and a fork has none of its parent's.
    fn a_purge_takes_the_documents(store) {
        let id = ThreadId::new("again")?;
        let make = || workspace(store)?.create_now(NewThread { id: Some(id.clone()), ..NewThread::default() });
        let live = make()?;
        live.append(vec![super::say("a")])?;
        live.put_document(NewDocument::new("x", "\"secret\""))?;
        let fork = store.fork(&id, None, NewThread::default())?;
        ensure_eq!(text_of(store, &fork.id, "x")?, None);
        live.shutdown()?;
        store.delete(&id)?;
        store.purge(&id)?;
        store.delete(&fork.id)?;
        store.purge(&fork.id)?;
        let live = make()?;
        ensure_eq!((live.document("x", None)?, versions(store, &id, "x", 10)?), (None, Vec::new()));
        ensure_eq!(put(store, &id, "x", "1")?, 1);
    }

    /// Another workspace's documents read the same as those of an absent thread.
    fn a_workspace_sees_its_own_documents(store) {
        let live = thread_with(store, &["a"])?;
        live.put_document(NewDocument::new("x", "1"))?;
        let other = store.workspace(std::path::Path::new("/another"))?;
        ensure_err!(other.document(live.id(), "x", None), Error::NotFound { what: "thread", .. });
        ensure_err!(other.put_document(live.id(), NewDocument::new("x", "2")), Error::NotFound { what: "thread", .. });
        ensure_err!(other.delete_document(live.id(), "x", None), Error::NotFound { what: "thread", .. });
        ensure_eq!(text_of(store, live.id(), "x")?, Some("1".to_owned()));
    }
}
