//! Congestion control as arithmetic: Reno, HighSpeed TCP, gentle HighSpeed TCP, BIC, CUBIC, BBR, BBRv3 and ekiden's own.
//!
//! The algorithms that ekiden registers with the kernel are written once, as C headers under `include/ekiden/`: integers only,
//! no kernel types. The eBPF programs of crate `bpf` include them, and so does the native build that [`Native`] calls. So the
//! simulator runs the same code as the kernel. [`Cubic`], [`LinuxCubic`], [`LinuxBic`] and
//! [`LinuxBbr`] are for the simulator only: the kernel has its own. [`Bbr3`] is too: no released kernel has it.
//!
//! `docs/guide/congestion.md` describes the algorithms and gives the reasons for the defaults.
//!
//! Which name is which control is decided by `control`, and by `linux_control` for profiles that imitate Linux.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod bbr3;
mod cubic;
mod linux;
mod native;
mod response;
mod sample;
mod tunables;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

pub use bbr3::Bbr3;
pub use cubic::{Cubic, CubicSettings};
pub use linux::{LinuxBbr, LinuxBic, LinuxCubic};
pub use native::{KnownPath, Native, PathMemory, hstcp_decrease, hstcp_increase, trend};
pub use response::{ResponseFunction, ResponseRow};
pub use sample::{Before, LostSegment, RateSample, Repair};
pub use tunables::{CongestionParameters, LAYOUT, MOST_SAMPLES, PARAMETERS, Parameter, ParameterError, Tunables};

/// A congestion control of the C headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Algorithm {
    /// RFC 5681. In the kernel it is the kernel's own.
    Reno = 0,
    /// HighSpeed TCP, RFC 3649.
    Hstcp = 1,
    /// Gentle HighSpeed TCP, Zhang, Hasegawa, Murata 2004.
    Ghstcp = 2,
    /// BIC, Xu, Harfoush, Rhee 2004.
    Bic = 3,
    /// ekiden's own, for long paths that lose packets by chance. It sets a rate.
    Far = 4,
}

impl Algorithm {
    /// Those that ekiden brings into the kernel.
    pub const LOADABLE: [Self; 4] = [Self::Hstcp, Self::Ghstcp, Self::Bic, Self::Far];

    /// Its name in the kernel, in configurations and in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Hstcp => "ekiden_hstcp",
            Self::Ghstcp => "ekiden_ghstcp",
            Self::Bic => "ekiden_bic",
            Self::Far => "ekiden_far",
        }
    }

    /// Whether it sets a rate besides the window, and the window at every acknowledgement.
    pub fn sets_rate(self) -> bool {
        self == Self::Far
    }

    /// Whether it reads the parameter of this name. Gentle HSTCP reads HSTCP's too, and all but [`Self::Far`] read slow start's.
    pub fn reads(self, parameter: &str) -> bool {
        let groups: &[&str] = match self {
            Self::Reno => &[],
            Self::Hstcp => &["hstcp", "slow_start"],
            Self::Ghstcp => &["hstcp", "ghstcp", "slow_start"],
            Self::Bic => &["bic", "slow_start"],
            Self::Far => &["far"],
        };
        parameter.split_once('.').is_some_and(|(group, _)| groups.contains(&group))
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No [`Algorithm`] has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is none of ekiden's congestion controls ({known})", known = Algorithm::LOADABLE.map(Algorithm::name).join(", "))]
pub struct UnknownAlgorithm(pub String);

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let mut all = std::iter::once(Self::Reno).chain(Self::LOADABLE);
        all.find(|algorithm| algorithm.name() == name).ok_or_else(|| UnknownAlgorithm(name.into()))
    }
}

/// The part of a connection's state that a congestion control reads and changes. Windows count segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Window {
    /// Congestion window.
    pub cwnd: u32,
    /// The fraction of a segment by which the window has grown; in the control's own unit.
    pub cwnd_cnt: u32,
    /// Slow start threshold. `u32::MAX / 2` or more: none yet.
    pub ssthresh: u32,
    /// The upper limit of `cwnd`.
    pub clamp: u32,
}

