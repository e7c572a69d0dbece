//! One transfer, in a process of its own: builds the network, serves the file, fetches it with curl.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ekiden_lab::{Interrupt, Lab, Pings, process_waited_percent};
use ekiden_record::Disturbance;
use ekiden_scenario::Scenario;
use ekiden_units::Bytes;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::Missing;
use crate::payload;
use crate::protocol::{Listener, Message, Order, Transfer};

/// The folder that is served, in the run's directory, and gone with it.
const FOLDER: &str = "served";
const FILE: &str = "payload";
const PORT: u16 = 8080;
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Reads an order from standard input, carries it out, and says so on standard output.
///
/// # Errors
/// If the lab cannot be built, a program is missing, or curl fails.
pub fn run() -> anyhow::Result<()> {
    let order: Order = serde_json::from_reader(std::io::stdin()).context("no order on standard input")?;
    let scenario = Scenario::parse(&order.scenario, "the demo's scenario")?;
    ekiden_lab::isolate(Interrupt::Ends)?;
    let mut lab = Lab::build(&scenario)?;
    lab.start_nodes()?;
    let _server = serve(&mut lab, order.bytes)?;
    lab.begin();
    let stop = AtomicBool::new(false);
    let started = Instant::now();
    let pings = Pings::start(&lab)?;
    let (fetched, samples) = std::thread::scope(|scope| {
        let watcher = order.watch.as_deref().map(|node| scope.spawn(|| watch(&lab, node, started, &stop)));
        let fetched = fetch(&lab, &order);
        stop.store(true, Ordering::Relaxed);
        let samples = watcher.map_or_else(Vec::new, |watcher| watcher.join().unwrap_or_default());
        (fetched, samples)
    });
    let fetched = fetched?;
    let waited_percent = lab.waited_percent().into_iter().chain(fetched.waited_percent).max_by(f64::total_cmp);
    let Fetched { timing, bytes, sha256, arrived, .. } = fetched;
    let pings = pings.finish()?;
    let links = lab.link_counters();
    say(&Message::Done(Transfer {
        bytes,
        seconds: timing.time_total,
        connect_s: timing.time_connect,
        first_byte_s: timing.time_starttransfer,
        sha256,
        drops: links.iter().map(|direction| direction.queue_drops).sum(),
        disturbed: Disturbance::of(&links, waited_percent),
        samples,
        arrived,
        pings,
    }))
}

/// A program that is killed when this value is dropped.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes the file and starts Python's HTTP server on the server node; returns when it listens.
fn serve(lab: &mut Lab, size: Bytes) -> anyhow::Result<ChildGuard> {
    let folder = ekiden_lab::run_directory().context("the lab has no directory")?.join(FOLDER);
    let file = std::fs::create_dir(&folder).and_then(|()| File::create(folder.join(FILE)));
    let mut file = BufWriter::new(file.context("cannot write the file to be served")?);
    payload::write(size, &mut file)?;
    file.flush()?;
    let address = lab.address("server")?.to_string();
    let mut command = lab.command("server", "python3")?;
    command.args(["-u", "-m", "http.server", "--bind", &address, &PORT.to_string(), "--directory"]).arg(folder);
    let mut child = start(command.stdout(Stdio::piped()).stderr(Stdio::null()), "python3")?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    let server = ChildGuard(child);
    if !line.starts_with("Serving HTTP") {
        bail!("python3 -m http.server did not start");
    }
    Ok(server)
}

/// The part of curl's `--write-out '%{json}'` that is used.
#[derive(Deserialize)]
struct Timing {
    time_total: f64,
    time_connect: f64,
    time_starttransfer: f64,
}

/// What came of a fetch.
struct Fetched {
    timing: Timing,
    /// How many bytes arrived.
    bytes: u64,
    /// Of what arrived.
    sha256: String,
    /// Seconds, MB.
    arrived: Vec<[f64; 2]>,
    /// The part of the time that curl waited for a processor.
    waited_percent: Option<f64>,
}

