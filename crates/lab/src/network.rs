//! Namespaces, devices, addresses and routes of a scenario, by netlink.
//!
//! Node `n` (counted from 1) has the address 10.77.0.n, on its loopback device, and reaches every other by a route
//! through the first link of [`Scenario::path`]. Links carry no addresses. They need none, nor ARP: both ends of every
//! link have the same hardware address, which is what the kernel sends to on a device without ARP.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use ekiden_net::device;
use ekiden_net::namespace::Namespace;
use ekiden_net::netlink::{io_error, on_netlink};
use ekiden_scenario::{Link, Scenario, address};
use futures_util::TryStreamExt;
use rtnetlink::packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, State};
use rtnetlink::packet_route::route::{RouteAttribute, RouteMetric, RouteScope};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};

use crate::Error;
use crate::error::building;
use crate::tcp;
use crate::tunnels::tcp_of;

/// The hardware address of every device in a node; locally administered.
const HARDWARE_ADDRESS: [u8; 6] = [0x02, 0, 0, 0, 0, 1];

/// How long the kernel may take until devices have a carrier; mostly less than a millisecond.
const CARRIER_MOST: Duration = Duration::from_secs(10);

/// The namespaces of a lab.
pub(crate) struct Network {
    /// One per node, in the order of the scenario.
    pub nodes: Vec<Namespace>,
    /// The emulator's: the other end of every device that stands for an end of a link.
    pub emulator: Namespace,
}

/// The device in the emulator's namespace at end `end` (0 or 1) of link `link`.
pub(crate) fn emulator_device(link: usize, end: usize) -> String {
    format!("w{link}{}", if end == 0 { "a" } else { "b" })
}

/// Builds everything but the emulation itself.
pub(crate) fn build(scenario: &Scenario) -> Result<Network, Error> {
    let emulator = Namespace::create().map_err(building("make a network namespace"))?;
    emulator.run(tcp::no_ipv6).map_err(building("set up the emulator's namespace"))?;
    let mut nodes = Vec::new();
    for (index, (name, node)) in scenario.nodes.iter().enumerate() {
        let namespace = Namespace::create().map_err(building("make a network namespace"))?;
        let forwards = node.forwards_packets();
        let failed = building(format!("set TCP's parameters in node '{name}'"));
        let own = scenario.links.values().filter(|link| link.ends.contains(name));
        let mtu = own.map(|link| link.mtu()).min().unwrap_or(1500);
        let settings = tcp_of(scenario, name).unwrap_or(&node.tcp);
        let ends_tunnel = scenario.tunnels.values().any(|tunnel| tunnel.ends.contains(name));
        namespace.run(|| tcp::configure(settings, mtu, forwards, ends_tunnel)).map_err(failed)?;
        tcp::check_congestion(&namespace, name, settings)?;
        let failed = building(format!("set up the devices and routes of node '{name}'"));
        namespace.run(|| on_netlink(|handle| populate(handle, scenario, index, &emulator))).map_err(failed)?;
        nodes.push(namespace);
    }
    emulator
        .run(|| on_netlink(|handle| set_emulator_up(handle, scenario)))
        .map_err(building("set up the emulator's devices"))?;
    for (namespace, name) in nodes.iter().zip(scenario.nodes.keys()) {
        let failed = building(format!("wait for the devices of node '{name}'"));
        namespace.run(|| on_netlink(|handle| await_carrier(handle, scenario, name))).map_err(failed)?;
    }
    Ok(Network { nodes, emulator })
}

/// Makes the devices, address and routes of one node.
async fn populate(handle: Handle, scenario: &Scenario, index: usize, emulator: &Namespace) -> io::Result<()> {
    let Some((name, node)) = scenario.nodes.get_index(index) else { return Ok(()) };
    let own = address(index).ok_or_else(too_many)?;
    let tcp = tcp_of(scenario, name).unwrap_or(&node.tcp);
    let loopback = device::index("lo")?;
    handle.link().set(LinkUnspec::new_with_index(loopback).up().build()).execute().await.map_err(io_error)?;
    handle.address().add(loopback, own.into(), 32).execute().await.map_err(io_error)?;
    for (number, (link_name, link)) in scenario.links.iter().enumerate() {
        let Some(end) = link.ends.iter().position(|end| end == name) else { continue };
        let (outer, inner) = (device_name(link_name, number), emulator_device(number, end));
        add_link(&handle, &outer, link, tcp.gso_max_size(), &inner, emulator).await?;
    }
    for (other, destination) in scenario.nodes.keys().enumerate().filter(|(other, _)| *other != index) {
        // A tunnel brings its routes.
        if scenario.tunnel_from(name, destination).is_some() {
            continue;
        }
        let Some(hop) = scenario.path(name, destination).and_then(|path| path.first().copied()) else { continue };
        let number = scenario.links.get_index_of(hop.name).unwrap_or_default();
        let mut route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(address(other).ok_or_else(too_many)?, 32)
            .output_interface(device::index(&device_name(hop.name, number))?)
            .scope(RouteScope::Link)
            .pref_source(own)
            .build();
        route.attributes.push(RouteAttribute::Metrics(metrics(tcp)));
        handle.route().add(route).execute().await.map_err(io_error)?;
    }
    Ok(())
}

