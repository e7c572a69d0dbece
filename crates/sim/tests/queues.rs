//! The queues over time, as the record has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use ekiden_record::{Kept, QueueSample, Record};
use ekiden_scenario::Scenario;
use ekiden_sim::{Options, simulate};
use ekiden_units::Time;
use proptest::prelude::*;

/// Two flows into a narrow line, in a tunnel or not.
const SCENARIO: &str = r#"
name = "queues"
seed = SEED
[node.source]
[node.ingress]
kind = "router"
[node.egress]
kind = "router"
[node.sink]
[link.source]
ends = ["source", "ingress"]
rate = "100Mbit/s"
[link.line]
ends = ["ingress", "egress"]
rate = "5Mbit/s"
delay = "10ms"
LINE
[link.sink]
ends = ["egress", "sink"]
rate = "100Mbit/s"
[flow.bulk]
from = "source"
to = "sink"
bytes = "400KB"
parallel = 2
"#;

const TUNNEL: &str = "[tunnel.deep]\nends = [\"egress\", \"ingress\"]\nconnections = 2\nqueue = \"40 packets\"\n";

fn run(text: &str, resolution: Time) -> (Record, Kept) {
    let options = Options { resolution, ..Options::default() };
    let mut kept = Kept::default();
    (simulate(&Scenario::parse(text, "queues.toml").unwrap(), &options, &mut kept, &mut |_| {}).unwrap(), kept)
}

/// A queue: link or tunnel and connection, and the end at which packets enter.
type Name = (Option<Arc<str>>, Option<Arc<str>>, Option<u32>, Arc<str>);

fn name(sample: &QueueSample) -> Name {
    let QueueSample { link, tunnel, connection, from, .. } = sample.clone();
    (link, tunnel, connection, from)
}

/// What every queue held and had dropped at `at_us`.
fn state(kept: &Kept, at_us: u64) -> BTreeMap<Name, [u64; 3]> {
    let until = kept.queues.iter().filter(|sample| sample.at_us <= at_us);
    until.map(|sample| (name(sample), [sample.packets, sample.bytes, sample.drops])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn notes_are_changes_within_what_the_links_and_tunnels_report(
        discipline in prop_oneof![Just("drop_tail"), Just("red"), Just("codel")],
        queue in prop_oneof![(6u32..60).prop_map(|n| format!("{n} packets")), (3u32..60).prop_map(|n| format!("{n}KB"))],
        loss in 0u32..3, in_tunnel: bool, seed in 0u64..1 << 60, step in 1u64..8,
    ) {
        let line = format!("queue = \"{queue}\"\ndiscipline = \"{discipline}\"\nloss = \"{loss}%\"");
        let tunnel = if in_tunnel { TUNNEL } else { "" };
        let text = SCENARIO.replace("LINE", &line).replace("SEED", &seed.to_string()) + tunnel;
        let ((fine_record, fine), (coarse_record, coarse)) = (run(&text, Time::ms(5)), run(&text, Time::ms(5 * step)));

        let mut last: BTreeMap<Name, QueueSample> = BTreeMap::new();
        let mut now_us = 0;
        for note in &fine.queues {
            prop_assert!(note.at_us >= now_us);
            now_us = note.at_us;
            prop_assert!(20 * note.packets <= note.bytes && note.bytes <= 1500 * note.packets, "{note:?}");
            let before = last.insert(name(note), note.clone());
            let before = before.map_or([0; 3], |before| [before.packets, before.bytes, before.drops]);
            prop_assert_ne!(before, [note.packets, note.bytes, note.drops]);
            prop_assert!(before[2] <= note.drops);
        }
        let mut drops = |name: &Name| last.remove(name).map_or(0, |last| last.drops);
        let within = |name: &Name, packets: u64, bytes: u64| {
            let mut of_queue = fine.queues.iter().filter(|note| self::name(note) == *name);
            of_queue.all(|note| note.packets <= packets && note.bytes <= bytes)
        };
        for link in &fine_record.links {
            let name = (Some(link.link.as_str().into()), None, None, link.from.as_str().into());
            prop_assert_eq!(drops(&name), link.queue_drops);
            prop_assert!(within(&name, link.queue_max_packets, link.queue_max_bytes));
        }
        for pipe in &fine_record.tunnels {
            let name = (None, Some(pipe.tunnel.as_str().into()), Some(pipe.connection), pipe.from.as_str().into());
            prop_assert_eq!(drops(&name), pipe.queue_drops);
            prop_assert!(within(&name, pipe.queue_max_packets, pipe.queue_max_bytes));
        }
        prop_assert!(last.is_empty(), "no such queue: {last:?}");

        // Looking more often shows more, and changes nothing.
        prop_assert_eq!(&fine_record.links, &coarse_record.links);
        for note in &coarse.queues {
            let state = state(&fine, note.at_us).get(&name(note)).copied();
            prop_assert_eq!(state, Some([note.packets, note.bytes, note.drops]));
        }
        for at_us in (0..now_us).step_by(5_000 * step as usize) {
            let moving = |(name, state): (Name, [u64; 3])| (state != [0; 3]).then_some((name, state));
            let [fine, coarse] = [&fine, &coarse].map(|kept| state(kept, at_us).into_iter().filter_map(moving).collect());
            let (fine, coarse): (Vec<_>, Vec<_>) = (fine, coarse);
            prop_assert_eq!(fine, coarse);
        }
    }
}

#[test]
fn a_queue_that_fills_at_a_known_rate_is_as_long_as_it_must_be() {
    // 8 Mbit/s into 4 Mbit/s: of every 1000 bytes that arrive in a millisecond, half stay.
    let text = "name = \"fill\"\n[node.a]\n[node.r]\nkind = \"router\"\n[node.b]\n\
                [link.in]\nends = [\"a\", \"r\"]\nrate = \"8Gbit/s\"\n\
                [link.out]\nends = [\"r\", \"b\"]\nrate = \"4Mbit/s\"\nqueue = \"20 packets\"\n\
                [background.b]\nfrom = \"a\"\nto = \"b\"\nrate = \"8Mbit/s\"\npacket = \"1000B\"\nduration = \"60ms\"\n\
                [flow.f]\nfrom = \"b\"\nto = \"a\"\nbytes = \"1KB\"\nstart = \"120ms\"\n";
    let (_, kept) = run(text, Time::ms(10));
    let found: Vec<_> = kept.queues.iter().filter(|note| note.at_us < 115_000).collect();
    // Datagram n leaves at n ms, and arrives 1 µs later. Number 0 is on the line at once.
    let expected = [(10, 5, 0), (20, 10, 0), (30, 15, 0), (40, 20, 0), (50, 20, 5), (60, 20, 10)];
    let emptying = [(70, 15, 10), (80, 10, 10), (90, 5, 10), (100, 0, 10)];
    let expected: Vec<_> = expected.into_iter().chain(emptying).collect();
    let found: Vec<_> = found.iter().map(|note| (note.at_us / 1000, note.packets, note.drops)).collect();
    assert_eq!(found, expected);
}
