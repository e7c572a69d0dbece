//! Results as tables for the terminal, a page with pictures, and JSON.

use ekiden_record::Disturbance;
use ekiden_report::{Section, wrapped};
use serde::Serialize;

use crate::cases::{Act, Case};
use crate::protocol::Transfer;

/// A series of bars with its name.
type Bars = (String, Vec<Option<f64>>);

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
    /// Whether the machine disturbed the direct transfer that `gain` is a multiple of.
    pub direct_disturbed: bool,
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
        found.map_or((f64::NAN, false), |(_, transfer)| (transfer.goodput_bit_s(), transfer.disturbed.is_some()))
    };
    let outcome = |(case, transfer): (&'a Case, &'a Transfer)| {
        let (direct, direct_disturbed) = direct(case);
        Outcome {
            act: case.act,
            group: &case.group,
            way: case.way,
            goodput_bit_s: transfer.goodput_bit_s(),
            model_bit_s: case.model.0,
            gain: transfer.goodput_bit_s() / direct,
            direct_disturbed,
            paper_gain: case.paper_gain,
            transfer,
            case,
        }
    };
    cases.iter().zip(transfers).map(outcome).collect()
}

/// A section as text for a terminal with that many columns.
pub fn text(section: &Section, columns: Option<usize>) -> String {
    let table = section.table.as_ref().map(|table| table.to_text_within(columns)).unwrap_or_default();
    let fitted = |text: String| columns.map_or_else(|| text.clone(), |columns| wrapped(&text, columns));
    format!("{}\n{table}\n{}\n", fitted(section.heading.clone()), fitted(section.text.join("\n")))
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

/// A series of bars, in Mbit/s, for each way of reaching the server; and which of them have a star.
pub fn bars(groups: &[String], outcomes: &[&Outcome]) -> (Vec<Bars>, Vec<[usize; 2]>) {
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
    let disturbed = outcomes.iter().filter(|outcome| outcome.transfer.disturbed.is_some());
    let place = |outcome: &&Outcome| {
        let way = ways.iter().position(|way| *way == outcome.way)?;
        Some([way, groups.iter().position(|group| group == outcome.group)?])
    };
    let starred = disturbed.filter_map(place).collect();
    (ways.iter().map(|way| series(way)).collect(), starred)
}

impl Outcome<'_> {
    /// Whether the machine disturbed what it and its direct transfer have to say of each other.
    pub fn gain_disturbed(&self) -> bool {
        self.transfer.disturbed.is_some() || self.direct_disturbed
    }
}

/// The throughput, for tables.
pub fn measured(outcome: &Outcome) -> String {
    of_transfer(outcome, mbit(outcome.goodput_bit_s))
}

/// What comes from one transfer alone: a figure, or the name of what is drawn or said of it.
pub fn of_transfer(outcome: &Outcome, figure: String) -> String {
    starred(figure, outcome.transfer.disturbed.is_some())
}

/// A figure that is a multiple of the direct transfer.
pub fn beside_direct(outcome: &Outcome, figure: String) -> String {
    starred(figure, outcome.gain_disturbed())
}

/// With a star if a disturbed transfer is in it: the star stands for what [`disturbed`] says. All that is measured, and all that is
/// computed from that, goes through here, or has [`BarChart::starred`](ekiden_report::BarChart::starred).
pub fn starred(figure: String, is_disturbed: bool) -> String {
    if is_disturbed && !figure.is_empty() { figure + " *" } else { figure }
}

/// What follows from some transfers, unless the machine disturbed one of them: then nothing does, and that is said.
pub fn concluded(from: &[&Outcome], what: &str, conclusion: impl FnOnce() -> String) -> String {
    match from.iter().filter(|outcome| outcome.transfer.disturbed.is_some()).count() {
        0 => conclusion(),
        count => {
            format!("{what}: nothing is concluded, for the machine disturbed {count} of {} transfers (*).", from.len())
        }
    }
}

/// What is to be said of the transfers that the machine disturbed, if there are any.
pub fn disturbed(outcomes: &[Outcome]) -> Option<String> {
    let all = outcomes.iter().filter_map(|outcome| outcome.transfer.disturbed).reduce(Disturbance::and)?;
    Some(format!(
        "* The machine disturbed these transfers ({all}): other programs, or a hypervisor, kept the emulation from its \
         processors, or curl and the nodes from theirs. Their figures do not \
         follow from the network alone, and nothing is concluded from them. Run the demo again when less runs beside it."
    ))
}

/// For tables, without a star: of models, and within [`of_transfer`].
pub fn mbit(bit_s: f64) -> String {
    format!("{:.1}", bit_s / 1e6)
}

