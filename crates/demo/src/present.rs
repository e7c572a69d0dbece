//! Results as tables for the terminal, a page with pictures, and JSON.

use ekiden_record::Disturbance;
use ekiden_report::{Section, Table};
use serde::Serialize;

use crate::cases::{Act, Case};
use crate::protocol::Transfer;

/// One case with what came of it, as it stands in the JSON document.
#[derive(Debug, Serialize)]
pub struct Outcome<'a> {
    /// The part of the demo.
    pub act: Act,
    /// The number of legs, the position, the path, or the hosts' windows.
    pub group: &'a str,
    /// What it did otherwise than the others of its group.
    pub way: &'static str,
    /// Measured at the client, hand-shakes and slow start included.
    pub goodput_bit_s: f64,
    /// What a closed form says.
    pub model_bit_s: u64,
    /// Measured as a multiple of the same path's direct transfer.
    pub gain: f64,
    /// The paper's multiple, if it gives one.
    pub paper_gain: Option<f64>,
    /// What the client saw.
    pub transfer: &'a Transfer,
    /// What was carried out.
    #[serde(skip)]
    pub case: &'a Case,
}

/// Puts the transfers beside the cases they came from. Each act has a direct transfer for every path it compares.
pub fn outcomes<'a>(cases: &'a [Case], transfers: &'a [Transfer]) -> Vec<Outcome<'a>> {
    let direct = |case: &Case| {
        let same_path = |other: &Case| case.act.has_one_path() || other.group == case.group;
        let is_its_direct = |other: &Case| other.is_direct() && other.act == case.act && same_path(other);
        let found = cases.iter().zip(transfers).find(|(other, _)| is_its_direct(other));
        found.map_or(f64::NAN, |(_, transfer)| transfer.goodput_bit_s())
    };
    let outcome = |(case, transfer): (&'a Case, &'a Transfer)| Outcome {
        act: case.act,
        group: &case.group,
        way: case.way,
        goodput_bit_s: transfer.goodput_bit_s(),
        model_bit_s: case.model.0,
        gain: transfer.goodput_bit_s() / direct(case),
        paper_gain: case.paper_gain,
        transfer,
        case,
    };
    cases.iter().zip(transfers).map(outcome).collect()
}

/// A section as text for a terminal.
pub fn text(section: &Section) -> String {
    let table = section.table.as_ref().map(Table::to_text).unwrap_or_default();
    format!("{}\n{table}\n{}\n", section.heading, section.text.join("\n"))
}

/// The groups in the order in which they come, each once.
pub fn groups(outcomes: &[&Outcome]) -> Vec<String> {
    let mut groups: Vec<String> = outcomes.iter().map(|outcome| outcome.group.to_owned()).collect();
    groups.dedup();
    groups
}

/// The same for the axis of a chart: what comes after a comma on a line of its own.
pub fn on_axis(groups: &[String]) -> Vec<String> {
    groups.iter().map(|group| group.replace(", ", ",\n")).collect()
}

/// A series of bars, in Mbit/s, for each way of reaching the server.
pub fn bars(groups: &[String], outcomes: &[&Outcome]) -> Vec<(String, Vec<Option<f64>>)> {
    let mut ways: Vec<&str> = Vec::new();
    for outcome in outcomes {
        if !ways.contains(&outcome.way) {
            ways.push(outcome.way);
        }
    }
    let series = |way: &str| {
        let value = |group: &String| {
            let found = outcomes.iter().find(|outcome| outcome.way == way && outcome.group == group);
            found.map(|outcome| outcome.goodput_bit_s / 1e6)
        };
        (way.to_owned(), groups.iter().map(value).collect())
    };
    ways.into_iter().map(series).collect()
}

/// What was measured, for tables. A star stands for what [`disturbed`] says of it.
pub fn measured(outcome: &Outcome) -> String {
    let star = if outcome.transfer.disturbed.is_some() { " *" } else { "" };
    mbit(outcome.goodput_bit_s) + star
}

/// What is to be said of the transfers that the machine disturbed, if there are any.
pub fn disturbed(outcomes: &[Outcome]) -> Option<String> {
    let all = outcomes.iter().filter_map(|outcome| outcome.transfer.disturbed).reduce(Disturbance::and)?;
    Some(format!(
        "* The machine disturbed these transfers ({all}): other programs, or a hypervisor, kept the emulation from its \
         processors. Their figures do not follow from the network alone. Run the demo again when less runs beside it."
    ))
}

