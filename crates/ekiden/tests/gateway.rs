//! Gateways between real hosts, in namespaces.

use libtest_mimic::{Failed, Trial};

const PRELUDE: &str = include_str!("gateway/prelude.sh");
const GUIDE: &str = include_str!("../../../docs/guide/gateway.md");
const TRIALS: &[(&str, &str)] = &[
    ("the gateway in docs/guide/gateway.md works as written", include_str!("gateway/docs.sh")),
    ("windows are lowered, and what arrives is what was sent", include_str!("gateway/transfer.sh")),
    ("a gateway that ends leaves nothing behind", include_str!("gateway/ends.sh")),
    ("a gateway is restarted under its streams", include_str!("gateway/restart.sh")),
    ("a full table is told, and which it is", include_str!("gateway/full.sh")),
    ("many streams keep nobody waiting", include_str!("gateway/many.sh")),
    ("a gateway stands beside what is on the device", include_str!("gateway/beside.sh")),
    ("what a gateway cannot do is told in a line", include_str!("gateway/refused.sh")),
];

pub fn trials() -> Vec<Trial> {
    let root = crate::is_root();
    let trials = TRIALS.iter().map(|&(name, script)| Trial::test(name, move || run(script)).with_ignored_flag(!root));
    trials.collect()
}

/// The guide's configuration.
fn configuration() -> Result<&'static str, Failed> {
    let rest = GUIDE.split_once("```toml gateway gateway.toml\n").ok_or("no such block")?.1;
    Ok(rest.split_once("```").ok_or("the block is not closed")?.0)
}

/// Runs a script behind the prelude.
fn run(script: &str) -> Result<(), Failed> {
    crate::script::run(&format!("{PRELUDE}\n{script}"), [("GATEWAY", configuration()?)])
}
