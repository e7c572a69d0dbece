//! Two ends of a connection and the network between them, in virtual time.

pub mod peer;

use std::collections::BTreeMap;

use std::sync::Arc;

use ekiden_congestion::{Algorithm, CongestionControl, CongestionParameters, Native, Tunables, control};
use ekiden_packet::{Segment, Seq};
use ekiden_tcp::{Connection, State, TcpSettings, Transmit, reset_for};
use ekiden_units::{Time, random};

pub fn reno() -> Box<Native> {
    let tunables = Tunables::new(&CongestionParameters::default()).expect("the defaults are valid");
    Box::new(Native::new(Algorithm::Reno, tunables.into()))
}

/// A congestion control by its name.
pub fn named(name: &str) -> Box<dyn CongestionControl + Send> {
    let tunables = Tunables::new(&CongestionParameters::default()).expect("the defaults are valid");
    control(name, &Arc::new(tunables)).expect("there is one of this name")
}

/// What becomes of a segment on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Arrives,
    Lost,
    /// Later than it should, so that others overtake it.
    Late(Time),
    Twice(Time),
}

/// Side 0 opens the connection, side 1 answers.
pub struct Pair {
    pub now: Time,
    pub ends: [Option<Connection>; 2],
    settings: [TcpSettings; 2],
    controls: [&'static str; 2],
    first: [Seq; 2],
    delay: Time,
    /// Under way: when and in which order they arrive, to whom.
    flying: BTreeMap<(Time, u64), (usize, Transmit)>,
    serial: u64,
    /// Bytes that each side has received, as ranges of offsets that were kept, and how many it has read.
    kept: [Vec<(u64, u64)>; 2],
    pub read: [u64; 2],
    /// Everything that was sent: when, by whom, what.
    pub sent: Vec<(Time, usize, Transmit)>,
    pub keeps_log: bool,
    pub steps: u64,
    /// The shift that each side announced, and how far the peer has allowed it to send, in positions: its SYN has 0.
    shifts: [Option<u8>; 2],
    allowed: [u32; 2],
    /// The right edge of the window that each side has announced.
    announced: [u32; 2],
    /// Bytes of payload that each side has sent, and sent again.
    pub bytes_sent: [u64; 2],
    /// Those of them that each side has sent after a timeout although they had arrived. Without SACK it cannot know, and sends
    /// everything again that was not acknowledged (RFC 5681, section 3.1).
    pub bytes_gone_back: [u64; 2],
    /// What was outstanding at each side's timeouts, in sum.
    pub bytes_timed_out: [u64; 2],
}

impl Pair {
    pub fn new(settings: [TcpSettings; 2], delay: Time, first: [u32; 2]) -> Self {
        Self::with_controls(settings, ["reno"; 2], delay, first)
    }

