//! The proxies of a scenario: this same program, run in their nodes with configurations made from the scenario.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ekiden_scenario::{Node, NodeKind};

use crate::error::building;
use crate::{Error, Lab, flow, sandbox};

/// Where a proxy's SOCKS5 listener is.
pub const SOCKS_PORT: u16 = 1080;
/// Where a proxy's HTTP listener is.
pub const HTTP_PORT: u16 = 3128;
/// Where a proxy takes legs from other proxies.
pub const LEG_PORT: u16 = 7000;

/// How long a proxy may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(10);

impl Lab {
    /// Starts `ekiden proxy` on every proxy node and waits until all listen: for SOCKS5 on [`SOCKS_PORT`] and for
    /// HTTP on [`HTTP_PORT`] of the node's address, both leading through the node's `next`; for other proxies on
    /// [`LEG_PORT`]; and for every flow `via` the node first, on a port of its own. They end with the lab.
    ///
    /// # Errors
    /// [`Error::Proxy`] with what the proxy said; [`Error::Build`] if the configuration cannot be written.
    pub fn start_proxies(&mut self) -> Result<(), Error> {
        let scenario = self.scenario.clone();
        let proxies: Vec<_> = scenario.nodes.iter().filter(|(_, node)| node.kind == NodeKind::Proxy).collect();
        if proxies.is_empty() {
            return Ok(());
        }
        let program = std::env::current_exe().map_err(building("find this program"))?;
        // Several labs of one sandbox must not share files.
        let place = sandbox::run_directory().map_or_else(std::env::temp_dir, Path::to_path_buf);
        let directory =
            tempfile::Builder::new().prefix("proxies-").tempdir_in(place).map_err(building("make a directory"))?;
        write_key(&directory.path().join("key")).map_err(building("write the proxies' key"))?;
        let mut waiting = Vec::new();
        for (name, node) in proxies {
            let file = directory.path().join(format!("{name}.toml"));
            let text = self.proxy_config(name, node)?;
            fs::write(&file, text).map_err(building(format!("write {}", file.display())))?;
            let log = directory.path().join(format!("{name}.log"));
            let log_file = File::create(&log).map_err(building(format!("write {}", log.display())))?;
            let mut command = self.command(name, &program)?;
            command.arg("proxy").arg("-c").arg(&file);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file);
            self.start(name, &mut command)?;
            let output = self.programs.last_mut().and_then(|program| program.stdout.take());
            waiting.push((name.clone(), log, output.map(await_ready)));
        }
        let place = directory.path().to_owned();
        self.directories.push(directory);
        for (node, log, ready) in waiting {
            let is_ready = ready.is_some_and(|ready| ready.recv_timeout(START_LIMIT).is_ok());
            if !is_ready {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let reason = match said.trim().lines().last() {
                    // Takes out the path of the configuration: it was made for the lab and is gone with it.
                    Some(line) => line.replace(&format!("{}/", place.display()), ""),
                    None => format!("it did not get ready within {} s, and said nothing", START_LIMIT.as_secs()),
                };
                return Err(Error::Proxy { node, reason });
            }
        }
        Ok(())
    }

    fn proxy_config(&self, name: &str, node: &Node) -> Result<String, Error> {
        let own = self.address(name)?;
        // Plain legs: the lab compares ways over a distance, none of them with encryption.
        let plain = "plain_key_file = \"key\"\n";
        let mut text = format!("name = \"{name}\"\n");
        let mut listen = |label: &str, kind: &str, port: u16, more: &str| {
            let _ = write!(text, "\n[listen.{label}]\nkind = \"{kind}\"\naddress = \"{own}:{port}\"\n{more}");
        };
        listen("socks", "socks5", SOCKS_PORT, "open = true\n");
        listen("web", "http", HTTP_PORT, "open = true\n");
        listen("leg", "leg", LEG_PORT, plain);
        for (index, flow) in self.scenario.flows.values().enumerate() {
            let Some((_, rest)) = flow.via.split_first().filter(|(first, _)| *first == name) else { continue };
            let to = format!("{}:{}", self.address(&flow.to)?, flow::receiver_port(index));
            let more = format!("to = \"{to}\"\nvia = {rest:?}\nopen = true\n");
            listen(&format!("flow{index}"), "forward", flow::entry_port(index), &more);
        }
        for (peer, _) in self.scenario.nodes.iter().filter(|(peer, node)| node.kind == NodeKind::Proxy && *peer != name)
        {
            let _ = write!(text, "\n[peer.{peer}]\naddress = \"{}:{LEG_PORT}\"\n{plain}", self.address(peer)?);
        }
        // All addresses there are private, and nobody else is there.
        let _ = write!(text, "\n[exit]\nallow = [\"*\"]\n");
        if !node.next.is_empty() {
            let _ = write!(text, "\n[[route]]\nto = [\"*\"]\nvia = {:?}\n", node.next);
        }
        Ok(text)
    }
}

/// A new random key, readable by its owner only.
fn write_key(path: &Path) -> io::Result<()> {
    let mut key = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(digits.as_bytes())
}

/// Reads a program's output to its end, so that it never blocks, and tells when it has said `ready`.
fn await_ready(output: impl Read + Send + 'static) -> mpsc::Receiver<()> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut tell = Some(tell);
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if line.trim() == "ready"
                && let Some(tell) = tell.take()
            {
                let _ = tell.send(());
            }
        }
    });
    told
}