impl Default for Window {
    /// A new connection's: ten segments (RFC 6928), no threshold, no limit.
    fn default() -> Self {
        Self { cwnd: 10, cwnd_cnt: 0, ssthresh: i32::MAX as u32, clamp: u32::MAX }
    }
}

/// A congestion control, as a TCP engine calls it.
pub trait CongestionControl {
    /// A round-trip time was measured, of a segment that was sent once. Both in microseconds; `now` must not step back.
    /// Returns whether the algorithm changed its mode.
    fn on_rtt(&mut self, window: &Window, now_us: u64, rtt_us: u32) -> bool;

    /// `acked` segments were newly acknowledged, outside of recovery, while the congestion window limits the sender.
    fn on_ack(&mut self, window: &mut Window, acked: u32);

    /// A loss event: once per window of data. Returns the slow start threshold that follows; the caller brings the window
    /// there.
    fn on_loss(&mut self, cwnd: u32) -> u32;

    /// The retransmission timer ran out, after [`CongestionControl::on_loss`].
    fn on_timeout(&mut self);

    /// Something is sent after nothing was for `idle_us`, which is longer than the retransmission timeout. A control that
    /// [`CongestionControl::sets_rate`] may change the window. Returns whether the algorithm changed its mode.
    fn on_idle(&mut self, _window: &mut Window, _idle_us: u64) -> bool {
        false
    }

    /// What is known of the path, before anything is sent. A control that uses it begins there, and keeps it up to date (Careful
    /// Resume, RFC 9959).
    fn remember(&mut self, _path: &PathMemory) {}

    /// The connection has ended: what it used of the path is free.
    fn on_end(&mut self) {}

    /// Whether it sets the window at every acknowledgement by [`CongestionControl::on_sample`], during recovery too, and nothing else
    /// does but a timeout (Linux: `cong_control`).
    fn sets_rate(&self) -> bool {
        false
    }

    /// Whether it wants to know each segment that is found lost.
    fn asks_for_losses(&self) -> bool {
        false
    }

    /// A segment was found lost; before [`CongestionControl::on_sample`] of the acknowledgement that showed it, or of the first after a
    /// timeout. Only for a control that [`CongestionControl::asks_for_losses`].
    fn on_lost(&mut self, _lost: &LostSegment) {}

    /// An acknowledgement arrived, after all else that it means. Only for a control that [`CongestionControl::sets_rate`].
    fn on_sample(&mut self, _window: &mut Window, _sample: &RateSample) {}

    /// The rate at which segments are to leave, per second. `None`: as the window allows.
    fn pacing_rate(&self) -> Option<f64> {
        None
    }
}

/// The names that [`control`] knows.
pub fn names() -> Vec<&'static str> {
    let others = [Algorithm::Reno.name(), Cubic::NAME, LinuxBic::NAME, LinuxBbr::NAME, Bbr3::NAME];
    others.into_iter().chain(Algorithm::LOADABLE.map(Algorithm::name)).collect()
}

/// A new connection's congestion control by name: `cubic`, which is RFC 9438's, `bic` and `bbr`, which are Linux's, `bbr3`,
/// which is its draft's, or one of [`Algorithm`]'s. `None` if there is none of this name.
pub fn control(name: &str, tunables: &Arc<Tunables>) -> Option<Box<dyn CongestionControl + Send>> {
    Some(match name {
        Cubic::NAME => Box::new(Cubic::default()),
        LinuxBic::NAME => Box::new(LinuxBic::default()),
        LinuxBbr::NAME => Box::new(LinuxBbr::default()),
        Bbr3::NAME => Box::new(Bbr3::default()),
        _ => Box::new(Native::new(name.parse().ok()?, Arc::clone(tunables))),
    })
}

/// As [`control`], but `cubic` is the kernel's.
pub fn linux_control(name: &str, tunables: &Arc<Tunables>) -> Option<Box<dyn CongestionControl + Send>> {
    match name {
        Cubic::NAME => Some(Box::new(LinuxCubic::default())),
        _ => control(name, tunables),
    }
}
