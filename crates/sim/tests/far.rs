//! `ekiden_far` on the paths that it is for, and beside others.

use ekiden_record::{Kept, Outcome, Record};
use ekiden_scenario::Scenario;
use ekiden_sim::{Options, simulate};

/// Senders with these congestion controls, each starting so many seconds after the one before, over one line; all end with the run.
fn run(controls: &[&str], line: &str, seconds: u32, apart: u32) -> (Record, Kept) {
    run_seeded(controls, line, seconds, apart, 1)
}

fn run_seeded(controls: &[&str], line: &str, seconds: u32, apart: u32, seed: u32) -> (Record, Kept) {
    let ecn = line.contains("codel");
    let mut text = format!(
        "name = \"t\"\nseed = {seed}\n[tcp]\necn = {ecn}\nsend_buffer = \"64MiB\"\nreceive_buffer = \"64MiB\"\n[node.near]\nkind = \"router\"\n\
         [node.far]\nkind = \"router\"\n[link.line]\nends = [\"near\", \"far\"]\n{line}\n"
    );
    for (at, control) in controls.iter().enumerate() {
        let start = at as u32 * apart;
        text += &format!(
            "[node.s{at}]\ntcp = {{ congestion = \"{control}\" }}\n[node.r{at}]\n[link.s{at}]\nends = [\"s{at}\", \"near\"]\n\
             rate = \"10Gbit/s\"\nqueue = \"100000 packets\"\n[link.r{at}]\nends = [\"far\", \"r{at}\"]\nrate = \"10Gbit/s\"\n\
             queue = \"100000 packets\"\n[flow.f{at}]\nfrom = \"s{at}\"\nto = \"r{at}\"\nstart = \"{start}s\"\n\
             duration = \"{}s\"\n",
            seconds - start
        );
    }
    let mut kept = Kept::default();
    let scenario = Scenario::parse(&text, "t.toml").unwrap();
    let record = simulate(&scenario, &Options::default(), &mut kept, &mut |_| {}).unwrap();
    assert!(record.flows.iter().all(|flow| flow.outcome == Outcome::Complete));
    (record, kept)
}

fn mbit(record: &Record) -> Vec<f64> {
    record.flows.iter().map(|flow| flow.goodput_bit_s as f64 / 1e6).collect()
}

/// 100 Mbit/s, of which 96.5 are payload. The beginning counts.
#[test]
fn it_fills_long_paths_whatever_they_lose_by_chance() {
    for (delay, queue, least) in [("10ms", "125KB", 0.95), ("100ms", "1250KB", 0.88), ("100ms", "250KB", 0.86)] {
        for (loss, part) in [("0", 0.0), ("0.1%", 0.001), ("1%", 0.01), ("2%", 0.02)] {
            let line =
                format!("rate = \"100Mbit/s\"\ndelay = \"{delay}\"\nqueue = \"{queue}\"\nforth.loss = \"{loss}\"");
            let runs = median_of(5, &line, 30);
            let got = runs.mbit / (96.5 * (1.0 - part));
            assert!(got > least, "{got} at {loss} over {delay}");
            // The startup overshoots once.
            let bound = if queue == "250KB" { 0.019 } else { 0.005 };
            assert!(runs.again < 1.5 * part + bound, "{} sent again at {loss} over {delay}", runs.again);
        }
    }
}

/// What one connection carries, and the part that it sends again: medians of so many seeds, for single runs differ by a third where chance
/// decides when the startup ends.
struct Median {
    mbit: f64,
    again: f64,
}

