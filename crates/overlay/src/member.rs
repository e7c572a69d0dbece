//! The nodes of an overlay, as a file or a registry names them.

use serde::{Deserialize, Serialize};

/// One node, as others see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Where its leg listener is: `host:port`.
    pub address: String,
    /// The fingerprint of its key, `sha256:` and 64 hexadecimal digits.
    pub fingerprint: String,
    /// Destinations for which it is the exit, as in a route: those that it is near.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub near: Vec<String>,
    /// Where it stands, as policies name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// What it costs to send through it, in any unit; of paths that are about as good, the cheaper is taken. From 0.
    #[serde(default, skip_serializing_if = "is_free")]
    pub price: f64,
    /// Whether it relays for others' destinations, beyond those that it is near.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub relays: bool,
}

fn yes() -> bool {
    true
}

fn is_free(price: &f64) -> bool {
    *price == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_has_its_default() {
        let member: Member = serde_json::from_str(r#"{"address":"192.0.2.1:7000","fingerprint":"sha256:00"}"#).unwrap();
        assert!(member.relays && member.near.is_empty() && member.price == 0.0);
        let again = serde_json::to_string(&member).unwrap();
        assert_eq!(again, r#"{"address":"192.0.2.1:7000","fingerprint":"sha256:00"}"#);
    }
}
