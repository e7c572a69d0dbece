//! Proxies that let those streams go first that are likely to end soonest.

use ekiden_record::{Kept, Outcome};
use ekiden_scenario::Scenario;
use ekiden_sim::{Options, simulate};

const LOAD: &str = include_str!("../../../reproduce/s0/load/load.toml");

/// The mean time of a file, and the time until the last has arrived, in seconds.
fn mean_and_last(sizes: &str, order: &str) -> (f64, f64) {
    // One and a half times what the leg carries, in a quarter of the experiment's time.
    let set = |text: String, from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    };
    let text = set(LOAD.to_owned(), "kind = \"proxy\"", &format!("kind = \"proxy\"\norder = \"{order}\""));
    let text =
        set(text, "parallel = 200\nwithin = \"40s\"", &format!("parallel = 75\nwithin = \"10s\"\nsizes = \"{sizes}\""));
    let scenario = Scenario::parse(&text, "load.toml").unwrap();
    let record = simulate(&scenario, &Options::default(), &mut Kept::default(), &mut |_| {}).unwrap();
    let flow = &record.flows[0];
    assert_eq!((&flow.outcome, flow.received_bytes > 37_000_000), (&Outcome::Complete, true));
    (flow.connection_mean_us.unwrap() as f64 / 1e6, flow.duration_us as f64 / 1e6)
}

#[test]
fn under_load_the_mean_file_is_faster_whether_sizes_are_alike_or_not_and_little_throughput_is_lost() {
    for sizes in ["alike", "uneven"] {
        let ((even, last_even), (soonest, last)) = (mean_and_last(sizes, "even"), mean_and_last(sizes, "soonest"));
        assert!(soonest < even, "{sizes}: {soonest} and {even} s");
        assert!(last < last_even / 0.9, "{sizes}: {last} and {last_even} s");
    }
}
