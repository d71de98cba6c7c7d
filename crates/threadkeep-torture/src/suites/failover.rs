//! T18: the server that takes the writes is killed under load, again and again, and another one takes its place.
//!
//! Every commit is answered when a second server has it too. The writers are processes that know all servers by one address, and that
//! nobody helps: what was told as failed stays in their handles and goes on under the same ids.

mod cluster;

use std::time::{Duration, Instant};

use self::cluster::Cluster;
use crate::Result;
use crate::checker::{self, Depth};
use crate::child::Child;
use crate::oracle::{Journal, Rule, Tally};
use crate::plan::{Plan, Random};
use crate::report::{Outcome, Stop};
use crate::suites::clients::Clients;
use crate::suites::{Writing, kills::hear_all};
use crate::tools;

const CLIENTS: u64 = 4;
/// How many kills the same processes live through.
const KILLS_OF_A_LIFE: u64 = 5;
/// How long replication is held up before a kill: long enough for commits that don't wait for it.
const HELD: Duration = Duration::from_millis(300);

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    if !tools::is_root() {
        return Err(Stop::Skip { reason: "killing a whole node needs root".to_owned(), by_system: true });
    }
    let kills = plan.pick(2, 20, 50);
    let mut run = Run::new(plan, Cluster::start()?);
    let played = play(&mut run, kills);
    run.promotions.sort_unstable();
    let last = run.promotions.len().saturating_sub(1);
    let at = |share: usize| run.promotions.get((run.promotions.len() * share / 100).min(last));
    let seconds = |share| at(share).map_or(0.0, Duration::as_secs_f64);
    outcome.figure("servers killed", run.kills());
    for (kind, count) in KINDS.iter().zip(run.counts) {
        outcome.figure(kind.words(), count);
    }
    outcome.figure("nodes that had to be copied anew", run.cluster.copied);
    outcome.figure("clients", CLIENTS);
    outcome.figure("items acked", run.clients.journal.acked);
    outcome.figure("appends told as failed and kept", run.clients.kept);
    outcome.figure("another server leads after, s p50/max", format!("{:.1}/{:.1}", seconds(50), seconds(100)));
    let silence = run.clients.silence.as_secs_f64();
    outcome.figure("longest time of a client without an answer, s", format!("{silence:.1}"));
    outcome.tally.absorb(std::mem::take(&mut run.clients.tally), "failover");
    played?;
    outcome.control("`Written`, which waits for no other server, with replication held up", run.control()?);
    Ok(())
}

fn play(run: &mut Run<'_>, kills: u64) -> Result<()> {
    while run.kills() < kills && run.clients.tally.is_empty() {
        let more = KILLS_OF_A_LIFE.min(kills - run.kills());
        run.live(more)?;
    }
    run.clients.judge_whole();
    Ok(())
}

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The server with all its processes.
    Server,
    /// The same while others get its log too late.
    Behind,
    /// All that runs on its machine, also what watches it.
    Machine,
    /// The server that has just been promoted, before anybody follows it.
    Again,
}

const KINDS: [Kind; 4] = [Kind::Server, Kind::Behind, Kind::Machine, Kind::Again];

impl Kind {
    fn words(self) -> &'static str {
        match self {
            Self::Server => "of these the server alone",
            Self::Behind => "with replication held up before",
            Self::Machine => "with the whole machine",
            Self::Again => "just promoted",
        }
    }
}

struct Run<'a> {
    plan: &'a Plan,
    cluster: Cluster,
    clients: Clients<'a>,
    random: Random,
    /// How many were killed in which way.
    counts: [u64; KINDS.len()],
    promotions: Vec<Duration>,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, cluster: Cluster) -> Self {
        let store = cluster.address("failover");
        let clients = Clients::new(plan, [store.clone(), store], (CLIENTS, 2));
        let (random, counts, promotions) = (plan.random("failover"), [0; KINDS.len()], Vec::new());
        Self { plan, cluster, clients, random, counts, promotions }
    }

    fn kills(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Clients write while servers are killed, and end; then a fresh process looks.
    fn live(&mut self, kills: u64) -> Result<()> {
        self.clients.start()?;
        for _ in 0..kills {
            // Whoever was killed last may still be on its way back.
            self.cluster.wait_until_in_step()?;
            std::thread::sleep(Duration::from_millis(200 + self.random.below(800)));
            let kind = self.choose();
            self.kill(kind)?;
            self.clients.listen()?;
        }
        self.clients.end()?;
        // Everybody has come back by himself.
        self.cluster.wait_until_whole()?;
        self.clients.judge();
        Ok(())
    }

    /// Every way comes; a machine is missed for its twenty seconds, which is too long for every change.
    fn choose(&mut self) -> Kind {
        use Kind::{Again, Behind, Machine, Server};
        let all = [Server, Behind, Server, Again, Server, Behind, Machine, Server, Behind, Again, Server, Behind];
        let kinds = self.plan.pick(&all[..2], &all[..], &all[..]);
        kinds.get(usize::try_from(self.kills()).unwrap_or(0) % kinds.len()).copied().unwrap_or(Server)
    }

    fn kill(&mut self, kind: Kind) -> Result<()> {
        let leader = self.cluster.wait_for_leader(None)?;
        let begun = Instant::now();
        match kind {
            Kind::Machine => self.cluster.power_off(leader),
            Kind::Server | Kind::Again => drop(self.cluster.kill_server(leader)?),
            Kind::Behind => {
                self.cluster.hold_replication(leader)?;
                std::thread::sleep(HELD);
                self.cluster.kill_server(leader)?;
            }
        }
        let next = self.cluster.wait_for_leader(Some(leader))?;
        self.promotions.push(begun.elapsed());
        if kind == Kind::Machine {
            self.cluster.power_on(leader)?;
        }
        if kind == Kind::Again {
            // Whoever has no follower in step is replaced by nobody, and has to come back itself.
            self.cluster.kill_server(next)?;
        }
        if let Some(count) = KINDS.iter().position(|other| *other == kind).and_then(|at| self.counts.get_mut(at)) {
            *count += 1;
        }
        Ok(())
    }

    /// What was acknowledged without waiting for a second server is lost with the first one; says whether that is seen.
    fn control(&mut self) -> Result<bool> {
        let (store, mut journal, mut tally) = (self.cluster.address("control"), Journal::default(), Tally::default());
        journal.open("control", 0);
        let writing = Writing { lanes: "control=0", life: 1, level: "written", batches: 0, lie: false };
        let child = Child::start(writing.command(self.plan, &store))?;
        let mut lines = child.hear_until("A")?;
        self.kill(Kind::Behind)?;
        lines.extend(child.kill());
        hear_all(&mut journal, 1, &lines);
        checker::judge(self.plan, &store, &mut journal, Depth::default(), &mut tally);
        Ok(tally.count(Rule::AckedLost) > 0)
    }
}
