//! How a transfer goes, acknowledgement by acknowledgement, in tables under `tests/goldens/`.
//!
//! `EKIDEN_GOLDENS=write cargo test -p ekiden-tcp goldens::` writes them anew. Each test also says what the RFCs make of
//! the case, so that a table cannot freeze what is wrong.
//!
//! The path has a round trip of 100 ms and no limit of rate; a segment has 100 bytes of payload and is acknowledged at once. So
//! a window of data travels together, and its acknowledgements arrive one after the other at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::common::{Fate, Pair};
use ekiden_packet::SackBlock;
use ekiden_tcp::{Counting, PartialAcks, State, TcpSettings, Transmit};
use ekiden_units::Time;

const PAYLOAD: u64 = 100;
/// From this initial window on, a table has one row for all that happens at the same time in the same phase.
const MERGED: u32 = 100;

/// What an event at the sender did: an acknowledgement or a timer.
#[derive(Debug, Clone)]
struct Row {
    ms: u64,
    /// The segment that the peer expects; the first is 1.
    ack: u64,
    cwnd: u32,
    ssthresh: Option<u32>,
    pipe: u32,
    lost: u32,
    phase: &'static str,
    /// The window that the peer offers, in segments.
    window: u64,
    /// Segments sent, and whether they had been sent before.
    sent: Vec<(u64, bool)>,
    is_probe: bool,
}

struct Trace {
    rows: Vec<Row>,
    retransmits: u64,
    timeouts: u64,
    recoveries: u64,
}

impl Trace {
    /// When the first fast recovery was over.
    fn recovered(&self) -> Option<u64> {
        let rest = self.rows.iter().skip_while(|row| row.phase != "recovery");
        rest.skip_while(|row| row.phase == "recovery").map(|row| row.ms).next()
    }

    /// How often each segment was sent.
    fn copies(&self) -> BTreeMap<u64, u32> {
        let mut copies = BTreeMap::new();
        for (number, _) in self.rows.iter().flat_map(|row| &row.sent) {
            *copies.entry(*number).or_default() += 1;
        }
        copies
    }

    fn again(&self) -> Vec<u64> {
        self.copies().into_iter().filter(|(_, count)| *count > 1).map(|(number, _)| number).collect()
    }
}

fn plain(settings: TcpSettings, window: u32) -> TcpSettings {
    TcpSettings {
        mss: PAYLOAD as u32,
        timestamps: false,
        nagle: false,
        ack_every: 1,
        initial_window: window,
        ..settings
    }
}

/// What a peer does, beyond receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    Reads,
    /// It reads nothing until this time after the start, in milliseconds.
    ReadsFrom(u64),
    /// Of what it gets before segment 1, it drops 2 to 9 after it has reported them.
    Reneges,
}

/// Sends `segments` full segments, of which these copies are lost: (number, which of its transmissions), both from 1. Compares
/// with the table of this name.
fn trace(name: &str, settings: &TcpSettings, segments: u64, lost: &[(u64, u32)]) -> Trace {
    trace_with(name, settings, segments, lost, Peer::Reads)
}

/// The same, wherever sequence numbers begin.
fn trace_with(name: &str, settings: &TcpSettings, segments: u64, lost: &[(u64, u32)], peer: Peer) -> Trace {
    let trace = trace_from(7, settings, segments, lost, peer);
    let text = table(&trace.rows, peer != Peer::Reads);
    for before in [1, 450, 1000] {
        let wrapped = trace_from(0u32.wrapping_sub(before), settings, segments, lost, peer);
        assert_eq!(table(&wrapped.rows, peer != Peer::Reads), text, "{before} before numbers wrap");
    }
    compare(name, &text);
    trace
}

