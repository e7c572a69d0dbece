//! The configuration file as it is written, with the description of each key. [`super::resolve`] checks it and puts in the
//! defaults.

pub mod members;

use std::ops::RangeInclusive;

use ekiden_bpf::named::{RawCongestion, sections as congestion_sections};
use ekiden_relay_proto::proxy_protocol::Version;
use ekiden_units::{BitRate, Bytes, Time};
use indexmap::IndexMap;
use serde_spanned::Spanned;

use super::Reply;
pub use super::limits::RawLimits;
use ekiden_config::{Count, Section, Shape, range, section, words};

/// Worker threads.
pub const THREADS: RangeInclusive<Count> = Count(1)..=Count(256);

pub const BUFFERS: RangeInclusive<Bytes> = Bytes::kib(4)..=Bytes::mib(1024);
/// Nodes in between on a path that is chosen.
pub const RELAYS: RangeInclusive<Count> = Count(0)..=Count(2);
/// How long a node is a member that is not heard of.
pub const LEASES: RangeInclusive<Time> = Time::secs(2)..=Time::secs(3600);
/// The weight of a service class.
pub const WEIGHTS: RangeInclusive<Count> = Count(1)..=Count(1000);
/// Ceilings and floors of service classes.
pub const CLASS_RATES: RangeInclusive<BitRate> = BitRate(16_000)..=BitRate(1_000_000_000_000);
/// Streams of a service class at a time.
pub const CLASS_STREAMS: RangeInclusive<Count> = Count(1)..=Count(1_000_000);
/// How long a stream waits for its turn.
pub const CLASS_WAITS: RangeInclusive<Time> = Time::ms(1)..=Time::secs(3600);
pub const KEEPALIVES: RangeInclusive<Time> = Time::secs(1)..=Time::secs(9 * 3600);
pub const USER_TIMEOUTS: RangeInclusive<Time> = Time::secs(1)..=Time::secs(24 * 3600);

section! {
    Raw: ""
    /// This node's name in the logs and errors of others.
    name: String = "a word", default "ekiden".to_owned();
    /// This node's own key. Relative to the configuration, and not readable by others. Needed with peers or a leg listener.
    key_file: Option<Spanned<String>> = "a file, made by `ekiden keygen`";
    /// Whether lines of the log about streams that failed name the client's address and the destination. Lines about clients that were refused always do.
    log_addresses: bool = "true or false", default true;
    /// Worker threads. SIGHUP does not change them.
    threads: Count = range(&THREADS), default one_per_core(), shown "one per core";
    tables {
        tcp: Option<Spanned<RawTcp>> = [RawTcp::section()];
        congestion: Option<Spanned<RawCongestion>> = congestion_sections();
        limits: RawLimits = [RawLimits::section()];
        listen: IndexMap<Spanned<String>, Spanned<RawListen>> = [RawListen::section(), RawTls::section()];
        peer: IndexMap<Spanned<String>, Spanned<RawPeer>> = [RawPeer::section()];
        route: Vec<Spanned<RawRoute>> = [RawRoute::section()];
        class: IndexMap<Spanned<String>, Spanned<RawClass>> = [RawClass::section()];
        exit: RawExit = [RawExit::section()];
        overlay: Option<Spanned<RawOverlay>> = RawOverlay::sections();
    }
}

section! {
    #[derive(Default, Clone)]
    RawTcp: "[tcp]"
    /// Congestion control: the kernel's, or one of ekiden's own, which the node loads into the kernel. With `auto` legs have `ekiden_far`, where this host can have it, and all other connections have the kernel's. With `kernel` it is by the route, or the host's default. If one that is named is not available and there is no fallback, the node does not start.
    congestion: Option<Spanned<String>> = "\"auto\", \"kernel\", or a name such as \"reno\"", unset "auto";
    /// One of the kernel's own, used instead, with a warning in the log.
    congestion_fallback: Option<Spanned<String>> = "a name";
    /// Setting it turns auto-tuning off. Beyond `net.core.wmem_max` it needs CAP_NET_ADMIN.
    send_buffer: Option<Spanned<Bytes>> = range(&BUFFERS), unset "the kernel's auto-tuning";
    /// Setting it turns auto-tuning off. Beyond `net.core.rmem_max` it needs CAP_NET_ADMIN.
    receive_buffer: Option<Spanned<Bytes>> = range(&BUFFERS), unset "the kernel's auto-tuning";
    /// After this much silence the other end is probed, then again after every sixth of it. A sixth of it also bounds the pauses between retransmissions.
    keepalive: Time = range(&KEEPALIVES), default Time::secs(60);
    /// How long sent data may stay unacknowledged before the connection is broken (TCP_USER_TIMEOUT). It also breaks connections whose receiver is alive but reads nothing for this long.
    user_timeout: Option<Spanned<Time>> = range(&USER_TIMEOUTS), unset "the kernel's";
}

