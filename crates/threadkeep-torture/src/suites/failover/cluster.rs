//! Servers that replace each other: PostgreSQL under Patroni, with etcd. Each node is a machine of its own as far as its processes
//! go, so that all of them can be killed at once.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::Result;
use crate::child::{Child, HANG};
use crate::report::Stop;
use crate::server::{USER, as_account, own_folder};
use crate::tools;

const NODES: usize = 3;
/// How many lines of a node's log are told when it does not do what it must.
const LAST_LINES: usize = 30;
const HERE: &str = "127.0.0.1";
/// How often is looked.
const STEP: Duration = Duration::from_millis(20);
/// How long it may take until somebody leads.
const PATIENCE: Duration = Duration::from_secs(60);
/// Who has not come back by itself after so long never does.
const STUCK: Duration = Duration::from_secs(20);
/// How often is waited so long.
const ATTEMPTS: usize = 5;

/// A running cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    folder: PathBuf,
    nodes: Vec<Node>,
    etcd: Option<Child>,
    /// How many nodes had to be copied anew, since they did not come back by themselves.
    pub(super) copied: u64,
}

#[derive(Debug)]
struct Node {
    name: String,
    port: u16,
    /// Where Patroni answers.
    rest: u16,
    machine: Option<Child>,
}

/// What Patroni knows of a node.
#[derive(Debug)]
struct Member {
    name: String,
    role: String,
    state: String,
    timeline: Option<u64>,
}

impl Member {
    fn follows(&self, timeline: u64) -> bool {
        ["running", "streaming"].contains(&self.state.as_str()) && self.timeline == Some(timeline)
    }

    /// Whether it neither follows nor is being copied.
    fn is_stuck(&self, timeline: u64) -> bool {
        !self.follows(timeline) && self.state != "creating replica"
    }
}

impl Cluster {
    /// Starts one, and waits until it is whole.
    pub(super) fn start() -> Result<Self, Stop> {
        let programs = tools::need_postgres()?;
        for (program, package) in [("etcd", "etcd-server"), ("patroni", "patroni")] {
            if tools::run("sh", &["-c", &format!("command -v {program}")]).is_err() {
                let lacking =
                    |words| Stop::Skip { reason: format!("{program} can't be installed: {words}"), by_system: false };
                tools::install_quietly(package).map_err(lacking)?;
            }
        }
        let mut ports = free_ports(NODES * 2 + 2)?.into_iter();
        let mut port = || ports.next().ok_or("too few ports".to_owned());
        let folder = own_folder()?;
        let mut cluster = Self { folder, nodes: Vec::new(), etcd: None, copied: 0 };
        let (client, peer) = (port()?, port()?);
        cluster.start_etcd(client, peer)?;
        for number in 0..NODES {
            let node = Node { name: format!("n{number}"), port: port()?, rest: port()?, machine: None };
            let told = |error: std::io::Error| format!("the settings of Patroni: {error}");
            std::fs::write(cluster.settings_of(&node), settings(&cluster.folder, &programs, &node, client))
                .map_err(told)?;
            cluster.nodes.push(node);
        }
        for number in 0..NODES {
            cluster.power_on(number)?;
        }
        cluster.wait_until_whole()?;
        Ok(cluster)
    }

