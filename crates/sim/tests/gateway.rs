//! The gateway that keeps parallel streams in balance, in a network of a hundredth of the size of S2's.

use ekiden_record::{Event, Kept, Outcome, Record};
use ekiden_scenario::Scenario;

/// Four streams over 100 Mbit/s and 100 ms, whose slow start overshoots by several hundred packets.
fn run(gateway: &str) -> (Record, Kept) {
    run_with("ns2", gateway)
}

fn run_with(profile: &str, gateway: &str) -> (Record, Kept) {
    let text = format!(
        "name = 'parallel'
        [tcp]
        profile = '{profile}'
        congestion = 'ekiden_bic'
        timestamps = false
        send_buffer = '64MiB'
        receive_buffer = '64MiB'
        [node.sender]
        copies = 4
        [node.entrance]
        kind = 'router'
        [node.exit]
        kind = 'router'
        [node.receiver]
        copies = 4
        [link.access]
        ends = ['sender', 'entrance']
        rate = '100Mbit/s'
        queue = '64MB'
        [link.bottleneck]
        ends = ['entrance', 'exit']
        rate = '100Mbit/s'
        delay = '50ms'
        queue = '625kB'
        [link.exit]
        ends = ['exit', 'receiver']
        rate = '100Mbit/s'
        queue = '64MB'
        [flow.bulk]
        from = 'sender'
        to = 'receiver'
        bytes = '10MB'
        [background.udp]
        from = 'entrance'
        to = 'exit'
        rate = '20Mbit/s'
        on = '50ms'
        off = '50ms'
        [gateway.balance]
        node = 'entrance'
        flows = ['bulk']
        {gateway}"
    );
    let scenario = Scenario::parse(&text, "test.toml").unwrap();
    let mut kept = Kept::default();
    let record = ekiden_sim::simulate(&scenario, &Default::default(), &mut kept, &mut |_| {}).unwrap();
    assert!(record.flows.iter().all(|flow| flow.outcome == Outcome::Complete), "{:?}", record.flows);
    (record, kept)
}

fn changes(record: &Record) -> Vec<&Event> {
    record.events.iter().filter(|event| ["throttled", "let_go"].contains(&event.kind.as_str())).collect()
}

#[test]
fn the_windows_are_small_from_throttling_to_letting_go_and_never_larger() {
    let ((without, seen_without), (with, seen_with)) = (run("enabled = false"), run("policy = 'paper'"));
    assert!(changes(&without).is_empty());
    let changes = changes(&with);
    assert!(changes.len() >= 2, "{:?}", with.events);
    for (change, kind) in changes.iter().zip(["throttled", "let_go"].into_iter().cycle()) {
        assert_eq!(change.kind, kind, "{changes:?}");
        assert!(change.flow.as_ref().is_some_and(|flow| flow.starts_with("bulk-")), "{change:?}");
        assert_eq!(change.connection, Some(0));
    }
    // The receivers' programs take everything at once: so the receivers always offer the same.
    let offered = seen_without.samples.iter().map(|sample| sample.window_bytes).max().unwrap();
    let mut smallest = u64::MAX;
    for sample in &seen_with.samples {
        assert!(sample.window_bytes <= offered, "{sample:?}");
        let is_throttled =
            changes.iter().rev().find(|change| change.at_us < sample.at_us).map(|c| c.kind == "throttled");
        if is_throttled == Some(true) {
            smallest = smallest.min(sample.window_bytes);
        }
    }
    assert!(smallest < offered / 10, "{smallest} of {offered}");
    // From when every connection is open.
    let mut later = seen_without.samples.iter().filter(|sample| sample.at_us > 500_000);
    assert!(later.all(|sample| sample.window_bytes + 64 * 1500 > offered), "without a gateway it stays");
}

#[test]
fn more_repetitions_throttle_later_and_too_many_never() {
    let first = |repeats: u32| {
        changes(&run(&format!("policy = 'paper'\nrepeats = {repeats}")).0).first().map(|change| change.at_us)
    };
    let times: Vec<_> = [10, 50, 100].into_iter().map(first).collect();
    assert!(times[0].is_some() && times.is_sorted() && times[0] < times[2], "{times:?}");
    assert_eq!(first(100_000), None);
}

/// Ours, where slow start overshoots: less is sent again, and no stream is slower than without it.
#[test]
fn the_delivered_policy_spares_losses() {
    let ((without, _), (with, _)) = (run_with("ns2_bitcp", "enabled = false"), run_with("ns2_bitcp", ""));
    let throttled = changes(&with);
    assert!(!throttled.is_empty() && throttled.iter().all(|change| change.kind == "throttled"), "{throttled:?}");
    let sum = |record: &Record| record.flows.iter().map(|flow| flow.retransmits).sum::<u64>();
    let slowest = |record: &Record| record.flows.iter().map(|flow| flow.duration_us).max();
    assert!(sum(&with) * 4 < sum(&without) * 3, "{} of {}", sum(&with), sum(&without));
    assert!(slowest(&with) <= slowest(&without), "{:?} after {:?}", slowest(&with), slowest(&without));
}

#[test]
fn the_same_seed_gives_the_same_record() {
    assert_eq!(run(""), run(""));
}
