//! Flows over simulated networks give what the networks allow.

use ekiden_record::{Kept, Outcome, Record};
use ekiden_scenario::Scenario;
use ekiden_sim::{Options, simulate};
use proptest::prelude::*;

/// Two hosts and two proxies in a row; `more` goes to the end of the file.
fn network(seed: u64, path: &str, tcp: &str, flow: &str) -> Scenario {
    let text = format!(
        "name = \"t\"\nseed = {seed}\n[tcp]\n{tcp}\n[node.a]\n[node.p]\nkind = \"proxy\"\nnext = [\"q\"]\n[node.q]\nkind = \"proxy\"\n[node.b]\n\
         [link.near]\nends = [\"a\", \"p\"]\nrate = \"100Mbit/s\"\n\
         [link.path]\nends = [\"p\", \"q\"]\n{path}\n\
         [link.far]\nends = [\"q\", \"b\"]\nrate = \"100Mbit/s\"\n\
         [flow.f]\nfrom = \"a\"\nto = \"b\"\n{flow}\n"
    );
    Scenario::parse(&text, "t.toml").unwrap()
}

fn run(scenario: &Scenario) -> Record {
    run_sampled(scenario).0
}

fn run_sampled(scenario: &Scenario) -> (Record, Kept) {
    let mut kept = Kept::default();
    (simulate(scenario, &Options::default(), &mut kept, &mut |_| {}).unwrap(), kept)
}

fn goodput_mbit(record: &Record) -> f64 {
    assert_eq!(record.flows[0].outcome, Outcome::Complete);
    record.flows[0].goodput_bit_s as f64 / 1e6
}

#[test]
fn a_window_per_round_trip_is_what_a_short_window_gives() {
    let scenario =
        network(1, "rate = \"50Mbit/s\"\ndelay = \"50ms\"", "receive_buffer = \"64KiB\"", "duration = \"20s\"");
    let bound = 65_536.0 * 8.0 / 0.1 / 1e6;
    let goodput = goodput_mbit(&run(&scenario));
    assert!((0.9 * bound..=bound).contains(&goodput), "{goodput} of {bound}");
}

#[test]
fn a_line_without_loss_is_filled_to_its_rate_in_payload() {
    let scenario = network(1, "rate = \"10Mbit/s\"\ndelay = \"5ms\"\nqueue = \"1MB\"", "", "duration = \"20s\"");
    let bound = 10.0 * 1448.0 / 1500.0;
    let record = run(&scenario);
    let goodput = goodput_mbit(&record);
    assert!((0.98 * bound..=bound).contains(&goodput), "{goodput} of {bound}");
    assert_eq!(record.links.iter().map(|link| link.overruns).sum::<u64>(), 0);
}

#[test]
fn a_proxy_in_the_middle_takes_a_short_window_twice_as_far() {
    let halves = |via: &str| {
        let text = format!(
            "name = \"t\"\n[tcp]\nreceive_buffer = \"64KiB\"\n[node.a]\n[node.p]\nkind = \"proxy\"\n[node.b]\n\
             [link.one]\nends = [\"a\", \"p\"]\nrate = \"100Mbit/s\"\ndelay = \"25ms\"\n\
             [link.two]\nends = [\"p\", \"b\"]\nrate = \"100Mbit/s\"\ndelay = \"25ms\"\n\
             [flow.f]\nfrom = \"a\"\nto = \"b\"\nduration = \"20s\"\n{via}\n"
        );
        goodput_mbit(&run(&Scenario::parse(&text, "t.toml").unwrap()))
    };
    let gain = halves("via = [\"p\"]") / halves("");
    assert!((1.9..2.1).contains(&gain), "{gain}");
}

#[test]
fn two_connections_of_a_flow_share_a_line() {
    let scenario =
        network(1, "rate = \"10Mbit/s\"\ndelay = \"10ms\"\nqueue = \"50KB\"", "", "bytes = \"5MB\"\nparallel = 2");
    let (record, kept) = run_sampled(&scenario);
    assert_eq!(record.flows[0].received_bytes, 10_000_000);
    let last = |connection| kept.samples.iter().rfind(|sample| sample.connection == connection).unwrap();
    let shares = [0, 1].map(|connection| last(connection).received_bytes as f64 / 1e6);
    assert!(shares.iter().all(|share| (2.0..=5.0).contains(share)), "{shares:?}");
}

