//! A broker process that tests start, kill and restart, and the commands of tests.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Mutex,
        mpsc::{self, Receiver},
    },
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tempfile::TempDir;

use crate::{
    asking,
    backup::get,
    bounds::{BOUND, Watch, joined, until},
    cluster_nodes::{CLUSTER, own_address},
    skipped::skipped,
};

/// How long a broker may take to recover: a disk that others write to may hold up its syncs for a minute.
const START_TIMEOUT: Duration = BOUND;

/// A broker on a data directory. Dropping it kills it.
///
/// With `SENNIT_NODES=3` it is the last of three nodes: the others have directories of their own, and run until it is dropped.
pub struct Broker {
    child: Child,
    data: PathBuf,
    flags: Vec<String>,
    /// The other nodes.
    peers: Vec<Peer>,
    pub listen: String,
    pub http: String,
    /// The admin key, if it was made at the first start.
    pub admin_key: Option<String>,
    /// What it prints behind its addresses.
    lines: Mutex<Receiver<String>>,
}

#[derive(Deserialize)]
struct Addresses {
    listen: String,
    http: String,
    admin_key: Option<String>,
}

/// Another node of a broker. Dropping it kills it.
struct Peer {
    child: Child,
    listen: String,
    http: String,
    _data: TempDir,
}

impl Peer {
    fn start(flags: &[String]) -> Self {
        let data = TempDir::new().expect("there is room for another node");
        let free = ("127.0.0.1:0", "127.0.0.1:0");
        let (child, Addresses { listen, http, .. }, _) =
            serve_by(sennit(&[]), data.path(), free, flags).expect("it starts");
        Self { child, listen, http, _data: data }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many nodes a broker is that is not told who it is.
pub fn node_count() -> usize {
    std::env::var("SENNIT_NODES").map_or(1, |nodes| nodes.parse().expect("a number"))
}

/// Whether a broker is one node. If it is not, the test that asks is skipped for this reason, and returns.
#[track_caller]
pub fn is_one_node(why: &str) -> bool {
    let is_one = node_count() == 1;
    if !is_one {
        skipped(&format!("on several nodes {why}"));
    }
    is_one
}

/// The flags of each node that a broker is, its own last. They are as they are told if it is one, or is told who it is.
fn flags_of_nodes(flags: &[&str]) -> Vec<Vec<String>> {
    let flags: Vec<_> = flags.iter().map(|&flag| flag.to_owned()).collect();
    let nodes = node_count();
    if nodes == 1 || flags.iter().any(|flag| flag == "--node-id") {
        return vec![flags];
    }
    let addresses: Vec<_> = (0..nodes).map(|_| own_address()).collect();
    let flags_of = |index: usize| {
        let peers = (0..nodes).filter(|peer| *peer != index);
        let peers: Vec<_> = peers.map(|peer| format!("{}={}", peer + 1, addresses[peer])).collect();
        let (node, peers) = ((index + 1).to_string(), peers.join(","));
        let own = ["--node-id", &node, "--peers", &peers, "--cluster-listen", &addresses[index]];
        let all = own.into_iter().chain(["--cluster-id", CLUSTER]).map(ToOwned::to_owned);
        let is_own = |flag: &&String| index + 1 == nodes || *flag != "--init-admin";
        flags.iter().filter(is_own).cloned().chain(all).collect()
    };
    (0..nodes).map(flags_of).collect()
}

/// The binary, to be told more.
pub fn sennit(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sennit"));
    command
        .args(arguments)
        .env_remove("SENNIT_SERVER")
        .env_remove("SENNIT_HTTP")
        .env_remove("SENNIT_KEY")
        // Where the tests run in a container as elsewhere.
        .env("SENNIT_INIT_ADMIN", "false")
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env("RUST_LOG", "warn");
    command
}

fn serve(
    data: &Path,
    listen: &str,
    http: &str,
    flags: &[String],
) -> Option<(Child, Addresses, Receiver<String>)> {
    serve_by(sennit(&[]), data, (listen, http), flags)
}

fn serve_by(
    mut program: Command,
    data: &Path,
    (listen, http): (&str, &str),
    flags: &[String],
) -> Option<(Child, Addresses, Receiver<String>)> {
    let mut child = program
        .args(["serve", "--json", "--listen", listen, "--http", http])
        .arg("--data")
        .arg(data)
        .args(flags)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut said = BufReader::new(child.stdout.take().expect("it was piped"));
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        loop {
            let mut line = String::new();
            let read = said.read_line(&mut line).expect("standard output is read");
            // The test waits no more if it took too long.
            if sender.send(line).is_err() || read == 0 {
                return;
            }
        }
    });
    let line = lines.recv_timeout(START_TIMEOUT).unwrap_or_else(|_| {
        child.kill().expect("it runs");
        panic!("the broker did not say where it listens within {START_TIMEOUT:?}");
    });
    match serde_json::from_str(&line) {
        Ok(addresses) => Some((child, addresses, lines)),
        Err(_) => {
            let _watch = Watch::over(&child, "the broker that does not start");
            child.wait().expect("it was started");
            None
        }
    }
}

