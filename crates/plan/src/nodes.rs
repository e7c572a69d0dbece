//! The configurations of a chain's nodes.

use std::fmt::Write;

use ekiden_model::rounds::Sender;
use ekiden_units::Bytes;

use crate::candidate::BUFFER_LEAST;
use crate::{Direction, LegPlan, NodePlan, Path, Remedy};

/// Placeholder for addresses that are not known (RFC 5737), one for each node.
const PLACEHOLDER: &str = "192.0.2.";
/// Where a node takes legs, if its address is not known.
const PORT: u16 = 7000;

/// The configuration of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFile {
    /// The file's name: that of the node, and `.toml`.
    pub file: String,
    /// Its content.
    pub text: String,
}

/// A node's key file, beside its configuration.
fn key_file(node: &NodePlan) -> String {
    format!("{}.key", node.name)
}

/// Where a node can be reached; a placeholder if that was not said.
pub fn address(remedy: &Remedy, number: usize) -> String {
    let said = remedy.nodes.get(number).and_then(|node| node.address.clone());
    said.unwrap_or_else(|| format!("{PLACEHOLDER}{}:{PORT}", number + 1))
}

/// The configurations of a remedy's nodes, in its order. `fingerprints` are those of the nodes' keys, in the same order.
pub fn files(path: &Path, remedy: &Remedy, fingerprints: &[String]) -> Vec<NodeFile> {
    let file = |(number, node): (usize, &NodePlan)| NodeFile {
        file: format!("{}.toml", node.name),
        text: text(path, remedy, number, fingerprints),
    };
    remedy.nodes.iter().enumerate().map(file).collect()
}

fn text(path: &Path, remedy: &Remedy, number: usize, fingerprints: &[String]) -> String {
    let (node, nodes) = (&remedy.nodes[number], &remedy.nodes);
    let (before, behind) = (&remedy.legs[number], &remedy.legs[number + 1]);
    // A node sends the data on one of its legs: on the one towards the receiver.
    let (control_before, control_behind) = match path.direction {
        Direction::Back => (Some(before), None),
        Direction::Forth => (None, Some(behind)),
    };
    let is_exit = number + 1 == nodes.len();
    let mut text = format!("# Node {} of {} from the client to the server.\n", number + 1, nodes.len());
    buffers(&mut text, [before, behind]);
    let _ = writeln!(text, "name = \"{}\"", node.name);
    if nodes.len() > 1 {
        let _ = writeln!(text, "key_file = \"{}\"", key_file(node));
    }
    if is_exit && let Some(leg) = control_behind {
        let _ = write!(text, "\n[tcp]                           # towards the server\n{}", control(leg, "\n"));
    }
    if number == 0 {
        let _ = write!(text, "\n[listen.clients]\nkind = \"socks5\"\n");
        let _ = writeln!(
            text,
            "address = \"127.0.0.1:1080\"      # for programs on this host; for others: 0.0.0.0:1080, with users (http-ftp.md)"
        );
    } else {
        let port = address(remedy, number).rsplit_once(':').map_or(PORT.to_string(), |(_, port)| port.to_owned());
        let _ = write!(text, "\n[listen.leg]\nkind = \"leg\"\naddress = \"0.0.0.0:{port}\"\n");
        let _ = writeln!(text, "nodes = {{ {} = \"{}\" }}", nodes[number - 1].name, fingerprints[number - 1]);
    }
    if let Some(leg) = control_before {
        let _ = writeln!(text, "tcp = {{ {} }}", control(leg, ", "));
    }
    if let Some(next) = nodes.get(number + 1) {
        let _ = write!(text, "\n[peer.{}]\naddress = \"{}\"", next.name, address(remedy, number + 1));
        let is_said = next.address.is_some();
        let _ = writeln!(text, "{}", if is_said { "" } else { "       # CHANGE: where this node really is" });
        let _ = writeln!(text, "fingerprint = \"{}\"", fingerprints[number + 1]);
        if let Some(leg) = control_behind {
            let _ = writeln!(text, "tcp = {{ {} }}", control(leg, ", "));
        }
    }
    if number == 0 && nodes.len() > 1 {
        let via: Vec<String> = nodes[1..].iter().map(|node| format!("{:?}", node.name)).collect();
        let _ = write!(text, "\n[[route]]\nto = [\"*\"]\nvia = [{}]\n", via.join(", "));
    }
    text
}

/// The keys of a congestion control. Ekiden's own need the right to load them, and the kernel may lack some of its own: then
/// Reno is used.
fn control(leg: &LegPlan, separator: &str) -> String {
    let name = leg.congestion.name();
    match leg.congestion {
        Sender::Reno => format!("congestion = \"{name}\""),
        Sender::Cubic | Sender::Hstcp | Sender::Ghstcp | Sender::Bbr | Sender::Far => {
            format!("congestion = \"{name}\"{separator}congestion_fallback = \"reno\"")
        }
    }
}

/// What the kernel must allow. Buffers in the file would turn its auto-tuning off.
fn buffers(text: &mut String, legs: [&LegPlan; 2]) {
    let buffer = legs.iter().map(|leg| leg.buffer_bytes).max().unwrap_or_default();
    if buffer <= BUFFER_LEAST.0 {
        let _ = writeln!(
            text,
            "# Its legs need buffers of {BUFFER_LEAST}, which Linux allows unless this host was told otherwise:\n\
             # `ekiden doctor -c` with this file says whether it was."
        );
        return;
    }
    // The kernel counts its overhead too: up to the same amount again.
    let memory = buffer.saturating_mul(2);
    let _ = write!(
        text,
        "# Its legs need buffers of {}. The kernel sizes them itself, if this host allows so much. Where it allows less:\n\
         #   sysctl -w net.ipv4.tcp_rmem=\"4096 131072 {memory}\" net.ipv4.tcp_wmem=\"4096 16384 {memory}\"\n",
        Bytes(buffer)
    );
}