fn trace_from(first: u32, settings: &TcpSettings, segments: u64, lost: &[(u64, u32)], peer: Peer) -> Trace {
    let lost: BTreeSet<_> = lost.iter().copied().collect();
    let mut pair = Pair::new([settings.clone(), settings.clone()], Time::ms(50), [first, 7]);
    let mut copies: BTreeMap<u64, u32> = BTreeMap::new();
    let mut fate = |side: usize, transmit: &mut Transmit| {
        if side == 1 && peer == Peer::Reneges {
            renege(first, transmit);
        }
        if side == 1 || transmit.segment.payload == 0 {
            return Fate::Arrives;
        }
        let number = transmit.offset / PAYLOAD + 1;
        let copy = copies.entry(number).or_default();
        *copy += 1;
        if lost.contains(&(number, *copy)) { Fate::Lost } else { Fate::Arrives }
    };
    while pair.state(0) != Some(State::Established) {
        assert!(pair.step(&mut fate));
    }
    pair.end(0).write(segments * PAYLOAD);
    let start = pair.now;
    let mut rows: Vec<Row> = Vec::new();
    let mut known = BTreeSet::new();
    let mut seen = pair.sent.len();
    while pair.end(0).info().acked_bytes < segments * PAYLOAD || rows.is_empty() {
        let before = (pair.steps, pair.end(0).info());
        pair.transmit(&mut fate);
        let info = pair.end(0).info();
        let new = pair.sent[seen..].iter().filter(|(_, side, _)| *side == 0);
        let is_probe = new.clone().any(|(_, _, sent)| sent.segment.payload == 0);
        let new = new.filter(|(_, _, sent)| sent.segment.payload > 0);
        let sent: Vec<_> =
            new.map(|(_, _, sent)| sent.offset / PAYLOAD + 1).map(|number| (number, !known.insert(number))).collect();
        seen = pair.sent.len();
        let row = Row {
            ms: pair.now.since(start).0 / 1_000_000,
            ack: info.acked_bytes / PAYLOAD + 1,
            cwnd: info.cwnd,
            ssthresh: info.ssthresh,
            pipe: info.pipe,
            lost: info.lost,
            phase: if info.is_recovering {
                "recovery"
            } else if info.is_after_timeout {
                "timeout"
            } else {
                "open"
            },
            window: info.window / PAYLOAD,
            sent,
            is_probe,
        };
        let is_same = rows.last().is_some_and(|last| {
            (last.ack, last.cwnd, last.pipe, last.lost, last.phase)
                == (row.ack, row.cwnd, row.pipe, row.lost, row.phase)
                && (last.window == row.window || peer == Peer::Reads)
        });
        let is_merged = settings.initial_window >= MERGED;
        match rows.last_mut() {
            Some(last) if is_merged && (last.ms, last.phase) == (row.ms, row.phase) => {
                *last = Row { sent: last.sent.iter().copied().chain(row.sent).collect(), ..row };
            }
            _ if !is_same || !row.sent.is_empty() || is_probe && peer != Peer::Reads => rows.push(row),
            _ => {}
        }
        assert!(before.0 < 100_000, "no end: {:?}", before.1);
        if !matches!(peer, Peer::ReadsFrom(ms) if pair.now.since(start) < Time::ms(ms)) {
            pair.read(1);
        }
        assert!(pair.step(&mut fate));
    }
    let info = pair.end(0).info();
    Trace { rows, retransmits: info.retransmits, timeouts: info.timeouts, recoveries: info.recoveries }
}

/// Until segment 1 has arrived, acknowledgements report 2 to 9 as well.
fn renege(first: u32, transmit: &mut Transmit) {
    let options = &mut transmit.segment.options;
    let place = |number: u32| ekiden_packet::Seq(first) + 1 + (number - 1) * PAYLOAD as u32;
    if transmit.segment.ack == Some(place(1)) && !options.sack.is_empty() {
        let known = options.sack.iter().map(|block| SackBlock { start: place(2), ..block });
        options.sack = known.take(1).collect();
    }
}