    fn start_etcd(&mut self, client: u16, peer: u16) -> Result<()> {
        let (client, peer) = (format!("http://{HERE}:{client}"), format!("http://{HERE}:{peer}"));
        let data = self.folder.join("etcd").display().to_string();
        let own = as_account();
        let (program, args) = own.split_first().ok_or("no program")?;
        let mut command = Command::new(program);
        command.args(args).args(["etcd", "--unsafe-no-fsync", "--log-level", "error", "--data-dir", &data]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]).current_dir("/");
        self.etcd = Some(Child::start(command)?);
        Ok(())
    }

    fn settings_of(&self, node: &Node) -> PathBuf {
        self.folder.join(format!("{}.yml", node.name))
    }

    /// Starts all of a node.
    pub(super) fn power_on(&mut self, number: usize) -> Result<()> {
        let folder = self.folder.clone();
        let node = self.nodes.get(number).ok_or("no such node")?;
        let (settings, log) = (self.settings_of(node), folder.join(format!("{}.log", node.name)));
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        // The first process of the namespace: when it ends all others are killed.
        command.args(["sh", "-c", "\"$@\" & wait", "sh"]).args(as_account());
        command.args(["sh", "-c", "exec patroni \"$0\" >>\"$1\" 2>&1"]).arg(settings).arg(log);
        command.current_dir("/").env("LC_ALL", "C");
        if let Some(node) = self.nodes.get_mut(number) {
            node.machine = Some(Child::start(command)?);
        }
        Ok(())
    }

    /// Kills all of a node at once.
    pub(super) fn power_off(&mut self, number: usize) {
        if let Some(node) = self.nodes.get_mut(number) {
            node.machine = None;
        }
    }

    /// Kills the server of a node with all its processes, and leaves Patroni beside it.
    pub(super) fn kill_server(&self, number: usize) -> Result<usize> {
        let mut killed = 0;
        // A process may have begun another one just before it was killed.
        for _ in 0..2 {
            for pid in self.processes(number)? {
                killed += 1;
                kill_process(pid, Signal::KILL).ok();
            }
        }
        Ok(killed)
    }

    /// Stops what sends a node's log to the others.
    pub(super) fn hold_replication(&self, number: usize) -> Result<()> {
        for pid in self.processes(number)? {
            let line = std::fs::read_to_string(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
            if line.contains("walsender") {
                kill_process(pid, Signal::STOP).ok();
            }
        }
        Ok(())
    }

    /// The processes of a node's server.
    fn processes(&self, number: usize) -> Result<Vec<Pid>> {
        let machine = self.nodes.get(number).and_then(|node| node.machine.as_ref()).ok_or("a node that is off")?;
        let children = format!("/proc/{0}/task/{0}/children", machine.id());
        let first = std::fs::read_to_string(children).map_err(|error| format!("the processes of a node: {error}"))?;
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let own = first.split(' ').next().and_then(namespace).ok_or("a node without processes")?;
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").map_err(|error| error.to_string())?.flatten() {
            let name = entry.file_name();
            let Some((name, pid)) = name.to_str().and_then(|name| Some((name, name.parse().ok()?))) else { continue };
            let is_server = std::fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm == "postgres\n");
            if is_server && namespace(name).as_ref() == Some(&own) {
                found.extend(Pid::from_raw(pid));
            }
        }
        Ok(found)
    }

    /// The address of a store on whichever node takes writes.
    pub(super) fn address(&self, schema: &str) -> PathBuf {
        let hosts: Vec<String> = self.nodes.iter().map(|node| format!("{HERE}:{}", node.port)).collect();
        let parameters = "target_session_attrs=read-write&sslmode=disable&connect_timeout=3";
        PathBuf::from(format!("postgres://{USER}@{}/postgres?{parameters}&schema={schema}", hosts.join(",")))
    }

    /// Waits until there is a leader that is not this node; gives its number.
    pub(super) fn wait_for_leader(&self, but: Option<usize>) -> Result<usize> {
        let leads = |member: &Member| member.role == "leader" && member.state == "running";
        let found = self.look(PATIENCE, |members| {
            let leader = members.iter().find(|member| leads(member))?;
            self.nodes.iter().position(|node| node.name == leader.name).filter(|number| Some(*number) != but)
        });
        found.ok_or_else(|| format!("no leader for {PATIENCE:?}{}", self.last_words()))
    }

    /// Waits until one node follows the leader in step, and can take its place.
    pub(super) fn wait_until_in_step(&mut self) -> Result<()> {
        self.wait("node in step", |members, timeline| {
            members.iter().any(|member| member.role == "sync_standby" && member.follows(timeline))
        })
    }

    /// Waits until all nodes follow the leader.
    pub(super) fn wait_until_whole(&mut self) -> Result<()> {
        self.wait_until_in_step()?;
        self.wait("whole cluster", |members, timeline| {
            members.len() == NODES && members.iter().all(|member| member.follows(timeline))
        })
    }

    /// Waits; whoever does not come back by itself is copied anew, as its owner would do.
    fn wait(&mut self, what: &str, is_so: impl Fn(&[Member], u64) -> bool) -> Result<()> {
        for _ in 0..ATTEMPTS {
            if self.look(STUCK, |members| leading(members).filter(|timeline| is_so(members, *timeline))).is_some() {
                return Ok(());
            }
            let leader = self.wait_for_leader(None)?;
            let members = self.nodes.get(leader).map_or_else(|| Ok(Vec::new()), |node| members(node.rest))?;
            let Some(timeline) = leading(&members) else { continue };
            for number in 0..NODES {
                let name = self.nodes.get(number).map(|node| node.name.clone()).unwrap_or_default();
                if members.iter().any(|member| member.name == name && member.is_stuck(timeline)) {
                    self.power_off(number);
                    drop(std::fs::remove_dir_all(self.folder.join(&name)));
                    self.power_on(number)?;
                    self.copied += 1;
                }
            }
        }
        Err(format!("no {what}{}", self.last_words()))
    }

    fn look<T>(&self, patience: Duration, mut seen: impl FnMut(&[Member]) -> Option<T>) -> Option<T> {
        let begun = Instant::now();
        while begun.elapsed() < patience {
            // Whoever has no server does not know for sure.
            for node in self.nodes.iter().filter(|node| node.machine.is_some()) {
                if let Some(found) = members(node.rest).ok().and_then(|members| seen(&members)) {
                    return Some(found);
                }
            }
            std::thread::sleep(STEP);
        }
        None
    }

    /// The ends of the nodes' logs.
    fn last_words(&self) -> String {
        let log =
            |node: &Node| std::fs::read_to_string(self.folder.join(format!("{}.log", node.name))).unwrap_or_default();
        let last =
            |log: String| log.lines().rev().take(LAST_LINES).map(|line| format!("\n    {line}")).collect::<String>();
        self.nodes.iter().map(|node| format!("\n  {}, the last line first:{}", node.name, last(log(node)))).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.clear();
        self.etcd = None;
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// What one node's Patroni says of all of them.
fn members(rest: u16) -> Result<Vec<Member>> {
    let told = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect((HERE, rest)).map_err(told)?;
    stream.set_read_timeout(Some(HANG)).map_err(told)?;
    stream.write_all(b"GET /cluster HTTP/1.0\r\n\r\n").map_err(told)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(told)?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
    let body: Value = serde_json::from_str(body).map_err(|error| error.to_string())?;
    let member = |member: &Value| {
        let text = |key: &str| member.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let timeline = member.get("timeline").and_then(Value::as_u64);
        Member { name: text("name"), role: text("role"), state: text("state"), timeline }
    };
    Ok(body.get("members").and_then(Value::as_array).into_iter().flatten().map(member).collect())
}

/// The timeline of the leader, if there is one.
fn leading(members: &[Member]) -> Option<u64> {
    members.iter().find(|member| member.role == "leader" && member.state == "running")?.timeline
}

/// Ports that nobody uses. Somebody may take one before it is used, and then a node does not start.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let told = |error: std::io::Error| format!("no free ports: {error}");
    let held = (0..count).map(|_| TcpListener::bind((HERE, 0))).collect::<std::io::Result<Vec<_>>>().map_err(told)?;
    held.iter().map(|listener| listener.local_addr().map(|address| address.port()).map_err(told)).collect()
}

