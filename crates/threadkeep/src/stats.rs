//! What a store holds, in numbers.

use serde::Serialize;

use crate::db::{Tx, query_all, query_one, statements};
use crate::error::Result;
use crate::jobs::JobStatus;

statements! {
    COUNT_THREADS = "SELECT shelf, count(*), CAST(coalesce(sum(items), 0) AS BIGINT), CAST(coalesce(sum(branches), 0) AS BIGINT),
        CAST(coalesce(sum(turns), 0) AS BIGINT) FROM threads GROUP BY shelf ORDER BY shelf";
    COUNT_AGENTS = "SELECT coalesce(agent, ''), count(*), CAST(coalesce(sum(items), 0) AS BIGINT) FROM threads WHERE shelf < 2 GROUP BY 1 ORDER BY 2 DESC, 1";
    CONTENT_BYTES = "SELECT CAST(coalesce(sum(size), 0) AS BIGINT), CAST(coalesce(sum(length(content)), 0) AS BIGINT) FROM items";
    BLOB_BYTES = "SELECT count(*), CAST(coalesce(sum(size), 0) AS BIGINT), CAST(coalesce(sum(length(data)), 0) AS BIGINT) FROM blobs";
    COUNT_WORKSPACES = "SELECT count(*) FROM workspaces";
    COUNT_GOALS = "SELECT count(*) FROM goals";
    COUNT_JOBS = "SELECT status, count(*) FROM jobs GROUP BY status ORDER BY status";
    COUNT_CHECKPOINTS = "SELECT count(*), CAST(coalesce(sum(s.size), 0) AS BIGINT)
        FROM checkpoints c JOIN checkpoint_states s ON s.thread = c.thread AND s.digest = c.digest";
    COUNT_RECEIPTS = "SELECT count(*) FROM prompts";
    COUNT_ALL_ARTIFACTS = "SELECT count(*) FROM artifacts";
    COUNT_DOCUMENTS = "SELECT count(*) FROM document_versions WHERE is_current = 1 AND digest IS NOT NULL";
    COUNT_DOCUMENT_VERSIONS = "SELECT count(*) FROM document_versions";
    COUNT_ROADMAPS = "SELECT count(*) FROM roadmaps";
    COUNT_RUNS = "SELECT status, count(*) FROM runs GROUP BY status ORDER BY status";
    COUNT_MESSAGES = "SELECT state, count(*) FROM messages GROUP BY state ORDER BY state";
    COUNT_REQUESTS = "SELECT state, count(*) FROM requests GROUP BY state ORDER BY state";
    STATE_BYTES = "SELECT CAST(coalesce(sum(length(data)), 0) AS BIGINT) FROM checkpoint_states";
}

/// The numbers of a store. Counting bytes reads every item once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Workspaces.
    pub workspaces: i64,
    /// Active threads.
    pub active: i64,
    /// Archived threads.
    pub archived: i64,
    /// Threads in the trash.
    pub trashed: i64,
    /// Purged threads of which shared items are left.
    pub stubs: i64,
    /// Items, shared ones counted once.
    pub items: i64,
    /// Branches.
    pub branches: i64,
    /// Turns.
    pub turns: i64,
    /// Bytes of content as they were given.
    pub content_bytes: i64,
    /// Bytes of content as they are stored, payloads apart.
    pub stored_bytes: i64,
    /// Payloads that are stored once.
    pub blobs: i64,
    /// Their bytes as they were given.
    pub blob_bytes: i64,
    /// Their bytes as they are stored.
    pub stored_blob_bytes: i64,
    /// Goals that threads have.
    pub goals: i64,
    /// Jobs, by status.
    pub jobs: Vec<JobStats>,
    /// Checkpoints.
    pub checkpoints: i64,
    /// Bytes of their states as they were given.
    pub checkpoint_bytes: i64,
    /// Bytes of their states as they are stored: compressed, and equal states of a thread once.
    pub stored_checkpoint_bytes: i64,
    /// Prompts that were stored as receipts.
    pub prompts: i64,
    /// Artifacts of prompts.
    pub artifacts: i64,
    /// Documents that threads have.
    pub documents: i64,
    /// Their versions, those of deleted ones included.
    pub document_versions: i64,
    /// Roadmaps.
    pub roadmaps: i64,
    /// Workflow runs, by status.
    pub runs: Vec<WordCount>,
    /// Messages in inboxes, by state as it is stored.
    pub messages: Vec<WordCount>,
    /// Requests, by state as it is stored.
    pub requests: Vec<WordCount>,
    /// Bytes of the store's files, or of its tables on a server.
    pub file_bytes: i64,
    /// Threads and items by agent, most threads first; no agent is the empty name.
    pub agents: Vec<AgentStats>,
}

