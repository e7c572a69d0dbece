//! The configuration file as it is written, with the description of each key. [`super::resolve`] checks it and puts in the defaults.

use std::ops::RangeInclusive;

use crate::kernel::{Idle, Settings};
use ekiden_config::{Count, Ports, Section, range, section, words};
use ekiden_units::{Fraction, Time};
use ekiden_window_balance::BalanceSettings;
use indexmap::IndexMap;
use serde_spanned::Spanned;

/// The kernel's tables are made whole at the start.
pub const STREAMS: RangeInclusive<Count> = Count(1)..=Count(10_000_000);
/// The kernel's clock for this wraps after 19 hours.
pub const IDLE: RangeInclusive<Time> = Time::secs(60)..=Time::secs(19 * 3600);
/// Until a process comes that lets streams lose their places.
pub const RESTART_WITHIN: RangeInclusive<Time> = Time::ms(0)..=Time::secs(3600);
/// As a scenario's.
pub const PARTS: RangeInclusive<Fraction> = Fraction(1)..=Fraction::ONE;
pub const REPEATS: RangeInclusive<Count> = Count(1)..=Count(100_000);
/// Its clock wraps after 71 minutes.
pub const HOLD: RangeInclusive<Time> = Time::secs(1)..=Time::secs(3600);
/// From 0, with which every stream takes part.
pub const SHORTEST_RTT: RangeInclusive<Time> = Time::ms(0)..=Time::secs(10);
/// RFC 7323, section 2.3.
pub const SCALES: RangeInclusive<Count> = Count(0)..=Count(14);

section! {
    Raw: ""
    /// The network device where the wide area network begins.
    device: Spanned<String> = "a device";
    /// How many streams of IPv4 there is room for; 100,000 take about 16.5 MB.
    ipv4_streams: Count = range(&STREAMS), default Count(Settings::default().streams4.into());
    /// And of IPv6; 100,000 take about 19 MB.
    ipv6_streams: Count = range(&STREAMS), default Count(Settings::default().streams6.into());
    /// A stream without packets for this long loses its place.
    idle: Time = range(&IDLE), default Time::from(Idle::default().open);
    /// How long its programs go on without the process; with `"0s"` they end with it. Needs tcx.
    restart_within: Time = range(&RESTART_WITHIN), default Time::ms(0);
    tables {
        group: IndexMap<Spanned<String>, Spanned<RawGroup>> = [RawGroup::section()];
    }
}

words! {
    RawPolicy {
        Delivered = "delivered",
        Paper = "paper",
    }
}

words! {
    RawObserved {
        Acknowledged = "acknowledged",
        Sent = "sent",
    }
}

section! {
    RawGroup: "[group.NAME]"
    /// Networks, or hosts, that send data.
    sources: Spanned<Vec<Spanned<String>>> = "[networks], one at least";
    /// Networks, or hosts, that receive it.
    destinations: Option<Spanned<Vec<Spanned<String>>>> = "[networks]", unset "all";
    /// A port of the senders, or a range of them.
    source_ports: Option<Spanned<Ports>> = "a port, or \"5000-6000\"", unset "all";
    /// The same of the receivers.
    destination_ports: Option<Spanned<Ports>> = "a port, or \"5000-6000\"", unset "all";
    /// Which rule throttles the group; `paper`, that of the paper S2, is for experiments.
    policy: Option<RawPolicy> = RawPolicy::values(), unset "delivered";
    /// Repetitions of one ACK number that throttle the group; with `delivered` only those of receivers without SACK.
    repeats: Count = range(&REPEATS), default Count(BalanceSettings::default().repeats.into());
    /// Of `paper`: what is left of the flow while throttled.
    part: Option<Spanned<Fraction>> = "above 0 to 100%", unset "80%";
    /// Of `paper`: the flow is what is acknowledged in a round trip, or what is sent in one.
    observes: Option<Spanned<RawObserved>> = RawObserved::values(), unset "acknowledged";
    /// With `paper` throttling ends after so long without a repetition; with `delivered` a stream that is idle for longer loses its limit.
    hold: Time = range(&HOLD), default Time::from(BalanceSettings::default().hold);
    /// Streams with a shorter round trip between gateway and receiver are left alone.
    shortest_rtt: Time = range(&SHORTEST_RTT), default Time::from(BalanceSettings::default().shortest_rtt);
    /// The shift of the windows of streams whose handshake was not seen.
    assumed_scale: Option<Spanned<Count>> = range(&SCALES);
}

/// Where an unknown key, in `[group.NAME]` or above all groups, would be known.
pub fn right_place(key: &str, is_in_group: bool) -> Option<&'static str> {
    let has = |section: Section| section.keys.iter().any(|known| known.name == key);
    match is_in_group {
        true => has(Raw::section()).then_some("it belongs above the first [group.…]"),
        false => has(RawGroup::section()).then_some("it belongs into [group.NAME]"),
    }
}

/// Every key of a configuration, by section.
pub fn sections() -> Vec<Section> {
    Raw::sections()
}