/// What Patroni is told. A commit is answered when a standby has it too; a node whose server is gone gives up its lead at once.
fn settings(folder: &Path, programs: &Path, node: &Node, etcd: u16) -> String {
    let (folder, programs, Node { name, port, rest, .. }) = (folder.display(), programs.display(), node);
    format!(
        "scope: threadkeep
name: {name}
restapi: {{listen: '{HERE}:{rest}', connect_address: '{HERE}:{rest}'}}
etcd3: {{host: '{HERE}:{etcd}'}}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 1
    retry_timeout: 3
    maximum_lag_on_failover: 1073741824
    master_start_timeout: 0
    synchronous_mode: true
    postgresql:
      use_pg_rewind: true
      parameters:
        max_connections: 200
        max_wal_senders: 8
        dynamic_shared_memory_type: mmap
        shared_buffers: 32MB
        wal_keep_size: 256MB
        wal_log_hints: 'on'
        wal_retrieve_retry_interval: 500ms
  initdb: [{{encoding: UTF8}}, {{locale: C}}, {{auth: trust}}, no-sync]
postgresql:
  listen: '{HERE}:{port}'
  connect_address: '{HERE}:{port}'
  data_dir: '{folder}/{name}'
  bin_dir: '{programs}'
  pgpass: '{folder}/{name}.pgpass'
  basebackup: [checkpoint: fast]
  authentication:
    superuser: {{username: {USER}, password: none}}
    replication: {{username: replicator, password: none}}
  parameters: {{unix_socket_directories: '{folder}'}}
  pg_hba:
    - local all all trust
    - host all all {HERE}/32 trust
    - host replication all {HERE}/32 trust
"
    )
}
