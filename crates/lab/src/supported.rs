//! Which scenarios a lab can build.

use ekiden_relay_proto::leg::MAX_CHAIN;
use ekiden_scenario::{Discipline, Flow, GatewayPolicy, Link, NodeKind, Profile, Scenario, Tcp, Tunnel};

use crate::congestion::is_own;
use crate::gateways::watched;
use crate::tunnels::all_tcp;
use crate::{Error, tcp};

/// The largest MTU that the emulator supports.
const MTU_MOST: u32 = 9000;
/// The most connections of a flow: two threads each, and a port of the sender's 28,232.
const PARALLEL_MOST: u32 = 10_000;

/// Checks that the lab can build the scenario, by the scenario alone.
///
/// # Errors
/// [`Error::OnlySimulated`] for the first thing that only the simulator has.
pub fn check_supported(scenario: &Scenario) -> Result<(), Error> {
    for (name, node) in &scenario.nodes {
        check_tcp(&format!("node.{name}.tcp"), &node.tcp)?;
    }
    for (name, link) in &scenario.links {
        check_link(name, link)?;
    }
    chains(scenario)?;
    if let Some((name, _)) = scenario.flows.iter().find(|(_, flow)| flow.parallel > PARALLEL_MOST) {
        return only_simulated(format!("flow.{name}.parallel"), format!("set it to {PARALLEL_MOST} at most"));
    }
    for (name, tunnel) in &scenario.tunnels {
        check_tunnel(scenario, name, tunnel)?;
    }
    for (name, gateway) in scenario.gateways.iter().filter(|(_, gateway)| gateway.enabled) {
        if let GatewayPolicy::Delay | GatewayPolicy::Mark | GatewayPolicy::Drop = gateway.policy {
            return only_simulated(format!("gateway.{name}.policy"), "set it to \"delivered\" or \"paper\"");
        }
        if let Err(instead) = watched(scenario, gateway) {
            return only_simulated(format!("gateway.{name}"), instead);
        }
    }
    match scenario.background.iter().find(|(_, background)| background.on_off.is_some()) {
        Some((name, _)) => only_simulated(format!("background.{name}.on"), "leave 'on' and 'off' out"),
        None => Ok(()),
    }
}

/// Checks that this machine's kernel has every congestion control that the scenario uses, or ekiden can register it.
///
/// # Errors
/// [`Error::Congestion`] for the first that is neither.
pub fn check_congestion_controls(scenario: &Scenario) -> Result<(), Error> {
    let available = tcp::available();
    let lacks = |name: &str| is_own(name).is_none() && !available.iter().any(|available| available == name);
    match all_tcp(scenario).find(|(_, tcp)| lacks(&tcp.congestion)) {
        Some((name, tcp)) => Err(tcp::no_congestion(name, tcp, &available)),
        None => Ok(()),
    }
}

/// The proxies are ekiden nodes, so no chain may be longer than a node accepts. Nodes of an overlay have no other peers than each other, to
/// which only paths of their choice lead.
fn chains(scenario: &Scenario) -> Result<(), Error> {
    if !scenario.members().is_empty() {
        if let Some((name, _)) = scenario.nodes.iter().find(|(_, node)| !node.next.is_empty()) {
            return only_simulated(
                format!("node.{name}.next"),
                "leave it out where another flow has \"auto\" in its 'via'",
            );
        }
        let is_fixed = |flow: &Flow| flow.via.chosen().is_none() && flow.via.len() > 1;
        if let Some((name, _)) = scenario.flows.iter().find(|(_, flow)| is_fixed(flow)) {
            let instead = "name one proxy, or two with \"auto\" between them as another flow does";
            return only_simulated(format!("flow.{name}.via"), instead);
        }
    }
    let instead = |most: usize| format!("name at most {most} proxies");
    if let Some((name, _)) = scenario.nodes.iter().find(|(_, node)| node.next.len() > MAX_CHAIN) {
        return only_simulated(format!("node.{name}.next"), instead(MAX_CHAIN));
    }
    // The sender connects to the first proxy itself, so the chain that a node is told does not have it.
    match scenario.flows.iter().find(|(_, flow)| flow.via.len() > MAX_CHAIN + 1) {
        Some((name, _)) => only_simulated(format!("flow.{name}.via"), instead(MAX_CHAIN + 1)),
        None => Ok(()),
    }
}

