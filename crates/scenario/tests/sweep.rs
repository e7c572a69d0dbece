//! What `--set` may say, and how a wrong one is refused.

use ekiden_scenario::{Amount, FlowEnd, Point, Scenario, Sweep};
use ekiden_units::{Bytes, Time};

const FILE: &str = r#"
name = "pair"
seed = 5
[tcp]
receive_buffer = "64KiB"
[node.a]
tcp = { send_buffer = "1MiB" }
[node.b]
[link.line]
ends = ["a", "b"]
rate = "70Mbit/s"
queue = "2KB"
[flow.bulk]
from = "a"
to = "b"
bytes = "1MB"
"#;

fn sweep(sets: &[&str]) -> Result<Sweep, String> {
    Sweep::parse(&sets.iter().map(ToString::to_string).collect::<Vec<_>>()).map_err(|error| error.to_string())
}

fn scenarios(sets: &[&str]) -> Result<Vec<Scenario>, String> {
    let points = sweep(sets)?.points();
    let all: Result<Vec<_>, _> = points.iter().map(|point| Scenario::parse_with(FILE, "test.toml", point)).collect();
    all.map_err(|error| error.to_string())
}

fn only(sets: &[&str]) -> Scenario {
    scenarios(sets).unwrap().remove(0)
}

#[test]
fn points_are_the_cross_product_and_the_last_varies_fastest() {
    let points = sweep(&["link.line.delay=1ms,2ms", "tcp.sack=true,false"]).unwrap().points();
    let shown: Vec<_> = points.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "link.line.delay=1ms tcp.sack=true",
            "link.line.delay=1ms tcp.sack=false",
            "link.line.delay=2ms tcp.sack=true",
            "link.line.delay=2ms tcp.sack=false"
        ]
    );
    assert_eq!(sweep(&[]).unwrap().points(), [Point::default()]);
}

#[test]
fn nothing_set_is_the_file_itself() {
    assert_eq!(only(&[]), Scenario::parse(FILE, "test.toml").unwrap());
    // Setting a key to what it is changes neither the others nor the order of things.
    let same = only(&["seed=5"]);
    assert_eq!(same.to_toml(), only(&[]).to_toml());
}

#[test]
fn every_kind_of_value_can_be_set() {
    let sets = ["link.line.delay=0", "link.line.mtu=1400", "tcp.timestamps=false", "link.line.queue=50 packets"];
    let scenario = only(&sets);
    assert_eq!((scenario.links["line"].forth.delay, scenario.links["line"].forth.mtu), (Time(0), 1400));
    assert!(!scenario.nodes["a"].tcp.timestamps && !scenario.nodes["b"].tcp.timestamps);
    assert_eq!(only(&["description=5"]).description, "5");
}

#[test]
fn every_key_of_the_format_can_be_set_to_what_it_is() {
    fn leaves(path: &str, value: &toml::Value, into: &mut Vec<String>) {
        match value {
            toml::Value::Table(table) => {
                let below = |key: &String| format!("{path}{}{key}", if path.is_empty() { "" } else { "." });
                table.iter().for_each(|(key, value)| leaves(&below(key), value, into));
            }
            toml::Value::Array(_) => {}
            toml::Value::String(text) => into.push(format!("{path}={text}")),
            other => into.push(format!("{path}={other}")),
        }
    }
    let text = include_str!("everything.toml");
    let whole = Scenario::parse(text, "test.toml").unwrap();
    let mut sets = Vec::new();
    leaves("", &toml::Value::Table(text.parse().unwrap()), &mut sets);
    assert!(sets.len() > 50, "{sets:?}");
    for set in sets {
        let point = &sweep(&[&set]).unwrap().points()[0];
        let scenario = Scenario::parse_with(text, "test.toml", point).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(scenario, whole, "{set}");
    }
}

#[test]
fn every_set_in_the_comments_of_the_scenario_files_can_be_set() {
    let scenarios = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let (mut folders, mut found) = (vec![scenarios], 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let comments = text.lines().filter(|line| line.starts_with('#'));
            for set in comments.flat_map(|line| line.split("--set ").skip(1)) {
                let set = set.split_whitespace().next().unwrap().trim_end_matches(['.', ',', ':', ';']);
                for point in sweep(&[set]).unwrap_or_else(|error| panic!("{}: {error}", path.display())).points() {
                    Scenario::load_with(&path, &point).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                    found += 1;
                }
            }
        }
    }
    assert!(found > 20, "{found}");
}

