//! Warnings about scenarios: keys that have no effect, and flows that drain.
//!
//! A flow that drains stops writing when its time is over. The data in buffers still travels then: the next flow begins
//! beside it, and both are measured on a shared link.

use ekiden_units::{BitRate, Bytes, Time};

use crate::{Amount, Direction, Flow, FlowEnd, Link, Scenario};

/// To which times are rounded, upwards.
const STEP: Time = Time::ms(10);

/// A line for each key of a link that does nothing without another one.
pub(crate) fn useless(scenario: &Scenario) -> Vec<String> {
    let of_link = |(name, link): (&String, &Link)| {
        let either = |is: fn(&Direction) -> bool| is(&link.forth) || is(&link.back);
        let line = |key: &str, other: &str| format!("link '{name}': {key} has no effect without {other}");
        [
            either(|line| line.loss_burst > 1 && line.loss.0 == 0).then(|| line("loss_burst", "loss")),
            either(|line| line.reorder_by.is_some() && line.reorder.0 == 0).then(|| line("reorder_by", "reorder")),
        ]
    };
    scenario.links.iter().flat_map(of_link).flatten().collect()
}

/// A line for each flow that drains after its time, in the file's order, with the first flow that begins while it still
/// drains.
pub(crate) fn overlaps(scenario: &Scenario) -> Vec<String> {
    let warning = |(name, flow): (&String, &Flow)| {
        let (Amount::Duration(lasts), Some(FlowEnd::Drain)) = (flow.amount, flow.end) else { return None };
        let end = Time(flow.start.0.saturating_add(lasts.0));
        // An estimate has no use for more digits.
        let drained = Time(end.0.saturating_add(drain(scenario, flow).0).div_ceil(STEP.0).saturating_mul(STEP.0));
        let begins_meanwhile = |(other, late): &(&String, &Flow)| {
            *other != name && (end..drained).contains(&late.start) && share_a_link(scenario, flow, late)
        };
        let (other, late) = scenario.flows.iter().filter(begins_meanwhile).min_by_key(|(_, late)| late.start)?;
        Some(format!(
            "flow '{other}' starts at {}, when what flow '{name}' has sent until {end} may still be on its way: it can take until \
             {drained} to leave the buffers; start '{other}' then, or give '{name}' end = \"cut\"",
            late.start
        ))
    };
    scenario.flows.iter().filter_map(warning).collect()
}

/// The longest time in which a flow's buffers drain: all of them full, at the rate of the slowest leg.
fn drain(scenario: &Scenario, flow: &Flow) -> Time {
    let buffers = |node: &str| scenario.nodes.get(node).map(|node| (node.tcp.send_buffer.0, node.tcp.receive_buffer.0));
    let stops: Vec<&str> = stops(flow).collect();
    let mut held = 0u64;
    let mut slowest = u64::MAX;
    for stretch in stops.windows(2) {
        let (Some((send, _)), Some((_, receive))) = (buffers(stretch[0]), buffers(stretch[1])) else { continue };
        // A proxy's receive buffer counts too; a receiver reads at once.
        held = held.saturating_add(send);
        if stretch[1] != flow.to {
            held = held.saturating_add(receive);
        }
        let path = scenario.path(stretch[0], stretch[1]).unwrap_or_default();
        let line = path.iter().map(|hop| hop.direction().carried().0).min().unwrap_or(u64::MAX);
        let rtt = scenario.base_rtt(stretch[0], stretch[1]).unwrap_or_default();
        let window = BitRate::of(Bytes(send.min(receive)), rtt).map_or(u64::MAX, |rate| rate.0);
        slowest = slowest.min(line).min(window);
    }
    let bits = u128::from(held) * u128::from(flow.parallel) * 8;
    Time((bits * 1_000_000_000 / u128::from(slowest.max(1))).try_into().unwrap_or(u64::MAX))
}

fn stops(flow: &Flow) -> impl Iterator<Item = &str> {
    [&flow.from].into_iter().chain(&flow.via).chain([&flow.to]).map(String::as_str)
}

/// Whether the data of both passes over one link in the same direction.
fn share_a_link(scenario: &Scenario, one: &Flow, other: &Flow) -> bool {
    let links = |flow: &Flow| {
        let stops: Vec<&str> = stops(flow).collect();
        let paths = stops.windows(2).filter_map(|stretch| scenario.path(stretch[0], stretch[1]));
        paths.flatten().map(|hop| (hop.name.to_owned(), hop.from.to_owned())).collect::<Vec<_>>()
    };
    let others = links(other);
    links(one).iter().any(|link| others.contains(link))
}

#[cfg(test)]
mod tests {
    use crate::Scenario;

    fn warnings(direct: &str, relayed: &str) -> Vec<String> {
        let text = format!(
            r#"
name = "x"
[node.a]
tcp = {{ receive_buffer = "64KiB" }}
[node.p]
kind = "proxy"
[node.b]
[link.near]
ends = ["a", "p"]
rate = "1Gbit/s"
[link.far]
ends = ["p", "b"]
rate = "70Mbit/s"
delay = "17ms"
[flow.direct]
from = "b"
to = "a"
{direct}
[flow.relayed]
from = "b"
to = "a"
via = ["p"]
{relayed}
"#
        );
        Scenario::parse(&text, "x.toml").unwrap().warnings()
    }

    #[test]
    fn keys_without_the_one_that_they_are_for_are_told() {
        let of = |keys: &str| {
            let text = format!(
                "name = 'x'\n[node.a]\n[node.b]\n[link.line]\nends = ['a', 'b']\nrate = '1Mbit/s'\n{keys}\n\
                 [flow.f]\nfrom = 'a'\nto = 'b'\nbytes = '1B'\n"
            );
            Scenario::parse(&text, "x.toml").unwrap().warnings()
        };
        assert_eq!(of("loss_burst = 5"), ["link 'line': loss_burst has no effect without loss"]);
        assert_eq!(of("back.reorder_by = '1ms'"), ["link 'line': reorder_by has no effect without reorder"]);
        assert!(of("loss_burst = 5\nloss = '1%'\nreorder = '1%'\nreorder_by = '1ms'").is_empty());
    }

    #[test]
    fn a_flow_that_begins_while_another_drains_is_told() {
        // 4 MiB at 64 KiB per 34 ms: 2.2 s.
        let drains = "duration = \"5s\"\nend = \"drain\"";
        let [warning] = &warnings(drains, "start = \"6s\"\nduration = \"5s\"")[..] else { panic!() };
        assert!(
            warning.starts_with("flow 'relayed' starts at 6s, when what flow 'direct' has sent until 5s"),
            "{warning}"
        );
        assert!(warning.contains("until 7.18s to leave") && !warning.contains('\n'), "{warning}");
    }

    #[test]
    fn flows_that_are_meant_to_overlap_or_do_not_are_not() {
        for (direct, relayed) in [
            ("duration = \"5s\"\nend = \"drain\"", "start = \"8s\"\nduration = \"5s\""),
            ("duration = \"5s\"\nend = \"drain\"", "start = \"4s\"\nduration = \"5s\""),
            ("duration = \"5s\"\nend = \"drain\"", "duration = \"5s\""),
            ("duration = \"5s\"", "start = \"6s\"\nduration = \"5s\""),
            ("bytes = \"5MB\"", "start = \"6s\"\nduration = \"5s\""),
        ] {
            assert_eq!(warnings(direct, relayed), [] as [String; 0], "{direct} {relayed}");
        }
    }
}
