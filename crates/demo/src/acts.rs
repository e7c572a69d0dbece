//! The demo's acts: the transfers of each, and how what came of them is shown.

mod goal;
mod legs;
pub mod lossy;
pub mod osaka;
mod position;
mod tunnel;

use ekiden_report::Page;

use crate::cases::Case;
use crate::present::{Outcome, disturbed};

/// The papers that the tables' names stand for.
pub const SOURCES: [&str; 2] = [
    "Osaka thesis: K. Yamanegi, Performance evaluation of a TCP proxy mechanism in a real network, Osaka University, 2005.",
    "Kagoshima project: M. Masuya, K. Shimozono, A system that raises TCP throughput on a high-latency Internet, Kagoshima \
     University, project 132310006.",
];

/// All transfers, in the order in which they are shown; with ekiden's own congestion controls if the kernel takes them.
pub fn cases(has_own_controls: bool) -> Vec<Case> {
    let mut cases = legs::cases();
    cases.extend(position::cases());
    cases.extend(osaka::cases(has_own_controls));
    cases.extend(goal::cases());
    cases.extend(tunnel::cases());
    cases.extend(lossy::cases());
    cases
}

/// The whole demo as a page. `without` says why ekiden's own congestion controls do not take part, if they do not.
pub fn page(outcomes: &[Outcome], without: Option<&str>) -> Page {
    let link = |said: &str, address: &str| (said.to_owned(), address.to_owned());
    Page {
        title: "ekiden: what a relay makes of a long distance".into(),
        message: [goal::message(outcomes)].into_iter().chain(disturbed(outcomes)).collect(),
        introduction: "Every figure is a real file, fetched by curl from a real HTTP server through the running \
                       system's TCP over links emulated on this machine. The end hosts' buffers are held to 64 KiB \
                       unless a table says otherwise. Each file's SHA-256 was compared. Figures are measured; what a model or a \
                       paper expects stands beside them."
            .into(),
        sections: vec![
            legs::section(outcomes),
            position::section(outcomes),
            osaka::section(outcomes, without),
            goal::section(outcomes),
            tunnel::section(outcomes),
            lossy::section(outcomes),
        ],
        sources: SOURCES.map(Into::into).into(),
        links: vec![
            link("Every figure of this page, as JSON", "demo.json"),
            link("The networks, as scenario files for ekiden lab run, ekiden simulate and ekiden plan", "scenarios/"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{Act, S3_RTT};

    #[test]
    fn every_case_is_valid_and_has_the_papers_round_trip_time() {
        let all = cases(true);
        assert_eq!(all.len(), 7 + 6 + 6 + 11 + 3 + 2);
        for case in all {
            let rtt = case.scenario.base_rtt("client", "server").unwrap();
            match case.act {
                Act::Osaka => assert!(osaka::RTTS.iter().any(|(_, expected)| *expected == rtt)),
                Act::Lossy => assert_eq!(rtt, lossy::RTT),
                _ => assert!(rtt.0.abs_diff(S3_RTT.0) <= 8, "{}: {rtt}", case.title()),
            }
        }
    }

    #[test]
    fn every_path_that_is_compared_has_a_direct_transfer() {
        for own in [true, false] {
            let all = cases(own);
            let is_its_direct = |case: &Case, other: &Case| {
                other.is_direct() && other.act == case.act && (other.group == case.group || case.act.has_one_path())
            };
            assert!(all.iter().all(|case| all.iter().any(|other| is_its_direct(case, other))));
        }
    }
}
