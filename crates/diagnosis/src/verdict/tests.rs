use ekiden_record::{Delays, Way};

use super::*;
use ekiden_measure_proto::settings::Asked;

/// What lies between the ends, counted in segments.
#[derive(Clone, Copy)]
struct Between {
    base_us: f64,
    /// Segments that pass in a microsecond.
    rate: f64,
    /// Segments that wait at most; what drops more at once is a policer with this burst where `is_policed`.
    room: f64,
    is_policed: bool,
    /// One segment in this many is lost by chance; 0: none.
    lost_every: u32,
}

impl Between {
    /// A line of 0.5 segments in a millisecond, and a round trip of 40 ms.
    const LINE: Self = Self { base_us: 40_000.0, rate: 5e-4, room: 40.0, is_policed: false, lost_every: 0 };

    /// `streams` with Reno, round trip by round trip: a look in each. What is lost is shared by all.
    fn rows(self, streams: usize, rounds: u32) -> Vec<Vec<Row>> {
        let fits = self.base_us * self.rate + self.room;
        let mut rows = vec![Vec::new(); streams];
        let mut windows = vec![10.0_f64; streams];
        let mut thresholds = vec![f64::INFINITY; streams];
        let mut resent = vec![0; streams];
        let (mut at_us, mut sent) = (0.0, 0_u32);
        for round in 0..rounds {
            let window = windows.iter().sum::<f64>();
            // A policer lets packets through at the speed of the line behind it, which is much faster.
            let speed = if self.is_policed { self.rate * 16.0 } else { self.rate };
            let rtt_us = if self.is_policed { self.base_us + window / speed } else { self.base_us.max(window / speed) };
            at_us += rtt_us;
            let over = (window - fits).max(0.0);
            for (stream, rows) in rows.iter_mut().enumerate() {
                let window = windows[stream];
                // Not all that share a full queue lose each time.
                let is_hit = streams == 1 || (round as usize + stream).is_multiple_of(streams);
                let mut lost = if is_hit { over.ceil() as u32 } else { 0 };
                let before = sent;
                sent += window as u32;
                lost += before.checked_div(self.lost_every).map_or(0, |before| sent / self.lost_every - before);
                let last: Row = rows.last().copied().unwrap_or_default();
                rows.push(Row {
                    at_us: at_us as u64,
                    cwnd: window as u32,
                    ssthresh: thresholds[stream].min(1e9) as u32,
                    retransmits: resent[stream],
                    delivered: last.delivered + (window as u32).saturating_sub(lost),
                    rtt_us: rtt_us as u32,
                    delivery_bytes_s: (speed * 1_448e6) as u64,
                    ..Row::default()
                });
                // The next look sees that they were sent again.
                resent[stream] += lost;
                if lost > 0 {
                    thresholds[stream] = (window / 2.0).max(2.0);
                    windows[stream] = thresholds[stream];
                } else if window < thresholds[stream] {
                    windows[stream] = (window * 2.0).min(thresholds[stream]);
                } else {
                    windows[stream] += 1.0;
                }
            }
        }
        rows
    }

    /// What is said of them.
    fn limit(self, streams: usize, rounds: u32, peaks: &[Peak]) -> Option<PathLimit> {
        limit(&self.rows(streams, rounds), self.base_us, peaks)
    }
}

/// A load of which nothing is known.
fn nothing() -> Load {
    Load {
        way: Way::Forth,
        bytes: 0,
        duration_us: 0,
        goodput_bit_s: 0,
        tenths_bytes: Vec::new(),
        retransmits: 0,
        delivered_segments: 0,
        rtt_min_us: 0,
        rtt: Delays::default(),
        cwnd_p50_segments: 0,
        write_to_ack: None,
        shares: None,
        path_limit: None,
        lost_segment_bytes: None,
        streams: Vec::new(),
        sampler_late: Delays::default(),
        sender_cpu_us: 0,
        receiver_cpu_us: 0,
    }
}

/// What is said of a load with these samples.
fn limit(rows: &[Vec<Row>], base_us: f64, peaks: &[Peak]) -> Option<PathLimit> {
    limit_beside(rows, base_us, peaks, None)
}

/// The same where messages took longer by that much.
fn limit_beside(rows: &[Vec<Row>], base_us: f64, peaks: &[Peak], added: Option<Added>) -> Option<PathLimit> {
    let all = || rows.iter().flatten();
    let last = || rows.iter().filter_map(|rows| rows.last());
    let duration_us = last().map(|row| row.at_us).max().unwrap_or(0);
    let delivered: u64 = last().map(|row| u64::from(row.delivered)).sum();
    let bytes = delivered * 1_448;
    let load = Load {
        bytes,
        duration_us,
        goodput_bit_s: bytes * 8_000_000 / duration_us.max(1),
        retransmits: last().map(|row| u64::from(row.retransmits)).sum(),
        delivered_segments: delivered,
        rtt_min_us: base_us as u64,
        rtt: Delays::of(all().map(|row| f64::from(row.rtt_us)).collect()),
        shares: Some(Shares { path: 1.0, ..Shares::default() }),
        ..nothing()
    };
    let rows: Vec<_> = rows.iter().map(Vec::as_slice).collect();
    path_limit(&load, &rows, peaks, base_us, added)
}

