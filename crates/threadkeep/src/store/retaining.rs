//! Retention: looking at all threads, and taking those that the rules are over, one by one.

use std::collections::{BTreeMap, HashSet};

use super::{Inner, Threads};
use crate::claims;
use crate::db::{Sync, Tx};
use crate::error::{Error, Result};
use crate::id::{ThreadId, WorkspaceId};
use crate::log::append::mint_uuid;
use crate::log::purge;
use crate::planted::{self, Defect};
use crate::retention::choice::{self, Excess};
use crate::retention::clock::{self, Clock};
use crate::retention::standing::{self, InTrash, Standing};
use crate::retention::taking::{self, Chosen, Taking};
use crate::retention::{
    self, KeptThread, Protection, ReceiptQuery, RetainOptions, RetentionReceipt, RetentionReport, RetentionRule,
    RetentionRules, RetentionStep, StoredRules, millis, protection, receipts, room,
};
use crate::rollout;
use crate::stats;
use crate::thread::{Page, Thread};
use crate::threads::{self, Scope};
use crate::time::Timestamp;

/// How many pages are given back to the disk in one transaction: a mebibyte.
const PAGES: i64 = 256;
/// How many times are asked, at most, what they say of the clock.
const TIMES: usize = 10_000;

impl Threads {
    /// The retention rules that were set for exactly this handle: those of the store, or those of the workspace.
    ///
    /// # Errors
    /// As every read.
    pub async fn retention(&self) -> Result<Option<RetentionRules>> {
        let scope = self.scope;
        self.inner.db.read(move |tx| retention::rules_of(tx, scope)).await
    }

    /// All retention rules that concern this handle: the store's, and those of the workspaces that it sees.
    ///
    /// # Errors
    /// As every read.
    pub async fn all_retention(&self) -> Result<Vec<StoredRules>> {
        let scope = self.scope;
        let mut all = self.inner.db.read(retention::all_rules).await?;
        all.retain(|stored| match (scope, stored.workspace) {
            (Scope::All, _) | (_, None) => true,
            (Scope::Workspace(own), Some(id)) => own == id,
        });
        Ok(all)
    }

    /// Sets the retention rules of the store; of a workspace, where they are in the place of all of the store's. Nothing is taken by
    /// this: [`Threads::retain`] does it when it is called.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a limit of 0, and for a limit of the store in a workspace's rules.
    pub async fn set_retention(&self, rules: RetentionRules) -> Result<()> {
        let (scope, now) = (self.scope, self.inner.host.now());
        rules.check(scope)?;
        let set = move |tx: &mut dyn Tx| {
            if let Scope::Workspace(id) = scope {
                crate::workspaces::get(tx, id)?;
            }
            retention::set_rules(tx, scope, &rules, now)
        };
        self.inner.db.write(Sync::Synced.free().repeatable().told(), set).await
    }

    /// Takes the retention rules of the store or of the workspace away; says whether there were any. A workspace without rules of its own
    /// has the store's.
    ///
    /// # Errors
    /// As every write.
    pub async fn clear_retention(&self) -> Result<bool> {
        let (scope, now) = (self.scope, self.inner.host.now());
        let clear = move |tx: &mut dyn Tx| retention::clear_rules(tx, scope, now);
        self.inner.db.write(Sync::Synced.free().told(), clear).await
    }

    /// Reads a page of the receipts of what retention took and what came back, the newest first.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a cursor of another query.
    pub async fn retention_receipts(&self, query: ReceiptQuery) -> Result<Page<RetentionReceipt>> {
        let scope = self.scope;
        self.inner.db.read(move |tx| receipts::page(tx, scope, &query)).await
    }