/// For tables.
pub fn mbit(bit_s: f64) -> String {
    format!("{:.1}", bit_s / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acts;

    /// Transfers that ran as their models say.
    fn as_modelled(cases: &[Case]) -> Vec<Transfer> {
        let transfer = |case: &Case| Transfer {
            bytes: case.bytes.0,
            seconds: case.model.time_for(case.bytes).as_secs(),
            connect_s: 0.0,
            first_byte_s: 0.0,
            sha256: String::new(),
            drops: 0,
            disturbed: None,
            samples: Vec::new(),
            pings: Vec::new(),
        };
        cases.iter().map(transfer).collect()
    }

    #[test]
    fn the_conclusion_says_where_s3s_goal_is_reached_and_by_how_much_it_is_missed() {
        let cases = acts::cases(true);
        let transfers = as_modelled(&cases);
        let outcomes = outcomes(&cases, &transfers);
        let page = acts::page(&outcomes, None);
        let [first, more] = page.conclusion.as_slice() else { panic!("{:?}", page.conclusion) };
        assert!(first.contains("96.5 Mbit/s instead of 10.5 ") && first.ends_with("50 Mbit/s: reached."), "{first}");
        assert!(
            more.contains("74.2 Mbit/s instead of 37.1; reached.") && more.contains("missed by 29.0 Mbit/s"),
            "{more}"
        );
        assert!(!page.to_html().contains("left out") && !page.to_html().contains("NaN"));
    }

    #[test]
    fn what_the_machine_disturbed_is_marked_and_explained() {
        let cases = acts::cases(true);
        let mut transfers = as_modelled(&cases);
        let marked = |transfers: &[Transfer]| {
            let outcomes = outcomes(&cases, transfers);
            let page = acts::page(&outcomes, None);
            let tables: String = page.sections.iter().map(text).collect();
            (tables.matches(" *").count(), page.conclusion.last().unwrap().clone())
        };
        let (stars, last) = marked(&transfers);
        assert!(stars == 0 && !last.starts_with('*'), "{stars}, {last}");
        for transfer in transfers.iter_mut().step_by(4) {
            transfer.disturbed =
                Some(Disturbance { overruns: 1, lateness_p99_us: Some(1500.0), lateness_max_us: None });
        }
        let disturbed = transfers.iter().filter(|transfer| transfer.disturbed.is_some()).count();
        let (stars, last) = marked(&transfers);
        assert!(
            stars == disturbed && last.contains(&format!("({disturbed} overruns, 1.5 ms late)")),
            "{stars}, {last}"
        );
    }

    #[test]
    fn papers_are_named_as_a_reader_can_find_them() {
        let cases = acts::cases(true);
        let transfers = as_modelled(&cases);
        let outcomes = outcomes(&cases, &transfers);
        let page = acts::page(&outcomes, None);
        let mut said: Vec<String> = page.sections.iter().map(text).collect();
        said.extend(page.sections.iter().flat_map(|section| section.charts.clone()));
        said.extend(cases.iter().map(|case| case.scenario.to_toml().split_once("description").unwrap().1.into()));
        said.extend(cases.iter().map(Case::title));
        said.extend(page.conclusion.clone());
        said.extend([page.to_html(), acts::SOURCES.into()]);
        for text in &said {
            let nickname = ["S0", "S1", "S2", "S3", "S4"].into_iter().find(|name| {
                text.match_indices(name).any(|(at, _)| !text[at + 2..].starts_with(|c: char| c.is_ascii_alphanumeric()))
            });
            assert_eq!(nickname, None, "{text}");
        }
        for paper in ["Osaka", "Kagoshima"] {
            assert!(said.iter().any(|text| text.contains(paper)) && acts::SOURCES.contains(paper), "{paper}");
        }
        assert!(page.introduction.ends_with(acts::SOURCES));
    }

    #[test]
    fn a_demo_without_own_congestion_controls_says_why_once() {
        let cases = acts::cases(false);
        let transfers = as_modelled(&cases);
        let outcomes = outcomes(&cases, &transfers);
        let page = acts::page(&outcomes, Some("it needs root"));
        let lines: Vec<String> = page.sections.iter().flat_map(|section| section.text.clone()).collect();
        let said: Vec<&String> = lines.iter().filter(|line| line.contains("it needs root")).collect();
        assert_eq!(said, ["HSTCP and gentle HSTCP are left out here: it needs root."]);
        assert!(outcomes.iter().all(|outcome| !outcome.way.contains("HSTCP")));
        assert!(!page.to_html().contains("NaN"));
    }
}
