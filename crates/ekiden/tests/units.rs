//! The units in `packaging/systemd`: systemd takes them, they leave the programs little, and that is enough for these.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::unistd::geteuid;

const EKIDEN: &str = env!("CARGO_BIN_EXE_ekiden");
/// What systemd calls the exposure of a service, 0 to 100: the highest that a unit may have.
const EXPOSURE_MOST: u32 = 22;

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd")
}

/// The name of each unit, with an instance where it wants one, and its text.
fn units() -> Vec<(String, String)> {
    let files = fs::read_dir(packaging()).unwrap().map(|file| file.unwrap().path());
    let mut units: Vec<_> = files
        .map(|file| {
            let name = file.file_name().unwrap().to_str().unwrap().replace("@.", "@one.");
            (name, fs::read_to_string(&file).unwrap())
        })
        .collect();
    units.sort();
    assert_eq!(units.len(), 5, "a unit for each program that runs for long");
    units
}

/// The value of a key of a unit.
fn value<'a>(unit: &'a str, key: &str) -> &'a str {
    unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap_or_else(|| panic!("{key}: {unit}"))
}

#[test]
fn systemd_takes_the_units_and_finds_them_little_exposed() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("ignored: there is no systemd-analyze here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in units() {
        fs::write(folder.path().join(&name), text.replace("/usr/bin/ekiden", EKIDEN)).unwrap();
        let asked = |arguments: &[&str]| {
            let mut command = Command::new("systemd-analyze");
            let output = command.args(arguments).arg(format!("./{name}")).current_dir(&folder).output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            (output.status.success(), String::from_utf8_lossy(&said).into_owned())
        };
        let (is_right, said) = asked(&["verify", "--man=no"]);
        assert!(is_right && !said.contains(&name), "{name}: {said}");
        let threshold = format!("--threshold={EXPOSURE_MOST}");
        let (is_little, said) = asked(&["security", "--offline=true", &threshold]);
        assert!(is_little, "{name}: {said}");
    }
}

#[test]
fn a_service_is_started_again_and_given_the_time_that_it_takes_to_stop() {
    for (name, text) in units() {
        assert_eq!(value(&text, "Restart"), "on-failure", "{name}");
        assert_eq!(value(&text, "After"), "network-online.target", "{name}");
        // Wrong usage and wrong files (`ekiden --help`): a new start changes nothing.
        assert_eq!(value(&text, "RestartPreventExitStatus"), "2 3", "{name}");
    }
    let keys = Command::new(EKIDEN).args(["proxy", "--keys"]).output().unwrap().stdout;
    let keys = String::from_utf8(keys).unwrap();
    let drain = &keys[keys.find("\ndrain").or_else(|| keys.find(" drain")).expect("the key is there")..];
    assert!(drain.lines().take(3).any(|line| line.contains("1h")), "{drain}");
    let (_, proxy) = units().into_iter().find(|(name, _)| name.starts_with("ekiden-proxy")).unwrap();
    assert_eq!(value(&proxy, "TimeoutStopSec"), "61min", "longer than limits.drain");
}

#[test]
fn the_guide_shows_the_unit_of_a_node_as_it_is() {
    let guide = fs::read_to_string(packaging().join("../../docs/guide/operations.md")).unwrap();
    let shown = guide.split_once("```ini unit ekiden-proxy@.service\n").expect("it is there").1;
    let unit = fs::read_to_string(packaging().join("ekiden-proxy@.service")).unwrap();
    assert_eq!(shown.split_once("```").unwrap().0, unit);
}

