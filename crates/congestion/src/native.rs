//! The native build of the headers.
#![allow(unsafe_code)] // Only the declarations: every function takes references to structures of the same layout.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::tunables::{MOST_SAMPLES, SlowStartTunables};
use crate::{Algorithm, CongestionControl, RateSample, Tunables, Window};

/// Eight-byte words that hold any algorithm's state.
const STATE_WORDS: usize = 12;

#[derive(Clone, Debug)]
#[repr(C)]
struct State([u64; STATE_WORDS]);

/// HyStart++'s state (`struct ek_hystart`).
#[derive(Clone, Debug)]
#[repr(C)]
struct HyStartState([u32; 5]);

/// `struct ek_sample`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Sample {
    now_us: u64,
    delivered: u32,
    delivered_before: u32,
    delivered_now: u32,
    lost: u32,
    lost_now: u32,
    was_in_flight: u32,
    rtt_us: u32,
    srtt_us: u32,
    mss: u32,
    is_valid: u32,
    is_app_limited: u32,
    is_marked: u32,
}

impl From<&RateSample> for Sample {
    /// Counts wrap, as the kernel's.
    fn from(sample: &RateSample) -> Self {
        Self {
            now_us: sample.now_us,
            delivered: sample.delivered as u32,
            delivered_before: sample.before.map_or(0, |before| before.delivered as u32),
            delivered_now: sample.delivered_now,
            lost: sample.lost as u32,
            lost_now: sample.lost_now,
            was_in_flight: sample.was_in_flight,
            rtt_us: sample.rtt_us.unwrap_or_default(),
            srtt_us: sample.srtt_us,
            mss: sample.mss,
            is_valid: sample.before.is_some().into(),
            is_app_limited: sample.before.is_some_and(|before| before.is_app_limited).into(),
            is_marked: sample.is_marked.into(),
        }
    }
}

// The structures are `repr(C)` and of the C side's size (see the test below); arrays are passed with their length.
unsafe extern "C" {
    safe fn ekiden_init(algorithm: u32, state: &mut State);
    safe fn ekiden_rtt(
        algorithm: u32,
        tunables: &Tunables,
        state: &mut State,
        window: &Window,
        now_us: u64,
        rtt_us: u32,
    ) -> i32;
    safe fn ekiden_acked(algorithm: u32, tunables: &Tunables, state: &mut State, window: &mut Window, acked: u32);
    safe fn ekiden_ssthresh(algorithm: u32, tunables: &Tunables, state: &mut State, cwnd: u32) -> u32;
    safe fn ekiden_timeout(algorithm: u32, state: &mut State);
    safe fn ekiden_undo(algorithm: u32, state: &mut State) -> i32;
    safe fn ekiden_idle(algorithm: u32, state: &mut State, window: &mut Window, idle_us: u64) -> i32;
    safe fn ekiden_resume(tunables: &Tunables, state: &mut State, path: &KnownPath, now_us: u64);
    safe fn ekiden_confirms(state: &State) -> i32;
    safe fn ekiden_jumps(state: &State) -> i32;
    safe fn ekiden_claim(path: &mut KnownPath, now_us: u64);
    safe fn ekiden_end(state: &State, path: &mut KnownPath);
    safe fn ekiden_learnt(state: &mut State, now_us: u64, path: &mut KnownPath) -> i32;
    safe fn ekiden_sample(tunables: &Tunables, state: &mut State, sample: &Sample) -> u32;
    safe fn ekiden_pace(state: &State, srtt_us: u32, mss: u32) -> u64;
    safe fn ekiden_hystart_init(state: &mut HyStartState);
    safe fn ekiden_hystart_rtt(state: &mut HyStartState, rtt_us: u32);
    safe fn ekiden_slow_start(
        tunables: &SlowStartTunables,
        state: &mut HyStartState,
        window: &mut Window,
        acked: u32,
    ) -> u32;
    safe fn ekiden_mode(state: &State) -> u32;
    safe fn ekiden_hstcp_increase(tunables: &Tunables, cwnd: u32) -> u32;
    safe fn ekiden_hstcp_decrease(tunables: &Tunables, cwnd: u32) -> u32;
    safe fn ekiden_trend(
        tunables: &Tunables,
        departures: &[u32; MOST_SAMPLES],
        rtts: &[u32; MOST_SAMPLES],
        count: u32,
        rises: &mut u32,
    ) -> u32;
    #[cfg(test)]
    safe fn ekiden_tunables_size() -> u64;
    #[cfg(test)]
    safe fn ekiden_state_size() -> u64;
    #[cfg(test)]
    safe fn ekiden_sample_size() -> u64;
    #[cfg(test)]
    safe fn ekiden_path_size() -> u64;
    #[cfg(test)]
    safe fn ekiden_hystart_size() -> u64;
}

