//! Receipts of a live thread: prompts and artifacts are stored under its claim.

use std::sync::Arc;

use super::LiveThread;
use super::under_claim::UnderClaim;
use crate::artifacts::{self, NewArtifact, StoredArtifact};
use crate::db::{Sync, Tx};
use crate::error::Result;
use crate::id::{ArtifactId, ItemId};
use crate::log::append::mint_id;
use crate::prompts::{self, NewPrompt, Scribe, StoredPrompt};
use crate::receipt;

impl LiveThread {
    /// Stores a prompt as a receipt and begins its turn, in one transaction and synced before this returns, whatever the thread's
    /// appends promise: so whoever dies while it is worked at, it is known what was asked.
    ///
    /// A fresh prompt of the operator is a task of its own. One that continues another, and a retry, leave that one's task in force.
    /// A call may be repeated with the same id when its answer was lost. What is refused is not kept for a later try, as appends are.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for a parent that the thread does not reach, and when there is no open turn that it could come into;
    /// [`crate::Error::Conflict`] for a parent that is not on its path; [`crate::Error::Invalid`] for a retry of nothing, for the 257th
    /// prompt of a lineage, and for more than [`crate::MAX_PROMPT_BYTES`]; [`crate::Error::AlreadyExists`] when the id is that of another
    /// one; [`crate::Error::ClaimLost`] when the claim was taken over; [`crate::Error::Corrupt`] when the parent's receipt is damaged.
    pub async fn begin_prompt(&self, mut prompt: NewPrompt) -> Result<StoredPrompt> {
        prompts::check(&prompt)?;
        prompts::screen(&self.live.inner.screen, &mut prompt)?;
        let id = prompts::id_of(prompt.id, &*self.live.inner.host);
        let bytes = prompt.raw.len() + prompt.text.len();
        let is_new = |stored: &StoredPrompt| !stored.repeated;
        self.scribble((bytes, id.item()), is_new, move |tx, by| prompts::begin(tx, by, id, &prompt)).await
    }

    /// Stores an artifact of a prompt on the thread's path, synced before this returns. Whose task it belongs to follows from the prompt.
    /// A call may be repeated with the same id when its answer was lost.
    ///
    /// # Errors
    /// As [`LiveThread::begin_prompt`]; [`crate::Error::Invalid`] for a word that is not known, for more than may be kept, and for
    /// metadata that is no JSON object.
    pub async fn add_artifact(&self, mut artifact: NewArtifact) -> Result<StoredArtifact> {
        artifacts::check(&artifact)?;
        let mut texts = artifact.texts();
        receipt::screen_artifact(&self.live.inner.screen, &mut texts)?;
        (artifact.locator, artifact.body, artifact.metadata) = (texts.locator, texts.body, texts.metadata);
        artifacts::check(&artifact)?;
        let host = &*self.live.inner.host;
        let id = artifact.id.unwrap_or_else(|| ArtifactId::from_item(mint_id(host, host.now())));
        let bytes = artifact.metadata.len() + artifact.body.as_ref().map_or(0, String::len);
        let is_new = |stored: &StoredArtifact| !stored.repeated;
        self.scribble((bytes, id.item()), is_new, move |tx, by| artifacts::add(tx, by, id, &artifact)).await
    }