/// The number of jobs in one status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobStats {
    /// The status.
    pub status: JobStatus,
    /// How many jobs are in it.
    pub jobs: i64,
}

/// How many there are of one word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WordCount {
    /// The word of a status or a state, as it is stored.
    pub word: String,
    /// How many have it.
    pub count: i64,
}

/// The numbers of one agent's threads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentStats {
    /// The agent.
    pub agent: String,
    /// Its threads, the trash left out.
    pub threads: i64,
    /// Their items.
    pub items: i64,
}

/// Counts.
pub(crate) fn count(tx: &mut dyn Tx) -> Result<Stats> {
    let mut stats =
        Stats { workspaces: query_one(tx, COUNT_WORKSPACES, &[], |row| row.int(0))?.unwrap_or(0), ..Stats::default() };
    let shelves =
        query_all(tx, COUNT_THREADS, &[], |row| Ok((row.int(0)?, row.int(1)?, row.int(2)?, row.int(3)?, row.int(4)?)))?;
    for (shelf, threads, items, branches, turns) in shelves {
        match shelf {
            0 => stats.active = threads,
            1 => stats.archived = threads,
            2 => stats.trashed = threads,
            _ => stats.stubs = threads,
        }
        stats.items += items;
        stats.branches += branches;
        stats.turns += turns;
    }
    stats.agents = query_all(tx, COUNT_AGENTS, &[], |row| {
        Ok(AgentStats { agent: row.text(0)?.to_owned(), threads: row.int(1)?, items: row.int(2)? })
    })?;
    if let Some((given, stored)) = query_one(tx, CONTENT_BYTES, &[], |row| Ok((row.int(0)?, row.int(1)?)))? {
        (stats.content_bytes, stats.stored_bytes) = (given, stored);
    }
    if let Some((count, given, stored)) =
        query_one(tx, BLOB_BYTES, &[], |row| Ok((row.int(0)?, row.int(1)?, row.int(2)?)))?
    {
        (stats.blobs, stats.blob_bytes, stats.stored_blob_bytes) = (count, given, stored);
    }
    count_state(tx, &mut stats)?;
    stats.file_bytes = bytes_on_disk(tx)?;
    Ok(stats)
}

/// Counts what stands beside the log.
fn count_state(tx: &mut dyn Tx, stats: &mut Stats) -> Result<()> {
    let number = |tx: &mut dyn Tx, statement| Ok(query_one(tx, statement, &[], |row| row.int(0))?.unwrap_or(0));
    stats.goals = number(tx, COUNT_GOALS)?;
    stats.jobs = query_all(tx, COUNT_JOBS, &[], |row| {
        Ok(JobStats { status: JobStatus::from_word(row.text(0)?), jobs: row.int(1)? })
    })?;
    if let Some((count, given)) = query_one(tx, COUNT_CHECKPOINTS, &[], |row| Ok((row.int(0)?, row.int(1)?)))? {
        (stats.checkpoints, stats.checkpoint_bytes) = (count, given);
    }
    stats.stored_checkpoint_bytes = number(tx, STATE_BYTES)?;
    stats.prompts = number(tx, COUNT_RECEIPTS)?;
    stats.artifacts = number(tx, COUNT_ALL_ARTIFACTS)?;
    stats.documents = number(tx, COUNT_DOCUMENTS)?;
    stats.document_versions = number(tx, COUNT_DOCUMENT_VERSIONS)?;
    stats.roadmaps = number(tx, COUNT_ROADMAPS)?;
    let by_word = |tx: &mut dyn Tx, statement| {
        query_all(tx, statement, &[], |row| Ok(WordCount { word: row.text(0)?.to_owned(), count: row.int(1)? }))
    };
    stats.runs = by_word(tx, COUNT_RUNS)?;
    stats.messages = by_word(tx, COUNT_MESSAGES)?;
    stats.requests = by_word(tx, COUNT_REQUESTS)?;
    Ok(())
}

/// What the tables take on a server; 0 where the file system is asked.
pub(crate) fn bytes_on_disk(tx: &mut dyn Tx) -> Result<i64> {
    Ok(tx.bytes_on_disk()?.unwrap_or(0))
}
