//! What the profiles of TCP make of a simulated path.

use ekiden_record::{Kept, Record};
use ekiden_scenario::Scenario;
use ekiden_sim::{Options, simulate};

/// One connection over a line.
fn run(tcp: &str, line: &str, flow: &str) -> Record {
    let text = format!(
        "name = \"t\"\n[tcp]\n{tcp}\n[node.a]\n[node.b]\n\
         [link.line]\nends = [\"a\", \"b\"]\n{line}\n\
         [flow.f]\nfrom = \"a\"\nto = \"b\"\n{flow}\n"
    );
    simulate(&Scenario::parse(&text, "t.toml").unwrap(), &Options::default(), &mut Kept::default(), &mut |_| {})
        .unwrap()
}

#[test]
fn an_autotuned_window_fills_a_deep_queue_as_in_linux() {
    // Ten times what the line holds, which is 25 kB: the lab's kernel fills all 167 places and loses some 190 packets.
    let record =
        run("congestion = \"reno\"", "rate = \"10Mbit/s\"\ndelay = \"10ms\"\nqueue = \"250KB\"", "duration = \"30s\"");
    let line = record.links.iter().find(|link| link.from == "a").unwrap();
    assert!(line.queue_max_packets >= 160, "{} packets", line.queue_max_packets);
    assert!((100..300).contains(&line.queue_drops), "{} drops", line.queue_drops);
}

#[test]
fn a_send_buffer_alone_carries_itself_each_round_trip_as_in_linux() {
    // KiB each round trip of 100 ms in the lab, over 1 Gbit/s. Acknowledgements come in a train, so that a program that wrote at
    // the moment when a third is free would find two thirds held at its end.
    for (buffer, lab) in [(1, 5.4), (8, 8.2), (16, 17.1), (64, 69.0), (256, 270.0)] {
        let line = "rate = \"1Gbit/s\"\ndelay = \"50ms\"";
        let record = run(&format!("send_buffer = \"{buffer}KiB\""), line, "duration = \"10s\"");
        let carried = record.flows[0].goodput_bit_s as f64 / 8.0 / 10.0 / 1024.0;
        assert!((0.85 * lab..1.1 * lab).contains(&carried), "{buffer} KiB: {carried} KiB, {lab} in the lab");
    }
}
