//! What is chosen: a congestion control for each leg, and one remedy of all. How much more a remedy has to give than the direct
//! connection stands here, and when fewer proxies are preferred.

use ekiden_model::rounds::{Sender, segment_bytes};

use crate::candidate::Candidate;
use crate::forecast::{Forecaster, Hop};
use crate::{Path, answer::Remedy};

/// Controls of proxies, those first that others beside them bear best. A later one has to give [`WORTH`] more.
const CONTROLS: [Sender; 6] = [Sender::Cubic, Sender::Reno, Sender::Ghstcp, Sender::Hstcp, Sender::Far, Sender::Bbr];
/// Low_Window of RFC 3649, section 5, in segments.
const LOW_WINDOW: f64 = 38.0;
/// What a gain must be to count, as a factor: less is within the models' doubt.
pub const WORTH: f64 = 1.1;
/// The same of proxies in front of a queue of fewer than [`SHORT`] segments. Linux's senders overflow it by bursts, which the models do not
/// have: docs/measurements/plan.md, *Short queues*.
const WORTH_IN_SHORT_QUEUE: f64 = 1.25;
const SHORT: f64 = 20.0;
/// Fewer proxies are preferred while they give this part of the best.
const AS_GOOD: f64 = 0.95;

/// The control of each leg on which a proxy sends; the host that sends keeps its own.
pub fn controls(candidate: &Candidate, path: &Path, hops: &[Hop], forecaster: &mut Forecaster) -> Vec<Sender> {
    let (sends, _) = candidate.host_legs(path);
    let of_leg = |(leg, hop): (usize, &Hop)| {
        if leg == sends {
            return path.congestion;
        }
        let mut best = (CONTROLS[0], forecaster.alone(&Hop { control: CONTROLS[0], ..*hop }).0);
        // In windows below RFC 3649's Low_Window HSTCP is Reno.
        let segments = best.1 / 8.0 * hop.rtt_s.value / f64::from(segment_bytes(hop.mtu)) / f64::from(hop.connections);
        let has_room = |control: &&Sender| match control {
            Sender::Reno | Sender::Cubic => true,
            Sender::Hstcp | Sender::Ghstcp => segments >= LOW_WINDOW,
            // Without random losses the others fill the line as well. BBR takes it from them.
            Sender::Far | Sender::Bbr => hop.loss.value > 0.0,
        };
        for control in CONTROLS[1..].iter().filter(has_room) {
            let rate = forecaster.alone(&Hop { control: *control, ..*hop }).0;
            if rate > best.1 * WORTH {
                best = (*control, rate);
            }
        }
        best.0
    };
    hops.iter().enumerate().map(of_leg).collect()
}

/// What proxies on this path must give more than the direct connection, as a factor.
pub fn worth(path: &Path) -> f64 {
    match path.buffer_bytes.value < SHORT * f64::from(path.mtu) {
        true => WORTH_IN_SHORT_QUEUE,
        false => WORTH,
    }
}

/// Which of the remedies to take, if any: the fewest proxies that give nearly as much as the best, if that is `worth` it.
pub fn best(direct_bit_s: f64, remedies: &[Remedy], worth: f64) -> Option<usize> {
    let rate = |remedy: &Remedy| remedy.forecast.goodput_bit_s.value;
    let most = remedies.iter().map(rate).fold(0.0, f64::max);
    if most < direct_bit_s * worth {
        return None;
    }
    let good = remedies
        .iter()
        .enumerate()
        .filter(|(_, remedy)| rate(remedy) >= AS_GOOD * most && rate(remedy) >= direct_bit_s * worth);
    good.min_by(|(_, one), (_, other)| one.nodes.len().cmp(&other.nodes.len()).then(rate(other).total_cmp(&rate(one))))
        .map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::NodePlan;
    use crate::{Estimate, Forecast, Limit};

    fn remedy(proxies: usize, bit_s: f64) -> Remedy {
        let node = NodePlan { name: "n".into(), from_client_s: 0.0, address: None, fingerprint: None };
        let forecast = Forecast { goodput_bit_s: Estimate::exact(bit_s), limit: Limit::Line, short_s: None };
        Remedy { name: "r".into(), nodes: vec![node; proxies], legs: Vec::new(), forecast, gain: Estimate::exact(1.0) }
    }

    #[test]
    fn a_tenth_more_is_worth_a_proxy() {
        assert_eq!(best(100.0, &[remedy(1, 109.9)], WORTH), None);
        assert_eq!(best(100.0, &[remedy(1, 110.1)], WORTH), Some(0));
        assert_eq!(best(100.0, &[], WORTH), None);
    }

    #[test]
    fn fewer_proxies_are_taken_while_they_give_nearly_as_much() {
        assert_eq!(best(10.0, &[remedy(1, 94.9), remedy(2, 100.0)], WORTH), Some(1));
        assert_eq!(best(10.0, &[remedy(1, 95.1), remedy(2, 100.0)], WORTH), Some(0));
        assert_eq!(
            best(10.0, &[remedy(2, 96.0), remedy(2, 97.0), remedy(3, 100.0)], WORTH),
            Some(1),
            "of as many the faster"
        );
    }
}
