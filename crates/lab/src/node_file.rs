//! Configurations of programs in nodes, made from the scenario.

use std::net::Ipv4Addr;

use ekiden_scenario::Scenario;

/// The line of a configuration that names the lab's key. Connections between nodes are plain: the lab compares ways over a
/// distance, none of them with encryption.
pub(crate) const PLAIN_KEY: &str = "plain_key_file = \"key\"\n";

/// A configuration, and the node where a program with it is to run.
pub struct NodeFile {
    /// The subcommand of `ekiden`, such as `proxy`.
    pub program: &'static str,
    /// The node.
    pub node: String,
    /// The file's name, which no other file has, without `.toml`.
    pub label: String,
    /// What the file says.
    pub text: String,
}

/// The address of a node of the scenario.
pub(crate) fn address(scenario: &Scenario, node: &str) -> Ipv4Addr {
    let index = scenario.nodes.get_index_of(node);
    index.and_then(ekiden_scenario::address).unwrap_or(Ipv4Addr::UNSPECIFIED)
}
