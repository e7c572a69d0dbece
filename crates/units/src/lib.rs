//! Quantities with their units, [`Bytes`], [`BitRate`], [`Time`] and [`Fraction`]; hosts with their ports, [`HostPort`];
//! [`network()`]s; what a [`path`] may be; numbers that look random, [`random`]; and values at a place in the order of their size,
//! [`quantile`].
//!
//! All four quantities are written the same way in scenario files, node configurations and flags — a number
//! and a unit, such as `64KiB`, `70Mbit/s`, `12.5ms`, `0.1%` — and printed so that they parse back
//! to the same value. Prefixes follow the SI brochure and IEC 80000-13: `k`/`K`, `M`, `G` are powers of
//! 1000, `Ki`, `Mi`, `Gi` powers of 1024.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod address;
mod network;
mod parse;
pub mod path;
pub mod quantile;
mod quantity;
pub mod random;

pub use address::{AddressError, HostPort, HostText, without_dot};
pub use network::{NetworkError, network};
pub use parse::ParseError;
pub use quantity::{BitRate, Bytes, Fraction, Time};

/// Whether a character is none that is seen, but one that says how others are shown, such as the direction of writing: in what another
/// has written it can make a line look like another one.
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        // Fillers, variation selectors and tags.
        || matches!(c, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0000}'..='\u{e0fff}')
}

/// The longest name of a node, in bytes.
pub const NODE_NAME_MOST: usize = 64;

/// Whether a text can be the name of a node, a class, an overlay, a gateway's group or a monitor's target: 1 to [`NODE_NAME_MOST`] ASCII
/// letters, digits, `-`, `_` and `.`.
pub fn is_node_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=NODE_NAME_MOST).contains(&name.len()) && name.bytes().all(allowed)
}

/// Whether a text can be the name of a congestion control: Linux has 15 bytes for it (`TCP_CA_NAME_MAX`), and nobody uses others than these.
pub fn is_control_name(name: &str) -> bool {
    (1..=15).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}
