//! Nodes of an overlay in the lab: which paths streams take, and what they do when legs are cut or slow down.

use std::borrow::BorrowMut;
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::script::HARNESS;

const PRELUDE: &str = include_str!("overlay/prelude.sh");
const TRIALS: &[(&str, &str)] = &[
    ("streams take the path that carries more", include_str!("overlay/detour.sh")),
    ("a leg that is cut is left, in use and idle", include_str!("overlay/cut.sh")),
    ("a leg that slows down is left", include_str!("overlay/slow.sh")),
];

const CLASSES: &str = include_str!("overlay/classes.sh");
const TWO_NODES: &str = include_str!("../../../bench/lib/two-nodes.sh");
const TRAFFIC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/load/classes/traffic.py");
const CLASSES_USED: &str = "[class.gold]\nweight = 3\n[class.bulk]\nweight = 1\n[class.capped]\nceiling = \"2Mbit/s\"";
const GUIDE: &str = include_str!("../../../docs/guide/overlay.md");
const SIMULATED: &str = r#"set -eu
sed 's/^duration = .*/duration = "1h"/; s/^warm_up = .*/warm_up = "30min"/; /^\[\[outage/,/^$/d' "$SITES" > sites.toml
"$EKIDEN" overlay simulate sites.toml > table
grep -Eq "chosen by the nodes +(0.9|1.0)" table && grep -q "the best  *1.00" table || { cat table; exit 1; }
"$EKIDEN" overlay simulate --alone --json --map map.svg sites.toml > out.json
python3 - <<'END'
import json, xml.etree.ElementTree as tree
one, = json.load(open("out.json"))
assert one["policy"] == "ekiden"
# Each place has a first path, and none before it.
first = [change for change in one["changes"] if change["why"] == "first"]
assert first and all(change["from"] is None and change["to"][-1] == change["far"] for change in first), one["changes"]
svg = tree.parse("map.svg").getroot()
texts = [of.text.strip() for of in svg.iter("{http://www.w3.org/2000/svg}text")]
assert all(name in texts for name in ["tokyo", "delhi"]), texts
# Two circles for each site, and two in the legend, a site and a dead one; four sites have twelve legs.
circles, lines = (len(list(svg.iter("{http://www.w3.org/2000/svg}" + of))) for of in ["circle", "polyline"])
assert circles == 2 * 4 + 2 and lines >= 12, (circles, lines)
assert list(svg.iter("{http://www.w3.org/2000/svg}polygon")), "no path is in use"
END
code=0; "$EKIDEN" overlay simulate --alone --map map.svg sites.toml 2> said || code=$?
[ $code != 0 ] && grep -q 'map.svg' said || { cat said; exit 1; }
echo 'nonsense = 1' > wrong.toml
code=0; "$EKIDEN" overlay simulate wrong.toml 2> said || code=$?
[ $code = 3 ] && grep -q 'wrong.toml:1' said || { cat said; exit 1; }
"#;
/// What scenarios/overlay-4.toml was made with, besides the file of sites.
const MADE_WITH: &str = "--seed 3";
/// Sites in it whose direct leg loses packets.
const PAIR: &str = "tokyo delhi";
const PACKETS: &str = include_str!("overlay/packets.sh");
const SIXTEEN: &str = include_str!("overlay/sixteen.sh");
const MADE: &str = r#"set -eu
{ head -n 1 overlay-4.toml; "$EKIDEN" overlay scenario sites-4.toml $MADE_WITH; } > made.toml
diff made.toml overlay-4.toml
grep -q "^# ekiden overlay scenario scenarios/sites-4.toml $MADE_WITH$" overlay-4.toml
"$EKIDEN" scenario check overlay-4.toml
# Twenty seconds before an outage of the file.
"$EKIDEN" overlay scenario sites-4.toml --begin 28780s --duration 30s > cut.toml
[ "$(grep -c 'outages = \[{ at = "20s", lasts = "11s" }\]' cut.toml)" = 2 ] || { cat cut.toml; exit 1; }
"$EKIDEN" simulate cut.toml --record cut.json > /dev/null && grep -q outage_losses cut.json
code=0; "$EKIDEN" overlay scenario sites-4.toml --flows 99 2> said || code=$?
[ $code = 3 ] && grep -q 'sites-4.toml: --flows: these sites make 1 to 12 pairs' said || { cat said; exit 1; }
"#;
const AUTHORITY: &str = include_str!("overlay/authority.pem");
const REGISTRY: &str = include_str!("overlay/registry.sh");
const ETCD: &str = include_str!("overlay/etcd.sh");
const ASKED: &str = include_str!("overlay/asked.sh");

