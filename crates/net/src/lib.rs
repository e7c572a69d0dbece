//! Linux sockets, namespaces and splice: the only home of `unsafe` besides eBPF.

#![allow(unsafe_code)]

pub mod allocator;
pub mod blocking;
pub mod clock;
pub mod deadline;
pub mod descriptors;
pub mod device;
mod kernel_text;
pub mod lookup;
pub mod mtu_probing;
pub mod namespace;
pub mod netlink;
mod option;
pub mod packet;
pub mod patience;
pub mod ping;
pub mod policy_route;
pub mod privileges;
pub mod processors;
pub mod sandbox;
pub mod schedule;
pub mod sock_diag;
pub mod socket;
pub mod socks5;
pub mod splice;
pub mod steer;
pub mod tcp_info;
pub mod transparent;
pub mod watched;

pub use kernel_text::kernel_text;
