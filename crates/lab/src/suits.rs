//! Which scenarios a lab can build.

use ekiden_scenario::{Discipline, Link, Profile, Scenario};

use crate::Error;

/// The largest packets that the emulation is made for.
const MTU_MOST: u32 = 9000;

/// Whether the lab can build the scenario, as far as the scenario alone tells.
///
/// # Errors
/// [`Error::OnlySimulated`] for the first thing that only the simulator has.
pub fn suits_lab(scenario: &Scenario) -> Result<(), Error> {
    for (name, node) in &scenario.nodes {
        if node.tcp.profile != Profile::Linux {
            return only_simulated(
                format!("node.{name}.tcp.profile"),
                "whose TCP is the kernel's, set it to \"linux\"",
            );
        }
    }
    if let Some((name, _)) = scenario.nodes.iter().find(|(_, node)| node.tcp.rtt_per_window == Some(true)) {
        return only_simulated(format!("node.{name}.tcp.rtt_per_window"), "set it to false");
    }
    for (name, link) in &scenario.links {
        suitable_link(name, link)?;
    }
    if let Some(name) = scenario.tunnels.keys().next() {
        return only_simulated(format!("tunnel.{name}"), "leave the tunnel out");
    }
    if let Some((name, _)) = scenario.gateways.iter().find(|(_, gateway)| gateway.enabled) {
        return only_simulated(format!("gateway.{name}"), format!("set gateway.{name}.enabled = false"));
    }
    match scenario.background.keys().next() {
        Some(name) => only_simulated(format!("background.{name}"), "leave the background out"),
        None => Ok(()),
    }
}

fn suitable_link(name: &str, link: &Link) -> Result<(), Error> {
    if link.discipline != Discipline::DropTail {
        return only_simulated(format!("link.{name}.discipline"), "set it to \"drop_tail\"");
    }
    if link.loss_burst > 1 {
        return only_simulated(format!("link.{name}.loss_burst"), "set it to 1");
    }
    if link.mtu > MTU_MOST {
        return only_simulated(format!("link.{name}.mtu"), format!("set it to {MTU_MOST} or less"));
    }
    Ok(())
}

fn only_simulated(key: String, instead: impl Into<String>) -> Result<(), Error> {
    Err(Error::OnlySimulated { key, instead: instead.into() })
}

#[cfg(test)]
mod tests {
    use ekiden_scenario::{Point, Scenario, Sweep};

    use super::suits_lab;

    const FILE: &str = r#"
name = "all"
[node.a]
[node.r]
kind = "router"
[node.s]
kind = "router"
[node.b]
[link.ar]
ends = ["a", "r"]
rate = "1Gbit/s"
[link.rs]
ends = ["r", "s"]
rate = "1Gbit/s"
[link.sb]
ends = ["s", "b"]
rate = "1Gbit/s"
[flow.bulk]
from = "a"
to = "b"
duration = "1s"
[gateway.g]
node = "r"
flows = ["bulk"]
enabled = false
"#;
    const TUNNEL: &str = "[tunnel.t]\nends = [\"r\", \"s\"]\n";
    const BACKGROUND: &str = "[background.udp]\nfrom = \"a\"\nto = \"b\"\nrate = \"1Mbit/s\"\n";

    fn verdict(more: &str, set: &[&str]) -> Result<(), String> {
        let sweep = Sweep::parse(&set.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        let point: &Point = &sweep.points()[0];
        let scenario = Scenario::parse_with(&format!("{FILE}{more}"), "test.toml", point).unwrap();
        suits_lab(&scenario).map_err(|error| error.to_string())
    }

    #[test]
    fn what_the_kernel_can_do_is_accepted() {
        verdict("", &[]).unwrap();
        verdict("", &["tcp.rto_min=50ms", "link.rs.mtu=9000", "tcp.profile=linux"]).unwrap();
    }

    #[test]
    fn what_only_the_simulator_can_do_is_refused_with_its_key_and_what_to_do() {
        let refused: [(&str, &[&str], &str, &str); 9] = [
            ("", &["tcp.profile=ns2"], "node.a.tcp.profile: ", "set it to \"linux\""),
            ("", &["node.b.tcp.profile=rfc"], "node.b.tcp.profile: ", "set it to \"linux\""),
            ("", &["tcp.rtt_per_window=true"], "node.a.tcp.rtt_per_window: ", "set it to false"),
            ("", &["link.rs.discipline=codel"], "link.rs.discipline: ", "set it to \"drop_tail\""),
            ("", &["link.rs.loss=1%", "link.rs.loss_burst=4"], "link.rs.loss_burst: ", "set it to 1"),
            ("", &["link.rs.mtu=9001"], "link.rs.mtu: ", "9000 or less"),
            (TUNNEL, &[], "tunnel.t: ", "leave the tunnel out"),
            ("", &["gateway.g.enabled=true"], "gateway.g: ", "set gateway.g.enabled = false"),
            (BACKGROUND, &[], "background.udp: ", "leave the background out"),
        ];
        for (more, set, start, instead) in refused {
            let message = verdict(more, set).expect_err(start);
            assert!(message.starts_with(start), "{message}");
            assert!(message.contains("only `ekiden simulate` can") && message.contains(instead), "{message}");
            assert!(!message.contains('\n'), "one line: {message}");
        }
    }
}
