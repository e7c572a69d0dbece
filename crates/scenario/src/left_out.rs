//! Keys that a written scenario omits while they have their defaults, and these defaults.
//!
//! These defaults are what the lab does without the keys. Omitting them keeps records short.

use ekiden_units::{Fraction, Time};

use crate::profile::Profile;
use crate::queue::Discipline;

pub(crate) const DEFAULT_PROFILE: Profile = Profile::Linux;
pub(crate) const DEFAULT_DISCIPLINE: Discipline = Discipline::DropTail;
/// As in Linux, which uses it only if the peer asks for it.
pub(crate) const DEFAULT_ECN: bool = false;
pub(crate) const DEFAULT_SEPARATE: bool = false;
/// Of proxies.
pub(crate) const DEFAULT_FORWARDS: bool = true;
pub(crate) const DEFAULT_JITTER: Time = Time(0);
/// Each packet is lost independently.
pub(crate) const DEFAULT_LOSS_BURST: u32 = 1;
/// All packets in order.
pub(crate) const DEFAULT_REORDER: Fraction = Fraction(0);

pub(crate) fn is_default_profile(profile: &Profile) -> bool {
    *profile == DEFAULT_PROFILE
}

pub(crate) fn is_default_discipline(discipline: &Discipline) -> bool {
    *discipline == DEFAULT_DISCIPLINE
}

pub(crate) fn is_default_ecn(ecn: &bool) -> bool {
    *ecn == DEFAULT_ECN
}

pub(crate) fn is_default_separate(separate: &bool) -> bool {
    *separate == DEFAULT_SEPARATE
}

pub(crate) fn is_default_forwards(forwards: &bool) -> bool {
    *forwards == DEFAULT_FORWARDS
}

pub(crate) fn is_default_jitter(jitter: &Time) -> bool {
    *jitter == DEFAULT_JITTER
}

pub(crate) fn is_default_loss_burst(packets: &u32) -> bool {
    *packets == DEFAULT_LOSS_BURST
}

pub(crate) fn is_default_reorder(part: &Fraction) -> bool {
    *part == DEFAULT_REORDER
}
