//! T18: what happens to a server, and on the way to it, while 32 processes write synced.
//!
//! The server's own `synchronous_commit` is off, and changes while stores are open: what is acknowledged as synced is kept all the
//! same, which every stop without a checkpoint shows. What the server has in memory alone it keeps there for as long as it can.

mod proxy;

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use threadkeep::blocking::Store;

use self::proxy::{Loss, Proxy};
use crate::Result;
use crate::checker::{self, Depth};
use crate::child::{Child, HANG, SILENT};
use crate::ground;
use crate::oracle::{Journal, Rule, Tally};
use crate::plan::{Plan, Random};
use crate::report::{Outcome, Stop};
use crate::server::Server;
use crate::suites::clients::Clients;
use crate::suites::{Writing, kills::hear_all};
use crate::{tools, work};

const CLIENTS: u64 = 32;
/// How many faults the same processes live through.
const FAULTS_OF_A_LIFE: u64 = 25;
/// A commit that does not wait for the disk gets there ten seconds later, or when another one waits.
const SETTINGS: &str = "synchronous_commit = off\nwal_writer_delay = 10s";

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The server is stopped at once, without a checkpoint, and started again.
    Stop,
    /// It is killed.
    Kill,
    /// One of its processes is killed, and it takes all others with it.
    KillOne,
    /// It ends one connection.
    EndOne,
    /// It ends all connections.
    EndAll,
    /// The answer to a commit is lost.
    LoseAnswer,
    /// A commit is lost.
    LoseCommit,
    /// Its setting becomes another one, and it is stopped at once.
    Weaken,
}

const FAULTS: [(Fault, &str); 8] = [
    (Fault::LoseAnswer, "answers to commits lost"),
    (Fault::EndOne, "connections ended"),
    (Fault::LoseCommit, "commits lost"),
    (Fault::Stop, "servers stopped at once"),
    (Fault::EndAll, "all connections ended"),
    (Fault::KillOne, "processes of the server killed"),
    (Fault::Weaken, "settings changed, and stopped at once"),
    (Fault::Kill, "servers killed"),
];

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let faults = plan.pick(16, 150, 500);
    let plan = plan.on(Server::start(&[], SETTINGS)?);
    let server = plan.server.as_deref().ok_or_else(|| "no server".to_owned())?;
    let (ground, proxy) = (plan.ground()?, Proxy::start(server)?);
    let straight = ground.store("faults");
    let mut clients = Clients::new(&plan, [proxy.address(&straight)?, straight.clone()], (CLIENTS, 1));
    let mut way = Way { server, proxy, random: plan.random("faults") };
    let mut counts = [0_u64; FAULTS.len()];
    let mut done = 0;
    while done < faults && clients.tally.is_empty() {
        clients.start()?;
        for _ in 0..FAULTS_OF_A_LIFE.min(faults - done) {
            let place = usize::try_from(done).unwrap_or(0) % FAULTS.len();
            std::thread::sleep(Duration::from_micros(way.random.below(100_000)));
            if let (Some((fault, _)), Some(count)) = (FAULTS.get(place), counts.get_mut(place)) {
                way.meets(*fault)?;
                *count += 1;
            }
            clients.listen()?;
            done += 1;
        }
        clients.end()?;
        clients.judge();
    }
    clients.judge_whole();
    look_at_notices(&straight, &mut clients.tally)?;
    outcome.figure("faults", done);
    for ((_, words), count) in FAULTS.iter().zip(counts) {
        outcome.figure(*words, count);
    }
    outcome.figure("clients", CLIENTS);
    outcome.figure("items acked", clients.journal.acked);
    outcome.figure("appends told as failed and kept", clients.kept);
    outcome.figure("longest time of a client without an answer, s", format!("{:.1}", clients.silence.as_secs_f64()));
    outcome.tally.absorb(std::mem::take(&mut clients.tally), "faults");
    let stops = |server: &Server| server.stop().and_then(|()| server.go_on());
    outcome.control(
        "`Written`, which the server has in memory alone",
        is_lost(&plan, &ground.store("written"), "written", stops)?,
    );
    let older = restored(&plan, &ground.store("older"))?;
    outcome.control("an older copy of the server's data in its place", older);
    Ok(())
}

struct Way<'a> {
    server: &'a Server,
    proxy: Proxy,
    random: Random,
}