fn median_of(seeds: u32, line: &str, seconds: u32) -> Median {
    let records: Vec<Record> = (1..=seeds).map(|seed| run_seeded(&["ekiden_far"], line, seconds, 0, seed).0).collect();
    let median = |value: &dyn Fn(&Record) -> f64| {
        let mut values: Vec<f64> = records.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Median { mbit: median(&|record| mbit(record)[0]), again: median(&|record| again(record, 0)) }
}

/// A queue of 2 ms, and hosts that are late by half as much, as in the lab: what chance takes there is learnt all the same.
#[test]
fn late_hosts_do_not_make_chance_an_overflow() {
    let line = "rate = \"100Mbit/s\"\ndelay = \"10ms\"\nqueue = \"25KB\"\nforth.loss = \"1%\"\njitter = \"1ms\"";
    let runs = median_of(5, line, 15);
    assert!(runs.mbit > 80.0, "{}", runs.mbit);
    assert!(runs.again < 0.02, "{} sent again", runs.again);
}

fn again(record: &Record, flow: usize) -> f64 {
    record.flows[flow].retransmits as f64 / (record.flows[flow].received_bytes as f64 / 1448.0)
}

/// Where the queue is so short that its overflow cannot be seen in round trips, losses are congestion all the same: they are not
/// learnt as chance, and the window stays at what the path carries.
#[test]
fn a_shallow_queue_makes_no_storm() {
    // The product of bandwidth and delay is 690 segments at 80 ms, and 173 at 20 ms.
    for (others, delay, queue, loss, product) in [
        (&["ekiden_far"][..], "40ms", "20KB", 0.0, 690),
        (&["ekiden_far"], "40ms", "20KB", 0.005, 690),
        (&["ekiden_far"], "10ms", "12500B", 0.02, 173),
        (&["reno", "ekiden_far"], "10ms", "12500B", 0.0, 173),
        (&["reno", "ekiden_far"], "40ms", "100KB", 0.0, 690),
        (&["cubic", "ekiden_far"], "40ms", "100KB", 0.0, 690),
    ] {
        let line = format!(
            "rate = \"100Mbit/s\"\ndelay = \"{delay}\"\nqueue = \"{queue}\"\nforth.loss = \"{}%\"",
            loss * 100.0
        );
        let (record, kept) = run_seeded(others, &line, 120, 4, 3);
        let which = format!("{others:?}, {delay}, {queue}, {loss} lost");
        let more = again(&record, others.len() - 1) - loss;
        assert!(more < 0.015, "{which}: {more} more sent again");
        let most = kept.samples.iter().filter(|s| s.at_us > 20_000_000).map(|s| s.cwnd_segments).max().unwrap();
        assert!(most < 2 * product, "{which}: a window of {most}");
        assert!(mbit(&record).iter().sum::<f64>() > 85.0, "{which}: {:?}", mbit(&record));
    }
}

/// 1.1 ms are more than hosts are late by.
#[test]
fn four_of_it_do_not_take_the_overflows_of_a_queue_of_a_millisecond_for_chance() {
    let line = "rate = \"100Mbit/s\"\ndelay = \"40ms\"\nqueue = \"14KB\"";
    let (record, _) = run(&["ekiden_far"; 4], line, 40, 0);
    for flow in 0..4 {
        assert!(again(&record, flow) < 0.03, "{} sent again", again(&record, flow));
    }
}

/// Eight of it in a tenth of a bandwidth-delay product.
/// Where few segments are all that a path carries, losses with a queue count as in Reno.
#[test]
fn few_segments_are_not_sent_again_and_again() {
    for (rate, delay, queue, senders, most) in [
        ("1Mbit/s", "20ms", "5KB", 1, 0.10),
        ("3Mbit/s", "15ms", "11250B", 4, 0.25),
        ("10Mbit/s", "20ms", "50KB", 8, 0.06),
    ] {
        let line = format!("rate = \"{rate}\"\ndelay = \"{delay}\"\nqueue = \"{queue}\"");
        let (record, _) = run(&vec!["ekiden_far"; senders], &line, 60, 1);
        let sent: u64 = record.flows.iter().map(|flow| flow.retransmits).sum();
        let got: u64 = record.flows.iter().map(|flow| flow.received_bytes).sum();
        let again = sent as f64 * 1448.0 / got as f64;
        assert!(again < most, "{again} of {senders} at {rate}");
    }
}

/// A queue that marks instead of dropping tells as much.
#[test]
fn a_mark_on_the_way_is_an_overflow() {
    let line = "rate = \"100Mbit/s\"\ndelay = \"45ms\"\nqueue = \"2250KB\"\ndiscipline = \"codel\"";
    let (record, _) = run(&["ekiden_far", "cubic"], line, 60, 3);
    let got = mbit(&record);
    assert!(got[1] > 8.0, "{got:?}");
    let (record, _) = run(&["ekiden_far"], line, 30, 0);
    let alone = mbit(&record);
    assert!(alone[0] > 85.0, "{alone:?}");
}

#[test]
fn eight_of_it_share_a_shallow_queue() {
    let line = "rate = \"100Mbit/s\"\ndelay = \"40ms\"\nqueue = \"100KB\"";
    let (record, _) = run(&["ekiden_far"; 8], line, 60, 1);
    let got = mbit(&record);
    let jain = got.iter().sum::<f64>().powi(2) / 8.0 / got.iter().map(|part| part * part).sum::<f64>();
    assert!(jain > 0.85, "{jain}: {got:?}");
    for flow in 0..8 {
        assert!(again(&record, flow) < 0.05, "{} sent again", again(&record, flow));
    }
}

/// A longer way is no queue, and nor are jitter, packets out of order, and ACKs that wait on a thin way back.
#[test]
fn what_is_no_queue_is_not_taken_for_one() {
    // Over 24 seeds the path that becomes five times longer has 75 to 92: that is noticed at once or some seconds later.
    for (line, seconds, least, most_again) in [
        ("delay = \"40ms\"\nqueue = \"500KB\"\nchanges = [{ at = \"10s\", delay = \"80ms\" }]", 60, 85.0, 0.03),
        ("delay = \"10ms\"\nqueue = \"125KB\"\nchanges = [{ at = \"10s\", delay = \"50ms\" }]", 60, 85.0, 0.03),
        ("delay = \"40ms\"\nqueue = \"500KB\"\njitter = \"20ms\"", 30, 75.0, 0.03),
        ("delay = \"40ms\"\nqueue = \"500KB\"\nreorder = \"1%\"\nreorder_by = \"5ms\"", 30, 88.0, 0.02),
        ("delay = \"40ms\"\nqueue = \"500KB\"\nback.rate = \"2Mbit/s\"\nback.queue = \"50KB\"", 30, 88.0, 0.03),
    ] {
        let line = format!("rate = \"100Mbit/s\"\n{line}");
        let runs = median_of(5, &line, seconds);
        assert!(runs.mbit > least, "{line}: {}", runs.mbit);
        assert!(runs.again < most_again, "{line}: {} sent again", runs.again);
    }
}

/// Half a bandwidth-delay product would fill with Reno.
#[test]
fn its_own_queue_is_short() {
    let (record, kept) = run(&["ekiden_far"], "rate = \"20Mbit/s\"\ndelay = \"20ms\"\nqueue = \"400KB\"", 30, 0);
    assert!(mbit(&record)[0] > 18.5);
    let rtts: Vec<f64> = kept.samples.iter().filter(|s| s.at_us > 5_000_000).map(|s| s.rtt_us as f64).collect();
    let queue_ms = rtts.iter().sum::<f64>() / rtts.len() as f64 / 1e3 - 40.0;
    assert!(queue_ms < 10.0, "{queue_ms} ms");
}

#[test]
fn two_of_it_share_and_reno_keeps_a_part() {
    let line = "rate = \"100Mbit/s\"\ndelay = \"40ms\"\nqueue = \"500KB\"";
    let [first, second] = mbit(&run(&["ekiden_far"; 2], line, 60, 5).0)[..] else { panic!() };
    assert!(first < 2.0 * second && second < 1.5 * first, "{first} and {second}");
    let [reno, far] = mbit(&run(&["reno", "ekiden_far"], line, 90, 4).0)[..] else { panic!() };
    assert!(reno > 25.0 && far > 25.0 && reno + far > 85.0, "Reno {reno} and {far}");
}

/// What others took while it was small is asked for again, and what they need is left to them. Where it took its own peaks for being
/// alone it had 20 beside Reno and 30 beside CUBIC.
#[test]
fn it_keeps_its_part_of_a_queue_that_others_fill() {
    for (other, delay, queue, least) in [("reno", "40ms", "1MB", 27.0), ("cubic", "10ms", "250KB", 40.0)] {
        let line = format!("rate = \"100Mbit/s\"\ndelay = \"{delay}\"\nqueue = \"{queue}\"");
        let [theirs, far] = mbit(&run(&[other, "ekiden_far"], &line, 150, 4).0)[..] else { panic!() };
        assert!(far > least && theirs > 42.0, "{other} {theirs}, ekiden_far {far}");
    }
}

/// Jitter leaves others no less than a tenth. Two Reno connections would share it evenly.
#[test]
fn others_keep_a_part_on_a_path_with_jitter() {
    let line = "rate = \"100Mbit/s\"\ndelay = \"40ms\"\nqueue = \"500KB\"\njitter = \"20ms\"";
    for (controls, other) in [(["ekiden_far", "cubic"], 1), (["cubic", "ekiden_far"], 0), (["reno", "ekiden_far"], 0)] {
        let got = mbit(&run(&controls, line, 90, 4).0);
        assert!(got[other] > 10.0 && got.iter().sum::<f64>() > 75.0, "{controls:?}: {got:?}");
    }
}

/// It finds the rate again: after a fall to a tenth, after an outage with a timeout, behind a policer.
#[test]
fn it_follows_a_path_that_changes() {
    let line = "rate = \"50Mbit/s\"\ndelay = \"20ms\"\nqueue = \"125KB\"\n";
    let change = "changes = [{ at = \"12s\", rate = \"5Mbit/s\" }, { at = \"24s\", rate = \"50Mbit/s\" }]";
    let (record, _) = run(&["ekiden_far"], &format!("{line}{change}"), 36, 0);
    assert!(mbit(&record)[0] > 29.0, "{:?} of 33.8", mbit(&record));
    let (record, _) = run(&["ekiden_far"], &format!("{line}outages = [{{ at = \"10s\", lasts = \"3s\" }}]"), 30, 0);
    assert!(mbit(&record)[0] > 36.0, "{:?} of 43.4", mbit(&record));
    let policer = "forth.policer.rate = \"10Mbit/s\"\nforth.policer.burst = \"30KB\"";
    let (record, _) = run(&["ekiden_far"], &format!("{line}{policer}"), 30, 0);
    assert!(mbit(&record)[0] > 9.0, "{:?} of 9.65", mbit(&record));
    assert!(again(&record, 0) < 0.1, "{} sent again", again(&record, 0));
}

/// What the receiver's window limits does not grow, so that there is no burst when it opens.
#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let text = "name = \"t\"\n[tcp]\ncongestion = \"ekiden_far\"\nreceive_buffer = \"64KiB\"\n[node.a]\n[node.b]\n[link.l]\n\
                ends = [\"a\", \"b\"]\nrate = \"100Mbit/s\"\ndelay = \"40ms\"\n[flow.f]\nfrom = \"a\"\nto = \"b\"\nduration = \"20s\"\n";
    let mut kept = Kept::default();
    simulate(&Scenario::parse(text, "t.toml").unwrap(), &Options::default(), &mut kept, &mut |_| {}).unwrap();
    let most = kept.samples.iter().map(|sample| sample.cwnd_segments).max().unwrap();
    assert!(most < 200, "{most} segments");
}
