//! The examples in the documentation are what they claim to be: files that are accepted, and a deployment that works.
//!
//! Fences are marked: `toml scenario` is a scenario file, `toml proxy [NAME]` a node's configuration, beside which the
//! files `text NAME` of the same page stand, `sh lab` runs on
//! a node of the scenario above it, `sh congestion` and `sh doctor` are calls of these commands, `sh simulate` runs beside
//! `island.toml`, the first scenario of docs/guide/scenario.md, `sh peer` beside the named configurations of the same file, `sh plan` beside
//! the descriptions `toml plan NAME` of the same file.
//! `toml monitor` is a monitor's configuration, and `sh monitor` are calls of it.
//! `sh measure-server` are measuring servers, which start; `sh measure` is run with the README's two nodes, one of which such a server
//! serves, and `sh measure-open` with a server that serves everyone.
//! `sh lab-run` is run by `lab.rs`, `sh watch` by `watch.rs`, and `sh overlay`, `sh overlay-run`, `sh asked`, `sh etcd` and `sh etcd-serve` by `overlay.rs`,
//! `sh install` by `units.rs`, `sh reproduce` and `toml reproduce` by `reproduce.rs`, `sh certificates`, `sh tls` and `sh own certificate` by `clients.rs`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::measuring::MeasuringServer;

const EKIDEN: &str = env!("CARGO_BIN_EXE_ekiden");

/// A fenced block.
struct Example {
    file: PathBuf,
    mark: String,
    text: String,
}

#[test]
fn every_scenario_in_the_documentation_is_accepted() {
    let examples = marked("toml scenario");
    assert!(!examples.is_empty());
    for example in examples {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("example.toml");
        std::fs::write(&path, &example.text).unwrap();
        accepted(&example, Command::new(EKIDEN).args(["scenario", "check"]).arg(path));
    }
}

#[test]
fn every_configuration_in_the_documentation_is_accepted() {
    let examples = marked("toml proxy");
    assert!(examples.len() >= 3, "found only {}", examples.len());
    for example in examples {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("example.toml");
        std::fs::write(&path, &example.text).unwrap();
        write_keys(folder.path());
        write_texts(folder.path(), &example.file);
        // Network interfaces are those of the routers, on which `transparent.rs` runs these.
        let asks = if example.text.contains("interfaces") { "--show-config" } else { "--check" };
        accepted(&example, Command::new(EKIDEN).args(["proxy", asks, "-c"]).arg(path));
    }
}

#[test]
fn every_tunnel_in_the_documentation_is_accepted() {
    let examples = marked("toml tunnel");
    assert!(examples.len() >= 2, "found only {}", examples.len());
    for example in examples {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("example.toml");
        std::fs::write(&path, &example.text).unwrap();
        write_keys(folder.path());
        accepted(&example, Command::new(EKIDEN).args(["tunnel", "--check", "-c"]).arg(path));
    }
}

#[test]
fn every_call_of_ekiden_peer_in_the_documentation_works() {
    let examples = marked("sh peer");
    assert!(!examples.is_empty());
    for example in examples {
        let folder = tempfile::tempdir().unwrap();
        write_keys(folder.path());
        for config in marked("toml proxy ").iter().filter(|config| config.file == example.file) {
            std::fs::write(folder.path().join(&config.mark["toml proxy ".len()..]), &config.text).unwrap();
        }
        in_shell(&example, folder.path());
    }
}

#[test]
fn every_monitor_in_the_documentation_is_accepted_and_every_call_is_one() {
    let examples = marked("toml monitor");
    assert!(!examples.is_empty());
    for example in examples {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("monitor.toml");
        std::fs::write(&path, &example.text).unwrap();
        accepted(&example, Command::new(EKIDEN).args(["measure", "monitor", "check", "-c"]).arg(path));
    }
    for example in marked("sh monitor") {
        for line in example.text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert!(words.starts_with(&["ekiden", "measure", "monitor"]), "{}: {line}", example.file.display());
            accepted(&example, Command::new(EKIDEN).args(&words[1..]).arg("--help"));
        }
    }
}

