//! What is seen of other programs' connections while they are watched, in bounded memory.
//!
//! Of each connection the first and the last state, extremes and what limited it are kept, and of all together a budget of
//! samples. When there are more, every second look is given up, as in the series of a record.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ekiden_net::sock_diag::TcpSocket;
use ekiden_tcp_info::TcpInfo;
use serde::{Deserialize, Serialize};

use ekiden_diagnosis::limit::{Limits, Shares};
use ekiden_diagnosis::spread::Spread;

/// The most connections that are kept; of further ones only how many looks saw them is counted.
pub const CONNECTIONS_MOST: usize = 10_000;

/// The connections that are watched.
#[derive(Debug, Clone)]
pub struct Watch {
    most_samples: usize,
    /// One look in this many is kept.
    one_of: u64,
    looks: u64,
    connections: Vec<Connection>,
    /// Which it is, by the kernel's number.
    by_cookie: BTreeMap<u64, usize>,
    samples: Vec<Sample>,
    not_kept: u64,
}

/// A connection's state at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Since the watch began.
    pub at_us: u64,
    /// The connection, counted from 0 in the order in which they were first seen.
    pub connection: u32,
    /// Which look it is of, counted from 1.
    look: u64,
    /// Congestion window.
    pub cwnd_segments: u32,
    /// Slow start threshold; absent while none is set.
    pub ssthresh_segments: Option<u32>,
    /// Smoothed round-trip time; 0 before there is one.
    pub rtt_us: u32,
    /// Least round-trip time so far.
    pub rtt_min_us: u32,
    /// Segments sent and not acknowledged.
    pub unacked_segments: u32,
    /// Segments sent again so far.
    pub retransmits: u32,
    /// Recent rate of delivery.
    pub delivery_bit_s: u64,
    /// Payload that the other side has acknowledged so far.
    pub acked_bytes: u64,
    /// Payload that waits to be sent.
    pub unsent_bytes: u32,
    /// The window that the other side advertises.
    pub window_bytes: u32,
    /// Payload that has arrived so far.
    pub received_bytes: u64,
}

/// What is known of a connection.
#[derive(Debug, Clone)]
struct Connection {
    local: SocketAddr,
    remote: SocketAddr,
    uid: u32,
    congestion: String,
    /// Whether it began before the watch did: what it had done until then does not count.
    is_old: bool,
    first_us: u64,
    last_us: u64,
    last_look: u64,
    looks: u64,
    first: TcpInfo,
    last: TcpInfo,
    rtt_us: Option<[u64; 2]>,
    cwnd_segments: [u64; 2],
    limits: Limits,
}

/// What came out of watching a connection. Amounts are those of the time that it was watched; those of a connection that began
/// meanwhile are whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// Counted from 0 in the order in which connections were first seen.
    pub connection: u32,
    /// This side.
    pub local: SocketAddr,
    /// The other side.
    pub remote: SocketAddr,
    /// The user that the socket belongs to.
    pub uid: u32,
    /// Its congestion control, when it was last seen.
    pub congestion: String,
    /// When it was first seen, since the watch began.
    pub first_us: u64,
    /// When it was last seen.
    pub last_us: u64,
    /// Whether it was there when the watch began.
    pub was_open: bool,
    /// Whether it was there when the watch ended.
    pub is_open: bool,
    /// How often it was seen.
    pub looks: u64,
    /// Smoothed round-trip time when it was looked at; absent if there was none.
    pub rtt_us: Option<Spread>,
    /// Least round-trip time that the kernel has measured, ever; absent if there was none.
    pub rtt_min_us: Option<u64>,
    /// Congestion window when it was looked at.
    pub cwnd_segments: Option<Spread>,
    /// Slow start threshold at the end; absent if none was set.
    pub ssthresh_segments: Option<u32>,
    /// The kernel's estimate of the rate of delivery when it was looked at and had one.
    pub delivery_bit_s: Option<Spread>,
    /// Largest segment sent, in bytes of payload.
    pub mss_bytes: u32,
    /// Payload that the other side has acknowledged.
    pub acked_bytes: u64,
    /// Payload that has arrived.
    pub received_bytes: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// What limited the sending; absent if it was seen once.
    pub limits: Option<Shares>,
}

impl Watch {
    /// Keeps at most `most_samples` of all connections together.
    pub fn new(most_samples: u64) -> Self {
        Self {
            most_samples: usize::try_from(most_samples).unwrap_or(usize::MAX).max(1),
            one_of: 1,
            looks: 0,
            connections: Vec::new(),
            by_cookie: BTreeMap::new(),
            samples: Vec::new(),
            not_kept: 0,
        }
    }

