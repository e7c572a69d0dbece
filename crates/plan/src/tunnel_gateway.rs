//! The configurations of a tunnel's two ends and of a gateway, where these are advised.

use crate::nodes::NodeFile;
use crate::{Direction, Path};

/// The ends of a tunnel: the name of each, which is that of its files.
pub const TUNNEL_ENDS: [&str; 2] = ["tunnel-client", "tunnel-server"];
/// Stands for the address of the server's end (RFC 5737).
pub const TUNNEL_ADDRESS: &str = "192.0.2.1:7100";

/// The tunnel's ends, the client's first. `fingerprints` are those of their keys.
pub fn tunnel_files(fingerprints: &[String; 2]) -> [NodeFile; 2] {
    let [client, server] = TUNNEL_ENDS;
    let file =
        |name: &str, own: &str, between: &str, peer: &str, address: &str, fingerprint: &str, theirs: &str| NodeFile {
            file: format!("{name}.toml"),
            text: format!(
                "# One end of a tunnel: `ekiden tunnel -c {name}.toml`, as root.\n\
             name = \"{name}\"\nkey_file = \"{name}.key\"\n\n\
             [device]\nname = \"ekiden0\"\naddresses = [\"{own}/24\"]\n{between}\n\
             [peer.{peer}]\n{address}fingerprint = \"{fingerprint}\"\n\
             allowed = [\"{theirs}/32\"]       # and the networks behind it\n"
            ),
        };
    let listen = "\n[listen]\naddress = \"0.0.0.0:7100\"\n";
    let to_server = format!("address = \"{TUNNEL_ADDRESS}\"       # CHANGE: where the other end really is\n");
    [
        file(client, "10.77.0.2", "", server, &to_server, &fingerprints[1], "10.77.0.1"),
        file(server, "10.77.0.1", listen, client, "", &fingerprints[0], "10.77.0.2"),
    ]
}

/// The gateway on the sender's side.
pub fn gateway_file(path: &Path) -> NodeFile {
    let sender = match path.direction {
        Direction::Forth => "client",
        Direction::Back => "server",
    };
    NodeFile {
        file: "gateway.toml".into(),
        text: format!(
            "# `ekiden gateway -c gateway.toml`, as root, on the router or host of the {sender}, where data leaves for the long path.\n\
             device = \"eth0\"                # CHANGE: the device towards the path\n\n\
             [group.streams]\nsources = [\"0.0.0.0/0\"]       # CHANGE: the hosts that send\n"
        ),
    }
}
