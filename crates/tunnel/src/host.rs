//! Settings of the host that cost a tunnel's connections throughput. A tunnel names them when it starts.

use std::fs;

/// A setting of the network namespace, the value that costs, and what that does.
const COSTLY: [(&str, &str, &str); 2] = [
    ("tcp_slow_start_after_idle", "1", "after each pause a connection begins with its first window again"),
    ("tcp_sack", "0", "of several lost packets a connection repairs one per round trip"),
];

/// What of this network namespace costs a tunnel's connections throughput: a line each, with what to do.
pub fn warnings() -> Vec<String> {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
    let costs = COSTLY.iter().filter(|(name, costly, _)| read(name).trim() == *costly);
    let line = |(name, value, what): &(&str, &str, &str)| {
        format!("net.ipv4.{name} is {value}: {what}; `ekiden doctor --fix` sets it")
    };
    costs.map(line).collect()
}
