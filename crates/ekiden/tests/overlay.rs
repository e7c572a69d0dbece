//! Nodes of an overlay in the lab: which paths streams take, and what they do when legs are cut or slow down.

use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

const PRELUDE: &str = include_str!("overlay/prelude.sh");
const NETWORK: &str = include_str!("../../../scenarios/detour.toml");
const TRIALS: &[(&str, &str)] = &[
    ("streams take the path that carries more", include_str!("overlay/detour.sh")),
    ("a leg that is cut is left, in use and idle", include_str!("overlay/cut.sh")),
    ("a leg that slows down is left", include_str!("overlay/slow.sh")),
];

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
# Two circles for each site, and one in the legend; four sites have twelve legs.
circles, lines = (len(list(svg.iter("{http://www.w3.org/2000/svg}" + of))) for of in ["circle", "polyline"])
assert circles == 2 * 4 + 1 and lines >= 12, (circles, lines)
assert list(svg.iter("{http://www.w3.org/2000/svg}polygon")), "no path is in use"
END
code=0; "$EKIDEN" overlay simulate --alone --map map.svg sites.toml 2> said || code=$?
[ $code != 0 ] && grep -q 'map.svg' said || { cat said; exit 1; }
echo 'nonsense = 1' > wrong.toml
code=0; "$EKIDEN" overlay simulate wrong.toml 2> said || code=$?
[ $code = 3 ] && grep -q 'wrong.toml:1' said || { cat said; exit 1; }
"#;
const REGISTRY: &str = include_str!("overlay/registry.sh");

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(TRIALS.len() + 1);
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("ignored: the tests of overlays make networks, which needs root here");
    }
    let trial =
        |&(name, script): &(&str, &'static str)| Trial::test(name, move || run(script)).with_ignored_flag(!root);
    let mut trials: Vec<Trial> = TRIALS.iter().map(trial).collect();
    let name = "nodes know each other by etcd, and go on without it";
    trials.push(Trial::test(name, || outcome(alone(REGISTRY))).with_ignored_flag(!root));
    trials.push(Trial::test("an overlay is simulated", || outcome(alone_as_user(SIMULATED))));
    trials.push(Trial::test("the overlay in docs/guide/overlay.md works as written", guide));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Runs a script behind the prelude, at the client of the network.
fn run(script: &str) -> Result<(), Failed> {
    let mut command = limited();
    command.args([env!("CARGO_BIN_EXE_ekiden"), "lab", "shell", "detour.toml", "client"]);
    command.args(["--", "bash", "-c", &format!("{PRELUDE}\n{script}")]);
    outcome(command)
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
    names.iter().for_each(|name| script += &format!("ekiden proxy --check -c {name}\n"));
    let mut command = limited();
    command.args(["bash", "-c", &script]);
    outcome(command)
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
    command.args(["bash", "-c", script]).env("SITES", sites);
    command
}

/// Only a hang takes so long.
fn limited() -> Command {
    let mut command = Command::new("timeout");
    command.arg("300");
    command
}

/// Runs it in a folder of its own.
fn outcome(mut command: Command) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("detour.toml"), NETWORK)?;
    let output = command.env("EKIDEN", env!("CARGO_BIN_EXE_ekiden")).current_dir(folder.path()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("{}\n{}", output.status, String::from_utf8_lossy(&said)).into())
}
