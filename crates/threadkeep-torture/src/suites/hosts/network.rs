//! A server's network and two machines', joined by a wire each, in namespaces of the kernel.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Result;
use crate::report::Stop;
use crate::tools;

/// The machines, by their names in a network. The numbers are those of their wires.
const MACHINES: [(&str, u8); 2] = [(HOLDER, 1), (TAKER, 2)];
/// The machine that holds the thread first.
pub(super) const HOLDER: &str = "holder";
/// The machine that takes its place.
pub(super) const TAKER: &str = "taker";
const PORT: u16 = 5432;

/// The networks; they are gone when this is dropped.
#[derive(Debug)]
pub(super) struct Network {
    /// What its namespaces' names begin with.
    prefix: String,
}

impl Network {
    /// Lays the wires.
    pub(super) fn lay() -> Result<Self, Stop> {
        tools::need_program("ip", "iproute2").map_err(|reason| Stop::Skip { reason, by_system: false })?;
        let network = Self { prefix: format!("tk{}", std::process::id()) };
        let server = network.namespace("server");
        let laid = Self::make(&server).and_then(|()| {
            MACHINES.iter().try_for_each(|(name, number)| Self::join(&server, &network.namespace(name), *number))
        });
        laid.map_err(|words| Stop::Skip { reason: format!("the kernel refuses networks: {words}"), by_system: true })?;
        Ok(network)
    }

    fn namespace(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    fn make(namespace: &str) -> Result<()> {
        ip(&["netns", "add", namespace])?;
        ip(&["-n", namespace, "link", "set", "lo", "up"])
    }

    /// A wire between the server and a machine, with an address at each end.
    fn join(server: &str, machine: &str, number: u8) -> Result<()> {
        Self::make(machine)?;
        let wire = wire(number);
        ip(&["-n", server, "link", "add", &wire, "type", "veth", "peer", "name", "wire", "netns", machine])?;
        ip(&["-n", server, "address", "add", &format!("10.77.{number}.1/24"), "dev", &wire])?;
        ip(&["-n", machine, "address", "add", &format!("10.77.{number}.2/24"), "dev", "wire"])?;
        ip(&["-n", machine, "link", "set", "wire", "up"])?;
        ip(&["-n", server, "link", "set", &wire, "up"])
    }

    /// The words that run a program in the server's network.
    pub(super) fn inside_of_server(&self) -> Vec<String> {
        ["ip", "netns", "exec"].map(str::to_owned).into_iter().chain([self.namespace("server")]).collect()
    }

    /// The words that run a program on a machine, under its name.
    pub(super) fn inside_of(&self, machine: &str) -> Vec<String> {
        let script = "hostname \"$0\" && exec \"$@\"";
        let words = ["ip", "netns", "exec", &self.namespace(machine), "unshare", "--uts", "sh", "-c", script, machine];
        words.map(str::to_owned).into()
    }

    /// What the server's settings have to say of it.
    pub(super) fn settings() -> String {
        format!("listen_addresses = '*'\nport = {PORT}\ntcp_user_timeout = 500\n")
    }

    /// A store's address as the machines know it; each has its own wire to the server.
    pub(super) fn address(store: &Path, machine: &str) -> Result<PathBuf> {
        let (_, schema) = store.to_str().and_then(|text| text.split_once("&schema=")).ok_or("no store on a server")?;
        let number = MACHINES.iter().find(|(name, _)| *name == machine).map_or(0, |(_, number)| *number);
        let parameters = "sslmode=disable&connect_timeout=2&keepalives_idle=1";
        Ok(PathBuf::from(format!(
            "postgres://threadkeep@10.77.{number}.1:{PORT}/postgres?{parameters}&schema={schema}"
        )))
    }

    /// Takes a machine's wire away. Nobody is told: what is sent is lost, in both directions.
    pub(super) fn cut(&self, machine: &str) -> Result<()> {
        self.set(machine, "down")
    }

    /// Puts it back.
    pub(super) fn mend(&self, machine: &str) -> Result<()> {
        self.set(machine, "up")
    }

    fn set(&self, machine: &str, state: &str) -> Result<()> {
        let number = MACHINES.iter().find(|(name, _)| *name == machine).map_or(0, |(_, number)| *number);
        ip(&["-n", &self.namespace("server"), "link", "set", &wire(number), state])
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in ["server", HOLDER, TAKER] {
            for _ in 0..50 {
                if ip(&["netns", "del", &self.namespace(name)]).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

fn wire(number: u8) -> String {
    format!("wire{number}")
}

fn ip(args: &[&str]) -> Result<()> {
    tools::run("ip", args).map(drop)
}