/// A pair of devices: one here, the other in the emulator's namespace.
async fn add_link(
    handle: &Handle,
    name: &str,
    link: &Link,
    gso_max_size: u32,
    inner: &str,
    emulator: &Namespace,
) -> io::Result<()> {
    let peer = LinkMessageBuilder::<LinkUnspec>::default()
        .name(inner)
        .mtu(link.mtu())
        .setns_by_fd(emulator.as_fd().as_raw_fd())
        .build();
    let pair = LinkMessageBuilder::<LinkVeth>::new_with_info_kind(InfoKind::Veth)
        .name(name)
        .mtu(link.mtu())
        .address(HARDWARE_ADDRESS.to_vec())
        .append_extra_attribute(LinkAttribute::GsoMaxSize(gso_max_size))
        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
        .build();
    handle.link().add(pair).execute().await.map_err(io_error)?;
    device::disable_transmit_offload(name)?;
    handle.link().set(LinkUnspec::new_with_name(name).arp(false).up().build()).execute().await.map_err(io_error)
}

async fn set_emulator_up(handle: Handle, scenario: &Scenario) -> io::Result<()> {
    for number in 0..scenario.links.len() {
        for end in 0..2 {
            let name = emulator_device(number, end);
            device::disable_transmit_offload(&name)?;
            let up = LinkUnspec::new_with_name(&name).arp(false).up().build();
            handle.link().set(up).execute().await.map_err(io_error)?;
        }
    }
    Ok(())
}

/// Waits until a node's devices have a carrier. A device gets it only a moment after its other end was set up, and drops
/// packets sent before: on a busy machine, the first packets of a run.
async fn await_carrier(handle: Handle, scenario: &Scenario, node: &str) -> io::Result<()> {
    for (number, (name, _)) in
        scenario.links.iter().enumerate().filter(|(_, (_, link))| link.ends.iter().any(|end| end == node))
    {
        let device = device_name(name, number);
        let start = Instant::now();
        while !has_carrier(&handle, &device).await? {
            if start.elapsed() > CARRIER_MOST {
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("'{device}' has no carrier")));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    Ok(())
}

async fn has_carrier(handle: &Handle, device: &str) -> io::Result<bool> {
    let mut found = handle.link().get().match_name(device).execute();
    let message = found.try_next().await.map_err(io_error)?;
    let is_up = |attribute: &LinkAttribute| matches!(attribute, LinkAttribute::OperState(State::Up));
    Ok(message.is_some_and(|message| message.attributes.iter().any(is_up)))
}

/// What TCP takes from the route. The congestion control goes here and not into the namespace's default because the
/// kernel lets only the machine's own namespace choose a restricted one, such as cubic, as the default. A window that is not scaled goes
/// here for the small packets that [`crate::tcp::exact_space`] tells of.
fn metrics(tcp: &ekiden_scenario::Tcp) -> Vec<RouteMetric> {
    let congestion = RouteMetric::CcAlgo(tcp.congestion.clone());
    let window = (!tcp.window_scaling).then_some(RouteMetric::Window(tcp.receive_buffer.0 as u32));
    tcp.initial_window.map(RouteMetric::InitCwnd).into_iter().chain(window).chain([congestion]).collect()
}

/// A node's device has the name of its link, if the kernel accepts that as a device's name.
pub(crate) fn device_name(link: &str, number: usize) -> String {
    let usable = link.len() <= device::NAME_BYTES_MOST && !["lo", "all", "default"].contains(&link);
    if usable { link.into() } else { format!("link{number}") }
}

fn too_many() -> io::Error {
    io::Error::other("more nodes than there are addresses")
}
