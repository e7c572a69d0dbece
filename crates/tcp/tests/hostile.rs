//! No segment, in no order, makes a connection panic or lose its own count.

use crate::common::peer::{Bench, SYN};
use ekiden_packet::{Flags, Options, SackBlock, Seq};
use ekiden_tcp::{State, TcpSettings};
use ekiden_units::Time;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Segment {
        at: i32,
        ack: Option<i32>,
        flags: [bool; 6],
        marked: bool,
        payload: u32,
        window: u16,
        blocks: Vec<(i32, i32)>,
        timestamp: u32,
    },
    Write(u64),
    Read(u64),
    Finish,
    Wait,
    Pass(u64),
}

/// Mostly near, sometimes anywhere.
fn near() -> impl Strategy<Value = i32> {
    prop_oneof![10 => -10i32..10, 10 => -2000i32..20_000, 1 => any::<i32>()]
}

fn step() -> impl Strategy<Value = Step> {
    let flags = [0.02, 0.05, 0.02, 0.5, 0.3, 0.1].map(prop::bool::weighted);
    let ack = prop_oneof![1 => Just(None), 12 => near().prop_map(Some)];
    let payload = prop_oneof![Just(0u32), 0u32..3000];
    let window = prop_oneof![Just(0u16), 0u16..3000, any::<u16>()];
    let blocks = prop::collection::vec((near(), near()), 0..4);
    let segment = (near(), ack, (flags, prop::bool::weighted(0.1)), payload, window, blocks, 990u32..1100).prop_map(
        |(at, ack, (flags, marked), payload, window, blocks, timestamp)| Step::Segment {
            at,
            ack,
            flags,
            marked,
            payload,
            window,
            blocks,
            timestamp,
        },
    );
    prop_oneof![
        12 => segment,
        3 => (0u64..20_000).prop_map(Step::Write),
        2 => (0u64..10_000).prop_map(Step::Read),
        1 => Just(Step::Finish),
        3 => Just(Step::Wait),
        2 => (0u64..2000).prop_map(Step::Pass),
    ]
}

fn settings() -> impl Strategy<Value = TcpSettings> {
    let profile = prop_oneof![
        Just(TcpSettings::rfc()),
        Just(TcpSettings::linux()),
        Just(TcpSettings::ns2()),
        Just(TcpSettings::opnet())
    ];
    (profile, 48u32..3000, 1u64..100_000, 1u64..200_000, any::<[bool; 2]>()).prop_map(
        |(profile, mss, send_buffer, receive_buffer, [sack, timestamps])| TcpSettings {
            mss,
            send_buffer,
            receive_buffer,
            sack,
            timestamps,
            ..profile
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_segment_disturbs_the_count(
        settings in settings(),
        first in any::<[u32; 2]>(),
        answers in prop::bool::weighted(0.9),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut bench = Bench::opening(&settings, first);
        if answers {
            bench.segment(0, Some(1), SYN, 0, Options { window_scale: Some(2), ..bench.syn_options() });
        }
        let mut written = 0;
        for step in steps {
            match step {
                Step::Segment { at, ack, flags: [syn, fin, rst, psh, ece, cwr], marked, payload, window, blocks, timestamp } => {
                    bench.window = window;
                    bench.is_marked = marked;
                    bench.timestamp = bench.timestamp.map(|_| timestamp);
                    let acked = bench.end.info().acked_bytes as u32 + 1;
                    let place = |near: i32| Seq(first[0]) + acked + near as u32;
                    let sack =
                        blocks.iter().map(|(a, b)| SackBlock { start: place(*a), end: place(*b) }).collect();
                    let options = Options { sack, ..Options::default() };
                    let at = (1 + bench.end.readable() as u32).wrapping_add_signed(at);
                    let ack = ack.map(|ack| acked.wrapping_add_signed(ack));
                    let accepted = bench.segment(at, ack, Flags { syn, fin, rst, psh, ece, cwr }, payload, options);
                    prop_assert!(accepted.skip + accepted.length <= payload);
                }
                Step::Write(bytes) => written += bench.end.write(bytes),
                Step::Read(bytes) => prop_assert!(bench.end.read(bytes) <= bytes),
                Step::Finish => bench.end.finish(),
                Step::Wait if bench.end.timeout().is_some() => {
                    bench.wait();
                }
                Step::Wait => {}
                Step::Pass(ms) => bench.pass(Time::ms(ms)),
            }
            let mut sent = 0;
            while bench.end.poll_transmit(bench.now).is_some() {
                sent += 1;
                prop_assert!(sent < 10_000, "it sends without end");
            }
            let info = bench.end.info();
            prop_assert!(info.acked_bytes <= written);
            prop_assert!(info.cwnd >= 1 && info.lost <= info.outstanding && info.pipe <= 2 * info.outstanding);
            if bench.end.state() != State::Closed {
                prop_assert!(info.outstanding == 0 || bench.end.timeout().is_some());
            } else {
                prop_assert_eq!(bench.end.timeout(), None);
            }
        }
    }
}
