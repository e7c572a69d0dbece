//! The TUN device: its addresses and routes. Everything goes with the process that holds it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use ekiden_net::device;
use ekiden_net::netlink::{io_error, on_netlink};
use ipnet::IpNet;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::LinkFlags;
use rtnetlink::packet_route::route::{RouteMessage, RouteScope};
use rtnetlink::{Handle, LinkUnspec, MulticastGroup, RouteMessageBuilder};
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::config::{Config, Device};
use crate::error::StartError;

/// Packets that wait in the device until the tunnel takes them.
const DEVICE_PACKETS: u32 = 10_000;

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
    for (network, peer) in config.networks() {
        // The device's addresses have brought these.
        if config.device.addresses.iter().any(|own| own.contains(&network)) {
            continue;
        }
        let add = move |handle: Handle| async move {
            handle.route().add(route(network, index)).execute().await.map_err(io_error)
        };
        let (peer, name) = (peer.to_owned(), name.clone());
        on_netlink(add).map_err(|source| StartError::Route { network, peer, name, source })?;
    }
    Ok(tun)
}

/// Waits until somebody takes the device down: its routes, and its IPv6 addresses, are gone then, and `up` does not bring them back.
/// Within an event loop.
///
/// # Errors
/// If the kernel does not tell, or not any more.
pub async fn taken_down(name: &str) -> io::Result<()> {
    let index = device::index(name)?;
    let (connection, _handle, mut messages) = rtnetlink::new_multicast_connection(&[MulticastGroup::Link])?;
    let told = async {
        while let Ok((message, _)) = messages.recv().await {
            if let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) = message.payload
                && link.header.index == index
                && !link.header.flags.contains(LinkFlags::Up)
            {
                return Ok(());
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    };
    tokio::select! {
        told = told => told,
        () = connection => Err(io::ErrorKind::UnexpectedEof.into()),
    }
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
