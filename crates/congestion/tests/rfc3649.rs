//! HighSpeed TCP against RFC 3649, through the native build of the headers.

use std::sync::Arc;

use ekiden_congestion::{
    Algorithm, CongestionControl, CongestionParameters, Native, ResponseFunction, Tunables, Window, hstcp_decrease,
    hstcp_increase,
};
use proptest::prelude::*;

/// Appendix B: w, a(w), b(w) in hundredths.
#[rustfmt::skip]
const APPENDIX_B: [(u32, u32, u32); 73] = [
    (38, 1, 50), (118, 2, 44), (221, 3, 41), (347, 4, 38), (495, 5, 37), (663, 6, 35), (851, 7, 34), (1058, 8, 33),
    (1284, 9, 32), (1529, 10, 31), (1793, 11, 30), (2076, 12, 29), (2378, 13, 28), (2699, 14, 28), (3039, 15, 27),
    (3399, 16, 27), (3778, 17, 26), (4177, 18, 26), (4596, 19, 25), (5036, 20, 25), (5497, 21, 24), (5979, 22, 24),
    (6483, 23, 23), (7009, 24, 23), (7558, 25, 22), (8130, 26, 22), (8726, 27, 22), (9346, 28, 21), (9991, 29, 21),
    (10661, 30, 21), (11358, 31, 20), (12082, 32, 20), (12834, 33, 20), (13614, 34, 19), (14424, 35, 19),
    (15265, 36, 19), (16137, 37, 19), (17042, 38, 18), (17981, 39, 18), (18955, 40, 18), (19965, 41, 17),
    (21013, 42, 17), (22101, 43, 17), (23230, 44, 17), (24402, 45, 16), (25618, 46, 16), (26881, 47, 16),
    (28193, 48, 16), (29557, 49, 15), (30975, 50, 15), (32450, 51, 15), (33986, 52, 15), (35586, 53, 14),
    (37253, 54, 14), (38992, 55, 14), (40808, 56, 14), (42707, 57, 13), (44694, 58, 13), (46776, 59, 13),
    (48961, 60, 13), (51258, 61, 13), (53677, 62, 12), (56230, 63, 12), (58932, 64, 12), (61799, 65, 12),
    (64851, 66, 11), (68113, 67, 11), (71617, 68, 11), (75401, 69, 10), (79517, 70, 10), (84035, 71, 10),
    (89053, 72, 10), (94717, 73, 9),
];

fn hundredths(part: u32) -> u32 {
    (f64::from(part) / 655.36).round() as u32
}

#[test]
fn every_row_of_appendix_b() {
    let tunables = Tunables::default();
    for (at, &(w, a, b)) in APPENDIX_B.iter().enumerate() {
        assert_eq!((hstcp_increase(&tunables, w), hundredths(hstcp_decrease(&tunables, w))), (a, b), "at w = {w}");
        // A row holds from its window to just below the next one's.
        let last = APPENDIX_B.get(at + 1).map_or(u32::MAX, |next| next.0 - 1);
        assert_eq!(
            (hstcp_increase(&tunables, last), hundredths(hstcp_decrease(&tunables, last))),
            (a, b),
            "to w = {last}"
        );
    }
    assert_eq!(hstcp_increase(&tunables, 1), 1, "below Low_Window: Reno");
}

/// The examples of section 5: at 83,000 segments a(w) = 72 by the formula, and the table's row below it.
#[test]
fn formulas_of_section_5() {
    let rfc = ResponseFunction::default();
    assert!((rfc.decrease(83_000.0) - 0.1).abs() < 1e-12);
    assert!((rfc.decrease(38.0) - 0.5).abs() < 1e-12);
    assert!((70.0..73.0).contains(&rfc.increase(83_000.0)), "{}", rfc.increase(83_000.0));
    // Table 3: at a loss rate of 1e-5, 263 segments a window with Reno's function, 1795 with this one (section 3).
    assert!((rfc.loss_rate(1795.0) / 1e-5 - 1.0).abs() < 0.03, "{}", rfc.loss_rate(1795.0));
}

