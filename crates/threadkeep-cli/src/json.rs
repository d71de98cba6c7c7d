//! The documents of `--json`. Keys are stable: more may be added, none changes its meaning.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use threadkeep::{
    Address, Artifact, Branch, Break, Holder, Item, Prompt, Receipt, Redaction, Stats, Thread, Timestamp, Tree, View,
    WorkspaceInfo,
};

/// A thread.
pub(crate) fn thread(thread: &Thread) -> Value {
    let details = &thread.details;
    json!({
        "id": thread.id,
        "title": details.title,
        "preview": details.preview,
        "name": thread.name(),
        "agent": details.agent,
        "workspace": thread.workspace,
        "workspace_name": thread.workspace_name,
        "cwd": details.cwd,
        "status": thread.status,
        "shelf": thread.shelf,
        "archived": thread.archived_at.is_some(),
        "pinned": thread.pinned,
        "ephemeral": thread.ephemeral,
        "policy": thread.policy,
        "live": thread.live,
        "holder": thread.holder.as_ref().map(holder),
        "items": thread.items,
        "shared_items": shared_items(thread),
        "branches": thread.branches,
        "turns": thread.turns,
        "head": thread.head,
        "head_hash": thread.head_hash,
        "forked_from": thread.forked_from,
        "fork_point": thread.fork_point,
        "parent": details.parent,
        "source": details.source,
        "provider": details.provider,
        "model": details.model,
        "persona": details.persona,
        "cli_version": details.cli_version,
        "working_path": details.working_path,
        "git": {"sha": details.git_sha, "branch": details.git_branch, "origin": details.git_origin},
        "sandbox_policy": details.sandbox_policy,
        "approval_policy": details.approval_policy,
        "memory_mode": details.memory_mode,
        "usage": details.usage,
        "extra": details.extra,
        "end_reason": details.end_reason,
        "version": thread.version,
        "created_at": time(thread.created_at),
        "updated_at": time(thread.updated_at),
        "archived_at": thread.archived_at.map(time),
        "trashed_at": thread.trashed_at.map(time),
        "ended_at": thread.ended_at.map(time),
    })
}

/// How many items a fork shares with the threads that it came from.
pub(crate) fn shared_items(thread: &Thread) -> i64 {
    thread.fork_point.map_or(0, |point| i64::from(point.depth) + 1)
}

/// The holder of a claim.
pub(crate) fn holder(holder: &Holder) -> Value {
    json!({
        "label": holder.label,
        "hostname": holder.hostname,
        "pid": holder.pid,
        "start_ticks": holder.start_ticks,
        "acquired_at": time(holder.acquired_at),
        "heartbeat_at": time(holder.heartbeat_at),
    })
}

/// An item with its readable text.
pub(crate) fn item(item: &Item, view: &View) -> Value {
    let value = plain_item(item, view);
    // What it is beside an item: nothing for one that is no receipt.
    let prompt = Receipt::try_from(item).ok().map(|prompt| ("prompt", receipt(&prompt)));
    let artifact = Artifact::try_from(item).ok().map(|found| ("artifact", artifact(&found)));
    with(value, prompt.into_iter().chain(artifact))
}

/// A document with more fields.
pub(crate) fn with(mut value: Value, more: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.extend(more.into_iter().map(|(key, value)| (key.to_owned(), value)));
    }
    value
}

fn plain_item(item: &Item, view: &View) -> Value {
    json!({
        "id": item.id,
        "thread": item.thread,
        "branch": item.branch,
        "depth": item.depth,
        "turn": item.turn,
        "kind": item.kind,
        "role": item.role.as_ref().or(view.role.as_ref()),
        "text": view.to_text(),
        "format": item.format,
        "damaged": view.damaged,
        "synthetic": view.synthetic,
        "usage": view.usage,
        "source_id": item.source_id,
        "created_at": time(item.created_at),
        "hash": item.hash,
        "redaction": item.redaction.as_deref().map(redaction),
    })
}

/// Where a prompt stands.
pub(crate) fn receipt(receipt: &Receipt) -> Value {
    json!({
        "id": receipt.id,
        "thread": receipt.thread,
        "branch": receipt.address.branch,
        "depth": receipt.address.depth,
        "turn": receipt.turn,
        "origin": receipt.origin,
        "parent": receipt.parent,
        "root": receipt.root,
        "active": receipt.active,
        "generation": receipt.generation,
        "created_at": time(receipt.created_at),
    })
}

/// A prompt: what was typed is `raw` where it is text, else `raw_base64`.
pub(crate) fn prompt(prompt: &Prompt) -> Value {
    let (key, raw) = match std::str::from_utf8(&prompt.raw) {
        Ok(text) => ("raw", text.to_owned()),
        Err(_) => ("raw_base64", STANDARD.encode(&prompt.raw)),
    };
    let more = [
        (key, raw.into()),
        ("text", prompt.text.as_str().into()),
        ("previous", json!(prompt.previous)),
        ("redaction", prompt.redaction.as_ref().map(redaction).into()),
        ("damage", prompt.damage.as_deref().into()),
    ];
    with(receipt(&prompt.receipt), more)
}

