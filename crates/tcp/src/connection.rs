//! A connection: its states (RFC 9293, section 3.3.2), and what segments, timers and the application do to it.

use ekiden_congestion::CongestionControl;
use ekiden_packet::{Ecn, Flags, Options, Segment, Seq, Timestamps};
use ekiden_units::Time;

use crate::receiver::{Accepted, Receiver, scale_for};
use crate::reset::reset;
use crate::rtt::timestamp;
use crate::sender::{Outgoing, Sender, Wishes};
use crate::settings::TcpSettings;
use crate::state::{Failure, State};

mod look;

/// The MSS of a peer whose SYN has no MSS option (RFC 9293, section 3.7.1).
const MSS_DEFAULT: u32 = 536;
/// The least MSS accepted from a peer, the same as Linux's: with less, packets would be mostly headers.
const MSS_LEAST: u32 = 48;
/// Bytes that the timestamps option takes in every segment.
const TIMESTAMPS_BYTES: u32 = 12;

/// A segment to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// The segment.
    pub segment: Segment,
    /// Where its payload begins in this end's stream, the first byte being 0.
    pub offset: u64,
}

/// One end of a connection.
///
/// It holds no payload: it deals in offsets of the two streams, and the driver keeps the bytes, if there are any. Its methods
/// are of three kinds:
///
/// - input: [`on_segment`](Self::on_segment), [`on_time`](Self::on_time), and the application's
///   [`write`](Self::write), [`finish`](Self::finish), [`read`](Self::read), [`abort`](Self::abort);
/// - output: [`poll_transmit`](Self::poll_transmit), to be called after any input until it returns `None`, then
///   [`timeout`](Self::timeout): when `on_time` must be called at the latest;
/// - queries, which change nothing.
///
/// Times are of one clock that does not step back.
pub struct Connection {
    state: State,
    failure: Option<Failure>,
    local: u16,
    remote: u16,
    sender: Sender,
    receiver: Option<Receiver>,
    settings: TcpSettings,
    timestamps: bool,
    scaled: bool,
    /// Both ends want ECN; before the peer's SYN has come, this one does.
    ecn: bool,
    reset: Option<Segment>,
    forget_at: Option<Time>,
}

impl Connection {
    /// Opens a connection from port `local` to port `remote`; `first` is the initial sequence number.
    pub fn connect(
        settings: &TcpSettings,
        control: Box<dyn CongestionControl + Send>,
        (local, remote): (u16, u16),
        first: Seq,
    ) -> Self {
        Self::new(settings, control, (local, remote), first, State::SynSent)
    }

    /// Answers a SYN. `None` if the segment has no SYN, or has RST, FIN or ACK beside it.
    pub fn accept(
        settings: &TcpSettings,
        control: Box<dyn CongestionControl + Send>,
        syn: &Segment,
        first: Seq,
        now: Time,
    ) -> Option<Self> {
        if !syn.flags.syn || syn.flags.rst || syn.flags.fin || syn.ack.is_some() {
            return None;
        }
        let ports = (syn.destination, syn.source);
        let mut connection = Self::new(settings, control, ports, first, State::SynReceived);
        connection.negotiate(now, syn);
        Some(connection)
    }

    /// Whether a SYN opens a new connection between the same ports although this one is in TIME-WAIT: if its sequence number is
    /// beyond all that the peer has sent, or its timestamp is later (RFC 9293, section 3.6.1; RFC 6191, section 2). Returns the
    /// initial sequence number to [`accept`](Self::accept) it with, which is beyond all that this end has sent. The driver then
    /// puts the new connection in the place of this one.
    pub fn successor(&self, syn: &Segment) -> Option<Seq> {
        /// The largest window without scaling, and the SYN and the FIN, as in Linux.
        const DISTANCE: u32 = 65_537;
        let is_syn = syn.flags.syn && !syn.flags.rst && !syn.flags.fin && syn.ack.is_none();
        let receiver = self.receiver.as_ref().filter(|_| self.state == State::TimeWait && is_syn)?;
        receiver.is_later(syn).then(|| self.sender.seq(self.sender.next()) + DISTANCE)
    }

    fn new(
        settings: &TcpSettings,
        control: Box<dyn CongestionControl + Send>,
        (local, remote): (u16, u16),
        first: Seq,
        state: State,
    ) -> Self {
        Self {
            state,
            failure: None,
            local,
            remote,
            sender: Sender::new(settings, first, control),
            receiver: None,
            settings: settings.clone(),
            timestamps: settings.timestamps,
            scaled: settings.window_scaling,
            ecn: settings.ecn,
            reset: None,
            forget_at: None,
        }
    }

