//! The background of a scenario: datagrams at a constant rate while its flows run.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ekiden_scenario::Background;

use crate::error::building;
use crate::{Error, Lab};

/// Where datagrams go to: discard (RFC 863).
const PORT: u16 = 9;
/// IPv4 and UDP.
const HEADERS: u64 = 28;
/// How long a source sleeps at least: what is due by then leaves at once.
const TICK: Duration = Duration::from_micros(500);

/// Sources that send until this is dropped.
pub(crate) struct Sources {
    stop: Arc<AtomicBool>,
    /// They read nothing: what they have no room for is lost there, as it should be.
    _receivers: Vec<UdpSocket>,
}

impl Sources {
    /// Starts all sources of the lab's scenario.
    pub fn start(lab: &Lab) -> Result<Self, Error> {
        let mut sources = Self { stop: Arc::new(AtomicBool::new(false)), _receivers: Vec::new() };
        let mut taken = Vec::new();
        for (name, background) in &lab.scenario.background {
            let failed = || building(format!("send background '{name}'"));
            let to = lab.address(&background.to)?;
            if !taken.contains(&to) {
                let receiver = lab.namespace(&background.to)?.run(|| UdpSocket::bind((to, PORT)));
                sources._receivers.push(receiver.map_err(failed())?);
                taken.push(to);
            }
            let sender = lab.namespace(&background.from)?.run(|| {
                let sender = UdpSocket::bind((lab.address(&background.from).map_err(io::Error::other)?, 0))?;
                sender.connect((to, PORT))?;
                Ok(sender)
            });
            let (sender, stop, background) = (sender.map_err(failed())?, Arc::clone(&sources.stop), background.clone());
            thread::spawn(move || send(&sender, &background, &stop));
        }
        Ok(sources)
    }
}

impl Drop for Sources {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn send(socket: &UdpSocket, background: &Background, stop: &AtomicBool) {
    let payload = vec![0; background.packet.0.saturating_sub(HEADERS) as usize];
    let begin = Instant::now() + background.start.into();
    let end = background.duration.map(|duration| begin + duration.into());
    let packet_time = background.rate.time_for(background.packet).0;
    let mut sent = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        // By number, so that the rate is exact however late the thread wakes up.
        let due = begin + Duration::from_nanos(packet_time.saturating_mul(sent));
        if end.is_some_and(|end| due >= end) {
            return;
        }
        match due.checked_duration_since(Instant::now()) {
            Some(wait) => thread::sleep(wait.clamp(TICK, Duration::from_millis(100))),
            None => {
                // A full queue of the sender drops it, as any other on the way may.
                let _ = socket.send(&payload);
                sent += 1;
            }
        }
    }
}
