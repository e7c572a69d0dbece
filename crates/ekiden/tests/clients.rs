//! Real clients through real nodes, byte for byte, over one and over three proxies in the lab.

use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::script::HARNESS;

/// Name and script; each runs in a lab of its own, on the client.
const THROUGH_PROXIES: &[(&str, &str)] = &[
    ("curl", include_str!("clients/curl.sh")),
    ("wget", include_str!("clients/wget.sh")),
    ("git", include_str!("clients/git.sh")),
    ("ssh and scp", include_str!("clients/ssh.sh")),
    ("python's http.client", include_str!("clients/http-client.sh")),
];
const PRELUDE: &str = include_str!("clients/prelude.sh");
const IPERF3: &str = include_str!("clients/iperf3.sh");
const DEPLOYMENT: &str = include_str!("clients/deployment.sh");
const README: &str = include_str!("../../../README.md");
const FTP: &str = include_str!("clients/ftp.sh");
const GUIDE: &str = include_str!("../../../docs/guide/http-ftp.md");
const QUICK_START: &str = include_str!("../../../docs/guide/quick-start.md");
const PROGRAMS: &str = include_str!("clients/programs.sh");
const PROGRAMS_GUIDE: &str = include_str!("../../../docs/guide/programs.md");
const TLS: &str = include_str!("clients/tls.sh");
const SILENT: &str = include_str!("clients/silent.sh");
const SHARE: &str = include_str!("clients/share.sh");
const CUT: &str = include_str!("clients/cut.sh");
const WARM: &str = include_str!("clients/warm.sh");

pub fn trials() -> Vec<Trial> {
    let root = crate::is_root();
    let mut trials = Vec::new();
    for count in [1, 3] {
        for &(client, script) in THROUGH_PROXIES {
            let name = format!("{client} works through {count} node(s)");
            trials.push(Trial::test(name, move || in_lab(&chain(count, "proxy"), script, &[])));
        }
        trials.push(Trial::test(format!("curl and wget fetch by FTP through {count} node(s)"), move || {
            in_lab(&chain(count, "proxy"), FTP, &[("DOCS", block(GUIDE, "sh ftp")?)])
        }));
        trials.push(Trial::test(format!("iperf3 works through a forward listener and {count} node(s)"), move || {
            let routers: Vec<String> = (1..=count).map(|i| format!("r{i}")).collect();
            in_lab(&chain(count, "router"), IPERF3, &[("ROUTERS", &routers.join(" "))])
        }));
    }
    trials.push(Trial::test("programs go through a node as docs/guide/programs.md says", || {
        in_lab(&chain(1, "proxy"), PROGRAMS, &[("DOCS", block(PROGRAMS_GUIDE, "sh programs")?)])
    }));
    trials.push(Trial::test("curl, openssl and python reach a listener by TLS as docs/guide/http-ftp.md says", || {
        let blocks = [
            ("GATE", block(GUIDE, "toml proxy gate.toml")?),
            ("CERTIFICATES", block(GUIDE, "sh certificates")?),
            ("DOCS", block(GUIDE, "sh tls")?),
            ("OWN", block(GUIDE, "sh own certificate")?),
        ];
        in_lab(&chain(1, "router"), TLS, &blocks)
    }));
    trials.push(Trial::test("nine thousand silent connections are dropped while clients are served", || {
        in_lab(&chain(1, "router"), SILENT, &[])
    }));
    trials.push(Trial::test("downloads share a line between nodes, and one that stands still costs nothing", || {
        let ends = "ends = [\"r1\", \"r2\"]\nrate = ";
        let scenario = chain(2, "router").replace(&format!("{ends}\"1Gbit/s\""), &format!("{ends}\"40Mbit/s\""));
        in_lab(&scenario, SHARE, &[])
    }));
    trials.push(Trial::test("a line that is cut under three nodes is never an end", || {
        in_lab(&chain(7, "router"), CUT, &[])
    }));
    trials.push(Trial::test("warm connections die with their line and come back with it", || {
        in_lab(&chain(3, "router"), WARM, &[])
    }));
    for (name, document) in [("README", README), ("quick start", QUICK_START)] {
        trials.push(Trial::test(format!("the deployment in the {name} works as written"), move || {
            let line = |start| document.lines().find(|line| line.starts_with(start)).ok_or(format!("no {start}"));
            let blocks = [
                ("CITY", block(document, "toml proxy city.toml")?),
                ("ISLAND", block(document, "toml proxy island.toml")?),
                ("KEY", line("ekiden keygen")?),
                ("FETCH", line("curl --proxy")?),
            ];
            in_lab(&chain(1, "router"), DEPLOYMENT, &blocks)
        }));
    }
    trials.into_iter().map(|trial| trial.with_ignored_flag(!root)).collect()
}

/// A document's fenced block with this mark.
fn block(document: &'static str, mark: &str) -> Result<&'static str, Failed> {
    let rest = document.split_once(&format!("```{mark}\n")).ok_or("no such block")?.1;
    Ok(rest.split_once("```").ok_or("the block is not closed")?.0)
}

/// client – n proxies (p1 …) or routers (r1 …) – server.
fn chain(count: usize, kind: &str) -> String {
    let names: Vec<String> = (1..=count).map(|i| format!("{}{i}", &kind[..1])).collect();
    let mut text = "name = \"clients\"\n[node.client]\n[node.server]\n".to_owned();
    for (i, name) in names.iter().enumerate() {
        let next = if kind == "proxy" { format!("next = {:?}\n", &names[i + 1..]) } else { String::new() };
        text += &format!("[node.{name}]\nkind = \"{kind}\"\n{next}");
    }
    let stops: Vec<&str> = ["client"].into_iter().chain(names.iter().map(String::as_str)).chain(["server"]).collect();
    for (i, ends) in stops.windows(2).enumerate() {
        text += &format!("[link.l{i}]\nends = {ends:?}\nrate = \"1Gbit/s\"\ndelay = \"2ms\"\n");
    }
    text
}

/// Runs the script on the client of a lab of its own.
fn in_lab(scenario: &str, script: &str, variables: &[(&str, &str)]) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("scenario.toml");
    std::fs::write(&file, scenario)?;
    let ekiden = env!("CARGO_BIN_EXE_ekiden");
    let output = Command::new(ekiden)
        .args(["lab", "shell"])
        .arg(&file)
        .args(["client", "--", "bash", "-c", &format!("{HARNESS}\n{PRELUDE}\n{script}")])
        .env("EKIDEN", ekiden)
        .envs(variables.iter().copied())
        .env("TMPDIR", folder.path())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("{}\n{}", output.status, String::from_utf8_lossy(&said)).into())
}
