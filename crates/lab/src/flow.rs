//! The flows of a scenario as real connections: every byte is made, sent, received and compared.

mod connections;
mod fetch;
mod summary;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ekiden_net::clock::{monotonic_ns, sleep_until};
use ekiden_net::schedule::waited_here;
use ekiden_net::socket;
use ekiden_net::tcp_info::tcp_info;
use ekiden_record::{Event, Sample, Series};
use ekiden_scenario::{Amount, Flow};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};

pub(crate) use self::connections::lock;
use self::connections::{Connection, Connections};
pub(crate) use self::fetch::CURL;
use self::fetch::Fetched;
use crate::error::building;
use crate::payload::{Comparison, Payload};
use crate::ports::{entry_port, flow_port};
use crate::waits::percent;
use crate::{Error, Lab};

/// The timeout of a connection on which nothing moves.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval at which the senders' state is sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes per read and write.
const PIECE: usize = 64 << 10;

/// The number of bytes by which connections can be distinguished, with a margin.
const TOLD_APART: u64 = 64;

/// The progress of a flow.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The flow's name.
    pub flow: &'a str,
    /// Bytes that have arrived and were right, over all connections.
    pub received_bytes: u64,
    /// From the first connection's first SYN to the last byte's arrival, as the record counts it.
    pub moving: Duration,
}

/// The results of all flows.
pub(crate) struct Outcomes {
    pub flows: Vec<ekiden_record::Flow>,
    pub events: Vec<Event>,
    /// The greatest part of the time, in percent, that a sender or receiver waited for a processor.
    pub waited_percent: Option<f64>,
}

/// What has arrived on a connection.
struct Arriving {
    comparison: Comparison,
    /// Which it is; another one until enough has come to tell.
    found: Option<(u32, Arc<Connection>)>,
}

/// A flow that is running.
struct Running<'a> {
    name: &'a str,
    flow: &'a Flow,
    seed: u64,
    listener: TcpListener,
    /// Where the sender connects to: the receiver, or the first proxy.
    target: SocketAddr,
    /// How the receiver gets the data if it opens the connection.
    fetched: Option<Fetched>,
    /// Time zero of the record, by the monotonic clock.
    origin_ns: u64,
    /// When its connections are reset, by the same clock; `None` if it ends when all has arrived.
    cut_ns: Option<u64>,
    connections: Mutex<Connections>,
    /// Bytes that have arrived and were right, over all connections.
    received_bytes: AtomicU64,
    /// When the first connection's sender began to connect, by the same clock; `u64::MAX` before.
    began_ns: AtomicU64,
    /// The first difference between sent and received data: the connection and the offset. Connections can be distinguished
    /// only by the data that arrives on them.
    differs: Mutex<Option<(u32, u64)>>,
    senders_left: AtomicU64,
    last_arrival_ns: AtomicU64,
    given_up: AtomicBool,
    /// The largest smoothed round-trip time that was seen; 0 without any.
    rtt_max_us: AtomicU32,
    /// The longest time that a sender or receiver waited for a processor.
    waited_ns: AtomicU64,
}

/// Runs all flows of the lab's scenario to their ends, with times from `origin_ns` of the monotonic clock, and tells `progress` of each about every 100 ms.
pub(crate) fn run_all(
    lab: &Lab,
    origin_ns: u64,
    series: &mut dyn Series,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Outcomes, Error> {
    let mut flows = Vec::new();
    for (index, (name, flow)) in lab.scenario.flows.iter().enumerate() {
        flows.push(Running::prepare(lab, index, name, flow, origin_ns)?);
    }
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for flow in &flows {
            threads.push(match &flow.fetched {
                Some(fetched) => scope.spawn(|| flow.fetch(lab, fetched)),
                None => scope.spawn(|| flow.accept_all()),
            });
            for number in 0..flow.flow.parallel {
                threads.push(scope.spawn(move || flow.send(lab, number)));
            }
        }
        while threads.iter().any(|thread| !thread.is_finished()) {
            thread::sleep(SAMPLE_INTERVAL);
            let at_us = (monotonic_ns() - origin_ns) / 1_000;
            let is_wanted = series.look(at_us);
            for flow in &flows {
                flow.look(at_us, if is_wanted { Some(&mut *series) } else { None });
                progress(flow.progress());
            }
        }
    });
    let waited_ns = flows.iter().map(|flow| flow.waited_ns.load(Ordering::Relaxed)).max();
    let whole = Duration::from_nanos(monotonic_ns().saturating_sub(origin_ns));
    let waited_percent = waited_ns.map(|ns| percent(Duration::from_nanos(ns), whole));
    let mut events: Vec<_> = flows.iter().flat_map(Running::events).collect();
    events.sort_by_key(|event| event.at_us);
    let flows = flows.iter().map(|flow| flow.summary()).collect();
    Ok(Outcomes { flows, events, waited_percent })
}

