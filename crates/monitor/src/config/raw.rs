//! The configuration file as it is written, with the description of each key. [`super::resolve`] checks it and puts in the defaults.

use std::ops::RangeInclusive;

use ekiden_config::{Count, Section, range, section};
use ekiden_units::{Bytes, Time};
use indexmap::IndexMap;
use serde_spanned::Spanned;

use super::Direction;

/// A measurement takes seconds, and its server serves others too.
pub const INTERVALS: RangeInclusive<Time> = Time::secs(10)..=Time::secs(7 * 86_400);
/// A day at least: the picture is by hour of day.
pub const KEEP: RangeInclusive<Time> = Time::secs(86_400)..=Time::secs(100 * 365 * 86_400);
pub const BYTES: RangeInclusive<Bytes> = Bytes(1000)..=Bytes(1_000_000_000_000);
pub const DURATIONS: RangeInclusive<Time> = Time::ms(100)..=Time::secs(3600);
pub const STREAMS: RangeInclusive<Count> = Count(1)..=Count(128);

section! {
    Raw: ""
    /// The time between two rounds.
    interval: Time = range(&INTERVALS), default Time::secs(1800);
    /// When in each interval its round begins.
    offset: Option<Spanned<String>> = "\"random\", or a time such as \"5min\"", unset "random";
    /// The file that measurements are kept in.
    history: Spanned<String> = "a file";
    /// How long measurements are kept.
    keep: Option<Spanned<Time>> = "24h or more", unset "for ever";
    /// A text file of the last values, written after each round.
    prometheus: Option<Spanned<String>> = "a file";
    /// Our key, for a `server`.
    key_file: Option<Spanned<String>> = "a file, made by `ekiden keygen`";
    tables {
        target: IndexMap<Spanned<String>, Spanned<RawTarget>> = [RawTarget::section()];
    }
}

section! {
    RawTarget: "[target.NAME]"
    /// A plain iperf3 server.
    iperf3: Option<Spanned<String>> = "host or host:port";
    /// A measuring server of ekiden, instead of `iperf3`.
    server: Option<Spanned<String>> = "host:port";
    /// Of the key of that `server`.
    fingerprint: Option<Spanned<String>> = "\"sha256:...\"";
    /// The SOCKS5 listener of a node that the connections go through.
    via: Option<Spanned<String>> = "host:port";
    /// `receive`: a download from the server; `send`: an upload.
    direction: Direction = Direction::values(), default Direction::Receive, shown "receive";
    /// A measurement ends when it has moved this much payload.
    bytes: Bytes = "1 kB to 1 TB", default Bytes(100_000_000);
    /// Or after this time.
    duration: Time = range(&DURATIONS), default Time::secs(10);
    /// Connections.
    streams: Count = range(&STREAMS), default Count(1);
}

/// Every key of a configuration, by section.
pub fn sections() -> Vec<Section> {
    Raw::sections()
}