/// In the lab a tunnel's end is a node of its own: all that it sends beyond the other end goes through the tunnel, and its TCP is
/// the tunnel's.
fn check_tunnel(scenario: &Scenario, name: &str, tunnel: &Tunnel) -> Result<(), Error> {
    let key = |key: &str| format!("tunnel.{name}.{key}");
    for end in &tunnel.ends {
        let is_used = |flow: &Flow| flow.from == *end || flow.to == *end;
        if scenario.nodes.get(end).is_some_and(|node| node.kind != NodeKind::Router) {
            return only_simulated(key("ends"), format!("make '{end}' a router"));
        }
        if let Some((flow, _)) = scenario.flows.iter().find(|(_, flow)| is_used(flow)) {
            return only_simulated(key("ends"), format!("let flow '{flow}' begin and end at other nodes than '{end}'"));
        }
        let mut others = scenario.tunnels.values().filter(|other| other.ends.contains(end));
        if others.any(|other| other.tcp != tunnel.tcp) {
            return only_simulated(key("tcp"), format!("give all tunnels at '{end}' the same"));
        }
    }
    check_tcp(&key("tcp"), &tunnel.tcp)
}

/// Checks that a TCP can be the kernel's. `table` names it.
fn check_tcp(table: &str, tcp: &Tcp) -> Result<(), Error> {
    if tcp.profile != Profile::Linux {
        return only_simulated(format!("{table}.profile"), "whose TCP is the kernel's, set it to \"linux\"");
    }
    if tcp.rtt_per_window == Some(true) {
        return only_simulated(format!("{table}.rtt_per_window"), "set it to false");
    }
    if tcp.initial_ssthresh.is_some() {
        return only_simulated(format!("{table}.initial_ssthresh"), "leave it out");
    }
    Ok(())
}

