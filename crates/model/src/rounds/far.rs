//! What `ekiden_far` hears of a round trip. It paces, so no train waits in the queue.

use ekiden_congestion::{Before, CongestionControl, RateSample, Window};

/// Acknowledgements per round trip of which it hears.
const ACKS: u64 = 16;

/// The last sample.
#[derive(Debug)]
pub struct Far(RateSample);

impl Far {
    pub fn new(mss: u32) -> Self {
        Self(RateSample { mss, ..RateSample::default() })
    }

    /// Of `sent` segments `lost` did not arrive in `took` seconds from `began` on. The control sets the window of the next round trip.
    pub fn heard(
        &mut self,
        (control, window): (&mut dyn CongestionControl, &mut Window),
        (began, rtt): (f64, f64),
        (sent, lost, took): (f64, f64, f64),
    ) {
        let (arrived, lost) = ((sent - lost).round() as u64, lost.round() as u64);
        let sample = &mut self.0;
        let before = sample.delivered;
        sample.lost += lost;
        if arrived == 0 {
            control.on_timeout();
            window.cwnd = 1;
            return;
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
            sample.before = Some(Before {
                delivered: reported,
                interval_us: (took * 1e6) as u64,
                is_app_limited: false,
                ..Before::default()
            });
            control.on_sample(window, sample);
        }
    }
}
