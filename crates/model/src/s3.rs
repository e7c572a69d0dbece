//! S3: throughput of a window-limited transfer over a path split by proxies.

use ekiden_units::{BitRate, Bytes, Time};

/// The part of the unsplit throughput T that each of the paper's proxies (squid, dante) cost: f = 0.3·T
/// (S3, "number of legs and TCP throughput").
pub const PAPER_LOSS_PER_PROXY: f64 = 0.3;

/// S3's table "position of the split and HTTP throughput": delays before and after the proxy in ms, MB/s, and gain over
/// the first row in per cent as printed there.
pub const PAPER_SPLITS: [([u64; 2], f64, u32); 6] = [
    ([0, 0], 11.0, 100),
    ([40, 10], 15.0, 136),
    ([30, 20], 19.5, 177),
    ([25, 25], 20.8, 189),
    ([20, 30], 18.1, 165),
    ([10, 40], 13.6, 124),
];

/// The goal of S3 ("Conclusion"): at least this rate at this RTT.
pub const PAPER_GOAL: (BitRate, Time) = (BitRate::mbit(50), Time::ms(50));

/// S3's direct transfer over the Internet, and its RTT (tables "position of the proxy"): Yoron to Tokyo, 8 MiB.
pub const PAPER_DIRECT: (BitRate, Time) = (BitRate(48_200_000), Time(38_600_000));

/// T = window / RTT: the maximum rate of one connection, however fast the line is. `None` for an RTT of 0.
pub fn window_limit(window: Bytes, rtt: Time) -> Option<BitRate> {
    BitRate::of(window, rtt)
}

/// T_n = window / max(RTT_i): the slowest leg bounds the chain. `None` without legs or for RTTs of 0.
pub fn split_limit(window: Bytes, rtts: &[Time]) -> Option<BitRate> {
    window_limit(window, *rtts.iter().max()?)
}

/// What the paper's proxies gave for `legs` even legs, as a multiple of the unsplit throughput T:
/// n − 0.3·(n − 1).
pub fn paper_gain(legs: u32) -> f64 {
    let n = f64::from(legs);
    n - PAPER_LOSS_PER_PROXY * (n - 1.0).max(0.0)
}

/// The same for ekiden's proxies, whose buffers are not the limit: two legs of 25 ms carry 20 Mbit/s where twice the direct
/// connection is 21 (README, "Try it").
pub const EKIDEN_LOSS_PER_PROXY: f64 = 0.1;
