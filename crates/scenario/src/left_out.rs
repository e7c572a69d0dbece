//! Keys that a written scenario omits while they have their defaults, and these defaults.
//!
//! Those of a link's directions stand in `ekiden-link`, with what a direction is. All are what the lab does without the keys. Omitting them keeps records short.

use crate::profile::Profile;
use crate::program::Program;

pub(crate) const DEFAULT_PROFILE: Profile = Profile::Linux;
/// As in Linux, which uses it only if the peer asks for it.
pub(crate) const DEFAULT_ECN: bool = false;
pub(crate) const DEFAULT_SEPARATE: bool = false;
/// Of flows.
pub(crate) const DEFAULT_TRANSPARENT: bool = false;
/// Of proxies.
pub(crate) const DEFAULT_FORWARDS: bool = true;
/// Of proxies.
pub(crate) const DEFAULT_PROGRAM: Program = Program::Ekiden;

pub(crate) fn is_default_profile(profile: &Profile) -> bool {
    *profile == DEFAULT_PROFILE
}

pub(crate) fn is_default_ecn(ecn: &bool) -> bool {
    *ecn == DEFAULT_ECN
}

pub(crate) fn is_default_separate(separate: &bool) -> bool {
    *separate == DEFAULT_SEPARATE
}

pub(crate) fn is_default_transparent(transparent: &bool) -> bool {
    *transparent == DEFAULT_TRANSPARENT
}

pub(crate) fn is_default_forwards(forwards: &bool) -> bool {
    *forwards == DEFAULT_FORWARDS
}

pub(crate) fn is_default_program(program: &Program) -> bool {
    *program == DEFAULT_PROGRAM
}
