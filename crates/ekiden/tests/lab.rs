//! The lab from outside: the built program, its exit codes, its records, and what it leaves behind.
//!
//! Accuracy is asserted with room for a busy machine; `make bench` holds the lab to its real tolerances.

mod fetched;
mod files;
mod links;
mod packets;
mod place;
mod proxies;
mod through_gateway;
mod through_tunnel;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ekiden_record::{LinkDirection, Outcome, Record};
use libtest_mimic::{Failed, Trial};

use place::Place;

type Test = fn() -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    ("round-trip time, throughput and queue are the scenario's", accuracy),
    ("a 64 KiB window bounds the throughput", window),
    ("a flow that is cut counts what arrives in its time, and its buffers take none after it", cut),
    ("connections that open together all come about", links::many_at_once),
    ("files go one after another, each on a connection of its own", files::one_after_another),
    ("files of a byte are counted", files::tiny),
    ("packets are no larger than the MTU, and are lost as often as the scenario says", sizes_and_losses),
    ("a policer drops what is above its rate", links::policer),
    ("losses come in bursts", links::bursts),
    ("a link's directions, schedule and outages are the lab's too", links::schedule),
    ("packets overtake others, and all arrive", links::reorder),
    ("jitter delays packets and loses none", jitter),
    ("captured packets are those of the record", packets::whole),
    ("a packet that is lost is captured where it was sent", packets::lost),
    ("what cannot be captured is refused or told", packets::refused),
    ("packets are captured as the documentation says", packets::documented),
    ("what a link sends evenly reaches the next link evenly", evenly),
    ("a flow through proxies arrives whole", proxies::relayed),
    ("a transparent flow is taken as it passes, and another one is not", proxies::taken_as_it_passes),
    ("a file is fetched by SOCKS, HTTP and FTP, directly and through ekiden, Dante and squid", fetched::whole),
    ("a program that is not there is named before anything runs", fetched::missing),
    ("a flow, background and pings go through a tunnel, each kind on its own connection", through_tunnel::whole),
    ("a gateway finds the slow start that overshoots among the streams of its flow", through_gateway::balanced),
    ("a shell passes standard input and the exit code on", shell),
    ("the prompt of a shell names the scenario and the node", prompt),
    ("nodes know each other by name, and no one else", names),
    ("a node that is not there is a usage error that names those that are", no_such_node),
    ("an unknown congestion control is refused with what there is", no_such_congestion),
    ("nothing is left after the end", || leaves_nothing(None)),
    ("nothing is left after Ctrl-C", || leaves_nothing(Some("INT"))),
    ("nothing is left after SIGTERM", || leaves_nothing(Some("TERM"))),
    ("nothing lives after the supervisor is killed", || leaves_nothing(Some("KILL"))),
    ("clean removes what a killed lab has left and nothing else", clean),
    ("a sweep runs every point, is resumed, and gives the same table", sweep),
    ("a sweep whose runs fail goes on, and exits as they do", failing_sweep),
    ("a sweep that is interrupted ends its runs and leaves no half record", || interrupted_sweep("INT")),
    ("the runs of a sweep that is killed end too", || interrupted_sweep("KILL")),
    ("a key that is not there is refused before anything runs", wrong_set),
    ("without root it works in a user namespace, or says in a line why not", without_root),
];

pub fn trials() -> Vec<Trial> {
    let root = crate::is_root();
    let trial = |&(name, test): &(&str, Test)| Trial::test(name, test).with_ignored_flag(!root);
    TESTS.iter().map(trial).collect()
}

/// A busy machine delays packets: one measurement of four that nothing disturbs shows what the emulation does.
fn accuracy() -> Result<(), Failed> {
    let mut measured = accurate();
    for _ in 1..4 {
        if measured.is_err() {
            measured = accurate();
        }
    }
    measured
}