#[cfg(test)]
mod tests {
    use ekiden_report::Table;

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
            arrived: Vec::new(),
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
        assert_eq!(page.message.len(), 1, "{:?}", page.message);
        assert!(page.message[0].starts_with("96.5 Mbit/s instead of 10.5 Mbit/s"), "{:?}", page.message);
        let goal = text(&page.sections[3], None);
        for said in [
            "with 64 KiB at the user: 96.5 Mbit/s instead of 10.5 Mbit/s; reached.",
            "needs: 74.2 Mbit/s instead of 37.1 Mbit/s; reached.",
            "missed by 29.0 Mbit/s, for that window",
            "96.5 Mbit/s; the distance does not matter there.",
        ] {
            assert!(goal.contains(said), "{said}: {goal}");
        }
        assert!(!page.to_html().contains("left out") && !page.to_html().contains("NaN"));
    }

    #[test]
    fn what_the_machine_disturbed_is_marked_and_explained() {
        let cases = acts::cases(true);
        let mut transfers = as_modelled(&cases);
        let shown = |transfers: &[Transfer]| {
            let outcomes = outcomes(&cases, transfers);
            let page = acts::page(&outcomes, None);
            let tables: String = page.sections.iter().map(|section| text(section, None)).collect();
            (tables, page.message)
        };
        let (tables, message) = shown(&transfers);
        assert!(!tables.contains(" *") && message.len() == 1 && tables.contains("Best here, within 3 %: "), "{tables}");
        let disturbance = Disturbance {
            overruns: 1,
            lateness_p99_us: Some(1500.0),
            lateness_max_us: None,
            waited_percent: Some(31.0),
        };
        for transfer in transfers.iter_mut().step_by(4) {
            transfer.disturbed = Some(disturbance);
        }
        let disturbed = transfers.iter().filter(|transfer| transfer.disturbed.is_some()).count();
        let (tables, message) = shown(&transfers);
        let said = format!("({disturbed} overruns, 1.5 ms late, 31 % without a processor)");
        assert!(message.len() == 2 && message[1].contains(&said), "{message:?}");
        // The figure of each, and others that are multiples of it.
        let starred = tables.matches(" *").count();
        assert!(starred > disturbed, "{starred} {tables}");
        // So is all else that is computed from it, and its bars.
        let page_of = |disturbed_ways: &dyn Fn(&Case) -> bool| {
            let mut transfers = as_modelled(&cases);
            for (case, transfer) in cases.iter().zip(&mut transfers) {
                transfer.disturbed = disturbed_ways(case).then_some(disturbance);
            }
            acts::page(&outcomes(&cases, &transfers), None)
        };
        let starred_bars = |section: &Section| section.charts[0].matches('*').count();
        let is_one = |case: &Case| !case.is_direct() && case.watch.is_some() && case.title().contains("43 ms");
        let osaka = &page_of(&is_one).sections[2];
        let disturbed = cases.iter().filter(|case| is_one(case)).count();
        let table = osaka.table.as_ref().map(Table::to_text).unwrap_or_default();
        assert!(disturbed > 0 && table.matches(" *").count() == 4 * disturbed, "{disturbed} {table}");
        assert_eq!(osaka.text.iter().filter(|said| said.contains(" *: ")).count(), disturbed, "{:?}", osaka.text);
        assert_eq!(starred_bars(osaka), disturbed);
        // A direct transfer is in each multiple of it.
        let direct = page_of(&|case| case.is_direct());
        let legs = direct.sections[0].table.as_ref().map(Table::to_text).unwrap_or_default();
        assert_eq!(legs.matches(" *").count(), 2 * 7 + 2, "{legs}");
        assert!(direct.sections[0].charts[0].contains("T as measured *"));
        assert_eq!(starred_bars(&direct.sections[1]), 6);
        // Nothing follows from what was disturbed.
        assert!(tables.contains("The best place: nothing is concluded") && !tables.contains("Best here"), "{tables}");
        for transfer in &mut transfers {
            transfer.disturbed = Some(disturbance);
        }
        let (tables, message) = shown(&transfers);
        assert!(message[0].contains("nothing is concluded") && !tables.contains("does not matter"), "{tables}");
        assert!(!tables.contains("missed by"), "{tables}");
    }

    #[test]
    fn papers_are_named_as_a_reader_can_find_them() {
        let cases = acts::cases(true);
        let transfers = as_modelled(&cases);
        let outcomes = outcomes(&cases, &transfers);
        let page = acts::page(&outcomes, None);
        let mut said: Vec<String> = page.sections.iter().map(|section| text(section, None)).collect();
        said.extend(page.sections.iter().flat_map(|section| section.charts.clone()));
        said.extend(cases.iter().map(|case| case.scenario.to_toml().split_once("description").unwrap().1.into()));
        said.extend(cases.iter().map(Case::title));
        said.extend(page.message.iter().chain(&page.sources).cloned());
        said.push(page.to_html());
        for text in &said {
            let nickname = ["S0", "S1", "S2", "S3", "S4"].into_iter().find(|name| {
                text.match_indices(name).any(|(at, _)| !text[at + 2..].starts_with(|c: char| c.is_ascii_alphanumeric()))
            });
            assert_eq!(nickname, None, "{text}");
        }
        for paper in ["Osaka", "Kagoshima"] {
            assert!(acts::SOURCES.iter().any(|source| source.starts_with(paper)), "{paper}");
        }
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

    #[test]
    fn a_section_fits_the_terminal() {
        let mut table = Table::new(["path", "goodput", "what a model of the whole of the path says of it"]);
        table.row(["one leg", "10.0", "a number of words that are wider than a narrow terminal"]);
        let text = text(
            &Section {
                heading: "A heading of some words, longer than the terminal is wide".into(),
                text: vec!["A sentence that would be broken in the middle of a word, were it not wrapped.".into()],
                table: Some(table),
                charts: Vec::new(),
            },
            Some(50),
        );
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(50), "{text}");
    }
}