/// Growth and loss balance: the mean window of a flow that loses one segment in 1/p(w) is w, for any parameters.
#[test]
fn mean_window_follows_the_response_function() {
    let rfc = ResponseFunction::default();
    // a(w) is whole in the table: 1 up to 117 segments, where the formula comes to 2.
    for (w, least) in [(100_u32, 0.65), (500, 0.88), (2_000, 0.95), (10_000, 0.97), (50_000, 0.97)] {
        let every = (1.0 / rfc.loss_rate(w.into())).round() as u64;
        let mut congestion = Native::new(Algorithm::Hstcp, Arc::new(Tunables::default()));
        let mut window = Window { cwnd: w, ssthresh: 2, ..Window::default() };
        let (mut sum, mut rounds, mut left) = (0.0, 0.0, every);
        for round in 0..40_000 {
            let sent = window.cwnd;
            congestion.on_ack(&mut window, sent);
            if left <= u64::from(sent) {
                window.ssthresh = congestion.on_loss(window.cwnd);
                window.cwnd = window.ssthresh;
                left += every;
            }
            left -= u64::from(sent);
            if round > 4_000 {
                sum += f64::from(window.cwnd);
                rounds += 1.0;
            }
        }
        let mean = sum / rounds;
        assert!((least..1.05).contains(&(mean / f64::from(w))), "mean window {mean:.0} at the loss rate for {w}");
    }
}

/// Parameters that fit each other, and what follows from them.
fn responses() -> impl Strategy<Value = (CongestionParameters, Tunables)> {
    let parameters = (5_u32..500, 2_000_u32..1_000_000, 1e-9..1e-6, 0.02..0.4);
    parameters.prop_filter_map("they do not fit each other", |(low, high, p, decrease): (u32, u32, f64, f64)| {
        let settings = settings(low.into(), high.into(), p, decrease);
        Some((settings, Tunables::new(&settings).ok()?))
    })
}

fn settings(low: f64, high: f64, p: f64, decrease: f64) -> CongestionParameters {
    let mut settings = CongestionParameters::default();
    for (name, value) in [("low_window", low), ("high_window", high), ("high_p", p), ("high_decrease", decrease)] {
        settings.set(&format!("hstcp.{name}"), &value.to_string()).unwrap();
    }
    settings
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// a(w) never falls and b(w) never rises with w, over all windows there are, and windows stay within bounds.
    #[test]
    fn monotone(low in any::<u32>(), step in 0..200_000_u32) {
        let tunables = Tunables::default();
        let high = low.saturating_add(step);
        prop_assert!(hstcp_increase(&tunables, low) <= hstcp_increase(&tunables, high));
        prop_assert!(hstcp_decrease(&tunables, low) >= hstcp_decrease(&tunables, high));
    }

    /// So with other parameters.
    #[test]
    fn monotone_with_any_parameters((_, tunables) in responses(), low in 1_u32..200_000, step in 0..200_000_u32) {
        prop_assert!(hstcp_increase(&tunables, low) <= hstcp_increase(&tunables, low + step));
        prop_assert!(hstcp_decrease(&tunables, low) >= hstcp_decrease(&tunables, low + step));
        prop_assert!(hstcp_decrease(&tunables, low) <= 32_768);
    }

    /// With other parameters the table still follows the formulas: within a row's growth at High_Window.
    #[test]
    fn tables_reach_high_window((settings, tunables) in responses()) {
        let response = settings.response();
        let increase = response.increase(response.high_window.into());
        let step = (increase / 100.0).max(1.0) * 2.0 + 1.0;
        let found = f64::from(hstcp_increase(&tunables, response.high_window));
        prop_assert!((found - increase).abs() <= step, "a = {found}, by the formula {increase}");
    }

    /// After a loss the window is smaller but at least 2; growth keeps to the clamp.
    #[test]
    fn windows_stay_within_bounds(
        cwnd in 1_u32..=u32::MAX, ssthresh in 2_u32..=u32::MAX, clamp in 1_u32..=u32::MAX, acked in 1_u32..100_000,
        algorithm in prop::sample::select(vec![Algorithm::Reno, Algorithm::Hstcp, Algorithm::Ghstcp, Algorithm::Bic]),
        least in any::<bool>(),
    ) {
        let mut settings = CongestionParameters::default();
        if least {
            settings.set("bic.decrease", "0.01").unwrap();
        }
        let mut congestion = Native::new(algorithm, Arc::new(Tunables::new(&settings).unwrap()));
        let mut window = Window { cwnd, ssthresh, clamp, ..Window::default() };
        congestion.on_ack(&mut window, acked);
        prop_assert!(window.cwnd >= cwnd.min(clamp) && window.cwnd <= cwnd.max(clamp));
        let after = congestion.on_loss(cwnd);
        prop_assert!(after >= 2 && (after < cwnd || cwnd <= 2));
    }
}
