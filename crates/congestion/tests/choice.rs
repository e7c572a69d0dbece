//! Which losses are taken for random.

use ekiden_congestion::choice::{Evidence, Finding, LOSSES, Look};
use proptest::prelude::*;

/// Losses at these windows, where so much waited on top of 50 ms.
fn judge(losses: &[(u32, u32)], senders: u32) -> Option<Finding> {
    let mut evidence = Evidence::default();
    let mut finding = None;
    for (number, &(window, waited_us)) in losses.iter().enumerate() {
        let retransmits = number as u32;
        let before =
            Look { cwnd: window, ssthresh: Some(2), rtt_us: 50_000 + waited_us, rtt_min_us: 50_000, retransmits };
        let now = Look { ssthresh: Some(window / 2 + 1), cwnd: window / 2 + 1, retransmits: retransmits + 1, ..before };
        finding = evidence.look(&before, &now, senders);
        assert_eq!(evidence.look(&now, &now, senders), None);
    }
    finding
}

#[test]
fn losses_on_an_empty_path_at_any_window_are_random() {
    let finding = judge(&[(60, 100), (31, 90), (80, 0), (22, 50), (45, 120)], 1).unwrap();
    assert!(finding.is_random(), "{finding}");
    assert_eq!(
        finding.to_string(),
        "at the last 5 losses 0.0 segments of 47 waited (median), windows varied by 43 %: losses are random"
    );
}

#[test]
fn an_overflow_is_not() {
    let finding = judge(&[(60, 6000), (31, 5000), (80, 7000), (22, 4000), (45, 6000)], 1).unwrap();
    assert!(!finding.is_random() && finding.to_string().ends_with("a queue overflows"), "{finding}");
}

#[test]
fn the_larger_the_window_the_more_may_wait() {
    let times = |factor: u32| [60, 31, 80, 22, 45].map(|window| (window * factor, 700)).to_vec();
    // 1.4 % of the round-trip time: 0.6 segments of 45, or 6 of 450.
    assert!(judge(&times(1), 1).unwrap().is_random());
    assert!(judge(&times(10), 1).unwrap().is_random());
    let late = [60, 31, 80, 22, 45].map(|window| (window * 10, 1500));
    assert!(!judge(&late, 1).unwrap().is_random());
}

#[test]
fn a_policer_is_not() {
    let finding = judge(&[(60, 0), (62, 0), (59, 90), (61, 0), (60, 0)], 1).unwrap();
    assert!(!finding.is_random() && finding.to_string().ends_with("the same window loses"), "{finding}");
}

#[test]
fn what_all_senders_have_waiting_counts() {
    let losses = [(20, 2000), (11, 1900), (25, 2100), (8, 2000), (14, 2000)];
    assert!(judge(&losses, 1).unwrap().is_random());
    assert!(!judge(&losses, 8).unwrap().is_random());
}

#[test]
fn fewer_losses_say_nothing() {
    assert_eq!(judge(&[(60, 100), (31, 90), (80, 0), (22, 50)], 1), None);
}

#[test]
fn slow_start_says_nothing() {
    let mut evidence = Evidence::default();
    let before = Look { cwnd: 100, ssthresh: None, rtt_us: 50_000, rtt_min_us: 50_000, retransmits: 0 };
    let below = Look { ssthresh: Some(120), ..before };
    for before in [before, below] {
        for retransmits in 1..20 {
            let now = Look { ssthresh: Some(50 + retransmits), cwnd: 50, retransmits, ..before };
            assert_eq!(evidence.look(&before, &now, 1), None);
        }
    }
}

#[test]
fn the_least_round_trip_time_is_the_paths() {
    // A connection that began while another had filled the queue does not know how long the path is.
    let mut evidence = Evidence::default();
    let first = Look { cwnd: 10, ssthresh: None, rtt_us: 50_000, rtt_min_us: 50_000, retransmits: 0 };
    assert_eq!(evidence.look(&first, &first, 1), None);
    let mut finding = None;
    for (number, window) in [60, 31, 80, 22, 45].into_iter().enumerate() {
        let retransmits = number as u32;
        let before = Look { cwnd: window, ssthresh: Some(2), rtt_us: 90_000, rtt_min_us: 90_000, retransmits };
        let now = Look { ssthresh: Some(window / 2), retransmits: retransmits + 1, ..before };
        finding = evidence.look(&before, &now, 1);
    }
    assert!(!finding.unwrap().is_random());
}

proptest! {
    /// The spread and the median, beside floating point.
    #[test]
    fn findings_are_the_formulas(losses in prop::collection::vec((2_u32..1_000_000, 0_u32..1_000_000), LOSSES)) {
        let finding = judge(&losses, 1).unwrap();
        let n = losses.len() as f64;
        let mean = losses.iter().map(|&(w, _)| f64::from(w)).sum::<f64>() / n;
        let variance = losses.iter().map(|&(w, _)| (f64::from(w) - mean).powi(2)).sum::<f64>() / n;
        let spread = 100.0 * variance.sqrt() / mean;
        prop_assert!((finding.spread as f64 - spread).abs() <= 1.01, "{} {spread}", finding.spread);
        let mut queued: Vec<f64> =
            losses.iter().map(|&(w, q)| 1e3 * f64::from(w) * f64::from(q) / (5e4 + f64::from(q))).collect();
        queued.sort_by(f64::total_cmp);
        prop_assert!((finding.queued as f64 - queued[2]).abs() <= 1.0, "{} {}", finding.queued, queued[2]);
    }

    #[test]
    fn no_numbers_are_too_large(looks in prop::collection::vec((any::<[u32; 4]>(), any::<Option<u32>>()), 2..40), senders in 1_u32..100_000) {
        let mut evidence = Evidence::default();
        let looks: Vec<Look> = looks
            .into_iter()
            .map(|([cwnd, rtt_us, rtt_min_us, retransmits], ssthresh)| Look { cwnd, ssthresh, rtt_us, rtt_min_us, retransmits })
            .collect();
        for pair in looks.windows(2) {
            evidence.look(&pair[0], &pair[1], senders);
        }
    }
}
