//! BIC as its paper describes it (Xu, Harfoush, Rhee, INFOCOM 2004), and Reno.

use std::sync::Arc;

use ekiden_congestion::{Algorithm, CongestionControl, CongestionParameters, Native, Tunables, Window};

fn grown(congestion: &mut Native, window: &mut Window) -> u32 {
    let before = window.cwnd;
    congestion.on_ack(window, before);
    window.cwnd - before
}

#[test]
fn additive_then_binary_then_probing() {
    let mut bic = Native::new(Algorithm::Bic, Arc::new(Tunables::default()));
    let mut window = Window { cwnd: 1_000, ssthresh: 2, ..Window::default() };
    window.ssthresh = bic.on_loss(window.cwnd);
    window.cwnd = window.ssthresh;
    assert_eq!(window.cwnd, 875, "beta = 0.125");
    // 125 segments to go: more than 2 * S_max, so S_max a round trip, then half of what is left.
    let steps: Vec<u32> = (0..8).map(|_| grown(&mut bic, &mut window)).collect();
    assert_eq!(&steps[..5], [32, 32, 30, 15, 8], "{steps:?}");
    let mut rounds = 0;
    while window.cwnd < 1_000 {
        grown(&mut bic, &mut window);
        rounds += 1;
        assert!(rounds < 500, "stands still at {}", window.cwnd);
    }
    // Beyond the old maximum: 1, then twice as fast at every goal, up to S_max.
    let steps: Vec<u32> = (0..8).map(|_| grown(&mut bic, &mut window)).collect();
    assert_eq!(steps, [1, 2, 4, 8, 16, 32, 32, 32]);
}

/// The last segment takes round trips by halves, down to S_min a round trip.
#[test]
fn the_search_slows_down_to_s_min() {
    let rounds = |s_min: &str| {
        let mut settings = CongestionParameters::default();
        settings.set("bic.s_min", s_min).unwrap();
        let mut bic = Native::new(Algorithm::Bic, Arc::new(Tunables::new(&settings).unwrap()));
        bic.on_loss(1_000);
        let mut window = Window { cwnd: 999, ssthresh: 2, ..Window::default() };
        let mut rounds = 0;
        while window.cwnd < 1_000 {
            grown(&mut bic, &mut window);
            rounds += 1;
        }
        rounds
    };
    // 1/2, 1/4 … 1/128 of a segment, and then 1/128 once more.
    assert!((7..=9).contains(&rounds("0.01")), "{}", rounds("0.01"));
    assert_eq!(rounds("1"), 1);
}

#[test]
fn fast_convergence_gives_room() {
    let after_second_loss_at = |cwnd: u32, fast: &str| {
        let mut settings = CongestionParameters::default();
        settings.set("bic.fast_convergence", fast).unwrap();
        let mut bic = Native::new(Algorithm::Bic, Arc::new(Tunables::new(&settings).unwrap()));
        bic.on_loss(1_000);
        let mut window = Window { cwnd, ssthresh: 2, ..Window::default() };
        window.cwnd = bic.on_loss(cwnd);
        grown(&mut bic, &mut window)
    };
    // 800 → 700: the maximum is 750 with fast convergence, 800 without.
    assert_eq!(after_second_loss_at(800, "1"), 25);
    assert_eq!(after_second_loss_at(800, "0"), 32);
}

/// The pseudo-code begins with a default maximum that no window reaches.
#[test]
fn before_the_first_loss_the_window_grows_by_s_max() {
    let mut bic = Native::new(Algorithm::Bic, Arc::new(Tunables::default()));
    let mut window = Window { cwnd: 1_000, ssthresh: 2, ..Window::default() };
    assert_eq!([(); 3].map(|()| grown(&mut bic, &mut window)), [32, 32, 32]);
}

/// Below low_window the pseudo-code halves the window and leaves the rest alone.
#[test]
fn a_loss_below_low_window_leaves_the_maximum() {
    let mut bic = Native::new(Algorithm::Bic, Arc::new(Tunables::default()));
    bic.on_loss(1_000);
    assert_eq!(bic.on_loss(10), 5);
    let mut window = Window { cwnd: 990, ssthresh: 2, ..Window::default() };
    assert_eq!(grown(&mut bic, &mut window), 5, "half the way to 1000");
}

/// Section IV: with many losses between which additive growth rules, the window is that of AIMD with S_max and beta,
/// √(S_max (2 − beta) / (2 beta p)) segments.
#[test]
fn mean_windows_are_those_of_the_papers_response_function() {
    let mut settings = CongestionParameters::default();
    settings.set("bic.fast_convergence", "0").unwrap();
    for exponent in [6, 7] {
        let every = 10_u64.pow(exponent);
        let expected = (32.0 * 1.875 / 0.25 * every as f64).sqrt();
        let mut bic = Native::new(Algorithm::Bic, Arc::new(Tunables::new(&settings).unwrap()));
        let mut window = Window { cwnd: expected as u32, ssthresh: 2, ..Window::default() };
        let (mut sum, mut rounds, mut left) = (0.0, 0.0, every);
        for round in 0..20_000 {
            let sent = window.cwnd;
            grown(&mut bic, &mut window);
            if left <= u64::from(sent) {
                window.cwnd = bic.on_loss(window.cwnd);
                left += every;
            }
            left -= u64::from(sent);
            if round > 4_000 {
                sum += f64::from(window.cwnd);
                rounds += 1.0;
            }
        }
        let mean: f64 = sum / rounds;
        assert!((mean / expected - 1.0).abs() < 0.1, "{mean:.0} segments instead of {expected:.0} at 1e-{exponent}");
    }
}

#[test]
fn reno_below_low_window() {
    let mut bic = Native::new(Algorithm::Bic, Arc::new(Tunables::default()));
    let mut window = Window { cwnd: 10, ssthresh: 2, ..Window::default() };
    assert_eq!(bic.on_loss(10), 5);
    assert_eq!(grown(&mut bic, &mut window), 1);
}

#[test]
fn slow_start_stops_at_the_threshold() {
    for algorithm in [Algorithm::Reno, Algorithm::Hstcp, Algorithm::Ghstcp, Algorithm::Bic] {
        let mut congestion = Native::new(algorithm, Arc::new(Tunables::default()));
        let mut window = Window { cwnd: 10, ssthresh: 35, ..Window::default() };
        let seen: Vec<u32> = (0..4)
            .map(|_| {
                grown(&mut congestion, &mut window);
                window.cwnd
            })
            .collect();
        assert_eq!(seen[0], 20, "{algorithm}");
        // What is left of the acknowledgement counts for congestion avoidance.
        assert!((35..40).contains(&seen[1]), "{algorithm}: {seen:?}");
        assert!(seen[2] - seen[1] <= 32 && seen[2] > 35, "{algorithm}: {seen:?}");
    }
}

#[test]
fn settings_say_what_is_wrong() {
    let mut settings = CongestionParameters::default();
    assert!(settings.set("hstcp.low", "1").unwrap_err().to_string().contains("hstcp.low_window"));
    assert!(settings.set("bic.decrease", "2").unwrap_err().to_string().contains("a number from 0.01 to 0.9"));
    assert!(settings.set("bic.decrease", "NaN").is_err());
    assert!(settings.set("hstcp.low_window", "38.7").unwrap_err().to_string().contains("whole number"));
    settings.set("hstcp.low_window", "90000").unwrap();
    assert!(Tunables::new(&settings).unwrap_err().to_string().contains("less than hstcp.high_window"));
}