    /// Writes a receipt, whose item is the last one that this handle is told is stored and synced.
    async fn scribble<T, F>(&self, (bytes, item): (usize, ItemId), is_new: fn(&T) -> bool, mut write: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut dyn Tx, &Scribe<'_>) -> Result<T> + Send + 'static,
    {
        let mut state = self.live.state.lock().await;
        let (host, builds_on) = (Arc::clone(&self.live.inner.host), state.acknowledged);
        let run = move |tx: &mut dyn Tx, claim: &UnderClaim<'_>| {
            let UnderClaim { thread, epoch, writer, now } = *claim;
            write(tx, &Scribe { thread, epoch, writer, now, builds_on, host: &*host })
        };
        let terms = self.terms(Sync::Synced).repeatable();
        let written = self.send_under_claim(&mut state, bytes, terms, run).await?.await?;
        if is_new(&written) {
            state.acknowledged = Some(item);
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ops::ControlFlow;
    use std::path::Path;

    use rusqlite::Connection;

    use crate::artifacts::{self, NewArtifact};
    use crate::db::sqlite::SqliteTx;
    use crate::db::{Row, Statement, Tx, Value};
    use crate::error::{Error, Result};
    use crate::host::SystemHost;
    use crate::id::{ArtifactId, PromptId, ThreadId, WriterId};
    use crate::item::{Kind, NewItem, PROMPT_FORMAT};
    use crate::log::append::TurnRule;
    use crate::prompts::{NewPrompt, Scribe, begin, context};
    use crate::receipt::{ArtifactKind, ArtifactRelation, Line, PromptContent, PromptOrigin};
    use crate::store::{Store, StoreOptions};
    use crate::thread::NewThread;
    use crate::time::Timestamp;

    /// Counts what goes through it.
    struct Counting<'a> {
        tx: SqliteTx<'a>,
        /// Statements, and rows that were read.
        counts: (usize, usize),
        texts: BTreeSet<&'static str>,
    }

    impl Tx for Counting<'_> {
        fn execute(&mut self, statement: Statement, args: &[Value<'_>]) -> Result<usize> {
            self.counts.0 += 1;
            self.texts.insert(statement.sql);
            self.tx.execute(statement, args)
        }

        fn query(
            &mut self,
            statement: Statement,
            args: &[Value<'_>],
            visit: &mut dyn FnMut(&Row<'_>) -> Result<ControlFlow<()>>,
        ) -> Result<()> {
            self.counts.0 += 1;
            self.texts.insert(statement.sql);
            let rows = &mut self.counts.1;
            self.tx.query(statement, args, &mut |row| {
                *rows += 1;
                visit(row)
            })
        }
    }

    /// A store with a thread that has a prompt.
    fn made(folder: &Path) -> (ThreadId, PromptId) {
        pollster::block_on(async {
            let store = Store::open(StoreOptions::folder(folder)).await.unwrap();
            let live = store.workspace("/w".as_ref()).await.unwrap().create(NewThread::default()).unwrap();
            let first = live.begin_prompt(NewPrompt::task("task")).await.unwrap();
            live.shutdown().await.unwrap();
            (live.id().clone(), first.receipt.id)
        })
    }

    fn connect(folder: &Path) -> (Connection, i64, (i64, WriterId)) {
        let connection = Connection::open(folder.join("threadkeep.db")).unwrap();
        let epoch = connection.query_row("SELECT epoch FROM threads", [], |row| row.get(0)).unwrap();
        let writer: (i64, Vec<u8>) =
            connection.query_row("SELECT key, id FROM writers", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        (connection, epoch, (writer.0, WriterId::from_slice(&writer.1).unwrap()))
    }

    /// Writes a prompt and an artifact of it.
    fn write(tx: &mut dyn Tx, by: &Scribe<'_>, number: u128, new: &NewPrompt) -> PromptId {
        let id = PromptId::from_uuid(uuid::Uuid::from_u128(2 * number));
        begin(tx, by, id, new).unwrap();
        let artifact = NewArtifact::new(id, ArtifactKind::Decision, ArtifactRelation::DerivedFrom);
        artifacts::add(tx, by, ArtifactId::from_uuid(uuid::Uuid::from_u128(2 * number + 1)), &artifact).unwrap();
        id
    }

    /// Fills a thread with so many prompts, and says what it takes to store one more and one more artifact: statements and rows, and
    /// the texts of the statements.
    fn cost(folder: &Path, prompts: u128) -> ((usize, usize), BTreeSet<&'static str>) {
        let (thread, mut last) = made(folder);
        let (connection, epoch, writer) = connect(folder);
        let by = Scribe { thread: &thread, epoch, writer, now: Timestamp(0), builds_on: None, host: &SystemHost };
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut tx = SqliteTx { connection: &connection };
        for number in 2..=prompts {
            let new = if number % 3 == 0 { NewPrompt::task("task") } else { NewPrompt::continuing(last, "more") };
            last = write(&mut tx, &by, number, &new);
        }
        let mut tx = Counting { tx, counts: (0, 0), texts: BTreeSet::new() };
        write(&mut tx, &by, prompts + 1, &NewPrompt::continuing(last, "one more"));
        connection.execute_batch("COMMIT").unwrap();
        (tx.counts, tx.texts)
    }

    #[test]
    fn storing_a_receipt_costs_the_same_behind_ten_and_behind_two_thousand() {
        let temp = tempfile::tempdir().unwrap();
        let costs = [10, 2_000].map(|prompts| {
            let folder = temp.path().join(prompts.to_string());
            (cost(&folder, prompts), folder)
        });
        let [((few, texts), folder), ((many, _), _)] = costs;
        assert_eq!(few, many, "statements, and rows that were read");
        assert!(few.0 < 60, "{few:?}");
        // Neither does the engine look at more rows than it gives.
        let connection = Connection::open(folder.join("threadkeep.db")).unwrap();
        for text in texts {
            let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
            let mut rows = plan.raw_query();
            while let Some(row) = rows.next().unwrap() {
                let detail: String = row.get(3).unwrap();
                let scans =
                    ["prompts", "artifacts", "items"].iter().any(|table| detail.starts_with(&format!("SCAN {table}")));
                assert!(!scans, "{text}: {detail}");
            }
        }
    }

    /// A word of another version is kept and shown; what is worked at is what the last prompt said whose origin is known.
    #[test]
    fn nothing_follows_from_an_origin_that_is_not_known() {
        let temp = tempfile::tempdir().unwrap();
        let (thread, task) = made(temp.path());
        let (connection, epoch, writer) = connect(temp.path());
        let by = Scribe { thread: &thread, epoch, writer, now: Timestamp(0), builds_on: None, host: &SystemHost };
        let tx = &mut SqliteTx { connection: &connection };
        let id = PromptId::from_uuid(uuid::Uuid::from_u128(7));
        let line = Line {
            id,
            origin: PromptOrigin::Unknown("web".into()),
            parent: Some(task),
            root: task,
            active: id,
            generation: 2,
        };
        let content = PromptContent::new(&line, b"odd", "odd").bytes();
        let item = NewItem::raw(Kind::Message, PROMPT_FORMAT, content).with_id(id.item());
        by.write(tx, item, TurnRule::Open).unwrap();
        let found = context(tx, &thread, None).unwrap().unwrap();
        assert_eq!(found.submitted.receipt.origin.as_str(), "web");
        assert_eq!(found.active.unwrap().receipt.id, task);
        let other = PromptId::from_uuid(uuid::Uuid::from_u128(8));
        let refused = begin(tx, &by, other, &NewPrompt::continuing(id, "x")).unwrap_err();
        assert!(matches!(refused, Error::Conflict { what: "parent", .. }), "{refused:?}");
        let store = pollster::block_on(Store::open(StoreOptions::folder(temp.path()))).unwrap();
        assert!(pollster::block_on(store.verify(&thread)).unwrap().is_intact());
    }
}