/// An artifact; its metadata is text, as it was given.
pub(crate) fn artifact(artifact: &Artifact) -> Value {
    json!({
        "id": artifact.id,
        "thread": artifact.thread,
        "number": artifact.number,
        "branch": artifact.address.branch,
        "depth": artifact.address.depth,
        "turn": artifact.turn,
        "prompt": artifact.prompt,
        "root": artifact.root,
        "kind": artifact.kind,
        "relation": artifact.relation,
        "locator": artifact.locator,
        "body": artifact.body,
        "metadata": artifact.metadata,
        "created_at": time(artifact.created_at),
        "redaction": artifact.redaction.as_ref().map(redaction),
        "damage": artifact.damage,
    })
}

/// Who took an item's content away.
fn redaction(told: &Redaction) -> Value {
    json!({
        "by": told.by,
        "at": time(told.at),
        "reason": told.reason,
        "rule": told.rule,
        "masked": told.masked,
    })
}

/// An item with its stored bytes: `content` where they are text, else `content_base64`.
pub(crate) fn raw_item(item: &Item, view: &View) -> Value {
    let mut value = self::item(item, view);
    if let Value::Object(fields) = &mut value {
        let (key, content) = match std::str::from_utf8(&item.content) {
            Ok(text) => ("content", text.to_owned()),
            Err(_) => ("content_base64", STANDARD.encode(&item.content)),
        };
        fields.insert(key.to_owned(), content.into());
    }
    value
}

/// A tree.
pub(crate) fn tree(tree: &Tree) -> Value {
    json!({
        "thread": tree.thread,
        "head": tree.head,
        "branches": tree.branches.iter().map(branch).collect::<Vec<_>>(),
        "leaves": tree.leaves(),
    })
}

fn branch(branch: &Branch) -> Value {
    json!({
        "branch": branch.id,
        "thread": branch.thread,
        "parent": branch.parent.map(|parent| parent.branch),
        "fork_depth": branch.parent.map(|parent| parent.depth),
        "base_depth": branch.base,
        "tip_depth": branch.tip,
        "tip_hash": branch.tip_hash,
        "items": branch.items(),
        "active": branch.active,
        "cleared": branch.cleared,
        "label": branch.label,
    })
}

/// A break in a thread's chain.
pub(crate) fn invalid(thread: &threadkeep::ThreadId, found: &Break) -> Value {
    json!({"thread": thread, "branch": found.branch, "depth": found.depth, "reason": found.reason})
}

/// A key that seals are signed with.
pub(crate) fn key(key: &threadkeep::Key) -> Value {
    let info = &key.info;
    let vouched_by = info.vouched_by.as_ref().map(|voucher| voucher.public.id());
    json!({
        "id": info.id,
        "public": info.public,
        "created_at": info.created_at.to_string(),
        "active": key.active,
        "vouched_by": vouched_by,
    })
}

/// An address within a thread.
pub(crate) fn place(thread: &threadkeep::ThreadId, address: Address) -> Value {
    json!({"thread": thread, "branch": address.branch, "depth": address.depth})
}

/// A workspace.
pub(crate) fn workspace(info: &WorkspaceInfo) -> Value {
    let keys: Vec<_> = info.keys.iter().map(|(kind, key)| json!({"kind": kind, "key": key})).collect();
    json!({
        "id": info.id,
        "name": info.name,
        "threads": info.threads,
        "keys": keys,
        "created_at": time(info.created_at),
    })
}

/// The numbers of a store.
pub(crate) fn stats(stats: &Stats) -> Map<String, Value> {
    let agent =
        |agent: &threadkeep::AgentStats| json!({"agent": agent.agent, "threads": agent.threads, "items": agent.items});
    let by_word = |counts: &[threadkeep::WordCount]| {
        Value::Object(counts.iter().map(|it| (it.word.clone(), it.count.into())).collect())
    };
    let jobs: Map<String, Value> =
        stats.jobs.iter().map(|jobs| (jobs.status.as_str().to_owned(), jobs.jobs.into())).collect();
    let fields: [(&str, Value); 29] = [
        ("workspaces", stats.workspaces.into()),
        ("threads", (stats.active + stats.archived + stats.trashed).into()),
        ("active", stats.active.into()),
        ("archived", stats.archived.into()),
        ("trashed", stats.trashed.into()),
        ("stubs", stats.stubs.into()),
        ("items", stats.items.into()),
        ("branches", stats.branches.into()),
        ("turns", stats.turns.into()),
        ("content_bytes", stats.content_bytes.into()),
        ("stored_bytes", stats.stored_bytes.into()),
        ("blobs", stats.blobs.into()),
        ("blob_bytes", stats.blob_bytes.into()),
        ("stored_blob_bytes", stats.stored_blob_bytes.into()),
        ("goals", stats.goals.into()),
        ("jobs", jobs.into()),
        ("checkpoints", stats.checkpoints.into()),
        ("checkpoint_bytes", stats.checkpoint_bytes.into()),
        ("stored_checkpoint_bytes", stats.stored_checkpoint_bytes.into()),
        ("prompts", stats.prompts.into()),
        ("artifacts", stats.artifacts.into()),
        ("documents", stats.documents.into()),
        ("document_versions", stats.document_versions.into()),
        ("roadmaps", stats.roadmaps.into()),
        ("runs", by_word(&stats.runs)),
        ("messages", by_word(&stats.messages)),
        ("requests", by_word(&stats.requests)),
        ("file_bytes", stats.file_bytes.into()),
        ("agents", stats.agents.iter().map(agent).collect()),
    ];
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A time in RFC 3339, UTC.
pub(crate) fn time(time: Timestamp) -> String {
    time.to_string()
}