#[test]
fn a_network_that_loses_everything_fails_the_flow_and_ends() {
    let scenario = network(1, "rate = \"10Mbit/s\"\nloss = \"100%\"", "", "bytes = \"1MB\"");
    let record = run(&scenario);
    assert!(matches!(&record.flows[0].outcome, Outcome::Failed { .. }), "{:?}", record.flows[0].outcome);
    assert_eq!(record.flows[0].received_bytes, 0);
}

#[test]
fn an_unknown_congestion_control_is_refused_by_name() {
    let scenario = network(1, "rate = \"10Mbit/s\"", "congestion = \"vegas\"", "bytes = \"1MB\"");
    let error = simulate(&scenario, &Options::default(), &mut Kept::default(), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("node.a.tcp.congestion") && error.contains("'vegas'"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_byte_arrives_and_the_same_seed_gives_the_same_record(
        seed in 0u64..1 << 40,
        kilobytes in 1u64..2_000,
        loss in 0u32..30_000,
        delay_ms in 0u32..100,
        queue in 2_000u32..200_000,
        sack: bool,
        profile in prop::sample::select(vec!["linux", "rfc", "ns2", "ns2_bitcp", "ns2_linux", "opnet"]),
        congestion in prop::sample::select(vec!["reno", "cubic", "bic", "bbr", "bbr3", "ekiden_hstcp", "ekiden_ghstcp", "ekiden_bic", "ekiden_far"]),
        via in prop::sample::select(vec!["", "via = [\"p\"]", "via = [\"p\", \"q\"]"]),
    ) {
        let path = format!("rate = \"20Mbit/s\"\ndelay = \"{delay_ms}ms\"\nqueue = \"{queue}B\"\nloss = \"{loss}ppm\"");
        let tcp = format!("sack = {sack}\nprofile = \"{profile}\"\ncongestion = \"{congestion}\"");
        let scenario = network(seed, &path, &tcp, &format!("bytes = \"{kilobytes}KB\"\n{via}"));
        let (record, kept) = run_sampled(&scenario);
        prop_assert_eq!(&record.flows[0].outcome, &Outcome::Complete);
        prop_assert_eq!(record.flows[0].received_bytes, kilobytes * 1000);
        prop_assert_eq!(run_sampled(&scenario), (record.clone(), kept));
        let line = 20.0 * 1460.0 / 1500.0;
        prop_assert!(record.flows[0].goodput_bit_s as f64 / 1e6 <= line);
    }
}

#[test]
fn a_flow_of_one_segment_arrives_through_proxies() {
    for profile in ["linux", "rfc"] {
        for bytes in [1, 536, 1448] {
            let tcp = format!("profile = \"{profile}\"");
            let flow = format!("bytes = \"{bytes}B\"\nvia = [\"p\", \"q\"]");
            let record = run(&network(1, "rate = \"10Mbit/s\"\ndelay = \"5ms\"", &tcp, &flow));
            assert_eq!(
                (&record.flows[0].outcome, record.flows[0].received_bytes),
                (&Outcome::Complete, bytes),
                "{profile}"
            );
        }
    }
}

#[test]
fn large_segments_do_not_keep_the_window_small() {
    let text = "name = \"t\"\n[node.a]\n[node.b]\n\
        [link.l]\nends = [\"a\", \"b\"]\nrate = \"1Gbit/s\"\ndelay = \"10ms\"\nqueue = \"5MB\"\nmtu = 9000\n\
        [flow.f]\nfrom = \"a\"\nto = \"b\"\nduration = \"5s\"\n";
    let goodput = goodput_mbit(&run(&Scenario::parse(text, "t.toml").unwrap()));
    assert!(goodput > 800.0, "{goodput}");
}

#[test]
fn ten_thousand_connections_at_once_lose_no_syn() {
    let text = "name = \"t\"\n[node.a]\n[node.b]\n[link.l]\nends = [\"a\", \"b\"]\nrate = \"10Gbit/s\"\n\
                [flow.f]\nfrom = \"a\"\nto = \"b\"\nparallel = 10000\nbytes = \"1KB\"\n";
    let record = run(&Scenario::parse(text, "t.toml").unwrap());
    let flow = &record.flows[0];
    assert_eq!((&flow.outcome, flow.retransmits, flow.received_bytes), (&Outcome::Complete, 0, 10_000_000));
    // What a host takes to open them, one every 10 µs, is all that it takes.
    assert!(flow.duration_us < 110_000, "{}", flow.duration_us);
}
