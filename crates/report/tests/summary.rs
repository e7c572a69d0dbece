//! Medians and spreads over the runs of one point.

use ekiden_record::{FORMAT, Flow, Lateness, LinkDirection, Manifest, Outcome, Record};
use ekiden_report::{Spread, summarize};

fn record(goodputs: &[(&str, u64)], drops: [u64; 2], overruns: u64, p99_us: Option<f64>) -> Record {
    let flow = |&(name, goodput_bit_s): &(&str, u64)| Flow {
        name: name.into(),
        from: "a".into(),
        to: "b".into(),
        via: Vec::new(),
        outcome: Outcome::Complete,
        received_bytes: 1000,
        duration_us: 1000,
        goodput_bit_s,
        retransmits: goodput_bit_s / 10,
        rtt_min_us: None,
        rtt_max_us: None,
        connection_mean_us: None,
    };
    let link = |queue_drops| LinkDirection {
        link: "line".into(),
        from: "a".into(),
        to: "b".into(),
        packets: 10,
        bytes: 1000,
        policer_drops: 0,
        queue_drops,
        queue_marks: 0,
        random_losses: 0,
        outage_losses: 0,
        overruns,
        largest_packet_bytes: 100,
        queue_max_bytes: 0,
        queue_max_packets: 0,
        queue_wait_mean_us: None,
        lateness: p99_us.map(|p99_us| Lateness { p50_us: 0.0, p99_us, max_us: 5000.0, queue_drain_us: None }),
    };
    Record {
        format: FORMAT,
        manifest: Manifest {
            producer: "lab".into(),
            version: "0".into(),
            command: Vec::new(),
            kernel: None,
            seed: 0,
            scenario_name: "test".into(),
            scenario: String::new(),
            started_unix_ms: 0,
            resolution_us: None,
        },
        flows: goodputs.iter().map(flow).collect(),
        paths: Vec::new(),
        pings: Vec::new(),
        links: drops.map(link).into(),
        tunnels: Vec::new(),
        stolen_percent: None,
        waited_percent: None,
        series: None,
        events: Vec::new(),
        congestion: None,
        overlay: Vec::new(),
    }
}

#[test]
fn the_median_is_the_middle_or_the_mean_of_the_middle_two() {
    let spread = |values: &[f64]| Spread::of(values.iter().copied());
    assert_eq!(spread(&[]), None);
    assert_eq!(spread(&[3.0]), Some(Spread { median: 3.0, least: 3.0, greatest: 3.0 }));
    assert_eq!(spread(&[9.0, 1.0, 2.0]), Some(Spread { median: 2.0, least: 1.0, greatest: 9.0 }));
    assert_eq!(spread(&[9.0, 1.0, 2.0, 4.0]), Some(Spread { median: 3.0, least: 1.0, greatest: 9.0 }));
}

#[test]
fn every_flow_is_summarised_apart_and_the_links_together() {
    let mut runs = [
        record(&[("one", 100), ("two", 50)], [1, 2], 0, Some(20.0)),
        record(&[("one", 300), ("two", 70)], [0, 0], 0, Some(30.0)),
        record(&[("one", 200), ("two", 60)], [4, 4], 0, Some(10.0)),
    ];
    (runs[0].stolen_percent, runs[2].stolen_percent) = (Some(9.0), Some(1.0));
    let summary = summarize(&runs);
    let spread = |least, median, greatest| Some(Spread { median, least, greatest });
    assert_eq!((summary.runs, summary.invalid, summary.overruns), (3, 0, 0));
    assert_eq!(summary.drops, spread(0.0, 3.0, 8.0));
    assert_eq!(summary.lateness_p99_us, Some(30.0));
    assert_eq!(summary.stolen_percent, Some(9.0));
    assert_eq!(summary.flows.iter().map(|flow| flow.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(summary.flows[0].goodput_bit_s, spread(100.0, 200.0, 300.0));
    assert_eq!(summary.flows[1].retransmits, spread(5.0, 6.0, 7.0));
}

#[test]
fn a_failed_flow_counts_as_failed_and_for_nothing_else() {
    let mut runs = [record(&[("one", 100)], [0, 0], 0, None), record(&[("one", 7)], [0, 0], 0, None)];
    runs[1].flows[0].outcome = Outcome::Failed { reason: "refused".into() };
    let flow = &summarize(&runs).flows[0];
    assert_eq!((flow.complete, flow.failed), (1, 1));
    assert_eq!(flow.goodput_bit_s.map(|spread| spread.least), Some(100.0));
    let flow = &summarize(&runs[1..]).flows[0];
    assert_eq!((flow.complete, flow.failed, flow.goodput_bit_s), (0, 1, None));
}

#[test]
fn runs_that_the_machine_has_shaped_are_invalid() {
    let run = |overruns, p99_us| record(&[("one", 100)], [0, 0], overruns, p99_us);
    let mut runs = [run(0, Some(999.0)), run(1, Some(10.0)), run(0, Some(1040.0)), run(0, None)];
    let summary = summarize(&runs);
    // Each record has two directions.
    assert_eq!((summary.invalid, summary.overruns, summary.lateness_p99_us), (2, 2, Some(1040.0)));
    assert_eq!(summary.why_invalid(), "2 overruns, 1.0 ms late");
    runs[0].stolen_percent = Some(12.0);
    assert_eq!(summarize(&runs).why_invalid(), "2 overruns, 1.0 ms late, hypervisor took 12 %");
    assert_eq!(summarize(&runs[..1]).why_invalid(), "");
}

#[test]
fn no_runs_give_an_empty_summary() {
    let summary = summarize(&[]);
    assert_eq!((summary.runs, summary.drops, summary.lateness_p99_us), (0, None, None));
    assert!(summary.flows.is_empty());
}
