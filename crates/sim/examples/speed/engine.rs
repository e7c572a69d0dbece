//! Both ends of a connection without a network: what a segment costs, with many in flight and many holes among them.

use std::collections::VecDeque;

use ekiden_congestion::{CongestionControl, Window};
use ekiden_packet::{Segment, Seq};
use ekiden_tcp::{Connection, State, TcpSettings};
use ekiden_units::Time;

/// Segments that a measurement sends at least.
const SEGMENTS: u64 = 500_000;
const MSS: u32 = 1000;
/// Between two segments.
const STEP: Time = Time(1000);

/// Segments that are lost the first time.
pub struct Case {
    pub name: &'static str,
    sack: bool,
    /// One in so many.
    lost: Option<u64>,
}

pub const CASES: [Case; 4] = [
    Case { name: "nothing lost", sack: true, lost: None },
    Case { name: "1 in 20 lost: thousands of holes", sack: true, lost: Some(20) },
    Case { name: "1 in 2 lost", sack: true, lost: Some(2) },
    Case { name: "1 in 1000 lost, no SACK", sack: false, lost: Some(1000) },
];

/// A window that stays as it is.
struct Fixed(u32);

impl CongestionControl for Fixed {
    fn on_rtt(&mut self, _: &Window, _: u64, _: u32) -> bool {
        false
    }
    fn on_ack(&mut self, window: &mut Window, _: u32) {
        window.cwnd = self.0;
    }
    fn on_loss(&mut self, _: u32) -> u32 {
        self.0
    }
    fn on_timeout(&mut self) {}
}

/// Nanoseconds of processor time per segment, there and back: sent, received, acknowledged, the acknowledgement taken.
pub fn cost(case: &Case, in_flight: u32) -> f64 {
    let settings = TcpSettings {
        mss: MSS,
        sack: case.sack,
        timestamps: false,
        initial_window: in_flight,
        send_buffer: 1 << 40,
        receive_buffer: 1 << 30,
        ..TcpSettings::linux()
    };
    let mut path = Path::new(&settings, in_flight);
    let segments = SEGMENTS.max(5 * u64::from(in_flight));
    path.sender.write(segments * u64::from(MSS));
    let used = crate::used();
    let mut sent = 0u64;
    let mut reached = 0;
    while !path.is_over(segments) {
        while let Some(transmit) = path.sender.poll_transmit(path.now) {
            sent += 1;
            let is_first = transmit.offset >= reached;
            reached = reached.max(transmit.offset + 1);
            let number = transmit.offset / u64::from(MSS);
            if !(is_first && case.lost.is_some_and(|lost| number % lost == lost - 1)) {
                path.under_way.push_back(transmit.segment);
            }
        }
        path.step();
    }
    (crate::used() - used).as_nanos() as f64 / sent as f64
}

/// A sender, a receiver, and what is under way from one to the other. Acknowledgements arrive at once.
struct Path {
    sender: Connection,
    receiver: Connection,
    under_way: VecDeque<Segment>,
    now: Time,
}

impl Path {
    fn new(settings: &TcpSettings, window: u32) -> Self {
        let mut sender = Connection::connect(settings, Box::new(Fixed(window)), (1, 2), Seq(0));
        let now = Time::secs(1);
        let syn = sender.poll_transmit(now).expect("a SYN").segment;
        let receiver = Connection::accept(settings, Box::new(Fixed(window)), &syn, Seq(0), now).expect("a SYN");
        let mut path = Self { sender, receiver, under_way: VecDeque::new(), now };
        path.answer();
        assert_eq!(path.sender.state(), State::Established);
        path
    }

    fn answer(&mut self) {
        while let Some(ack) = self.receiver.poll_transmit(self.now) {
            self.sender.on_segment(self.now, &ack.segment);
        }
    }

    fn is_over(&self, segments: u64) -> bool {
        self.sender.info().acked_bytes == segments * u64::from(MSS)
    }

    /// The next segment arrives, or a timer runs out.
    fn step(&mut self) {
        self.now = self.now + STEP;
        match self.under_way.pop_front() {
            Some(segment) => {
                self.receiver.on_segment(self.now, &segment);
                self.receiver.read(u64::MAX);
            }
            None => {
                let timers = [self.sender.timeout(), self.receiver.timeout()];
                self.now = self.now.max(timers.into_iter().flatten().min().unwrap_or(self.now));
                self.sender.on_time(self.now);
                self.receiver.on_time(self.now);
            }
        }
        self.answer();
    }
}
