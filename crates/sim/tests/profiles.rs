//! What the profiles of TCP make of a simulated path.

use ekiden_record::{Kept, Record};
use ekiden_scenario::Scenario;
use ekiden_sim::{Options, simulate};

/// One connection over a line of 10 Mbit/s.
fn run(tcp: &str, line: &str, flow: &str) -> Record {
    let text = format!(
        "name = \"t\"\n[tcp]\n{tcp}\n[node.a]\n[node.b]\n\
         [link.line]\nends = [\"a\", \"b\"]\nrate = \"10Mbit/s\"\n{line}\n\
         [flow.f]\nfrom = \"a\"\nto = \"b\"\n{flow}\n"
    );
    simulate(&Scenario::parse(&text, "t.toml").unwrap(), &Options::default(), &mut Kept::default(), &mut |_| {})
        .unwrap()
}

#[test]
fn an_autotuned_window_fills_a_deep_queue_as_in_linux() {
    // Ten times what the line holds, which is 25 kB: the lab's kernel fills all 167 places and loses some 190 packets.
    let record = run("congestion = \"reno\"", "delay = \"10ms\"\nqueue = \"250KB\"", "duration = \"30s\"");
    let line = record.links.iter().find(|link| link.from == "a").unwrap();
    assert!(line.queue_max_packets >= 160, "{} packets", line.queue_max_packets);
    assert!((100..300).contains(&line.queue_drops), "{} drops", line.queue_drops);
}