#[test]
fn every_measurement_in_the_documentation_works() {
    let folder = tempfile::tempdir().unwrap();
    let [city, island] = ["city", "island"].map(|name| folder.path().join(name));
    let fingerprints = [&city, &island].map(|node| {
        std::fs::create_dir(node).unwrap();
        let output = Command::new(EKIDEN).args(["keygen", "node.key"]).current_dir(node).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        said.split_whitespace().find(|word| word.starts_with("sha256:")).unwrap().to_owned()
    });
    let here = |text: &str| {
        let placeholders = ["c17e", "151a"].map(|part| format!("sha256:{}", part.repeat(16)));
        let text = text.replace(&placeholders[0], &fingerprints[0]).replace(&placeholders[1], &fingerprints[1]);
        text.replace("192.0.2.1", "127.0.0.1").replace("0.0.0.0:7100", "127.0.0.1:0")
    };
    for (node, name) in [(&city, "city.toml"), (&island, "island.toml")] {
        let examples = marked(&format!("toml proxy {name}"));
        let example = examples.iter().find(|example| example.file.ends_with("README.md")).unwrap();
        std::fs::write(node.join(name), here(&example.text)).unwrap();
    }
    let servers: Vec<String> = marked("sh measure-server")
        .iter()
        .flat_map(|example| example.text.lines().map(here).collect::<Vec<_>>())
        .collect();
    let servers: Vec<MeasuringServer> = servers.iter().map(|line| MeasuringServer::start(line, &city)).collect();
    let [known, named, open] = &servers[..] else { panic!("{} servers", servers.len()) };
    let mut calls = 0;
    for example in marked("sh measure") {
        let ports: &[u16] = match example.mark.as_str() {
            "sh measure" => &[known.port, named.port],
            "sh measure-open" => &[open.port],
            _ => continue,
        };
        for line in example.text.lines() {
            // Short loads are enough here.
            let line = here(line).replace("--time 5s", "--time 100ms").replace("--time 2s", "--time 100ms");
            let line = match line.contains(" client ") && !line.contains("--time") && !line.contains("--bytes") {
                true => line + " --time 100ms",
                false => line,
            };
            let port = ports[calls % ports.len()];
            let text =
                line.replace(" city ", &format!(" city:{port} ")).replace("127.0.0.1 ", &format!("127.0.0.1:{port} "));
            in_shell(&Example { file: example.file.clone(), mark: example.mark.clone(), text }, &island);
            calls += 1;
        }
    }
    assert!(calls >= 7, "found only {calls}");
    for file in ["once.json", "once.samples.parquet", "path.json", "sweep"] {
        assert!(island.join(file).exists(), "no {file}");
    }
}

#[test]
fn every_scenario_file_of_the_project_is_accepted() {
    // Sites of an overlay are another kind of file, which the tests of crate `flows` read.
    let is_sites = |file: &PathBuf| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("sites-"));
    let files: Vec<_> = files_in(&root().join("scenarios"), "toml").into_iter().filter(|of| !is_sites(of)).collect();
    assert!(!files.is_empty());
    for file in files {
        let output = Command::new(EKIDEN).args(["scenario", "check"]).arg(&file).output().unwrap();
        assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn every_call_of_ekiden_congestion_doctor_and_status_in_the_documentation_is_one() {
    for command in ["congestion", "doctor", "status"] {
        let examples = marked(&format!("sh {command}"));
        assert!(!examples.is_empty());
        for example in examples {
            for line in example.text.lines() {
                // Arguments are looked at in order, so those before --help are checked.
                let words: Vec<&str> = line.split_whitespace().collect();
                assert!(words.starts_with(&["ekiden", command]), "{}: {line}", example.file.display());
                accepted(&example, Command::new(EKIDEN).args(&words[1..]).arg("--help"));
            }
        }
    }
}

#[test]
fn every_simulation_in_the_documentation_runs() {
    let scenarios = marked("toml scenario");
    let island = scenarios.iter().find(|example| example.text.contains("name = \"island\"")).unwrap();
    let file = std::fs::read_to_string(root().join("scenarios/island.toml")).unwrap();
    assert_eq!(file, island.text, "scenarios/island.toml is not what docs/guide/scenario.md shows");
    for example in marked("sh simulate") {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("island.toml"), &island.text).unwrap();
        std::os::unix::fs::symlink(root().join("scenarios"), folder.path().join("scenarios")).unwrap();
        in_shell(&example, folder.path());
    }
}

