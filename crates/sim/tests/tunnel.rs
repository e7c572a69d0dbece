//! What tunnels do to the packets that they carry.

use ekiden_record::{Kept, Outcome, Record};
use ekiden_scenario::{Point, Scenario, Sweep};
use proptest::prelude::*;

/// Hosts, the routers with the tunnel's ends, and a line of 10 Mbit/s with two more routers in it.
const NETWORK: &str = r#"
name = "tunnel"
description = "one flow through a tunnel"
[node.source]
[node.ingress]
kind = "router"
[node.core_in]
kind = "router"
[node.core_out]
kind = "router"
[node.egress]
kind = "router"
[node.sink]
[link.source]
ends = ["source", "ingress"]
rate = "100Mbit/s"
[link.near]
ends = ["ingress", "core_in"]
rate = "100Mbit/s"
[link.backbone]
ends = ["core_in", "core_out"]
rate = "10Mbit/s"
delay = "10ms"
[link.far]
ends = ["core_out", "egress"]
rate = "100Mbit/s"
[link.sink]
ends = ["egress", "sink"]
rate = "100Mbit/s"
[tunnel.outer]
ends = ["ingress", "egress"]
[flow.bulk]
from = "source"
to = "sink"
bytes = "200KB"
start = "1s"
"#;

fn run_text(text: &str, sets: &[&str]) -> Record {
    run_sampled(text, sets).0
}

fn run_sampled(text: &str, sets: &[&str]) -> (Record, Kept) {
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    let points: Vec<Point> = Sweep::parse(&sets).unwrap().points();
    let [point] = &points[..] else { panic!("one point") };
    let scenario = Scenario::parse_with(text, "tunnel.toml", point).unwrap();
    let mut kept = Kept::default();
    (ekiden_sim::simulate(&scenario, &ekiden_sim::Options::default(), &mut kept, &mut |_| {}).unwrap(), kept)
}

fn run(sets: &[&str]) -> Record {
    run_text(NETWORK, sets)
}

fn link(record: &Record, name: &str, from: &str) -> u64 {
    record.links.iter().find(|link| link.link == name && link.from == from).unwrap().packets
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_byte_arrives_whatever_is_lost_on_the_way(
        loss in 0u32..8, connections in 1u32..4, parallel in 1u32..5, buffer in 1u32..40, queue in 5u32..100,
        sack: bool, pulls: bool, seed: u64,
    ) {
        let record = run(&[
            &format!("link.backbone.loss={loss}%"),
            &format!("tunnel.outer.connections={connections}"),
            &format!("tunnel.outer.tcp.send_buffer={buffer}KiB"),
            &format!("tunnel.outer.queue={queue} packets"),
            &format!("flow.bulk.parallel={parallel}"),
            &format!("tunnel.outer.tcp.sack={sack}"),
            if pulls { "tunnel.outer.discipline=fq_codel" } else { "tunnel.outer.discipline=drop_tail" },
            "flow.bulk.bytes=60KB",
            &format!("seed={}", seed >> 12),
        ]);
        prop_assert_eq!(&record.flows[0].outcome, &Outcome::Complete);
        prop_assert_eq!(record.flows[0].received_bytes, 60_000 * u64::from(parallel));
        prop_assert!(record.tunnels.iter().all(|pipe| pipe.queue_max_packets <= u64::from(queue)));
    }
}

#[test]
fn nothing_goes_around_a_tunnel() {
    let record = run(&["link.backbone.loss=2%"]);
    let [forth, back] = &record.tunnels[..] else { panic!("one connection") };
    assert_eq!((&forth.from[..], &forth.to[..]), ("ingress", "egress"));
    // What came out at the far ends came out of the tunnel, but for what is under way when the run ends.
    let (out, returned) = (link(&record, "sink", "egress"), link(&record, "source", "ingress"));
    assert!((out..out + 3).contains(&forth.packets), "{out} of {}", forth.packets);
    assert!((returned..returned + 3).contains(&back.packets), "{returned} of {}", back.packets);
    assert!(forth.retransmits > 0 && forth.rtt_min_us >= Some(20_000));
    // And the hosts saw no loss.
    assert_eq!(record.flows[0].retransmits, 0);
}

#[test]
fn what_passes_one_end_only_stays_outside() {
    let other = r#"
[node.neighbour]
[link.neighbour]
ends = ["core_out", "neighbour"]
rate = "100Mbit/s"
[flow.short]
from = "source"
to = "neighbour"
bytes = "50KB"
start = "1s"
"#;
    let network = NETWORK.replace("[flow.bulk]", &format!("{other}\n[flow.bulk]"));
    let alone = run(&[]);
    let both = run_text(&network, &["flow.bulk.start=10s"]);
    assert_eq!(both.flows.iter().map(|flow| flow.received_bytes).collect::<Vec<_>>(), [50_000, 200_000]);
    assert_eq!(both.tunnels[0].packets, alone.tunnels[0].packets);
}

