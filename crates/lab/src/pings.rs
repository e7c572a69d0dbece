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

use crate::error::building;
use crate::{Error, Lab};

/// How long a thread waits for an answer at a time. Answers are stamped by the kernel, so this costs no accuracy.
const WAIT: Duration = Duration::from_millis(1);

/// Threads that ping until they are told to stop.
pub(crate) struct Pings {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<Reported>>>,
}

impl Pings {
    /// Starts all pings of the lab's scenario.
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
    pub fn finish(mut self) -> Result<Vec<Reported>, Error> {
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

fn run(name: &str, mut pinger: Pinger, start: Duration, interval: Duration, stop: &AtomicBool) -> io::Result<Reported> {
    let (mut next, mut lost, mut times_us) = (Instant::now() + start, 0, Vec::new());
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
            times_us.push(arrival_ns.saturating_sub(sent_ns) as f64 / 1e3);
        }
        let before = under_way.len();
        let now_ns = realtime_ns();
        under_way.retain(|_, sent_ns| now_ns.saturating_sub(*sent_ns) < Reported::LATE_US * 1_000);
        lost += (before - under_way.len()) as u64;
    }
    Ok(Reported::new(name, times_us, lost))
}
