//! Sixteen sites: what the nodes' paths give beside the best, the direct ones, the shortest ones, and those of nodes that probe everything.

use std::collections::BTreeMap;
use std::path::Path;

use ekiden_flows::{Outcome, Policy, Sites, run};
use ekiden_overlay::choice::Why;
use ekiden_units::Time;

fn outcomes<const N: usize>(seed: u64, hours: u64, policies: [Policy; N]) -> [Outcome; N] {
    let mut sites = crate::common::file("sites-16.toml");
    (sites.seed, sites.duration, sites.warm_up) = (seed, Time::secs(hours * 3_600), Time::secs((hours - 1) * 3_600));
    policies.map(|policy| run(&sites, policy))
}

/// The issue asks for 0.95 and, of the worst, 0.8.
fn assert_nearly_the_best(of: &Outcome) {
    let (streams, pairs) = (of.of_best, of.of_best_by_pair);
    println!(
        "{} bulk streams: median {:.3} of the best, tenth {:.3}; {} pairs: hundredth {:.3}, worst {:.3}; beside others median {:.3}, worst \
         pair {:.3}; gain: {:?}; {:.3} changes an hour; {} tried",
        streams.count,
        streams.median,
        streams.tenth,
        pairs.count,
        pairs.hundredth,
        pairs.least,
        of.of_best_beside.median,
        of.of_best_beside_by_pair.least,
        of.gains,
        of.changes_an_hour,
        of.tried
    );
    assert!(streams.count > 4_000 && pairs.count == 240);
    assert!(streams.median >= 0.98 && of.of_best_beside.median >= 0.95, "{streams:?}");
    assert!(streams.tenth >= 0.85, "{streams:?}");
    assert!(pairs.hundredth >= 0.85 && pairs.least >= 0.8, "{pairs:?}");
    assert!(of.gains.part >= 0.6 && of.gains.median >= 1.5, "{:?}", of.gains);
    assert!(of.changes_an_hour <= 0.3, "{}", of.changes_an_hour);
    assert!(of.rtt_of_shortest.mean <= 1.05, "{:?}", of.rtt_of_shortest);
}

/// How often the path in use has changed in the hour, for each pair, class and direction.
fn changes(of: &Outcome) -> Vec<usize> {
    let mut paths: BTreeMap<_, Vec<&[usize]>> = BTreeMap::new();
    let kept = of.opened.iter().filter(|of| of.at >= Time::secs(3_600) && of.why != Some(Why::Tried));
    kept.for_each(|of| paths.entry((of.near, of.far, of.class, of.direction)).or_default().push(&of.relays));
    paths.values().map(|all| all.windows(2).filter(|two| two[0] != two[1]).count()).collect()
}

fn assert_seldom_changed(of: &Outcome) {
    let all = changes(of);
    let more = all.iter().filter(|changes| **changes > 1).count();
    println!("{} paths in use: {more} changed more than once in the hour, at most {:?}", all.len(), all.iter().max());
    assert!(all.len() > 600 && more * 20 <= all.len() && all.iter().all(|changes| *changes <= 6));
}

#[test]
fn paths_carry_nearly_what_the_best_would() {
    let [of] = outcomes(2, 2, [Policy::Ekiden]);
    assert_nearly_the_best(&of);
    assert_seldom_changed(&of);
}

#[test]
fn others_carry_less_or_cost_more() {
    let [direct, shortest, ron, own, oracle] =
        outcomes(1, 2, [Policy::Direct, Policy::ShortestRtt, Policy::Ron, Policy::Ekiden, Policy::Oracle]);
    let all = [&direct, &shortest, &ron, &own, &oracle];
    assert_nearly_the_best(&own);
    assert_seldom_changed(&own);
    // The same streams for all.
    assert!(all.iter().all(|of| of.streams == direct.streams && of.failed == 0));
    for other in [&direct, &shortest, &ron] {
        assert!(other.of_best.mean < own.of_best.mean - 0.1, "{:?}", other.policy);
    }
    assert!(oracle.of_best.mean >= 0.99 && direct.gains.part == 0.0);
    assert_eq!(direct.control_bit_s, [0.0, 0.0]);
    assert!(own.control_bit_s[0] * 20.0 < ron.control_bit_s[0], "{:?} {:?}", own.control_bit_s, ron.control_bit_s);
}

#[test]
fn the_same_seed_gives_the_same() {
    let sites = crate::common::busy(4, 0.3, 600);
    let json = || serde_json::to_string(&run(&sites, Policy::Ekiden)).unwrap();
    assert_eq!(json(), json());
}

#[test]
fn a_file_is_refused_with_the_line_that_is_wrong() {
    let good = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/sites-4.toml")).unwrap();
    let refused = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        Sites::parse(&good.replacen(from, to, 1), Path::new("x.toml")).unwrap_err().to_string()
    };
    let line = |of: &str| 1 + good.lines().position(|line| line.starts_with(of)).unwrap();
    let colour = refused("seed = 1", "sead = 1");
    assert!(colour.starts_with(&format!("x.toml:{}: unknown field `sead`", line("seed"))), "{colour}");
    let warm_up = refused("warm_up = \"2h\"", "warm_up = \"48h\"");
    assert!(warm_up.starts_with(&format!("x.toml:{}: warm_up: ", line("warm_up"))), "{warm_up}");
    assert!(refused("[\"tokyo\", ", "[\"atlantis\", ").contains("neither a site nor a region"));
    assert!(refused("name = \"delhi\"", "name = \"tokyo\"").contains("is taken"));
}

#[test]
fn every_file_of_the_project_is_accepted() {
    let counts = ["sites-4.toml", "sites-16.toml", "sites-64.toml"].map(|name| crate::common::file(name).sites.len());
    assert_eq!(counts, [4, 16, 64]);
}
