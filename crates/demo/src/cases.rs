//! What the demo runs: three acts, each a list of transfers with what a model and the paper expect of them.

use std::fmt::Write as _;

use ekiden_model::{payload_rate, s0, s3};
use ekiden_scenario::{Queue, Scenario};
use ekiden_units::{BitRate, Bytes, Time};
use serde::{Deserialize, Serialize};

/// The window of both end hosts in every act.
pub const WINDOW: Bytes = Bytes::kib(64);
/// RTT between the end hosts in S3's lab.
const S3_RTT: Time = Time::ms(50);
/// Long enough that the hand-shakes and slow start of the fastest case stay below 5 % of its time.
const S3_SIZE: Bytes = Bytes::mib(40);
/// S0 chapter 4: the path between Osaka and Tokyo, and the 25 ms that its emulator adds (both ways together).
const S0_RTTS: [(&str, Time); 2] = [("Osaka–Tokyo, 18 ms", Time::ms(18)), ("Tokyo–Okinawa, 43 ms", Time::ms(43))];

/// Part of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// S3's lab: one to four even segments.
    Segments,
    /// S3's table: where a single proxy should stand.
    Position,
    /// S0's path with a proxy next to each host.
    Osaka,
}

/// How the client reaches the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Through {
    /// One TCP connection, forwarded by the kernel where proxies stand in the way.
    Direct,
    /// The first proxy's SOCKS5 listener.
    Socks,
    /// The first proxy's HTTP listener.
    Http,
}

/// One transfer, and what is expected of it.
#[derive(Debug, Clone)]
pub struct Case {
    /// The act it belongs to.
    pub act: Act,
    /// What it shares with others of its act: the number of segments, the position, the path.
    pub group: String,
    /// How the client reaches the server.
    pub through: Through,
    /// The network.
    pub scenario: Scenario,
    /// Size of the file.
    pub bytes: Bytes,
    /// What a closed form says.
    pub model: BitRate,
    /// The paper's throughput as a multiple of its unsplit one, if it gives one.
    pub paper_gain: Option<f64>,
    /// The node whose congestion window is watched: the sender into the long link.
    pub watch: Option<&'static str>,
}

impl Case {
    /// A name for progress bars and errors.
    pub fn title(&self) -> String {
        let through = match self.through {
            Through::Direct => "direct",
            Through::Socks => "SOCKS5",
            Through::Http => "HTTP",
        };
        match self.group == through {
            true => self.group.clone(),
            false => format!("{}, {through}", self.group),
        }
    }
}

/// All transfers, in the order in which they are shown.
pub fn all() -> Vec<Case> {
    let mut cases = segments();
    cases.extend(position());
    cases.extend(osaka());
    cases
}

fn segments() -> Vec<Case> {
    let mut cases = Vec::new();
    for n in 1..=4 {
        let rtts = vec![Time(S3_RTT.0 / n); n as usize];
        let throughs: &[Through] = if n == 1 { &[Through::Direct] } else { &[Through::Socks, Through::Http] };
        for &through in throughs {
            cases.push(Case {
                act: Act::Segments,
                group: if n == 1 { "direct".into() } else { format!("{n} segments") },
                through,
                scenario: chain(&format!("s3-{n}-segments"), &rtts),
                bytes: S3_SIZE,
                model: s3::split_limit(WINDOW, &rtts).expect("there is at least one segment"),
                paper_gain: Some(s3::paper_gain(n as u32)),
                watch: None,
            });
        }
    }
    cases
}

fn position() -> Vec<Case> {
    let mut cases = Vec::new();
    for ([before, after], _, per_cent) in s3::PAPER_SPLITS {
        let direct = before + after == 0;
        let rtts = if direct { vec![S3_RTT] } else { vec![Time::ms(before), Time::ms(after)] };
        cases.push(Case {
            act: Act::Position,
            group: format!("{before}-{after}"),
            through: if direct { Through::Direct } else { Through::Http },
            scenario: chain(&format!("s3-split-{before}-{after}"), &rtts),
            bytes: S3_SIZE,
            model: s3::split_limit(WINDOW, &rtts).expect("there is at least one segment"),
            paper_gain: Some(f64::from(per_cent) / 100.0),
            watch: None,
        });
    }
    cases
}