#[test]
fn a_queue_of_the_other_direction_is_no_full_line() {
    let mut rows = Between { rate: 1e-2, room: 400.0, lost_every: 300, ..Between::LINE }.rows(1, 150);
    for row in &mut rows[0] {
        (row.at_us, row.rtt_us) = (row.at_us * 7 / 2, row.rtt_us * 7 / 2);
    }
    let with = |own_us, other_us| limit_beside(&rows, 40_000.0, &[], Some(Added { own_us, other_us }));
    assert_eq!(with(100_000.0, 0.0), Some(PathLimit::Line));
    assert_eq!(with(500.0, 100_000.0), Some(PathLimit::Loss));

    let window = Shares { receive_window: 1.0, ..Shares::default() };
    let rtt = Delays::of(vec![140_000.0; 5]);
    let load = Load { shares: Some(window), rtt_min_us: 40_000, rtt, ..nothing() };
    let [idle, none, waits] = [40_000.0, 500.0, 100_000.0].map(|us| Delays::of(vec![us; 5]));
    let said = |added_forth, added_back| {
        let latency = Latency { idle, loaded: rtt, added_forth, added_back };
        sentence(&load, Asked::default().get(), Some(&latency))
    };
    assert!(said(waits, none).ends_with(FULL), "{}", said(waits, none));
    assert!(said(none, waits).ends_with("(tcp_rmem) helps"), "{}", said(none, waits));
}

/// As over 20 Mbit/s and 40 ms with 2 % lost in runs of ten: all in front of a hole waits for it, and no line is full.
#[test]
fn a_window_that_fills_while_lost_segments_come_again_is_no_full_line() {
    let window = Shares { receive_window: 1.0, ..Shares::default() };
    let rtt = Delays::of(vec![140_000.0; 5]);
    let tenths = |tenths: [u64; 10], retransmits| Load { tenths_bytes: tenths.into(), retransmits, ..nothing() };
    let holes = tenths([250_000, 60_000, 0, 0, 30_000, 200_000, 0, 10_000, 40_000, 0], 150);
    let even = tenths([120_000, 240_000, 250_000, 250_000, 240_000, 60_000, 250_000, 250_000, 230_000, 250_000], 150);
    let said = |load: &Load, shares| {
        let load = Load { shares: Some(shares), rtt_min_us: 40_000, rtt, ..load.clone() };
        sentence(&load, Asked::default().get(), None)
    };
    assert!(said(&even, window).ends_with(FULL));
    assert!(
        said(&holes, window).contains("losses held it up: 150 segments were sent again"),
        "{}",
        said(&holes, window)
    );
    let buffer = Shares { send_buffer: 1.0, ..Shares::default() };
    assert!(said(&holes, buffer).contains("losses held it up"), "{}", said(&holes, buffer));

    let rows = Between { room: 400.0, ..Between::LINE }.rows(1, 150);
    let rows: Vec<_> = rows.iter().map(Vec::as_slice).collect();
    let limit = |load: &Load| {
        let shares = Shares { path: 1.0, ..Shares::default() };
        let load = Load { shares: Some(shares), rtt_min_us: 40_000, rtt, ..load.clone() };
        path_limit(&load, &rows, &[], 40_000.0, None)
    };
    assert_eq!((limit(&even), limit(&holes)), (Some(PathLimit::Line), None));
}

#[test]
fn a_window_that_was_asked_for_is_not_to_be_made_larger() {
    let of = |shares: Shares, asked: LoadSettings| sentence(&Load { shares: Some(shares), ..nothing() }, &asked, None);
    let default = || Asked::default().get().clone();
    let window = Shares { receive_window: 1.0, ..Shares::default() };
    assert!(of(window, default()).ends_with("a larger receive buffer (tcp_rmem) helps"));
    let asked = LoadSettings { window_bytes: Some(1 << 14), ..default() };
    assert!(of(window, asked).ends_with("--window asked for it"));
    let asked = LoadSettings { receive_buffer_bytes: Some(1 << 14), ..default() };
    assert!(of(window, asked).ends_with("--receive-buffer asked for it"));
    let asked = LoadSettings { window_bytes: Some(1 << 30), receive_buffer_bytes: Some(1 << 14), ..default() };
    assert!(of(window, asked).ends_with("--receive-buffer asked for it"));
    let buffer = Shares { send_buffer: 1.0, ..Shares::default() };
    assert!(of(buffer, default()).ends_with("a larger one (tcp_wmem) helps"));
    let asked = LoadSettings { send_buffer_bytes: Some(1 << 14), ..default() };
    assert!(of(buffer, asked).ends_with("--send-buffer asked for it"));
}

/// As slow start leaves them where it takes most of a load.
const UNEVEN: [Peak; 1] = [Peak { width_ms: 20, bytes: 10_000_000 }];

