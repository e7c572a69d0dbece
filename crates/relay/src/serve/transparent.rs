//! A transparent connection: it was on its way through this machine, and its local address here is its destination.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::pin;
use std::sync::Arc;

use ekiden_net::socket::canonical;
use ekiden_relay_proto::{Failure, FailureCode};
use ekiden_transport::Connection;
use tokio::net::TcpStream;

use super::Stream;
use super::caller::Caller;
use super::departure::{ClientEof, unless_client_leaves};
use super::failed::Asked;
use crate::access::quota::ClientKey;
use crate::config::{Listener, ListenerKind, Reply};
use crate::peer::Early;
use crate::reach::{Destination, Upstream, exit, reach};
use crate::shared::Node;

pub(super) async fn prepare(
    node: &Arc<Node>,
    listener: &Listener,
    client: TcpStream,
    caller: Caller,
) -> Option<Stream> {
    let ListenerKind::Transparent { bypass, .. } = listener.kind else { return None };
    // An error means that the client is gone already.
    let (to, from) = (canonical(client.local_addr().ok()?), caller.address());
    if to.ip().is_loopback() {
        // No connection that passes through this machine is for a loopback address: the client has connected to the listener
        // itself.
        let line = format_args!("{from} connected to the own address of {listener}, {to}, and is refused");
        node.lines.info("own address", ClientKey::from(from.ip()), line);
        return None;
    }
    let busy = node.begin();
    let client = Connection::from(client);
    let early = match listener.reply {
        Reply::Early => Early::Host(&client),
        Reply::Connected => Early::Nothing,
    };
    let target = to.into();
    let asked = Box::new(Asked::new(from, "transparent", &target));
    // The client would reach it through this machine anyway, but not what is this machine's alone.
    let destination = match is_of_this_machine_alone(to.ip()) {
        true => Destination::asked(&target),
        false => Destination::configured(&target),
    };
    let destination = destination.asked_by(caller.asker()).on_behalf_of(Some(from)).of_class(listener.class.as_deref());
    let reaching = async {
        match bypass {
            true => Box::pin(reach_anyhow(node, destination)).await,
            false => reach(node, destination, early).await,
        }
    };
    let reached = unless_client_leaves(&client, ClientEof::HalfClose, pin!(reaching)).await;
    match reached {
        Ok(upstream) => {
            let mut stream = Stream::new(busy, client, upstream, Vec::new(), asked);
            stream.client.has_transparent_address = true;
            Some(stream)
        }
        Err(failure) => {
            // The client has no protocol to be told in; dropping its connection resets it.
            asked.log_failure(node, &failure);
            None
        }
    }
}

/// Reaches a destination as the routes say, or from here if a node of the chain cannot be reached. Payload is sent only when
/// the stream is open, so that none can arrive twice.
async fn reach_anyhow(node: &Node, to: Destination<'_>) -> Result<Upstream, Failure> {
    match reach(node, to, Early::Nothing).await {
        Err(failure) if failure.code == FailureCode::NodeUnreachable => {
            let told = node.told(&failure);
            let line = match node.config().log_addresses {
                true => format!("{} goes by no other node: {told}", to.target),
                false => format!("a stream goes by no other node: {told}"),
            };
            node.lines.warn("bypass", "", format_args!("{line}"));
            exit(node, to).await
        }
        other => other,
    }
}

/// Addresses beyond those of the link at which clouds answer each machine by what it is: AWS, Azure, Alibaba and Oracle.
const METADATA: [IpAddr; 4] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
];

/// No router forwards to link-local addresses (RFC 3927, 2.6.2; RFC 4291, 2.5.6): there, and at [`METADATA`], services
/// answer this machine by its identity, whichever client asks through it.
fn is_of_this_machine_alone(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    is_link_local || METADATA.contains(&address)
}
