//! Tunnels between real hosts, in namespaces.

use libtest_mimic::{Failed, Trial};

const PRELUDE: &str = include_str!("tunnel/prelude.sh");
const GUIDE: &str = include_str!("../../../docs/guide/tunnel.md");
const TRIALS: &[(&str, &str)] = &[
    // The two that take longest begin first.
    ("a tunnel through an HTTP proxy", include_str!("tunnel/connect.sh")),
    ("measuring a path that drops large packets and says nothing", include_str!("tunnel/measured_black_hole.sh")),
    ("the tunnel in docs/guide/tunnel.md works as written", include_str!("tunnel/docs.sh")),
    ("connections survive a line that is cut and a node that is killed", include_str!("tunnel/cut.sh")),
    ("strangers, foreign addresses and wrong frames", include_str!("tunnel/hostile.sh")),
    ("plain connections of nodes that share a key", include_str!("tunnel/plain.sh")),
    ("the status of a tunnel", include_str!("tunnel/status.sh")),
    ("the rate and the congestion control of connections", include_str!("tunnel/controls.sh")),
    ("what a host costs a tunnel is said, and a peer is asked", include_str!("tunnel/doctor.sh")),
    ("classes of packets have connections of their own", include_str!("tunnel/classes.sh")),
    ("a connection that stalls is raced", include_str!("tunnel/stall.sh")),
    ("different keep-alives end no connection", include_str!("tunnel/silence.sh")),
    ("what waits in the device is not lost", include_str!("tunnel/device_queue.sh")),
    ("a full tunnel delays others little", include_str!("tunnel/queue.sh")),
    ("privileges that are needed are kept, and two ends that dial agree", include_str!("tunnel/tcp.sh")),
    ("super-packets go whole where both ends take them", include_str!("tunnel/offload.sh")),
    ("the names of peers", include_str!("tunnel/names.sh")),
    ("what could not work is refused", include_str!("tunnel/refused.sh")),
    ("a path that drops large packets and says nothing", include_str!("tunnel/black_hole.sh")),
    ("a listener that answers into its own tunnel says so", include_str!("tunnel/loop.sh")),
    ("SIGHUP takes what is new of connections", include_str!("tunnel/reload.sh")),
];

pub fn trials() -> Vec<Trial> {
    let root = crate::is_root();
    let trials = TRIALS.iter().map(|&(name, script)| Trial::test(name, move || run(script)).with_ignored_flag(!root));
    trials.collect()
}

/// The guide's fenced block with this mark.
fn block(mark: &str) -> Result<&'static str, Failed> {
    let rest = GUIDE.split_once(&format!("```{mark}\n")).ok_or("no such block")?.1;
    Ok(rest.split_once("```").ok_or("the block is not closed")?.0)
}

/// Runs a script behind the prelude.
fn run(script: &str) -> Result<(), Failed> {
    let files =
        [("CITY", block("toml tunnel city-tunnel.toml")?), ("ISLAND", block("toml tunnel island-tunnel.toml")?)];
    crate::script::run(&format!("{PRELUDE}\n{script}"), files)
}
