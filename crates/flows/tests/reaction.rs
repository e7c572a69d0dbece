//! How soon new streams avoid a leg that is cut, or carries a tenth.

use std::collections::BTreeMap;

use ekiden_flows::sites::Outage;
use ekiden_flows::{Opened, Policy, Sites, Spread, run};
use ekiden_overlay::choice::Why;
use ekiden_units::{Fraction, Time};

/// When the leg changes.
const AT: Time = Time::secs(1_200);
/// What a node shuns it tries again after half a minute.
const UNTIL: Time = Time::secs(1_225);

fn is_over(of: &Opened, a: usize, b: usize) -> bool {
    let path: Vec<usize> = [&[of.near][..], &of.relays, &[of.far]].concat();
    path.windows(2).any(|leg| leg == [a, b] || leg == [b, a])
}

/// The legs that most streams of the last minute before [`AT`] go over.
fn most_used(sites: &Sites) -> Vec<(usize, usize)> {
    let mut counts: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let before = run(sites, Policy::Ekiden).opened;
    for of in before.iter().filter(|of| (Time(AT.0 - Time::secs(60).0)..AT).contains(&of.at)) {
        let path: Vec<usize> = [&[of.near][..], &of.relays, &[of.far]].concat();
        path.windows(2).for_each(|leg| *counts.entry((leg[0].min(leg[1]), leg[0].max(leg[1]))).or_default() += 1);
    }
    let mut legs: Vec<_> = counts.into_iter().collect();
    legs.sort_by_key(|(leg, count)| (std::cmp::Reverse(*count), *leg));
    legs.into_iter().take(3).map(|(leg, _)| leg).collect()
}

/// For each seed and each of its legs that are used most: how many seconds after the change the last stream went over it that would have got
/// twice as much on another path.
fn reactions(left: Fraction) -> Vec<f64> {
    let mut all = Vec::new();
    for seed in 1..=6 {
        let mut sites = crate::common::busy(6, 1.0, 1_230);
        sites.seed = seed;
        for (a, b) in most_used(&sites) {
            let between = [a, b].map(|site| sites.sites[site].name.clone());
            sites.outages = vec![Outage { between, from: AT, to: sites.duration, rate: left }];
            let opened = run(&sites, Policy::Ekiden).opened;
            let bad = opened.iter().filter(|of| (AT..UNTIL).contains(&of.at) && is_over(of, a, b));
            let bad = bad.filter(|of| of.why != Some(Why::Tried) && (of.failed || of.beside.of_best() < 0.4));
            all.push(bad.map(|of| of.at.since(AT).as_secs()).fold(0.0, f64::max));
        }
    }
    println!("{left}: {all:?} {:?}", Spread::of(all.iter().copied()));
    all
}

#[test]
fn a_leg_that_is_cut_is_avoided_within_five_seconds() {
    let all = reactions(Fraction(0));
    assert!(all.len() == 18 && all.iter().all(|seconds| *seconds <= 5.0), "{all:?}");
}

/// A few of eighteen take longer.
#[test]
fn a_leg_that_carries_a_tenth_is_mostly_avoided_within_five_seconds() {
    let all = reactions(Fraction(100_000_000));
    let late = all.iter().filter(|seconds| **seconds > 5.0).count();
    assert!(late <= 2 && Spread::of(all.iter().copied()).median <= 3.0, "{all:?}");
}

#[test]
fn an_idle_leg_that_is_cut_costs_one_failed_open() {
    let mut sites = crate::common::busy(6, 0.5, 3_000);
    let [a, b] = [0, 2];
    let between = [a, b].map(|site| sites.sites[site].name.clone());
    sites.outages = vec![Outage { between, from: AT, to: sites.duration, rate: Fraction(0) }];
    let opened = run(&sites, Policy::Ekiden).opened;
    // Of each site, what it opened over the leg after its first failure was noticed, until it tries again.
    let mut sites_that_failed = 0;
    for near in 0..6 {
        let over: Vec<_> = opened.iter().filter(|of| of.at >= AT && of.near == near && is_over(of, a, b)).collect();
        let Some(first) = over.first() else { continue };
        sites_that_failed += 1;
        let later = |of: &&&Opened| (first.at + Time::secs(3)..first.at + Time::secs(30)).contains(&of.at);
        assert!(first.failed && over.iter().filter(later).count() == 0, "{near}: {over:?}");
    }
    assert!(sites_that_failed > 0);
}