    /// The sockets as they are at a time since the watch began, later than that of the look before.
    pub fn look<'a>(&mut self, at_us: u64, sockets: impl Iterator<Item = &'a TcpSocket>) {
        self.looks += 1;
        for socket in sockets {
            let number = match self.by_cookie.get(&socket.cookie) {
                Some(number) => *number,
                None if self.connections.len() >= CONNECTIONS_MOST => {
                    self.not_kept += 1;
                    continue;
                }
                None => {
                    self.connections.push(Connection::new(socket, at_us, self.looks == 1));
                    self.by_cookie.insert(socket.cookie, self.connections.len() - 1);
                    self.connections.len() - 1
                }
            };
            self.connections[number].see(at_us, self.looks, socket);
            if self.looks.is_multiple_of(self.one_of) {
                self.samples.push(sample(at_us, number as u32, self.looks, &socket.info));
            }
        }
        while self.samples.len() > self.most_samples {
            self.one_of *= 2;
            let one_of = self.one_of;
            self.samples.retain(|sample| sample.look.is_multiple_of(one_of));
        }
    }

    /// The thinning of [`Watch::samples`], which have one look in this many: 1 without thinning, else the power of two by which the
    /// samples were thinned to fit the budget.
    pub fn one_of(&self) -> u64 {
        self.one_of
    }

    /// The samples that are kept, ordered by time.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// How many times a connection was seen that is not kept, because there were [`CONNECTIONS_MOST`].
    pub fn not_kept(&self) -> u64 {
        self.not_kept
    }

    /// How many connections have been seen, and how many of them at the last look.
    pub fn count(&self) -> [usize; 2] {
        [self.connections.len(), self.connections.iter().filter(|connection| self.is_open(connection)).count()]
    }

    /// Payload that all connections together have had acknowledged and have received.
    pub fn moved_bytes(&self) -> u64 {
        self.connections.iter().map(|of| of.acked_bytes() + of.received_bytes()).sum()
    }

    /// The addresses of a connection.
    pub fn ends(&self, connection: u32) -> Option<[SocketAddr; 2]> {
        self.connections.get(connection as usize).map(|of| [of.local, of.remote])
    }

    /// What came out, in the order in which connections were first seen. Medians are those of the samples that are kept.
    pub fn watched(&self) -> Vec<Watched> {
        let mut samples: Vec<Vec<&Sample>> = vec![Vec::new(); self.connections.len()];
        for sample in &self.samples {
            samples[sample.connection as usize].push(sample);
        }
        let all = self.connections.iter().zip(samples).enumerate();
        all.map(|(number, (connection, samples))| connection.watched(number as u32, self.is_open(connection), &samples))
            .collect()
    }

    fn is_open(&self, connection: &Connection) -> bool {
        connection.last_look == self.looks
    }
}

impl Connection {
    fn new(socket: &TcpSocket, at_us: u64, is_old: bool) -> Self {
        let cwnd = u64::from(socket.info.cwnd_segments);
        Self {
            local: socket.local,
            remote: socket.remote,
            uid: socket.uid,
            congestion: String::new(),
            is_old,
            first_us: at_us,
            last_us: at_us,
            last_look: 0,
            looks: 0,
            first: socket.info,
            last: socket.info,
            rtt_us: None,
            cwnd_segments: [cwnd; 2],
            limits: Limits::default(),
        }
    }

    fn see(&mut self, at_us: u64, look: u64, socket: &TcpSocket) {
        let info = &socket.info;
        let wider = |[min, max]: [u64; 2], value: u32| [min.min(value.into()), max.max(value.into())];
        (self.last_us, self.last_look, self.last) = (at_us, look, *info);
        self.looks += 1;
        if info.rtt_us > 0 {
            self.rtt_us = Some(wider(self.rtt_us.unwrap_or([info.rtt_us.into(); 2]), info.rtt_us));
        }
        self.cwnd_segments = wider(self.cwnd_segments, info.cwnd_segments);
        self.limits.add(at_us, info);
        // Programs change it, mostly before they send.
        if self.congestion != socket.congestion {
            self.congestion.clone_from(&socket.congestion);
        }
        // A socket that its program has closed has no user any more.
        if socket.inode != 0 {
            self.uid = socket.uid;
        }
    }

    /// What a counter has grown by.
    fn grown(&self, counter: impl Fn(&TcpInfo) -> u64) -> u64 {
        counter(&self.last).saturating_sub(if self.is_old { counter(&self.first) } else { 0 })
    }

    /// The kernel counts the SYN too.
    fn acked_bytes(&self) -> u64 {
        self.grown(|info| info.acked_bytes.saturating_sub(1))
    }

    fn received_bytes(&self) -> u64 {
        self.grown(|info| info.received_bytes)
    }