pub fn trials() -> Vec<Trial> {
    let root = crate::is_root();
    let trial =
        |&(name, script): &(&str, &'static str)| Trial::test(name, move || run(script)).with_ignored_flag(!root);
    let mut trials: Vec<Trial> = TRIALS.iter().map(trial).collect();
    let name = "streams share a leg as their classes say";
    trials.push(Trial::test(name, classes).with_ignored_flag(!root));
    let name = "nodes know each other by etcd, and go on without it";
    trials.push(Trial::test(name, || outcome(alone(&format!("{HARNESS}\n{REGISTRY}")))).with_ignored_flag(!root));
    let name = "etcd and its overlay are set up as docs/guide/overlay.md says";
    trials.push(Trial::test(name, etcd_as_in_the_guide).with_ignored_flag(!root));
    let name = "programs of other users ask a node of paths";
    trials.push(
        Trial::test(name, || outcome(alone(&format!("{HARNESS}\n{ASKED}")).env("EXAMPLE", example())))
            .with_ignored_flag(!root),
    );
    let name = "four sites take a detour around a lossy leg simulated and in the lab";
    trials.push(Trial::test(name, || outcome(alone_as_user(PACKETS))).with_ignored_flag(!root));
    let name = "sixteen sites come up in the lab and send";
    trials.push(Trial::test(name, || outcome(alone_as_user(SIXTEEN))).with_ignored_flag(!root));
    trials.push(Trial::test("the scenario of four sites is made of them", || outcome(alone_as_user(MADE))));
    trials.push(Trial::test("an overlay is simulated packet by packet as the guide says", simulated_as_in_the_guide));
    trials.push(Trial::test("an overlay is simulated", || outcome(alone_as_user(SIMULATED))));
    trials.push(Trial::test("the overlay in docs/guide/overlay.md works as written", guide));
    trials
}

/// Runs a script behind the prelude, at the client of the network.
fn run(script: &str) -> Result<(), Failed> {
    outcome(shell("detour.toml", &format!("{HARNESS}\n{PRELUDE}\n{script}")))
}

fn classes() -> Result<(), Failed> {
    let mut command = shell("classes.toml", &format!("{HARNESS}\n{TWO_NODES}\n{CLASSES}"));
    command.env("CLASSES", CLASSES_USED).env("TRAFFIC", TRAFFIC);
    outcome(command)
}

/// Runs a script at the client of a network.
fn shell(network: &str, script: &str) -> Command {
    let mut command = limited();
    command.args([env!("CARGO_BIN_EXE_ekiden"), "lab", "shell", network, "client", "--", "bash", "-c", script]);
    command
}

/// The guide's commands that ask a node.
fn example() -> &'static str {
    let block = GUIDE.split_once("```sh asked\n").and_then(|(_, rest)| rest.split_once("\n```"));
    block.map_or("exit 1", |(commands, _)| commands)
}

/// The guide's configurations, and its commands beside them; then each configuration is checked.
fn guide() -> Result<(), Failed> {
    let blocks = GUIDE.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let mut script = format!("set -eu\nekiden() {{ {} \"$@\"; }}\n", env!("CARGO_BIN_EXE_ekiden"));
    let mut commands = String::new();
    let mut names = Vec::new();
    for (mark, text) in blocks {
        match mark.strip_prefix("toml overlay ") {
            Some(name) => {
                names.push(name);
                script += &format!("cat > {name} <<'END'\n{text}\nEND\n");
            }
            None if mark == "sh overlay" => commands += &format!("{text}\n"),
            None => {}
        }
    }
    if names.len() != 3 || commands.is_empty() {
        return Err(format!("the guide has {names:?} and the commands {commands:?}").into());
    }
    script += &commands;
    // What the operator of etcd gives.
    script += "umask 077; echo secret > etcd.password\n";
    script += &format!("cat > etcd-ca.pem <<'END'\n{AUTHORITY}END\n");
    names.iter().for_each(|name| script += &format!("ekiden proxy --check -c {name}\n"));
    let mut command = limited();
    command.args(["bash", "-c", &script]);
    outcome(command)
}

/// The guide's commands for etcd, and its node.
fn etcd_as_in_the_guide() -> Result<(), Failed> {
    let blocks = GUIDE.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let mut command = alone(&format!("{HARNESS}\n{ETCD}"));
    let mut steps = ["CERTIFICATES", "SERVE", "USERS", "ADMIT", "FULL"].into_iter();
    for (mark, text) in blocks {
        match mark {
            "sh etcd" | "sh etcd-serve" => {
                let step = steps.next().ok_or("the guide has more steps than the test")?;
                assert_eq!(step == "SERVE", mark == "sh etcd-serve", "{text}");
                command.env(step, text);
            }
            "toml overlay delhi.toml" => drop(command.env("NODE", text)),
            _ => {}
        }
    }
    assert_eq!(steps.next(), None, "the guide has fewer steps");
    outcome(command)
}

/// The guide's commands for the simulator of packets.
fn simulated_as_in_the_guide() -> Result<(), Failed> {
    let mut blocks = GUIDE.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let (_, commands) = blocks.find(|(mark, _)| *mark == "sh overlay-run").ok_or("the guide has no such commands")?;
    outcome(alone_as_user(&format!("set -eu\nekiden() {{ {} \"$@\"; }}\n{commands}", env!("CARGO_BIN_EXE_ekiden"))))
}

/// Runs a script on a loopback of its own.
fn alone(script: &str) -> Command {
    let mut command = limited();
    command.args(["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", script]);
    command
}

/// Runs a script.
fn alone_as_user(script: &str) -> Command {
    let mut command = limited();
    let sites = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/sites-4.toml");
    command.args(["bash", "-c", script]).env("SITES", sites).env("MADE_WITH", MADE_WITH).env("PAIR", PAIR);
    command
}

/// Only a hang takes so long.
fn limited() -> Command {
    let mut command = Command::new("timeout");
    command.arg("300");
    command
}

/// Runs it in a folder of its own.
fn outcome(mut command: impl BorrowMut<Command>) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let scenarios = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    for name in ["classes.toml", "detour.toml", "overlay-4.toml", "sites-4.toml", "sites-16.toml"] {
        std::fs::copy(format!("{scenarios}/{name}"), folder.path().join(name))?;
    }
    let command = command.borrow_mut();
    let output = command.env("EKIDEN", env!("CARGO_BIN_EXE_ekiden")).current_dir(folder.path()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("{}\n{}", output.status, String::from_utf8_lossy(&said)).into())
}
