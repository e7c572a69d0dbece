//! Timers that are looked at when a coarse clock ticks, as OPNET's are, and how often the round-trip time is measured.

use crate::common::peer::{Bench, NONE, at, plain};
use ekiden_tcp::TcpSettings;
use ekiden_units::Time;

#[test]
fn a_timeout_waits_for_the_next_tick() {
    // A second after 1.1 s is 2.1 s; the clock ticks every half second.
    let mut bench = Bench::established(&plain(TcpSettings::opnet()));
    assert_eq!(bench.now, Time::ms(1100));
    bench.end.write(1000);
    assert_eq!(bench.full_sent(), [1]);
    let waits = [(); 3].map(|()| {
        let waited = bench.wait();
        assert_eq!(bench.full_sent(), [1]);
        waited
    });
    assert_eq!(waits, [1400, 2000, 4000].map(Time::ms));
}

#[test]
fn a_delayed_acknowledgement_goes_at_the_next_tick() {
    let settings = TcpSettings { ack_every: 2, ..plain(TcpSettings::opnet()) };
    let mut bench = Bench::established(&settings);
    for (at, waited) in [(1, 100), (1001, 200)] {
        bench.data(at, 1, 1000, NONE);
        assert_eq!(bench.sent(), []);
        assert_eq!(bench.wait(), Time::ms(waited));
        assert_eq!(bench.sent().len(), 1);
    }
    // Of two segments the second is acknowledged at once, whatever the clock shows.
    bench.data(2001, 1, 1000, NONE);
    bench.data(3001, 1, 1000, NONE);
    assert_eq!(bench.sent().len(), 1);
}

#[test]
fn one_segment_per_window_is_measured() {
    // Ten segments, acknowledged 100, 110, ... 190 ms after they were sent.
    let measured = |per_window| {
        let mut bench = Bench::established(&plain(TcpSettings { rtt_per_window: per_window, ..TcpSettings::rfc() }));
        bench.end.write(20_000);
        assert_eq!(bench.full_sent().len(), 10);
        bench.pass(Time::ms(90));
        for number in 2..=11 {
            bench.pass(Time::ms(10));
            bench.ack(at(number), &[]);
        }
        bench.end.info().rtt.unwrap()
    };
    // The SYN's and the first segment's are both 100 ms; nothing after that counts until the next window.
    assert_eq!(measured(true), Time::ms(100));
    assert!(measured(false) > Time::ms(130));
}
