//! What a queue's discipline does to the delay of a Reno flow that fills the line.

use ekiden_record::{Kept, LinkDirection, Record};
use ekiden_scenario::Scenario;
use ekiden_sim::{Options, simulate};
use ekiden_units::Time;

/// 40 ms and 10 Mbit/s: 33 packets are on the way when none waits. 120 that wait take 144 ms.
const SCENARIO: &str = r#"
name = "discipline"
seed = 1
[node.sender]
[node.router]
kind = "router"
[node.receiver]
[link.access]
ends = ["sender", "router"]
rate = "1Gbit/s"
[link.line]
ends = ["router", "receiver"]
rate = "10Mbit/s"
delay = "20ms"
queue = "120 packets"
LINE
[flow.bulk]
from = "sender"
to = "receiver"
duration = "60s"
"#;

/// Slow start and what it leaves behind are over after this long.
const SETTLED_US: u64 = 15_000_000;

fn run(line: &str) -> (Record, Kept) {
    let scenario = Scenario::parse(&SCENARIO.replace("LINE", line), "discipline.toml").unwrap();
    let options = Options { resolution: Time::ms(20), ..Options::default() };
    let mut kept = Kept::default();
    (simulate(&scenario, &options, &mut kept, &mut |_| {}).unwrap(), kept)
}

/// What the line did with the data.
fn line(record: &Record) -> &LinkDirection {
    record.links.iter().find(|link| link.link == "line" && link.from == "router").unwrap()
}

/// The least, mean and most that packets waited, in milliseconds, and the part of the line's rate that arrived.
fn queueing((record, kept): &(Record, Kept)) -> (f64, f64, f64, f64) {
    let base_ms = record.flows[0].rtt_min_us.unwrap() as f64 / 1e3;
    let settled = kept.samples.iter().filter(|sample| sample.at_us > SETTLED_US && sample.at_us < 60_000_000);
    let waits: Vec<f64> = settled.map(|sample| sample.rtt_us as f64 / 1e3 - base_ms).collect();
    let mean = waits.iter().sum::<f64>() / waits.len() as f64;
    let least = waits.iter().copied().fold(f64::MAX, f64::min);
    let most = waits.iter().copied().fold(0.0, f64::max);
    // 1448 of 1500 bytes are data.
    (least, mean, most, record.flows[0].goodput_bit_s as f64 / 10e6 * 1500.0 / 1448.0)
}

#[test]
fn drop_tail_is_full_before_it_drops() {
    let run = run("");
    let (least, mean, most, used) = queueing(&run);
    assert_eq!(line(&run.0).queue_max_packets, 120);
    assert!((140.0..=146.0).contains(&most), "{most} ms");
    // Half of the 153 packets of a full line and queue leave 43 in the queue, and the window grows from there.
    assert!((45.0..60.0).contains(&least) && (90.0..110.0).contains(&mean), "{least} to {mean} ms");
    assert!(used > 0.99, "{used}");
}

#[test]
fn red_keeps_the_queue_between_its_thresholds() {
    // 10 packets, and 30: 12 ms, and 36 ms. The queue of one flow alone runs empty when its window is halved.
    let (least, mean, most, used) = queueing(&run("discipline = \"red\""));
    assert!(least < 12.0 && (12.0..36.0).contains(&most) && mean < 36.0, "{least} to {mean} to {most} ms");
    assert!(used > 0.8, "{used}");
}

#[test]
fn codel_keeps_the_delay_near_its_target() {
    let (_, mean, most, used) = queueing(&run("discipline = \"codel\""));
    assert!((2.5..7.5).contains(&mean) && most < 15.0, "{mean} to {most} ms");
    assert!(used > 0.8, "{used}");
}

/// A bulk flow beside datagrams of 8 Mbit/s and short files one after another, over a line of 10 Mbit/s: what the flow and the
/// files carry, in Mbit/s, and the mean wait, in milliseconds.
fn beside_datagrams(discipline: &str) -> [f64; 3] {
    let line = format!(
        "discipline = \"{discipline}\"\n[background.datagrams]\nfrom = \"router\"\nto = \"receiver\"\nrate = \"8Mbit/s\"\n\
         packet = \"1500B\"\nduration = \"60s\"\n\
         [flow.files]\nfrom = \"sender\"\nto = \"receiver\"\nfile = \"1KB\"\nduration = \"60s\"\n"
    );
    let (record, _) = run(&line);
    let of = |name: &str| record.flows.iter().find(|flow| flow.name == name).unwrap().goodput_bit_s as f64 / 1e6;
    [of("bulk"), of("files"), self::line(&record).queue_wait_mean_us.unwrap() / 1e3]
}

#[test]
fn fq_codel_gives_a_flow_its_part_beside_datagrams_and_lets_short_ones_pass() {
    let [bulk, files, wait] = beside_datagrams("drop_tail");
    assert!(bulk < 3.0 && wait > 50.0, "{bulk} Mbit/s, {wait} ms");
    let [bulk_too, files_too, wait_too] = beside_datagrams("fq_codel");
    // Half of the line, of which CoDel's losses cost a part.
    assert!((3.8..5.0).contains(&bulk_too), "{bulk} and {bulk_too} Mbit/s");
    // A file takes two round trips of 40 ms here, and there as much again for each wait.
    assert!(files_too > 2.5 * files, "{files} and {files_too} Mbit/s, {wait} and {wait_too} ms");
}

#[test]
fn runs_of_losses_cost_less_than_as_many_single_ones() {
    let [single, runs] = ["loss = \"0.5%\"", "loss = \"0.5%\"\nloss_burst = 5"].map(run);
    assert!(runs.0.flows[0].goodput_bit_s > single.0.flows[0].goodput_bit_s * 5 / 4);
}

#[test]
fn the_same_scenario_gives_the_same_record() {
    for discipline in ["red", "codel", "fq_codel"] {
        let text = format!("discipline = \"{discipline}\"\nloss = \"0.1%\"\nloss_burst = 3");
        assert_eq!(run(&text), run(&text), "{discipline}");
    }
}

#[test]
fn ecn_marks_instead_of_dropping_and_costs_no_goodput() {
    for discipline in ["codel", "fq_codel"] {
        let found = |ecn: &str| {
            let text = SCENARIO.replace("120 packets", "1000 packets").replace("seed = 1", &format!("seed = 1\n{ecn}"));
            let scenario = Scenario::parse(&text.replace("LINE", &format!("discipline = \"{discipline}\"")), "e.toml");
            let record = simulate(&scenario.unwrap(), &Options::default(), &mut Kept::default(), &mut |_| {}).unwrap();
            let line = line(&record).clone();
            (line.queue_drops, line.queue_marks, record.flows[0].retransmits, record.flows[0].goodput_bit_s as f64)
        };
        let (drops, marks, again, plain) = found("");
        assert!(drops > 10 && marks == 0 && again >= drops, "{discipline}: {drops}, {marks}, {again}");
        let (drops, marks, again, marked) = found("tcp = { ecn = true }");
        assert!(drops == 0 && marks > 10 && again == 0, "{discipline}: {drops}, {marks}, {again}");
        assert!(marked > 0.96 * plain && marked < 1.04 * plain, "{discipline}: {marked} and {plain}");
    }
}
