//! This same program, run in nodes with configurations made from the scenario.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ekiden_scenario::Scenario;

use crate::error::building;
use crate::node_file::NodeFile;
use crate::{Error, Lab, gateways, proxies, sandbox, tunnels};

/// How long a program may take until it is ready.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(30);
/// Where programs are that a search path need not have.
const PLACES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Where a program is, by `PATH` and where servers are installed; `None` if it is nowhere there.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(PLACES.iter().map(PathBuf::from));
    places.map(|place| place.join(program)).find(|file| file.is_file())
}

/// The configurations of all of ekiden's programs that a scenario needs, in the order in which they are to be started. They want the files of
/// [`write_keys`] beside them.
pub fn node_files(scenario: &Scenario) -> Vec<NodeFile> {
    [tunnels::files(scenario), gateways::files(scenario), proxies::files(scenario)].into_iter().flatten().collect()
}

/// Writes the key that all nodes share into the folder `place`, and those of an overlay's nodes with the file that lists them.
///
/// # Errors
/// [`Error::Build`].
pub fn write_keys(scenario: &Scenario, place: &Path) -> Result<(), Error> {
    write_key(&place.join("key")).map_err(building("write the nodes' key"))?;
    proxies::write_members(scenario, place)
}

impl Lab {
    /// Starts `ekiden proxy`, or another program, and `ekiden tunnel` where the scenario has proxies and tunnels, and waits until they
    /// work. They end with the lab.
    ///
    /// # Errors
    /// [`Error::NoProgram`] if one is missing here; [`Error::Node`] with what the program said; [`Error::Build`] if a configuration cannot be written.
    pub fn start_nodes(&mut self) -> Result<(), Error> {
        let files = node_files(&self.scenario);
        if !files.is_empty() {
            let place = self.directory()?;
            // Tunnels first: the others' connections may go through them.
            for files in files.chunk_by(|one, next| one.program == next.program) {
                self.start_ekiden(&place, files)?;
                if files[0].program == tunnels::PROGRAM {
                    self.await_tunnels()?;
                }
            }
        }
        self.start_peers()
    }

    /// A directory for configurations, with the lab's key. It is removed with the lab.
    pub(crate) fn directory(&mut self) -> Result<PathBuf, Error> {
        // Several labs of one sandbox must not share files.
        let place = sandbox::run_directory().map_or_else(std::env::temp_dir, Path::to_path_buf);
        let directory =
            tempfile::Builder::new().prefix("nodes-").tempdir_in(place).map_err(building("make a directory"))?;
        write_keys(&self.scenario, directory.path())?;
        let place = directory.path().to_owned();
        self.directories.push(directory);
        Ok(place)
    }

    /// Starts `ekiden PROGRAM` with each configuration, which it writes into `place`, and waits until all are ready.
    fn start_ekiden(&mut self, place: &Path, files: &[NodeFile]) -> Result<(), Error> {
        let program = std::env::current_exe().map_err(building("find this program"))?;
        let mut waiting = Vec::new();
        for NodeFile { program: command, node, label, text } in files {
            let file = place.join(format!("{label}.toml"));
            fs::write(&file, text).map_err(building(format!("write {}", file.display())))?;
            let log = place.join(format!("{label}.log"));
            let log_file = File::create(&log).map_err(building(format!("write {}", log.display())))?;
            let mut starting = self.command(node, &program)?;
            starting.arg(command).arg("-c").arg(&file);
            starting.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file);
            self.start(node, &mut starting)?;
            let output = self.programs.last_mut().and_then(|program| program.stdout.take());
            waiting.push((*command, node.clone(), log, output.map(await_ready)));
        }
        for (command, node, log, ready) in waiting {
            let is_ready = ready.is_some_and(|ready| ready.recv_timeout(START_LIMIT).is_ok());
            if !is_ready {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let reason = match said.trim().lines().last() {
                    // Takes out the path of the configuration: it was made for the lab and is gone with it.
                    Some(line) => line.replace(&format!("{}/", place.display()), ""),
                    None => format!("it did not get ready within {} s, and said nothing", START_LIMIT.as_secs()),
                };
                return Err(Error::Node { what: command, node, reason });
            }
        }
        Ok(())
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
