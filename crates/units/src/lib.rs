//! Quantities with their units, [`Bytes`], [`BitRate`], [`Time`] and [`Fraction`]; hosts with their ports, [`HostPort`]; and
//! [`network`]s.
//!
//! All four quantities are written the same way in scenario files, node configurations and flags — a number
//! and a unit, such as `64KiB`, `70Mbit/s`, `12.5ms`, `0.1%` — and printed so that they parse back
//! to the same value. Prefixes follow the SI brochure and IEC 80000-13: `k`/`K`, `M`, `G` are powers of
//! 1000, `Ki`, `Mi`, `Gi` powers of 1024.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod address;
mod network;
mod parse;
mod quantity;

pub use address::{AddressError, HostPort, HostText};
pub use network::{NetworkError, network};
pub use parse::ParseError;
pub use quantity::{BitRate, Bytes, Fraction, Time};
