//! The configuration file as it is written, with the description of each key. [`super::resolve`] checks it and puts in the defaults.

use std::ops::RangeInclusive;

use ekiden_bpf::named::{RawCongestion, sections as congestion_sections};
use ekiden_config::{Count, Ports, Section, range, section, words};
use ekiden_queue::Pull;
use ekiden_units::{BitRate, Bytes, Time};
use indexmap::IndexMap;
use serde_spanned::Spanned;

use crate::frame::KEEPALIVE_MOST;
use crate::protocol::Protocol;

/// The least that IPv6 wants (RFC 8200, section 5), and the most that a frame holds.
pub const MTUS: RangeInclusive<Count> = Count(1280)..=Count(65_535);
pub const BUFFERS: RangeInclusive<Bytes> = Bytes::kib(4)..=Bytes::mib(1024);
pub const PACING: RangeInclusive<BitRate> = BitRate(8_000)..=BitRate(16_000_000_000);
pub const KEEPALIVES: RangeInclusive<Time> = Time::secs(1)..=Time::secs(KEEPALIVE_MOST.as_secs());
/// Those of a peer's classes among them.
pub const CONNECTIONS: RangeInclusive<Count> =
    Count(*Pull::CONNECTIONS.start() as i64)..=Count(*Pull::CONNECTIONS.end() as i64);

section! {
    Raw: ""
    /// This node's name in the peer's log; on plain connections the one by which the peer knows it.
    name: String = "a word", default "ekiden".to_owned();
    /// This node's key. Relative to the configuration, and not readable by others; not needed if all connections are plain.
    key_file: Option<Spanned<String>> = "a file, made by `ekiden keygen`";
    /// After this much silence an end sends a keep-alive. It gives a connection up when the other end is silent, or acknowledges nothing, for four times the longer value of both ends.
    keepalive: Time = range(&KEEPALIVES), default Time::secs(10);
    tables {
        device: Option<Spanned<RawDevice>> = [RawDevice::section()];
        listen: Option<Spanned<RawListen>> = [RawListen::section()];
        tcp: RawTcp = [RawTcp::section()];
        congestion: Option<Spanned<RawCongestion>> = congestion_sections();
        queue: RawQueue = [RawQueue::section()];
        peer: IndexMap<Spanned<String>, Spanned<RawPeer>> = [RawPeer::section(), RawClass::section()];
    }
}

section! {
    RawDevice: "[device]"
    /// Of the network device, which ekiden makes.
    name: String = "up to 15 characters", default "ekiden0".to_owned();
    /// Its addresses, each with the length of the network around it (without, it is the address alone); no peer's own address is in these networks.
    addresses: Vec<Spanned<String>> = "[addresses], one at least";
    /// The longest packet, in bytes; the same at both ends.
    mtu: Count = range(&MTUS), default Count(1500);
    /// Whether the device takes super-packets, where the kernel can.
    offload: bool = "true or false", default true;
}

section! {
    RawListen: "[listen]"
    /// Where peers connect. Without this table this node connects to all of them.
    address: Spanned<String> = "ip:port";
    /// The key that peers share with this node: then all that connect are plain.
    plain_key_file: Option<Spanned<String>> = "a file, made by `ekiden keygen --shared`";
}

section! {
    #[derive(Default)]
    RawTcp: "[tcp]"
    /// Congestion control of the connections: one that the kernel has, or one of ekiden's own, which the tunnel loads into the kernel while it runs.
    congestion: Option<Spanned<String>> = "a name", unset "the kernel's";
    /// The most that each connection sends.
    pacing: Option<Spanned<BitRate>> = range(&PACING);
    /// Setting it turns auto-tuning off.
    send_buffer: Option<Spanned<Bytes>> = range(&BUFFERS), unset "the kernel's auto-tuning";
    /// Setting it turns auto-tuning off.
    receive_buffer: Option<Spanned<Bytes>> = range(&BUFFERS), unset "the kernel's auto-tuning";
}

words! {
    RawDiscipline {
        FqCodel = "fq_codel",
        DropTail = "drop_tail",
    }
}

section! {
    #[derive(Default)]
    RawQueue: "[queue]"
    /// A queue for each flow; or one queue, from which packets go while the socket takes them.
    discipline: RawDiscipline = RawDiscipline::values(), default RawDiscipline::FqCodel, shown "fq_codel";
    /// What waits for each connection at most.
    limit: Bytes = range(&Pull::LIMITS), default Pull::LIMIT;
    /// Of `fq_codel`: the delay that may stay in the queue.
    target: Time = range(&Pull::DELAYS), default Pull::default().target;
    /// Of `fq_codel`: how long the delay must have been longer before packets are dropped. No shorter than `target`.
    interval: Time = range(&Pull::DELAYS), default Pull::default().interval;
    /// Of `fq_codel`: packets wait while the connection has this many bytes that it has not sent; on a fast path more, what is sent in 2 ms.
    unsent: Bytes = range(&Pull::UNSENT), default Pull::default().unsent;
    /// Of `fq_codel`: whether the tunnel holds the rate of its connections so that the path's own queue stays short.
    paced: bool = "true or false", default Pull::default().paced;
}

section! {
    RawPeer: "[peer.NAME]"
    /// Where the peer listens; without it, it connects to this node.
    address: Option<Spanned<String>> = "host:port";
    /// Of its key.
    fingerprint: Option<Spanned<String>> = "\"sha256:...\"";
    /// Instead of `fingerprint`: the key that both share, for connections without encryption.
    plain_key_file: Option<Spanned<String>> = "a file, made by `ekiden keygen --shared`";
    /// The networks that it has: they are routed to it, and packets from elsewhere are dropped. No two overlap.
    allowed: Spanned<Vec<Spanned<String>>> = "[networks], one at least";
    /// TCP connections to it; a flow stays on one. With those of its classes 64 at most, and as many as at the other end.
    connections: Count = range(&CONNECTIONS), default Count(1);
    /// The HTTP proxy by which it is reached.
    http_proxy: Option<Spanned<String>> = "host:port";
    /// Whom the proxy takes this node for.
    http_proxy_user: Option<Spanned<String>> = "a name";
    /// A file with that user's password on one line, not readable by others.
    http_proxy_password_file: Option<Spanned<String>> = "a file";
    tables {
        class: Vec<Spanned<RawClass>> = [RawClass::section()];
    }
}

section! {
    RawClass: "[[peer.NAME.class]]"
    /// Its name in the status.
    name: Spanned<String> = "a word";
    /// Only packets of this protocol. A class has this or `ports`.
    protocol: Option<Protocol> = Protocol::values(), unset "any";
    /// Only packets from or to one of these ports.
    ports: Option<Vec<Spanned<Ports>>> = "[ports], such as [443, \"6000-6100\"]", unset "any";
    /// TCP connections of its own.
    connections: Count = range(&CONNECTIONS), default Count(1);
}

/// Every key of a configuration, by section.
pub fn sections() -> Vec<Section> {
    Raw::sections()
}
