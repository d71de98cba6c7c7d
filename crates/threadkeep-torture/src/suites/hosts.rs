//! T18: two machines and a server, each with a network of its own. The one that holds a thread is cut off, the other one takes its
//! place when its lease has run out, and what the first one still sends is refused.
//!
//! A lease runs out in two minutes. In most rounds it is made older on the server in the place of waiting; a long run waits for it
//! once.

mod network;

use std::time::{Duration, Instant};

use threadkeep::blocking::Store;
use threadkeep::{ItemId, ItemQuery, ThreadId};

use self::network::{HOLDER, Network, TAKER};
use crate::Result;
use crate::actor::{Answer, Peer};
use crate::child::{HANG, SILENT};
use crate::ground;
use crate::oracle::Rule;
use crate::plan::{Plan, Random};
use crate::report::{Outcome, Stop};
use crate::server::Server;
use crate::suites::claims::Scene;
use crate::{tools, work};

const THREAD: &str = "contended";
/// How many appends the taker makes while the holder is away.
const TAKEN: u64 = 3;
/// How long a lease lasts, and a little more.
const LEASE: Duration = Duration::from_secs(122);
/// Calls of the machines wait no longer for a server that does not answer.
const BOUND: &str = "4000";

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    if !tools::is_root() {
        return Err(Stop::Skip { reason: "networks of one's own need root".to_owned(), by_system: true });
    }
    let network = Network::lay()?;
    let inside = network.inside_of_server();
    let words: Vec<&str> = inside.iter().map(String::as_str).collect();
    let server = Server::start(&words, &Network::settings())?;
    let plan = plan.on(server);
    let mut run = Run { network, scene: Scene::new(&plan)?, random: plan.random("hosts"), counts: Counts::default() };
    for round in 0..plan.pick(6, 40, 200) {
        run.round(round, round == 1 && plan.pick(false, true, true))?;
    }
    run.scene.judge();
    let Counts { early, within, unanswered, stored, unknown, refused, waited } = run.counts;
    outcome.figure("times cut off and taken over", early + within + unanswered);
    outcome.figure("of these in an append", within);
    outcome.figure("between a commit and its answer", unanswered);
    outcome.figure("appends that were stored before the cut", stored);
    outcome.figure("appends whose outcome nobody knew", unknown);
    outcome.figure("stale appends refused as such", refused);
    outcome.figure("leases that ran out by themselves", waited);
    outcome.figure("items acked", run.scene.ledger.acked);
    outcome.tally.absorb(std::mem::take(&mut run.scene.tally), "hosts");
    control(&plan, &run.network, outcome)?;
    Ok(())
}

/// When the holder is cut off.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// Before anything of its append is sent.
    Before,
    /// At any moment of it.
    Within,
    /// When it is committed and not answered.
    AfterCommit,
}

/// The order in which they come.
const MOMENTS: [Moment; 4] = [Moment::Before, Moment::Within, Moment::AfterCommit, Moment::Within];

#[derive(Debug, Default)]
struct Counts {
    early: u64,
    within: u64,
    unanswered: u64,
    /// Its append was stored before.
    stored: u64,
    /// And its outcome was not known.
    unknown: u64,
    refused: u64,
    waited: u64,
}

struct Run<'a> {
    network: Network,
    scene: Scene<'a>,
    random: Random,
    counts: Counts,
}

impl Network {
    /// An actor on one of the machines.
    fn machine(&self, scene: &Scene<'_>, name: &str) -> Result<Peer> {
        let store = Self::address(&scene.store(), name)?;
        let inside = self.inside_of(name);
        let words: Vec<&str> = inside.iter().map(String::as_str).collect();
        Peer::start(scene.plan, &store, name, &words, &["--bound", BOUND])
    }
}