#[test]
fn joined_keys_take_the_same_value_beside_what_the_file_says() {
    let all = scenarios(&["node.a.tcp.receive_buffer+node.b.tcp.send_buffer=16KiB,32KiB"]).unwrap();
    let buffers = |scenario: &Scenario, node: &str| {
        (scenario.nodes[node].tcp.send_buffer, scenario.nodes[node].tcp.receive_buffer)
    };
    assert_eq!(all.len(), 2);
    assert_eq!(buffers(&all[1], "a"), (Bytes::mib(1), Bytes::kib(32)));
    assert_eq!(buffers(&all[1], "b"), (Bytes::kib(32), Bytes::kib(64)));
}

#[test]
fn bytes_and_duration_replace_each_other() {
    assert_eq!(only(&["flow.bulk.duration=3s"]).flows["bulk"].amount, Amount::Duration(Time::secs(3)));
    let drains = only(&["flow.bulk.duration=3s", "flow.bulk.end=drain"]);
    assert_eq!(drains.flows["bulk"].end, Some(FlowEnd::Drain));
    assert_eq!(only(&["flow.bulk.bytes=3B"]).flows["bulk"].end, None);
    assert_eq!(only(&["flow.bulk.bytes=3B"]).flows["bulk"].amount, Amount::Bytes(Bytes(3)));
}

#[test]
fn values_that_are_right_only_together_are_accepted() {
    scenarios(&["link.line.mtu=9000"]).unwrap_err();
    assert_eq!(only(&["link.line.mtu=9000", "link.line.queue=90KB"]).links["line"].forth.mtu, 9000);
}

/// (`--set`, how the message starts, part of the reason)
const WRONG: &[(&[&str], &str, &str)] = &[
    (&["tcp.sack"], "--set tcp.sack: ", "needs a key, '=' and values"),
    (&["=5ms"], "--set =5ms: ", "a key is empty"),
    (&["tcp.sack+=true"], "--set tcp.sack+=true: ", "a key is empty"),
    (&["tcp.sack=true,"], "--set tcp.sack=true,: ", "a value is empty"),
    (&["tcp.sack=true,true"], "--set tcp.sack=true,true: ", "'true' comes twice"),
    (&["seed=1", "seed=2"], "--set seed=2: ", "'seed' is set twice"),
    (&["seed+seed=2"], "--set seed+seed=2: ", "'seed' is set twice"),
    (&["sede=2"], "--set sede=2: ", "unknown field `sede`"),
    (&["tcp.sacks=true"], "--set tcp.sacks=true: ", "unknown field `sacks`"),
    (&["link.line.dealy=1ms"], "--set link.line.dealy=1ms: ", "unknown field `dealy`"),
    (&["node.a.tcp.sacks=true"], "--set node.a.tcp.sacks=true: ", "unknown field `sacks`"),
    (&["link.line.delay.x=1ms"], "--set link.line.delay.x=1ms: ", "there is no key 'link.line.delay.x'"),
    (&["lines.line.delay=1ms"], "--set lines.line.delay=1ms: ", "there is no key"),
    (&["link=1ms"], "--set link=1ms: ", "is a table"),
    (&["link.line=1ms"], "--set link.line=1ms: ", "is a table"),
    (&["node.a.tcp=1ms"], "--set node.a.tcp=1ms: ", "is a table"),
    (&["link.lien.delay=1ms"], "--set link.lien.delay=1ms: ", "there is no link 'lien'; there is: line"),
    (&["node.c.tcp.sack=true"], "--set node.c.tcp.sack=true: ", "there is no node 'c'; there is: a, b"),
    (&["flow.x.start=1s"], "--set flow.x.start=1s: ", "there is no flow 'x'; there is: bulk"),
    (&["link.line.delay=1ms,5h"], "--set link.line.delay=5h: ", "out of range: 0s to 60s"),
    (&["seed=1", "link.line.delay=5"], "--set link.line.delay=5: ", "needs one of the units"),
    (&["link.line.mtu=big"], "--set link.line.mtu=big: ", "invalid type"),
    (&["tcp.sack=maybe"], "--set tcp.sack=maybe: ", "must be true or false"),
    (&["flow.bulk.via=a"], "--set flow.bulk.via=a: ", "must be a list"),
    (&["node.a.kind=hots"], "--set node.a.kind=hots: ", "unknown variant `hots`"),
    (
        &["link.line.mtu=1800", "link.line.queue=1700B"],
        "--set link.line.mtu=1800 --set link.line.queue=1700B: ",
        "out of range: 1.8KB",
    ),
];

