//! What an acknowledgement costs, with many segments in flight and many holes among them.
//!
//! `cargo run --release -p ekiden-tcp --example event_cost`. The cost per event should stay about the same down each column.

use std::time::Instant;

use ekiden_congestion::{CongestionControl, Window};
use ekiden_tcp::{Connection, Settings};
use ekiden_units::Time;
use ekiden_wire::{Flags, Options, SackBlock, Segment, Seq};

const MSS: u32 = 1000;

/// A window that stays as it is.
struct Fixed;

impl CongestionControl for Fixed {
    fn on_rtt(&mut self, _: &Window, _: u64, _: u32) -> bool {
        false
    }
    fn on_ack(&mut self, _: &mut Window, _: u32) {}
    fn on_loss(&mut self, cwnd: u32) -> u32 {
        cwnd / 2
    }
    fn on_timeout(&mut self) {}
}

struct Bench {
    end: Connection,
    now: Time,
}

impl Bench {
    /// A connection with `window` segments in flight and nothing more to send.
    fn new(settings: &Settings, window: u32) -> Self {
        let settings =
            Settings { mss: MSS, timestamps: false, initial_window: window, send_buffer: 1 << 40, ..settings.clone() };
        let mut bench =
            Self { end: Connection::connect(&settings, Box::new(Fixed), (1, 2), Seq(0)), now: Time::secs(1) };
        bench.drain();
        let options = Options { mss: Some(1000), sack_permitted: true, window_scale: Some(14), ..Options::default() };
        bench.segment(Seq(0), 1, Flags { syn: true, ..Flags::default() }, options);
        bench.segment(Seq(1), 1, Flags::default(), Options::default());
        bench.end.write(u64::from(window * MSS));
        assert_eq!(bench.drain(), window as usize);
        bench
    }

    fn segment(&mut self, seq: Seq, ack: u32, flags: Flags, options: Options) {
        self.now = self.now + Time(1000);
        let window = u16::MAX;
        let segment = Segment { seq, ack: Some(Seq(ack)), flags, window, options, ..Segment::default() };
        self.end.on_segment(self.now, &segment);
    }

    fn drain(&mut self) -> usize {
        std::iter::from_fn(|| self.end.poll_transmit(self.now)).filter(|sent| sent.segment.payload > 0).count()
    }

    /// Segments count from 0.
    fn ack(&mut self, next: u32, blocks: &[(u32, u32)]) {
        let at = |segment: u32| Seq(1 + segment * MSS);
        let sack = blocks.iter().map(|(start, end)| SackBlock { start: at(*start), end: at(*end) }).collect();
        self.segment(Seq(1), at(next).0, Flags::default(), Options { sack, ..Options::default() });
        self.drain();
    }

    /// Nanoseconds that each of these took, on average and at most.
    fn time(&mut self, count: u32, mut event: impl FnMut(&mut Self, u32)) -> (u128, u128) {
        let (start, mut most) = (Instant::now(), 0);
        for index in 0..count {
            let begun = Instant::now();
            event(self, index);
            most = most.max(begun.elapsed().as_nanos());
        }
        (start.elapsed().as_nanos() / u128::from(count), most)
    }
}

fn main() {
    println!(
        "ns per event (worst)   in flight         in order       every 2nd lost      one lost, tail sacked      timeout"
    );
    for (name, settings) in [("rfc", Settings::rfc()), ("linux", Settings::linux())] {
        for window in [1_000, 10_000, 100_000] {
            // Acknowledgements one by one.
            let in_order = Bench::new(&settings, window).time(window - 1, |bench, index| bench.ack(index + 1, &[]));
            // Every second segment is missing: holes without end.
            let block = |index: u32| (1 + 2 * index, 2 + 2 * index);
            let mut bench = Bench::new(&settings, window);
            let holes = bench.time(window / 2 - 1, |bench, index| {
                let blocks = [block(index), block(index.saturating_sub(1)), block(index.saturating_sub(2))];
                bench.ack(0, &blocks);
            });
            // Nothing is known of most: rule 3 of NextSeg() looks for what to send.
            let mut bench = Bench::new(&settings, window);
            bench.ack(0, &[(window - 1, window)]);
            bench.ack(0, &[(window - 3, window - 2), (window - 1, window)]);
            bench.ack(0, &[(window / 2, window / 2 + 1), (window - 3, window - 2), (window - 1, window)]);
            let unsure = bench.time(window / 2 - 2, |bench, index| bench.ack(index + 1, &[(window - 3, window - 2)]));
            let mut bench = Bench::new(&settings, window);
            let timeout = bench.time(1, |bench, _| {
                bench.now = bench.end.timeout().expect("a timer runs");
                bench.end.on_time(bench.now);
            });
            println!("{name:6} {window:20} {in_order:?} {holes:?} {unsure:?} {timeout:?}");
        }
    }
}
