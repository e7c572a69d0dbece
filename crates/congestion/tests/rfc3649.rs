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

/// a(w) in segments per round trip.
fn increase(tunables: &Tunables, cwnd: u32) -> f64 {
    f64::from(hstcp_increase(tunables, cwnd)) / 1024.0
}

/// b(w).
fn decrease(tunables: &Tunables, cwnd: u32) -> f64 {
    f64::from(hstcp_decrease(tunables, cwnd)) / 65_536.0
}

/// A row is where a(w) has grown by more than 1 since the last, cut to whole segments; b(w) is rounded.
#[test]
fn every_row_of_appendix_b_is_on_the_functions() {
    let tunables = Tunables::default();
    for (w, a, b) in APPENDIX_B {
        let (found_a, found_b) = (increase(&tunables, w), decrease(&tunables, w));
        let a = f64::from(a);
        assert!((a - 0.01..a + 1.0).contains(&found_a), "a({w}) = {found_a}, in the table {a}");
        assert!((found_b * 100.0 - f64::from(b)).abs() < 0.51, "b({w}) = {found_b}, in the table 0.{b}");
    }
    assert_eq!((increase(&tunables, 1), decrease(&tunables, 1)), (1.0, 0.5), "below Low_Window: Reno");
}

#[test]
fn between_the_rows_the_functions_are_the_formulas() {
    let (tunables, rfc) = (Tunables::default(), ResponseFunction::default());
    for w in (38..83_000).step_by(13) {
        let (a, b) = (rfc.increase(w.into()).max(1.0), rfc.decrease(w.into()));
        assert!((increase(&tunables, w) / a - 1.0).abs() < 0.005, "a({w}) = {}, not {a}", increase(&tunables, w));
        assert!((decrease(&tunables, w) / b - 1.0).abs() < 0.005, "b({w}) = {}, not {b}", decrease(&tunables, w));
    }
}

/// The examples of section 5: at 83,000 segments a(w) = 72 by the formula.
#[test]
fn formulas_of_section_5() {
    let rfc = ResponseFunction::default();
    assert!((rfc.decrease(83_000.0) - 0.1).abs() < 1e-12);
    assert!((rfc.decrease(38.0) - 0.5).abs() < 1e-12);
    assert!((70.0..73.0).contains(&rfc.increase(83_000.0)), "{}", rfc.increase(83_000.0));
    // At a loss rate of 1e-5, 1795 segments (section 5).
    assert!((rfc.loss_rate(1795.0) / 1e-5 - 1.0).abs() < 0.03, "{}", rfc.loss_rate(1795.0));
}

/// The response function of section 5: loss rate and mean window, which is 0.12 / p^0.835 segments. One segment in 1/p is lost. The
/// rows of Appendix B read as steps that begin at their window give 209 instead of 263 at 1e-4; as steps that end there, 303.
#[test]
fn mean_windows_are_those_of_the_rfc() {
    // At 38 segments it is Reno's, whose 1.2 / √p is 1.22 / √p for sure losses, and windows are whole.
    for (exponent, expected, room) in
        [(3, 38.0, 0.08), (4, 263.0, 0.03), (5, 1_795.0, 0.03), (6, 12_279.0, 0.03), (7, 83_981.0, 0.03)]
    {
        let every = 10_u64.pow(exponent);
        let mut congestion = Native::new(Algorithm::Hstcp, Arc::new(Tunables::default()));
        let mut window = Window { cwnd: expected as u32, ssthresh: 2, ..Window::default() };
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
        let mean: f64 = sum / rounds;
        assert!((mean / expected - 1.0).abs() < room, "{mean:.0} segments instead of {expected} at 1e-{exponent}");
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

    /// With other parameters too the functions are the formulas.
    #[test]
    fn functions_follow_the_formulas((settings, tunables) in responses(), part in 0.0..1.0) {
        let response = settings.response();
        let (low, high) = (f64::from(response.low_window), f64::from(response.high_window));
        let w = (low * (high / low).powf(part)).round();
        let (a, b) = (response.increase(w).max(1.0), response.decrease(w));
        let (found_a, found_b) = (increase(&tunables, w as u32), decrease(&tunables, w as u32));
        prop_assert!((found_a / a - 1.0).abs() < 0.02, "a({w}) = {found_a}, by the formula {a}");
        prop_assert!((found_b / b - 1.0).abs() < 0.01, "b({w}) = {found_b}, by the formula {b}");
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
