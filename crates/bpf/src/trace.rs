//! Events of connections as the eBPF programs report them: windows, losses and modes.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ekiden_congestion::{Algorithm, Window};
use libbpf_rs::{MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};
use nix::time::{ClockId, clock_gettime};

use crate::error::libbpf;
use crate::lock::{self, Lock};
use crate::{Error, Registration};

/// How long the programs report events after the reader last renewed its lease.
const LEASE: Duration = Duration::from_secs(2);
/// How often the lease is renewed.
const RENEWAL: Duration = Duration::from_millis(500);

/// Which events are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Once per round trip, and whenever something happens.
    Rounds = 1,
    /// Every acknowledgement too, with the algorithm's inputs: enough to compute its decisions again.
    Calls = 2,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The connection starts to use the algorithm.
    Start,
    /// A round trip has passed.
    Round,
    /// A loss event.
    Loss {
        /// The slow start threshold that follows, in segments.
        ssthresh: u32,
    },
    /// The retransmission timer ran out.
    Timeout,
    /// Gentle HSTCP changed its mode.
    Mode {
        /// Whether it is Reno now.
        reno: bool,
    },
    /// A loss event was spurious and is undone (RFC 3522, RFC 5682).
    Undo {
        /// The window it goes back to, in segments.
        cwnd: u32,
    },
    /// The connection ended, or changed to another algorithm.
    End,
    /// A round-trip time was measured ([`Level::Calls`]).
    Rtt {
        /// The round-trip time in microseconds.
        rtt_us: u32,
    },
    /// Segments were acknowledged while the window was the limit ([`Level::Calls`]).
    Acked {
        /// How many.
        segments: u32,
    },
    /// Something is sent after nothing was for longer than the retransmission timeout ([`Level::Calls`]).
    Idle,
}

/// One event of one connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Event {
    /// When, in microseconds of the monotonic clock.
    pub at_us: u64,
    /// The same for all events of one connection while it lives; to be compared only.
    pub connection: u64,
    /// The sender's network namespace, as SO_NETNS_COOKIE tells it.
    pub namespace: u64,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// What happened.
    pub kind: EventKind,
    /// Congestion window before the call, in segments.
    pub cwnd_before: u32,
    /// Its fraction before the call.
    pub cwnd_cnt_before: u32,
    /// The window after the call.
    pub window: Window,
    /// Smoothed round-trip time in microseconds.
    pub srtt_us: u32,
    /// Whether gentle HSTCP is in Reno mode.
    pub reno_mode: bool,
    /// What `ekiden_far` takes the path for.
    pub model: Option<Model>,
    /// The sender's address.
    pub local: SocketAddr,
    /// The receiver's.
    pub remote: SocketAddr,
}

/// What decides `ekiden_far`'s window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The window doubles per round trip.
    Startup,
    /// In startup: an earlier connection has found out what the path carries, and the first segments are to confirm it.
    Known,
    /// The window has jumped to a part of that, and it is not seen yet whether it arrives.
    Jump,
    /// The queue that it sees.
    Alone,
    /// Others fill the queue: the window is a Reno connection's.
    Shares,
}

/// `ekiden_far`'s model of the path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Model {
    /// What decides the window.
    pub phase: Phase,
    /// The least round trip in microseconds; 0: none was measured yet.
    pub base_us: u32,
    /// The shortest queue in this round trip so far, in microseconds.
    pub queue_us: u32,
    /// What the path has carried in a round trip, in segments.
    pub carried: u32,
    /// The window by the queue, in segments; 0 in startup.
    pub own: u32,
    /// A Reno connection's window, in segments; 0 in startup.
    pub fair: u32,
    /// The part of what is sent that is lost by chance.
    pub chance: f64,
}

/// Reads the events of registered algorithms, until it is dropped. Only one process of a machine can read at a time.
pub struct Trace {
    rings: RingBuffer<'static>,
    queue: Arc<Mutex<VecDeque<Event>>>,
    leases: Vec<MapHandle>,
    losses: Vec<MapHandle>,
    lost_before: u64,
    owner: u64,
    level: Level,
    renewed: Instant,
    _lock: Lock,
}