#[test]
fn a_policer_of_few_segments_is_no_line() {
    // It drops at one window, again and again, as a full buffer does; the round trips are a little long by what is sent at once.
    for room in [5.0, 10.0, 11.0] {
        let policer = Between { room, is_policed: true, ..Between::LINE };
        assert_eq!(policer.limit(1, 150, &[]), Some(PathLimit::Policer), "{room}");
    }
}

#[test]
fn a_policer_of_few_segments_on_a_slow_line_is_no_line() {
    // As seen at 2.5 Mbit/s before a line of 13.7 Mbit/s. The window's own round trips are as long as those of a buffer, but a full line
    // delivers no faster than the mean.
    let rtts_us = [7_600, 7_800, 8_000, 9_600];
    let row = |look: u32| {
        let (round, step) = (look / 5, look % 5);
        let (cwnd, rtt_us) = (3 + step.min(3), rtts_us[step.min(3) as usize]);
        let retransmits = 3 + 8 * round;
        let at_us = u64::from(look) * 20_000;
        Row { at_us, cwnd, rtt_us, retransmits, delivered: 4 * look, delivery_bytes_s: 1_600_000, ..Row::default() }
    };
    let first = [
        Row { cwnd: 10, rtt_us: 8_500, ..Row::default() },
        Row { at_us: 20_000, cwnd: 5, rtt_us: 8_566, retransmits: 11, delivered: 8, ..Row::default() },
    ];
    let rows = first.into_iter().chain((5..150).map(row)).collect();
    assert_eq!(limit(&[rows], 5_700.0, &[]), Some(PathLimit::Policer));
}

#[test]
fn a_policer_is_said_only_where_no_line_was_full() {
    // What passes no faster than the mean may be a line behind a buffer of few packets.
    let mut rows = Between { room: 5.0, is_policed: true, ..Between::LINE }.rows(1, 150);
    rows[0].iter_mut().for_each(|row| row.delivery_bytes_s = 0);
    assert_eq!(limit(&rows, 40_000.0, &[]), Some(PathLimit::ShortBufferOrPolicer));
    // Beside a policer messages do not wait; in a buffer they do, for at least a packet now and then.
    let beside = |own_us| limit_beside(&rows, 40_000.0, &[], Some(Added { own_us, other_us: 0.0 }));
    assert_eq!([20.0, 5_000.0].map(beside), [Some(PathLimit::Policer), Some(PathLimit::ShortBufferOrPolicer)]);
}

#[test]
fn one_overflow_and_no_loss_after_it_is_the_lines() {
    // Reno has halved its window, and takes long to fill the line again.
    let line = Between { base_us: 120_000.0, rate: 1.5e-3, room: 90.0, ..Between::LINE };
    assert_eq!(line.limit(1, 40, &[]), Some(PathLimit::Line));
}

#[test]
fn a_full_line_is_told_however_short_the_load_was() {
    let line = Between { rate: 5e-3, room: 200.0, ..Between::LINE };
    for rounds in [8, 10, 20, 60, 200] {
        for peaks in [&UNEVEN[..], &[]] {
            let said = line.limit(1, rounds, peaks);
            assert_eq!(said, Some(PathLimit::Line), "{rounds} round trips, {peaks:?}");
        }
    }
}

#[test]
fn loss_by_chance_stays_loss() {
    let lossy = Between { rate: 1e-2, room: 400.0, lost_every: 300, ..Between::LINE };
    for rounds in [12, 60, 200] {
        assert_eq!(lossy.limit(1, rounds, &[]), Some(PathLimit::Loss), "{rounds}");
        assert_eq!(lossy.limit(4, rounds, &[]), Some(PathLimit::Loss), "{rounds}, four streams");
    }
}

#[test]
fn streams_that_fill_a_line_together_are_judged_together() {
    // The queue is short beside the round trip, and each stream by itself grows while its round trips stay.
    for room in [24.0, 30.0, 40.0] {
        let line = Between { rate: 2e-3, room, ..Between::LINE };
        assert_eq!(line.limit(4, 300, &[]), Some(PathLimit::Line), "{room}");
    }
}

#[test]
fn through_a_relay_the_queue_of_a_full_line_is_seen_by_small_messages() {
    let delays = |p50_us: f64| Delays { count: 100, min_us: p50_us, p50_us, p99_us: p50_us, max_us: p50_us };
    let shares = Shares { send_buffer: 1.0, ..Shares::default() };
    // To the relay there is no queue.
    let load = Load { shares: Some(shares), rtt: delays(200.0), rtt_min_us: 190, ..nothing() };
    let said = |added_us: f64| {
        let latency = Latency {
            idle: delays(50_000.0),
            loaded: delays(50_000.0 + added_us),
            added_forth: delays(added_us),
            added_back: delays(0.0),
        };
        sentence(&load, Asked::default().get(), Some(&latency))
    };
    assert!(said(20_000.0).ends_with(FULL), "{}", said(20_000.0));
    assert!(said(300.0).ends_with("(tcp_wmem) helps"), "{}", said(300.0));
}