#[test]
fn a_wrong_set_is_refused_with_its_own_words_and_the_reason() {
    for (sets, start, reason) in WRONG {
        let message = scenarios(sets).expect_err(start);
        assert!(message.starts_with(start), "{sets:?}: {message}");
        assert!(message.contains(reason), "{sets:?}: {message}");
        assert!(!message.contains('\n'), "one line: {message}");
    }
}

#[test]
fn too_many_points_are_refused_before_any_is_made() {
    let values: Vec<_> = (0..500).map(|i| i.to_string()).collect();
    let message = sweep(&[&format!("seed={}", values.join(",")), "tcp.sack=true,false,3"]).unwrap_err();
    assert!(message.starts_with("--set tcp.sack=true,false,3: makes more than 1000 points"), "{message}");
}

#[test]
fn a_wrong_file_is_told_as_without_set() {
    let point = &sweep(&["link.line.delay=1ms"]).unwrap().points()[0];
    let message = Scenario::parse_with(&FILE.replace("seed", "sede"), "test.toml", point).unwrap_err().to_string();
    assert!(message.starts_with("test.toml:3: unknown field `sede`"), "{message}");
}

#[test]
fn file_stems_fit_file_names_and_tell_points_apart() {
    let stem = |sets: &[&str]| sweep(sets).unwrap().points()[0].file_stem();
    assert_eq!(
        stem(&["link.a.rate+link.b.rate=70Mbit/s", "tcp.sack=true"]),
        "link.a.rate+link.b.rate=70Mbit_s,tcp.sack=true"
    );
    assert_eq!(stem(&[]), "");
    let long = |value: &str| stem(&[&format!("description={}{value}", "x".repeat(300))]);
    assert!(long("a").len() <= 200 && long("a") != long("b"));
}

#[test]
fn a_point_with_a_seed_has_that_one_only() {
    let point = sweep(&["seed=3", "tcp.sack=true"]).unwrap().points()[0].with_seed(9);
    assert_eq!(point.to_string(), "tcp.sack=true seed=9");
    assert_eq!(Scenario::parse_with(FILE, "test.toml", &point).unwrap().seed, 9);
}

#[test]
fn a_wrong_parameter_of_a_congestion_control_is_refused_with_its_set() {
    for (sets, message) in [
        (
            &["congestion.ghstcp.spam=1,2"][..],
            "--set congestion.ghstcp.spam=1: there is no parameter 'ghstcp.spam' (there are ",
        ),
        (&["congestion.ghstcp.spam=1"], "; did you mean `span`?"),
        (
            &["congestion.gstcp.span=1"],
            "--set congestion.gstcp.span=1: there is no [congestion.gstcp] (there are hstcp, ghstcp, ",
        ),
        (
            &["congestion.ghstcp.span=1,99"],
            "--set congestion.ghstcp.span=99: ghstcp.span cannot be '99': it is a number from 0.05 to 8: ",
        ),
        (
            &["congestion.bic.s_max=1", "seed=7", "congestion.bic.s_min=2"],
            "--set congestion.bic.s_max=1 --set seed=7 --set congestion.bic.s_min=2: bic.s_min must not exceed bic.s_max",
        ),
    ] {
        let error = scenarios(sets).unwrap_err();
        assert!(error.contains(message), "{sets:?}: {error}");
    }
    assert_eq!(
        only(&["congestion.ghstcp.span=3"])
            .tunables()
            .parameters()
            .iter()
            .find(|(key, _)| key.name == "ghstcp.span")
            .unwrap()
            .1,
        3.0
    );
}
