//! Whatever the other end says of a load, conclusions are drawn from it without a panic, and soon.

use ekiden_record::{EndSettings, Finding, LoadSettings, Way};
use proptest::collection::vec;
use proptest::prelude::*;

use super::base::Base;
use super::find;
use super::picture;
use super::trace::Trace;
use crate::latency::Answer;
use crate::measured::Measured;
use crate::outcome::{loads, samples};
use crate::verdict::sentence;
use ekiden_measure_proto::message::{Segments, StreamEnd};
use ekiden_measure_proto::row::Row;
use ekiden_measure_proto::seen::LoadSeen;
use ekiden_measure_proto::settings::Asked;

/// Small numbers, which meet, as often as any.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..100_u64, 0..10_000_000_u64, any::<u64>(), Just(u64::MAX)]
}

fn row() -> impl Strategy<Value = Row> {
    vec(number(), 19).prop_map(|numbers| {
        let text = serde_json::to_string(&numbers).unwrap();
        serde_json::from_str(&text).unwrap()
    })
}

/// Rows in the order of time and of what was sent, or in none.
fn rows() -> impl Strategy<Value = Vec<Row>> {
    (vec(row(), 0..40), any::<bool>()).prop_map(|(mut rows, is_ordered)| {
        if is_ordered {
            rows.sort_by_key(|row| (row.at_us, row.sent_bytes));
        }
        rows
    })
}

fn segments() -> impl Strategy<Value = Option<Segments>> {
    let any = any::<(u32, u8)>();
    proptest::option::of((any, number()).prop_map(|((longest_bytes, mtu_probing), whole_bytes)| Segments {
        longest_bytes,
        whole_bytes,
        mtu_probing,
    }))
}

fn seen(way: Way) -> impl Strategy<Value = LoadSeen> {
    let counts = (number(), number(), number(), number(), vec(number(), 0..4));
    (rows(), counts, any::<(u32, u32)>(), segments()).prop_map(
        move |(rows, counts, (mss_bytes, path_mtu_bytes), segments)| {
            let (bytes, duration_us, first_us, cpu_us, tenths_bytes) = counts;
            let late_us = vec![0, u32::MAX];
            let end = StreamEnd {
                bytes,
                duration_us,
                first_us,
                cpu_us,
                tenths_bytes,
                mss_bytes,
                path_mtu_bytes,
                segments,
                late_us,
                ..StreamEnd::default()
            };
            LoadSeen { way, stream: 0, end, rows }
        },
    )
}

fn measured() -> impl Strategy<Value = Measured> {
    let streams = || (seen(Way::Forth), seen(Way::Back)).prop_map(|(forth, back)| vec![forth, back]);
    let answers = vec((number(), number(), number()), 0..8);
    (streams(), streams(), answers, number(), number()).prop_map(
        |(near_seen, far_seen, answers, began_ns, ended_ns)| {
            let answer = |(sent_ns, there_ns, back_ns)| Answer { sent_ns, there_ns, back_ns };
            Measured {
                from: ([127, 0, 0, 1], 1).into(),
                far: EndSettings::default(),
                near_seen,
                far_seen,
                answers: answers.into_iter().map(answer).collect(),
                began_ns,
                ended_ns,
                bytes_most: None,
            }
        },
    )
}

proptest! {
    #[test]
    fn a_load_is_told_of_whatever_was_said(measured in measured(), is_timed: bool) {
        let default = Asked::default().get().clone();
        let duration_us = default.duration_us.filter(|_| is_timed);
        let settings = LoadSettings { ways: vec![Way::Forth, Way::Back], bytes: Some(1 << 30), duration_us, ..default };
        let asked = Asked::new(settings).unwrap();
        let (loads, latency) = loads(&asked, &measured);
        for load in &loads {
            let _ = sentence(load, asked.get(), Some(&latency));
            if let Some(shares) = load.shares {
                let all = shares.application + shares.receive_window + shares.send_buffer + shares.path;
                prop_assert!((all - 1.0).abs() < 1e-6, "{shares:?}");
                prop_assert_eq!(shares.permille().map(|(_, permille)| permille).iter().sum::<u32>(), 1000);
            }
        }
        let samples = samples(&measured);
        prop_assert!(samples.is_sorted_by_key(|sample| sample.at_us));
    }

    #[test]
    fn a_path_is_told_of_whatever_was_said(first in measured(), second in measured(), rtt_us in 0.0..1e9) {
        for way in [Way::Forth, Way::Back] {
            let (first, second) = (Trace::of(&first, way).unwrap(), Trace::of(&second, way));
            let _ = picture(&first, way);
            let found = find::direction(&first, second.as_ref(), Base { rtt_us, jitter_us: rtt_us / 100.0, spread_us: rtt_us / 50.0 }, Finding::Absent { evidence: String::new() });
            for finding in [&found.rate_bit_s, &found.buffer_bytes, &found.random_loss, &found.policer_bit_s] {
                if let Some(value) = finding.estimate_or_bound() {
                    prop_assert!(value.is_finite() && value >= 0.0, "{finding:?}");
                }
            }
            prop_assert!(found.random_loss.value().is_none_or(|part| part <= 1.0), "{:?}", found.random_loss);
        }
    }
}
