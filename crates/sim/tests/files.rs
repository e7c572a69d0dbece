//! Flows that send files one after another, and the slow start threshold with which a connection begins.

use ekiden_record::{Kept, Outcome, Record};
use ekiden_scenario::Scenario;
use ekiden_sim::{Capture, Options, simulate, simulate_captured};

/// Two hosts and a router or proxy between them, with 10 Mbit/s and 20 ms behind it.
fn scenario(kind: &str, tcp: &str, flow: &str) -> Scenario {
    let text = format!(
        "name = \"t\"\n[tcp]\nprofile = \"rfc\"\n{tcp}\n[node.a]\n[node.p]\nkind = \"{kind}\"\n[node.b]\n\
         [link.near]\nends = [\"a\", \"p\"]\nrate = \"100Mbit/s\"\n\
         [link.far]\nends = [\"p\", \"b\"]\nrate = \"10Mbit/s\"\ndelay = \"10ms\"\nqueue = \"500KB\"\n\
         [flow.f]\nfrom = \"a\"\nto = \"b\"\n{flow}\n"
    );
    Scenario::parse(&text, "t.toml").unwrap()
}

fn run(kind: &str, tcp: &str, flow: &str) -> (Record, Kept) {
    let mut kept = Kept::default();
    let record = simulate(&scenario(kind, tcp, flow), &Options::default(), &mut kept, &mut |_| {}).unwrap();
    (record, kept)
}

#[test]
fn files_follow_one_another_on_connections_of_their_own() {
    // 125 KB take 100 ms of the line, and slow start some round trips of 20 ms: ten or more in 3 s, and fewer than fit the line.
    const FILE: u64 = 125_000;
    for (kind, more) in [("router", ""), ("proxy", "\nvia = [\"p\"]")] {
        let (record, kept) = run(kind, "", &format!("duration = \"3s\"\nfile = \"125KB\"{more}"));
        let flow = &record.flows[0];
        assert_eq!((&flow.outcome, flow.duration_us), (&Outcome::Complete, 3_000_000), "{kind}");
        let last = kept.samples.iter().map(|sample| sample.connection).max().unwrap();
        assert!((10..29).contains(&last), "{kind}: {last}");
        // All files before the last are whole, and one more may begin behind the last sample.
        let whole = u64::from(last) * FILE;
        assert!((whole..=whole + 2 * FILE).contains(&flow.received_bytes), "{kind}: {last} {}", flow.received_bytes);
        // One at a time, in order, and none with more than a file.
        assert!(kept.samples.windows(2).all(|pair| pair[0].connection <= pair[1].connection), "{kind}");
        assert!(kept.samples.windows(2).all(|pair| pair[0].at_us < pair[1].at_us), "{kind}");
        assert!(kept.samples.iter().all(|sample| sample.received_bytes <= FILE), "{kind}");
        // Each begins with a slow start of its own.
        let first = |connection| kept.samples.iter().find(|sample| sample.connection == connection);
        assert!((0..last).filter_map(first).all(|sample| sample.ssthresh_segments.is_none()), "{kind}");
    }
}

#[test]
fn each_of_several_at_once_goes_on_with_a_file_of_its_own() {
    let (record, kept) = run("router", "", "duration = \"3s\"\nfile = \"125KB\"\nparallel = 3");
    assert_eq!(record.flows[0].outcome, Outcome::Complete);
    assert!(kept.samples.iter().map(|sample| sample.connection).max().unwrap() > 10);
    let mut at_once = kept.samples.chunk_by(|a, b| a.at_us == b.at_us).map(<[_]>::len);
    // The first sample may find some that are not yet connected.
    assert!(at_once.all(|number| number <= 3) && kept.samples.len() > 3 * 27, "{}", kept.samples.len());
}

#[test]
fn a_file_that_does_not_arrive_in_the_time_is_cut() {
    let (record, kept) = run("router", "", "duration = \"2s\"\nfile = \"100MB\"");
    let (unending, _) = run("router", "", "duration = \"2s\"");
    assert_eq!(record.flows[0].received_bytes, unending.flows[0].received_bytes);
    assert!(kept.samples.iter().all(|sample| sample.connection == 0));
}

#[test]
fn packets_of_every_file_are_captured() {
    let scenario = scenario("router", "", "duration = \"1s\"\nfile = \"50KB\"");
    let mut capture = Capture::new(&scenario, |_, _| Ok(Some(Box::new(std::io::sink())))).unwrap();
    let mut kept = Kept::default();
    let record = simulate_captured(&scenario, &Options::default(), &mut kept, &mut capture, &mut |_| {}).unwrap();
    capture.finish().unwrap();
    assert!(record.flows[0].received_bytes > 150_000, "{}", record.flows[0].received_bytes);
}

#[test]
fn a_connection_begins_with_the_slow_start_threshold_that_is_set() {
    let samples = |tcp: &str| run("router", tcp, "duration = \"1s\"").1.samples;
    // 1,448 bytes are in a segment with timestamps; the threshold is counted in the largest ones, of 1,460.
    let limited = samples("initial_ssthresh = \"65535B\"");
    assert!(limited.iter().all(|sample| sample.ssthresh_segments == Some(44)), "{:?}", limited[0]);
    let most = |samples: &[ekiden_record::Sample]| samples.iter().map(|sample| sample.cwnd_segments).max().unwrap();
    assert!((45..90).contains(&most(&limited)), "{}", most(&limited));
    assert!(most(&samples("")) > 200);
}