impl Trace {
    /// Starts to read events. The caller need not keep `registrations`.
    ///
    /// # Errors
    /// If another trace is running, or this process may not.
    pub fn start(registrations: &[Registration], level: Level) -> Result<Self, Error> {
        let Some(first) = registrations.first() else { return Err(Error::NothingToTrace) };
        // The lock excludes processes that share /sys; the lease also excludes those in containers with a /sys of their own.
        let lock = lock::trace().map_err(crate::error::failed("lock the events"))?;
        let lock = lock.ok_or(Error::Traced(first.algorithm()))?;
        let queue = Arc::new(Mutex::new(VecDeque::new()));
        // Algorithms that were registered together share one ring buffer.
        let mut seen = Vec::new();
        let (mut leases, mut losses) = (Vec::new(), Vec::new());
        let mut builder = RingBufferBuilder::new();
        let read = || libbpf("read the events");
        for one in registrations {
            let id = one.events.info().map_err(read())?.info.id;
            if seen.contains(&id) {
                continue;
            }
            seen.push(id);
            let lease = Lease::read(&one.lease)?;
            if lease.until_us > monotonic_us() {
                return Err(Error::Traced(one.algorithm()));
            }
            leases.push(MapHandle::try_from(&one.lease).map_err(read())?);
            losses.push(MapHandle::try_from(&one.lost).map_err(read())?);
            let queue = Arc::clone(&queue);
            builder
                .add(&one.events, move |bytes: &[u8]| {
                    queue.lock().unwrap_or_else(PoisonError::into_inner).extend(decode(bytes));
                    0
                })
                .map_err(read())?;
        }
        let rings = builder.build().map_err(read())?;
        // Discards events that an earlier reader left.
        rings.consume().map_err(read())?;
        queue.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let owner = monotonic_us() << 22 | u64::from(std::process::id());
        let renewed = Instant::now();
        let mut trace = Self { rings, queue, leases, losses, lost_before: 0, owner, level, renewed, _lock: lock };
        trace.lost_before = trace.lost_in_all()?;
        trace.renew()?;
        Ok(trace)
    }

    /// The events that have come, after waiting for some at most this long (500 ms at most, to renew the lease). To be
    /// called at least every second.
    ///
    /// # Errors
    /// If reading fails.
    pub fn poll(&mut self, wait: Duration) -> Result<Vec<Event>, Error> {
        if self.renewed.elapsed() >= RENEWAL {
            self.renew()?;
        }
        match self.rings.poll_raw(wait.min(RENEWAL)) {
            // A signal came.
            error if error < 0 && error != -nix::libc::EINTR => {
                Err(crate::error::failed("read the events")(std::io::Error::from_raw_os_error(-error)))
            }
            _ => Ok(self.queue.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()),
        }
    }

    /// Events lost since the start because the ring buffer was full.
    ///
    /// # Errors
    /// If reading fails.
    pub fn lost(&self) -> Result<u64, Error> {
        Ok(self.lost_in_all()?.saturating_sub(self.lost_before))
    }

    fn lost_in_all(&self) -> Result<u64, Error> {
        let lost = |map: &MapHandle| {
            let value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(libbpf("read how many were lost"))?;
            Ok(Fields(value.as_deref().unwrap_or_default()).u64())
        };
        self.losses.iter().map(lost).sum()
    }

    fn renew(&mut self) -> Result<(), Error> {
        let until_us = monotonic_us() + LEASE.as_micros() as u64;
        for map in &self.leases {
            Lease { until_us, owner: self.owner, level: self.level as u32 }.write(map)?;
        }
        self.renewed = Instant::now();
        Ok(())
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        for map in &self.leases {
            if let Ok(lease) = Lease::read(map)
                && lease.owner == self.owner
            {
                let _ = Lease { until_us: 0, ..lease }.write(map);
            }
        }
    }
}

/// `struct ek_lease`.
struct Lease {
    until_us: u64,
    owner: u64,
    level: u32,
}