fn osaka() -> Vec<Case> {
    let mut cases = Vec::new();
    for (group, rtt) in S0_RTTS {
        let scenario = osaka_path(rtt);
        let line = &scenario.links["core"];
        let payload = payload_rate(line, true);
        let Queue::Bytes(queue) = line.queue else { unreachable!("the core's queue is given in bytes") };
        let filled = s0::reno_utilisation(Bytes::at(line.rate, rtt), queue);
        let window = s3::window_limit(WINDOW, rtt).expect("the RTT is not 0");
        let proxied = BitRate((payload.0 as f64 * filled) as u64);
        for (through, model, mib, watch) in
            [(Through::Direct, window, 16, "server"), (Through::Socks, proxied, 96, "pb")]
        {
            cases.push(Case {
                act: Act::Osaka,
                group: group.into(),
                through,
                scenario: scenario.clone(),
                bytes: Bytes::mib(mib),
                model,
                paper_gain: None,
                watch: Some(watch),
            });
        }
    }
    cases
}

/// client – p1 – p2 … – server, with a proxy between any two links and fast lines, so that only windows and
/// distances count.
fn chain(name: &str, rtts: &[Time]) -> Scenario {
    let proxies: Vec<String> = (1..rtts.len()).map(|i| format!("p{i}")).collect();
    let mut text = format!(
        "name = \"{name}\"\ndescription = \"S3's lab: end hosts with 64 KiB buffers, {} segments\"\n\
         [node.client]\ntcp = {{ send_buffer = \"{WINDOW}\", receive_buffer = \"{WINDOW}\" }}\n\
         [node.server]\ntcp = {{ send_buffer = \"{WINDOW}\", receive_buffer = \"{WINDOW}\" }}\n",
        rtts.len()
    );
    for (i, proxy) in proxies.iter().enumerate() {
        let _ = writeln!(text, "[node.{proxy}]\nkind = \"proxy\"\nnext = {:?}", &proxies[i + 1..]);
    }
    let stops = ["client"].into_iter().chain(proxies.iter().map(String::as_str)).chain(["server"]);
    let stops: Vec<&str> = stops.collect();
    for (i, (ends, rtt)) in stops.windows(2).zip(rtts).enumerate() {
        let delay = Time(rtt.0 / 2);
        let _ = writeln!(text, "[link.l{i}]\nends = {ends:?}\nrate = \"1Gbit/s\"\ndelay = \"{delay}\"");
    }
    parse(&text)
}

/// S0 figure 6, case 2 and chapter 4: proxies next to the hosts, 70 Mbit/s with a drop-tail queue of 100 KB and an MTU
/// of 1400 bytes between them.
fn osaka_path(rtt: Time) -> Scenario {
    let delay = Time(rtt.0 / 2);
    parse(&format!(
        "name = \"s0-{}ms\"\ndescription = \"S0's path: 70 Mbit/s, 100 KB drop tail, proxies next to the hosts\"\n\
         [node.client]\ntcp = {{ send_buffer = \"{WINDOW}\", receive_buffer = \"{WINDOW}\" }}\n\
         [node.pa]\nkind = \"proxy\"\nnext = [\"pb\"]\n[node.pb]\nkind = \"proxy\"\n\
         [node.server]\ntcp = {{ send_buffer = \"{WINDOW}\", receive_buffer = \"{WINDOW}\" }}\n\
         [link.west]\nends = [\"client\", \"pa\"]\nrate = \"1Gbit/s\"\nmtu = 1400\n\
         [link.core]\nends = [\"pa\", \"pb\"]\nrate = \"70Mbit/s\"\ndelay = \"{delay}\"\nqueue = \"100KB\"\nmtu = 1400\n\
         [link.east]\nends = [\"pb\", \"server\"]\nrate = \"1Gbit/s\"\nmtu = 1400\n",
        rtt.0 / 1_000_000
    ))
}

fn parse(text: &str) -> Scenario {
    Scenario::parse(text, "demo").expect("the demo's scenarios are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_valid_and_has_the_papers_round_trip_time() {
        let cases = all();
        assert_eq!(cases.len(), 7 + 6 + 4);
        for case in cases {
            let rtt = case.scenario.base_rtt("client", "server").unwrap();
            match case.act {
                Act::Osaka => assert!(S0_RTTS.iter().any(|(_, expected)| *expected == rtt)),
                _ => assert!(rtt.0.abs_diff(S3_RTT.0) <= 8, "{}: {rtt}", case.title()),
            }
        }
    }
}