impl Way<'_> {
    fn meets(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::Stop => self.stop(),
            Fault::Kill => {
                self.server.kill();
                self.server.go_on()
            }
            Fault::KillOne => {
                let pid = self.connections()?.first().copied().and_then(Pid::from_raw).ok_or("nobody is connected")?;
                kill_process(pid, Signal::KILL).map_err(|error| error.to_string())?;
                self.server.go_on()
            }
            Fault::EndOne => self.ask("SELECT pg_terminate_backend(pid) FROM writing ORDER BY random() LIMIT 1"),
            Fault::EndAll => self.ask("SELECT pg_terminate_backend(pid) FROM writing"),
            Fault::LoseAnswer => self.lose(Loss::Answer),
            Fault::LoseCommit => self.lose(Loss::Commit),
            Fault::Weaken => {
                let word = if self.random.below(2) == 0 { "on" } else { "off" };
                let mut admin = self.server.admin()?;
                for sql in
                    [format!("ALTER SYSTEM SET synchronous_commit = {word}"), "SELECT pg_reload_conf()".to_owned()]
                {
                    admin.batch_execute(&sql).map_err(|error| error.to_string())?;
                }
                std::thread::sleep(Duration::from_millis(20 + self.random.below(50)));
                self.stop()
            }
        }
    }

    fn stop(&self) -> Result<()> {
        self.server.stop()?;
        self.server.go_on()
    }

    /// The processes that serve the clients, in any order.
    fn connections(&self) -> Result<Vec<i32>> {
        let sql = format!("{WRITING} SELECT pid FROM writing ORDER BY random()");
        let rows = self.server.admin()?.query(&sql, &[]).map_err(|error| error.to_string())?;
        Ok(rows.into_iter().map(|row| row.get(0)).collect())
    }

    fn ask(&self, sql: &str) -> Result<()> {
        self.server.admin()?.query(&format!("{WRITING} {sql}"), &[]).map(drop).map_err(|error| error.to_string())
    }

    fn lose(&self, loss: Loss) -> Result<()> {
        let (before, begun) = (self.proxy.lost(), Instant::now());
        self.proxy.arm(loss);
        while self.proxy.lost() == before {
            if begun.elapsed() > HANG {
                return Err(SILENT.to_owned());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// The connections of the clients.
const WRITING: &str = "WITH writing AS (SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'writer-%')";

/// Who opens the store is told what the server's settings would cost.
fn look_at_notices(store: &Path, tally: &mut Tally) -> Result<()> {
    ground::tamper(store, "ALTER SYSTEM SET synchronous_commit = off")?;
    ground::tamper(store, "SELECT pg_reload_conf()")?;
    let begun = Instant::now();
    // It takes the server a moment to have read it.
    while begun.elapsed() < HANG {
        let opened =
            ground::options(store).and_then(|options| Store::open(options.label("notices"))).map_err(work::told)?;
        if opened.notices().iter().any(|notice| notice.contains("synchronous_commit")) {
            return Ok(());
        }
    }
    tally.add(Rule::Misbehaved, "a server whose synchronous_commit is off is not named");
    Ok(())
}

/// Whether something that was acknowledged is lost when this happens to the server.
fn is_lost(plan: &Plan, store: &Path, level: &str, happens: impl FnOnce(&Server) -> Result<()>) -> Result<bool> {
    let (mut journal, mut tally) = (Journal::default(), Tally::default());
    journal.open("control", 0);
    let writing = Writing { lanes: "control=0", life: 1, level, batches: 0, lie: false };
    let child = Child::start(writing.command(plan, store))?;
    let mut lines = child.hear_until("A")?;
    let server = plan.server.as_deref().ok_or("no server")?;
    happens(server)?;
    lines.extend(child.kill());
    hear_all(&mut journal, 1, &lines);
    checker::judge(plan, store, &mut journal, Depth::default(), &mut tally);
    Ok(tally.count(Rule::AckedLost) > 0)
}

/// The same when an older copy is put in the place of the server's data under a live writer.
fn restored(plan: &Plan, store: &Path) -> Result<bool> {
    is_lost(plan, store, "synced", |server| {
        let folder = server.data();
        let (data, copy) = (folder.display().to_string(), folder.with_extension("copy").display().to_string());
        server.stop()?;
        tools::run("cp", &["-a", &data, &copy])?;
        server.go_on()?;
        // Time for the writer to go on.
        std::thread::sleep(Duration::from_secs(1));
        server.stop()?;
        tools::run("rm", &["-rf", &data])?;
        tools::run("mv", &[&copy, &data])?;
        server.go_on()
    })
}
