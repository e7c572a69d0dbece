//! Where the programs stand: at a device's egress and ingress.
//!
//! They stand before all other programs of the device in both directions, and leave the decision to these: a program that lets a
//! packet pass may end the chain, and those behind it would not see the packet. With tcx that is the head of its list, which is
//! before clsact. Without tcx it is clsact's first priority; other filters of that priority that were there before come behind.
#![allow(unsafe_code)] // System calls that libbpf-rs does not wrap, or whose answer it hides.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::query::{LinkInfo, LinkTypeInfo};
use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcAttachPoint, TcHook};
use libbpf_sys::{BPF_TCX_EGRESS, BPF_TCX_INGRESS, bpf_attach_type};
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
/// `BPF_F_BEFORE` without another program: before all.
const BEFORE: u32 = 1 << 3;
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
        let attached = attached(ifindex, BPF_TCX_EGRESS)? + attached(ifindex, BPF_TCX_INGRESS)?;
        Ok((attached + filters::count(ifindex)?).saturating_sub(2))
    }

    fn tcx(programs: &Programs, ifindex: i32) -> io::Result<Self> {
        let egress = link(programs.egress.as_fd(), ifindex, BPF_TCX_EGRESS)?;
        let ingress = link(programs.ingress.as_fd(), ifindex, BPF_TCX_INGRESS)?;
        Ok(Self::Tcx { links: [egress, ingress] })
    }

    fn clsact(programs: &Programs, ifindex: i32) -> Result<Self, GatewayError> {
        let is_ours = make_clsact(ifindex).map_err(failed("make a clsact queueing discipline"))?;
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
            let mut hook = clsact(*ifindex);
            // SAFETY: a structure of the size that it names.
            unsafe { libbpf_sys::bpf_tc_hook_destroy(&raw mut hook) };
        }
    }
}

fn clsact(ifindex: i32) -> libbpf_sys::bpf_tc_hook {
    libbpf_sys::bpf_tc_hook {
        sz: size_of::<libbpf_sys::bpf_tc_hook>() as libbpf_sys::size_t,
        ifindex,
        attach_point: TC_INGRESS | TC_EGRESS,
        ..Default::default()
    }
}

/// Makes a clsact queueing discipline; returns whether there was none.
fn make_clsact(ifindex: i32) -> io::Result<bool> {
    let mut hook = clsact(ifindex);
    // SAFETY: a structure of the size that it names.
    match unsafe { libbpf_sys::bpf_tc_hook_create(&raw mut hook) } {
        0 => Ok(true),
        error if error == -nix::libc::EEXIST => Ok(false),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

fn filter(program: BorrowedFd<'_>, ifindex: i32, point: TcAttachPoint) -> TcHook {
    let mut hook = TcHook::new(program);
    hook.ifindex(ifindex).attach_point(point).handle(HANDLE).priority(PRIORITY);
    hook
}

/// Links a program to a device, before all others there.
fn link(program: BorrowedFd<'_>, ifindex: i32, point: bpf_attach_type) -> io::Result<OwnedFd> {
    let mut options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags: BEFORE,
        ..Default::default()
    };
    options.__bindgen_anon_1.tcx = Default::default();
    // SAFETY: a descriptor that lives, and a structure of the size that it names.
    let fd = unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), ifindex, point, &raw const options) };
    match fd {
        // SAFETY: the descriptor is new, so nobody else owns it.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// How many programs tcx has there.
fn attached(ifindex: i32, point: bpf_attach_type) -> io::Result<usize> {
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: a structure of the size that it names, without places for what is not asked.
    match unsafe { libbpf_sys::bpf_prog_query_opts(ifindex, point, &raw mut options) } {
        // SAFETY: both members are the same number.
        0 => Ok(unsafe { options.__bindgen_anon_1.count } as usize),
        // Without tcx.
        error if error == -nix::libc::EINVAL => Ok(0),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

nix::ioctl_read_bad!(hardware_address, nix::libc::SIOCGIFHWADDR, nix::libc::ifreq);

/// Whether the device is there, and carries Ethernet frames.
fn check(ifindex: i32) -> Result<(), GatewayError> {
    let number = u32::try_from(ifindex).map_err(|_| GatewayError::NoDevice(ifindex))?;
    let name = if_indextoname(number).map_err(|_| GatewayError::NoDevice(ifindex))?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(failed("open a socket"))?;
    // SAFETY: all zero is a valid one.
    let mut request: nix::libc::ifreq = unsafe { std::mem::zeroed() };
    for (into, from) in request.ifr_name.iter_mut().zip(name.to_bytes()) {
        *into = *from as std::ffi::c_char;
    }
    // SAFETY: the socket lives, and the request is of the type that the call fills.
    unsafe { hardware_address(socket.as_raw_fd(), &raw mut request) }.map_err(|_| GatewayError::NoDevice(ifindex))?;
    // SAFETY: the call has filled this member.
    let kind = unsafe { request.ifr_ifru.ifru_hwaddr.sa_family };
    match ETHERNET.contains(&kind) {
        true => Ok(()),
        false => Err(GatewayError::NotEthernet(name.to_string_lossy().into_owned())),
    }
}
