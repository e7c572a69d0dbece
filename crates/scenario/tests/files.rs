//! Flows whose connections open within a time, and whose sizes differ.

use ekiden_scenario::Scenario;
use ekiden_units::Time;

fn scenario(flow: &str) -> Result<Scenario, String> {
    let text = format!(
        "name = \"t\"\n[node.a]\n[node.b]\n[link.l]\nends = [\"a\", \"b\"]\nrate = \"1Mbit/s\"\n\
         [flow.f]\nfrom = \"a\"\nto = \"b\"\nparallel = 1000\n{flow}"
    );
    Scenario::parse(&text, "t.toml").map_err(|error| error.to_string())
}

#[test]
fn connections_open_within_the_time_and_uneven_sizes_are_together_what_alike_ones_are() {
    let scenario = scenario("bytes = \"100KB\"\nstart = \"2s\"\nwithin = \"10s\"\nsizes = \"uneven\"").unwrap();
    let (flow, seed) = (&scenario.flows["f"], scenario.seed_of("f"));
    let mut opens: Vec<Time> = (0..1000).map(|at| flow.opens_at(seed, at)).collect();
    opens.sort();
    assert!(opens[0] >= Time::secs(2) && opens[999] < Time::secs(12));
    // Evenly: the quarters of them open in the quarters of the time.
    for (place, at_ms) in [(250, 4_500.0), (500, 7_000.0), (750, 9_500.0)] {
        assert!((opens[place].as_ms() - at_ms).abs() < 500.0, "{place}: {}", opens[place]);
    }
    let mut sizes = flow.bytes(seed);
    assert!(sizes.iter().sum::<u64>().abs_diff(100_000_000) <= 1_000);
    sizes.sort_unstable();
    // The median of such a log-normal distribution is its mean divided by e^(1.5² / 2).
    assert!((20_000..50_000).contains(&sizes[500]) && sizes[999] > 1_000_000, "{} {}", sizes[500], sizes[999]);
    assert_ne!(flow.bytes(seed + 1), flow.bytes(seed));
}

#[test]
fn a_flow_that_lasts_for_a_time_has_neither() {
    for key in ["within = \"1s\"", "sizes = \"uneven\""] {
        let error = scenario(&format!("duration = \"5s\"\n{key}")).unwrap_err();
        assert!(error.starts_with("t.toml:12: ") && error.contains("and so needs 'bytes'"), "{error}");
    }
}