    /// Takes over the options and the window of the peer's SYN.
    fn negotiate(&mut self, now: Time, syn: &Segment) {
        let options = &syn.options;
        self.timestamps &= options.timestamps.is_some();
        self.scaled &= options.window_scale.is_some();
        let sack = self.settings.sack && options.sack_permitted;
        // RFC 3168, section 6.1.1: a SYN has both flags, its answer has ECE alone.
        self.ecn &= syn.flags.ece && syn.flags.cwr == syn.ack.is_none();
        let peer = options.mss.map_or(MSS_DEFAULT, u32::from).max(MSS_LEAST);
        let mss = peer.min(self.settings.mss) - if self.timestamps { TIMESTAMPS_BYTES } else { 0 };
        let scale = if self.scaled { options.window_scale.unwrap_or_default().min(14) } else { 0 };
        self.sender.negotiate(syn, mss, scale, Wishes { sack, ecn: self.ecn });
        let mut receiver = Receiver::new(&self.settings, syn.seq, self.scaled, sack);
        receiver.note_timestamp(now, syn);
        self.receiver = Some(receiver);
    }

    /// A segment of this connection arrives. Returns which part of its payload the driver must keep.
    pub fn on_segment(&mut self, now: Time, segment: &Segment) -> Accepted {
        match self.state {
            State::Closed => Accepted::default(),
            State::SynSent => {
                self.on_segment_in_syn_sent(now, segment);
                Accepted::default()
            }
            _ => self.on_segment_synchronised(now, segment),
        }
    }

    /// RFC 9293, section 3.10.7.3.
    fn on_segment_in_syn_sent(&mut self, now: Time, segment: &Segment) {
        if let Some(ack) = segment.ack
            && !self.sender.is_ack_of_syn(ack)
        {
            if !segment.flags.rst {
                self.reset = Some(reset(self.ports(), ack));
            }
            return;
        }
        if segment.flags.rst {
            if segment.ack.is_some() {
                self.close(Some(Failure::Refused));
            }
            return;
        }
        if !segment.flags.syn {
            return;
        }
        self.negotiate(now, segment);
        if segment.ack.is_some() {
            self.state = State::Established;
            let echoed = self.echoed(now, segment);
            self.sender.on_ack(now, segment, 1, echoed);
        } else {
            // Simultaneous open.
            self.state = State::SynReceived;
            self.sender.reopen();
        }
    }

    /// The peer's SYN comes again, with the acknowledgement of ours (RFC 9293, figure 7; by section 3.10.7.4 it would lie
    /// outside of the window).
    fn on_answer_when_both_open(&mut self, now: Time, segment: &Segment) {
        let Some(receiver) = &mut self.receiver else { return };
        if segment.seq + 1 == receiver.next() && segment.ack.is_some_and(|ack| self.sender.is_ack_of_syn(ack)) {
            receiver.must_ack();
            let echoed = self.echoed(now, segment);
            self.sender.on_ack(now, segment, 1, echoed);
            self.state = State::Established;
        }
    }

    /// The peer's SYN comes again, without an acknowledgement of ours: the answer to it may have been lost. Another SYN brings
    /// nothing.
    fn on_repeated_syn(&mut self, now: Time, segment: &Segment) {
        let Some(receiver) = &mut self.receiver else { return };
        if segment.seq + 1 == receiver.next() {
            receiver.note_timestamp(now, segment);
            self.sender.reopen();
        }
    }

    /// RFC 9293, section 3.10.7.4.
    fn on_segment_synchronised(&mut self, now: Time, segment: &Segment) -> Accepted {
        if self.state == State::SynReceived && segment.flags.syn && !segment.flags.rst {
            match segment.ack {
                Some(_) => self.on_answer_when_both_open(now, segment),
                None => self.on_repeated_syn(now, segment),
            }
            return Accepted::default();
        }
        let Some(receiver) = &mut self.receiver else { return Accepted::default() };
        if !receiver.is_acceptable(now, segment) {
            if !segment.flags.rst {
                receiver.refuse(now, segment);
                if self.state == State::TimeWait && segment.flags.fin {
                    self.forget_at = Some(now + self.settings.time_wait);
                }
            }
            return Accepted::default();
        }
        // Only a reset at RCV.NXT counts; others get a challenge ACK (RFC 5961, sections 3.2 and 4.2).
        if segment.flags.rst {
            if segment.seq == receiver.next() {
                self.close(match self.state {
                    State::SynReceived => Some(Failure::Refused),
                    // Both ends had closed already.
                    State::TimeWait => None,
                    _ => Some(Failure::Reset),
                });
            } else {
                receiver.challenge(now);
            }
            return Accepted::default();
        }
        if segment.flags.syn {
            receiver.challenge(now);
            return Accepted::default();
        }
        let Some(ack) = segment.ack else { return Accepted::default() };
        let acked = self.sender.position(ack);
        if self.state == State::SynReceived && !self.sender.is_ack_of_syn(ack) {
            self.reset = Some(reset(self.ports(), ack));
            return Accepted::default();
        }
        if acked > self.sender.next() as i64 || acked < self.sender.oldest_ack() {
            receiver.challenge(now);
            return Accepted::default();
        }
        receiver.note_timestamp(now, segment);
        if acked >= self.sender.una() as i64 {
            let echoed = self.echoed(now, segment);
            self.sender.on_ack(now, segment, acked as u64, echoed);
        }
        self.on_acked(now);
        let Some(receiver) = &mut self.receiver else { return Accepted::default() };
        if self.ecn {
            receiver.note_ecn(segment);
        }
        receiver.tune(now, segment);
        let accepted = receiver.take(now, segment);
        self.on_end(now);
        accepted
    }

