//! The models beside figures that their sources print.

use ekiden_congestion::ResponseFunction;
use ekiden_model::chain::{Control, Leg, Limit, throughput};
use ekiden_model::loss::{Acks, cubic_window, hstcp_window, mathis_window, padhye_segments_s, rate};
use ekiden_model::s1::{Harm, Tunnel};
use ekiden_model::slow_start::Transfer;
use ekiden_model::{s2, s3, s4};
use ekiden_units::{BitRate, Bytes, Time};

fn near(value: f64, expected: f64, part: f64) {
    assert!((value / expected - 1.0).abs() <= part, "{value} is not within {part} of {expected}");
}

/// RFC 9438, table 1 (RTT of 100 ms): loss rate, and the mean windows of AIMD, HSTCP and CUBIC with C = 0.4.
const RFC_9438: [(f64, f64, f64, f64); 6] = [
    (1e-2, 12.0, 12.0, 12.0),
    (1e-3, 38.0, 38.0, 38.0),
    (1e-4, 120.0, 263.0, 187.0),
    (1e-5, 379.0, 1795.0, 1054.0),
    (1e-6, 1200.0, 12280.0, 5926.0),
    (1e-7, 3795.0, 83981.0, 33325.0),
];

#[test]
fn mean_windows_are_those_of_rfc_9438() {
    for (p, reno, hstcp, cubic) in RFC_9438 {
        near(mathis_window(p, Acks::Each).unwrap(), reno, 0.04);
        near(cubic_window(p, Time::ms(100)).unwrap(), cubic, 0.04);
        // The RFC's own program and its rounded formula differ by so much.
        near(hstcp_window(p, &ResponseFunction::default()).unwrap(), hstcp, 0.06);
    }
    // With delayed ACKs Reno grows half as fast.
    near(mathis_window(1e-3, Acks::EverySecond).unwrap(), 38.7 / 2f64.sqrt(), 0.01);
}

#[test]
fn hstcp_is_reno_below_its_low_window_and_ends_at_its_high_one() {
    let response = ResponseFunction::default();
    near(hstcp_window(0.04, &response).unwrap(), 6.0, 1e-9);
    assert_eq!(hstcp_window(1e-9, &response), Some(83_000.0));
    for window in [40.0, 1_000.0, 80_000.0] {
        near(hstcp_window(response.loss_rate(window), &response).unwrap(), window, 0.01);
    }
}

#[test]
fn timeouts_cost_where_loss_is_frequent_and_nothing_where_it_is_rare() {
    let padhye = |p| padhye_segments_s(p, Time::ms(100), Time::secs(1), 1e9, Acks::EverySecond).unwrap();
    let mathis = |p| mathis_window(p, Acks::EverySecond).unwrap() / 0.1;
    near(padhye(1e-5), mathis(1e-5), 0.01);
    // By hand: 1 / (0.1 · √(4p/3) + 3 · √(3p/4) · p · (1 + 32p²)).
    near(padhye(0.01), 70.66, 0.001);
    assert!(padhye(0.1) < mathis(0.1) / 3.0);
    assert_eq!(padhye_segments_s(1e-9, Time::ms(100), Time::secs(1), 44.0, Acks::EverySecond), Some(440.0));
}

#[test]
fn what_is_no_rate_of_loss_has_no_window() {
    for p in [0.0, -0.1, 1.1, f64::NAN] {
        assert_eq!(mathis_window(p, Acks::Each), None);
        assert_eq!(cubic_window(p, Time::ms(10)), None);
        assert_eq!(hstcp_window(p, &ResponseFunction::default()), None);
        assert_eq!(padhye_segments_s(p, Time::ms(10), Time::secs(1), 1.0, Acks::Each), None);
    }
    assert_eq!(rate(10.0, Bytes(1000), Time(0)), None);
}

/// With 40 bytes of header and 27 ms of other delay. Table 1 is read from a figure.
#[test]
fn s4s_factor_is_as_measured_with_one_other_delay() {
    let path = |one_way: u64| s4::Path {
        line: Time::ms(2 * one_way),
        other: Time::ms(27),
        data: Bytes(1000),
        packet: Bytes(1040),
    };
    for (one_way, measured) in s4::PAPER_K {
        let k = path(one_way).k().unwrap();
        assert!((k - measured).abs() < 0.035, "{one_way} ms: {k} and {measured}");
        // T = k · 8B / Dt, whichever way it is computed.
        let (window, line) = (Bytes(48_000), Time::ms(2 * one_way));
        let direct = path(one_way).throughput(window).unwrap();
        near(direct.0 as f64, k * BitRate::of(window, line).unwrap().0 as f64, 1e-5);
        let other = s4::Path::other_from(k, line, Bytes(1000), Bytes(1040)).unwrap();
        near(other.as_ms(), 27.0, 1e-6);
    }
    let (bound, window, one_way) = s4::PAPER_BOUND;
    assert_eq!(BitRate::of(window, Time(2 * one_way.0)), Some(bound));
    assert_eq!(s4::Path::other_from(0.99, Time::ms(40), Bytes(1000), Bytes(1040)), None, "more than the headers leave");
    assert_eq!(s4::Path { packet: Bytes(0), ..path(20) }.k(), None);
    // Without delay on the line other delay is the limit.
    let near_by = s4::Path { line: Time(0), ..path(20) };
    near(near_by.throughput(Bytes(4096)).unwrap().0 as f64, 4096.0 * 8.0 / 0.027 / 1.04, 1e-4);
}

