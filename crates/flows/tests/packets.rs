//! Sites as a scenario: what is refused.

use ekiden_flows::{Packets, Sites};
use ekiden_units::{BitRate, Bytes, Time};

const PACKETS: Packets =
    Packets { rate_most: BitRate::mbit(20), flows: 4, file: Bytes(500_000), duration: Time::secs(60), begin: Time(0) };

fn sites() -> Sites {
    crate::common::file("sites-4.toml")
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
fn outages_and_rush_hours_become_schedules_of_links() {
    assert!(!PACKETS.scenario(&sites()).unwrap().contains("changes"), "nothing happens in the first minute");
    // The cable between Tokyo and Frankfurt is cut from 8 h to 9 h.
    let begin = Time(Time::secs(8 * 3_600 - 20).0);
    let text = Packets { begin, ..PACKETS }.scenario(&sites()).unwrap();
    assert_eq!(text.matches("outages = [{ at = \"20s\", lasts = \"41s\" }]").count(), 2, "in both directions");
    let begin = Time(Time::secs(9 * 3_600 - 20).0);
    let text = Packets { begin, ..PACKETS }.scenario(&sites()).unwrap();
    assert_eq!(text.matches("outages = [{ at = \"0s\", lasts = \"20s\" }]").count(), 2);
    // At 15 h it is evening in Delhi: by the sun 20:09.
    let begin = Time(Time::secs(15 * 3_600).0);
    let text = Packets { begin, ..PACKETS }.scenario(&sites()).unwrap();
    assert_eq!(text.matches("changes = [{ at = \"0s\", rate = \"4Mbit/s\" }]").count(), 1, "a fifth of 20 Mbit/s");
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
