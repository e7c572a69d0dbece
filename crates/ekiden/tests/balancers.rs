//! The PROXY protocol with HAProxy, nginx and curl on the other side, over IPv4 and IPv6.
//!
//! They are Debian's, unpacked by bench/load/relay/peers into the target directory: installed, they would start services.

use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};

const SCRIPT: &str = include_str!("balancers/proxy-protocol.sh");

pub fn trials() -> Vec<Trial> {
    let root = crate::is_root();
    let peers = peers();
    let there = peers.join("usr/sbin/haproxy").is_file() && peers.join("usr/sbin/nginx").is_file();
    if !there {
        eprintln!("ignored: no HAProxy and nginx in {0} (bench/load/relay/peers {0} fetches them)", peers.display());
    }
    let trial = Trial::test("clients' addresses arrive from HAProxy, and at HAProxy and nginx", move || run(&peers));
    vec![trial.with_ignored_flag(!root || !there)]
}

/// Beside the directory of the build's profile.
pub fn peers() -> PathBuf {
    let profile = Path::new(env!("CARGO_BIN_EXE_ekiden")).parent().unwrap_or(Path::new("."));
    profile.parent().unwrap_or(profile).join("peers")
}

fn run(peers: &Path) -> Result<(), Failed> {
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    crate::script::run(SCRIPT, [("PEERS", peers.as_os_str()), ("TRIPLET", triplet.as_ref())])
}