fn leg(rtt_ms: u64) -> Leg {
    Leg {
        rtt: Time::ms(rtt_ms),
        rate: BitRate::mbit(100),
        window: Bytes::kib(64),
        segment: Bytes(1448),
        loss: 0.0,
        control: Control::Reno(Acks::EverySecond),
    }
}

#[test]
fn the_slowest_leg_bounds_a_chain_and_says_by_what() {
    let (direct, _, limit) = throughput(&[leg(50)]).unwrap();
    assert_eq!((direct, limit), (s3::window_limit(Bytes::kib(64), Time::ms(50)).unwrap(), Limit::Window));
    let (split, slowest, _) = throughput(&[leg(20), leg(30)]).unwrap();
    assert_eq!((Some(split), slowest), (s3::split_limit(Bytes::kib(64), &[Time::ms(20), Time::ms(30)]), 1));
    let slow = Leg { rate: BitRate::mbit(2), ..leg(10) };
    assert_eq!(throughput(&[leg(20), slow]), Some((BitRate::mbit(2), 1, Limit::Line)));
    assert_eq!((throughput(&[]), throughput(&[leg(0)])), (None, None));
    assert_eq!(slow.window_for(BitRate::mbit(2)), Bytes(2500));
}

/// A radio link of 20 ms and 1 % at the end of 200 ms: behind a proxy its losses are made good in 20 ms.
#[test]
fn a_lossy_leg_of_its_own_recovers_in_its_own_round_trip() {
    let wide = |rtt, loss| Leg { window: Bytes::mib(16), loss, ..leg(rtt) };
    let (direct, _, limit) = throughput(&[wide(220, 0.01)]).unwrap();
    let (split, slowest, _) = throughput(&[wide(200, 0.0), wide(20, 0.01)]).unwrap();
    assert_eq!((limit, slowest), (Limit::Loss, 1));
    near(split.0 as f64 / direct.0 as f64, 11.0, 0.01);
    let hstcp = |loss| Leg { control: Control::Hstcp, ..wide(220, loss) };
    assert!(hstcp(1e-5).throughput().unwrap().0 > wide(220, 1e-5).throughput().unwrap().0);
    assert!(Leg { control: Control::Cubic, ..wide(220, 1e-4) }.loss_window() > wide(220, 1e-4).loss_window());
}

#[test]
fn short_transfers_last_as_many_round_trips_as_slow_start_needs() {
    let transfer = |segments: u64, acks| Transfer {
        bytes: Bytes(segments * 1448),
        segment: Bytes(1448),
        initial_window: 10.0,
        acks,
        rtt: Time::ms(100),
        rate: BitRate::mbit(100_000),
    };
    let rounds = |segments, acks| (transfer(segments, acks).time().unwrap().as_secs() / 0.1 - 1.5).round();
    // 10, 20, 40 …
    for (segments, expected) in [(1, 0.0), (10, 0.0), (11, 1.0), (30, 1.0), (31, 2.0), (70, 2.0), (71, 3.0)] {
        assert_eq!(rounds(segments, Acks::Each), expected, "{segments}");
    }
    assert!(rounds(1000, Acks::EverySecond) > rounds(1000, Acks::Each));
    // A long one goes by the rate.
    let long = Transfer { rate: BitRate::mbit(10), ..transfer(100_000, Acks::Each) };
    near(long.time().unwrap().as_secs(), 100_000.0 * 1448.0 * 8.0 / 1e7, 0.01);
    assert_eq!(Transfer { segment: Bytes(0), ..long }.time(), None);
}

/// S1's network: 10 Mbit/s, tau_b of 100 ms, sockets of 6,400 KB and a queue of 10 MB.
#[test]
fn a_tunnel_is_harmed_as_in_s1() {
    let plain = Tunnel {
        rate: BitRate::mbit(10),
        rtt: Time::ms(200),
        whole_rtt: Time::ms(220),
        buffer: Bytes(6_400_000),
        inner_buffer: Bytes(6_400_000),
        queue: Bytes(10_000_000),
        data: Bytes(u64::MAX),
        sack: false,
        inner_rto_min: Time::ms(200),
    };
    assert_eq!(plain.harms(), [Harm::LateForTimer]);
    assert_eq!(Tunnel { sack: true, ..plain }.harms(), []);
    // A long way to the tunnel: the timer waits.
    assert_eq!(Tunnel { whole_rtt: Time::ms(600), ..plain }.harms(), []);
    let small = Tunnel { buffer: Bytes(64_000), inner_buffer: Bytes(64_000), sack: true, ..plain };
    assert_eq!(small.harms(), [Harm::TunnelBuffer, Harm::InnerBuffer]);
    let short = Tunnel { queue: Bytes(1_000_000), buffer: Bytes(640_000), sack: true, ..plain };
    assert_eq!(short.harms(), [Harm::Queue]);
    assert_eq!(Tunnel { data: Bytes(1_000_000), ..short }.harms(), [], "a short file fits");
}

#[test]
fn a_gateway_can_help_where_a_slow_start_overshoots() {
    // S2's first row: 7.5 Gbit/s are left, 400 ms, a queue of 250 MB, windows without a bound.
    let row = s2::Group {
        streams: 32,
        window: Bytes::mib(1024),
        bdp: Bytes(375_000_000),
        queue: Bytes(250_000_000),
        ends_in_time: false,
    };
    assert!(row.can_help() && row.overshoot() == Bytes(625_000_000));
    assert!(!s2::Group { ends_in_time: true, ..row }.can_help());
    assert!(!s2::Group { window: Bytes(625_000_000 / 32), ..row }.can_help(), "they fit");
    assert!(!s2::Group { queue: Bytes(40_000_000), ..row }.can_help(), "no queue is seen");
}