#[test]
fn a_full_queue_drops_exactly_what_does_not_fit() {
    // Two packets of 1502 bytes fit into the send buffer, ten wait. The burst arrives within 5 ms, an acknowledgement
    // after 200 ms.
    for burst in [5, 12, 13, 20] {
        let record = run(&[
            "tunnel.outer.tcp.send_buffer=4KiB",
            "tunnel.outer.queue=10 packets",
            "link.backbone.delay=100ms",
            "node.source.tcp.initial_window=40",
            &format!("flow.bulk.bytes={}B", burst * 1448),
        ]);
        assert_eq!(record.flows[0].outcome, Outcome::Complete);
        let forth = &record.tunnels[0];
        assert_eq!(forth.queue_drops, u64::from(u32::saturating_sub(burst, 12)), "{burst} packets");
        assert_eq!(forth.queue_max_packets, u64::from((burst - 2).min(10)));
    }
}

#[test]
fn several_connections_are_all_used_and_keep_each_flow_in_order() {
    // The hosts' timers do not run out, and nothing is lost outside the tunnel: only disorder could make them repeat.
    let record = run(&[
        "tunnel.outer.connections=3",
        "flow.bulk.parallel=7",
        "link.backbone.loss=2%",
        "node.source.tcp.rto_min=60s",
        "flow.bulk.bytes=100KB",
    ]);
    assert_eq!(record.flows[0].received_bytes, 700_000);
    assert_eq!(record.flows[0].retransmits, 0);
    assert_eq!(record.tunnels.len(), 6);
    // Seven connections on three: 3, 2, 2.
    let carried: Vec<_> = record.tunnels.iter().step_by(2).map(|pipe| pipe.bytes / 100_000).collect();
    assert_eq!(carried, [3, 2, 2]);
}

#[test]
fn a_tunnel_can_lead_through_another() {
    let inner = "[tunnel.inner]\nends = [\"core_in\", \"core_out\"]\n[flow.bulk]";
    let record = run_text(&NETWORK.replace("[flow.bulk]", inner), &["link.backbone.loss=1%"]);
    assert_eq!(record.flows[0].received_bytes, 200_000);
    let [outer, _, inner, _] = &record.tunnels[..] else { panic!("two connections") };
    assert!(outer.bytes > 200_000 && inner.bytes > outer.bytes, "each adds its headers");
    assert!(inner.packets >= link(&record, "far", "core_out"));
    assert_eq!(outer.retransmits, 0, "the inner one hides the losses");
}

#[test]
fn a_dead_tunnel_loses_its_packets_and_says_so() {
    let record = run(&["link.backbone.loss=100%", "flow.bulk.start=1000s", "tunnel.outer.tcp.profile=opnet"]);
    let event = record.events.iter().find(|event| event.flow.is_none()).expect("an event");
    assert_eq!(
        (&event.kind[..], &event.detail[..]),
        ("failed", "tunnel outer, connection 0: no answer; 0 packets lost with it")
    );
    assert!(record.tunnels[0].broken_losses > 0);
    assert!(matches!(record.flows[0].outcome, Outcome::Failed { .. }));
}

#[test]
fn the_same_seed_gives_the_same_record() {
    let sets = ["tunnel.outer.connections=2", "flow.bulk.parallel=3", "link.backbone.loss=2%"];
    let with = |seed: &str| {
        let (mut record, kept) = run_sampled(NETWORK, &[&sets[..], &[seed]].concat());
        record.manifest.scenario.clear();
        (record, kept)
    };
    assert_eq!(with("seed=7"), with("seed=7"));
    assert_ne!(with("seed=7").1, with("seed=8").1);
}

#[test]
fn sack_in_the_tunnel_spares_the_hosts_needless_retransmissions_and_their_own_does_not() {
    // S1, figures 2 and 6: slow start overshoots, and the tunnel stalls for longer than the hosts wait. Nothing is lost on
    // the hosts' way, so all that they send again is needless.
    let sent_again = |sets: &[&str]| -> u64 {
        let starts = ["1s", "1.27s", "1.41s"].map(|start| format!("flow.bulk.start={start}"));
        let runs = starts.iter().map(|start| {
            let fixed = [
                "flow.bulk.duration=20s",
                "link.source.delay+link.sink.delay=10ms",
                "link.backbone.delay=100ms",
                start,
            ];
            let record = run_text(include_str!("../../../scenarios/s1/tunnel.toml"), &[&fixed, sets].concat());
            assert!(record.tunnels.iter().all(|pipe| pipe.queue_drops == 0) && record.tunnels[0].retransmits > 0);
            record.flows[0].retransmits
        });
        runs.sum()
    };
    assert!(sent_again(&[]) > 100);
    assert!(sent_again(&["node.source.tcp.sack+node.sink.tcp.sack=true"]) > 100);
    assert_eq!(sent_again(&["tunnel.t.tcp.sack=true"]), 0);
}

