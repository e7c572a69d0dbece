//! A scenario written out with its defaults.
//!
//! Keys that came to the format for the simulator are left out while they say what the lab does anyway, so that records
//! stay short.

use serde::{Serialize, Serializer};

use crate::resolve::{DEFAULT_DISCIPLINE, DEFAULT_JITTER, DEFAULT_LOSS_BURST, DEFAULT_PROFILE};
use ekiden_units::Time;

use crate::{Discipline, Profile, Scenario, Tcp};

pub(crate) fn to_toml(scenario: &Scenario) -> String {
    toml::to_string(scenario).expect("a resolved scenario holds only tables, texts, numbers and booleans")
}

pub(crate) fn is_default_profile(profile: &Profile) -> bool {
    *profile == DEFAULT_PROFILE
}

pub(crate) fn is_default_discipline(discipline: &Discipline) -> bool {
    *discipline == DEFAULT_DISCIPLINE
}

pub(crate) fn is_default_jitter(jitter: &Time) -> bool {
    *jitter == DEFAULT_JITTER
}

pub(crate) fn is_default_loss_burst(packets: &u32) -> bool {
    *packets == DEFAULT_LOSS_BURST
}

/// A tunnel's TCP. What it leaves out would be taken from the node at its first end, so the profile is always there.
pub(crate) fn whole_tcp<S: Serializer>(tcp: &Tcp, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Whole<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        profile: Option<Profile>,
        #[serde(flatten)]
        others: &'a Tcp,
    }
    let profile = is_default_profile(&tcp.profile).then_some(tcp.profile);
    Whole { profile, others: tcp }.serialize(serializer)
}