/// What is known of a path (`struct ek_path`). The default: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct KnownPath {
    /// What it carried in a round trip, in 64ths of a segment.
    window: u32,
    base_us: u32,
    chance: u32,
    at_ms: u32,
    used_ms: u32,
    is_free: u32,
}

/// What a host knows of the path to another, in this direction: the connections between them share it.
pub type PathMemory = Arc<Mutex<KnownPath>>;

fn known(path: &PathMemory) -> MutexGuard<'_, KnownPath> {
    path.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One connection's congestion control.
#[derive(Debug, Clone)]
pub struct Native {
    algorithm: Algorithm,
    tunables: Arc<Tunables>,
    state: State,
    /// The rate that it sets, in segments per second.
    rate: Option<f64>,
    /// What is known of its path, of [`Algorithm::Far`] only.
    path: Option<PathMemory>,
    /// At the next sample it looks there.
    resumes: bool,
}

impl Native {
    /// That of a new connection.
    pub fn new(algorithm: Algorithm, tunables: Arc<Tunables>) -> Self {
        let mut state = State([0; STATE_WORDS]);
        ekiden_init(algorithm as u32, &mut state);
        Self { algorithm, tunables, state, rate: None, path: None, resumes: true }
    }

    /// Whether it grows and shrinks as Reno at present. Only gentle HSTCP changes.
    pub fn is_reno(&self) -> bool {
        match self.algorithm {
            Algorithm::Reno => true,
            Algorithm::Ghstcp => ekiden_mode(&self.state) == 1,
            Algorithm::Hstcp | Algorithm::Bic | Algorithm::Far => false,
        }
    }

    /// The last loss event was none (RFC 3522, RFC 5682): the control knows again what it knew before. The caller restores
    /// window and threshold. Returns whether the mode changed.
    pub fn undo(&mut self) -> bool {
        ekiden_undo(self.algorithm as u32, &mut self.state) != 0
    }
}

impl CongestionControl for Native {
    fn on_rtt(&mut self, window: &Window, now_us: u64, rtt_us: u32) -> bool {
        ekiden_rtt(self.algorithm as u32, &self.tunables, &mut self.state, window, now_us, rtt_us) != 0
    }

    fn on_ack(&mut self, window: &mut Window, acked: u32) {
        ekiden_acked(self.algorithm as u32, &self.tunables, &mut self.state, window, acked);
    }

    fn on_loss(&mut self, cwnd: u32) -> u32 {
        ekiden_ssthresh(self.algorithm as u32, &self.tunables, &mut self.state, cwnd)
    }

    fn on_timeout(&mut self) {
        ekiden_timeout(self.algorithm as u32, &mut self.state);
    }

    fn on_idle(&mut self, window: &mut Window, idle_us: u64) -> bool {
        self.resumes = true;
        ekiden_idle(self.algorithm as u32, &mut self.state, window, idle_us) != 0
    }

    fn remember(&mut self, path: &PathMemory) {
        self.path = Some(Arc::clone(path));
    }

    fn on_end(&mut self) {
        if let Some(path) = self.path.take() {
            ekiden_end(&self.state, &mut known(&path));
        }
    }

    fn sets_rate(&self) -> bool {
        self.algorithm.sets_rate()
    }