#[test]
fn every_plan_in_the_documentation_is_made() {
    let examples = marked("sh plan");
    assert!(!examples.is_empty());
    for example in examples {
        let folder = tempfile::tempdir().unwrap();
        for path in marked("toml plan ").iter().filter(|path| path.file == example.file) {
            std::fs::write(folder.path().join(&path.mark["toml plan ".len()..]), &path.text).unwrap();
        }
        in_shell(&example, folder.path());
    }
}

#[test]
fn every_parameter_of_the_congestion_controls_is_in_the_documentation() {
    let text = std::fs::read_to_string(root().join("docs/guide/congestion.md")).unwrap();
    let number = |value: f64| if value > 0.0 && value < 1e-3 { format!("{value:e}") } else { value.to_string() };
    for key in ekiden_congestion::PARAMETERS {
        let [default, least, most] = [key.default, key.least, key.most].map(number);
        let zero = if key.or_zero { "0, or " } else { "" };
        let row = format!("| `{}` | {default} | {zero}{least} – {most} | {} |", key.name, key.meaning);
        assert!(text.lines().any(|line| line == row), "docs/guide/congestion.md has no row\n{row}");
    }
}

#[test]
fn every_message_that_the_troubleshooting_page_explains_is_one() {
    let crates = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src"));
    let source: String = crates.map(|folder| sources_below(&folder)).collect();
    let text = std::fs::read_to_string(root().join("docs/guide/troubleshooting.md")).unwrap();
    let mut seen = 0;
    for cell in text.lines().filter_map(|line| line.strip_prefix("| ")?.split('|').next()) {
        for message in cell.split('`').skip(1).step_by(2) {
            for piece in message.split('…').map(|piece| piece.trim_matches([' ', '\''])).filter(|piece| piece.len() > 5)
            {
                assert!(source.contains(piece), "nothing says '{piece}'");
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "found only {seen}");
}

#[test]
fn every_link_in_the_documentation_leads_somewhere() {
    let mut seen = 0;
    for file in documents() {
        let text = std::fs::read_to_string(&file).unwrap();
        for link in links(&text, &file).into_iter().filter(|link| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { file.clone() } else { file.parent().unwrap().join(path) };
            assert!(target.exists(), "{}: no such file: {link}", file.display());
            let found = anchor.is_empty() || anchors(&target).iter().any(|known| known == anchor);
            assert!(found, "{}: no such heading: {link}", file.display());
            seen += 1;
        }
    }
    assert!(seen > 100, "found only {seen}");
}

#[test]
fn every_page_is_linked_from_the_list_of_pages() {
    let list = std::fs::read_to_string(root().join("docs/README.md")).unwrap();
    let docs = root().join("docs");
    for file in documents().iter().filter_map(|file| file.strip_prefix(&docs).ok()) {
        let name = file.display().to_string();
        assert!(name == "README.md" || list.contains(&format!("]({name})")), "docs/README.md does not list {name}");
    }
}

#[test]
fn every_page_and_section_that_is_named_is_there() {
    let (mut pages, mut places) = (0, 0);
    let folders = ["crates", "bench", "scenarios", "fuzz/targets", "scripts"].map(|folder| root().join(folder));
    let sources = folders.iter().flat_map(|folder| texts_below(folder));
    let documents = documents().into_iter().map(|file| (file.clone(), std::fs::read_to_string(file).unwrap()));
    // What has changed names pages that are gone.
    for (file, text) in sources.chain(documents).filter(|(file, _)| !file.ends_with("CHANGELOG.md")) {
        for (page, rest) in named_pages(&text) {
            let Some(page) = page_at(&page, &file) else { panic!("{}: no page {page}", file.display()) };
            pages += 1;
            // A link says the name twice: `[protocol.md](protocol.md) §3`.
            let rest = rest.trim_start_matches([')', '`']);
            let place = match (rest.strip_prefix('#'), rest.trim_start().strip_prefix('§')) {
                (Some(anchor), _) => anchor.split(|c: char| !c.is_alphanumeric() && !"-_".contains(c)).next(),
                (_, Some(section)) => section.split(|c: char| !c.is_ascii_digit()).next(),
                _ => continue,
            };
            let found = place.is_some_and(|place| !place.is_empty() && has_place(&page, place));
            assert!(found, "{}: {} has no {place:?}", file.display(), page.display());
            places += 1;
        }
        // Elsewhere in a page, § is of an RFC or of the page itself.
        for (at, _) in text.match_indices('§').filter(|_| file.extension().is_some_and(|e| e == "md")) {
            let mut before = text[..at].split_whitespace().rev();
            let (last, other) = (before.next().unwrap_or_default(), before.next().unwrap_or_default());
            if last.trim_end_matches([')', '`']).ends_with(".md") || other.ends_with("RFC") {
                continue;
            }
            let place = text[at..].trim_start_matches('§').split(|c: char| !c.is_ascii_digit()).next().unwrap();
            assert!(has_place(&file, place), "{}: no section {place}", file.display());
            places += 1;
        }
    }
    assert!(pages > 200 && places > 30, "found only {pages} and {places}");
}

#[test]
fn every_command_is_in_the_readme_and_has_help() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let help = Command::new(EKIDEN).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    // A line that is indented further goes on with the description before it.
    let lines = commands.lines().take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    let commands = lines.filter_map(|line| line.split_whitespace().next());
    for command in commands.filter(|command| *command != "help") {
        assert!(readme.contains(&format!("| `ekiden {command}` |")), "README.md does not name `ekiden {command}`");
        let output = Command::new(EKIDEN).args(["help", command]).output().unwrap();
        assert!(output.status.success() && output.stdout.len() > 300, "`ekiden help {command}` says little");
    }
}

/// Runs it in `folder`, with this program in the `PATH`.
fn in_shell(example: &Example, folder: &Path) {
    let programs = Path::new(EKIDEN).parent().unwrap().display();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.current_dir(folder).env("PATH", path).args(["-e", "-c", &example.text]);
    accepted(example, &mut shell);
}

fn accepted(example: &Example, command: &mut Command) {
    let Output { status, stderr, .. } = command.output().unwrap();
    let said = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{} ({}): {said}\n{}", example.file.display(), example.mark, example.text);
}

/// The keys that the documentation's configurations name.
fn write_keys(folder: &Path) {
    for arguments in [&["keygen", "node.key"][..], &["keygen", "--shared", "line.key"]] {
        assert!(Command::new(EKIDEN).args(arguments).current_dir(folder).output().unwrap().status.success());
    }
    // A listener's certificate, and an authority of clients.
    for name in ["gate", "clients"] {
        let (subject, key, out) = (format!("/CN={name}"), format!("{name}.key"), format!("{name}.pem"));
        let mut make = Command::new("openssl");
        make.args(["req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", &subject, "-keyout", &key, "-out", &out]);
        assert!(make.current_dir(folder).output().unwrap().status.success());
    }
}

/// The files of users and destinations that the configurations of `page` name.
fn write_texts(folder: &Path, page: &Path) {
    for text in marked("text ").iter().filter(|text| text.file == page) {
        let path = folder.join(&text.mark["text ".len()..]);
        std::fs::write(&path, &text.text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    }
}

/// Every fenced block of the documentation whose mark starts with `mark`.
fn marked(mark: &str) -> Vec<Example> {
    let mut examples = Vec::new();
    for file in documents() {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut open: Option<Example> = None;
        for line in text.lines() {
            match (line.strip_prefix("```"), &mut open) {
                (Some(found), None) => {
                    open = Some(Example { file: file.clone(), mark: found.into(), text: String::new() })
                }
                (Some(_), Some(_)) => examples.extend(open.take()),
                (None, Some(example)) => example.text += &format!("{line}\n"),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a fence is not closed", file.display());
    }
    examples.retain(|example| example.mark.starts_with(mark));
    examples
}

fn documents() -> Vec<PathBuf> {
    let names = ["README.md", "ARCHITECTURE.md", "HACKING.md", "CHANGELOG.md", "SECURITY.md"];
    let mut files: Vec<PathBuf> = names.map(|name| root().join(name)).into();
    for folder in ["docs", "docs/guide", "docs/design", "docs/measurements"] {
        files.extend(files_in(&root().join(folder), "md"));
    }
    files
}

/// Where a page's links lead: `[text](place)`, and `[text][name]` with a line `[name]: place`.
fn links(text: &str, file: &Path) -> Vec<String> {
    let mut links: Vec<String> = Vec::new();
    links.extend(text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).map(str::to_owned));
    let definition = |line: &str| {
        let (name, place) = line.strip_prefix('[')?.split_once("]: ")?;
        Some((name.to_lowercase(), place.split_whitespace().next()?.to_owned()))
    };
    let defined: Vec<(String, String)> = text.lines().filter_map(definition).collect();
    for line in text.lines() {
        // Code has brackets of its own.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("x");
        for (before, rest) in prose.match_indices("][").map(|(at, _)| (&prose[..at], &prose[at + 2..])) {
            let name = match rest.split(']').next().unwrap_or_default() {
                "" => before.rsplit('[').next().unwrap_or_default(),
                name => name,
            };
            let known = defined.iter().any(|(known, _)| *known == name.to_lowercase());
            assert!(known, "{}: nothing says where [{name}] leads", file.display());
        }
    }
    links.extend(defined.into_iter().map(|(_, place)| place));
    links
}

/// The pages that a text names, and what follows each name.
fn named_pages(text: &str) -> Vec<(String, &str)> {
    let ends = [".md", ".svg"].map(|extension| text.match_indices(extension).map(move |(at, _)| at + extension.len()));
    let mut named = Vec::new();
    for end in ends.into_iter().flatten() {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
        let name = text[..end].rsplit(|c: char| !is_part(c)).next().unwrap();
        // Pictures of other folders are what programs write.
        let is_page = name.ends_with(".md") && name != ".md" || name.contains("docs/");
        if is_page && !text[end..].starts_with(is_part) {
            named.push((name.to_owned(), &text[end..]));
        }
    }
    named
}

/// The page that `file` calls `name`: from the folder of the project, from its own, or by its name alone.
fn page_at(name: &str, file: &Path) -> Option<PathBuf> {
    let from_root = name.find("docs/").map_or(name.trim_start_matches("../"), |at| &name[at..]);
    let beside = file.parent().unwrap().join(name);
    let alone = documents().into_iter().find(|page| page.file_name().is_some_and(|known| known == name));
    [root().join(from_root), beside].into_iter().find(|path| path.exists()).or(alone)
}

/// Whether a page has a heading with this anchor, or this number.
fn has_place(page: &Path, place: &str) -> bool {
    let numbered =
        |anchor: &String| anchor.split('-').next() == Some(place) && place.bytes().all(|b| b.is_ascii_digit());
    anchors(page).iter().any(|anchor| anchor == place || numbered(anchor))
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let mut anchors: Vec<String> = Vec::new();
    let mut in_fence = false;
    for line in text.lines() {
        in_fence ^= line.starts_with("```");
        let title = line.trim_start_matches('#');
        if in_fence || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let title = title.trim().to_lowercase().replace(' ', "-");
        let plain: String = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect();
        let again = anchors.iter().filter(|known| **known == plain).count();
        anchors.push(if again == 0 { plain } else { format!("{plain}-{again}") });
    }
    anchors
}

fn files_in(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    files.sort();
    files
}

/// All that is written in the Rust files of a folder and those below it.
fn sources_below(folder: &Path) -> String {
    let files = texts_below(folder).into_iter().filter(|(file, _)| file.extension().is_some_and(|e| e == "rs"));
    files.map(|(_, text)| text).collect()
}

/// The files of a folder and those below it that are text, with what is in them.
fn texts_below(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut texts = Vec::new();
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            texts.extend(texts_below(&path));
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            texts.push((path, text));
        }
    }
    texts
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}
