//! The gateway that keeps parallel streams in balance, in a network of a hundredth of the size of S2's.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use ekiden_record::{Event, Kept, Outcome, Record};
use ekiden_scenario::{Scenario, address};
use ekiden_sim::Capture;

/// Four streams over 100 Mbit/s and 100 ms, whose slow start overshoots by several hundred packets.
fn run(gateway: &str) -> (Record, Kept) {
    run_with("ns2", gateway)
}

fn run_with(profile: &str, gateway: &str) -> (Record, Kept) {
    let scenario = scenario(profile, false, gateway);
    let mut kept = Kept::default();
    let record = ekiden_sim::simulate(&scenario, &Default::default(), &mut kept, &mut |_| {}).unwrap();
    assert!(record.flows.iter().all(|flow| flow.outcome == Outcome::Complete), "{:?}", record.flows);
    (record, kept)
}

fn scenario(profile: &str, ecn: bool, gateway: &str) -> Scenario {
    let text = format!(
        "name = 'parallel'
        [tcp]
        profile = '{profile}'
        congestion = 'ekiden_bic'
        ecn = {ecn}
        timestamps = false
        send_buffer = '64MiB'
        receive_buffer = '64MiB'
        [node.sender]
        copies = 4
        [node.entrance]
        kind = 'router'
        [node.exit]
        kind = 'router'
        [node.receiver]
        copies = 4
        [link.access]
        ends = ['sender', 'entrance']
        rate = '100Mbit/s'
        queue = '64MB'
        [link.bottleneck]
        ends = ['entrance', 'exit']
        rate = '100Mbit/s'
        delay = '50ms'
        queue = '625kB'
        [link.exit]
        ends = ['exit', 'receiver']
        rate = '100Mbit/s'
        queue = '64MB'
        [flow.bulk]
        from = 'sender'
        to = 'receiver'
        bytes = '10MB'
        [background.udp]
        from = 'entrance'
        to = 'exit'
        rate = '20Mbit/s'
        on = '50ms'
        off = '50ms'
        [gateway.balance]
        node = 'entrance'
        flows = ['bulk']
        {gateway}"
    );
    Scenario::parse(&text, "test.toml").unwrap()
}

/// A data segment of a stream on a link of the gateway's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    at_us: u64,
    seq: u32,
    length: u16,
    is_marked: bool,
}

/// Data by the sender's address.
type ByStream = BTreeMap<[u8; 4], Vec<Seen>>;

/// A run, and its data as it comes to the gateway's node and as it leaves it.
fn watched(ecn: bool, gateway: &str) -> (Record, Kept, ByStream, ByStream) {
    #[derive(Clone, Default)]
    struct File(Arc<Mutex<Vec<u8>>>);
    impl Write for File {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let scenario = scenario("ns2_bitcp", ecn, gateway);
    let (mut comes, leaves) = (Vec::new(), File::default());
    let open = |node: &str, link: &str| {
        let file = match (node, link) {
            ("entrance", "bottleneck") => leaves.clone(),
            ("entrance", _) => {
                comes.push(File::default());
                comes.last().unwrap().clone()
            }
            _ => return Ok(None),
        };
        Ok(Some(Box::new(file) as Box<dyn Write + Send>))
    };
    let mut capture = Capture::new(&scenario, open).unwrap();
    let mut kept = Kept::default();
    let record =
        ekiden_sim::simulate_captured(&scenario, &Default::default(), &mut kept, &mut capture, &mut |_| {}).unwrap();
    capture.finish().unwrap();
    let mut all = ByStream::new();
    comes.iter().for_each(|file| all.extend(data(&file.0.lock().unwrap())));
    (record, kept, all, data(&leaves.0.lock().unwrap()))
}

/// What of a pcap file with nanoseconds comes from the senders and has data.
fn data(file: &[u8]) -> ByStream {
    let mut seen = ByStream::new();
    let mut rest = &file[24..];
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
        let (at_us, kept) = (u64::from(word(0)) * 1_000_000 + u64::from(word(4)) / 1000, word(8) as usize);
        let packet = &rest[16..16 + kept];
        let source: [u8; 4] = packet[12..16].try_into().unwrap();
        if (0..4).any(|node| address(node).unwrap().octets() == source) {
            let length = u16::from_be_bytes([packet[2], packet[3]]) - 20 - u16::from(packet[32] >> 4) * 4;
            let seq = u32::from_be_bytes(packet[24..28].try_into().unwrap());
            if length > 0 {
                seen.entry(source).or_default().push(Seen { at_us, seq, length, is_marked: packet[1] & 3 == 3 });
            }
        }
        rest = &rest[16 + kept..];
    }
    seen
}

fn of_kind<'a>(record: &'a Record, kind: &str) -> Vec<&'a Event> {
    record.events.iter().filter(|event| event.kind == kind).collect()
}

/// Every stream has one such event for a throttling at most, and some stream has one for the first.
fn assert_one_for_each(record: &Record, kind: &str) {
    let events = of_kind(record, kind);
    let each: BTreeSet<_> = events.iter().map(|event| (&event.flow, &event.detail)).collect();
    assert_eq!(each.len(), events.len(), "{events:?}");
    let first = events.iter().filter(|event| event.detail.ends_with("throttling 1"));
    assert!(first.count() > 0, "{events:?}");
    assert!(events.len() <= 4 * of_kind(record, "throttled").len());
}

fn changes(record: &Record) -> Vec<&Event> {
    record.events.iter().filter(|event| ["throttled", "let_go"].contains(&event.kind.as_str())).collect()
}

