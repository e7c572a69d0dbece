//! The round-trip time estimator and the retransmission timeout: RFC 6298, sections 2 and 5; and the clocks they are read from.

use ekiden_units::Time;

use crate::settings::Rto;

const FALLBACK: Time = Time::secs(3);

/// When a timer set to `at` expires, if its clock ticks at multiples of `tick`; with a tick of 0, at `at`.
pub(crate) fn on_tick(at: Time, tick: Time) -> Time {
    match tick.0 {
        0 => at,
        tick => Time(at.0.checked_next_multiple_of(tick).unwrap_or(u64::MAX)),
    }
}

/// The timestamp clock: milliseconds, never 0 (RFC 7323, section 5.4; 0 means none when it is echoed).
pub(crate) fn timestamp(now: Time) -> u32 {
    ((now.0 / 1_000_000) as u32).wrapping_add(1).max(1)
}

/// Smoothed round-trip time, its variation, and the timeout that follows.
#[derive(Debug, Clone)]
pub(crate) struct Estimator {
    settings: Rto,
    /// SRTT and RTTVAR; none before the first measurement.
    smoothed: Option<(u64, u64)>,
    least: Option<Time>,
    backoffs: u32,
}

impl Estimator {
    pub fn new(settings: Rto) -> Self {
        Self { settings, smoothed: None, least: None, backoffs: 0 }
    }

    /// A round-trip time was measured, of a segment that was sent once or carries a timestamp (Karn's algorithm). Ends the
    /// backoff (RFC 6298, section 5).
    pub fn sample(&mut self, rtt: Time) {
        self.backoffs = 0;
        self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
        let r = rtt.0;
        self.smoothed = Some(match self.smoothed {
            None => (r, r / 2),
            Some((srtt, rttvar)) => {
                let rttvar = (3 * u128::from(rttvar) + u128::from(srtt.abs_diff(r))) / 4;
                let srtt = (7 * u128::from(srtt) + u128::from(r)) / 8;
                (srtt as u64, rttvar as u64)
            }
        });
    }

    /// The SYN was sent again. Without a measurement, data begins with an RTO of at least three seconds (RFC 6298, rule 5.7).
    pub fn fall_back(&mut self) {
        if self.smoothed.is_none() {
            self.settings.initial = self.settings.initial.max(FALLBACK);
            self.backoffs = 0;
        }
    }

    /// The timer ran out.
    pub fn back_off(&mut self) {
        self.backoffs = self.backoffs.saturating_add(1);
    }

    /// RTO with its backoff.
    pub fn rto(&self) -> Time {
        let Rto { initial, least, most, granularity, least_bounds_variance, backoff, .. } = self.settings;
        let base = match self.smoothed {
            None => initial,
            Some((srtt, rttvar)) => {
                let variance = granularity.0.max(rttvar.saturating_mul(4));
                match least_bounds_variance {
                    true => Time(srtt) + Time(variance).max(least),
                    false => (Time(srtt) + Time(variance)).max(least),
                }
            }
        };
        let factor = u64::from(backoff).checked_pow(self.backoffs).unwrap_or(u64::MAX);
        Time(base.0.saturating_mul(factor)).min(most)
    }

    pub fn smoothed(&self) -> Option<Time> {
        self.smoothed.map(|(srtt, _)| Time(srtt))
    }

    pub fn least(&self) -> Option<Time> {
        self.least
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TcpSettings;

    fn estimator(settings: &TcpSettings, samples_ms: &[u64]) -> Estimator {
        let mut estimator = Estimator::new(settings.rto);
        for ms in samples_ms {
            estimator.sample(Time::ms(*ms));
        }
        estimator
    }

    #[test]
    fn the_timeout_follows_rfc_6298() {
        let free = TcpSettings { rto: Rto { least: Time(0), ..TcpSettings::rfc().rto }, ..TcpSettings::rfc() };
        assert_eq!(estimator(&free, &[]).rto(), Time::secs(1), "rule 2.1");
        assert_eq!(estimator(&free, &[400]).rto(), Time::ms(400 + 4 * 200), "rule 2.2");
        // Rule 2.3: RTTVAR = 3/4 * 200 + 1/4 * |400 - 800| = 250; SRTT = 7/8 * 400 + 1/8 * 800 = 450.
        let two = estimator(&free, &[400, 800]);
        assert_eq!((two.smoothed(), two.rto()), (Some(Time::ms(450)), Time::ms(450 + 4 * 250)));
        assert_eq!(two.least(), Some(Time::ms(400)));
        assert_eq!(estimator(&TcpSettings::rfc(), &[10]).rto(), Time::secs(1), "rule 2.4");
        // Without variation the granularity G is added.
        assert_eq!(estimator(&free, &[100; 400]).rto(), Time(100_000_000 + 1_000_000));
    }

    #[test]
    fn a_timer_with_a_clock_runs_out_at_its_next_tick() {
        let half = Time::ms(500);
        let ticks = [1, 499, 500, 501, 1200].map(|ms| on_tick(Time::ms(ms), half));
        assert_eq!(ticks, [500, 500, 500, 1000, 1500].map(Time::ms));
        assert_eq!(on_tick(Time(u64::MAX), half), Time(u64::MAX));
        assert_eq!(on_tick(Time(7), Time(0)), Time(7));
    }

    #[test]
    fn linux_adds_its_least_to_the_round_trip() {
        assert_eq!(estimator(&TcpSettings::linux(), &[100; 400]).rto(), Time::ms(300));
    }

    #[test]
    fn backoff_doubles_up_to_the_most_and_ends_with_a_measurement() {
        let mut estimator = estimator(&TcpSettings::rfc(), &[400]);
        let mut seen = Vec::new();
        for _ in 0..8 {
            seen.push(estimator.rto().0 / 100_000_000);
            estimator.back_off();
        }
        assert_eq!(seen, [12, 24, 48, 96, 192, 384, 600, 600]);
        for _ in 0..1000 {
            estimator.back_off();
        }
        assert_eq!(estimator.rto(), Time::secs(60));
        estimator.sample(Time::ms(400));
        assert_eq!(estimator.rto(), Time::ms(400 + 4 * 150));
    }
}