fn accurate() -> Result<(), Failed> {
    let place = Place::new("20Mbit/s", "10ms", "100KB", "", "duration = \"8s\"")?;
    let output = place.lab(&["check", "--json"]).output()?;
    let checks: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let measured = |what: &str| {
        let all = checks.as_array().into_iter().flatten();
        let check = all.into_iter().find(|check| check["what"].as_str().is_some_and(|text| text.contains(what)));
        check.and_then(|check| Some((check["expected"].as_f64()?, check["measured"].as_f64()?)))
    };
    let (expected, rtt) = measured("p50").ok_or("no RTT")?;
    assert_within(rtt, expected - 0.1, expected + 1.0)?;
    let (expected, rate) = measured("throughput").ok_or("no throughput")?;
    assert_within(rate, 0.9 * expected, 1.02 * expected)?;
    let (expected, rise) = measured("RTT rise").ok_or("no rise")?;
    assert_within(rise, 0.8 * expected, 1.3 * expected)
}

fn window() -> Result<(), Failed> {
    let tcp = "tcp = { send_buffer = \"64KiB\", receive_buffer = \"64KiB\" }";
    let place = Place::new("1Gbit/s", "25ms", "1MB", tcp, "duration = \"5s\"")?;
    let record = place.run()?;
    let samples = record.samples(&place.record_file())?.collect::<Result<Vec<_>, _>>()?;
    let steady: Vec<_> = samples.iter().filter(|sample| sample.at_us > 1_000_000).collect();
    let (first, last) = (steady.first().ok_or("no samples")?, steady.last().ok_or("no samples")?);
    let rate = (last.received_bytes - first.received_bytes) as f64 * 8.0 / (last.at_us - first.at_us) as f64;
    assert_within(rate, 0.5 * 10.49, 1.1 * 10.49)?; // other work delays acknowledgements
    assert_within(last.window_bytes as f64, 64_000.0, 67_000.0)
}

fn cut() -> Result<(), Failed> {
    // What the buffers hold takes some tenths of a second.
    let [cut, drained] = ["cut", "drain"].map(|end| -> Result<_, Failed> {
        let flow = format!("duration = \"2s\"\nparallel = 2\nend = \"{end}\"");
        Ok(Place::new("10Mbit/s", "5ms", "50KB", "", &flow)?.run()?.flows.remove(0))
    });
    let (cut, drained) = (cut?, drained?);
    for flow in [&cut, &drained] {
        ensure(flow.outcome == Outcome::Complete, || format!("{flow:?}"))?;
    }
    assert_within(cut.duration_us as f64, 1_900_000.0, 2_000_000.0)?;
    let of_line = 10e6 / 8.0 * 1448.0 / 1500.0 * 2.0;
    assert_within(cut.received_bytes as f64, 0.7 * of_line, 1.02 * of_line)?;
    ensure(drained.duration_us > cut.duration_us + 100_000, || format!("{drained:?}"))?;
    ensure(drained.received_bytes > cut.received_bytes, || format!("{drained:?}"))
}

fn sizes_and_losses() -> Result<(), Failed> {
    let place = Place::with_loss("50Mbit/s", "1ms", "1MB", "", "bytes = \"8MB\"", "1%")?;
    let record = place.run()?;
    let data = &record.links[0];
    assert_within(data.largest_packet_bytes as f64, 1400.0, 1500.0)?;
    assert_within(data.random_losses as f64 / data.packets as f64, 0.006, 0.016)?;
    ensure(data.overruns == 0, || format!("the emulation lost {} packets", data.overruns))?;
    ensure(record.flows[0].received_bytes == 8_000_000, || "not all arrived".into())
}

fn jitter() -> Result<(), Failed> {
    let place = Place::small()?;
    let text = fs::read_to_string(&place.scenario)?.replace("loss = \"0\"", "jitter = \"40ms\"");
    fs::write(&place.scenario, text.replace("bytes = \"1B\"", "bytes = \"300KB\""))?;
    let record = place.run()?;
    // The sum of two times between 0 and 40 ms: that the median of all probes is below 10 is no matter of luck.
    let rtt = record.paths[0].p50_us.ok_or("no probe came back")? / 1000.0;
    assert_within(rtt, 10.0, 90.0)?;
    let dropped: u64 = record.links.iter().map(|link| link.queue_drops + link.random_losses).sum();
    ensure(dropped == 0, || format!("{dropped} packets were dropped"))?;
    let path = &record.paths[0];
    ensure(path.lost == 0, || format!("{} of {} probes were lost", path.lost, path.probes))?;
    ensure(record.flows[0].outcome == Outcome::Complete, || format!("{:?}", record.flows[0].outcome))
}