impl<'a> Running<'a> {
    /// Listens at the receiver, or at the sender from which it fetches, before anyone connects.
    fn prepare(lab: &Lab, index: usize, name: &'a str, flow: &'a Flow, origin_ns: u64) -> Result<Self, Error> {
        let listens = if flow.fetch.is_some() { &flow.from } else { &flow.to };
        let address = SocketAddr::from((lab.address(listens)?, flow_port(index)));
        let target = match flow.via.first().filter(|_| !flow.transparent) {
            Some(first) => SocketAddr::from((lab.address(first)?, entry_port(index))),
            None => address,
        };
        let listener = lab.namespace(listens)?.run(|| socket::listen_plainly(address));
        let listener = listener.map_err(building(format!("listen for flow '{name}' on {address}")))?;
        listener.set_nonblocking(true).map_err(building(format!("listen for flow '{name}'")))?;
        Ok(Self {
            name,
            flow,
            seed: lab.scenario.seed,
            listener,
            target,
            fetched: Fetched::prepare(lab, index, flow)?,
            origin_ns,
            cut_ns: flow.cut_at().map(|at| origin_ns.saturating_add(at.0)),
            connections: Mutex::new(Connections::new(flow.parallel)),
            received_bytes: AtomicU64::new(0),
            began_ns: AtomicU64::new(u64::MAX),
            differs: Mutex::new(None),
            senders_left: AtomicU64::new(u64::from(flow.parallel)),
            last_arrival_ns: AtomicU64::new(0),
            given_up: AtomicBool::new(false),
            rtt_max_us: AtomicU32::new(0),
            waited_ns: AtomicU64::new(0),
        })
    }

    /// The sending side of a connection, and of those that follow it with more files, until the receiver has closed the last.
    fn send(&self, lab: &Lab, number: u32) {
        sleep_until(self.origin_ns.saturating_add(self.flow.opens_at(number).0));
        match &self.fetched {
            Some(fetched) => self.send_over(number, |connection| self.served(fetched, connection)),
            None => self.send_over(number, |connection| self.connect(lab, connection)),
        }
    }

