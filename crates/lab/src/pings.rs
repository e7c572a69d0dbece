//! The pings of a scenario, while its flows run.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ekiden_net::clock::realtime_ns;
use ekiden_net::ping::Pinger;
use ekiden_record::Ping as Reported;
use serde::{Deserialize, Serialize};

use crate::error::building;
use crate::{Error, Lab};

/// How long a thread waits for an answer at a time. Answers are stamped by the kernel, so this costs no accuracy.
const WAIT: Duration = Duration::from_millis(1);

/// What a ping has measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pinged {
    /// The figures of a record.
    #[serde(flatten)]
    pub report: Reported,
    /// Of each answered packet, in the order of the answers: when it was sent, in seconds since the pings were started, and its
    /// round-trip time in milliseconds.
    pub times: Vec<[f64; 2]>,
}

/// Threads that ping until they are told to stop.
pub struct Pings {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<Pinged>>>,
}

impl Pings {
    /// Starts all pings of the lab's scenario.
    ///
    /// # Errors
    /// [`Error::Build`] if the kernel refuses a socket.
    pub fn start(lab: &Lab) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut all = Self { stop, threads: Vec::new() };
        for (number, (name, ping)) in lab.scenario.pings.iter().enumerate() {
            let address = lab.address(&ping.to)?;
            let identifier = (std::process::id() as u16).wrapping_add(1 + number as u16);
            let opened = lab.namespace(&ping.from)?.run(|| Pinger::new(address, identifier, WAIT));
            let pinger = opened.map_err(building(format!("ping from '{}' to '{}'", ping.from, ping.to)))?;
            let (name, stop) = (name.clone(), Arc::clone(&all.stop));
            let (start, interval) = (ping.start.into(), ping.interval.into());
            all.threads.push(thread::spawn(move || run(&name, pinger, start, interval, &stop)));
        }
        Ok(all)
    }

    /// Stops them. Returns what they have measured, in the order of the scenario.
    ///
    /// # Errors
    /// [`Error::Build`] if one could not send.
    pub fn finish(mut self) -> Result<Vec<Pinged>, Error> {
        self.stop.store(true, Ordering::Relaxed);
        let threads = std::mem::take(&mut self.threads).into_iter();
        let ended = threads.map(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread failed"))));
        ended.collect::<io::Result<_>>().map_err(building("ping"))
    }
}

impl Drop for Pings {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn run(name: &str, mut pinger: Pinger, start: Duration, interval: Duration, stop: &AtomicBool) -> io::Result<Pinged> {
    let (mut next, mut lost, mut times) = (Instant::now() + start, 0, Vec::new());
    let begin_ns = realtime_ns();
    // When those were sent that have no answer yet.
    let mut under_way: BTreeMap<u16, u64> = BTreeMap::new();
    while !stop.load(Ordering::Relaxed) {
        if Instant::now() >= next {
            next += interval;
            let sent_ns = realtime_ns();
            match pinger.send() {
                // The number has come round: the packet that had it is long lost.
                Ok(number) => lost += u64::from(under_way.insert(number, sent_ns).is_some()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        if let Some((number, arrival_ns)) = pinger.receive()?
            && let Some(sent_ns) = under_way.remove(&number)
        {
            let (at_ns, took_ns) = (sent_ns.saturating_sub(begin_ns), arrival_ns.saturating_sub(sent_ns));
            times.push([at_ns as f64 / 1e9, took_ns as f64 / 1e6]);
        }
        let before = under_way.len();
        let now_ns = realtime_ns();
        under_way.retain(|_, sent_ns| now_ns.saturating_sub(*sent_ns) < Reported::LATE_US * 1_000);
        lost += (before - under_way.len()) as u64;
    }
    let times_us = times.iter().map(|[_, ms]| ms * 1e3).collect();
    Ok(Pinged { report: Reported::new(name, times_us, lost), times })
}