/// A file of one segment after the other, beside a bulk flow.
const BESIDE: &str = r#"
[flow.sparse]
from = "source"
to = "sink"
duration = "20s"
file = "1KB"
start = "5s"
"#;

#[test]
fn by_flow_a_sparse_flow_does_not_wait_behind_a_full_one() {
    let text = format!("{NETWORK}{BESIDE}").replace("bytes = \"200KB\"", "duration = \"24s\"");
    let files = |sets: &[&str]| {
        let record = run_text(&text, sets);
        let [bulk, sparse] = &record.flows[..] else { panic!("two flows") };
        (bulk.goodput_bit_s, sparse.received_bytes / 1_000)
    };
    // The outer connection fills the line's own queue, where packets wait in any case: 30 ms.
    let line = "link.backbone.queue=25 packets";
    let (together, few) = files(&[line]);
    let (by_flow, many) = files(&[line, "tunnel.outer.discipline=fq_codel"]);
    // A file takes two round trips of 20 ms and what it waits; in 20 s 400 of them at most.
    assert!(few < 40 && many > 100, "{few} files behind the full flow, {many} beside it");
    assert!(by_flow * 10 > together * 9, "{by_flow} and {together}");
}

#[test]
fn what_is_pulled_can_be_dropped_before_the_queue_is_long() {
    let sets = [
        "flow.bulk.bytes=20MB",
        "tunnel.outer.tcp.send_buffer=4MiB",
        "node.sink.tcp.receive_buffer=4MiB",
        "node.source.tcp.send_buffer=4MiB",
        "link.backbone.queue=25 packets",
    ];
    let pushed = run(&sets);
    let pulled = run(&[&sets[..], &["tunnel.outer.discipline=fq_codel"]].concat());
    let rtt = |record: &Record| record.flows[0].rtt_max_us.unwrap();
    assert!(rtt(&pushed) > 1_000_000 && rtt(&pulled) * 2 < rtt(&pushed), "{} and {}", rtt(&pushed), rtt(&pulled));
    let (drops, sent_again) = (pulled.tunnels[0].queue_drops, pulled.flows[0].retransmits);
    assert!(drops > 0 && sent_again >= drops, "{drops} dropped, {sent_again} sent again");
    let seconds = |record: &Record| record.flows[0].duration_us as f64 / 1e6;
    assert!(seconds(&pulled) < 1.15 * seconds(&pushed), "{} and {}", seconds(&pulled), seconds(&pushed));
}

#[test]
fn a_tunnels_queue_marks_hosts_that_want_it() {
    let sets = [
        "flow.bulk.bytes=20MB",
        "tunnel.outer.tcp.send_buffer=4MiB",
        "node.sink.tcp.receive_buffer=4MiB",
        "node.source.tcp.send_buffer=4MiB",
        "link.backbone.queue=25 packets",
        "tunnel.outer.discipline=fq_codel",
    ];
    let of = |sets: &[&str]| run(sets).tunnels[0].clone();
    let plain = of(&sets);
    let marked = of(&[&sets[..], &["node.source.tcp.ecn+node.sink.tcp.ecn=true"]].concat());
    assert!(plain.queue_drops > 0 && plain.queue_marks == 0, "{plain:?}");
    // What is sent again cannot be marked.
    assert!(marked.queue_drops < plain.queue_drops && marked.queue_marks > 0, "{marked:?}");
}

/// Datagrams with more than the rate of the line.
const FLOOD: &str = r#"
[background.flood]
from = "source"
to = "sink"
rate = "20Mbit/s"
start = "2s"
duration = "20s"
"#;

#[test]
fn datagrams_have_a_connection_of_their_own_if_told_to() {
    let text = format!("{NETWORK}{FLOOD}").replace("bytes = \"200KB\"", "duration = \"24s\"");
    let goodput = |sets: &[&str]| {
        let record = run_text(&text, sets);
        let carried: Vec<u64> =
            record.tunnels.iter().filter(|pipe| pipe.from == "ingress").map(|pipe| pipe.packets).collect();
        (record.flows[0].goodput_bit_s, carried)
    };
    let (together, carried) = goodput(&[]);
    assert_eq!(carried.len(), 1);
    let (apart, carried) = goodput(&["tunnel.outer.separate=true"]);
    assert!(carried.len() == 2 && carried.iter().all(|packets| *packets > 100), "{carried:?}");
    assert!(apart > together, "{apart} and {together}");
}