#[test]
fn the_windows_are_small_from_throttling_to_letting_go_and_never_larger() {
    let ((without, seen_without), (with, seen_with)) = (run("enabled = false"), run("policy = 'paper'"));
    assert!(changes(&without).is_empty());
    let changes = changes(&with);
    assert!(changes.len() >= 2, "{:?}", with.events);
    for (change, kind) in changes.iter().zip(["throttled", "let_go"].into_iter().cycle()) {
        assert_eq!(change.kind, kind, "{changes:?}");
        assert!(change.flow.as_ref().is_some_and(|flow| flow.starts_with("bulk-")), "{change:?}");
        assert_eq!(change.connection, Some(0));
    }
    // The receivers' programs take everything at once: so the receivers always offer the same.
    let offered = seen_without.samples.iter().map(|sample| sample.window_bytes).max().unwrap();
    let mut smallest = u64::MAX;
    for sample in &seen_with.samples {
        assert!(sample.window_bytes <= offered, "{sample:?}");
        let is_throttled =
            changes.iter().rev().find(|change| change.at_us < sample.at_us).map(|c| c.kind == "throttled");
        if is_throttled == Some(true) {
            smallest = smallest.min(sample.window_bytes);
        }
    }
    assert!(smallest < offered / 10, "{smallest} of {offered}");
    // From when every connection is open.
    let mut later = seen_without.samples.iter().filter(|sample| sample.at_us > 500_000);
    assert!(later.all(|sample| sample.window_bytes + 64 * 1500 > offered), "without a gateway it stays");
}

#[test]
fn more_repetitions_throttle_later_and_too_many_never() {
    let first = |repeats: u32| {
        changes(&run(&format!("policy = 'paper'\nrepeats = {repeats}")).0).first().map(|change| change.at_us)
    };
    let times: Vec<_> = [10, 50, 100].into_iter().map(first).collect();
    assert!(times[0].is_some() && times.is_sorted() && times[0] < times[2], "{times:?}");
    assert_eq!(first(100_000), None);
}

/// Ours, where slow start overshoots: less is sent again, and no stream is slower than without it.
#[test]
fn the_delivered_policy_spares_losses() {
    let ((without, _), (with, _)) = (run_with("ns2_bitcp", "enabled = false"), run_with("ns2_bitcp", ""));
    let throttled = changes(&with);
    assert!(!throttled.is_empty() && throttled.iter().all(|change| change.kind == "throttled"), "{throttled:?}");
    let sum = |record: &Record| record.flows.iter().map(|flow| flow.retransmits).sum::<u64>();
    let slowest = |record: &Record| record.flows.iter().map(|flow| flow.duration_us).max();
    assert!(sum(&with) * 4 < sum(&without) * 3, "{} of {}", sum(&with), sum(&without));
    assert!(slowest(&with) <= slowest(&without), "{:?} after {:?}", slowest(&with), slowest(&without));
}

#[test]
fn delayed_data_stays_in_order_and_windows_are_left_alone() {
    let (record, kept, comes, leaves) = watched(false, "policy = 'delay'");
    assert_eq!((comes.len(), leaves.len()), (4, 4));
    let mut longest = 0;
    for (stream, comes) in &comes {
        let leaves = &leaves[stream];
        assert!(comes.len() >= leaves.len() && leaves.len() > 6_000, "{} of {}", leaves.len(), comes.len());
        for (came, left) in comes.iter().zip(leaves) {
            assert_eq!((came.seq, came.length), (left.seq, left.length));
            longest = longest.max(left.at_us - came.at_us);
        }
    }
    assert!(longest > 10_000, "{longest} us");
    let delayed = of_kind(&record, "delayed");
    assert!(delayed.len() == 1 && !of_kind(&record, "throttled").is_empty(), "{:?}", record.events);
    let offered = kept.samples.iter().map(|sample| sample.window_bytes).max().unwrap();
    let mut later = kept.samples.iter().filter(|sample| sample.at_us > 500_000);
    assert!(later.all(|sample| sample.window_bytes + 64 * 1500 > offered));
}

#[test]
fn a_throttling_marks_one_segment_of_each_stream() {
    let (record, _, comes, leaves) = watched(true, "policy = 'mark'");
    assert_one_for_each(&record, "marked");
    let marked = |seen: &ByStream| seen.values().flatten().filter(|seen| seen.is_marked).count();
    assert_eq!((marked(&comes), marked(&leaves)), (0, of_kind(&record, "marked").len()));
}

#[test]
fn streams_without_ecn_pass_unmarked() {
    let ((marking, ..), (without, ..)) = (watched(false, "policy = 'mark'"), watched(false, "enabled = false"));
    assert!(!of_kind(&marking, "throttled").is_empty() && of_kind(&marking, "marked").is_empty());
    assert_eq!(marking.flows, without.flows);
}

#[test]
fn a_throttling_drops_one_segment_of_each_stream() {
    let (record, _, comes, leaves) = watched(false, "policy = 'drop'");
    assert_one_for_each(&record, "dropped");
    let count = |seen: &ByStream| seen.values().map(Vec::len).sum::<usize>();
    assert_eq!(count(&comes) - count(&leaves), of_kind(&record, "dropped").len());
    assert!(record.flows.iter().all(|flow| flow.outcome == Outcome::Complete), "{:?}", record.flows);
}

#[test]
fn the_same_seed_gives_the_same_record() {
    assert_eq!(run(""), run(""));
}
