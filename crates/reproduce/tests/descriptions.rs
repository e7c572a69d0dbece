//! What is wrong in a description is told with file, line and key.

use std::path::Path;

use ekiden_reproduce::{Catalogue, Effort, Engine, Files, PlotKind};

const SCENARIO: &str = "name = \"pair\"\n[node.a]\n[node.b]\n[link.line]\nends = [\"a\", \"b\"]\nrate = \"10Mbit/s\"\ndelay = \"10ms\"\n\
                        [flow.f]\nfrom = \"a\"\nto = \"b\"\nduration = \"3s\"\n";

const DESCRIPTION: &str = r#"title = "A title"
paper = "T1"
section = "2"
did = "Something."

[keys]
delay = "link.line.delay"

[[runs]]
name = "all"
scenario = "pair.toml"
vary = { delay = ["10ms", "20ms"] }
simulator = { repeat = 2 }

[[claims]]
says = "More delay, less throughput."
of = "goodput f"
compare = [{ ratio = ["delay=20ms", "delay=10ms"], below = 1.0 }]

[[plots]]
title = "Throughput"
kind = "lines"
x = "delay"
of = "goodput f"
"#;

fn read(folder: &Path, description: &str) -> Result<Catalogue, String> {
    let experiment = folder.join("t1/delay");
    std::fs::create_dir_all(&experiment).unwrap();
    std::fs::write(experiment.join("pair.toml"), SCENARIO).unwrap();
    std::fs::write(experiment.join("experiment.toml"), description).unwrap();
    Catalogue::read(&Files::Below(folder.into())).map_err(|error| error.to_string())
}

#[test]
fn a_description_is_read_with_all_that_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let catalogue = read(folder.path(), DESCRIPTION).unwrap();
    let [experiment] = &catalogue.experiments[..] else { panic!("{catalogue:?}") };
    assert_eq!((experiment.id.as_str(), experiment.claims.len(), experiment.plots.len()), ("T1-delay", 1, 1));
    let plan = catalogue.sets[0].plan(folder.path(), Engine::Simulator, Effort::Full).unwrap().unwrap();
    assert_eq!((plan.points.len(), plan.runs.len()), (2, 4));
    assert!(plan.runs[0].record.starts_with(folder.path().join("simulator/T1-delay/all")));
    assert!(catalogue.sets[0].plan(folder.path(), Engine::Kernel, Effort::Full).unwrap().is_none());
    assert_eq!(catalogue.family("T1", Engine::Simulator, Effort::Full), 1);
    assert_eq!(catalogue.family("T1", Engine::Kernel, Effort::Full), 0);
    for name in ["all", "t1", "T1-delay"] {
        assert_eq!(catalogue.select(&[name]).unwrap().sets, [0]);
    }
    let none = catalogue.select(&["T1-dealy"]).unwrap_err();
    assert!(none.contains("there is no experiment 'T1-dealy'; did you mean `T1-delay`?"), "{none}");
}

#[test]
fn a_picture_may_be_over_the_runs_names() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        DESCRIPTION.replace("vary = { delay = [\"10ms\", \"20ms\"] }\n", "").replace("x = \"delay\"", "x = \"runs\"");
    let claims = text.find("[[claims]]").unwrap()..text.find("[[plots]]").unwrap();
    let other = "[[runs]]\nname = \"other\"\nscenario = \"pair.toml\"\nset = { delay = \"30ms\" }\nsimulator = { repeat = 1 }\n\n";
    let mut text = text;
    text.replace_range(claims, other);
    let catalogue = read(folder.path(), &text).unwrap();
    let PlotKind::Over { values, series, .. } = &catalogue.experiments[0].plots[0].kind else {
        panic!("{catalogue:?}")
    };
    assert_eq!((&values[..], series.len()), (&["all".to_owned(), "other".to_owned()][..], 1));
}

#[test]
fn other_starts_are_repetitions_of_a_point() {
    let folder = tempfile::tempdir().unwrap();
    let over = "simulator = { repeat = 1, over = { \"flow.f.start\" = [\"0\", \"1s\", \"2s\"] } }\n\
                quick = { simulator = { over = { \"flow.f.start\" = [\"0\", \"1s\"] } } }";
    let catalogue = read(folder.path(), &DESCRIPTION.replace("simulator = { repeat = 2 }", over)).unwrap();
    let [full, quick] = [Effort::Full, Effort::Quick].map(|effort| {
        let plan = catalogue.sets[0].plan(folder.path(), Engine::Simulator, effort).unwrap().unwrap();
        let variants = catalogue.sets[0].amount(Engine::Simulator, effort).unwrap().variants;
        let points: Vec<String> = plan.points.iter().map(ToString::to_string).collect();
        (variants, points)
    });
    assert_eq!((full.0, full.1.len(), quick.0, quick.1.len()), (3, 6, 2, 4));
    // The first three are of one point.
    assert!(full.1[..3].iter().all(|point| point.starts_with("link.line.delay=10ms")), "{:?}", full.1);
}

