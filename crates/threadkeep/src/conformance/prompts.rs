//! Prompts that are stored as receipts, and their artifacts.

use super::{ensure, ensure_eq, ensure_err, promises, say, text_of, thread_with, workspace};
use crate::blocking::{LiveThread, Store};
use crate::error::Error;
use crate::{
    ARTIFACT_FORMAT, Artifact, ArtifactKind, ArtifactQuery, ArtifactRelation, ArtifactsOf, ItemQuery, Kind,
    MAX_ARTIFACT_BODY_BYTES, MAX_LINEAGE, MAX_LOCATOR_BYTES, MAX_METADATA_BYTES, MAX_PROMPT_BYTES, NewArtifact,
    NewItem, NewMessage, NewPrompt, NewThread, PROMPT_FORMAT, Policy, Prompt, PromptAs, PromptId, PromptOrigin,
    PromptQuery, PromptTurn, Receipt, RedactOptions, Role, Rules, SearchQuery, StoredPrompt, TakeMessage, ThreadId,
    TurnEnd, TurnStatus, Uuid,
};

fn ask(live: &LiveThread, text: &str) -> Result<PromptId, Error> {
    Ok(live.begin_prompt(NewPrompt::task(text))?.receipt.id)
}

fn go_on(live: &LiveThread, parent: PromptId, text: &str) -> Result<PromptId, Error> {
    Ok(live.begin_prompt(NewPrompt::continuing(parent, text))?.receipt.id)
}

fn decision(prompt: PromptId, body: &str) -> NewArtifact {
    let new = NewArtifact::new(prompt, ArtifactKind::Decision, ArtifactRelation::DerivedFrom);
    NewArtifact { body: Some(body.to_owned()), ..new }
}

fn some_id(number: u128) -> PromptId {
    PromptId::from_uuid(Uuid::from_u128(number))
}

/// What every page of the query says, which must agree on how many there are.
fn prompts(store: &Store, thread: &ThreadId, query: &PromptQuery) -> Result<Vec<Prompt>, Error> {
    let (mut query, mut all, mut total) = (query.clone(), Vec::new(), None);
    loop {
        let page = store.prompts(thread, query.clone())?;
        if *total.get_or_insert(page.total) != page.total {
            return Err(Error::corrupt("a page", "it counts otherwise than the first one"));
        }
        all.extend(page.entries);
        match page.next_cursor {
            None if Some(all.len() as u64) == total => return Ok(all),
            None => return Err(Error::corrupt("the pages", format!("{} of {total:?}", all.len()))),
            cursor => query.cursor = cursor,
        }
    }
}

fn asked(store: &Store, thread: &ThreadId) -> Result<Vec<String>, Error> {
    Ok(prompts(store, thread, &PromptQuery::default())?.into_iter().map(|prompt| prompt.text).collect())
}

fn artifacts(store: &Store, thread: &ThreadId, of: ArtifactsOf) -> Result<Vec<Artifact>, Error> {
    let (mut query, mut all) = (ArtifactQuery { of, limit: 2, ..ArtifactQuery::default() }, Vec::new());
    loop {
        let page = store.artifacts(thread, query.clone())?;
        all.extend(page.entries);
        match page.next_cursor {
            None if all.len() as u64 == page.total => return Ok(all),
            None => return Err(Error::corrupt("the pages", format!("{} of {}", all.len(), page.total))),
            cursor => query.cursor = cursor,
        }
    }
}

fn bodies(artifacts: &[Artifact]) -> Vec<&str> {
    artifacts.iter().filter_map(|artifact| artifact.body.as_deref()).collect()
}

/// What is worked at: the texts of the last prompt and of the active one.
fn at_work(store: &Store, thread: &ThreadId) -> Result<Option<(String, Option<String>)>, Error> {
    let context = store.prompt_context(thread, None)?;
    Ok(context.map(|context| (context.submitted.text, context.active.map(|active| active.text))))
}

fn intact(store: &Store, thread: &ThreadId) -> Result<bool, Error> {
    let verdict = store.verify(thread)?;
    Ok(verdict.is_intact())
}