fn check_link(name: &str, link: &Link) -> Result<(), Error> {
    if [&link.forth, &link.back].iter().any(|direction| direction.discipline != Discipline::DropTail) {
        return only_simulated(format!("link.{name}.discipline"), "set it to \"drop_tail\"");
    }
    if link.mtu() > MTU_MOST {
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

    use super::check_supported;

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
[flow.balanced]
from = "a"
to = "b"
duration = "1s"
[gateway.g]
node = "r"
flows = ["balanced"]
enabled = false
"#;
    const TUNNEL: &str = "[tunnel.t]\nends = [\"r\", \"s\"]\n";
    const BACKGROUND: &str = "[background.udp]\nfrom = \"a\"\nto = \"b\"\nrate = \"1Mbit/s\"\n";

    fn verdict(more: &str, set: &[&str]) -> Result<(), String> {
        let sweep = Sweep::parse(&set.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        let point: &Point = &sweep.points()[0];
        let scenario = Scenario::parse_with(&format!("{FILE}{more}"), "test.toml", point).unwrap();
        check_supported(&scenario).map_err(|error| error.to_string())
    }

    #[test]
    fn what_the_kernel_can_do_is_accepted() {
        verdict("", &[]).unwrap();
        verdict(BACKGROUND, &[]).unwrap();
        verdict("", &["flow.bulk.file=8MB"]).unwrap();
        verdict("", &["gateway.g.enabled=true"]).unwrap();
        verdict("", &["gateway.g.policy=delay"]).unwrap();
        verdict(TUNNEL, &["tunnel.t.discipline=fq_codel", "tunnel.t.tcp.sack=false"]).unwrap();
        verdict("", &["tcp.rto_min=50ms", "link.rs.mtu=9000", "tcp.profile=linux"]).unwrap();
    }

    #[test]
    fn what_only_the_simulator_can_do_is_refused_with_its_key_and_what_to_do() {
        let refused: [(&str, &[&str], &str, &str); 15] = [
            ("", &["tcp.profile=ns2"], "node.a.tcp.profile: ", "set it to \"linux\""),
            ("", &["node.b.tcp.profile=rfc"], "node.b.tcp.profile: ", "set it to \"linux\""),
            ("", &["tcp.rtt_per_window=true"], "node.a.tcp.rtt_per_window: ", "set it to false"),
            ("", &["tcp.initial_ssthresh=65535B"], "node.a.tcp.initial_ssthresh: ", "leave it out"),
            ("", &["link.rs.discipline=codel"], "link.rs.discipline: ", "set it to \"drop_tail\""),
            ("", &["link.rs.mtu=9001"], "link.rs.mtu: ", "9000 or less"),
            (TUNNEL, &["tunnel.t.tcp.profile=rfc"], "tunnel.t.tcp.profile: ", "set it to \"linux\""),
            (TUNNEL, &["tunnel.t.tcp.initial_ssthresh=65535B"], "tunnel.t.tcp.initial_ssthresh: ", "leave it out"),
            (TUNNEL, &["flow.bulk.from=r"], "tunnel.t.ends: ", "begin and end at other nodes than 'r'"),
            (TUNNEL, &["node.s.kind=proxy"], "tunnel.t.ends: ", "make 's' a router"),
            (
                "",
                &["gateway.g.enabled=true", "gateway.g.policy=delay"],
                "gateway.g.policy: ",
                "\"delivered\" or \"paper\"",
            ),
            (
                "",
                &["gateway.g.enabled=true", "gateway.g.policy=mark"],
                "gateway.g.policy: ",
                "\"delivered\" or \"paper\"",
            ),
            (
                "",
                &["gateway.g.enabled=true", "gateway.g.policy=drop"],
                "gateway.g.policy: ",
                "\"delivered\" or \"paper\"",
            ),
            (
                "[flow.other]\nfrom = \"a\"\nto = \"b\"\nduration = \"1s\"\n[gateway.h]\nnode = \"r\"\nflows = [\"bulk\", \"other\"]\n",
                &[],
                "gateway.h: ",
                "come before or after its own",
            ),
            (
                BACKGROUND,
                &["background.udp.on=1s", "background.udp.off=1s"],
                "background.udp.on: ",
                "leave 'on' and 'off' out",
            ),
        ];
        for (more, set, start, instead) in refused {
            let message = verdict(more, set).expect_err(start);
            assert!(message.starts_with(start), "{message}");
            assert!(message.contains("only `ekiden simulate` can") && message.contains(instead), "{message}");
            assert!(!message.contains('\n'), "one line: {message}");
        }
    }

    #[test]
    fn chains_that_the_nodes_refuse_are_refused_with_their_key() {
        let chain = |length: usize, more: &str| {
            let names: Vec<String> = (0..length).map(|i| format!("\"p{i}\"")).collect();
            let nodes: String = (0..length)
                .map(|i| {
                    format!(
                        "[node.p{i}]\nkind = \"proxy\"\n[link.l{i}]\nends = [\"r\", \"p{i}\"]\nrate = \"1Gbit/s\"\n"
                    )
                })
                .collect();
            verdict(&(nodes + &more.replace("CHAIN", &names.join(", "))), &[])
        };
        let flow = "[flow.f]\nfrom = \"a\"\nto = \"b\"\nbytes = \"1B\"\nvia = [CHAIN]\n";
        chain(17, flow).unwrap();
        let message = chain(18, flow).unwrap_err();
        assert!(message.starts_with("flow.f.via: ") && message.contains("at most 17 proxies"), "{message}");
        let next = "[node.q]\nkind = \"proxy\"\nnext = [CHAIN]\n[link.q]\nends = [\"r\", \"q\"]\nrate = \"1Gbit/s\"\n";
        chain(16, next).unwrap();
        let message = chain(17, next).unwrap_err();
        assert!(message.starts_with("node.q.next: ") && message.contains("at most 16 proxies"), "{message}");
    }

    #[test]
    fn a_congestion_control_that_no_kernel_has_is_known_before_the_run() {
        let of = |name: &str| {
            let text = format!("[tcp]\ncongestion = \"{name}\"\n{FILE}").replacen("\nname = \"all\"\n", "", 1);
            super::check_congestion_controls(&Scenario::parse(&format!("name = \"all\"\n{text}"), "test.toml").unwrap())
        };
        of("reno").unwrap();
        of("ekiden_bic").unwrap();
        let message = of("nope").unwrap_err().to_string();
        assert!(message.contains("node 'a': this kernel has no congestion control 'nope' (it has: "), "{message}");
    }
}