impl Run<'_> {
    /// One cut. The holder goes away, comes back, and is a new process in the next round.
    fn round(&mut self, round: u64, waits: bool) -> Result<()> {
        let mut holder = self.network.machine(&self.scene, HOLDER)?;
        let mut taker = self.network.machine(&self.scene, TAKER)?;
        match round {
            0 => holder.must(&format!("new {THREAD}"))?,
            _ => holder.must(&format!("claim {THREAD}"))?,
        };
        for _ in 0..=self.random.below(3) {
            self.scene.append(&mut holder, THREAD, 1)?;
        }
        self.scene.refuse(&mut taker, THREAD, HOLDER)?;
        let (late, ids) = self.scene.order(THREAD, 2);
        let place = usize::try_from(round).unwrap_or(0) % MOMENTS.len();
        let moment = MOMENTS.get(place).copied().unwrap_or(Moment::Before);
        self.cut(moment, &mut holder, &late)?;
        if waits {
            std::thread::sleep(LEASE);
            self.counts.waited += 1;
        } else {
            self.age()?;
        }
        insist(&mut taker, &format!("claim {THREAD}"))?;
        let mut fresh = Vec::new();
        for _ in 0..TAKEN {
            let (order, ids) = self.scene.order(THREAD, 1);
            taker.must(&order)?;
            fresh.extend(ids);
        }
        self.network.mend(HOLDER)?;
        // While the old holder tries.
        let (order, more) = self.scene.order(THREAD, 1);
        taker.must(&order)?;
        fresh.extend(more);
        let answer = holder.answer()?;
        self.settle(&mut holder, &answer, ids)?;
        self.scene.acked(THREAD, fresh);
        taker.must(&format!("release {THREAD}"))?;
        holder.finish()?;
        taker.finish()
    }

    /// Cuts the holder off at some moment of its append.
    fn cut(&mut self, moment: Moment, holder: &mut Peer, late: &str) -> Result<()> {
        match moment {
            Moment::Before => {
                self.network.cut(HOLDER)?;
                self.counts.early += 1;
                holder.tell(late)
            }
            Moment::Within => {
                self.counts.within += 1;
                holder.tell(late)?;
                // An append takes a millisecond or two.
                std::thread::sleep(Duration::from_micros(self.random.below(3_000)));
                self.network.cut(HOLDER)
            }
            Moment::AfterCommit => {
                self.counts.unanswered += 1;
                let server = self.scene.plan.server.as_ref().ok_or("no server")?;
                let mut admin = server.admin()?;
                // Nobody is in step with the server, so that it does not answer a commit.
                set(&mut admin, "synchronous_standby_names = 'nobody'")?;
                holder.tell(late)?;
                let waits = "SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND wait_event = 'SyncRep'";
                let pid: i32 = wait_for(|| {
                    let row = admin.query_opt(waits, &[&HOLDER]).map_err(|error| error.to_string())?;
                    Ok(row.map(|row| row.get(0)))
                })?;
                self.network.cut(HOLDER)?;
                set(&mut admin, "synchronous_standby_names = ''")?;
                // Its answer is on its way until the server's system gives the connection up.
                let there = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1";
                wait_for(|| {
                    let row = admin.query_one(there, &[&pid]).map_err(|error| error.to_string())?;
                    Ok((row.get::<_, i64>(0) == 0).then_some(()))
                })
            }
        }
    }

    /// What became of the append that was cut off: stored before the take-over, or refused for good. And nothing more is taken from
    /// who lost the claim.
    fn settle(&mut self, holder: &mut Peer, answer: &Answer, ids: Vec<ItemId>) -> Result<()> {
        let (order, more) = self.scene.order(THREAD, 1);
        let then = holder.ask(&order)?;
        match then.kind.as_str() {
            "claim-lost" | "closed" => self.counts.refused += 1,
            "ok" => self.scene.tally.add(Rule::StaleWriter, "an append after a take-over was accepted"),
            kind => self.scene.tally.add(Rule::Misbehaved, format!("a lost claim is told as {kind}: {}", then.rest)),
        }
        self.scene.ledger.refused.extend(more);
        let is_there = self.is_stored(&ids)?;
        match answer.kind.as_str() {
            "ok" => self.counts.stored += 1,
            "claim-lost" => self.counts.refused += 1,
            // Nobody knew at that time.
            "io" | "busy" => self.counts.unknown += 1,
            kind => {
                let words = format!("an append of who was cut off: {kind} {}", answer.rest);
                self.scene.tally.add(Rule::Misbehaved, words);
            }
        }
        match (answer.is_ok(), answer.kind == "claim-lost", is_there) {
            (true, ..) | (_, false, true) => self.scene.acked(THREAD, ids),
            _ => self.scene.ledger.refused.extend(ids),
        }
        Ok(())
    }

    fn is_stored(&self, ids: &[ItemId]) -> Result<bool> {
        let store = ground::options(&self.scene.store()).and_then(|options| Store::open(options.label("look")));
        let query = ItemQuery { limit: 64, newest_first: true, ..ItemQuery::default() };
        let page = store.and_then(|store| store.items(&ThreadId::new(THREAD)?, query)).map_err(work::told)?;
        Ok(page.entries.iter().any(|item| ids.contains(&item.id)))
    }

    /// The holder has not been heard of for two minutes.
    fn age(&self) -> Result<()> {
        let old =
            format!("UPDATE claims SET heartbeat_at = heartbeat_at - {} WHERE label = '{HOLDER}'", LEASE.as_millis());
        ground::tamper(&self.scene.store(), &old)
    }
}

