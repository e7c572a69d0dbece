//! The file as it is written: every key optional that has a default, nothing checked but types and names.

use std::fmt;
use std::ops::RangeInclusive;

use ekiden_units::{BitRate, Bytes, Fraction, ParseError, Time};
use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use serde_spanned::Spanned;

use crate::{Discipline, Fetch, FlowEnd, GatewayPolicy, NodeKind, ObservedFlow, Profile, Program, Queue};

pub(crate) type Named<T> = IndexMap<Spanned<String>, T>;

/// `[congestion.GROUP]`: numbers by group and parameter.
pub(crate) type RawCongestion = Named<Named<f64>>;

/// Of lines and of sources.
pub(crate) const RATES: RangeInclusive<BitRate> = BitRate(1_000)..=BitRate(1_000_000_000_000);

/// A rate as it is written. What no [`BitRate`] can be is refused with the range that a scenario has.
#[derive(Clone, Copy)]
pub(crate) struct RawRate(pub BitRate);

impl<'de> Deserialize<'de> for RawRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = RawRate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text in quotes, such as \"70Mbit/s\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<RawRate, E> {
                text.parse().map(RawRate).map_err(|error| match error {
                    ParseError::Range { .. } => {
                        E::custom(format_args!("'{text}' is out of range: {} to {}", RATES.start(), RATES.end()))
                    }
                    other => E::custom(other),
                })
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// A list of exactly two. Serde's own reader of arrays ignores what comes after the second.
fn pair<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[Spanned<String>; 2], D::Error> {
    let all = Vec::deserialize(deserializer)?;
    all.try_into().map_err(|all: Vec<_>| D::Error::invalid_length(all.len(), &"an array of length 2"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawScenario {
    pub name: Spanned<String>,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub seed: u64,
    #[serde(default)]
    pub tcp: RawTcp,
    pub congestion: Option<Spanned<RawCongestion>>,
    #[serde(default)]
    pub node: Named<RawNode>,
    #[serde(default)]
    pub link: Named<RawLink>,
    #[serde(default)]
    pub flow: Named<RawFlow>,
    #[serde(default)]
    pub tunnel: Named<RawTunnel>,
    #[serde(default)]
    pub gateway: Named<RawGateway>,
    #[serde(default)]
    pub background: Named<RawBackground>,
    #[serde(default)]
    pub ping: Named<RawPing>,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawNode {
    pub kind: Option<NodeKind>,
    pub copies: Option<Spanned<u32>>,
    #[serde(default)]
    pub next: Vec<Spanned<String>>,
    pub forwards: Option<Spanned<bool>>,
    pub program: Option<Spanned<Program>>,
    #[serde(default)]
    pub tcp: RawTcp,
}

#[derive(Deserialize, Default, Clone)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTcp {
    pub profile: Option<Profile>,
    pub congestion: Option<Spanned<String>>,
    pub send_buffer: Option<Spanned<Bytes>>,
    pub receive_buffer: Option<Spanned<Bytes>>,
    pub sack: Option<bool>,
    pub ecn: Option<bool>,
    pub timestamps: Option<bool>,
    pub window_scaling: Option<bool>,
    pub initial_window: Option<Spanned<u32>>,
    pub initial_ssthresh: Option<Spanned<Bytes>>,
    pub rto_min: Option<Spanned<Time>>,
    pub rtt_per_window: Option<bool>,
}

/// Defines a link and its directions by the keys of a direction, which a link may have for both.
macro_rules! link {
    ($($key:ident: $type:ty,)+) => {
        #[derive(Deserialize, Clone)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct RawLink {
            #[serde(deserialize_with = "pair")]
            pub ends: [Spanned<String>; 2],
            $(pub $key: Option<$type>,)+
            pub forth: Option<RawDirection>,
            pub back: Option<RawDirection>,
            pub mtu: Option<Spanned<u32>>,
        }

        #[derive(Deserialize, Default, Clone)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct RawDirection {
            $(pub $key: Option<$type>,)+
        }

        impl RawLink {
            /// The keys of both directions, each with those that it shares with the other one.
            pub fn directions(self) -> [RawDirection; 2] {
                let both = RawDirection { $($key: self.$key,)+ };
                [self.forth, self.back].map(|own| own.unwrap_or_default().or(both.clone()))
            }
        }

        impl RawDirection {
            /// With the other's values for keys that it has not.
            fn or(self, other: Self) -> Self {
                Self { $($key: self.$key.or(other.$key),)+ }
            }
        }
    };
}

link! {
    rate: Spanned<RawRate>,
    delay: Spanned<Time>,
    jitter: Spanned<Time>,
    queue: Spanned<Queue>,
    discipline: Discipline,
    policer: RawPolicer,
    loss: Spanned<Fraction>,
    loss_burst: Spanned<u32>,
    reorder: Spanned<Fraction>,
    reorder_by: Spanned<Time>,
    changes: Vec<Spanned<RawChange>>,
    outages: Vec<Spanned<RawOutage>>,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawChange {
    pub at: Spanned<Time>,
    pub rate: Option<Spanned<RawRate>>,
    pub delay: Option<Spanned<Time>>,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawOutage {
    pub at: Spanned<Time>,
    pub lasts: Spanned<Time>,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawPolicer {
    pub rate: Spanned<RawRate>,
    pub burst: Option<Spanned<Bytes>>,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFlow {
    pub from: Spanned<String>,
    pub to: Spanned<String>,
    pub bytes: Option<Spanned<Bytes>>,
    pub duration: Option<Spanned<Time>>,
    pub file: Option<Spanned<Bytes>>,
    pub end: Option<Spanned<FlowEnd>>,
    pub start: Option<Spanned<Time>>,
    #[serde(default)]
    pub via: Vec<Spanned<String>>,
    pub fetch: Option<Spanned<Fetch>>,
    pub transparent: Option<Spanned<bool>>,
    pub parallel: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTunnel {
    #[serde(deserialize_with = "pair")]
    pub ends: [Spanned<String>; 2],
    pub connections: Option<Spanned<u32>>,
    pub separate: Option<bool>,
    pub queue: Option<Spanned<Queue>>,
    pub discipline: Option<Spanned<Discipline>>,
    pub target: Option<Spanned<Time>>,
    pub interval: Option<Spanned<Time>>,
    pub unsent: Option<Spanned<Bytes>>,
    pub paced: Option<Spanned<bool>>,
    #[serde(default)]
    pub tcp: RawTcp,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawGateway {
    pub node: Spanned<String>,
    pub flows: Vec<Spanned<String>>,
    pub repeats: Option<Spanned<u32>>,
    pub part: Option<Spanned<Fraction>>,
    pub observes: Option<Spanned<ObservedFlow>>,
    pub policy: Option<GatewayPolicy>,
    pub enabled: Option<bool>,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawBackground {
    pub from: Spanned<String>,
    pub to: Spanned<String>,
    pub rate: Spanned<RawRate>,
    pub packet: Option<Spanned<Bytes>>,
    pub start: Option<Spanned<Time>>,
    pub duration: Option<Spanned<Time>>,
    pub on: Option<Spanned<Time>>,
    pub off: Option<Spanned<Time>>,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawPing {
    pub from: Spanned<String>,
    pub to: Spanned<String>,
    pub interval: Option<Spanned<Time>>,
    pub start: Option<Spanned<Time>>,
}
