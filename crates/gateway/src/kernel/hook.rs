//! Where the programs stand: at a device's egress and ingress.
//!
//! They stand before all other programs of the device in both directions, and leave the decision to these: a program that lets a
//! packet pass may end the chain, and those behind it would not see the packet. With tcx that is the head of its list, which is
//! before clsact. Without tcx it is clsact's first priority; other filters of that priority that were there before come behind.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ekiden_bpf::tc;
use libbpf_rs::query::{LinkInfo, LinkTypeInfo};
use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcAttachPoint, TcHook};
use libbpf_sys::{BPF_TCX_EGRESS, BPF_TCX_INGRESS};
use nix::net::if_::if_indextoname;

use super::error::{GatewayError, failed, libbpf};
use super::filters;
use super::object::Programs;

/// By what the kernel runs the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookKind {
    /// tcx, of Linux 6.6 or newer. The programs go when the process dies.
    Tcx,
    /// A clsact queueing discipline. The programs stay if the process is killed, and leave packets untouched then; the next gateway
    /// on the device takes their place.
    Clsact,
}

/// Our filters' number under clsact.
const HANDLE: u32 = 0x656b;
const PRIORITY: u32 = 1;
/// `ARPHRD_ETHER` and `ARPHRD_LOOPBACK`, whose packets begin with an Ethernet header.
const ETHERNET: [u16; 2] = [1, 772];

/// The programs on one device, until it is dropped.
#[derive(Debug)]
pub(super) enum Hook {
    Tcx { links: [OwnedFd; 2] },
    Clsact { ifindex: i32, filters: Vec<TcHook>, is_ours: bool },
}

impl Hook {
    /// Puts the programs on a device, by tcx if the kernel has it.
    pub fn attach(programs: &Programs, ifindex: i32, kind: Option<HookKind>) -> Result<Self, GatewayError> {
        check(ifindex)?;
        if kind != Some(HookKind::Clsact) {
            match Self::tcx(programs, ifindex) {
                Err(error) if kind.is_none() && error.raw_os_error() == Some(nix::libc::EINVAL) => {}
                result => return result.map_err(failed("attach the programs by tcx")),
            }
        }
        Self::clsact(programs, ifindex)
    }

    pub fn kind(&self) -> HookKind {
        match self {
            Self::Tcx { .. } => HookKind::Tcx,
            Self::Clsact { .. } => HookKind::Clsact,
        }
    }

    /// Its links; `None` with clsact.
    pub fn links(&self) -> Option<&[OwnedFd; 2]> {
        match self {
            Self::Tcx { links } => Some(links),
            Self::Clsact { .. } => None,
        }
    }

    /// The device that it is on; `None` if that is gone, and with clsact.
    pub fn device(&self) -> Option<u32> {
        let info = LinkInfo::from_fd(self.links()?[0].as_fd()).ok()?;
        let LinkTypeInfo::Tcx(tcx) = info.info else { return None };
        Some(tcx.ifindex).filter(|ifindex| *ifindex != 0)
    }

    /// Whether the programs are on this device still.
    pub fn is_on(&self, device: u32) -> bool {
        match self {
            Self::Tcx { .. } => self.device() == Some(device),
            Self::Clsact { ifindex, filters, .. } => {
                u32::try_from(*ifindex) == Ok(device) && filters.iter().all(|filter| { *filter }.query().is_ok())
            }
        }
    }

    /// How many programs and filters are on this device beside these two, in both directions.
    pub fn others(ifindex: i32) -> io::Result<usize> {
        let attached = tc::attached(ifindex, BPF_TCX_EGRESS)? + tc::attached(ifindex, BPF_TCX_INGRESS)?;
        Ok((attached + filters::count(ifindex)?).saturating_sub(2))
    }

    fn tcx(programs: &Programs, ifindex: i32) -> io::Result<Self> {
        let egress = tc::link(programs.egress.as_fd(), ifindex, BPF_TCX_EGRESS)?;
        let ingress = tc::link(programs.ingress.as_fd(), ifindex, BPF_TCX_INGRESS)?;
        Ok(Self::Tcx { links: [egress, ingress] })
    }

    fn clsact(programs: &Programs, ifindex: i32) -> Result<Self, GatewayError> {
        let is_ours = tc::make_clsact(ifindex).map_err(failed("make a clsact queueing discipline"))?;
        let mut hook = Self::Clsact { ifindex, filters: Vec::new(), is_ours };
        for (program, point) in [(&programs.egress, TC_EGRESS), (&programs.ingress, TC_INGRESS)] {
            let filter = filter(program.as_fd(), ifindex, point).replace(true).attach();
            let filter = filter.map_err(libbpf("attach the programs by clsact"))?;
            if let Self::Clsact { filters, .. } = &mut hook {
                filters.push(filter);
            }
        }
        Ok(hook)
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        // Links go with their descriptors.
        let Self::Clsact { ifindex, filters, is_ours } = self else { return };
        for filter in filters {
            let _ = filter.detach();
        }
        // Others may have put filters there since.
        if *is_ours && filters::count(*ifindex).is_ok_and(|count| count == 0) {
            tc::remove_clsact(*ifindex);
        }
    }
}

fn filter(program: BorrowedFd<'_>, ifindex: i32, point: TcAttachPoint) -> TcHook {
    let mut hook = TcHook::new(program);
    hook.ifindex(ifindex).attach_point(point).handle(HANDLE).priority(PRIORITY);
    hook
}

/// Whether the device is there, and carries Ethernet frames.
fn check(ifindex: i32) -> Result<(), GatewayError> {
    let number = u32::try_from(ifindex).map_err(|_| GatewayError::NoDevice(ifindex))?;
    let name = if_indextoname(number).map_err(|_| GatewayError::NoDevice(ifindex))?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(failed("open a socket"))?;
    let kind = tc::hardware(socket.as_fd(), name.to_bytes()).map_err(|_| GatewayError::NoDevice(ifindex))?;
    match ETHERNET.contains(&kind) {
        true => Ok(()),
        false => Err(GatewayError::NotEthernet(name.to_string_lossy().into_owned())),
    }
}