words! {
    /// What a listener takes.
    RawKind {
        Socks5 = "socks5",
        Http = "http",
        Mixed = "mixed",
        Forward = "forward",
        Leg = "leg",
        Transparent = "transparent",
    }
}

words! {
    RawVersion {
        V1 = "v1",
        V2 = "v2",
    }
}

section! {
    RawListen: "[listen.NAME]"
    /// What is spoken there.
    kind: RawKind = RawKind::values();
    /// Where. `[::]:PORT` takes IPv4 too. A transparent listener has `127.0.0.1:PORT` or `[::1]:PORT`.
    address: Spanned<String> = "ip:port";
    /// Whether a socks5, http, mixed or forward listener without users may have an address that is not loopback.
    open: bool = "true or false", default false;
    /// When the client is told that its destination is reached: at once, or when it is. Not of a leg listener.
    reply: Option<Spanned<Reply>> = Reply::values(), unset replies();
    /// Of socks5, http and mixed: hashes of passwords by user name, as `ekiden password` makes them.
    users: Option<Spanned<IndexMap<String, String>>> = "{ name = \"hash\" }";
    /// Of socks5, http and mixed, instead of `users`: a file with a line `name:hash` for each user, not readable by others. It is read again when it changes.
    users_file: Option<Spanned<String>> = "a file";
    /// Of socks5, http and mixed: their clients speak TLS. `{}` shows them a certificate of the node's own key.
    tls: Option<Spanned<RawTls>> = "{ ... }", unset "without TLS";
    /// Of forward: where every connection goes.
    to: Option<Spanned<String>> = "host:port";
    /// Of forward: the nodes on the way, instead of what the routes say; `[]` for none.
    via: Option<Spanned<Vec<Spanned<String>>>> = "[nodes]";
    /// Of forward: how the destination is told who the client is.
    proxy_protocol: Option<Spanned<RawVersion>> = RawVersion::values();
    /// Connections from these networks begin with a PROXY protocol header, which says who the client is. Not of a leg listener.
    proxy_protocol_from: Option<Spanned<Vec<Spanned<String>>>> = "[networks]";
    /// Of leg: the nodes that may connect, each by the fingerprint of its key; without any, none.
    nodes: Option<Spanned<IndexMap<Spanned<String>, Spanned<String>>>> = "{ name = \"sha256:...\" }";
    /// Of leg, instead of `nodes`: every node that has the same key may connect, without encryption.
    plain_key_file: Option<Spanned<String>> = "a file, made by `ekiden keygen --shared`";
    /// Of transparent: the network interfaces by which its clients' connections come in.
    interfaces: Option<Spanned<Vec<Spanned<String>>>> = "[names]";
    /// Of transparent: whether the interfaces may come later than the node.
    late_interfaces: bool = "true or false", default false;
    /// Of transparent: networks and ports, as in a route, that pass as if there were no node.
    except: Option<Spanned<Vec<Spanned<String>>>> = "[destinations]";
    /// Of transparent: whether this node connects itself when a node of the chain cannot be reached.
    bypass: bool = "true or false", default false;
    /// The service class of its clients' streams, where neither their route nor their user has one. Not of a leg listener.
    class: Option<Spanned<String>> = "a class", unset "\"bulk\"";
    /// TCP settings of the connections accepted here.
    tcp: Option<Spanned<RawTcp>> = "{ ... }", unset "[tcp]";
}

