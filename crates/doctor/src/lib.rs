//! What on this host, and on the path to another, costs TCP throughput.
//!
//! A check gives a [`Finding`]; only [`fix`] changes anything.

mod fix;
mod machine;
mod path;
mod sysctl;

pub use fix::{FixError, Fixed, fix};
pub use machine::machine;
pub use path::{PathError, path};
pub use sysctl::{SYSCTLS, sysctls};

use ekiden_units::{BitRate, Bytes, Time};

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The checked setting, such as `net.ipv4.tcp_sack`.
    pub subject: String,
    /// Its state.
    pub found: String,
    /// What the state means.
    pub verdict: Verdict,
}

/// What a finding means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Worth knowing: it costs nothing by itself.
    Note(String),
    /// It costs throughput: how, and what helps.
    Costs {
        /// What it costs.
        what: String,
        /// What helps.
        remedy: Remedy,
    },
}

/// What helps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// Another value of this sysctl, which is safe: it takes nothing from other programs but memory that they would not use, and
    /// can be undone.
    Set(String),
    /// Something that a person has to do.
    Advice(&'static str),
}

/// The connection that a host is meant for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aim {
    /// What one connection should carry.
    pub rate: BitRate,
    /// Its round-trip time.
    pub rtt: Time,
}

impl Aim {
    /// The bandwidth-delay product.
    pub fn bdp(&self) -> Bytes {
        Bytes::at(self.rate, self.rtt)
    }

    /// The socket buffer in which the kernel has room for the bandwidth-delay product: half of a buffer is for its own
    /// structures (tcp(7), `tcp_adv_win_scale`).
    pub fn buffer(&self) -> Bytes {
        Bytes(self.bdp().0.saturating_mul(2))
    }

    /// The maximum rate at this round-trip time of a connection with `window` in flight, for people.
    fn carried_with(&self, window: Bytes) -> String {
        let Some(rate) = BitRate::of(window, self.rtt) else { return "as much as there is".into() };
        let digits = if rate.as_mbit() < 10.0 { 1 } else { 0 };
        format!("{:.digits$}Mbit/s", rate.as_mbit())
    }
}

impl Finding {
    fn new(subject: impl Into<String>, found: impl Into<String>, verdict: Verdict) -> Self {
        Self { subject: subject.into(), found: found.into(), verdict }
    }

    /// Whether it costs throughput.
    pub fn costs(&self) -> bool {
        matches!(self.verdict, Verdict::Costs { .. })
    }

    /// The value that [`fix`] gives it.
    pub fn fixed_value(&self) -> Option<&str> {
        match &self.verdict {
            Verdict::Costs { remedy: Remedy::Set(value), .. } => Some(value),
            _ => None,
        }
    }
}
