//! The ports of a lab's programs and flows.

/// Where a proxy's SOCKS5 listener is.
pub const SOCKS_PORT: u16 = 1080;
/// Where a proxy's HTTP listener is.
pub const HTTP_PORT: u16 = 3128;
/// Where a proxy takes legs from other proxies.
pub const LEG_PORT: u16 = 7000;

/// Where a proxy takes connections that pass it.
pub(crate) const TAKEN_PORT: u16 = 3129;

/// The port on which the first proxy takes the flow at `index` of the scenario.
pub(crate) fn entry_port(index: usize) -> u16 {
    port(20_001, index)
}

/// The port of the flow at `index` of the scenario: where its receiver listens, or its sender, if the receiver fetches.
pub(crate) fn flow_port(index: usize) -> u16 {
    port(30_001, index)
}

/// The port of the sender's FTP data connections, of the flow at `index` of the scenario.
pub(crate) fn data_port(index: usize) -> u16 {
    port(40_001, index)
}

fn port(base: u16, index: usize) -> u16 {
    base.wrapping_add((index % 10_000) as u16)
}
