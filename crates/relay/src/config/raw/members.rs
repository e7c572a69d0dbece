//! A members file as it is written.

use ekiden_config::{Section, section};
use indexmap::IndexMap;
use serde_spanned::Spanned;

/// A members file.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawMembers {
    #[serde(default)]
    pub node: IndexMap<Spanned<String>, Spanned<RawMember>>,
}

section! {
    RawMember: "[node.NAME]"
    /// Where other nodes reach its leg listener.
    address: Spanned<String> = "host:port";
    /// The fingerprint of its key.
    fingerprint: Spanned<String> = "\"sha256:...\"";
    /// Destinations for which it is the exit, as in a route: those that it is near.
    near: Option<Vec<Spanned<String>>> = "[destinations]", unset "none";
    /// Where it stands, as `regions` of a route name it.
    region: Option<Spanned<String>> = "a name", unset "none";
    /// Where that is on the earth, for maps.
    at: Option<Spanned<String>> = "\"latitude,longitude\" in degrees", unset "none";
    /// What it costs to send through it, in any unit. Of paths that are about as good, the cheaper is taken.
    price: f64 = "0 to 1000000000", default 0.0;
    /// Whether it relays for others' destinations, beyond those that it is near.
    relays: bool = "true or false", default true;
}

/// Every key of a members file, by section.
pub fn member_sections() -> Vec<Section> {
    vec![RawMember::section()]
}