    /// Takes the threads that the rules are over into the trash, and purges those that a run put there long enough ago. Nothing does this
    /// by itself: a program calls it when it wants to, at its start or when it has made a thread. Without rules nothing is done.
    ///
    /// A thread is taken in a transaction of its own that looks again at everything that could keep it, and makes the receipt; others
    /// write in between. It stays while a living process writes it, while it is pinned, archived or changed lately, while a message, a
    /// request, a job, a goal or a run of it is open, and while a thread that was forked from it is not in the trash; a dead holder
    /// keeps nothing. What a run takes in each workspace is what was active longest ago. When it is cut short, all that it did is on
    /// record, and the next one goes on. How much memory it takes grows with the number of threads of the largest workspace, and of all of them where the store as a
    /// whole has a limit of bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a limit of 0. Other errors end the run; what was taken before is in the receipts.
    pub async fn retain(&self, options: RetainOptions) -> Result<RetentionReport> {
        self.retain_with(options, |_, _| {}).await
    }

    /// As [`Threads::retain`]; `progress` gets how many threads were looked at, and of how many that are known so far.
    ///
    /// # Errors
    /// As there.
    pub async fn retain_with(
        &self,
        options: RetainOptions,
        progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<RetentionReport> {
        if !options.dry_run {
            self.inner.check_writable()?;
        }
        let now = self.inner.retention_time().await?;
        let rules = self.rules_of_run(options.rules.as_ref()).await?;
        let mut run = Run::new(self, &options, now, Box::new(progress));
        run.report.workspaces = rules.workspaces.len() as u64;
        if rules.workspaces.is_empty() {
            return Ok(run.report);
        }
        run.finish_what_was_begun().await?;
        run.is_trusted = options.trust_clock || run.judges_ages(&rules).await?;
        for (workspace, rules_here) in &rules.workspaces {
            run.retain_in(*workspace, rules_here, rules.of_store.as_ref()).await?;
        }
        if let Some(of_store) = &rules.of_store {
            run.retain_in_store(of_store).await?;
        }
        run.conclude().await
    }

    /// The rules of each workspace that has any. Those of a workspace replace the store's, and those of a run replace both.
    async fn rules_of_run(&self, given: Option<&RetentionRules>) -> Result<RulesOfRun> {
        let scope = self.scope;
        let read = |tx: &mut dyn Tx| Ok((retention::all_rules(tx)?, standing::workspaces(tx)?));
        let (stored, mut workspaces) = self.inner.db.read(read).await?;
        if let Scope::Workspace(own) = scope {
            workspaces.retain(|id| *id == own);
        }
        if let Some(rules) = given {
            rules.check(scope)?;
            let of_store = rules.max_store_bytes.is_some().then(|| rules.clone());
            return Ok(RulesOfRun {
                workspaces: workspaces.into_iter().map(|id| (id, rules.clone())).collect(),
                of_store,
            });
        }
        let find = |id: Option<WorkspaceId>| stored.iter().find(|it| it.workspace == id).map(|it| &it.rules);
        let rules_of = |id: WorkspaceId| Some((id, find(Some(id)).or_else(|| find(None))?.clone()));
        let of_store = find(None).filter(|rules| scope == Scope::All && rules.max_store_bytes.is_some()).cloned();
        Ok(RulesOfRun { workspaces: workspaces.into_iter().filter_map(rules_of).collect(), of_store })
    }
}

/// Which rules a run goes by.
struct RulesOfRun {
    workspaces: BTreeMap<WorkspaceId, RetentionRules>,
    /// Set when there is a limit of the whole store.
    of_store: Option<RetentionRules>,
}

impl RulesOfRun {
    /// Whether anything is judged by its age.
    fn judge_ages(&self) -> bool {
        self.workspaces.values().any(|rules| rules.max_age.is_some() || rules.trash_grace.is_some())
    }
}

/// A run of retention.
struct Run<'a> {
    threads: &'a Threads,
    dry_run: bool,
    spared: HashSet<ThreadId>,
    now: Timestamp,
    /// Whether ages are judged.
    is_trusted: bool,
    /// After which time the clock may have leapt.
    leapt: Option<Timestamp>,
    /// Threads that count for the limit of the store.
    pool: Vec<Standing>,
    kept: HashSet<ThreadId>,
    /// Why nothing can be purged, once that is known.
    mirrored: Option<String>,
    progress: Box<dyn FnMut(u64, u64) + Send>,
    done: u64,
    known: u64,
    report: RetentionReport,
}

/// What a closer look at a thread gives.
enum Looked {
    Stays(Protection),
    Free(Box<Free>),
}