fn set(admin: &mut postgres::Client, setting: &str) -> Result<()> {
    let told = |error: postgres::Error| error.to_string();
    admin.batch_execute(&format!("ALTER SYSTEM SET {setting}")).map_err(told)?;
    admin.batch_execute("SELECT pg_reload_conf()").map_err(told)?;
    let (name, value) = setting.split_once(" = ").unwrap_or_default();
    let now = format!("SELECT 1 WHERE current_setting('{name}') = {value}");
    wait_for(|| Ok(admin.query_opt(&now, &[]).map_err(told)?.map(drop)))
}

/// Looks until there is something to see.
fn wait_for<T>(mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let begun = Instant::now();
    while begun.elapsed() < HANG {
        if let Some(found) = look()? {
            return Ok(found);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Err(SILENT.to_owned())
}

/// Asks until it succeeds: what the holder had begun when it was cut off may be in the way until the server gives it up.
fn insist(peer: &mut Peer, order: &str) -> Result<Duration> {
    let begun = Instant::now();
    loop {
        let answer = peer.ask(order)?;
        match answer.kind.as_str() {
            "ok" => return Ok(begun.elapsed()),
            "busy" | "claim-held" if begun.elapsed() < HANG => std::thread::yield_now(),
            "busy" | "claim-held" => return Err(SILENT.to_owned()),
            kind => return Err(format!("{}: {order}: {kind} {}", peer.label, answer.rest)),
        }
    }
}

/// Without the fence the first one's append would be taken; that must be seen.
fn control(plan: &Plan, network: &Network, outcome: &mut Outcome) -> Result<()> {
    let mut scene = Scene::new(plan)?;
    let (mut holder, mut taker) = (network.machine(&scene, HOLDER)?, network.machine(&scene, TAKER)?);
    holder.must(&format!("new {THREAD}"))?;
    scene.append(&mut holder, THREAD, 1)?;
    network.cut(HOLDER)?;
    let (late, ids) = scene.order(THREAD, 1);
    holder.tell(&late)?;
    scene.ledger.refused.extend(ids);
    ground::tamper(&scene.store(), "UPDATE claims SET heartbeat_at = 0")?;
    insist(&mut taker, &format!("claim {THREAD}"))?;
    scene.append(&mut taker, THREAD, 1)?;
    // Somebody sets the epoch back, and so the stale holder's append is let through.
    ground::tamper(&scene.store(), "UPDATE threads SET epoch = epoch - 1")?;
    network.mend(HOLDER)?;
    let answer = holder.answer()?;
    if answer.kind == "io" {
        holder.ask(&late)?;
    }
    scene.judge();
    outcome
        .control("a machine that comes back and whose append is let through", scene.tally.count(Rule::StaleWriter) > 0);
    Ok(())
}
