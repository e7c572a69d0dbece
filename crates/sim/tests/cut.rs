//! How a flow ends whose time is over.

use std::time::Duration;

use ekiden_record::{Kept, Outcome, Record};
use ekiden_scenario::Scenario;
use ekiden_sim::{Options, simulate};

/// What a second of the line brings, in bytes of payload.
const SECOND: f64 = 10e6 / 8.0 * 1448.0 / 1500.0;

/// Two hosts and a proxy between them, with 10 Mbit/s and 20 ms behind it, and these flows from `a` to `b`.
fn run(flows: &[&str]) -> (Record, Kept) {
    let mut text = "name = \"t\"\n[node.a]\n[node.p]\nkind = \"proxy\"\n[node.b]\n\
                    [link.near]\nends = [\"a\", \"p\"]\nrate = \"100Mbit/s\"\n\
                    [link.far]\nends = [\"p\", \"b\"]\nrate = \"10Mbit/s\"\ndelay = \"10ms\"\nqueue = \"50KB\"\n"
        .to_owned();
    for (number, flow) in flows.iter().enumerate() {
        text += &format!("[flow.f{number}]\nfrom = \"a\"\nto = \"b\"\n{flow}\n");
    }
    let mut kept = Kept::default();
    let scenario = Scenario::parse(&text, "t.toml").unwrap();
    (simulate(&scenario, &Options::default(), &mut kept, &mut |_| {}).unwrap(), kept)
}

#[test]
fn a_cut_flow_counts_what_has_arrived_in_its_time_and_no_more() {
    for via in ["", "\nvia = [\"p\"]", "\nparallel = 3"] {
        let (cut, of_cut) = run(&[&format!("duration = \"2s\"{via}")]);
        let (drained, of_drained) = run(&[&format!("duration = \"2s\"\nend = \"drain\"{via}")]);
        let [one, other] = [&cut, &drained].map(|record| &record.flows[0]);
        assert_eq!((&one.outcome, &other.outcome), (&Outcome::Complete, &Outcome::Complete), "{via}");
        assert_eq!(one.duration_us, 2_000_000, "{via}");
        assert!((1.8 * SECOND..=2.0 * SECOND).contains(&(one.received_bytes as f64)), "{via}: {}", one.received_bytes);
        assert_eq!(one.goodput_bit_s, one.received_bytes * 4, "{via}");
        // The buffers hold megabytes, which take seconds.
        assert!(other.duration_us > 3_000_000, "{via}: {}", other.duration_us);
        assert!(other.received_bytes as f64 > one.received_bytes as f64 + SECOND, "{via}: {}", other.received_bytes);
        // Until then both are the same.
        let before = of_drained.samples.iter().filter(|sample| sample.at_us < 2_000_000);
        assert!(of_cut.samples.len() > 15 && of_cut.samples.iter().eq(before), "{via}");
        assert!(of_cut.samples.iter().all(|sample| sample.received_bytes <= one.received_bytes), "{via}");
    }
}

#[test]
fn a_flow_that_begins_when_the_queues_behind_one_that_was_cut_are_empty_has_the_line_for_itself() {
    let alone = run(&["duration = \"2s\""]).0.flows[0].received_bytes as f64;
    for via in ["", "\nvia = [\"p\"]"] {
        let (record, _) = run(&[&format!("duration = \"3s\"{via}"), "start = \"3.2s\"\nduration = \"2s\""]);
        let [first, second] = [0, 1].map(|flow| &record.flows[flow]);
        assert_eq!((first.duration_us, second.duration_us), (3_000_000, 2_000_000));
        // The queues that the first has left take 120 and 40 ms, and its buffers nothing.
        let part = second.received_bytes as f64 / alone;
        assert!((0.9..=1.0).contains(&part), "{via}: {part}");
    }
}

#[test]
fn a_flow_that_is_cut_while_pacing_holds_a_segment_ends_and_others_go_on() {
    let (ended, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for ms in [2003, 2007, 2011] {
            let second = "duration = \"4s\"\n[tcp]\ncongestion = \"bbr\"";
            let (record, _) = run(&[&format!("duration = \"{ms}ms\""), second]);
            let _ = ended.send([record.flows[0].duration_us, record.flows[1].duration_us]);
        }
    });
    for ms in [2003, 2007, 2011] {
        let durations = result.recv_timeout(Duration::from_secs(120)).expect("time goes on");
        assert_eq!(durations, [ms * 1000, 4_000_000]);
    }
}

#[test]
fn a_flow_with_bytes_that_ends_before_another_is_cut_is_whole() {
    let (record, _) = run(&["bytes = \"300KB\"", "duration = \"4s\""]);
    assert_eq!((&record.flows[0].outcome, record.flows[0].received_bytes), (&Outcome::Complete, 300_000));
    assert_eq!(record.flows[1].duration_us, 4_000_000);
}

#[test]
fn a_flow_without_a_connection_when_its_time_is_over_has_failed() {
    let (record, _) = run(&["duration = \"5ms\""]);
    let Outcome::Failed { reason } = &record.flows[0].outcome else { panic!("{:?}", record.flows[0]) };
    assert_eq!(reason, "no connection was established before the flow's time was over");
    assert_eq!(record.flows[0].received_bytes, 0);
}

#[test]
fn a_connection_that_is_not_established_in_time_does_not_fail_the_others() {
    // So many that SYNs are lost, and sent again after seconds.
    let (record, kept) = run(&["duration = \"2s\"\nparallel = 400"]);
    assert_eq!(record.flows[0].outcome, Outcome::Complete);
    assert!(record.links.iter().any(|link| link.queue_drops > 100), "{:?}", record.links);
    assert!(kept.samples.len() > 400);
}

#[test]
fn a_flow_of_which_nothing_has_arrived_when_its_time_is_over_has_failed() {
    // The proxy answers; what is behind it takes longer.
    let (record, _) = run(&["duration = \"5ms\"\nvia = [\"p\"]"]);
    let Outcome::Failed { reason } = &record.flows[0].outcome else { panic!("{:?}", record.flows[0]) };
    assert_eq!(reason, "nothing arrived before the flow's time was over");
}

#[test]
fn without_a_measured_round_trip_there_is_no_largest_one() {
    // Two samples, the first round trip, and another sample.
    let largest = |duration: &str| {
        let scenario = "name = \"t\"\n[node.a]\n[node.b]\n[link.l]\nends = [\"a\", \"b\"]\nrate = \"10Mbit/s\"\ndelay = \"150ms\"\n";
        let text = format!("{scenario}[flow.f]\nfrom = \"a\"\nto = \"b\"\nduration = \"{duration}\"\n");
        let scenario = Scenario::parse(&text, "t.toml").unwrap();
        let record = simulate(&scenario, &Options::default(), &mut Kept::default(), &mut |_| {}).unwrap();
        (record.flows[0].rtt_min_us, record.flows[0].rtt_max_us)
    };
    assert_eq!(largest("250ms"), (None, None));
    let (least, most) = largest("450ms");
    assert!(least.is_some_and(|us| us >= 300_000) && most >= least, "{least:?} {most:?}");
}