/// A thread that nothing keeps.
struct Free {
    thread: Thread,
    bytes: i64,
    dead_holder: Option<String>,
}

impl<'a> Run<'a> {
    fn new(
        threads: &'a Threads,
        options: &RetainOptions,
        now: Timestamp,
        progress: Box<dyn FnMut(u64, u64) + Send>,
    ) -> Self {
        let report = RetentionReport {
            run: mint_uuid(&*threads.inner.host, now),
            dry_run: options.dry_run,
            at: now,
            workspaces: 0,
            trashed: Vec::new(),
            purged: Vec::new(),
            kept: Vec::new(),
            freed_bytes: 0,
            held_back: None,
            notices: Vec::new(),
        };
        Self {
            threads,
            dry_run: options.dry_run,
            spared: options.spare.iter().cloned().collect(),
            now,
            is_trusted: false,
            leapt: None,
            pool: Vec::new(),
            kept: HashSet::new(),
            mirrored: None,
            progress,
            done: 0,
            known: 0,
            report,
        }
    }

    fn inner(&self) -> &'a Inner {
        &self.threads.inner
    }

    /// Ends a purge that was cut short; its receipt is there.
    async fn finish_what_was_begun(&mut self) -> Result<()> {
        if self.dry_run || !self.inner().db.read(purge::is_begun).await? {
            return Ok(());
        }
        match rollout::own_folders(self.inner()).await {
            // The next purge does it.
            Err(Error::Busy { .. }) => Ok(()),
            folders => self.inner().finish_purges(Vec::new(), folders?).await.map(drop),
        }
    }

    /// Whether ages can be judged, by all times that the store knows; leaves this run's time as one of them.
    async fn judges_ages(&mut self, rules: &RulesOfRun) -> Result<bool> {
        if !rules.judge_ages() {
            return Ok(true);
        }
        let (db, now) = (&self.inner().db, self.now);
        let seen = db.read(standing::seen).await?;
        let mut known = seen.map(clock::Seen::times).unwrap_or_default();
        let mut before = (i64::MAX, String::new());
        let judged = loop {
            let judged = clock::judge(now, &known);
            if judged == Clock::Settled || known.len() > TIMES {
                break judged;
            }
            let from = before.clone();
            let page = db.read(move |tx| standing::times(tx, &from)).await?;
            let Some((updated, id, _)) = page.last() else { break judged };
            before = (*updated, id.clone());
            known.extend(page.iter().map(|(_, _, time)| *time));
        };
        if !self.dry_run {
            let terms = Sync::Synced.free().repeatable().silent();
            db.write(terms, move |tx| standing::see(tx, now)).await?;
        }
        if let Clock::Leapt(newest) = judged {
            self.leapt = Some(newest);
        }
        Ok(self.leapt.is_none())
    }

    /// Takes what the rules of a workspace are over.
    async fn retain_in(
        &mut self,
        workspace: WorkspaceId,
        rules: &RetentionRules,
        of_store: Option<&RetentionRules>,
    ) -> Result<()> {
        let (mut listed, trash) = self.read(workspace).await?;
        let counts_for_store = of_store.is_some_and(|of_store| of_store == rules);
        if rules.max_bytes.is_some() || counts_for_store {
            self.measure(&mut listed).await?;
        }
        if rules.max_age.is_some() && !self.is_trusted && !listed.is_empty() {
            self.report.held_back = self.leapt;
        }
        if let Some(max_age) = rules.max_age.filter(|_| self.is_trusted) {
            let mut left = Vec::with_capacity(listed.len());
            for standing in listed {
                let is_old = choice::is_too_old(&standing, max_age, self.now);
                if !is_old || !self.trash(&standing, rules, RetentionRule::Age, millis(max_age)).await? {
                    left.push(standing);
                }
            }
            listed = left;
        }
        if let Some(excess) = Excess::of_count(rules, &listed) {
            listed = self.trash_excess(listed, rules, excess).await?;
        }
        if let Some(excess) = Excess::of_bytes(rules, &listed) {
            listed = self.trash_excess(listed, rules, excess).await?;
        }
        self.done += listed.len() as u64;
        if counts_for_store {
            self.pool.extend(listed);
        }
        for standing in trash {
            self.purge_when_due(&standing, rules).await?;
            self.advance();
        }
        Ok(())
    }

    /// Takes what the limit of the store is over, whatever workspace it is in.
    async fn retain_in_store(&mut self, rules: &RetentionRules) -> Result<()> {
        let mut pool = std::mem::take(&mut self.pool);
        pool.sort_by(|one, other| (one.place, &one.thread).cmp(&(other.place, &other.thread)));
        if let Some(excess) = Excess::of_store_bytes(rules, &pool) {
            self.trash_excess(pool, rules, excess).await?;
        }
        Ok(())
    }

    /// Reads all threads of a workspace, those that were active longest ago first: the listed ones, and those in the trash.
    async fn read(&mut self, workspace: WorkspaceId) -> Result<(Vec<Standing>, Vec<Standing>)> {
        // One that is written meanwhile comes again, where it is now.
        let mut standings = BTreeMap::new();
        let mut after = Some((i64::MIN, String::new()));
        while let Some(from) = after.take() {
            let page = self.inner().db.read(move |tx| standing::page(tx, workspace, &from)).await?;
            standings.extend(page.standings.into_iter().map(|standing| (standing.thread.clone(), standing)));
            self.report.notices.extend(page.damaged);
            after = page.next;
        }
        let mut standings: Vec<Standing> = standings.into_values().collect();
        self.known += standings.len() as u64;
        // One that came out of the trash counts as active at that moment.
        standings.sort_by(|one, other| (one.place, &one.thread).cmp(&(other.place, &other.thread)));
        Ok(standings.into_iter().partition(|standing| standing.in_trash.is_none()))
    }

    async fn measure(&mut self, standings: &mut [Standing]) -> Result<()> {
        for standing in standings {
            let thread = standing.thread.clone();
            standing.bytes = match self.inner().db.read(move |tx| room::of(tx, &thread)).await {
                // What can't be measured is not taken for its size.
                Err(Error::Corrupt { .. }) => 0,
                bytes => bytes?,
            };
        }
        Ok(())
    }

    /// Takes threads until none is over the limit any more; gives those that are left.
    async fn trash_excess(
        &mut self,
        listed: Vec<Standing>,
        rules: &RetentionRules,
        mut excess: Excess,
    ) -> Result<Vec<Standing>> {
        let mut left = Vec::with_capacity(listed.len());
        for standing in listed {
            let is_over = excess.is_helped_by(&standing) && choice::is_counted(&standing, rules);
            if is_over && self.trash(&standing, rules, excess.rule.clone(), excess.bound).await? {
                excess.take(&standing);
            } else {
                left.push(standing);
            }
        }
        Ok(left)
    }

    /// Puts a thread into the trash unless something keeps it; says whether it went.
    async fn trash(
        &mut self,
        standing: &Standing,
        rules: &RetentionRules,
        rule: RetentionRule,
        bound: i64,
    ) -> Result<bool> {
        if self.kept.contains(&standing.thread) {
            return Ok(false);
        }
        if let Some(why) = choice::stays(standing, rules, &self.spared, self.now) {
            return Ok(self.keep(standing, rule, why, None));
        }
        let free = match self.look(standing, rules.forked).await {
            Ok(Looked::Free(free)) => *free,
            Ok(Looked::Stays(why)) => return Ok(self.keep(standing, rule, why, None)),
            Err(error) => return self.keep_damaged(standing, rule, error),
        };
        let chosen = self.choose(standing, &free, (rule.clone(), bound), rules.forked);
        let number = if self.dry_run {
            None
        } else {
            let terms = Sync::Synced.within(standing.thread.as_str()).repeatable();
            match self.inner().db.write(terms, move |tx| taking::trash(tx, &chosen)).await {
                Ok(Taking::Taken { number, .. }) => Some(number),
                Ok(Taking::Stays(why)) => return Ok(self.keep(standing, rule, why, None)),
                Err(error) => return self.keep_damaged(standing, rule, error),
            }
        };
        self.report.trashed.push(self.receipt(&free, RetentionStep::Trashed, (rule, bound), number, None));
        self.advance();
        Ok(true)
    }

    /// Purges a thread in the trash when it has been there for long enough and a run put it there.
    async fn purge_when_due(&mut self, standing: &Standing, rules: &RetentionRules) -> Result<()> {
        let (Some(InTrash { since, by_retention }), Some(grace)) = (standing.in_trash, rules.trash_grace) else {
            return Ok(());
        };
        if !(by_retention || rules.deleted) || !choice::is_due(since, grace, self.now) {
            return Ok(());
        }
        if !self.is_trusted && !grace.is_zero() {
            self.report.held_back = self.leapt;
            return Ok(());
        }
        let (rule, bound) = (RetentionRule::TrashGrace, millis(grace));
        if self.spared.contains(&standing.thread) || standing.pinned {
            let why = if standing.pinned { Protection::Pinned } else { Protection::Spared };
            self.keep(standing, rule, why, None);
            return Ok(());
        }
        let free = match self.look(standing, rules.forked).await {
            Ok(Looked::Free(free)) => *free,
            Ok(Looked::Stays(why)) => {
                self.keep(standing, rule, why, None);
                return Ok(());
            }
            Err(error) => return self.keep_damaged(standing, rule, error).map(drop),
        };
        if self.dry_run {
            self.report.purged.push(self.receipt(&free, RetentionStep::Purged, (rule, bound), None, None));
            return Ok(());
        }
        if let Some(detail) = self.mirrored.clone() {
            self.keep(standing, rule, Protection::Mirrored, Some(detail));
            return Ok(());
        }
        // Taken before anything is gone: nobody may write a rollout of it meanwhile.
        let folders = match rollout::own_folders(self.inner()).await {
            Err(Error::Busy { detail }) => {
                self.mirrored = Some(detail.clone());
                self.keep(standing, rule, Protection::Mirrored, Some(detail));
                return Ok(());
            }
            folders => folders?,
        };
        let chosen = self.choose(standing, &free, (rule.clone(), bound), rules.forked);
        let store = self.inner().id;
        let terms = Sync::Synced.within(standing.thread.as_str()).repeatable();
        match self.inner().db.write(terms, move |tx| taking::purge(tx, &chosen, store, since)).await {
            Ok(Taking::Taken { number, record }) => {
                let begun = vec![(standing.thread.clone(), Some(free.thread.created_at))];
                self.inner().finish_purges(begun, folders).await?;
                let receipt = self.receipt(&free, RetentionStep::Purged, (rule, bound), Some(number), record);
                self.report.purged.push(receipt);
            }
            Ok(Taking::Stays(why)) => {
                self.keep(standing, rule, why, None);
            }
            Err(error) => return self.keep_damaged(standing, rule, error).map(drop),
        }
        Ok(())
    }

    /// Looks at a thread more closely, in one snapshot.
    async fn look(&mut self, standing: &Standing, forked: bool) -> Result<Looked> {
        let (id, now) = (standing.thread.clone(), self.now);
        let read = move |tx: &mut dyn Tx| {
            let thread = threads::get(tx, Scope::All, &id)?;
            let at = claims::judged_at(tx, thread.holder.is_some())?;
            let protection = protection::of(tx, &id, forked, now)?;
            Ok((thread, at, protection, room::of(tx, &id)?))
        };
        let (thread, at, protection, bytes) = match self.inner().db.read(read).await {
            Err(Error::NotFound { .. }) => return Ok(Looked::Stays(Protection::Changed)),
            read => read?,
        };
        let thread = self.inner().mark_live(thread, at);
        let why = match () {
            () if thread.live && !planted::is(Defect::RetainsFromTheLiving) => Some(Protection::Live),
            () if thread.tick != standing.tick => Some(Protection::Changed),
            () => protection,
        };
        let dead_holder = thread.holder.as_ref().map(|holder| holder.id.clone());
        Ok(why.map_or_else(|| Looked::Free(Box::new(Free { thread, bytes, dead_holder })), Looked::Stays))
    }

    fn choose(&self, standing: &Standing, free: &Free, (rule, bound): (RetentionRule, i64), forked: bool) -> Chosen {
        Chosen {
            thread: standing.thread.clone(),
            tick: standing.tick,
            dead_holder: free.dead_holder.clone(),
            rule,
            bound,
            bytes: free.bytes,
            forked,
            run: self.report.run,
            now: self.now,
        }
    }

    fn receipt(
        &self,
        free: &Free,
        step: RetentionStep,
        (rule, bound): (RetentionRule, i64),
        number: Option<i64>,
        record: Option<i64>,
    ) -> RetentionReceipt {
        let thread = &free.thread;
        RetentionReceipt {
            number,
            run: self.report.run,
            thread: thread.id.clone(),
            workspace: thread.workspace,
            name: name_of(thread),
            step,
            rule: Some(rule),
            bound: Some(bound),
            items: thread.items,
            bytes: free.bytes,
            head_hash: thread.head_hash,
            changed_at: thread.updated_at,
            record,
            at: self.now,
        }
    }

    /// Notes that a thread stays; says that it did not go.
    fn keep(&mut self, standing: &Standing, rule: RetentionRule, why: Protection, detail: Option<String>) -> bool {
        if self.kept.insert(standing.thread.clone()) {
            let (thread, workspace) = (standing.thread.clone(), standing.workspace);
            self.report.kept.push(KeptThread { thread, workspace, name: None, rule, why, detail });
        }
        false
    }

    /// Damage keeps the thread that it is in, and no other.
    fn keep_damaged(&mut self, standing: &Standing, rule: RetentionRule, error: Error) -> Result<bool> {
        match error {
            Error::Corrupt { .. } => Ok(self.keep(standing, rule, Protection::Damaged, Some(error.to_string()))),
            other => Err(other),
        }
    }

    fn advance(&mut self) {
        self.done += 1;
        (self.progress)(self.done.min(self.known), self.known);
    }

    /// Gives the room of what was purged back, and ends the run.
    async fn conclude(mut self) -> Result<RetentionReport> {
        if !self.report.purged.is_empty() && !self.dry_run {
            self.inner().forget_words().await;
            match self.inner().give_back().await {
                Ok(bytes) => self.report.freed_bytes = bytes,
                // It is gone all the same, and the next one gives its room back too.
                Err(error) => {
                    self.report.notices.push(format!("the room of what was purged is not given back: {error}"));
                }
            }
        }
        self.name_kept().await?;
        (self.progress)(self.known, self.known);
        Ok(self.report)
    }

    /// Says what the threads that stay are called.
    async fn name_kept(&mut self) -> Result<()> {
        for kept in self.report.kept.iter_mut().filter(|kept| kept.why != Protection::Damaged) {
            let id = kept.thread.clone();
            let found = self.threads.inner.db.read(move |tx| threads::get(tx, Scope::All, &id)).await;
            kept.name = match found {
                Ok(thread) => name_of(&thread),
                Err(Error::NotFound { .. } | Error::Corrupt { .. }) => None,
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }
}

/// What a thread is called, when it is called anything but its id.
fn name_of(thread: &Thread) -> Option<String> {
    Some(thread.name()).filter(|name| *name != thread.id.as_str()).map(str::to_owned)
}

impl Inner {
    /// The time that ages are judged by: where the engine has a clock too, the one that makes everything younger.
    async fn retention_time(&self) -> Result<Timestamp> {
        let (now, clock) = (self.host.now(), self.db.read(|tx| tx.clock()).await?);
        Ok(clock.map_or(now, |clock| now.min(Timestamp(clock))))
    }

    /// Gives free pages back to the disk, a few at a time, so that others write in between; says how many bytes.
    async fn give_back(&self) -> Result<i64> {
        let before = self.db.read(stats::bytes_on_disk).await?;
        self.db.tidy().await?;
        let mut freed = before.saturating_sub(self.db.read(stats::bytes_on_disk).await?).max(0);
        loop {
            let terms = Sync::Written.free().silent();
            let step = self.db.write(terms, |tx| tx.give_back(PAGES)).await?;
            freed = freed.saturating_add(step.bytes);
            if step.left == 0 || step.bytes == 0 {
                return Ok(freed);
            }
        }
    }
}
