//! The configuration file as it is written, with the description of each key. [`super::resolve`] checks it and puts in the
//! defaults.

use std::ops::RangeInclusive;

use ekiden_units::{Bytes, Time};
use indexmap::IndexMap;
use serde::Deserialize;
use serde_spanned::Spanned;

use super::keys::{Count, Key, Section, range, section};
pub use super::limits::RawLimits;

/// Worker threads.
pub const THREADS: RangeInclusive<Count> = Count(1)..=Count(256);

/// The default of `keepalive`.
pub const KEEPALIVE: Time = Time::secs(60);

pub const BUFFERS: RangeInclusive<Bytes> = Bytes::kib(4)..=Bytes::mib(1024);
pub const KEEPALIVES: RangeInclusive<Time> = Time::secs(1)..=Time::secs(9 * 3600);
pub const USER_TIMEOUTS: RangeInclusive<Time> = Time::secs(1)..=Time::secs(24 * 3600);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    pub name: Option<Spanned<String>>,
    pub key_file: Option<Spanned<String>>,
    pub threads: Option<Spanned<Count>>,
    pub tcp: Option<Spanned<RawTcp>>,
    pub congestion: Option<Spanned<RawCongestion>>,
    #[serde(default)]
    pub limits: RawLimits,
    #[serde(default)]
    pub listen: IndexMap<Spanned<String>, Spanned<RawListen>>,
    #[serde(default)]
    pub peer: IndexMap<Spanned<String>, Spanned<RawPeer>>,
    #[serde(default)]
    pub route: Vec<Spanned<RawRoute>>,
    #[serde(default)]
    pub exit: RawExit,
}

/// `[congestion.GROUP]`: numbers by group and parameter.
pub type RawCongestion = IndexMap<Spanned<String>, IndexMap<Spanned<String>, Spanned<f64>>>;