    pub fn with_controls(
        settings: [TcpSettings; 2],
        controls: [&'static str; 2],
        delay: Time,
        first: [u32; 2],
    ) -> Self {
        let client = Connection::connect(&settings[0], named(controls[0]), (1000, 2000), Seq(first[0]));
        Self {
            now: Time(0),
            ends: [Some(client), None],
            settings,
            controls,
            first: first.map(Seq),
            delay,
            flying: BTreeMap::new(),
            serial: 0,
            kept: [const { Vec::new() }; 2],
            read: [0; 2],
            sent: Vec::new(),
            keeps_log: true,
            steps: 0,
            shifts: [None; 2],
            allowed: [1; 2],
            announced: [0; 2],
            bytes_sent: [0; 2],
            bytes_gone_back: [0; 2],
            bytes_timed_out: [0; 2],
        }
    }

    /// Side 1 opens the connection too.
    pub fn open_both(&mut self) {
        let control = named(self.controls[1]);
        self.ends[1] = Some(Connection::connect(&self.settings[1], control, (2000, 1000), self.first[1]));
    }

    pub fn end(&mut self, side: usize) -> &mut Connection {
        self.ends[side].as_mut().expect("this side is open")
    }

    /// Sends what there is to send.
    pub fn transmit(&mut self, fate: &mut impl FnMut(usize, &mut Transmit) -> Fate) {
        for side in 0..2 {
            let Some(end) = &mut self.ends[side] else { continue };
            while let Some(mut transmit) = end.poll_transmit(self.now) {
                if self.keeps_log {
                    self.sent.push((self.now, side, transmit));
                }
                if transmit.segment.flags.syn {
                    self.shifts[side] = transmit.segment.options.window_scale;
                }
                let most = 20 + self.settings[0].mss.min(self.settings[1].mss);
                let header = transmit.segment.header_bytes();
                assert!(
                    header + transmit.segment.payload <= most || transmit.segment.payload == 0,
                    "larger than the MTU"
                );
                let payload = u64::from(transmit.segment.payload);
                self.bytes_sent[side] += payload;
                let (start, stop) = (transmit.offset, transmit.offset + payload);
                let has_arrived = self.kept[1 - side].iter().any(|kept| kept.0 <= start && stop <= kept.1);
                let has_sack = self.settings.iter().all(|settings| settings.sack);
                if has_arrived && !has_sack && end.info().is_after_timeout {
                    self.bytes_gone_back[side] += payload;
                }
                let shift = if self.shifts[1 - side].is_some() { self.shifts[side].unwrap_or(0) } else { 0 };
                if let Some(edge) = announces(&transmit.segment, shift, self.first[1 - side]) {
                    let before = self.announced[side];
                    assert!(edge >= before, "RFC 9293, section 3.8.6: {edge} after {before}");
                    self.announced[side] = before.max(edge);
                }
                let end = position(transmit.segment.seq, self.first[side]) + transmit.segment.sequence_len();
                let is_data = transmit.segment.sequence_len() > 0 && !transmit.segment.flags.syn;
                assert!(!is_data || end <= self.allowed[side], "{end} is sent, {} allowed", self.allowed[side]);
                let due = self.now + self.delay;
                let fate = fate(side, &mut transmit);
                let mut fly = |due| {
                    self.serial += 1;
                    self.flying.insert((due, self.serial), (1 - side, transmit));
                };
                match fate {
                    Fate::Arrives => fly(due),
                    Fate::Lost => {}
                    Fate::Late(by) => fly(due + by),
                    Fate::Twice(by) => {
                        fly(due);
                        fly(due + by);
                    }
                }
            }
        }
    }

    /// Goes on to the next thing that happens. `false` if nothing will.
    pub fn step(&mut self, fate: &mut impl FnMut(usize, &mut Transmit) -> Fate) -> bool {
        self.steps += 1;
        self.transmit(fate);
        let timer = self.ends.iter().flatten().filter_map(Connection::timeout).min();
        let arrival = self.flying.first_key_value().map(|((at, _), _)| *at);
        let Some(next) = [timer, arrival].into_iter().flatten().min() else { return false };
        self.now = self.now.max(next);
        if arrival == Some(next)
            && let Some((_, (side, transmit))) = self.flying.pop_first()
        {
            self.deliver(side, &transmit);
        } else {
            for (end, timed_out) in self.ends.iter_mut().zip(&mut self.bytes_timed_out) {
                let Some(end) = end else { continue };
                let before = end.info();
                end.on_time(self.now);
                if end.info().timeouts > before.timeouts {
                    *timed_out += u64::from(before.outstanding) * u64::from(before.mss);
                }
            }
        }
        true
    }

    pub fn deliver(&mut self, side: usize, transmit: &Transmit) {
        let segment: &Segment = &transmit.segment;
        self.note_window(side, segment);
        let Some(end) = &mut self.ends[side] else {
            let control = named(self.controls[side]);
            self.ends[side] = Connection::accept(&self.settings[side], control, segment, self.first[side], self.now);
            return;
        };
        if end.state() == State::Closed {
            if let Some(segment) = reset_for(segment) {
                self.serial += 1;
                let reset = Transmit { segment, offset: 0 };
                self.flying.insert((self.now + self.delay, self.serial), (1 - side, reset));
            }
            return;
        }
        let accepted = end.on_segment(self.now, segment);
        if accepted.length > 0 {
            assert!(accepted.skip + accepted.length <= segment.payload, "more kept than there was");
            assert_eq!(accepted.offset, transmit.offset + u64::from(accepted.skip), "bytes are put in another place");
            self.kept[side].push((accepted.offset, accepted.offset + u64::from(accepted.length)));
        }
    }

    /// A segment with a window arrives at a side.
    fn note_window(&mut self, side: usize, segment: &Segment) {
        let of_peer = self.shifts[1 - side].filter(|_| self.shifts[side].is_some() || segment.flags.syn);
        // A SYN's is not scaled (RFC 7323, section 2.2).
        let shift = of_peer.filter(|_| !segment.flags.syn).unwrap_or(0);
        let acked = segment.ack.map_or(1, |ack| position(ack, self.first[side]));
        self.allowed[side] = self.allowed[side].max(acked + (u32::from(segment.window) << shift));
    }

    /// Reads all that is there; checks that it has arrived.
    pub fn read(&mut self, side: usize) {
        let Some(end) = &mut self.ends[side] else { return };
        let bytes = end.readable();
        if bytes > 0 {
            assert_eq!(end.read(bytes), bytes);
            self.read[side] += bytes;
            let mut reached = 0;
            self.kept[side].sort_unstable();
            for (start, end) in &self.kept[side] {
                if *start <= reached {
                    reached = reached.max(*end);
                }
            }
            assert!(self.read[side] <= reached, "read {} of {reached} that have arrived", self.read[side]);
            self.kept[side] =
                vec![(0, reached)].into_iter().chain(self.kept[side].drain(..).filter(|r| r.1 > reached)).collect();
        }
    }

    pub fn state(&self, side: usize) -> Option<State> {
        self.ends[side].as_ref().map(Connection::state)
    }
}

/// Where the window ends that a segment announces.
fn announces(segment: &Segment, shift: u8, first: Seq) -> Option<u32> {
    let acked = position(segment.ack.filter(|_| !segment.flags.rst)?, first);
    Some(acked + (u32::from(segment.window) << if segment.flags.syn { 0 } else { shift }))
}

/// Sequence numbers from the initial one, of transfers that are much shorter than 2^32.
fn position(seq: Seq, first: Seq) -> u32 {
    seq.0.wrapping_sub(first.0)
}

/// Numbers that a seed decides.
pub struct Random(random::Random);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(random::Random::new(seed))
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.draw() % bound.max(1)
    }
}
