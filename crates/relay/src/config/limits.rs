//! `[limits]`: each key once, with its range, its default and its meaning.

use std::ops::{Range, RangeInclusive};

use ekiden_units::{BitRate, Bytes, Time};
use serde::Deserialize;
use serde_spanned::Spanned;

use crate::access::bandwidth;
use crate::access::quota::Allowance;
use ekiden_config::{Count, Key, Quantity, Section, Shape, range};

/// The upper end of every range of times.
const DAY: Time = Time::secs(86_400);

/// A value that is not in its range: its place in the file, and the error.
pub type OutOfRange = (Range<usize>, String);

/// Defines `[limits]`. A key with the default `none` limits nothing unless it is set. `or KEY` makes the value of another key the
/// default, if that key is set.
macro_rules! limits {
    (@type $kind:ty, none) => { Option<<$kind as Quantity>::Value> };
    (@type $kind:ty, $default:expr) => { <$kind as Quantity>::Value };
    (@resolve $raw:expr, none) => { $raw.map(Quantity::value) };
    (@resolve $raw:expr, $default:expr) => { $raw.unwrap_or($default).value() };
    (@default none) => { String::new() };
    (@default $default:expr) => { $default.shown() };
    (@written $kind:ty, $value:expr, none) => { $value.as_ref().map(<$kind as Quantity>::written) };
    (@written $kind:ty, $value:expr, $default:expr) => { Some(<$kind as Quantity>::written(&$value)) };
    ($(#[doc = $help:literal] $key:ident: $kind:ty = $default:tt $(or $other:ident)?, $range:expr;)+) => {
        /// `[limits]` as it is written.
        #[derive(Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct RawLimits {
            $(pub $key: Option<Spanned<$kind>>,)+
        }

        /// Limits on what clients and other nodes can make this node hold or do. Each is one key in `[limits]`.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Limits {
            $(#[doc = $help] pub $key: limits!(@type $kind, $default),)+
            /// Whether the configuration sets `client_connections`. If not, one client may also have no more than half of the
            /// connections that the open-file limit allows.
            pub limits_clients: bool,
        }

        impl RawLimits {
            pub fn resolve(&self) -> Result<Limits, OutOfRange> {
                Ok(Limits {
                    $($key: limits!(
                        @resolve within(&self.$key, stringify!($key), $range)?$(.or(set(&self.$other)))?,
                        $default
                    ),)+
                    limits_clients: self.client_connections.is_some(),
                })
            }

            /// Its keys.
            pub fn section() -> Section {
                let keys = vec![$(Key {
                    name: stringify!($key),
                    values: range(&$range),
                    default: limits!(@default $default) $(+ concat!(", or `", stringify!($other), "` if that is set"))?,
                    meaning: $help.trim_ascii(),
                    shape: <$kind as Shape>::shape(),
                    is_required: false,
                }),+];
                Section { name: "[limits]".into(), keys }
            }
        }

        impl Limits {
            /// Each limit in force, with its value as text for the file.
            pub fn written(&self) -> impl Iterator<Item = (&'static str, String)> {
                let all = [$((stringify!($key), limits!(@written $kind, self.$key, $default))),+];
                all.into_iter().filter_map(|(key, value)| Some((key, value?)))
            }
        }
    };
}

limits! {
    /// Accepted connections at one time, or as many as the open-file limit allows. Each counts until its stream has been delivered. For more, idle connections of other nodes are closed; else they wait in the kernel's queue.
    connections: Count = (Count(16_384)), Count(1)..=Count(1_000_000);
    /// How many of these one client's address may have. An IPv6 /64 network counts as one address.
    client_connections: Count = (Count(4096)), Count(1)..=Count(1_000_000);
    /// New connections per second of one client's address, and as many at once.
    client_rate: Count = (Count(1000)), Count(1)..=Count(1_000_000);
    // Programs on this machine may connect faster. Whoever sets `client_rate` alone may want to limit them too.
    /// The same for clients at a loopback address.
    loopback_rate: Count = (Count(1_000_000)) or client_rate, Count(1)..=Count(1_000_000);
    /// What all streams together that begin here for one client's address may receive, and what they may send.
    client_bandwidth: BitRate = none, BitRate(64_000)..=BitRate(1_000_000_000_000);
    /// Connections at one time of each user, where a listener has `users`.
    user_connections: Count = (Count(4096)), Count(1)..=Count(1_000_000);
    /// New connections per second of each user, and as many at once.
    user_rate: Count = (Count(1000)), Count(1)..=Count(1_000_000);
    /// As `client_bandwidth`, of each user.
    user_bandwidth: BitRate = none, BitRate(64_000)..=BitRate(1_000_000_000_000);
    /// When streams, and whoever has not proven a key, together hold this many bytes that nobody has taken, nothing new begins.
    memory: Bytes = (Bytes::mib(1024)), Bytes::mib(1)..=Bytes::mib(1 << 20);
    /// For everything a client or node says before its request is known, and for its password to be checked.
    handshake: Time = (Time::secs(10)), Time::ms(1)..=DAY;
    /// To reach a destination or a node, its name's lookup and all its addresses included.
    connect: Time = (Time::secs(10)), Time::ms(1)..=DAY;
    /// How long an HTTP request may stand still. Before its response begins the client gets 504; after the response the connections are closed.
    response: Time = (Time::secs(300)), Time::ms(1)..=DAY;
    /// A stream is reset when its receivers have taken nothing for this long, in either direction. It may be a quarter late.
    idle: Time = none, Time::ms(1)..=DAY;
    /// How long a stream may run; then it is reset.
    lifetime: Time = none, Time::ms(1)..=DAY;
    /// How long streams may still run after SIGTERM, until their hosts have taken all. The node ends as soon as none is left.
    drain: Time = (Time::secs(3600)), Time::ms(0)..=DAY;
    /// Bytes of an HTTP message's head. A longer one of a client gets 431, of an origin 502.
    http_head_size: Bytes = (Bytes::kib(64)), Bytes::kib(1)..=Bytes::mib(1);
    /// Header fields of an HTTP message. More get the same answers.
    http_fields: Count = (Count(128)), Count(8)..=Count(1000);
    /// The most warm connections kept to each peer.
    pool: Count = (Count(64)), Count(0)..=Count(1000);
    /// How long an unused warm connection is kept, beyond the peer's `warm` ones. Also how long a client's idle HTTP connection is kept.
    pool_idle: Time = (Time::secs(60)), Time::ms(1)..=DAY;
}

impl Limits {
    /// What each user is allowed, on all listeners with users together.
    pub fn user(&self) -> Allowance {
        Allowance { open: self.user_connections, rate: self.user_rate }
    }
}

impl From<&Limits> for bandwidth::Limits {
    fn from(limits: &Limits) -> Self {
        Self { client: limits.client_bandwidth, user: limits.user_bandwidth }
    }
}

fn within<Q: Quantity>(
    raw: &Option<Spanned<Q>>,
    key: &str,
    allowed: RangeInclusive<Q>,
) -> Result<Option<Q>, OutOfRange> {
    match raw {
        Some(value) if !allowed.contains(value.get_ref()) => {
            let message = format!("limits.{key} must be from {}", range(&allowed));
            Err((value.span(), message))
        }
        value => Ok(set(value)),
    }
}

fn set<Q: Quantity>(raw: &Option<Spanned<Q>>) -> Option<Q> {
    raw.as_ref().map(|value| *value.get_ref())
}

impl From<&Limits> for ekiden_stream::expiry::Limits {
    fn from(limits: &Limits) -> Self {
        Self { idle: limits.idle, lifetime: limits.lifetime }
    }
}