section! {
    RawTls: "[listen.NAME.tls]"
    /// What clients are shown (PEM): the listener's certificate, then the one of whoever has signed it, and so on.
    certificate_file: Option<Spanned<String>> = "a file", unset "a certificate that the node signs with its own key";
    /// The private key of that certificate (PEM), not readable by others.
    key_file: Option<Spanned<String>> = "a file";
    /// The authorities of clients (PEM): whoever connects must show a certificate that one of them has signed. Its name counts as the user's where the listener has neither `users` nor `users_file`.
    client_ca_file: Option<Spanned<String>> = "a file", unset "clients are asked for no certificate";
}

section! {
    #[derive(Default)]
    RawExit: "[exit]"
    /// For clients in these networks whose connections a transparent listener has taken, the exit connects from the client's own address and port.
    client_addresses: Option<Vec<Spanned<String>>> = "[networks]";
    /// Destinations, as in a route, that it connects to although their addresses are not public, or are this host's own.
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
    warm: Count = "0 to limits.pool", default Count(0);
    /// TCP settings of the connections to it.
    tcp: Option<Spanned<RawTcp>> = "{ ... }", unset "[tcp]";
}

section! {
    RawRoute: "[[route]]"
    /// The first route that matches a destination decides: networks, names, `.domain` for a domain and all below it, `*` for everything, each with or without `:port`; or `@FILE` for a file with one of these a line, which is read again when it changes.
    to: Vec<Spanned<String>> = "[destinations]";
    /// The nodes on the way, in the order in which they are passed; the first is a peer. Or `auto`: to the node of the overlay that is near the destination, on the path that is best by what is known.
    via: Option<Spanned<RawVia>> = "[nodes] or \"auto\"";
    /// Instead of `via`: connect from here, or not at all. Without a matching route this node connects directly.
    action: Option<RawAction> = RawAction::values();
    /// With `via = "auto"`: the node that connects to the destination.
    exit: Option<Spanned<String>> = "a node", unset "the node that is near the destination, by `near` in the members file";
    /// With `via`: the service class of its streams, whoever's they are.
    class: Option<Spanned<String>> = "a class", unset "that of the user, or of the listener";
    /// With `via = "auto"`: the nodes that may be in between.
    relays: Option<Spanned<Vec<Spanned<String>>>> = "[nodes]", unset "all that relay";
    /// With `via = "auto"`: the nodes that must be in between.
    through: Option<Spanned<Vec<Spanned<String>>>> = "[nodes]";
    /// With `via = "auto"`: the regions in which all nodes of the path must be, the last one too.
    regions: Option<Spanned<Vec<Spanned<String>>>> = "[regions]", unset "all";
    /// With `via = "auto"`: how many nodes may be in between.
    most_relays: Option<Spanned<Count>> = range(&RELAYS), unset "2";
}

section! {
    RawOverlay: "[overlay]"
    /// The nodes of the overlay, the same file on each of them, with a table `[node.NAME]` for each (`ekiden overlay join`). They are peers, and may connect to each leg listener with TLS.
    members_file: Option<Spanned<String>> = "a file", unset "the nodes are in etcd, [overlay.etcd]";
    /// A socket file on which other programs of this host ask what is known of a path. Whoever can reach it may ask: its folder says who that is.
    ask_socket: Option<Spanned<String>> = "a file";
    tables {
        etcd: Option<Spanned<RawEtcd>> = [RawEtcd::section()];
    }
}

section! {
    RawEtcd: "[overlay.etcd]"
    /// The members of one cluster of etcd, 3.4 or newer. `http://` is for loopback addresses alone.
    endpoints: Spanned<Vec<String>> = "[\"https://host:port\"]";
    /// The overlay's name there.
    overlay: Spanned<String> = "a word";
    /// The overlay's id, as `ekiden overlay init` printed it: an etcd with another one is refused.
    id: Option<Spanned<String>> = "64 hexadecimal digits", unset "the first one seen";
    /// The authorities (PEM) that sign etcd's certificates. Needed for `https://`.
    ca_file: Option<Spanned<String>> = "a file";
    /// This node's user of etcd.
    user: Option<Spanned<String>> = "a name";
    /// A file with that user's password, not readable by others.
    password_file: Option<Spanned<String>> = "a file";
    /// How soon others take this node for gone if it dies, in whole seconds.
    lease: Time = range(&LEASES), default Time::secs(60);
    /// A file that this node writes, for the last known members: with them it begins if etcd is away when it starts.
    members_cache: Option<Spanned<String>> = "a file";
    /// Where other nodes reach this node's leg listener. What it is near to, and all else that others believe of it, is in its admission (`ekiden overlay admit`).
    address: Spanned<String> = "host:port";
}

