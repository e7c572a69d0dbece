//! Limited slow start (RFC 3742) and HyStart++ (RFC 9406), as options of the controls in the headers.

use std::sync::Arc;

use ekiden_congestion::{Algorithm, CongestionControl, CongestionParameters, Cubic, Native, Tunables, Window};

fn with(algorithm: Algorithm, parameters: &[(&str, &str)]) -> Native {
    let mut settings = CongestionParameters::default();
    for (name, value) in parameters {
        settings.set(name, value).unwrap();
    }
    Native::new(algorithm, Arc::new(Tunables::new(&settings).unwrap()))
}

/// A round trip in which every segment is acknowledged by itself, at this round-trip time.
fn round(control: &mut dyn CongestionControl, window: &mut Window, now_us: &mut u64, rtt_us: u32) {
    let cwnd = window.cwnd;
    for _ in 0..cwnd {
        *now_us += u64::from(rtt_us / cwnd);
        control.on_rtt(window, *now_us, rtt_us);
        control.on_ack(window, 1);
    }
}

/// Round trips of these times; the windows after each.
fn windows(control: &mut dyn CongestionControl, window: &mut Window, rtts_us: &[u32]) -> Vec<u32> {
    let mut now_us = 10_000_000;
    let mut after = |&rtt_us: &u32| {
        round(control, window, &mut now_us, rtt_us);
        window.cwnd
    };
    rtts_us.iter().map(&mut after).collect()
}

/// RFC 3742, section 2: (cwnd − max_ssthresh) / (max_ssthresh / 2) round trips beyond max_ssthresh.
#[test]
fn beyond_max_ssthresh_slow_start_grows_by_half_of_it_per_round_trip() {
    for algorithm in Algorithm::LOADABLE.into_iter().filter(|algorithm| !algorithm.sets_rate()) {
        let mut control = with(algorithm, &[("slow_start.max_ssthresh", "100")]);
        let mut window = Window::default();
        let seen = windows(&mut control, &mut window, &[50_000; 30]);
        assert_eq!(seen[..3], [20, 40, 80], "{algorithm}");
        // A little less, because the window grows while those of the round trip before are acknowledged.
        for pair in seen[3..].windows(2) {
            let most = 50.0 * f64::from(pair[0]) / f64::from(pair[1]);
            assert!((most - 1.0..=50.0).contains(&f64::from(pair[1] - pair[0])), "{algorithm}: {seen:?}");
        }
    }
}

#[test]
fn without_the_options_slow_start_doubles() {
    for algorithm in [Algorithm::Reno, Algorithm::Hstcp, Algorithm::Ghstcp, Algorithm::Bic] {
        let late: Vec<u32> = (1..8).map(|round| 50_000 * round).collect();
        let seen = windows(&mut with(algorithm, &[]), &mut Window::default(), &late);
        assert_eq!(seen, [20, 40, 80, 160, 320, 640, 1_280], "{algorithm}");
    }
}

/// Section 4.2: an eighth later than the round before. Then five rounds that grow by a quarter, and congestion avoidance.
#[test]
fn hystart_plus_plus_ends_slow_start_five_rounds_after_round_trips_have_become_longer() {
    let mut hstcp = with(Algorithm::Hstcp, &[("slow_start.hystart", "1")]);
    let controls: [&mut dyn CongestionControl; 2] = [&mut hstcp, &mut Cubic::default()];
    for control in controls {
        let mut window = Window::default();
        let seen = windows(control, &mut window, &[50_000, 50_000, 50_000, 50_000, 56_249]);
        assert_eq!(seen, [20, 40, 80, 160, 320], "not late enough");
        let seen = windows(control, &mut window, &[64_000; 5]);
        // The first eight samples are not known yet when they are acknowledged.
        assert!((320 + 80..=320 + 90).contains(&seen[0]), "{seen:?}");
        for pair in seen[..4].windows(2) {
            let growth = f64::from(pair[1]) / f64::from(pair[0]);
            assert!((1.2..1.3).contains(&growth), "{seen:?}");
        }
        assert_eq!(window.ssthresh, i32::MAX as u32, "five rounds are not over");
        let before = window.cwnd;
        windows(control, &mut window, &[64_000; 1]);
        assert!(window.ssthresh < 2 * before && window.cwnd < before + before / 8, "{before}, {window:?}");
    }
}

/// Section 4.2: round-trip times that fall below those with which CSS began were late by chance.
#[test]
fn hystart_plus_plus_goes_back_to_slow_start_when_it_was_chance() {
    let mut control = with(Algorithm::Ghstcp, &[("slow_start.hystart", "1")]);
    let mut window = Window::default();
    let seen = windows(&mut control, &mut window, &[50_000, 50_000, 50_000, 50_000, 60_000, 50_000, 50_000]);
    assert!(seen[4] < 220, "{seen:?}: a quarter");
    assert!(seen[5] > 2 * seen[4] - 20 && seen[6] == 2 * seen[5], "{seen:?}: doubles again");
    assert_eq!(window.ssthresh, i32::MAX as u32);
}

#[test]
fn after_a_loss_slow_start_is_the_standard_one() {
    let mut control = with(Algorithm::Hstcp, &[("slow_start.hystart", "1")]);
    let mut window = Window { cwnd: 10, ssthresh: 1_000, ..Window::default() };
    let late: Vec<u32> = (1..7).map(|round| 50_000 * round).collect();
    assert_eq!(windows(&mut control, &mut window, &late), [20, 40, 80, 160, 320, 640]);
}

/// A queue that a slow start without bursts fills: 70 Mbit/s, 43 ms, 100 KB, packets of 1400 bytes. What is beyond line and queue is
/// lost.
#[test]
fn each_option_overshoots_less_than_half_as_far() {
    let lost = |parameters: &[(&str, &str)]| {
        let (line, queue, segment_us) = (268, 71, 160);
        let mut control = with(Algorithm::Hstcp, parameters);
        let (mut window, mut now_us) = (Window::default(), 1_000_000);
        while window.cwnd <= line + queue {
            let waiting = window.cwnd.saturating_sub(line);
            round(&mut control, &mut window, &mut now_us, 43_000 + waiting * segment_us);
        }
        window.cwnd - line - queue
    };
    let standard = lost(&[]);
    let limited = lost(&[("slow_start.max_ssthresh", "100")]);
    let hystart = lost(&[("slow_start.hystart", "1")]);
    assert!(2 * limited < standard && 2 * hystart < standard, "{standard}, {limited}, {hystart}");
}

/// `reno` is the kernel's own: `[congestion.slow_start]` is not for it.
#[test]
fn reno_reads_no_parameters() {
    let settings = [("slow_start.max_ssthresh", "100"), ("slow_start.hystart", "1")];
    let late: Vec<u32> = (1..8).map(|round| 50_000 * round).collect();
    let seen = windows(&mut with(Algorithm::Reno, &settings), &mut Window::default(), &late);
    assert_eq!(seen, [20, 40, 80, 160, 320, 640, 1_280]);
}
