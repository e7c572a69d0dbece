//! Flows for which the nodes of an overlay choose the path.

use ekiden_record::{Chosen, Kept, Outcome, Record};
use ekiden_scenario::Scenario;
use ekiden_sim::{Options, simulate};

/// The direct way from c to a loses packets; that over b does not, and that over d carries half as much.
const DETOUR: &str = r#"
name = "detour"
seed = 1
[tcp]
congestion = "cubic"
[node.client]
[node.server]
[node.a]
kind = "proxy"
forwards = false
[node.b]
kind = "proxy"
forwards = false
[node.c]
kind = "proxy"
forwards = false
[node.d]
kind = "proxy"
forwards = false
[link.near]
ends = ["client", "a"]
rate = "100Mbit/s"
delay = "0.2ms"
queue = "200KB"
[link.far]
ends = ["server", "c"]
rate = "100Mbit/s"
delay = "0.2ms"
queue = "200KB"
[link.direct]
ends = ["a", "c"]
rate = "20Mbit/s"
delay = "30ms"
queue = "150KB"
loss = "2%"
[link.ab]
ends = ["a", "b"]
rate = "20Mbit/s"
delay = "15ms"
queue = "100KB"
[link.bc]
ends = ["b", "c"]
rate = "20Mbit/s"
delay = "20ms"
queue = "100KB"
[link.ad]
ends = ["a", "d"]
rate = "10Mbit/s"
delay = "25ms"
queue = "100KB"
[link.dc]
ends = ["d", "c"]
rate = "10Mbit/s"
delay = "25ms"
queue = "100KB"
[flow.files]
from = "server"
to = "client"
via = ["c", "auto", "a"]
duration = "120s"
file = "2MB"
"#;

fn run(text: &str) -> Record {
    let scenario = Scenario::parse(text, "test.toml").unwrap();
    simulate(&scenario, &Options::default(), &mut Kept::default(), &mut |_| {}).unwrap()
}

fn path(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).into()).collect()
}

fn streams(chosen: &Chosen, names: &[&str]) -> u64 {
    chosen.streams.iter().find(|of| of.path == path(names)).map_or(0, |of| of.streams)
}

#[test]
fn streams_leave_a_lossy_leg_for_a_detour() {
    let record = run(DETOUR);
    let [chosen] = &record.overlay[..] else { panic!("{:?}", record.overlay) };
    assert_eq!((chosen.node.as_str(), chosen.exit.as_str()), ("c", "a"));
    assert_eq!(record.flows[0].outcome, Outcome::Complete);
    assert_eq!(record.flows[0].via, path(&["c", "auto", "a"]));
    // Of nothing known, the direct path is the first.
    assert_eq!(chosen.changes[0].path, path(&["c", "a"]));
    assert_eq!(chosen.changes.last().unwrap().path, path(&["c", "b", "a"]));
    let [direct, over_b, over_d] = [&["c", "a"][..], &["c", "b", "a"], &["c", "d", "a"]].map(|of| streams(chosen, of));
    assert!(over_b > 3 * (direct + over_d), "{direct} direct, {over_b} over b, {over_d} over d");
    // The direct path alone gives less than a third of that.
    let direct = run(&DETOUR.replace("\"auto\", ", ""));
    assert!(direct.overlay.is_empty());
    let goodput = |record: &Record| record.flows[0].goodput_bit_s as f64 / 1e6;
    assert!(goodput(&record) > 2.0 * goodput(&direct), "{} {}", goodput(&record), goodput(&direct));
}

#[test]
fn the_same_seed_gives_the_same_choices_and_another_one_others() {
    let short = DETOUR.replace("120s", "40s");
    assert_eq!(run(&short), run(&short));
    assert_ne!(run(&short).overlay, run(&short.replace("seed = 1", "seed = 2")).overlay);
}

#[test]
fn a_leg_that_is_cut_is_left_and_the_next_path_taken_before_the_stream_is_broken() {
    // A leg of the path in use, at its node and behind it. A second flow begins just then: its first stream finds the leg silent.
    for ends in ["ends = [\"a\", \"b\"]", "ends = [\"b\", \"c\"]"] {
        let cut = format!("{ends}\noutages = [{{ at = \"80s\", lasts = \"100s\" }}]");
        let late = "[flow.late]\nstart = \"80200ms\"\nfrom = \"server\"\nto = \"client\"\nvia = [\"c\", \"auto\", \"a\"]\n\
                    duration = \"30s\"\nfile = \"500KB\"\n";
        let record = run(&format!("{}{late}", DETOUR.replace(ends, &cut)));
        let chosen = &record.overlay[0];
        let (before, after): (Vec<_>, Vec<_>) = chosen.changes.iter().partition(|change| change.at_us < 80_000_000);
        assert_eq!(before.last().unwrap().path, path(&["c", "b", "a"]), "{ends}: {before:?}");
        let left = after.first().unwrap_or_else(|| panic!("{ends}: {before:?}"));
        assert!(left.at_us < 85_000_000, "{ends}: {left:?}");
        assert!(after.iter().all(|change| !change.path.contains(&"b".into())), "{ends}: {after:?}");
        // It waits for a second and four round trips once, and then shares what d carries.
        let late = &record.flows[1];
        assert_eq!(late.outcome, Outcome::Complete, "{ends}");
        assert!(late.goodput_bit_s > 1_000_000, "{ends}: {late:?} {chosen:?}");
    }
}

#[test]
fn a_flow_without_any_path_fails() {
    let mut text = DETOUR.replace("duration = \"120s\"\nfile = \"2MB\"", "bytes = \"2MB\"");
    for ends in ["[\"a\", \"c\"]", "[\"b\", \"c\"]", "[\"d\", \"c\"]"] {
        text = text.replace(
            &format!("ends = {ends}"),
            &format!("ends = {ends}\noutages = [{{ at = \"0\", lasts = \"100s\" }}]"),
        );
    }
    let record = run(&text);
    let Outcome::Failed { reason } = &record.flows[0].outcome else { panic!("{:?}", record.flows[0]) };
    assert_eq!(reason, "no path over the overlay came about");
}