impl Broker {
    /// Starts a broker on free ports.
    pub fn start(data: &Path) -> Self {
        Self::start_with(data, &[])
    }

    /// Starts a broker on free ports that is told more.
    pub fn start_with(data: &Path, flags: &[&str]) -> Self {
        Self::start_by(sennit(&[]), data, flags)
    }

    /// The same, by a command that becomes the binary. It is not to be started again.
    pub fn start_by(program: Command, data: &Path, flags: &[&str]) -> Self {
        let mut nodes = flags_of_nodes(flags);
        let flags = nodes.pop().expect("there is one at least");
        let peers = nodes.iter().map(|flags| Peer::start(flags)).collect();
        let free = ("127.0.0.1:0", "127.0.0.1:0");
        let (child, Addresses { listen, http, admin_key }, lines) =
            serve_by(program, data, free, &flags).expect("the broker starts");
        let admin_key = admin_key.or_else(|| {
            // On several nodes it is made once two of them hear each other.
            let is_made = !nodes.is_empty() && flags.iter().any(|flag| flag == "--init-admin");
            let line =
                is_made.then(|| lines.recv_timeout(START_TIMEOUT).expect("it tells the key"));
            let said: Option<serde_json::Value> =
                line.and_then(|line| serde_json::from_str(&line).ok());
            said.and_then(|said| said["admin_key"].as_str().map(ToOwned::to_owned))
        });
        let lines = Mutex::new(lines);
        let broker =
            Self { child, data: data.to_owned(), flags, peers, listen, http, admin_key, lines };
        broker.wait_until_ready();
        broker
    }

    /// Waits until it serves clients, if it is one of several nodes: these have to hear each other before.
    fn wait_until_ready(&self) {
        if !self.peers.is_empty() {
            // A port that asks for TLS says something else.
            let asked = || asking::ask_at(&self.http, "GET", "/readyz", &[], "");
            let is_ready = || asked().is_none_or(|answer| answer.status != 503);
            until("the nodes hear each other", is_ready);
        }
    }

    /// The metrics of all its nodes.
    pub fn metrics(&self) -> String {
        let nodes = self.peers.iter().map(|peer| &peer.http).chain([&self.http]);
        nodes.map(|http| get(http, "/metrics")).collect()
    }

    /// As [`Self::ok`], of each of its nodes, one after the other.
    pub fn each_ok(&self, arguments: &[&str]) -> Vec<u8> {
        let peers = self.peers.iter().map(|peer| (&peer.listen, &peer.http));
        let nodes = peers.chain([(&self.listen, &self.http)]);
        let of_node = |(listen, http)| {
            let mut command = sennit(arguments);
            command.env("SENNIT_SERVER", listen).env("SENNIT_HTTP", http);
            let output = run(command, b"");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            output.stdout
        };
        nodes.flat_map(of_node).collect()
    }

    /// The lines that it has printed since this was asked last.
    pub fn printed(&self) -> Vec<String> {
        self.lines.lock().expect("nobody panics with it").try_iter().collect()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to its process.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).expect("the system numbers processes so");
        let pid = Pid::from_raw(pid).expect("no process has number 0");
        kill_process(pid, signal).expect("it runs");
    }

    /// Kills it without warning and waits until the kernel has cleared it away.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was killed");
    }

    /// Starts it again where it was.
    pub fn start_again(&mut self) {
        let (child, _, lines) =
            serve(&self.data, &self.listen, &self.http, &self.flags).expect("it starts again");
        (self.child, self.lines) = (child, Mutex::new(lines));
        self.wait_until_ready();
    }

    /// Asks it to end, and returns its exit code.
    pub fn terminate(&mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
        assert!(asked.success());
        let _watch = Watch::over(&self.child, "the broker that was asked to end");
        self.child.wait().expect("it was started").code()
    }

    /// A command to this broker.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = sennit(arguments);
        command.env("SENNIT_SERVER", &self.listen).env("SENNIT_HTTP", &self.http);
        command
    }

    /// Runs a command to its end, with `input` on its standard input.
    pub fn run(&self, arguments: &[&str], input: &[u8]) -> Output {
        run(self.command(arguments), input)
    }

    /// As [`Self::run`]; it has to succeed. Returns its standard output.
    pub fn ok(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let output = self.run(arguments, input);
        let talk = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {talk}");
        output.stdout
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command to its end, with `input` on its standard input.
pub fn run(mut command: Command, input: &[u8]) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    let _watch = Watch::over(&child, &format!("{command:?}"));
    let mut stdin = child.stdin.take().expect("it was piped");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || {
        // A command that does not want it closes its end.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("it ends");
    joined("all of the input is taken", writer);
    output
}