/// Numbers as ranges: `1-3 7`, those sent before with `r`.
fn ranges(sent: &[(u64, bool)]) -> String {
    let mut text = Vec::new();
    for run in sent.chunk_by(|a, b| a.1 == b.1 && a.0 + 1 == b.0) {
        let (first, last, mark) = (run[0].0, run[run.len() - 1].0, if run[0].1 { "r" } else { "" });
        text.push(if first == last { format!("{first}{mark}") } else { format!("{first}-{last}{mark}") });
    }
    text.join(" ")
}

fn table(rows: &[Row], with_window: bool) -> String {
    let window = if with_window { "  window" } else { "" };
    let mut text = format!("   ms   ack  cwnd  ssthresh  pipe  lost{window}  phase     sent\n");
    for row in rows {
        let Row { ms, ack, cwnd, pipe, lost, phase, .. } = row;
        let ssthresh = row.ssthresh.map_or("-".to_string(), |ssthresh| ssthresh.to_string());
        let window = if with_window { format!("{:8}", row.window) } else { String::new() };
        let sent = if with_window && row.is_probe { "probe".into() } else { ranges(&row.sent) };
        let line = format!("{ms:5} {ack:5} {cwnd:5} {ssthresh:>9} {pipe:5} {lost:5}{window}  {phase:8}  {sent}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn compare(name: &str, now: &str) {
    let path = format!("{}/tests/goldens/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var("EKIDEN_GOLDENS").is_ok_and(|value| value == "write") {
        std::fs::write(&path, now).expect("the tables can be written");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(golden == now, "{name} is not as in {path}:\n{now}");
}

/// Every second segment from the first, `count` of them, lost once.
fn every_second(count: u64) -> Vec<(u64, u32)> {
    (0..count).map(|index| (1 + 2 * index, 1)).collect()
}

#[test]
fn slow_start() {
    let trace = trace("slow_start", &plain(TcpSettings::rfc(), 2), 126, &[]);
    // RFC 5681, section 3.1: one more segment for each one acknowledged, so the window doubles each round trip.
    let window = |ms| trace.rows.iter().rfind(|row| row.ms == ms).map(|row| row.cwnd);
    assert_eq!([0, 100, 200, 300, 400, 500].map(window), [2, 4, 8, 16, 32, 64].map(Some));
    assert_eq!(trace.retransmits, 0);
}

#[test]
fn slow_start_with_one_segment_per_acknowledgement_and_delayed_ones() {
    // RFC 3465, section 1: half of the acknowledgements, so the window grows by half each round trip.
    let settings = TcpSettings { counting: Counting::Acknowledgements, ack_every: 2, ..plain(TcpSettings::rfc(), 4) };
    let trace = trace("slow_start_delayed_acks", &settings, 100, &[]);
    let window = |ms| trace.rows.iter().rfind(|row| row.ms == ms).map(|row| row.cwnd);
    assert_eq!([0, 100, 200].map(window), [4, 6, 9].map(Some));
}

#[test]
fn recovery_with_sack() {
    // RFC 6675, section 5: one reduction to half of the flight, each lost segment once more, no timeout. The losses of one
    // window are found within it, and sent again in the two round trips that follow: half of the window at a time.
    for (count, window) in [(1, 10), (2, 10), (10, 40), (100, 400)] {
        let lost = every_second(count);
        let trace =
            trace(&format!("sack_{count}_lost"), &plain(TcpSettings::rfc(), window), 4 * u64::from(window), &lost);
        assert_eq!((trace.recoveries, trace.timeouts), (1, 0), "{count}");
        assert_eq!(trace.again(), lost.iter().map(|(number, _)| *number).collect::<Vec<_>>());
        assert_eq!(trace.retransmits, count);
        let recovery: Vec<_> = trace.rows.iter().filter(|row| row.phase == "recovery").collect();
        assert!(recovery.iter().all(|row| row.cwnd == window / 2 && row.ssthresh == Some(window / 2)), "equation 4");
        // All but the first retransmission keep the pipe within the window.
        assert!(recovery.iter().skip_while(|row| row.pipe > row.cwnd).all(|row| row.pipe <= row.cwnd));
        assert_eq!(recovery[0].ms, 100);
        assert_eq!(trace.recovered(), Some(200), "{count}");
    }
}

#[test]
fn recovery_with_proportional_rate_reduction() {
    // RFC 6937, section 3.1: over a recovery as many are sent as ssthresh / RecoverFS of what is delivered, spread over all
    // acknowledgements; it ends at ssthresh.
    for (count, window) in [(1, 10), (2, 10), (10, 40), (100, 400)] {
        let lost = every_second(count);
        let settings = plain(TcpSettings { quick_acks: 0, ..TcpSettings::linux() }, window);
        let trace = trace(&format!("prr_{count}_lost"), &settings, 4 * u64::from(window), &lost);
        assert_eq!((trace.recoveries, trace.timeouts), (1, 0), "{count}");
        assert_eq!(trace.again(), lost.iter().map(|(number, _)| *number).collect::<Vec<_>>());
        assert_eq!(trace.retransmits, count);
        let after = trace.rows.iter().skip_while(|row| row.phase != "recovery").find(|row| row.phase == "open");
        assert_eq!(after.map(|row| row.cwnd / 2), Some(window / 4), "{count}");
        // No burst and no silence: each of these acknowledgements tells of one segment, and lets at most two go; the pipe
        // comes down to ssthresh and stays there.
        let first: Vec<_> = trace.rows.iter().filter(|row| row.phase == "recovery" && row.ms == 100).collect();
        assert!(first.iter().all(|row| row.pipe >= window / 2 && (row.sent.len() <= 2 || window >= MERGED)), "{count}");
        assert_eq!(first.last().map(|row| row.pipe), Some(window / 2), "{count}");
    }
}

#[test]
fn recovery_without_sack() {
    // RFC 6582, section 3.2: one hole per round trip, nothing else again. The first partial acknowledgement restarts the
    // timer, of a second here: ten holes are filled just before it runs out.
    for (count, window) in [(1, 10), (2, 10), (10, 40)] {
        let lost = every_second(count);
        let settings = plain(TcpSettings { sack: false, ..TcpSettings::rfc() }, window);
        let trace = trace(&format!("newreno_{count}_lost"), &settings, 4 * u64::from(window), &lost);
        assert_eq!((trace.recoveries, trace.timeouts, trace.retransmits), (1, 0, count), "{count}");
        assert_eq!(trace.again(), lost.iter().map(|(number, _)| *number).collect::<Vec<_>>());
        assert_eq!(trace.recovered(), Some(100 * count + 100), "{count}");
    }
}

#[test]
fn recovery_of_a_hundred_without_sack() {
    let lost = every_second(100);
    // RFC 6582, section 4: the impatient variant ends in a timeout, a second after the first partial acknowledgement.
    let impatient = plain(TcpSettings { sack: false, ..TcpSettings::rfc() }, 200);
    let trace_impatient = trace("newreno_100_lost", &impatient, 300, &lost);
    assert_eq!((trace_impatient.recoveries, trace_impatient.timeouts), (1, 1));
    assert_eq!(trace_impatient.rows.iter().find(|row| row.phase == "timeout").map(|row| row.ms), Some(200 + 1000));
    // The slow-but-steady one takes a round trip for each.
    let steady = TcpSettings { partial_acks: PartialAcks::RestartTimer, ..impatient };
    let trace_steady = trace("newreno_100_lost_steady", &steady, 300, &lost);
    assert_eq!((trace_steady.recoveries, trace_steady.timeouts, trace_steady.retransmits), (1, 0, 100));
    assert_eq!(trace_steady.recovered(), Some(100 * 101));
}

#[test]
fn a_lost_retransmission_waits_for_the_timer() {
    // RFC 6675, section 5.1: only the timer finds it. It was restarted when 1 was sent again, at 100 ms (section 6).
    let settings = plain(TcpSettings::rfc(), 10);
    let trace = trace("lost_retransmission", &settings, 60, &[(1, 1), (1, 2)]);
    assert_eq!((trace.timeouts, trace.recoveries, trace.copies()[&1]), (1, 1, 3));
    assert_eq!(trace.rows.iter().find(|row| row.phase == "timeout").map(|row| row.ms), Some(1100));
}

#[test]
fn a_lost_retransmission_is_found_by_what_was_sent_after_it() {
    // RFC 8985, section 3: when something sent after it has arrived, a round trip later.
    let settings = plain(TcpSettings { quick_acks: 0, ..TcpSettings::linux() }, 10);
    let trace = trace("lost_retransmission_found", &settings, 60, &[(1, 1), (1, 2)]);
    assert_eq!((trace.timeouts, trace.recoveries, trace.copies()[&1]), (0, 1, 3));
    let third = trace.rows.iter().filter(|row| row.sent.contains(&(1, true))).nth(1).map(|row| row.ms);
    assert_eq!(third, Some(200));
}

#[test]
fn a_lost_tail_waits_for_the_timer_and_starts_slowly() {
    // RFC 6298, rules 5.4 to 5.6; RFC 5681, section 3.1: from one segment, ssthresh half of what was in flight.
    let lost: Vec<_> = (1..=10).map(|number| (number, 1)).chain([(1, 2), (1, 3)]).collect();
    let trace = trace("timeouts", &plain(TcpSettings::rfc(), 10), 10, &lost);
    let at: Vec<_> = trace.rows.iter().filter(|row| row.sent == [(1, true)]).map(|row| row.ms).collect();
    assert_eq!(at, [1000, 3000, 7000], "backed off: 1, 2, 4 s");
    let sizes: Vec<_> = trace.rows.iter().skip_while(|row| row.ms < 7000).map(|row| (row.ms, row.cwnd)).collect();
    assert_eq!((sizes[0], trace.rows[1].ssthresh), ((7000, 1), Some(5)));
    assert!(sizes.contains(&(7100, 2)) && sizes.contains(&(7200, 4)), "{sizes:?}");
}

#[test]
fn a_peer_that_reneges_costs_a_timeout_and_nothing_is_missing() {
    // RFC 2018, section 8: reports count until a timeout finds the first segment reported and not acknowledged; then
    // everything is sent again.
    let lost: Vec<_> = (1..=9).map(|number| (number, 1)).collect();
    let settings = plain(TcpSettings::rfc(), 20);
    let trace = trace_with("sack_reneging", &settings, 60, &lost, Peer::Reneges);
    assert_eq!((trace.recoveries, trace.timeouts), (1, 1));
    let timeout = trace.rows.iter().find(|row| row.phase == "timeout").map(|row| (row.ms, row.ack));
    assert_eq!(timeout, Some((1200, 2)), "a second after 1 was acknowledged");
    assert!((2..=9).all(|number| trace.copies()[&number] == 2));
}

#[test]
fn a_window_that_closes_and_opens() {
    // RFC 9293, section 3.8.6.1: the peer has room for ten segments and reads nothing for five seconds. Probes after a
    // second, then two, then four; the last one wakes it.
    let settings = TcpSettings { receive_buffer: 10 * PAYLOAD, ..plain(TcpSettings::rfc(), 4) };
    let trace = trace_with("window_closing", &settings, 30, &[], Peer::ReadsFrom(5000));
    let probes: Vec<_> = trace.rows.iter().filter(|row| row.is_probe && row.ms > 0).map(|row| row.ms).collect();
    assert_eq!((trace.retransmits, trace.timeouts), (0, 0));
    assert!(trace.rows.iter().any(|row| row.window == 0 && row.pipe == 0));
    assert_eq!(probes, [1200, 3200, 7200]);
}
