//! `ekiden_far`, the code of the kernel, a round trip at a time: it paces, so no train waits in the queue.

use std::sync::Arc;

use ekiden_congestion::{Algorithm, Before, CongestionControl, Native, RateSample, Tunables, Window};

/// Acknowledgements per round trip of which it hears.
const ACKS: u64 = 16;

#[derive(Debug)]
pub struct Far {
    control: Native,
    window: Window,
    sample: RateSample,
}

impl Far {
    pub fn new(tunables: &Arc<Tunables>, mss: u32) -> Self {
        let control = Native::new(Algorithm::Far, tunables.clone());
        Self { control, window: Window::default(), sample: RateSample { mss, ..RateSample::default() } }
    }

    /// The window of the next round trip, in segments, after `lost` of `sent` did not arrive in `took` seconds from `began` on.
    pub fn next(&mut self, began: f64, rtt: f64, (sent, lost, took): (f64, f64, f64)) -> u32 {
        let (arrived, lost) = ((sent - lost).round() as u64, lost.round() as u64);
        let Self { control, window, sample } = self;
        let before = sample.delivered;
        sample.lost += lost;
        if arrived == 0 {
            control.on_timeout();
            window.cwnd = 1;
            return window.cwnd;
        }
        let acks = arrived.min(ACKS);
        for ack in 1..=acks {
            let delivered = before + arrived * ack / acks;
            // The last one reports what was sent when the round began.
            let reported = if ack == acks { before } else { before.saturating_sub(1) };
            sample.now_us = ((began + rtt + took * ack as f64 / acks as f64) * 1e6) as u64;
            sample.delivered_now = (delivered - sample.delivered) as u32;
            sample.delivered = delivered;
            sample.was_in_flight = sent as u32;
            sample.rtt_us = Some((rtt * 1e6) as u32);
            sample.srtt_us = (rtt * 1e6) as u32;
            sample.before =
                Some(Before { delivered: reported, interval_us: (took * 1e6) as u64, is_app_limited: false });
            control.on_sample(window, sample);
        }
        window.cwnd
    }
}