/// Fetches the file with curl on the client node.
fn fetch(lab: &Lab, order: &Order) -> anyhow::Result<Fetched> {
    let url = format!("http://{}:{PORT}/{FILE}", lab.address("server")?);
    let mut command = lab.command("client", "curl")?;
    command.args(["--silent", "--show-error", "--fail", "--noproxy", "", "--write-out", "%{stderr}%{json}"]);
    if let Some(listener) = &order.listener {
        command.arg("--proxy").arg(match listener {
            Listener::Http(node) => format!("http://{}:{}", lab.address(node)?, ekiden_lab::HTTP_PORT),
            Listener::Socks(node) => format!("socks5h://{}:{}", lab.address(node)?, ekiden_lab::SOCKS_PORT),
        });
    }
    command.arg(url).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = start(&mut command, "curl")?;
    let mut arriving = child.stdout.take().context("curl has no output")?;
    let started = Instant::now();
    let (mut hash, mut bytes, mut shown, mut waited_percent) = (Sha256::new(), 0, started, None);
    let mut arrived = vec![[0.0; 2]];
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let n = arriving.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        hash.update(&buffer[..n]);
        bytes += n as u64;
        if shown.elapsed() >= PROGRESS_EVERY {
            shown = Instant::now();
            waited_percent = process_waited_percent(child.id(), started);
            arrived.push([started.elapsed().as_secs_f64(), bytes as f64 / 1e6]);
            say(&Message::Progress(bytes))?;
        }
    }
    arrived.push([started.elapsed().as_secs_f64(), bytes as f64 / 1e6]);
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{}", said.lines().next().unwrap_or("curl failed and said nothing"));
    }
    let timing = serde_json::from_str(&said).context("curl's --write-out '%{json}' is not as expected")?;
    Ok(Fetched { timing, bytes, sha256: payload::hex(&hash.finalize()), arrived, waited_percent })
}

/// Samples the congestion window of the busiest connection of `node` until told to stop.
fn watch(lab: &Lab, node: &str, started: Instant, stop: &AtomicBool) -> Vec<[f64; 3]> {
    let mut samples = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let listing = lab.command(node, "ss").ok().and_then(|mut ss| ss.args(["-tinOH"]).output().ok());
        let text = listing.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        if let Some([cwnd, rtt_ms]) = busiest(&text) {
            samples.push([started.elapsed().as_secs_f64(), cwnd, rtt_ms]);
        }
        std::thread::sleep(SAMPLE_EVERY);
    }
    samples
}

/// Congestion window and smoothed RTT of the connection that has sent most, from `ss -tinOH`.
fn busiest(listing: &str) -> Option<[f64; 2]> {
    let number = |line: &str, key: &str| -> Option<f64> {
        let value = line.split_whitespace().find_map(|word| word.strip_prefix(key))?;
        value.split('/').next()?.parse().ok()
    };
    let connections = listing
        .lines()
        .filter_map(|line| Some((number(line, "bytes_sent:")?, [number(line, "cwnd:")?, number(line, "rtt:")?])));
    connections.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, sample)| sample)
}

fn start(command: &mut Command, program: &'static str) -> anyhow::Result<Child> {
    command.spawn().map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => anyhow::Error::new(Missing { program }),
        _ => anyhow::Error::new(source).context(format!("cannot start {program}")),
    })
}

/// One line on standard output. Fails when nobody listens any more, which ends the transfer.
fn say(message: &Message) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(message)?)?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::busiest;

    #[test]
    fn the_connection_that_sent_most_is_watched() {
        let listing = "ESTAB 0 0 10.0.0.1:80 10.0.0.2:5 reno rto:201 rtt:0.5/0.2 cwnd:10 bytes_sent:100\n\
                       ESTAB 0 0 10.0.0.1:81 10.0.0.2:6 reno rto:260 rtt:43.5/0.2 cwnd:240 ssthresh:7 bytes_sent:9000\n";
        assert_eq!(busiest(listing), Some([240.0, 43.5]));
        assert_eq!(busiest(""), None);
        assert_eq!(busiest("ESTAB cwnd:x rtt:/ bytes_sent:1"), None);
    }
}
