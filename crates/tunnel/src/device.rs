//! The TUN device: its addresses and routes. Everything goes with the process that holds it.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use ekiden_net::device;
use ekiden_net::netlink::{io_error, on_netlink};
use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::LinkFlags;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
};
use rtnetlink::sys::AsyncSocket;
use rtnetlink::{Handle, LinkUnspec, MulticastGroup, RouteMessageBuilder};
use tokio::time::sleep;
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::config::{Config, Device};
use crate::error::StartError;

/// Packets that wait in the device until the tunnel takes them.
const DEVICE_PACKETS: u32 = 10_000;
/// The pause in asking after the kernel has dropped messages: so a host whose devices change all the time costs little.
const OVERRUN_PAUSE: Duration = Duration::from_secs(1);

/// Whether the device can be made, as far as that can be told before.
///
/// # Errors
/// [`StartError::DeviceInUse`] or [`StartError::NoTun`].
pub fn check(config: &Config) -> Result<(), StartError> {
    let Device { name, .. } = &config.device;
    if device::index(name).is_ok() {
        return Err(StartError::DeviceInUse(name.clone()));
    }
    // tun-rs would make the node in /dev, where only the system should.
    match Path::new("/dev/net/tun").exists() {
        true => Ok(()),
        false => Err(StartError::NoTun),
    }
}

/// Whether a new device can have the addresses: none of IPv6 where that is off.
///
/// # Errors
/// [`StartError::Address`].
pub fn check_addresses(config: &Config) -> Result<(), StartError> {
    let Device { name, addresses, .. } = &config.device;
    let off =
        std::fs::read_to_string("/proc/sys/net/ipv6/conf/default/disable_ipv6").map_or(true, |text| text.trim() != "0");
    match addresses.iter().find(|address| off && matches!(address, IpNet::V6(_))) {
        Some(&address) => {
            Err(StartError::Address { address, name: name.clone(), source: io::Error::from_raw_os_error(libc::EACCES) })
        }
        None => Ok(()),
    }
}

/// Makes the device, with its addresses and the routes to what the peers have. Not to be called within an event loop.
pub fn create(config: &Config) -> Result<SyncDevice, StartError> {
    check(config)?;
    let Device { name, .. } = &config.device;
    let tun = open(&config.device).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => StartError::NoTun,
        io::ErrorKind::PermissionDenied => StartError::Forbidden { name: name.clone(), source },
        _ => StartError::Device { what: "make the device".into(), name: name.clone(), source },
    })?;
    // The kernel's own 500 are gone in 6 ms at 1 Gbit/s, and what it drops there no queue has seen.
    let _ = tun.set_tx_queue_len(DEVICE_PACKETS);
    let failed = |what: String| move |source| StartError::Device { what, name: name.clone(), source };
    let index = device::index(name).map_err(failed("find the device".into()))?;
    let link = LinkUnspec::new_with_index(index).mtu(config.device.mtu.into()).up().build();
    let set = on_netlink(|handle| async move { handle.link().set(link).execute().await.map_err(io_error) });
    set.map_err(failed(format!("set the MTU {} of", config.device.mtu)))?;
    for address in &config.device.addresses {
        let (own, prefix) = (address.addr(), address.prefix_len());
        let add = move |handle: Handle| async move {
            handle.address().add(index, own, prefix).execute().await.map_err(io_error)
        };
        let name = name.clone();
        on_netlink(add).map_err(|source| StartError::Address { address: *address, name, source })?;
    }
    for (network, peer) in routed(config) {
        let add = move |handle: Handle| async move {
            handle.route().add(route(network, index)).execute().await.map_err(io_error)
        };
        let (peer, name) = (peer.to_owned(), name.clone());
        on_netlink(add).map_err(|source| StartError::Route { network, peer, name, source })?;
    }
    Ok(tun)
}

/// The networks of the peers that need routes of their own, and the peers.
fn routed(config: &Config) -> impl Iterator<Item = (IpNet, &str)> {
    // The device's addresses bring the others.
    let is_brought = |network: &IpNet| config.device.addresses.iter().any(|own| own.contains(network));
    config.networks().filter(move |(network, _)| !is_brought(network))
}

/// Whether two configurations need the same routes, whichever peers they are for.
pub fn has_same_routes(one: &Config, other: &Config) -> bool {
    let networks = |config| routed(config).map(|(network, _)| network.trunc()).collect::<BTreeSet<IpNet>>();
    networks(one) == networks(other)
}

