//! What S3 set out to reach: 50 Mbit/s at 50 ms with hosts as they are, one node beside the user and one at the middle of
//! the path. A node at the server's side would be easier; S3 rejects it as impractical.

use ekiden_model::{payload_rate, s3};
use ekiden_report::{BarChart, Section, Table};
use ekiden_scenario::Scenario;
use ekiden_units::{BitRate, Bytes, Time};

use crate::cases::{Act, Case, DIRECT, S3_RTT, WINDOW, parse, size};
use crate::present::{Outcome, bars, beside_direct, concluded, groups, mbit, measured, on_axis};
use crate::protocol::Listener;

/// What Linux lets a socket grow to of itself: the usual limit of net.ipv4.tcp_wmem.
const LINUX: Bytes = Bytes::mib(4);
/// Both hosts of S3's transfers over the Internet. S3 does not print their windows; its direct transfer,
/// [`s3::PAPER_DIRECT`], needs this much.
const S3_HOSTS: Bytes = Bytes(232_000);
const ACCESS: BitRate = BitRate::mbit(100);
const MIDDLE: &str = "middle node";
const BOTH: &str = "middle and home nodes";

/// What bounds the hosts.
struct Hosts {
    name: &'static str,
    /// In the scenario's name.
    file: &'static str,
    user: Bytes,
    server: Bytes,
}

/// T = rwin / RTT in S3: the user's window is what bounds a download, from a server that can send.
const USER: Hosts = Hosts { name: "user 64 KiB, server 4 MiB", file: "user-64KiB", user: WINDOW, server: LINUX };
const S3: Hosts = Hosts { name: "both 232 KB, as at Kagoshima", file: "s3-hosts", user: S3_HOSTS, server: S3_HOSTS };
const NARROW: Hosts = Hosts { name: "both 64 KiB", file: "both-64KiB", user: WINDOW, server: WINDOW };
const WIDE: Hosts = Hosts { name: "both 4 MiB", file: "both-4MiB", user: LINUX, server: LINUX };

/// The transfers.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for hosts in [USER, S3, NARROW, WIDE] {
        let listener = |node: &str| Some(Listener::Http(node.into()));
        let half = Time(S3_RTT.0 / 2);
        let direct = [(S3_RTT, hosts.user.min(hosts.server))];
        // Each window with the distance that it spans.
        let ways = [
            (DIRECT, None, direct.to_vec()),
            (MIDDLE, listener("middle"), vec![(half, hosts.user), (half, hosts.server)]),
            (BOTH, listener("home"), vec![(half, hosts.server)]),
        ];
        // With these windows a node in the middle has nothing to add that both have not.
        let ways = ways.into_iter().filter(|(way, ..)| hosts.file != WIDE.file || *way != MIDDLE);
        for (way, listener, spans) in ways {
            let scenario = network(&hosts);
            let windows = spans.iter().filter_map(|&(rtt, window)| s3::window_limit(window, rtt));
            let model = windows.chain([payload_rate(&scenario.links["access"].forth, true)]).min().unwrap_or(ACCESS);
            cases.push(Case {
                act: Act::Goal,
                group: hosts.name.into(),
                way,
                listener,
                scenario,
                bytes: size(model),
                model,
                paper_gain: None,
                watch: None,
            });
        }
    }
    cases
}

/// The user's host – a node at home – an access line – a node at the middle of the path – the server.
fn network(hosts: &Hosts) -> Scenario {
    let quarter = Time(S3_RTT.0 / 4);
    let Hosts { file, user, server, .. } = hosts;
    parse(&format!(
        "name = \"s3-goal-{file}\"\ndescription = \"The Kagoshima project's goal: a node beside the user and one in the middle of 50 ms\"\n\
         [node.client]\ntcp = {{ send_buffer = \"{user}\", receive_buffer = \"{user}\" }}\n\
         [node.home]\nkind = \"proxy\"\nnext = [\"middle\"]\n[node.middle]\nkind = \"proxy\"\n\
         [node.server]\ntcp = {{ send_buffer = \"{server}\", receive_buffer = \"{server}\" }}\n\
         [link.lan]\nends = [\"client\", \"home\"]\nrate = \"1Gbit/s\"\n\
         [link.access]\nends = [\"home\", \"middle\"]\nrate = \"{ACCESS}\"\ndelay = \"{quarter}\"\n\
         [link.far]\nends = [\"middle\", \"server\"]\nrate = \"1Gbit/s\"\ndelay = \"{quarter}\"\n"
    ))
}

