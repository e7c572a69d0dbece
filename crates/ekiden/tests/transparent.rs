//! Transparent listeners and exits on real routers: client – island – exit – server, in namespaces.

use libtest_mimic::{Failed, Trial};

const PRELUDE: &str = include_str!("transparent/prelude.sh");
const GUIDE: &str = include_str!("../../../docs/guide/transparent.md");
const TRIALS: &[(&str, &str)] = &[
    ("one router connects as itself or as the client", include_str!("transparent/single.sh")),
    ("the client's address travels over a chain", include_str!("transparent/chain.sh")),
    ("what is excepted passes", include_str!("transparent/except.sh")),
    ("flows survive start, stop and death", include_str!("transparent/life.sh")),
    ("what has ended is still delivered after SIGTERM", include_str!("transparent/rest.sh")),
    ("an exit finds names and the address that answers", include_str!("transparent/names.sh")),
    ("the path's MTU is heard of", include_str!("transparent/mtu.sh")),
    ("the path of a leg drops large packets and says nothing", include_str!("transparent/black_hole.sh")),
    ("ports are used again", include_str!("transparent/ports.sh")),
    ("the routers in docs/guide/transparent.md work as written", include_str!("transparent/docs.sh")),
    ("a stateful packet filter and address translation", include_str!("transparent/firewall.sh")),
    ("a user other than root changes and removes the rules", include_str!("transparent/user.sh")),
    ("what could not work is refused", include_str!("transparent/refused.sh")),
    ("two nodes share a host, and what is missing is said", include_str!("transparent/two.sh")),
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
    let files = [("ISLAND", block("toml proxy lan.toml")?), ("CITY", block("toml proxy exit.toml")?)];
    crate::script::run(&format!("{PRELUDE}\n{script}"), files)
}
