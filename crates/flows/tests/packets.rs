//! Sites as a scenario: what is refused.

mod common;

use ekiden_flows::{Packets, Sites};
use ekiden_units::{BitRate, Bytes, Time};

const PACKETS: Packets =
    Packets { rate_most: BitRate::mbit(20), flows: 4, file: Bytes(500_000), duration: Time::secs(60) };

fn sites() -> Sites {
    common::file("sites-4.toml")
}

#[test]
fn the_same_sites_make_the_same_scenario_and_another_seed_another() {
    let text = PACKETS.scenario(&sites()).unwrap();
    assert_eq!(PACKETS.scenario(&sites()).unwrap(), text);
    assert_ne!(PACKETS.scenario(&Sites { seed: 99, ..sites() }).unwrap(), text);
    assert_eq!(text.matches("\n[flow.").count(), 4);
    assert_eq!(text.matches("kind = \"proxy\"").count(), 4);
    // A host's, and one for each pair.
    assert_eq!(text.matches("\n[link.").count(), 4 + 6);
    let rates = text.split("rate = \"").skip(1).filter_map(|rest| rest.split_once('"')?.0.parse::<BitRate>().ok());
    assert!(rates.filter(|rate| *rate > PACKETS.rate_most).all(|rate| rate == BitRate::mbit(200)));
}

#[test]
fn what_no_scenario_can_have_is_refused() {
    let refused = |packets: Packets, sites: &Sites| packets.scenario(sites).unwrap_err();
    assert!(refused(Packets { flows: 13, ..PACKETS }, &sites()).starts_with("--flows: these sites make 1 to 12 pairs"));
    assert!(refused(Packets { flows: 0, ..PACKETS }, &sites()).starts_with("--flows: "));
    let mut named = sites();
    named.sites[2].name = "new york".into();
    assert!(refused(PACKETS, &named).starts_with("site: \"new york\" cannot name a node"));
}