/// The act as a section.
pub fn section(outcomes: &[Outcome]) -> Section {
    let of: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.act == Act::Goal).collect();
    let goal = s3::PAPER_GOAL.0.0 as f64;
    let mut table = Table::new(["windows of the hosts", "Mbit/s", "× direct", "model, Mbit/s", "Kagoshima's goal"]);
    for outcome in &of {
        table.row([
            outcome.case.title(),
            measured(outcome),
            beside_direct(outcome, format!("{:.2}", outcome.gain)),
            mbit(outcome.model_bit_s as f64),
            if outcome.transfer.disturbed.is_some() { "–".into() } else { verdict(outcome.goodput_bit_s) },
        ]);
    }
    let names = groups(&of);
    let (bars, starred) = bars(&names, &of);
    let chart = BarChart {
        title: "50 ms: throughput over the windows of the hosts".into(),
        quantity: "Mbit/s".into(),
        bars,
        starred,
        categories: on_axis(&names),
        marks: vec![("Kagoshima's goal".into(), vec![Some(goal / 1e6); names.len()])],
    };
    Section {
        heading: "The goal of the Kagoshima project: 50 Mbit/s at 50 ms".into(),
        text: vec![
            "The hosts stay as they are. One node stands beside the user, one at the middle of the path; none at the \
             server's side, which the project rejects as impractical. It reports that the goal was reached; the nearest that it prints is 65.8 \
             Mbit/s over 31.8 and 21.2 ms, with one proxy between. The user's line here has 100 Mbit/s. The node in the middle \
             halves the distance that each window spans. With the one beside the user as well, the user's window spans no distance at \
             all: 25 ms are left to the nodes' own buffers, and 25 ms to the server's."
                .into(),
            "The windows: the project explains a user's throughput by the receive window of the user's host (64 KiB without \
             window scaling); a Linux server sends up to 4 MiB ahead. It does not print the windows of its own hosts; its direct \
             transfer (48.2 Mbit/s at 38.6 ms) needs 232 KB on average. Where the server's buffer is the limit a direct transfer \
             stays below the model: the kernel refills the buffer a third at a time, and such a burst waits before the user's \
             line."
                .into(),
        ]
        .into_iter()
        .chain(conclusions(outcomes))
        .collect(),
        charts: vec![chart.to_svg()],
        table: Some(table),
    }
}

/// What is to be remembered of the demo.
pub fn message(outcomes: &[Outcome]) -> String {
    let of = compared(outcomes, &USER);
    let (_, rtt) = s3::PAPER_GOAL;
    concluded(&of, "What nodes gain", || {
        format!(
            "{}, for a user with a window of 64 KiB at {} ms from the server, with one node at home and one in the middle of \
             the path. Neither host was changed.",
            gain(&of),
            rtt.0 / 1_000_000
        )
    })
}

/// What follows from the act.
fn conclusions(outcomes: &[Outcome]) -> Vec<String> {
    let said = |hosts: &Hosts, what: &str, more: &dyn Fn(&[&Outcome]) -> String| {
        let of = compared(outcomes, hosts);
        concluded(&of, what, || format!("{what}: {}{}.", gain(&of), more(&of)))
    };
    let reached = |of: &[&Outcome]| format!("; {}", verdict(of[1].goodput_bit_s));
    let goal = s3::PAPER_GOAL.0;
    // Within this distance of the server its 64 KiB suffice.
    let near = goal.time_for(WINDOW).0 / 1_000_000;
    vec![
        said(
            &USER,
            &format!("The Kagoshima project's goal, {} Mbit/s, with 64 KiB at the user", goal.as_mbit()),
            &reached,
        ),
        said(
            &S3,
            "With 232 KB at both ends, which is what the Kagoshima project's own direct transfer needs",
            &reached,
        ),
        said(&NARROW, "Where the server, too, holds no more than 64 KiB", &|of| {
            format!(
                "{}, for that window still spans the 25 ms from the server to the middle. Only a node within {near} ms of the \
                 server would help there",
                reached(of)
            )
        }),
        said(&WIDE, "With 4 MiB at both ends and no losses", &|of| {
            let [direct, both] = [of[0].goodput_bit_s, of[1].goodput_bit_s];
            let is_alike = (both / direct - 1.0).abs() < 0.1;
            if is_alike { "; the distance does not matter there".into() } else { String::new() }
        }),
    ]
}

/// The direct transfer with these hosts, and the one over both nodes.
fn compared<'a, 'b>(outcomes: &'a [Outcome<'b>], hosts: &Hosts) -> Vec<&'a Outcome<'b>> {
    let of = |way: &str| {
        outcomes.iter().find(|outcome| outcome.act == Act::Goal && outcome.group == hosts.name && outcome.way == way)
    };
    [DIRECT, BOTH].into_iter().filter_map(of).collect()
}

fn gain(of: &[&Outcome]) -> String {
    format!("{} Mbit/s instead of {} Mbit/s", mbit(of[1].goodput_bit_s), mbit(of[0].goodput_bit_s))
}

fn verdict(bit_s: f64) -> String {
    let missing = s3::PAPER_GOAL.0.0 as f64 - bit_s;
    if missing > 0.0 { format!("missed by {} Mbit/s", mbit(missing)) } else { "reached".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_windows_of_s3s_hosts_are_those_that_its_direct_transfer_needs() {
        let (rate, rtt) = s3::PAPER_DIRECT;
        assert!(Bytes::at(rate, rtt).0.abs_diff(S3_HOSTS.0) < 1_000);
    }

    #[test]
    fn the_model_says_where_the_goal_can_be_reached() {
        let cases = cases();
        let model = |hosts: &Hosts, way| {
            let is_it = |case: &&Case| case.group == hosts.name && case.way == way;
            cases.iter().find(is_it).unwrap().model.as_mbit().round() as u32
        };
        for (hosts, expected) in [(USER, [10, 21, 97]), (S3, [37, 74, 74]), (NARROW, [10, 21, 21])] {
            assert_eq!([DIRECT, MIDDLE, BOTH].map(|way| model(&hosts, way)), expected, "{}", hosts.name);
        }
        assert_eq!([DIRECT, BOTH].map(|way| model(&WIDE, way)), [97, 97]);
    }

    #[test]
    fn what_falls_short_of_the_goal_is_said() {
        assert_eq!(verdict(50e6), "reached");
        assert_eq!(verdict(20.5e6), "missed by 29.5 Mbit/s");
    }
}