section! {
    #[derive(Default, Clone)]
    RawTcp: "[tcp]"
    /// Congestion control: the kernel's, or one of ekiden's own, which the node brings into the kernel. If it is not available and there is no fallback, the node does not start.
    congestion: Option<Spanned<String>> = "a name such as \"reno\"", default "the kernel's";
    /// One of the kernel's own, used instead, with a warning in the log.
    congestion_fallback: Option<Spanned<String>> = "a name";
    /// Setting it turns auto-tuning off. Beyond `net.core.wmem_max` it needs CAP_NET_ADMIN.
    send_buffer: Option<Spanned<Bytes>> = range(&BUFFERS), default "the kernel's auto-tuning";
    /// Setting it turns auto-tuning off. Beyond `net.core.rmem_max` it needs CAP_NET_ADMIN.
    receive_buffer: Option<Spanned<Bytes>> = range(&BUFFERS), default "the kernel's auto-tuning";
    /// After this much silence the other end is probed, then again after every sixth of it. A sixth of it also bounds the pauses between retransmissions.
    keepalive: Option<Spanned<Time>> = range(&KEEPALIVES), default KEEPALIVE;
    /// How long sent data may stay unacknowledged before the connection is broken (TCP_USER_TIMEOUT). It also breaks connections whose receiver is alive but reads nothing for this long.
    user_timeout: Option<Spanned<Time>> = range(&USER_TIMEOUTS), default "the kernel's";
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RawKind {
    Socks5,
    Http,
    Forward,
    Leg,
    Transparent,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RawReply {
    Early,
    Connected,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RawVersion {
    V1,
    V2,
}

section! {
    RawListen: "[listen.NAME]"
    /// What is spoken there.
    kind: RawKind = "\"socks5\", \"http\", \"forward\", \"leg\" or \"transparent\"";
    /// Where. `[::]:PORT` takes IPv4 too. A transparent listener has `127.0.0.1:PORT` or `[::1]:PORT`.
    address: Spanned<String> = "ip:port";
    /// Whether a socks5, http or forward listener without users may have an address that is not loopback.
    open: Option<bool> = "true or false", default "false";
    /// When the client is told that its destination is reached: at once, or when it is. Not of a leg listener.
    reply: Option<Spanned<RawReply>> = "\"connected\" or \"early\"", default "connected; early of forward and transparent";
    /// Of socks5 and http: hashes of passwords by user name, as `ekiden password` makes them.
    users: Option<Spanned<IndexMap<String, String>>> = "{ name = \"hash\" }";
    /// Of forward: where every connection goes.
    to: Option<Spanned<String>> = "host:port";
    /// Of forward: the nodes on the way, instead of what the routes say.
    via: Option<Spanned<Vec<Spanned<String>>>> = "[nodes]";
    /// Of forward: how the destination is told who the client is.
    proxy_protocol: Option<Spanned<RawVersion>> = "\"v1\" or \"v2\"";
    /// Connections from these networks begin with a PROXY protocol header, which says who the client is. Not of a leg listener.
    proxy_protocol_from: Option<Spanned<Vec<Spanned<String>>>> = "[networks]";
    /// Of leg: the nodes that may connect, each by the fingerprint of its key; without any, none.
    nodes: Option<Spanned<IndexMap<Spanned<String>, Spanned<String>>>> = "{ name = \"sha256:...\" }";
    /// Of leg, instead of `nodes`: every node that has the same key may connect, without encryption.
    plain_key_file: Option<Spanned<String>> = "a file, made by `ekiden keygen --shared`";
    /// Of transparent: the network interfaces by which its clients' connections come in.
    interfaces: Option<Spanned<Vec<Spanned<String>>>> = "[names]";
    /// Of transparent: whether the interfaces may come later than the node.
    late_interfaces: Option<Spanned<bool>> = "true or false", default "false";
    /// Of transparent: networks and ports, as in a route, that pass as if there were no node.
    except: Option<Spanned<Vec<Spanned<String>>>> = "[destinations]";
    /// Of transparent: whether this node connects itself when a node of the chain cannot be reached.
    bypass: Option<Spanned<bool>> = "true or false", default "false";
    /// TCP settings of the connections accepted here.
    tcp: Option<Spanned<RawTcp>> = "{ ... }", default "[tcp]";
}

section! {
    #[derive(Default)]
    RawExit: "[exit]"
    /// For clients in these networks whose connections a transparent listener has taken, the exit connects from the client's own address and port.
    client_addresses: Option<Vec<Spanned<String>>> = "[networks]";
    /// Destinations that it connects to although their addresses are not public, or are this host's own.
    allow: Option<Vec<Spanned<String>>> = "[destinations]";
}

section! {
    RawPeer: "[peer.NAME]"
    /// Where its leg listener is.
    address: Spanned<String> = "host:port";
    /// The fingerprint of its key. Without one it is dialled only to show which key it has.
    fingerprint: Option<Spanned<String>> = "\"sha256:...\"";
    /// Instead of `fingerprint`: the key that both share, for a leg without encryption.
    plain_key_file: Option<Spanned<String>> = "a file, made by `ekiden keygen --shared`";
    /// Idle connections to it that are made before a stream wants them, and kept.
    warm: Option<Spanned<Count>> = "0 to limits.pool", default "0";
    /// TCP settings of the connections to it.
    tcp: Option<Spanned<RawTcp>> = "{ ... }", default "[tcp]";
}

section! {
    RawRoute: "[[route]]"
    /// The first route that matches a destination decides: networks, names, `.domain` for a domain and all below it, `*` for everything, each with or without `:port`.
    to: Vec<Spanned<String>> = "[destinations]";
    /// The nodes on the way, in the order in which they are passed. The first is a peer.
    via: Option<Spanned<Vec<Spanned<String>>>> = "[nodes]";
    /// Instead of `via`: connect from here, or not at all. Without a matching route this node connects directly.
    action: Option<RawAction> = "\"direct\" or \"refuse\"";
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RawAction {
    Direct,
    Refuse,
}

/// Every key of a configuration, by section.
pub fn sections() -> Vec<Section> {
    let key = |name, values: String, default: &str, meaning| Key { name, values, default: default.into(), meaning };
    let top = vec![
        key("name", "a word".into(), "ekiden", "This node's name in the logs and errors of others."),
        key(
            "key_file",
            "a file, made by `ekiden keygen`".into(),
            "",
            "This node's own key. Relative to the configuration, and not readable by others. Needed with peers or a leg listener.",
        ),
        key("threads", range(&THREADS), "one per core", "Worker threads. SIGHUP does not change them."),
    ];
    let top = Section { name: "", keys: top };
    let [tcp, limits, exit] = [RawTcp::section(), RawLimits::section(), RawExit::section()];
    vec![top, tcp, limits, RawListen::section(), RawPeer::section(), RawRoute::section(), exit]
}