/// Waits until somebody takes the device down: its routes, and its IPv6 addresses, are gone then, and `up` does not bring them back.
/// Within an event loop.
///
/// # Errors
/// If the kernel does not tell, or not any more.
pub async fn taken_down(config: &Config) -> io::Result<()> {
    let index = device::index(&config.device.name)?;
    loop {
        let (connection, _handle, mut messages) = rtnetlink::new_multicast_connection(&[MulticastGroup::Link])?;
        let is_down = async {
            // There is no report about changes from before.
            if !is_as_made(config, index).await? {
                return Ok(true);
            }
            while let Ok((message, _)) = messages.recv().await {
                match message.payload {
                    NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link))
                        if link.header.index == index && !link.header.flags.contains(LinkFlags::Up) =>
                    {
                        return Ok(true);
                    }
                    // The kernel has dropped messages, and does not say so again before this socket is empty.
                    NetlinkPayload::Overrun(_) => return Ok(false),
                    _ => {}
                }
            }
            Err(io::Error::from(io::ErrorKind::UnexpectedEof))
        };
        let is_down = tokio::select! {
            is_down = is_down => is_down?,
            () = connection => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        if is_down {
            return Ok(());
        }
        sleep(OVERRUN_PAUSE).await;
    }
}

/// Whether the device is up, and has not been down since it was made.
async fn is_as_made(config: &Config, index: u32) -> io::Result<bool> {
    let (mut connection, handle, _) = rtnetlink::new_connection()?;
    // Since Linux 4.20 the kernel tells of the routes that are asked for only.
    let _ = connection.socket_mut().socket_mut().set_netlink_get_strict_chk(true);
    let connection = tokio::spawn(connection);
    let answer = async {
        let mut link = pin!(handle.link().get().match_index(index).execute());
        match link.try_next().await {
            Ok(Some(link)) if link.header.flags.contains(LinkFlags::Up) => {}
            Ok(_) => return Ok(false),
            Err(error) => match io_error(error) {
                gone if gone.raw_os_error() == Some(libc::ENODEV) => return Ok(false),
                error => return Err(error),
            },
        }
        let routes: Vec<IpNet> = routed(config).map(|(network, _)| network).collect();
        let own = config.device.addresses.iter().filter(|own| own.addr().is_ipv6()).map(IpNet::trunc).collect();
        let mut there = Vec::new();
        for is_ipv6 in [false, true] {
            // A host may have no IPv6.
            if [&routes, &own].into_iter().flatten().any(|wanted| wanted.addr().is_ipv6() == is_ipv6) {
                there.extend(networks_of(&handle, index, is_ipv6).await?);
            }
        }
        // That it was down took all of them. One that is missing, somebody has deleted.
        let are_left = |wanted: &Vec<_>| wanted.is_empty() || wanted.iter().any(|network| there.contains(network));
        Ok(are_left(&routes) && are_left(&own))
    };
    let answer = answer.await;
    connection.abort();
    answer
}

/// What is routed to the device in the main table.
async fn networks_of(handle: &Handle, index: u32, is_ipv6: bool) -> io::Result<Vec<IpNet>> {
    let all = RouteProtocol::Unspec;
    let (wanted, none) = match is_ipv6 {
        false => (
            RouteMessageBuilder::<Ipv4Addr>::new().protocol(all).output_interface(index).build(),
            Ipv4Addr::UNSPECIFIED.into(),
        ),
        true => (
            RouteMessageBuilder::<Ipv6Addr>::new().protocol(all).output_interface(index).build(),
            Ipv6Addr::UNSPECIFIED.into(),
        ),
    };
    let mut routes = pin!(handle.route().get(wanted).execute());
    let mut found = Vec::new();
    while let Some(route) = routes.try_next().await.map_err(io_error)? {
        let has = |attribute| route.attributes.contains(&attribute);
        if route.header.table != RouteHeader::RT_TABLE_MAIN || !has(RouteAttribute::Oif(index)) {
            continue;
        }
        let destination = route.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => Some(IpAddr::from(*address)),
            RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some(IpAddr::from(*address)),
            _ => None,
        });
        // A default route has no destination.
        let network = IpNet::new(destination.unwrap_or(none), route.header.destination_prefix_length);
        found.extend(network.ok());
    }
    Ok(found)
}

/// With offloads if they are wanted and the kernel has them.
fn open(device: &Device) -> io::Result<SyncDevice> {
    let build = |offload| DeviceBuilder::new().name(device.name.as_str()).offload(offload).build_sync();
    if !device.offload {
        return build(false);
    }
    build(true).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Err(error),
        _ => {
            tracing::info!(
                "{}: the kernel has no offloads for TUN devices ({error}): packets go one by one",
                device.name
            );
            build(false)
        }
    })
}

fn route(network: IpNet, index: u32) -> RouteMessage {
    match network.addr() {
        IpAddr::V4(address) => RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(address, network.prefix_len())
            .scope(RouteScope::Link)
            .output_interface(index)
            .build(),
        IpAddr::V6(address) => RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(address, network.prefix_len())
            .output_interface(index)
            .build(),
    }
}