#[test]
fn a_comparison_is_made_for_each_combination_of_values() {
    let folder = tempfile::tempdir().unwrap();
    let rates = r#"delay = ["10ms", "20ms"], "link.line.rate" = ["1Mbit/s", "2Mbit/s"]"#;
    let description = DESCRIPTION
        .replace("delay = [\"10ms\", \"20ms\"]", rates)
        .replace("x = \"delay\"", "x = \"delay\"\nseries = [\"link.line.rate\"]");
    let with = |compare: &str| {
        let compare = format!("compare = [{{ {compare} }}]");
        let text =
            description.replace("compare = [{ ratio = [\"delay=20ms\", \"delay=10ms\"], below = 1.0 }]", &compare);
        read(folder.path(), &text).map(|catalogue| {
            let all = catalogue.experiments[0].claims[0].compare.iter();
            all.map(|compare| compare.effects.iter().map(|terms| terms[0].written.clone()).collect::<Vec<_>>())
                .collect::<Vec<_>>()
        })
    };
    let each = r#"each = { "link.line.rate" = ["1Mbit/s", "2Mbit/s"] }, below = 1.0"#;
    let [slow, fast] = ["1", "2"].map(|rate| format!("delay=20ms link.line.rate={rate}Mbit/s"));
    let of = with(&format!("ratio = [\"delay=20ms\", \"delay=10ms\"], {each}")).unwrap();
    assert_eq!(of, [[slow.clone()], [fast.clone()]]);
    // Of the best there is one comparison, of all combinations.
    let best = with(&format!("best = [[\"delay=20ms\", \"delay=10ms\"]], {each}")).unwrap();
    assert_eq!(best, [[slow, fast]]);
    let all = with(&format!("value = \"\", each = {{ {rates} }}, below = 1.0")).unwrap();
    assert_eq!((all.len(), &all[1][0]), (4, &"delay=10ms link.line.rate=2Mbit/s".to_owned()));
    let none = with("value = \"\", each = { delay = [] }, below = 1.0").unwrap_err();
    assert!(none.contains("experiment.toml:18: ") && none.contains("compare.each.delay has no value"), "{none}");
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    for (from, to, line, said) in [
        ("title =", "titel =", 1, "unknown field `titel`"),
        ("repeat = 2", "repeats = 2", 13, "did you mean `repeat`?"),
        ("repeat = 2", "repeat = 2, at_once = 101", 13, "at_once = 101 is out of range: 1 to 100"),
        ("repeat = 2", "repeat = 0", 13, "repeat = 0 is out of range: 1 to 1000"),
        ("simulator = { repeat = 2 }", "", 10, "no engine does these runs"),
        (
            "simulator = { repeat = 2 }",
            "quick = { kernel = { repeat = 1 } }\nsimulator = { repeat = 2 }",
            10,
            "an engine that does not",
        ),
        ("pair.toml", "none.toml", 11, "none.toml: cannot be read"),
        ("= { delay =", "= { link.line.rate =", 12, "vary"),
        ("delay=20ms", "delay=30ms", 18, "no point has these values"),
        ("delay=20ms", "dealy=20ms", 18, "no runs have the key 'dealy'; did you mean `delay`?"),
        ("delay=20ms", "other: delay=20ms", 18, "there are no runs 'other'; there are: all"),
        ("delay=20ms", "", 18, "2 points have these values"),
        ("delay=20ms", "delay=10ms", 18, "stands in the comparison twice"),
        ("[\"delay=20ms\", \"delay=10ms\"]", "[\"delay=20ms\"]", 18, "a ratio is of two points, or of four"),
        (", below = 1.0", "", 16, "needs above = … or below = …"),
        ("below = 1.0", "below = 1.0, above = 2.0", 16, "must be less than below"),
        (
            "of = \"goodput f\"\ncompare",
            "of = \"goodput g\"\ncompare",
            17,
            "the scenario 'pair' has no flow 'g'; there is: f",
        ),
        ("of = \"goodput f\"\ncompare", "of = \"godput f\"\ncompare", 17, "did you mean `goodput`?"),
        ("compare = ", "missing = \"the values\"\ncompare = ", 16, "not both"),
        ("x = \"delay\"", "x = \"rate\"", 23, "no points have the key 'rate'"),
        ("kind = \"lines\"", "kind = \"line\"", 22, "did you mean `lines`?"),
        ("x = \"delay\"", "from = \"1s\"\nx = \"delay\"", 21, "for a picture over time"),
        ("did =", "uses = [\"other/all\"]\ndid =", 4, "names no runs of T1"),
    ] {
        assert!(DESCRIPTION.contains(from), "{from}");
        let error = read(folder.path(), &DESCRIPTION.replacen(from, to, 1)).map(|_| ()).unwrap_err();
        assert!(error.contains(&format!("experiment.toml:{line}: ")) && error.contains(said), "{from} → {to}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn values_that_no_scenario_takes_are_told_when_runs_are_planned() {
    let folder = tempfile::tempdir().unwrap();
    let catalogue = read(folder.path(), &DESCRIPTION.replace("link.line.delay", "link.lien.delay")).unwrap();
    let error =
        catalogue.sets[0].plan(folder.path(), Engine::Simulator, Effort::Full).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("link.lien.delay"), "{error}");
}

#[test]
fn a_folder_without_descriptions_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = Catalogue::read(&Files::Below(folder.path().into())).unwrap_err().to_string();
    assert!(error.contains("there is no experiment.toml in it or below it"), "{error}");
}
