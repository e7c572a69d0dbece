//! A relay that all find at once, and one that says it carries more than it does.

use ekiden_flows::sites::Outage;
use ekiden_flows::{Policy, RELAYED_SPAN, Sites, Spread, run};
use ekiden_units::{BitRate, Fraction, Time};

/// Legs between all others carry a twentieth from the tenth minute on; those of the hub do not.
fn with_hub(seed: u64) -> Sites {
    let mut sites = crate::common::busy(12, 0.5, 3_600);
    sites.seed = seed;
    sites.sites.iter_mut().skip(1).for_each(|site| site.region = "edge".into());
    let between = ["edge", "edge"].map(String::from);
    sites.outages = vec![Outage { between, from: Time::secs(600), to: sites.duration, rate: Fraction(50_000_000) }];
    sites
}

/// What the hub relays in the second half hour: its spread, in Mbit/s.
fn load(sites: &Sites) -> Spread {
    let of = run(sites, Policy::Ekiden);
    let from = (1_800 / (RELAYED_SPAN.0 / 1_000_000_000)) as usize;
    let minutes = of.relayed_bit_s[0][from..].chunks(6).map(|spans| spans.iter().sum::<f64>() / 6e6);
    let load = Spread::of(minutes);
    println!(
        "seed {}: {load:?}; {} of {} relayed, {} changes an hour",
        sites.seed, of.relayed, of.streams, of.changes_an_hour
    );
    load
}

#[test]
fn a_crowd_at_one_relay_does_not_swing() {
    let mut sites = with_hub(1);
    let free = load(&sites);
    let half = Some(BitRate((free.mean * 0.5e6) as u64));
    sites.sites[0].line = half;
    let narrow = load(&sites);
    (sites.sites[0].line, sites.sites[0].relays_at_most) = (None, half);
    let told = load(&sites);
    // Half of what they would send over it: with a line of that, and where it tells how much more it may relay.
    for (of, least) in [(narrow, 0.7), (told, 0.7)] {
        assert!(of.least > of.mean * least && of.most < of.mean * 1.35, "{of:?}");
    }
    assert!(narrow.mean > 0.35 * free.mean && told.mean > 0.35 * free.mean);
}

/// Which part of the streams of other sites goes over the liar, in each ten minutes.
fn drawn(judge: bool, seed: u64) -> Vec<f64> {
    let mut sites = crate::common::busy(8, 0.3, 3_600);
    (sites.seed, sites.judge, sites.sites[0].lies) = (seed, judge, Some(BitRate::mbit(1)));
    let opened = run(&sites, Policy::Ekiden).opened;
    let part = |tens: u64| {
        let within = Time::secs(tens * 600)..Time::secs(tens * 600 + 600);
        let all: Vec<_> = opened.iter().filter(|of| within.contains(&of.at) && of.near != 0 && of.far != 0).collect();
        all.iter().filter(|of| of.relays.contains(&0)).count() as f64 / all.len() as f64
    };
    let parts: Vec<f64> = (0..6).map(part).collect();
    println!("judge {judge}, seed {seed}: {parts:.3?}");
    parts
}

#[test]
fn a_node_that_lies_draws_few_streams() {
    for seed in 1..=3 {
        let (with, without) = (drawn(true, seed), drawn(false, seed));
        assert!(without.iter().all(|part| *part > 0.08), "{without:?}");
        assert!(with[1] < 0.08 && with[2..].iter().all(|part| *part < 0.04), "{with:?}");
    }
}