    fn on_sample(&mut self, window: &mut Window, sample: &RateSample) {
        let now_us = sample.now_us;
        let resumes = std::mem::take(&mut self.resumes) || ekiden_confirms(&self.state) != 0;
        if let Some(path) = self.path.as_ref().filter(|_| resumes) {
            ekiden_resume(&self.tunables, &mut self.state, &known(path), now_us);
        }
        let jumped = ekiden_jumps(&self.state) != 0;
        window.cwnd = ekiden_sample(&self.tunables, &mut self.state, &sample.into()).min(window.clamp);
        if let Some(path) = self.path.as_ref().filter(|_| !jumped && ekiden_jumps(&self.state) != 0) {
            ekiden_claim(&mut known(path), now_us);
        }
        let bytes = ekiden_pace(&self.state, sample.srtt_us, sample.mss);
        self.rate = Some(bytes as f64 / f64::from(sample.mss.max(1)));
        let mut learnt = KnownPath::default();
        if let Some(path) = &self.path
            && ekiden_learnt(&mut self.state, sample.now_us, &mut learnt) != 0
        {
            *known(path) = learnt;
        }
    }

    fn pacing_rate(&self) -> Option<f64> {
        self.rate
    }
}

/// Slow start with HyStart++ (RFC 9406), for a control that is not in the headers.
#[derive(Clone, Debug)]
pub(crate) struct HyStartPlusPlus(HyStartState);

impl HyStartPlusPlus {
    /// That of a new connection.
    pub fn new() -> Self {
        let mut state = HyStartState([0; 5]);
        ekiden_hystart_init(&mut state);
        Self(state)
    }

    /// A round-trip time was measured.
    pub fn on_rtt(&mut self, rtt_us: u32) {
        ekiden_hystart_rtt(&mut self.0, rtt_us);
    }

    /// Returns how many of the acknowledged segments are left for congestion avoidance.
    pub fn slow_start(&mut self, window: &mut Window, acked: u32) -> u32 {
        ekiden_slow_start(&SlowStartTunables { max_ssthresh: 0, hystart: 1 }, &mut self.0, window, acked)
    }
}

/// Standard slow start, for controls that are not in the headers. Returns how many of the segments are left for congestion
/// avoidance.
pub(crate) fn slow_start(window: &mut Window, acked: u32) -> u32 {
    let off = SlowStartTunables { max_ssthresh: 0, hystart: 0 };
    ekiden_slow_start(&off, &mut HyStartState([0; 5]), window, acked)
}

/// HSTCP's a(w): what a window of `cwnd` segments grows by per round trip, in 1024ths of a segment (RFC 3649, section 5).
pub fn hstcp_increase(tunables: &Tunables, cwnd: u32) -> u32 {
    ekiden_hstcp_increase(tunables, cwnd)
}

/// HSTCP's b(w): the part of a window of `cwnd` segments that a loss takes, in 65536ths (RFC 3649, section 5).
pub fn hstcp_decrease(tunables: &Tunables, cwnd: u32) -> u32 {
    ekiden_hstcp_decrease(tunables, cwnd)
}

/// Gentle HSTCP's test on pairs of departure and round-trip time, the first [`MOST_SAMPLES`] of them, each below
/// 2^21: r² in units of 2^-28, 0 if not positively correlated, and whether that is a rising trend.
pub fn trend(tunables: &Tunables, samples: &[(u32, u32)]) -> (u32, bool) {
    let (mut departures, mut rtts) = ([0; MOST_SAMPLES], [0; MOST_SAMPLES]);
    let mut count = 0;
    for (at, &(departure, rtt)) in samples.iter().take(MOST_SAMPLES).enumerate() {
        departures[at] = departure;
        rtts[at] = rtt;
        count += 1;
    }
    let mut rises = 0;
    let r2 = ekiden_trend(tunables, &departures, &rtts, count, &mut rises);
    (r2, rises != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_agree_on_sizes() {
        assert_eq!(ekiden_tunables_size(), size_of::<Tunables>() as u64);
        assert!(ekiden_state_size() <= size_of::<State>() as u64);
        assert_eq!(ekiden_sample_size(), size_of::<Sample>() as u64);
        assert_eq!(ekiden_path_size(), size_of::<KnownPath>() as u64);
        assert_eq!(ekiden_hystart_size(), size_of::<HyStartState>() as u64);
    }
}