    fn send_over(&self, mut number: u32, connect: impl Fn(&Connection) -> io::Result<Option<TcpStream>>) {
        loop {
            let connection = lock(&self.connections).get(number);
            let result = match connect(&connection) {
                Ok(Some(socket)) => self.send_on(socket, number, &connection),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            let is_sent = result.is_ok();
            let mut sender = connection.sender();
            // The receiver has closed.
            let is_told_apart = self.flow.file.is_some_and(|file| file.0 >= TOLD_APART);
            if is_sent && is_told_apart && !self.is_cut() && connection.received() != sender.sent_bytes {
                lock(&self.differs).get_or_insert((number, connection.received()));
            }
            sender.finish(monotonic_ns(), result.err().map(|error| describe(&error)));
            self.rtt_max_us.fetch_max(sender.last.rtt_us, Ordering::Relaxed);
            drop(sender);
            if self.flow.file.is_none() || !is_sent || self.is_cut() || lock(&self.differs).is_some() {
                break;
            }
            number = lock(&self.connections).follow(number);
        }
        self.has_waited();
        self.senders_left.fetch_sub(1, Ordering::Release);
    }

    /// The calling thread, which did nothing else, is about to end.
    fn has_waited(&self) {
        let waited = waited_here().unwrap_or_default();
        self.waited_ns.fetch_max(waited.as_nanos() as u64, Ordering::Relaxed);
    }

    /// `None` if the flow is cut before the connection is established.
    fn connect(&self, lab: &Lab, connection: &Connection) -> io::Result<Option<TcpStream>> {
        self.began_ns.fetch_min(monotonic_ns(), Ordering::Relaxed);
        let namespace = lab.namespace(&self.flow.from).map_err(io::Error::other)?;
        let connected = namespace.run(|| TcpStream::connect_timeout(&self.target, self.patience()));
        let socket = match connected {
            // A connection that is not there in time carries nothing.
            Err(_) if self.is_cut() => return Ok(None),
            connected => connected?,
        };
        let mut sender = connection.sender();
        sender.connected_ns = Some(monotonic_ns());
        sender.socket = Some(socket.try_clone()?);
        Ok(Some(socket))
    }

    fn send_on(&self, mut socket: TcpStream, number: u32, connection: &Connection) -> io::Result<()> {
        let payload = Payload::new(self.seed, self.name, number);
        let (limit_bytes, deadline_ns) = match (self.flow.amount, self.cut_ns) {
            (Amount::Bytes(bytes), _) => (bytes.0, u64::MAX),
            (Amount::Duration(_), Some(cut_ns)) => (self.flow.file.map_or(u64::MAX, |file| file.0), cut_ns),
            (Amount::Duration(time), None) => (u64::MAX, monotonic_ns().saturating_add(time.0)),
        };
        let mut piece = vec![0; PIECE];
        let mut sent_bytes = 0;
        while sent_bytes < limit_bytes && monotonic_ns() < deadline_ns {
            let length = (limit_bytes - sent_bytes).min(PIECE as u64) as usize;
            payload.fill(sent_bytes, &mut piece[..length]);
            sent_bytes += self.write(&mut socket, &piece[..length])? as u64;
            connection.sender().sent_bytes = sent_bytes;
        }
        if sent_bytes < limit_bytes && self.cut_ns.is_some() {
            return Ok(reset_when_closed(&socket)?);
        }
        socket.shutdown(Shutdown::Write)?;
        if let Some(fetched) = &self.fetched {
            fetched.sent()?;
        }
        loop {
            let patience = self.patience();
            socket.set_read_timeout(Some(patience))?;
            return match socket.read(&mut piece) {
                Ok(0) => Ok(()),
                _ if self.is_cut() => Ok(reset_when_closed(&socket)?),
                Err(error) if is_early(&error, patience) => continue,
                Err(error) => Err(error),
                Ok(_) => {
                    Err(io::Error::new(ErrorKind::InvalidData, "the receiver sends nothing, but something arrived"))
                }
            };
        }
    }

    /// Writes something of `data`; perhaps nothing, if the flow is cut before there is room. Returns how many bytes.
    fn write(&self, socket: &mut TcpStream, data: &[u8]) -> io::Result<usize> {
        if self.is_cut() {
            return Ok(0);
        }
        let patience = self.patience();
        socket.set_write_timeout(Some(patience))?;
        match socket.write(data) {
            Err(_) if self.is_cut() => Ok(0),
            Err(error) if is_early(&error, patience) => Ok(0),
            written => written,
        }
    }

    /// Whether the flow's time is over, if it is one that is cut then.
    fn is_cut(&self) -> bool {
        self.cut_ns.is_some_and(|cut_ns| monotonic_ns() >= cut_ns)
    }

    /// How long to wait for something to move: until the flow is cut at the longest.
    fn patience(&self) -> Duration {
        let left = self.cut_ns.map(|cut_ns| Duration::from_nanos(cut_ns.saturating_sub(monotonic_ns()).max(1)));
        left.map_or(STALL_TIMEOUT, |left| left.min(STALL_TIMEOUT))
    }

    /// The receiving side of all connections.
    fn accept_all(&self) {
        thread::scope(|scope| {
            // There may be more than senders: a node that tries a path beside another leaves one without a byte.
            while self.senders_left.load(Ordering::Acquire) > 0 {
                let mut waited = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
                let _ = poll(&mut waited, PollTimeout::from(100u8));
                if let Ok((socket, _)) = self.listener.accept() {
                    scope.spawn(move || {
                        self.receive(socket);
                        self.has_waited();
                    });
                }
            }
        });
    }

    /// Compares the data that arrives, to its end. The sender, which waits for the receiver to close, reports a broken
    /// connection.
    fn receive(&self, mut socket: TcpStream) {
        // The listener is non-blocking; the accepted socket must block.
        let _ = socket.set_nonblocking(false);
        let numbers: Vec<u32> = lock(&self.connections).open.keys().copied().collect();
        let mut arriving = Arriving { comparison: Comparison::new(self.seed, self.name, numbers), found: None };
        let mut buffer = vec![0; 4 * PIECE];
        loop {
            let patience = self.patience();
            let read = socket.set_read_timeout(Some(patience)).and_then(|()| socket.read(&mut buffer));
            // Data that is read after the flow's time does not count, whenever it has arrived.
            if self.is_cut() {
                let _ = reset_when_closed(&socket);
                return;
            }
            let count = match read {
                Err(error) if is_early(&error, patience) => continue,
                Ok(0) if self.flow.file.is_some_and(|file| file.0 == arriving.comparison.received_bytes()) => return,
                // Nobody knows whether it was to carry anything. What does not arrive is found at its sender.
                Ok(0) | Err(_) if arriving.comparison.received_bytes() == 0 => return,
                // Before a flow that is cut is over, only a file may end.
                Ok(0) if self.cut_ns.is_some() => {
                    let connection = arriving.comparison.connection().unwrap_or_default();
                    lock(&self.differs).get_or_insert((connection, arriving.comparison.received_bytes()));
                    return;
                }
                Ok(0) => return,
                Ok(count) => count,
                Err(_) => {
                    self.given_up.store(true, Ordering::Relaxed);
                    return;
                }
            };
            if !self.take(&mut arriving, &buffer[..count]) {
                return;
            }
        }
    }

    /// Compares and counts what has arrived. Whether it was right.
    fn take(&self, Arriving { comparison, found }: &mut Arriving, data: &[u8]) -> bool {
        self.last_arrival_ns.fetch_max(monotonic_ns(), Ordering::Relaxed);
        let connection = comparison.connection().unwrap_or_default();
        if let Err(at_bytes) = comparison.take(data) {
            lock(&self.differs).get_or_insert((connection, at_bytes));
            return false;
        }
        let connection = comparison.connection().unwrap_or_default();
        if found.as_ref().is_none_or(|(number, _)| *number != connection) {
            *found = lock(&self.connections).open.get(&connection).map(|it| (connection, Arc::clone(it)));
        }
        if let Some((_, found)) = found {
            found.received_bytes.store(comparison.received_bytes(), Ordering::Relaxed);
        }
        self.received_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        true
    }

    /// Looks at all senders, and gives their states to `series`, if there is one.
    fn look(&self, at_us: u64, mut series: Option<&mut dyn Series>) {
        let name: Arc<str> = self.name.into();
        let open = lock(&self.connections).open.clone();
        for (number, connection) in &open {
            let mut sender = connection.sender();
            let Some(Ok(info)) = sender.socket.as_ref().map(tcp_info) else { continue };
            sender.last = info;
            self.rtt_max_us.fetch_max(info.rtt_us, Ordering::Relaxed);
            let Some(series) = &mut series else { continue };
            series.sample(Sample {
                at_us,
                flow: Arc::clone(&name),
                connection: *number,
                received_bytes: connection.received(),
                acked_bytes: info.acked_bytes,
                cwnd_segments: info.cwnd_segments,
                ssthresh_segments: Some(info.ssthresh_segments).filter(|segments| *segments < i32::MAX as u32),
                unacked_segments: info.unacked_segments,
                window_bytes: info.send_window_bytes.into(),
                rtt_us: info.rtt_us.into(),
                rtt_min_us: info.rtt_min_us.into(),
                retransmits: info.retransmits.into(),
                delivery_bit_s: info.delivery_bytes_s.saturating_mul(8),
            });
        }
    }

    fn progress(&self) -> Progress<'_> {
        Progress { flow: self.name, received_bytes: self.received_bytes.load(Ordering::Relaxed), moving: self.moving() }
    }

    /// From the first connection's beginning to the last byte's arrival; nothing before there are both.
    fn moving(&self) -> Duration {
        let last_ns = self.last_arrival_ns.load(Ordering::Relaxed);
        Duration::from_nanos(last_ns.saturating_sub(self.began_ns.load(Ordering::Relaxed)))
    }
}

/// Closing this end discards what it has not sent, and breaks the connection.
fn reset_when_closed(socket: &TcpStream) -> nix::Result<()> {
    setsockopt(socket, sockopt::Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 })
}

/// Whether a wait of `patience` that has ended like this says nothing, before the flow is cut. Linux counts waits in ticks of its own: one that
/// ends with the flow's time ends up to a tick before it if an acknowledgement wakes the thread just then.
fn is_early(error: &io::Error, patience: Duration) -> bool {
    match error.kind() {
        ErrorKind::Interrupted => true,
        ErrorKind::WouldBlock => patience < STALL_TIMEOUT,
        _ => false,
    }
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("nothing moved for {} s", STALL_TIMEOUT.as_secs()),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
