//! Makes the kernel deliver marked packets on this machine, whatever their destination. Transparent sockets need it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use rtnetlink::packet_route::route::{RouteMessage, RouteScope, RouteType};
use rtnetlink::packet_route::rule::RuleAction;
use rtnetlink::{Handle, RouteMessageBuilder, RuleAddRequest};

use crate::device;
use crate::netlink::{io_error, on_netlink};

/// The priority of the rules: after the table of the machine's own addresses, before the main table.
pub const PRIORITY: u32 = 100;

/// The address family of the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Delivers packets with `mark` here: `ip rule add priority 100 fwmark MARK lookup MARK` and
/// `ip route add local default dev lo table MARK`. It is no error if that is so already.
///
/// # Errors
/// Those of the kernel; mostly that CAP_NET_ADMIN is missing.
pub fn deliver_marked(mark: u32, family: Family) -> io::Result<()> {
    on_own_thread(move |handle| async move {
        let route = handle.route().add(local_route(mark, family)?).replace();
        route.execute().await.map_err(io_error)?;
        let added = match family {
            Family::V4 => rule(&handle, mark).v4().execute().await,
            Family::V6 => rule(&handle, mark).v6().execute().await,
        };
        match added.map_err(io_error) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    })
}

/// Undoes [`deliver_marked`]. It is no error if there is nothing to undo.
///
/// # Errors
/// As for [`deliver_marked`].
pub fn stop_delivering(mark: u32, family: Family) -> io::Result<()> {
    on_own_thread(move |handle| async move {
        let rule = match family {
            Family::V4 => rule(&handle, mark).v4().message_mut().clone(),
            Family::V6 => rule(&handle, mark).v6().message_mut().clone(),
        };
        gone_is_fine(handle.rule().del(rule).execute().await)?;
        gone_is_fine(handle.route().del(local_route(mark, family)?).execute().await)
    })
}

/// On a thread of its own, because the caller may be within an event loop.
fn on_own_thread<F>(work: impl FnOnce(Handle) -> F + Send) -> io::Result<()>
where
    F: Future<Output = io::Result<()>>,
{
    let joined = std::thread::scope(|scope| scope.spawn(|| on_netlink(work)).join());
    joined.unwrap_or_else(|_| Err(io::Error::other("the netlink thread panicked")))
}

fn rule(handle: &Handle, mark: u32) -> RuleAddRequest {
    handle.rule().add().priority(PRIORITY).fw_mark(mark).table_id(mark).action(RuleAction::ToTable)
}

fn local_route(table: u32, family: Family) -> io::Result<RouteMessage> {
    let loopback = device::index("lo")?;
    Ok(match family {
        Family::V4 => RouteMessageBuilder::<Ipv4Addr>::new()
            .table_id(table)
            .kind(RouteType::Local)
            .scope(RouteScope::Host)
            .output_interface(loopback)
            .build(),
        Family::V6 => RouteMessageBuilder::<Ipv6Addr>::new()
            .table_id(table)
            .kind(RouteType::Local)
            .output_interface(loopback)
            .build(),
    })
}

fn gone_is_fine(result: Result<(), rtnetlink::Error>) -> io::Result<()> {
    match result.map_err(io_error) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Ok(()),
        other => other,
    }
}
