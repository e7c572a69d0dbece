//! Nodes as processes of their own.
//!
//! The process is the test program itself, running only its test `node_process`.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{PATIENCE, directory, log};

const CONFIG: &str = "EKIDEN_TEST_NODE";
const FILES: &str = "EKIDEN_TEST_FILES";
const ENDED: &str = "the node ended before it was ready";

/// Is the node, when the variable names its configuration; returns otherwise.
#[test]
fn node_process() {
    if let Some(file) = std::env::var_os(CONFIG) {
        let file = PathBuf::from(file);
        if let Ok(most) = std::env::var(FILES) {
            let most = most.parse().unwrap();
            setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
        }
        log::print();
        let config = ekiden_relay::Config::load(&file).unwrap();
        ekiden_relay::run(config, &file).unwrap();
    }
}

pub struct Process {
    pub child: Child,
    /// What it writes until it is ready.
    pub first: Vec<String>,
    /// What it writes after `ready`.
    lines: Receiver<String>,
    pub file: PathBuf,
    pub addresses: Vec<SocketAddr>,
}

impl Process {
    pub fn start(name: &str, text: &str) -> Self {
        Self::start_in(name, text, &[], None).expect(ENDED)
    }

    /// One that comes after this one, which is told to stop once the new one waits.
    pub fn replace(&self, name: &str, text: &str) -> Self {
        Self::replace_and_tell(self, name, text, &channel().0)
    }

    /// The same; `told` hears of it when this one has been told.
    pub fn replace_and_tell(&self, name: &str, text: &str, told: &Sender<()>) -> Self {
        Self::start_in(name, text, &[], Some((self, told))).expect(ENDED)
    }

    /// One that comes after this one, and ends before it is ready. What it has written.
    pub fn replace_in_vain(&self, name: &str, text: &str) -> Vec<String> {
        Self::start_in(name, text, &[], Some((self, &channel().0))).err().expect("it is ready")
    }

    /// One that may have only so many open files.
    pub fn start_with_files(name: &str, text: &str, most: u64) -> Self {
        Self::start_in(name, text, &[(FILES, &most.to_string())], None).expect(ENDED)
    }

    /// What it has written, if it ends before it is ready.
    fn start_in(
        name: &str,
        text: &str,
        variables: &[(&str, &str)],
        mut before: Option<(&Self, &Sender<()>)>,
    ) -> Result<Self, Vec<String>> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let file = directory().join(format!("{name}-{}.toml", STARTED.fetch_add(1, Ordering::Relaxed)));
        write_config(&file, text);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "common::process::node_process", "--nocapture"])
            .env(CONFIG, &file)
            // One that panics ends at once: others wait for a second.
            .env("RUST_BACKTRACE", "0")
            .envs(variables.iter().copied())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut addresses, mut first) = (Vec::new(), Vec::new());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        loop {
            let Some(line) = lines.next() else {
                let _ = child.wait();
                return Err(first);
            };
            let line = line.unwrap();
            // The test harness writes its own words before ours.
            if let Some((_, rest)) = line.split_once("listening ") {
                addresses.push(rest.split(' ').nth(1).unwrap().parse().unwrap());
            }
            if line.contains(" is waited for")
                && let Some((before, told)) = before.take()
            {
                before.signal(Signal::SIGTERM);
                let _ = told.send(());
            }
            if line.ends_with("ready") {
                break;
            }
            first.push(line);
        }
        let (sender, receiver) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(sender.send(line))));
        Ok(Self { child, first, lines: receiver, file, addresses })
    }

    /// Gives the node another configuration, which it reads at its SIGHUP.
    pub fn rewrite(&self, text: &str) {
        write_config(&self.file, text);
    }

    pub fn wait_for_line(&self, part: &str) {
        while !self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no line with '{part}'")).contains(part) {}
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Fails with what it has written otherwise.
    pub fn ensure_ends(&mut self) {
        let ends = self.ends_within(PATIENCE);
        assert!(ends, "the node runs on; it has said {:#?}", self.lines.try_iter().collect::<Vec<_>>());
    }

    pub fn ends_within(&mut self, limit: Duration) -> bool {
        let start = Instant::now();
        while start.elapsed() < limit {
            if self.child.try_wait().unwrap().is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hosts are on loopback.
fn write_config(file: &Path, text: &str) {
    let exit = "\n[exit]\nallow = [\"127.0.0.0/8\", \"::1\"]\n";
    let exit = if text.contains("[exit]") { "" } else { exit };
    std::fs::write(file, format!("{text}{exit}")).unwrap();
}