promises! {
    /// A prompt is stored with its turn, as it was typed and as the model is given it, to the byte; and it is an item of the path.
    fn a_prompt_is_stored_with_its_turn(store) {
        let live = thread_with(store, &["before"])?;
        let raw = b"typed\0 \xff\xfe\xc3 \xe2\x82".to_vec();
        let new = NewPrompt { raw: raw.clone(), ..NewPrompt::task("given\0 π \u{10ffff}") };
        let stored = live.begin_prompt(new)?;
        ensure_eq!((stored.repeated, stored.previous), (false, None));
        ensure_eq!(stored.receipt.turn, Some(1));
        ensure_eq!(store.open_turn(live.id())?, Some(1));
        let prompt = store.prompt(live.id(), stored.receipt.id)?;
        ensure_eq!(prompt.receipt, stored.receipt);
        ensure_eq!((prompt.raw, prompt.text.as_str()), (raw, "given\0 π \u{10ffff}"));
        let item = store.item(live.id(), stored.receipt.address)?;
        ensure_eq!((item.id, item.turn), (stored.receipt.id.item(), Some(1)));
        ensure_eq!((item.kind.clone(), item.role.clone(), item.format.as_str()), (Kind::Message, Some(Role::User), PROMPT_FORMAT));
        ensure_eq!(text_of(&item), "given\0 π \u{10ffff}");
        ensure_eq!(Receipt::try_from(&item)?, stored.receipt);
        ask(&live, "next")?;
        ensure_eq!(store.turns(live.id(), crate::TurnQuery::default())?.entries[0].status, TurnStatus::Interrupted);
        ensure!(intact(store, live.id())?);
    }

    /// A fresh prompt is a task of its own; one that continues it, and a retry, leave that in force, however they follow each other.
    fn a_continuation_leaves_the_task_in_force(store) {
        let live = thread_with(store, &[])?;
        let task = ask(&live, "the task")?;
        let more = live.begin_prompt(NewPrompt::continuing(task, "go on"))?.receipt;
        ensure_eq!((more.parent, more.root, more.active, more.generation), (Some(task), task, task, 2));
        let again = live.begin_prompt(NewPrompt::retry(more.id, "go on"))?.receipt;
        ensure_eq!((again.origin.clone(), again.active, again.root), (PromptOrigin::HarnessRetry, task, task));
        ensure_eq!(at_work(store, live.id())?, Some(("go on".into(), Some("the task".into()))));
        let other = ask(&live, "another task")?;
        ensure_eq!(store.prompt(live.id(), other)?.receipt.active, other);
        ensure_eq!(at_work(store, live.id())?, Some(("another task".into(), Some("another task".into()))));
        let back = live.begin_prompt(NewPrompt::continuing(again.id, "back to the first"))?;
        ensure_eq!((back.receipt.active, back.previous), (task, Some(other)));
        let lineage = store.prompt_lineage(live.id(), back.receipt.id)?;
        ensure_eq!(lineage.iter().map(|it| it.id).collect::<Vec<_>>(), [back.receipt.id, again.id, more.id, task]);
        ensure_eq!(store.prompt_lineage(live.id(), task)?.len(), 1);
        ensure!(intact(store, live.id())?);
    }

    /// A retry points at what it tries again, a parent is a prompt that is there, and no other origin is written; what is refused
    /// leaves nothing, and the turn that was open stays open.
    fn a_retry_points_at_what_it_tries_again(store) {
        let live = thread_with(store, &[])?;
        let task = ask(&live, "a")?;
        let retry = NewPrompt { origin: PromptOrigin::HarnessRetry, ..NewPrompt::task("b") };
        ensure_err!(live.begin_prompt(retry), Error::Invalid { field: "parent", .. });
        ensure_err!(live.begin_prompt(NewPrompt::retry(some_id(7), "b")), Error::NotFound { what: "prompt", .. });
        let item = live.append(vec![say("no prompt")])?.items[0].id;
        ensure_err!(live.begin_prompt(NewPrompt::continuing(PromptId::from_item(item), "b")), Error::NotFound { what: "prompt", .. });
        let unknown = NewPrompt { origin: PromptOrigin::Unknown("web".into()), ..NewPrompt::continuing(task, "b") };
        ensure_err!(live.begin_prompt(unknown), Error::Invalid { field: "origin", .. });
        ensure_eq!(asked(store, live.id())?, ["a"]);
        ensure_eq!(store.open_turn(live.id())?, Some(1));
        ensure!(intact(store, live.id())?);
    }

    /// 256 prompts may follow each other from a root, and a further one is refused.
    fn a_lineage_has_a_bound(store) {
        let live = thread_with(store, &[])?;
        let mut last = ask(&live, "root")?;
        let root = last;
        for _ in 1..MAX_LINEAGE {
            last = go_on(&live, last, "more")?;
        }
        ensure_err!(live.begin_prompt(NewPrompt::continuing(last, "too much")), Error::Invalid { field: "parent", .. });
        let lineage = store.prompt_lineage(live.id(), last)?;
        ensure_eq!((lineage.len(), lineage.last().map(|it| it.id)), (256, Some(root)));
        ensure_eq!(at_work(store, live.id())?, Some(("more".into(), Some("root".into()))));
        ensure_eq!(store.prompts(live.id(), PromptQuery { limit: 0, ..PromptQuery::default() })?.total, 256);
    }

    /// What a prompt and an artifact point at stands on the thread's path: no other branch, no other thread.
    fn pointers_stay_on_the_path(store) {
        let live = thread_with(store, &["a"])?;
        let fork_point = live.head()?;
        let left = ask(&live, "left behind")?;
        let Some(fork_point) = fork_point else { return Err(Error::not_found("head", live.id()).into()) };
        live.rewind(fork_point)?;
        ensure_err!(live.begin_prompt(NewPrompt::continuing(left, "b")), Error::Conflict { what: "prompt", .. });
        ensure_err!(live.add_artifact(decision(left, "b")), Error::Conflict { what: "prompt", .. });
        ask(&live, "the other way")?;
        ensure_err!(live.begin_prompt(NewPrompt::retry(left, "b")), Error::Conflict { what: "prompt", .. });
        let other = thread_with(store, &[])?;
        let foreign = ask(&other, "elsewhere")?;
        ensure_err!(live.begin_prompt(NewPrompt::continuing(foreign, "b")), Error::NotFound { what: "prompt", .. });
        ensure_err!(live.add_artifact(decision(foreign, "b")), Error::NotFound { what: "prompt", .. });
        ensure!(intact(store, live.id())?);
    }

    /// A repeated call finds what the first one stored, whatever came since and whoever holds the thread now; other words under the same
    /// id are refused.
    fn a_prompt_is_stored_once(store) {
        let live = thread_with(store, &[])?;
        let new = NewPrompt { id: Some(some_id(1)), ..NewPrompt::task("once") };
        let first = live.begin_prompt(new.clone())?;
        ask(&live, "later")?;
        let again = live.begin_prompt(new.clone())?;
        ensure_eq!(again, StoredPrompt { repeated: true, ..first });
        ensure_err!(live.begin_prompt(NewPrompt { text: "other".into(), ..new.clone() }), Error::AlreadyExists { what: "prompt", .. });
        ensure_err!(live.begin_prompt(NewPrompt { raw: b"other".to_vec(), ..new.clone() }), Error::AlreadyExists { what: "prompt", .. });
        let artifact = NewArtifact { id: Some("00000000-0000-0000-0000-000000000002".parse()?), ..decision(some_id(1), "so be it") };
        let kept = live.add_artifact(artifact.clone())?.artifact;
        let repeated = live.add_artifact(artifact.clone())?;
        ensure_eq!((repeated.artifact, repeated.repeated), (kept, true));
        ensure_err!(live.add_artifact(NewArtifact { body: None, ..artifact.clone() }), Error::AlreadyExists { what: "artifact", .. });
        let taken = store.take_over(live.id(), "the clause", false)?;
        ensure!(live.begin_prompt(new)?.repeated);
        ensure!(live.add_artifact(artifact)?.repeated);
        ensure_err!(live.begin_prompt(NewPrompt::task("too late")), Error::ClaimLost { .. });
        ensure_err!(live.add_artifact(decision(some_id(1), "too late")), Error::ClaimLost { .. });
        ensure_eq!(asked(store, taken.id())?, ["once", "later"]);
        ensure!(intact(store, taken.id())?);
    }

    /// What came before a prompt, and what is worked at, goes by the path: after a rewind, after clearing, and in a fork, which sees the
    /// prompts that it shares.
    fn what_is_worked_at_goes_by_the_path(store) {
        let live = thread_with(store, &["a"])?;
        ensure_eq!(at_work(store, live.id())?, None);
        let first = live.begin_prompt(NewPrompt::task("first"))?.receipt;
        let second = ask(&live, "second")?;
        let fork = store.fork(live.id(), Some(first.address), NewThread::default())?;
        ensure_eq!(asked(store, &fork.id)?, ["first"]);
        ensure_eq!(at_work(store, &fork.id)?, Some(("first".into(), Some("first".into()))));
        ensure_err!(store.prompt(&fork.id, second), Error::NotFound { what: "prompt", .. });
        let branched = store.resume(&fork.id, false)?;
        let here = branched.begin_prompt(NewPrompt::continuing(first.id, "in the fork"))?;
        ensure_eq!((here.previous, here.receipt.active), (Some(first.id), first.id));
        ensure_eq!(store.prompt_lineage(&fork.id, here.receipt.id)?.len(), 2);
        ensure_err!(store.prompt(live.id(), here.receipt.id), Error::NotFound { what: "prompt", .. });
        live.rewind(first.address)?;
        ensure_eq!(at_work(store, live.id())?, Some(("first".into(), Some("first".into()))));
        ensure_eq!(live.begin_prompt(NewPrompt::task("third"))?.previous, Some(first.id));
        ensure_eq!(asked(store, live.id())?, ["first", "third"]);
        // What was left behind is read where it stands.
        let at = store.prompt(live.id(), second)?.receipt.address;
        let there = store.prompt_context(live.id(), Some(at))?;
        ensure_eq!(there.map(|there| there.submitted.text), Some("second".to_owned()));
        live.clear()?;
        ensure_eq!(at_work(store, live.id())?, None);
        ensure_eq!(live.begin_prompt(NewPrompt::task("afresh"))?.previous, None);
        ensure!(intact(store, live.id())? && intact(store, &fork.id)?);
    }

    /// Pages of prompts and artifacts go both ways along the path, keep to it, and say how many there are.
    fn receipts_come_in_pages(store) {
        let live = thread_with(store, &[])?;
        let task = ask(&live, "p0")?;
        for number in 1..7 {
            live.append(vec![say("in between")])?;
            go_on(&live, task, &format!("p{number}"))?;
        }
        ask(&live, "another")?;
        let texts = |query: PromptQuery| -> Result<Vec<String>, Error> {
            Ok(prompts(store, live.id(), &PromptQuery { limit: 3, ..query })?.into_iter().map(|it| it.text).collect())
        };
        let all = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "another"];
        let mut back = all;
        back.reverse();
        ensure_eq!(texts(PromptQuery::default())?, all);
        ensure_eq!(texts(PromptQuery { newest_first: true, ..PromptQuery::default() })?, back);
        ensure_eq!(texts(PromptQuery { root: Some(task), ..PromptQuery::default() })?, all[..7]);
        let query = PromptQuery { limit: 2, newest_first: true, ..PromptQuery::default() };
        let page = store.prompts(live.id(), query.clone())?;
        ensure_eq!(page.entries.iter().map(|it| it.previous.is_some()).collect::<Vec<_>>(), [true, true]);
        ask(&live, "meanwhile")?;
        let next = store.prompts(live.id(), PromptQuery { cursor: page.next_cursor.clone(), ..query.clone() })?;
        ensure_eq!(next.entries.iter().map(|it| it.text.as_str()).collect::<Vec<_>>(), ["p5", "p4"]);
        ensure_eq!(next.total, 8);
        let other = PromptQuery { cursor: page.next_cursor, newest_first: false, ..query };
        ensure_err!(store.prompts(live.id(), other), Error::Invalid { field: "cursor", .. });
        let none = store.prompts(live.id(), PromptQuery { limit: 0, ..PromptQuery::default() })?;
        ensure_eq!((none.entries.len(), none.total, none.next_cursor), (0, 9, None));
    }

    /// A prompt or an artifact of a thread that is fenced off, or that is another one's, reads as absent.
    fn foreign_receipts_are_absent(store) {
        let live = thread_with(store, &[])?;
        let task = ask(&live, "here")?;
        let artifact = live.add_artifact(decision(task, "so"))?.artifact;
        let other = thread_with(store, &["a"])?;
        ensure_err!(store.prompt(other.id(), task), Error::NotFound { what: "prompt", .. });
        ensure_err!(store.artifact(other.id(), artifact.id), Error::NotFound { what: "artifact", .. });
        ensure_err!(store.find_prompt(other.id(), &task.to_string()), Error::NotFound { .. });
        ensure_err!(store.prompt_lineage(other.id(), task), Error::NotFound { .. });
        ensure_eq!(artifacts(store, other.id(), ArtifactsOf::Prompt(task))?.len(), 0);
        let fenced = store.workspace("/conformance/elsewhere".as_ref())?;
        ensure_err!(fenced.prompt(live.id(), task), Error::NotFound { what: "thread", .. });
        ensure_err!(fenced.artifacts(live.id(), ArtifactQuery::default()), Error::NotFound { what: "thread", .. });
        ensure_eq!(store.find_prompt(live.id(), &task.to_string()[..20])?, task);
        ensure_eq!(store.find_prompt(live.id(), &task.item().to_string())?, task);
        ensure_eq!(store.find_artifact(live.id(), &artifact.id.to_string())?, artifact.id);
    }

    /// More than a prompt or an artifact may have is refused with the name of the field, and nothing is stored.
    fn what_is_too_large_is_refused(store) {
        let live = thread_with(store, &[])?;
        let raw = NewPrompt { raw: vec![b'x'; MAX_PROMPT_BYTES + 1], ..NewPrompt::task("a") };
        ensure_err!(live.begin_prompt(raw), Error::Invalid { field: "raw", .. });
        let text = NewPrompt { raw: Vec::new(), ..NewPrompt::task("x".repeat(MAX_PROMPT_BYTES + 1)) };
        ensure_err!(live.begin_prompt(text), Error::Invalid { field: "text", .. });
        ensure_eq!(store.get(live.id())?.items, 0);
        let task = ask(&live, "")?;
        let new = || decision(task, "b");
        let of = |locator: usize, body: usize, metadata: String| NewArtifact {
            locator: Some("l".repeat(locator)),
            body: Some("b".repeat(body)),
            metadata,
            ..new()
        };
        let object = |bytes: usize| format!("{{\"k\":\"{}\"}}", "v".repeat(bytes - 8));
        let most = of(MAX_LOCATOR_BYTES, MAX_ARTIFACT_BODY_BYTES, object(MAX_METADATA_BYTES));
        ensure_eq!(live.add_artifact(most.clone())?.artifact.metadata, most.metadata);
        ensure_err!(live.add_artifact(of(MAX_LOCATOR_BYTES + 1, 1, "{}".into())), Error::Invalid { field: "locator", .. });
        ensure_err!(live.add_artifact(of(1, MAX_ARTIFACT_BODY_BYTES + 1, "{}".into())), Error::Invalid { field: "body", .. });
        ensure_err!(live.add_artifact(of(1, 1, object(MAX_METADATA_BYTES + 1))), Error::Invalid { field: "metadata", .. });
        for wrong in ["", "[]", "7", "{", "null", "{}x"] {
            ensure_err!(live.add_artifact(of(1, 1, wrong.into())), Error::Invalid { field: "metadata", .. });
        }
        let unknown = NewArtifact { kind: ArtifactKind::Unknown("poem".into()), ..new() };
        ensure_err!(live.add_artifact(unknown), Error::Invalid { field: "kind", .. });
        let unknown = NewArtifact { relation: ArtifactRelation::Unknown("dislikes".into()), ..new() };
        ensure_err!(live.add_artifact(unknown), Error::Invalid { field: "relation", .. });
        ensure_eq!(artifacts(store, live.id(), ArtifactsOf::Path)?.len(), 1);
    }

    /// An artifact belongs to the task of its prompt; its number counts what the thread wrote, without gaps and on whatever branch; its
    /// metadata stays as it was given, to the byte.
    fn artifacts_belong_to_the_task_of_their_prompt(store) {
        let live = thread_with(store, &[])?;
        let task = ask(&live, "task")?;
        let more = go_on(&live, task, "more")?;
        let metadata = " {\"b\": 1.0,\n \"a\":\"\\u0000\", \"a\":2 } ";
        let commit = NewArtifact {
            metadata: metadata.to_owned(),
            locator: Some("4f2a".to_owned()),
            ..NewArtifact::new(more, ArtifactKind::Commit, ArtifactRelation::Realizes)
        };
        let commit = live.add_artifact(commit)?.artifact;
        ensure_eq!((commit.number, commit.prompt, commit.root), (1, more, task));
        ensure_eq!((commit.metadata.as_str(), commit.body.as_deref(), commit.turn), (metadata, None, Some(2)));
        ensure_eq!(store.artifact(live.id(), commit.id)?, commit);
        let item = store.item(live.id(), commit.address)?;
        ensure_eq!((item.format.as_str(), Artifact::try_from(&item)?), (ARTIFACT_FORMAT, commit.clone()));
        ensure_eq!(live.add_artifact(decision(task, "of the task"))?.artifact.number, 2);
        let other = ask(&live, "another task")?;
        ensure_eq!(live.add_artifact(decision(other, "of another"))?.artifact.root, other);
        let of = |of| artifacts(store, live.id(), of);
        ensure_eq!(of(ArtifactsOf::Path)?.iter().map(|it| it.number).collect::<Vec<_>>(), [1, 2, 3]);
        ensure_eq!(of(ArtifactsOf::Prompt(more))?, std::slice::from_ref(&commit));
        ensure_eq!(bodies(&of(ArtifactsOf::Prompt(task))?), ["of the task"]);
        ensure_eq!(of(ArtifactsOf::Task(task))?.len(), 2);
        ensure_eq!(of(ArtifactsOf::Task(more))?.len(), 0);
        live.rewind(commit.address)?;
        ensure_eq!(live.add_artifact(decision(task, "on another branch"))?.artifact.number, 4);
        ensure_eq!(of(ArtifactsOf::Path)?.iter().map(|it| it.number).collect::<Vec<_>>(), [1, 4]);
        let fork = store.fork(live.id(), None, NewThread::default())?;
        let forked = store.resume(&fork.id, false)?;
        ensure_eq!(forked.add_artifact(decision(more, "in the fork"))?.artifact.number, 1);
        ensure_eq!(artifacts(store, &fork.id, ArtifactsOf::Task(task))?.len(), 3);
        ensure_eq!(of(ArtifactsOf::Prompt(more))?.len(), 1);
        ensure!(intact(store, live.id())? && intact(store, &fork.id)?);
    }

    /// Taking content away takes the words of a prompt and of an artifact, raw bytes, locator and metadata too, and leaves where they
    /// stand, so that what follows them can still be followed.
    fn redaction_takes_words_and_leaves_places(store) {
        let live = thread_with(store, &[])?;
        let secret = "hunter2-of-the-clause";
        let raw = [b"\xff typed ", secret.as_bytes()].concat();
        let first = live.begin_prompt(NewPrompt { raw, ..NewPrompt::task(format!("given {secret}")) })?.receipt;
        let artifact = NewArtifact {
            locator: Some(format!("https://x/{secret}")),
            metadata: format!("{{\"a\": \"{secret}\" }}"),
            ..decision(first.id, &format!("body {secret}"))
        };
        let artifact = live.add_artifact(artifact)?.artifact;
        let second = live.begin_prompt(NewPrompt::continuing(first.id, "all of it goes"))?.receipt;
        let options = || RedactOptions { reason: "the clause".into(), ..RedactOptions::default() };
        let report = store.redact_matching(None, Rules::literal(secret)?, options(), true, |_, _| {})?;
        ensure_eq!(report.redacted, 2);
        let masked = store.prompt(live.id(), first.id)?;
        ensure_eq!(masked.receipt, first);
        ensure_eq!((masked.raw, masked.text.as_str()), (b"\xff typed [redacted:literal]".to_vec(), "given [redacted:literal]"));
        ensure!(masked.redaction.is_some());
        let after = store.artifact(live.id(), artifact.id)?;
        ensure_eq!(after.locator.as_deref(), Some("https://x/[redacted:literal]"));
        ensure_eq!((after.body.as_deref(), after.metadata.as_str()), (Some("body [redacted:literal]"), "{\"a\": \"[redacted:literal]\" }"));
        ensure_eq!((after.number, after.prompt), (1, first.id));
        store.redact(live.id(), vec![second.address, first.address, artifact.address], options())?;
        let gone = store.prompt(live.id(), second.id)?;
        ensure_eq!((gone.receipt, gone.text.as_str(), gone.raw), (second.clone(), "[redacted]", b"[redacted]".to_vec()));
        ensure_eq!(store.artifact(live.id(), artifact.id)?.metadata, "{}");
        ensure_eq!(store.redact(live.id(), vec![second.address], options())?.redacted, 0);
        ensure_eq!(store.prompt_lineage(live.id(), second.id)?.len(), 2);
        ensure_eq!(go_on(&live, second.id, "and on")?, asked_last(store, live.id())?);
        ensure!(intact(store, live.id())?);
    }

    /// The prompts of a purged thread go with it, but for those that a fork shares.
    fn purging_takes_what_is_not_shared(store) {
        let live = thread_with(store, &[])?;
        let shared = live.begin_prompt(NewPrompt::task("shared"))?.receipt;
        let artifact = live.add_artifact(decision(shared.id, "shared too"))?.artifact;
        ask(&live, "alone")?;
        let fork = store.fork(live.id(), Some(artifact.address), NewThread::default())?;
        let before = store.stats()?;
        ensure_eq!((before.prompts, before.artifacts), (2, 1));
        live.shutdown()?;
        store.delete(live.id())?;
        store.purge(live.id())?;
        let after = store.stats()?;
        ensure_eq!((after.prompts, after.artifacts), (1, 1));
        ensure_eq!(asked(store, &fork.id)?, ["shared"]);
        ensure_eq!(store.artifact(&fork.id, artifact.id)?, artifact);
        let forked = store.resume(&fork.id, false)?;
        ensure_eq!(go_on(&forked, shared.id, "goes on")?, asked_last(store, &fork.id)?);
        ensure!(intact(store, &fork.id)?);
        forked.shutdown()?;
        store.delete(&fork.id)?;
        store.purge(&fork.id)?;
        let last = store.stats()?;
        ensure_eq!((last.prompts, last.artifacts, last.items), (0, 0, 0));
    }

    /// Taking a message may store its prompt as a receipt, in the same transaction: once, and found again by its token.
    fn a_message_becomes_a_receipt_once(store) {
        let live = thread_with(store, &[])?;
        let task = ask(&live, "task")?;
        live.end_turn(TurnEnd::completed())?;
        store.inject_message(live.id(), NewMessage::text("the clause", "by the way"))?;
        store.inject_message(live.id(), NewMessage::text("the clause", "plain"))?;
        let token = Some(Uuid::from_u128(5));
        let how = TakeMessage { token, prompt: PromptAs::Receipt { parent: Some(task) }, ..TakeMessage::default() };
        let taken = live.take_message(how)?.ok_or_else(|| Error::not_found("message", live.id()))?;
        let id = taken.receipt.ok_or_else(|| Error::not_found("receipt", live.id()))?;
        ensure_eq!(taken.message.prompt, Some(id.item()));
        let prompt = store.prompt(live.id(), id)?;
        ensure_eq!((prompt.text.as_str(), prompt.receipt.parent, prompt.receipt.active), ("by the way", Some(task), task));
        ensure_eq!((prompt.receipt.address, prompt.receipt.turn), (taken.prompt, taken.message.turn));
        let again = live.take_message(how)?.ok_or_else(|| Error::not_found("message", live.id()))?;
        ensure_eq!((again.receipt, again.prompt, again.repeated), (Some(id), taken.prompt, true));
        live.end_turn(TurnEnd::completed())?;
        let item = store.item(live.id(), taken.prompt)?.source_id;
        ensure_eq!(item, Some(format!("inbox:{}", taken.message.id)));
        // A receipt that can't be is no reason to lose the message.
        let wrong = TakeMessage { token: None, prompt: PromptAs::Receipt { parent: Some(some_id(7)) }, past_unfinished: true, ..how };
        ensure_err!(live.take_message(wrong), Error::NotFound { what: "prompt", .. });
        let plain = TakeMessage { prompt: PromptAs::Item, ..wrong };
        let taken = live.take_message(plain)?.ok_or_else(|| Error::not_found("message", live.id()))?;
        ensure_eq!((taken.message.body.as_str(), taken.receipt), ("plain", None));
        ensure_eq!(asked(store, live.id())?, ["task", "by the way"]);
        ensure!(intact(store, live.id())?);
    }

    /// A prompt may come into the open turn, and is refused when there is none.
    fn a_prompt_comes_into_the_open_turn(store) {
        let live = thread_with(store, &[])?;
        let open = |text: &str| NewPrompt { turn: PromptTurn::Open, ..NewPrompt::task(text) };
        ensure_err!(live.begin_prompt(open("early")), Error::NotFound { what: "open turn", .. });
        ask(&live, "task")?;
        let stored = live.begin_prompt(open("steered"))?;
        ensure_eq!(stored.receipt.turn, Some(1));
        ensure_eq!(store.turns(live.id(), crate::TurnQuery::default())?.entries.len(), 1);
    }

    /// What says that it is a receipt is stored as one or not at all, and a thread that keeps only some kinds of items keeps its receipts.
    fn no_append_passes_for_a_receipt(store) {
        let keeps_nothing = NewThread { policy: Policy::Only(vec![Kind::Reasoning]), ..NewThread::default() };
        let live = workspace(store)?.create_now(keeps_nothing)?;
        let task = ask(&live, "kept")?;
        live.add_artifact(decision(task, "kept too"))?;
        let item = live.load_history(ItemQuery::default())?.entries.remove(0);
        ensure_eq!(live.load_history(ItemQuery::default())?.entries.len(), 2);
        for format in [PROMPT_FORMAT, ARTIFACT_FORMAT] {
            let forged = NewItem::raw(Kind::Reasoning, format, item.content.clone());
            ensure_err!(live.append(vec![forged.clone()]), Error::Invalid { field: "format", .. });
            ensure_err!(live.begin_turn(forged), Error::Invalid { field: "format", .. });
        }
        ensure_eq!(asked(store, live.id())?, ["kept"]);
    }

    /// Where a path is written anew because a call had no result, its prompts and artifacts are written anew as well, and point at each
    /// other.
    fn a_path_that_is_mended_has_its_receipts(store) {
        let live = thread_with(store, &[])?;
        let task = ask(&live, "task")?;
        live.append(vec![NewItem::tool_call("c1", "shell", "{}")])?;
        let more = go_on(&live, task, "more")?;
        live.add_artifact(decision(more, "decided"))?;
        let last = go_on(&live, more, "last")?;
        live.discard()?;
        let live = store.resume(live.id(), false)?;
        ensure_eq!(live.repair_turns()?.rewritten, 3);
        let now = prompts(store, live.id(), &PromptQuery::default())?;
        ensure_eq!(now.iter().map(|it| it.text.as_str()).collect::<Vec<_>>(), ["task", "more", "last"]);
        ensure!(now[1].receipt.id != more && now[2].receipt.id != last);
        ensure_eq!((now[0].receipt.id, now[1].receipt.parent), (task, Some(task)));
        ensure_eq!((now[2].receipt.parent, now[2].receipt.active), (Some(now[1].receipt.id), task));
        let decided = artifacts(store, live.id(), ArtifactsOf::Path)?;
        ensure_eq!((decided[0].prompt, decided[0].root, decided[0].number), (now[1].receipt.id, task, 2));
        ensure_eq!(store.prompt_lineage(live.id(), now[2].receipt.id)?.len(), 3);
        ensure!(intact(store, live.id())?);
    }

    /// Whoever reads items reads prompts: search finds what they say.
    fn what_prompts_say_is_found(store) {
        let live = thread_with(store, &[])?;
        let task = ask(&live, "mend the zeppelin")?;
        live.add_artifact(decision(task, "with duct tape"))?;
        let found = |words: &str| -> Result<Vec<String>, Error> {
            let page = store.search(SearchQuery::new(words))?;
            Ok(page.threads.into_iter().map(|found| format!("{found:?}")).collect())
        };
        ensure_eq!(found("zeppelin role:user")?.len(), 1);
        ensure_eq!(found("\"duct tape\"")?.len(), 1);
        ensure_eq!(found("threadkeep.prompt")?.len(), 0);
    }
}

fn asked_last(store: &Store, thread: &ThreadId) -> Result<PromptId, Error> {
    let context = store.prompt_context(thread, None)?;
    context.map(|context| context.submitted.receipt.id).ok_or_else(|| Error::not_found("prompt", thread))
}