    /// A round-trip time from the timestamp that came back (RFC 7323, section 4).
    fn echoed(&self, now: Time, segment: &Segment) -> Option<Time> {
        let Timestamps { echo, .. } = segment.options.timestamps.filter(|_| self.timestamps)?;
        let passed = timestamp(now).wrapping_sub(echo);
        // A larger difference means a timestamp that this end never sent.
        (echo != 0 && passed < i32::MAX as u32).then(|| Time::ms(u64::from(passed).max(1)))
    }

    /// Our SYN or FIN may have been acknowledged.
    fn on_acked(&mut self, now: Time) {
        if self.state == State::SynReceived && self.sender.una() >= 1 {
            self.state = State::Established;
        }
        if self.sender.is_finished() {
            match self.state {
                State::FinWait1 => self.state = State::FinWait2,
                State::Closing => self.wait(now),
                State::LastAck => self.close(None),
                _ => {}
            }
        }
    }

    /// The peer's FIN may have arrived.
    fn on_end(&mut self, now: Time) {
        if !self.is_peer_finished() {
            return;
        }
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.wait(now),
            _ => {}
        }
    }

    fn wait(&mut self, now: Time) {
        self.state = State::TimeWait;
        self.sender.stop();
        self.forget_at = Some(now + self.settings.time_wait);
    }

    fn close(&mut self, failure: Option<Failure>) {
        self.state = State::Closed;
        self.failure = failure;
        self.sender.stop();
        self.forget_at = None;
    }

    /// Timers may have expired.
    pub fn on_time(&mut self, now: Time) {
        if self.forget_at.is_some_and(|at| at <= now) {
            self.close(None);
        }
        if self.state != State::Closed && self.sender.on_time(now) {
            self.reset = Some(self.own_reset());
            self.close(Some(Failure::TimedOut));
        }
    }

    /// When [`Connection::on_time`] or, for a delayed acknowledgement, [`Connection::poll_transmit`] is to be called again.
    pub fn timeout(&self) -> Option<Time> {
        let delayed_ack = self.receiver.as_ref().and_then(Receiver::ack_at).filter(|_| self.state != State::Closed);
        [self.sender.timeout(), self.forget_at, delayed_ack].into_iter().flatten().min()
    }

    /// The next segment to be sent. To be called until there is none.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        if let Some(segment) = self.reset.take() {
            return Some(Transmit { segment, offset: 0 });
        }
        if self.state == State::Closed {
            return None;
        }
        let established = !matches!(self.state, State::SynSent | State::SynReceived);
        if let Some(outgoing) = self.sender.poll(now, established) {
            if outgoing.fin {
                match self.state {
                    State::Established => self.state = State::FinWait1,
                    State::CloseWait => self.state = State::LastAck,
                    _ => {}
                }
            }
            return Some(self.data(now, &outgoing));
        }
        if established {
            self.sender.arm_probe(now);
            if self.sender.take_probe() {
                let before = self.sender.seq(self.sender.una() - 1);
                return Some(Transmit { segment: self.segment(now, before), offset: 0 });
            }
            if self.receiver.as_ref().is_some_and(|receiver| receiver.ack_is_due(now)) {
                let next = self.sender.seq(self.sender.next());
                return Some(Transmit { segment: self.segment(now, next), offset: 0 });
            }
        }
        None
    }

    fn data(&mut self, now: Time, outgoing: &Outgoing) -> Transmit {
        let seq = self.sender.seq(outgoing.start);
        let owes_ack = self.receiver.as_ref().is_some_and(|receiver| receiver.ack_is_due(now));
        let mut segment = self.segment(now, seq);
        segment.payload = outgoing.payload;
        self.fit_sack(&mut segment, owes_ack);
        segment.flags.fin = outgoing.fin;
        segment.flags.psh = outgoing.push && outgoing.payload > 0;
        // What is sent again is not marked (RFC 3168, section 6.1.5).
        if self.ecn && outgoing.payload > 0 && !outgoing.again {
            segment.flags.cwr = outgoing.cwr;
            segment.ecn = Ecn::Ect0;
        }
        if outgoing.start == 0 {
            self.make_syn(now, &mut segment);
        }
        Transmit { segment, offset: outgoing.start.saturating_sub(1) }
    }

    /// A full segment has no room for SACK blocks. If an acknowledgement is due, a pure ACK follows with them.
    fn fit_sack(&mut self, segment: &mut Segment, owes_ack: bool) {
        let whole = segment.header_bytes();
        let sack = std::mem::take(&mut segment.options.sack);
        if segment.payload + whole - segment.header_bytes() <= self.sender.mss() {
            segment.options.sack = sack;
        } else if let Some(receiver) = self.receiver.as_mut().filter(|_| owes_ack) {
            receiver.must_ack();
        }
    }

    fn make_syn(&mut self, now: Time, segment: &mut Segment) {
        let answers = self.receiver.is_some();
        segment.flags = Flags { syn: true, ece: self.ecn, cwr: self.ecn && !answers, ..Flags::default() };
        segment.options.mss = Some(u16::try_from(self.settings.mss).unwrap_or(u16::MAX));
        segment.options.sack_permitted = self.settings.sack && (!answers || self.sender.has_sack());
        segment.options.window_scale = self.scaled.then(|| scale_for(self.settings.receive_buffer));
        segment.options.sack = Default::default();
        // A SYN's window is not scaled.
        segment.window = u16::try_from(self.settings.receive_buffer).unwrap_or(u16::MAX);
        if self.timestamps && segment.options.timestamps.is_none() {
            segment.options.timestamps = Some(Timestamps { value: timestamp(now), echo: 0 });
        }
    }

    /// A segment without payload: ports, timestamps, acknowledgement, window.
    fn segment(&mut self, now: Time, seq: Seq) -> Segment {
        let mut segment = Segment {
            source: self.local,
            destination: self.remote,
            seq,
            ack: None,
            flags: Flags::default(),
            window: 0,
            options: Options::default(),
            payload: 0,
            ecn: Ecn::NotEct,
        };
        if let Some(receiver) = &mut self.receiver {
            if self.timestamps {
                segment.options.timestamps = Some(Timestamps { value: timestamp(now), echo: receiver.timestamp() });
            }
            receiver.acknowledge(&mut segment);
        }
        segment
    }

    fn own_reset(&self) -> Segment {
        let mut reset = reset(self.ports(), self.sender.seq(self.sender.next()));
        reset.ack = self.receiver.as_ref().map(Receiver::next);
        reset
    }

    /// The application writes. Returns how many bytes were taken: less if the send buffer is full, 0 after the end.
    pub fn write(&mut self, bytes: u64) -> u64 {
        if self.failure.is_some() { 0 } else { self.sender.write(bytes) }
    }

    /// How many bytes can be written now, at least.
    pub fn room(&self) -> u64 {
        self.sender.room()
    }

    /// Bytes that were written and have not been sent yet, not even once.
    pub fn unsent(&self) -> u64 {
        self.sender.unsent()
    }

    /// The application has written everything: the stream's end follows its last byte.
    pub fn finish(&mut self) {
        self.sender.finish();
    }

    /// Whether [`Connection::finish`] was called.
    pub fn has_finished_writing(&self) -> bool {
        self.sender.has_finished_writing()
    }

    /// Bytes that have arrived in order and were not read.
    pub fn readable(&self) -> u64 {
        self.receiver.as_ref().map_or(0, Receiver::readable)
    }

    /// The application reads. Returns how many bytes it got.
    pub fn read(&mut self, bytes: u64) -> u64 {
        self.receiver.as_mut().map_or(0, |receiver| receiver.read(bytes))
    }

    /// Whether the peer's stream has arrived to its end.
    pub fn is_peer_finished(&self) -> bool {
        self.receiver.as_ref().is_some_and(Receiver::is_finished)
    }

    /// Whether the peer has everything that was written, and the end.
    pub fn is_finished(&self) -> bool {
        self.sender.is_finished()
    }

    /// Aborts the connection, with a reset to the peer.
    pub fn abort(&mut self) {
        if !matches!(self.state, State::Closed | State::SynSent | State::TimeWait) {
            self.reset = Some(self.own_reset());
        }
        self.close(Some(Failure::Aborted));
    }
}