section! {
    RawClass: "[class.NAME]"
    /// What paths are chosen for with `via = "auto"`: the rate of long transfers, or the round trip of short answers.
    kind: Option<RawKindOfPath> = RawKindOfPath::values(), unset "bulk, or interactive of the class of that name";
    /// Its part of a leg that is full, in relation to the weights of other classes with streams there.
    weight: Count = range(&WEIGHTS), default Count(1);
    /// The most that its streams get of a leg, together, in each direction.
    ceiling: Option<Spanned<BitRate>> = range(&CLASS_RATES), unset "none";
    /// What its streams get of a leg, together, where the leg carries so much, whatever the weights say.
    floor: Option<Spanned<BitRate>> = range(&CLASS_RATES), unset "none";
    /// The users whose streams are of it, on listeners with `users`.
    users: Option<Vec<Spanned<String>>> = "[users]";
    /// How many of its streams this node opens over one leg at a time. More wait, in their order.
    streams: Option<Spanned<Count>> = range(&CLASS_STREAMS), unset "no limit";
    /// How long a stream waits for its turn. Then it fails: SOCKS reply 1, HTTP 503.
    wait: Option<Spanned<Time>> = range(&CLASS_WAITS), unset "limits.connect";
}

words! {
    RawKindOfPath {
        Bulk = "bulk",
        Interactive = "interactive",
    }
}

/// The `via` of a route.
#[derive(Debug)]
pub enum RawVia {
    Auto,
    Chain(Vec<Spanned<String>>),
}

impl<'de> serde::Deserialize<'de> for RawVia {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ViaVisitor)
    }
}

impl Shape for RawVia {
    fn shape() -> serde_json::Value {
        serde_json::json!({ "oneOf": [{ "const": "auto" }, Vec::<String>::shape()] })
    }
}

struct ViaVisitor;

impl<'de> serde::de::Visitor<'de> for ViaVisitor {
    type Value = RawVia;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of nodes, or \"auto\"")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<RawVia, E> {
        match text {
            "auto" => Ok(RawVia::Auto),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
        }
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut nodes: A) -> Result<RawVia, A::Error> {
        let mut chain = Vec::new();
        while let Some(node) = nodes.next_element()? {
            chain.push(node);
        }
        Ok(RawVia::Chain(chain))
    }
}

words! {
    RawAction {
        Direct = "direct",
        Refuse = "refuse",
    }
}

impl RawKind {
    /// The default of `reply`. The clients of a forward and of a transparent listener wait for no reply: the kernel has accepted
    /// their connection already.
    pub fn reply(self) -> Reply {
        match self {
            Self::Forward | Self::Transparent => Reply::Early,
            Self::Socks5 | Self::Http | Self::Mixed | Self::Leg => Reply::Connected,
        }
    }
}

impl From<Version> for RawVersion {
    fn from(version: Version) -> Self {
        match version {
            Version::V1 => Self::V1,
            Version::V2 => Self::V2,
        }
    }
}

/// Every key of a configuration, by section.
pub fn sections() -> Vec<Section> {
    Raw::sections()
}

/// The default of `threads`.
fn one_per_core() -> Count {
    Count(std::thread::available_parallelism().map_or(1, |cores| cores.get() as i64))
}

/// The defaults of `reply`, by kind.
fn replies() -> String {
    let early = RawKind::ALL.iter().filter(|kind| kind.reply() == Reply::Early);
    let early: Vec<&str> = early.map(|kind| kind.word()).collect();
    format!("{}; {} of {}", Reply::Connected.word(), Reply::Early.word(), early.join(" and "))
}