impl Lease {
    fn read(map: &MapHandle) -> Result<Self, Error> {
        let value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(libbpf("read who listens"))?;
        let mut fields = Fields(value.as_deref().unwrap_or_default());
        Ok(Self { until_us: fields.u64(), owner: fields.u64(), level: fields.u32() })
    }

    fn write(&self, map: &MapHandle) -> Result<(), Error> {
        let mut value = Vec::with_capacity(24);
        for number in [self.until_us, self.owner] {
            value.extend(number.to_ne_bytes());
        }
        value.extend(self.level.to_ne_bytes());
        value.extend([0; 4]);
        map.update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY).map_err(libbpf("say who listens"))
    }
}

/// Reads consecutive numbers; 0 beyond the end.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u64(&mut self) -> u64 {
        let Some((first, rest)) = self.0.split_first_chunk() else { return 0 };
        self.0 = rest;
        u64::from_ne_bytes(*first)
    }

    fn u32(&mut self) -> u32 {
        let Some((first, rest)) = self.0.split_first_chunk() else { return 0 };
        self.0 = rest;
        u32::from_ne_bytes(*first)
    }

    fn words(&mut self) -> [u32; 4] {
        [(); 4].map(|()| self.u32())
    }
}

/// Decodes a `struct ek_event`; `None` if it is malformed.
fn decode(bytes: &[u8]) -> Option<Event> {
    let mut fields = Fields(bytes);
    let (at_us, connection, namespace) = (fields.u64(), fields.u64(), fields.u64());
    let (kind, algorithm, value, mode) = (fields.u32(), fields.u32(), fields.u32(), fields.u32());
    let (cwnd_before, cwnd_cnt_before) = (fields.u32(), fields.u32());
    let window = Window { cwnd: fields.u32(), cwnd_cnt: fields.u32(), ssthresh: fields.u32(), clamp: fields.u32() };
    let (srtt_us, family) = (fields.u32(), fields.u32());
    let (local, remote) = (fields.words(), fields.words());
    let (local_port, remote_port) = (fields.u32(), fields.u32());
    let (base_us, queue_us, carried) = (fields.u32(), fields.u32(), fields.u32());
    let (own, fair, chance) = (fields.u32(), fields.u32(), f64::from(fields.u32()) / f64::from(1 << 20));
    let algorithm = Algorithm::LOADABLE.into_iter().find(|&known| known as u32 == algorithm)?;
    let kind = match kind {
        0 => EventKind::Start,
        1 => EventKind::Round,
        2 => EventKind::Loss { ssthresh: value },
        3 => EventKind::Timeout,
        4 => EventKind::Mode { reno: value == 1 },
        5 => EventKind::Undo { cwnd: value },
        6 => EventKind::End,
        7 => EventKind::Rtt { rtt_us: value },
        8 => EventKind::Acked { segments: value },
        9 => EventKind::Idle,
        _ => return None,
    };
    let model = match algorithm {
        Algorithm::Far => Some(Model { phase: phase(mode)?, base_us, queue_us, carried, own, fair, chance }),
        _ => None,
    };
    let address = |words: [u32; 4], port: u32| SocketAddr::new(address(family, words), port as u16);
    Some(Event {
        at_us,
        connection,
        namespace,
        algorithm,
        kind,
        cwnd_before,
        cwnd_cnt_before,
        window,
        srtt_us,
        reno_mode: algorithm == Algorithm::Ghstcp && mode == 1,
        model,
        local: address(local, local_port),
        remote: address(remote, remote_port),
    })
}

/// `enum ek_far_phase`.
fn phase(number: u32) -> Option<Phase> {
    [Phase::Startup, Phase::Known, Phase::Jump, Phase::Alone, Phase::Shares].get(number as usize).copied()
}

fn address(family: u32, words: [u32; 4]) -> IpAddr {
    const INET6: u32 = nix::libc::AF_INET6 as u32;
    if family != INET6 {
        return Ipv4Addr::from(words[0].to_ne_bytes()).into();
    }
    let mut bytes = [0; 16];
    for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    // An IPv4 connection on an IPv6 socket.
    Ipv6Addr::from(bytes).to_canonical()
}

fn monotonic_us() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    now.as_micros() as u64
}
