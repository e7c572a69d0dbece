//! Whether the kernel looks for a path's MTU by itself (RFC 4821): `net.ipv4.tcp_mtu_probing` (linux/Documentation/networking/ip-sysctl.rst),
//! which holds for IPv6 too.

use crate::kernel_text::kernel_text;

/// The setting with which connections begin with short segments (`net.ipv4.tcp_base_mss`).
pub const BEGINS_SHORT: u8 = 2;

/// The setting in the namespace of the calling thread; 0 where it cannot be read.
pub fn mtu_probing() -> u8 {
    let text = kernel_text("/proc/sys/net/ipv4/tcp_mtu_probing");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}