    fn watched(&self, number: u32, is_open: bool, samples: &[&Sample]) -> Watched {
        let of = |value: fn(&Sample) -> u64| {
            Spread::of(samples.iter().map(|sample| value(sample)).filter(|v| *v > 0).collect())
        };
        // Extremes are of all looks, kept or not.
        let among = |spread: Option<Spread>, ends: Option<[u64; 2]>| {
            ends.map(|[min, max]| Spread { min, median: spread.map_or(max, |spread| spread.median), max })
        };
        Watched {
            connection: number,
            local: self.local,
            remote: self.remote,
            uid: self.uid,
            congestion: self.congestion.clone(),
            first_us: self.first_us,
            last_us: self.last_us,
            was_open: self.is_old,
            is_open,
            looks: self.looks,
            rtt_us: among(of(|sample| sample.rtt_us.into()), self.rtt_us),
            rtt_min_us: Some(self.last.rtt_min_us).filter(|us| *us > 0 && *us < u32::MAX).map(u64::from),
            cwnd_segments: among(of(|sample| sample.cwnd_segments.into()), Some(self.cwnd_segments)),
            ssthresh_segments: ssthresh(&self.last),
            delivery_bit_s: of(|sample| sample.delivery_bit_s),
            mss_bytes: self.last.mss_bytes,
            acked_bytes: self.acked_bytes(),
            received_bytes: self.received_bytes(),
            retransmits: self.grown(|info| info.retransmits.into()),
            timeouts: self.grown(|info| info.timeouts.into()),
            limits: self.limits.shares(),
        }
    }
}

fn ssthresh(info: &TcpInfo) -> Option<u32> {
    Some(info.ssthresh_segments).filter(|segments| *segments < i32::MAX as u32)
}

fn sample(at_us: u64, connection: u32, look: u64, info: &TcpInfo) -> Sample {
    Sample {
        at_us,
        connection,
        look,
        cwnd_segments: info.cwnd_segments,
        ssthresh_segments: ssthresh(info),
        rtt_us: info.rtt_us,
        rtt_min_us: info.rtt_min_us,
        unacked_segments: info.unacked_segments,
        retransmits: info.retransmits,
        delivery_bit_s: info.delivery_bytes_s.saturating_mul(8),
        acked_bytes: info.acked_bytes,
        unsent_bytes: info.unsent_bytes,
        window_bytes: info.send_window_bytes,
        received_bytes: info.received_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(cookie: u64, at_us: u64) -> TcpSocket {
        let info = TcpInfo {
            cwnd_segments: 10 + at_us as u32 % 7,
            ssthresh_segments: i32::MAX as u32,
            rtt_us: 1_000 + at_us as u32,
            acked_bytes: 1 + 50 + at_us,
            busy_us: at_us,
            unsent_bytes: 1,
            ..TcpInfo::default()
        };
        let [local, remote] = ["192.0.2.1:1", "192.0.2.2:2"].map(|address| address.parse().unwrap());
        TcpSocket { local, remote, uid: 7, inode: 1, cookie, congestion: "reno".into(), info }
    }

    #[test]
    fn connections_come_and_go() {
        let mut watch = Watch::new(1_000);
        watch.look(0, [socket(1, 0)].iter());
        watch.look(20, [socket(1, 20), socket(2, 20)].iter());
        watch.look(40, [socket(2, 40)].iter());
        assert_eq!(watch.count(), [2, 1]);
        let [old, new] = &watch.watched()[..] else { panic!() };
        assert_eq!((old.was_open, old.is_open, old.first_us, old.last_us, old.looks), (true, false, 0, 20, 2));
        assert_eq!(old.acked_bytes, 20, "what it did before does not count");
        assert_eq!(old.rtt_us, Some(Spread { min: 1_000, median: 1_000, max: 1_020 }));
        assert_eq!((new.was_open, new.is_open, new.acked_bytes), (false, true, 90));
        assert_eq!((new.rtt_min_us, new.ssthresh_segments), (None, None));
        assert_eq!(new.limits.unwrap().path, 1.0);
        assert_eq!(watch.moved_bytes(), 110);
    }

    #[test]
    fn samples_stay_within_the_budget_and_are_evenly_spaced() {
        let mut watch = Watch::new(100);
        for look in 0..1_000 {
            watch.look(look * 20, [socket(1, look * 20), socket(2, look * 20)].iter());
        }
        assert!((50..=100).contains(&watch.samples().len()), "{}", watch.samples().len());
        assert_eq!(watch.one_of(), 32);
        let of_one: Vec<_> = watch.samples().iter().filter(|sample| sample.connection == 1).collect();
        assert!(of_one.windows(2).all(|pair| pair[1].at_us - pair[0].at_us == 32 * 20));
        let watched = watch.watched();
        assert_eq!(watched[0].looks, 1_000);
        assert_eq!(watched[0].rtt_us.unwrap().max, 1_000 + 999 * 20, "extremes are of all looks");
    }

    #[test]
    fn more_connections_than_are_kept_are_counted() {
        let mut watch = Watch::new(10);
        let sockets: Vec<_> = (0..CONNECTIONS_MOST as u64 + 3).map(|cookie| socket(cookie, 1)).collect();
        watch.look(1, sockets.iter());
        assert_eq!((watch.count(), watch.not_kept()), ([CONNECTIONS_MOST; 2], 3));
        assert!(watch.samples().len() <= 10);
    }
}
