//! Links: what is the same in both directions and what differs, and their schedules.

use ekiden_scenario::{Change, Discipline, Outage, Policer, Queue, Scenario, Sweep};
use ekiden_units::{BitRate, Bytes, Fraction, Time};

fn text(link: &str) -> String {
    format!(
        "name = 'link'\n[node.a]\n[node.b]\n[flow.f]\nfrom = 'a'\nto = 'b'\nbytes = '1MB'\n[link.line]\nends = ['a', 'b']\n{link}"
    )
}

fn parse(link: &str) -> Result<Scenario, String> {
    Scenario::parse(&text(link), "test.toml").map_err(|error| error.to_string())
}

#[test]
fn a_key_of_one_direction_goes_before_that_of_both() {
    let scenario = parse(
        "rate = '50Mbit/s'\ndelay = '8ms'\nmtu = 1400\npolicer.rate = '9Mbit/s'\nback.policer.rate = '40Mbit/s'\n\
         forth = { rate = '10Mbit/s', queue = '100KB' }",
    )
    .unwrap();
    let line = &scenario.links["line"];
    let rates = |rate| Some(Policer { rate: BitRate::mbit(rate), burst: Bytes::kib(64) });
    assert_eq!((line.forth.rate, line.back.rate), (BitRate::mbit(10), BitRate::mbit(50)));
    assert_eq!((line.forth.queue, line.back.queue), (Queue::Bytes(Bytes(100_000)), Queue::Packets(1000)));
    assert_eq!((line.forth.delay, line.back.delay, line.mtu()), (Time::ms(8), Time::ms(8), 1400));
    assert_eq!((line.forth.policer, line.back.policer), (rates(9), rates(40)));
    assert_eq!((line.forth.carried(), line.back.carried()), (BitRate::mbit(9), BitRate::mbit(40)));
    assert_eq!(Scenario::parse(&scenario.to_toml(), "").unwrap(), scenario, "{}", scenario.to_toml());
    // What both give needs no rate for both.
    let apart = parse("forth.rate = '1Mbit/s'\nback.rate = '2Mbit/s'\nforth.policer.rate = '1Mbit/s'").unwrap();
    assert_eq!(apart.links["line"].back.policer, None);
    assert_eq!(Scenario::parse(&apart.to_toml(), "").unwrap(), apart);
    let alike = parse("rate = '1Mbit/s'\nback.rate = '1Mbit/s'").unwrap();
    assert!(!alike.to_toml().contains("back"), "{}", alike.to_toml());
}

#[test]
fn round_trips_and_paths_go_by_the_delays_of_each_direction() {
    let scenario = parse("rate = '1Mbit/s'\nforth.delay = '10ms'\nback.delay = '3ms'").unwrap();
    assert_eq!(scenario.base_rtt("a", "b"), Some(Time::ms(13)));
    let delay = |from, to| scenario.path(from, to).unwrap()[0].direction().delay;
    assert_eq!((delay("a", "b"), delay("b", "a")), (Time::ms(10), Time::ms(3)));
}

#[test]
fn a_schedule_arrives_and_is_written_again() {
    let scenario = parse(
        "rate = '1Mbit/s'\ndelay = '9ms'\nreorder = '2%'\nreorder_by = '4ms'\n\
         changes = [{ at = '1s', rate = '2Mbit/s' }, { at = '2500ms', delay = '5ms' }]\noutages = [{ at = '3s', lasts = '500ms' }]",
    )
    .unwrap();
    let line = &scenario.links["line"].forth;
    let changes = [
        Change { at: Time::secs(1), rate: Some(BitRate::mbit(2)), delay: None },
        Change { at: Time::ms(2500), rate: None, delay: Some(Time::ms(5)) },
    ];
    assert_eq!((line.changes.as_slice(), line.least_delay()), (&changes[..], Time::ms(5)));
    assert_eq!(line.outages, [Outage { at: Time::secs(3), lasts: Time::ms(500) }]);
    assert_eq!((line.reorder, line.reorder_by), (Fraction(20_000_000), Some(Time::ms(4))));
    assert_eq!(Scenario::parse(&scenario.to_toml(), "").unwrap(), scenario);
}

#[test]
fn keys_of_a_direction_can_be_set() {
    let sweep = Sweep::parse(
        &["link.line.back.rate=3Mbit/s", "link.line.forth.policer.rate=1Mbit/s", "link.line.back.loss_burst=5"]
            .map(String::from),
    )
    .unwrap();
    let line = Scenario::parse_with(&text("rate = '9Mbit/s'\ndiscipline = 'red'"), "", &sweep.points()[0])
        .unwrap()
        .links["line"]
        .clone();
    assert_eq!((line.forth.rate, line.back.rate), (BitRate::mbit(9), BitRate::mbit(3)));
    assert_eq!((line.forth.policer.unwrap().rate, line.back.policer), (BitRate::mbit(1), None));
    assert_eq!((line.back.loss_burst, line.back.discipline), (5, Discipline::Red));
    for table in ["link.line.back", "link.line.forth.policer"] {
        let sweep = Sweep::parse(&[format!("{table}=1")]).unwrap();
        let error = Scenario::parse_with(&text("rate = '9Mbit/s'"), "", &sweep.points()[0]).unwrap_err().to_string();
        assert!(error.contains("is a table"), "{error}");
    }
}

#[test]
fn what_cannot_be_is_refused_with_its_line() {
    for (link, line, said) in [
        ("delay = '1ms'", 8, "link.line: missing field `rate`: it needs rate = …, or forth.rate = …"),
        ("forth.rate = '1Mbit/s'", 8, "it needs rate = …, or back.rate = …"),
        ("rate = '1Mbit/s'\nback.mtu = 1500", 11, "unknown field `mtu` in link.line.back"),
        ("rate = '1Mbit/s'\nback.rate = '0bit/s'", 11, "is out of range: 1kbit/s to 1Tbit/s"),
        ("rate = '1Mbit/s'\nreorder = '1%'", 11, "reorder needs reorder_by"),
        ("rate = '1Mbit/s'\nreorder_by = '0'", 11, "reorder_by = 0s is out of range: 1us to 60s"),
        ("rate = '1Mbit/s'\nchanges = [{ at = '1s' }]", 11, "nothing changes here"),
        ("rate = '1Mbit/s'\nchanges = [{ rate = '1Mbit/s' }]", 11, "missing field `at`"),
        (
            "rate = '1Mbit/s'\nchanges = [\n{ at = '2s', rate = '1Mbit/s' },\n{ at = '2s', delay = '1s' }]",
            13,
            "2s comes after 2s",
        ),
        ("rate = '1Mbit/s'\nchanges = [{ at = '1s', rate = '2Tbit/s' }]", 11, "changes.rate"),
        ("rate = '1Mbit/s'\nchanges = [{ at = '25h', delay = '2s' }]", 11, "changes.at = 90000s is out of range"),
        ("rate = '1Mbit/s'\noutages = [{ at = '1s', lasts = '0' }]", 11, "outages.lasts = 0s is out of range"),
        (
            "rate = '1Mbit/s'\noutages = [{ at = '1s', lasts = '2s' }, { at = '3s', lasts = '2s' }]",
            11,
            "3s is not after the end of the one before, at 3s",
        ),
    ] {
        let error = parse(link).unwrap_err();
        assert!(error.contains(&format!("test.toml:{line}: ")) && error.contains(said), "{link}\n{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}