/// The second link is twice as fast as the first, so hardly anything waits before it, however late or early this machine
/// is. If what the emulator sends in one turn of 200 µs came to the second link as a burst, packets would wait 60 µs on
/// average.
fn evenly() -> Result<(), Failed> {
    let link = |name: &str, ends: [&str; 2], rate: &str| {
        format!("[link.{name}]\nends = {ends:?}\nrate = \"{rate}\"\ndelay = \"500us\"\nqueue = \"1000 packets\"\n")
    };
    let run = || {
        let place = Place::from(&format!(
            "name = \"evenly\"\n[node.client]\n[node.middle]\nkind = \"router\"\n[node.server]\n{}{}\
             [flow.bulk]\nfrom = \"client\"\nto = \"server\"\nduration = \"2s\"\n",
            link("first", ["client", "middle"], "200Mbit/s"),
            link("second", ["middle", "server"], "400Mbit/s"),
        ))?;
        place.run()
    };
    // A run in which packets were late says nothing of how evenly they are sent on.
    let is_on_time = |link: &LinkDirection| link.lateness.is_none_or(|late| late.max_us < 1_000.0);
    let mut runs = (0..4).map(|_| run());
    let calm = runs.find(|run| run.as_ref().map_or(true, |record| record.links.iter().all(is_on_time)));
    let Some(record) = calm.transpose()? else {
        eprintln!("not measured: packets were late in every run");
        return Ok(());
    };
    let waited = record.links.iter().find(|of| of.from == "middle" && of.to == "server").ok_or("no second link")?;
    let mean_us = waited.queue_wait_mean_us.ok_or("nothing sent")?;
    ensure(waited.packets > 1_000, || format!("{waited:?}"))?;
    ensure(mean_us < 10.0, || format!("{waited:?}"))
}