#[test]
fn the_guide_puts_everything_where_the_units_look_for_it() {
    let guide = fs::read_to_string(packaging().join("../../docs/guide/operations.md")).unwrap();
    let commands = guide.split_once("```sh install\n").expect("it is there").1.split_once("```").unwrap().0;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for made in ["bin", "root/usr/bin", "root/etc/systemd/system", "root/usr/lib/sysusers.d", "here/target/release"] {
        fs::create_dir_all(at(made)).unwrap();
    }
    // What would change this host only says what it was asked.
    for command in ["systemctl", "systemd-sysusers"] {
        fs::write(at("bin").join(command), format!("#!/bin/sh\necho {command} $* >> {}\n", at("said").display()))
            .unwrap();
        fs::set_permissions(at("bin").join(command), fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (name, text) in [("target/release/ekiden", ""), ("city.toml", ""), ("node.key", "")] {
        fs::write(at("here").join(name), text).unwrap();
    }
    std::os::unix::fs::symlink(packaging().join(".."), at("here/packaging")).unwrap();
    let root = at("root").display().to_string();
    let commands = commands.replace(" /", &format!(" {root}/")).replace(" -o ekiden -g ekiden", "");
    let path = format!("{}:{}", at("bin").display(), std::env::var("PATH").unwrap());
    let output =
        Command::new("sh").args(["-ec", &commands]).env("PATH", path).current_dir(at("here")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let start = value(&units().into_iter().find(|(name, _)| name.starts_with("ekiden-proxy")).unwrap().1, "ExecStart")
        .to_owned();
    for file in start.split(' ').filter(|word| word.starts_with('/')) {
        assert!(Path::new(&format!("{root}{file}")).is_file(), "{file}");
    }
    assert!(Path::new(&format!("{root}/etc/systemd/system/ekiden-monitor.service")).is_file());
    assert!(fs::read_to_string(at("said")).unwrap().ends_with("enable --now ekiden-proxy@a\n"));
}

/// A program, until it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts what a unit starts, with the files in `folder`, as the user and with the capabilities that it says, in namespaces of its own, and
/// waits until it says that it is ready.
fn starts(unit: &str, folder: &Path) {
    let bound = value(unit, "CapabilityBoundingSet").to_lowercase().replace("cap_", "");
    let only = |sign: &str| bound.split_whitespace().map(|cap| format!(",{sign}{cap}")).collect::<String>();
    // As udev makes it: everybody may open it, and needs CAP_NET_ADMIN for the rest.
    const TUN: &str = "mknod tun c 10 200 && chmod 666 tun && mount --bind tun /dev/net/tun && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "sh", "-c", TUN, "sh", "setpriv", "--no-new-privs"]).current_dir(folder);
    command.arg(format!("--bounding-set=-all{}", only("+")));
    match unit.lines().any(|line| line == "User=ekiden") {
        true => {
            let ambient = if unit.contains("\nAmbientCapabilities=") { only("+") } else { String::new() };
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
            command.args([format!("--inh-caps=-all{ambient}"), format!("--ambient-caps=-all{ambient}")]);
        }
        false => {
            command.arg("--inh-caps=-all");
        }
    }
    let folder = folder.to_str().unwrap();
    let start = value(unit, "ExecStart").replace("/usr/bin", folder).replace("%i", "one");
    let start = start.replace("/etc/ekiden", folder);
    command.args(start.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running(command.spawn().unwrap());
    let lines = BufReader::new(running.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let is_ready = lines.into_iter().any(|line| line == "ready" || line.starts_with("listening on "));
    if !is_ready {
        let mut said = String::new();
        std::io::Read::read_to_string(&mut running.0.stderr.take().unwrap(), &mut said).unwrap();
        panic!("{start}: {said}");
    }
}

#[test]
fn what_a_unit_leaves_a_program_is_enough_for_it() {
    if !geteuid().is_root() {
        eprintln!("ignored: only root has something to give up");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    // Where the other user can reach it.
    fs::copy(EKIDEN, folder.path().join("ekiden")).unwrap();
    assert!(Command::new(EKIDEN).args(["keygen", "node.key"]).current_dir(&folder).output().unwrap().status.success());
    let print = format!("sha256:{}", "1".repeat(64));
    write(
        "proxy.toml",
        &format!(
            "key_file = \"node.key\"\n[listen.leg]\nkind = \"leg\"\naddress = \"0.0.0.0:443\"\nnodes = {{ a = \"{print}\" }}\n"
        ),
    );
    write(
        "monitor.toml",
        "history = \"h.sqlite\"\ninterval = \"1h\"\n[target.one]\niperf3 = \"127.0.0.1:9\"\nbytes = \"1MB\"\n",
    );
    for (name, text) in units() {
        let instance = match name.split('-').nth(1) {
            Some("tunnel@one.service") => Some(format!(
                "key_file = \"node.key\"\n[device]\nname = \"ekiden0\"\naddresses = [\"10.77.0.2/24\"]\n[listen]\naddress = \"0.0.0.0:443\"\n\
                 [peer.city]\nfingerprint = \"sha256:{}\"\nallowed = [\"10.77.0.1/32\"]\n",
                "a".repeat(64)
            )),
            // Which device is no matter: what it may do is.
            Some("gateway@one.service") => continue,
            _ => None,
        };
        if let Some(file) = instance {
            write("one.toml", &file);
        }
        let _ = fs::remove_file(folder.path().join("tun"));
        for file in fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).chain([folder.path().into()]) {
            nix::unistd::chown(&file, Some(65534.into()), Some(65534.into())).unwrap();
        }
        starts(&text, folder.path());
    }
}
