//! What a control forgets at a loss, a timeout and an idle time, and knows again when the loss was none.

use std::sync::Arc;

use ekiden_congestion::{Algorithm, CongestionControl, Native, Tunables, Window};

fn control(algorithm: Algorithm) -> Native {
    Native::new(algorithm, Arc::new(Tunables::default()))
}

/// Segments by which a window of 990 grows in a round trip.
fn growth_of(mut control: Native) -> u32 {
    let mut window = Window { cwnd: 990, ssthresh: 2, ..Window::default() };
    control.on_ack(&mut window, 990);
    window.cwnd - 990
}

#[test]
fn bic_knows_its_maximum_again() {
    let mut bic = control(Algorithm::Bic);
    bic.on_loss(1_000);
    assert_eq!(growth_of(bic.clone()), 5, "half the way to 1000");
    for timeout in [false, true] {
        let mut bic = bic.clone();
        bic.on_loss(950);
        if timeout {
            bic.on_timeout();
        }
        assert_ne!(growth_of(bic.clone()), 5);
        assert!(!bic.undo());
        assert_eq!(growth_of(bic), 5, "timeout: {timeout}");
    }
}

/// A gentle HSTCP in Reno mode, after a queue that filled.
fn gentle_in_reno_mode() -> Native {
    let mut control = control(Algorithm::Ghstcp);
    let window = Window { cwnd: 100, ssthresh: 50, ..Window::default() };
    for packet in 0..1_000 {
        control.on_rtt(&window, 1_000_000 + 400 * u64::from(packet), 40_000 + 5 * packet);
    }
    assert!(control.is_reno());
    control
}

#[test]
fn gentle_hstcp_knows_its_mode_again_after_a_timeout_that_was_none() {
    let mut control = gentle_in_reno_mode();
    control.on_loss(100);
    assert!(control.is_reno());
    control.on_timeout();
    assert!(!control.is_reno());
    assert!(control.undo());
    assert!(control.is_reno());
    assert!(!control.undo(), "once");
}

#[test]
fn what_an_earlier_timeout_made_it_forget_stays_forgotten() {
    let mut control = gentle_in_reno_mode();
    control.on_loss(100);
    control.on_timeout();
    control.on_loss(50);
    assert!(!control.undo() && !control.is_reno());
}

#[test]
fn gentle_hstcp_leaves_reno_mode_after_an_idle_time() {
    let mut control = gentle_in_reno_mode();
    assert!(control.on_idle(&mut Window::default(), 1_000_000) && !control.is_reno());
    assert!(!control.on_idle(&mut Window::default(), 1_000_000));
    // The test that was under way is given up too: a first late sample after the pause decides nothing.
    let window = Window { cwnd: 100, ssthresh: 50, ..Window::default() };
    assert!(!control.on_rtt(&window, 60_000_000, 90_000) && !control.is_reno());
}