fn shell() -> Result<(), Failed> {
    let place = Place::small()?;
    let mut child = place.shell(&["sh", "-c", "read line; echo \"got $line\"; exit 42"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("no stdin")?.write_all(b"hello\n")?;
    let output = child.wait_with_output()?;
    ensure(output.status.code() == Some(42), || format!("{:?}", output.status))?;
    ensure(output.stdout == b"got hello\n", || String::from_utf8_lossy(&output.stdout).into())
}

fn prompt() -> Result<(), Failed> {
    let place = Place::small()?;
    let home = tempfile::tempdir()?;
    fs::write(home.path().join(".bashrc"), "PS1='of the host '; OWN=kept\n")?;
    for (shell, expected) in [("/bin/bash", "[test:client] "), ("/bin/sh", "[test:client] $ ")] {
        let name = place.scenario.display();
        let line = format!("{} lab shell {name} client", env!("CARGO_BIN_EXE_ekiden"));
        // A shell has a prompt on a terminal only.
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).env("SHELL", shell).env("HOME", home.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        child.stdin.take().ok_or("no stdin")?.write_all(b"echo own=$OWN.\nexit\n")?;
        let said = String::from_utf8(child.wait_with_output()?.stdout)?;
        ensure(said.contains(expected) && !said.contains("of the host"), || format!("{shell}: {said}"))?;
        ensure(shell == "/bin/sh" || said.contains("own=kept."), || format!("{shell}: {said}"))?;
    }
    Ok(())
}

fn names() -> Result<(), Failed> {
    let place = Place::small()?;
    let script =
        "getent hosts server; ip netns list | sort; ip -o link show | wc -l; ip netns exec server ip -o -4 addr";
    let output = place.shell(&["sh", "-c", script]).output()?;
    let text = String::from_utf8(output.stdout)?;
    let words: Vec<_> = text.split_whitespace().collect();
    ensure(words.starts_with(&["10.77.0.2", "server", "client", "server", "2"]), || text.clone())?;
    ensure(text.contains("10.77.0.2/32"), || text.clone())
}

fn no_such_node() -> Result<(), Failed> {
    let place = Place::small()?;
    let output = place.lab(&["shell", "nowhere", "--", "true"]).output()?;
    refused(&output, 2, "the scenario has no node 'nowhere'; it has: client, server")
}

fn no_such_congestion() -> Result<(), Failed> {
    let place = Place::new("1Mbit/s", "1ms", "10KB", "tcp = { congestion = \"warp\" }", "bytes = \"1B\"")?;
    refused(
        &place.shell(&["true"]).output()?,
        4,
        &format!(
            "{}:4: node 'client': this kernel has no congestion control 'warp' (it has: ",
            place.scenario.display()
        ),
    )
}

/// Ends a lab, by `signal` to its supervisor or by itself, and looks for what was there.
fn leaves_nothing(signal: Option<&str>) -> Result<(), Failed> {
    let place = Place::small()?;
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let (mut child, namespaces) = running_lab(&place, signal.is_none())?;
    ensure(!namespaces.processes().is_empty(), || "the lab's processes cannot be seen".into())?;
    if let Some(signal) = signal {
        Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status()?;
    }
    drop(child.stdin.take());
    let status = child.wait()?;
    ensure(signal.is_some() || status.success(), || format!("{status:?}"))?;
    namespaces.are_empty()?;
    ensure(fs::read_to_string("/proc/self/mounts")? == mounts, || "the mounts have changed".into())?;
    let directories = place.run_directories()?;
    let expected = usize::from(signal == Some("KILL"));
    ensure(directories.len() == expected, || format!("directories left: {directories:?}"))
}

fn clean() -> Result<(), Failed> {
    let place = Place::small()?;
    let (mut killed, namespaces) = running_lab(&place, false)?;
    let abandoned = place.run_directories()?;
    killed.kill()?;
    killed.wait()?;
    // Its processes close their sockets, which takes time, before they let go of the lock.
    namespaces.are_empty()?;
    for directory in &abandoned {
        let lock = directory.join("lock");
        ensure(Command::new("flock").args(["--timeout", "30"]).arg(&lock).arg("true").status()?.success(), || {
            format!("{} is held", lock.display())
        })?;
    }
    let foreign = place.directory.path().join("ekiden-lab-of-someone");
    fs::create_dir(&foreign)?;
    fs::write(foreign.join("file"), "theirs")?;
    // Starting a lab cleans as well; the one that runs must be left alone.
    let (mut alive, _) = running_lab(&place, true)?;
    let own = place.run_directories()?;
    ensure(abandoned.iter().all(|path| !own.contains(path)), || "the next lab has not cleaned".into())?;
    let output = place.ekiden().args(["lab", "clean"]).output()?;
    ensure(output.stdout == b"nothing to remove\n", || String::from_utf8_lossy(&output.stdout).into())?;
    ensure(place.run_directories()? == own && foreign.join("file").exists(), || "clean removed too much".into())?;
    drop(alive.stdin.take());
    ensure(alive.wait()?.success(), || "the living lab was disturbed".into())
}

fn sweep() -> Result<(), Failed> {
    let place = Place::small()?;
    let options = ["--set", "link.line.delay=1ms,3ms", "--repeat", "2", "--jobs", "2", "--record"];
    let whole = place.sweep(&options).output()?;
    ensure(whole.status.success(), || String::from_utf8_lossy(&whole.stderr).into())?;
    let names = ["1ms,r0", "1ms,r1", "3ms,r0", "3ms,r1"].map(|end| format!("test,link.line.delay={end}.json"));
    ensure(place.records()? == names, || format!("{:?}", place.records()))?;
    let last = place.records_directory().join(&names[3]);
    let record = Record::read(&last)?;
    ensure(record.manifest.seed == 1, || format!("seed {}", record.manifest.seed))?;
    ensure(!record.manifest.command.iter().any(|argument| argument.contains("ends-with")), || {
        format!("{:?}", record.manifest.command)
    })?;
    assert_within(record.paths[0].p50_us.unwrap_or_default(), 6_000.0, 7_500.0)?;
    let table = String::from_utf8(whole.stdout)?;
    let rows: Vec<_> = table.lines().filter(|line| line.contains("bulk")).collect();
    ensure(rows.len() == 2 && rows[0].contains("1ms") && rows[1].contains("3ms"), || table.clone())?;

    let modified = || fs::metadata(&last).and_then(|about| about.modified());
    let before = modified()?;
    let again = place.sweep(&options).output()?;
    ensure(again.stdout == table.as_bytes(), || String::from_utf8_lossy(&again.stdout).into())?;
    ensure(again.stderr == b"4 of 4 runs are there already\n", || String::from_utf8_lossy(&again.stderr).into())?;
    // A half record, as a full disk might leave it, is no record.
    fs::write(place.records_directory().join(&names[0]), "{")?;
    let resumed = place.sweep(&[&["--json"], &options[..]].concat()).output()?;
    let said = String::from_utf8_lossy(&resumed.stderr);
    ensure(said == "3 of 4 runs are there already\nlink.line.delay=1ms r0\n", || said.to_string())?;
    ensure(modified()? == before, || "a run was done again".into())?;
    let points: serde_json::Value = serde_json::from_slice(&resumed.stdout)?;
    let point = &points[1];
    ensure(point["set"]["link.line.delay"] == "3ms" && point["runs"] == 2, || point.to_string())?;
    let flow = &point["flows"][0];
    ensure(flow["complete"] == 2 && flow["goodput_bit_s"]["median"].as_f64() > Some(0.0), || flow.to_string())
}

fn failing_sweep() -> Result<(), Failed> {
    let place = Place::small()?;
    let output = place.sweep(&["--set", "tcp.congestion=warp,reno", "--record"]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure(output.status.code() == Some(4), || format!("{:?}: {said}", output.status))?;
    let line =
        format!("ekiden: tcp.congestion=warp r0: {}: node 'client': this kernel has no", place.scenario.display());
    ensure(said.contains(&line), || said.to_string())?;
    ensure(said.ends_with("ekiden: 1 of 2 runs failed\n"), || said.to_string())?;
    ensure(place.records()? == ["test,tcp.congestion=reno,r0.json"], || format!("{:?}", place.records()))?;
    let table = String::from_utf8_lossy(&output.stdout);
    ensure(table.contains("0 of 1"), || table.to_string())
}

fn interrupted_sweep(signal: &str) -> Result<(), Failed> {
    let place = Place::small()?;
    let options = ["--set", "flow.bulk.duration=200ms,30s", "--repeat", "2", "--jobs", "2", "--record"];
    let mut child = place.sweep(&options).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let limit = Instant::now() + Duration::from_secs(60);
    // The two short runs are over and have their whole records, the two long ones have begun.
    let short = ["r0", "r1"].map(|run| format!("test,flow.bulk.duration=200ms,{run}.json"));
    let has_short_ones = || place.records().map(|records| records == short);
    while !(has_short_ones()? && place.run_directories()?.len() == 2) && Instant::now() < limit {
        sleep(Duration::from_millis(20));
    }
    Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status()?;
    let status = child.wait()?;
    let limit = Instant::now() + Duration::from_secs(30);
    while !place.run_directories()?.is_empty() && Instant::now() < limit {
        sleep(Duration::from_millis(20));
    }
    ensure(place.run_directories()?.is_empty(), || "runs go on".into())?;
    ensure(has_short_ones()?, || format!("{:?}", place.records()))?;
    if signal == "INT" {
        let mut said = String::new();
        child.stderr.take().ok_or("no stderr")?.read_to_string(&mut said)?;
        ensure(status.code() == Some(130), || format!("{status:?}: {said}"))?;
        ensure(said.contains("interrupted with 2 of 4 runs done"), || said.clone())?;
    }
    Ok(())
}

fn wrong_set() -> Result<(), Failed> {
    let place = Place::small()?;
    let output = place.sweep(&["--set", "link.line.delay=1ms,2ms", "--set", "link.lien.rate=1Mbit/s", "--record"]);
    let reason = "--set link.lien.rate=1Mbit/s: there is no link 'lien'; there is: line";
    refused(&{ output }.output()?, 3, reason)?;
    ensure(!place.records_directory().exists(), || "something has run".into())
}

fn without_root() -> Result<(), Failed> {
    let place = Place::small()?;
    // The build's directory need not be readable for others.
    let program = place.directory.path().join("ekiden");
    fs::copy(env!("CARGO_BIN_EXE_ekiden"), &program)?;
    fs::set_permissions(place.directory.path(), fs::Permissions::from_mode(0o777))?;
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args(["lab", "shell"])
        .arg(&place.scenario)
        .args(["client", "--", "sh", "-c", "id -u; getent hosts server"])
        .env("TMPDIR", place.directory.path())
        .output()?;
    if output.status.success() {
        return ensure(output.stdout.starts_with(b"0\n10.77.0.2"), || String::from_utf8_lossy(&output.stdout).into());
    }
    refused(&output, 4, "this needs root, or a kernel that lets users make namespaces")
}

/// A lab that runs until its standard input ends (and leaves children behind then, if told so), and its network namespaces.
fn running_lab(place: &Place, with_daemon: bool) -> Result<(Child, Namespaces), Failed> {
    let daemon = if with_daemon { "setsid sleep 1000 >/dev/null 2>&1 &" } else { "" };
    let script = format!("{daemon} readlink /proc/1/ns/net /proc/self/ns/net; cat");
    let mut child = place.shell(&["sh", "-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().ok_or("no stdout")?;
    let names = BufReader::new(output).lines().take(2).collect::<Result<Vec<_>, _>>()?;
    ensure(names.len() == 2, || "the lab did not start".into())?;
    let mut namespaces = Namespaces { names, _open: Vec::new() };
    let processes = namespaces.processes();
    namespaces._open = processes.iter().flat_map(|process| File::open(process.join("ns/net"))).collect();
    Ok((child, namespaces))
}

/// Network namespaces by the names that the kernel gives them.
struct Namespaces {
    names: Vec<String>,
    /// They are kept so: the kernel would give the name of one that has gone to the next that is made.
    _open: Vec<File>,
}

impl Namespaces {
    /// The processes of this machine that are in any of them.
    fn processes(&self) -> Vec<PathBuf> {
        let is_in = |process: &Path| {
            fs::read_link(process.join("ns/net"))
                .is_ok_and(|link| self.names.iter().any(|name| link == Path::new(name)))
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
        entries.filter(|process| is_in(process)).collect()
    }

    /// The kernel ends the processes of a lab at once, but not before its supervisor has ended.
    fn are_empty(&self) -> Result<(), Failed> {
        let limit = Instant::now() + Duration::from_secs(30);
        while !self.processes().is_empty() && Instant::now() < limit {
            sleep(Duration::from_millis(20));
        }
        let left = self.processes();
        ensure(left.is_empty(), || format!("processes left: {left:?}"))
    }
}

/// One clear line, and the exit code.
fn refused(output: &Output, code: i32, line: &str) -> Result<(), Failed> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure(output.status.code() == Some(code), || format!("exit {:?}: {said}", output.status.code()))?;
    ensure(said.starts_with(&format!("ekiden: {line}")) && said.lines().count() == 1, || said.to_string())
}

fn assert_within(value: f64, least: f64, most: f64) -> Result<(), Failed> {
    ensure((least..=most).contains(&value), || format!("{value} is not within {least} to {most}"))
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(message().into()) }
}
