//! Checks whether what a server reports of its end is possible, by what this end has seen. No I/O.

use std::time::Duration;

use crate::latency::Answer;
use ekiden_measure_proto::row::Row;
use ekiden_measure_proto::seen::{LoadSeen, Side};
use ekiden_measure_proto::settings::Asked;

/// Limit on the drift between the clocks of two ends: one part in this many, plus this time in microseconds.
const CLOCK_PART: u64 = 100;
const CLOCK_US: u64 = 1_000_000;
/// The same time for probes. The server's clock is read between question and answer, so that a short time covers the drift meanwhile.
const PROBE_CLOCK_US: u64 = 1_000;
/// Limits on how much too short a server may count its duration, because a busy host misses the beginning: to one part in this many, and
/// by this time in microseconds beside.
const LATE_PART: u64 = 10;
const LATE_US: u64 = 1_000_000;
/// The kernel counts the SYN, the FIN and the first bytes of a connection with its payload.
const BEYOND_PAYLOAD: u64 = 64;
/// No more bytes go before the payload, those for a SOCKS5 listener included.
const BEFORE_PAYLOAD: u64 = 512;
/// What the buffers of both ends hold at most: 2 GiB each, as the kernel counts them.
const BUFFERS: u64 = 1 << 32;
/// A congestion window begins with no more segments, and grows by one for each that is delivered (RFC 5681, section 3.1).
const FIRST_WINDOW_MOST: u64 = 1_024;
/// No segment is larger (RFC 9293, section 3.7.1).
const SEGMENT_MOST: u32 = 65_535;
/// No packet is larger: the most of IPv6, with its header (RFC 8200, section 3). The loopback interface has packets of 65,536 bytes.
const PACKET_MOST: u32 = 65_575;

/// Checks the figures of the server's streams, and its times in answers to probes. All of it lies within `elapsed` at this end.
///
/// # Errors
/// One line, about the first figure that cannot be.
pub fn check(
    asked: &Asked,
    near: &[LoadSeen],
    far: &[LoadSeen],
    answers: &[Answer],
    elapsed: Duration,
) -> Result<(), String> {
    let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    let most_us = elapsed_us.saturating_add(elapsed_us / CLOCK_PART).saturating_add(CLOCK_US);
    for far in far {
        let own = near.iter().find(|near| (near.way, near.stream) == (far.way, far.stream));
        let own = own.ok_or("there is no such stream at this end")?;
        let most = asked.bytes_of(far.stream).unwrap_or(u64::MAX);
        stream(own, far, most, most_us).map_err(|why| format!("stream {} {}: {why}", far.stream, far.way.word()))?;
    }
    clock(answers, most_us)
}

fn stream(near: &LoadSeen, far: &LoadSeen, bytes_most: u64, most_us: u64) -> Result<(), String> {
    let far_sends = Side::Far.sends(far.way);
    let (sent, received) = match far_sends {
        true => (far.end.bytes, near.end.bytes),
        false => (near.end.bytes, far.end.bytes),
    };
    at_most("bytes received", received, sent)?;
    at_most("bytes sent", sent, bytes_most.min(received.saturating_add(BUFFERS)))?;
    let end = &far.end;
    if !far_sends && let Some((from_us, until_us)) = span_us(near, received) {
        let took_us = until_us.saturating_sub(from_us);
        let most = end.duration_us.saturating_mul(LATE_PART).saturating_add(LATE_US);
        if took_us > most {
            return Err(format!("its duration: {} µs, and sending took {took_us} µs", end.duration_us));
        }
    }
    at_most("its duration in µs", end.duration_us, most_us)?;
    at_most("the time of its last byte in µs", far.end_us(), most_us)?;
    at_most("its largest segment", end.mss_bytes.into(), SEGMENT_MOST.into())?;
    if let Some(segments) = end.segments {
        at_most("its longest segment", segments.longest_bytes.into(), SEGMENT_MOST.into())?;
        at_most("bytes in long segments", segments.whole_bytes, sent.saturating_add(BEYOND_PAYLOAD))?;
    }
    at_most("its path's MTU", end.path_mtu_bytes.into(), PACKET_MOST.into())?;
    at_most("bytes in tenths of a second", sum(&end.tenths_bytes), end.bytes)?;
    for peak in &end.peaks {
        at_most("bytes in a short time", peak.bytes, end.bytes)?;
    }
    at_most("how late it looked in µs", end.late_us.iter().copied().max().unwrap_or_default().into(), most_us)?;
    // A processor for each thread, and each stream has one thread.
    at_most("its processor time in µs", end.cpu_us, most_us)?;
    let carried = sent.saturating_add(BEYOND_PAYLOAD);
    let mut before = Row::default();
    for row in &far.rows {
        at_most("the time of a sample in µs", row.at_us, most_us)?;
        at_most("bytes of its program", row.program_bytes, end.bytes)?;
        at_most("bytes acknowledged or received", row.kernel_bytes, carried)?;
        at_most("an earlier count of bytes", before.program_bytes, row.program_bytes)?;
        at_most("an earlier count of bytes of the kernel", before.kernel_bytes, row.kernel_bytes)?;
        at_most("an earlier count of segments sent again", before.retransmits.into(), row.retransmits.into())?;
        at_most("an earlier count of segments delivered", before.delivered.into(), row.delivered.into())?;
        at_most("an earlier time with data under way", before.busy_us, row.busy_us)?;
        at_most("an earlier time that a window limited", before.window_limited_us, row.window_limited_us)?;
        at_most("an earlier time that a buffer limited", before.buffer_limited_us, row.buffer_limited_us)?;
        for (what, us) in [
            ("a round trip in µs", Some(row.rtt_us).filter(|_| far_sends)),
            ("its least round trip in µs", Some(row.rtt_min_us).filter(|us| far_sends && *us < u32::MAX)),
        ] {
            at_most(what, us.unwrap_or_default().into(), most_us)?;
        }
        at_most("the time with data under way in µs", row.busy_us, most_us)?;
        at_most("the time that a window limited in µs", row.window_limited_us, most_us)?;
        at_most("the time that a buffer limited in µs", row.buffer_limited_us, most_us)?;
        if far_sends {
            // A segment has a byte at least. Of those that were sent, fewer were lost.
            at_most("bytes sent for the first time", row.sent_bytes, carried)?;
            at_most("segments sent again", row.retransmits.into(), carried)?;
            at_most("segments under way", row.unacked.into(), carried)?;
            at_most("segments lost", row.lost.into(), carried)?;
            at_most("the congestion window", row.cwnd.into(), carried.saturating_add(FIRST_WINDOW_MOST))?;
            // The kernel counts whole segments, in a microsecond at least, however little they hold.
            let at_once = u64::from(row.delivered).saturating_add(1).saturating_mul(SEGMENT_MOST.into());
            at_most("bytes delivered in a second", row.delivery_bytes_s, at_once.saturating_mul(1_000_000))?;
            // Each segment that was delivered had a byte, once or again.
            let segments = carried.saturating_add(row.retransmits.into());
            at_most("segments delivered", row.delivered.into(), segments)?;
        }
        before = *row;
    }
    Ok(())
}

/// The server's clock goes like this end's: what lies between two answers there lies between them here, and it is read between a
/// question and its answer.
fn clock(answers: &[Answer], most_us: u64) -> Result<(), String> {
    let Some(first) = answers.first() else { return Ok(()) };
    let mut last_ns = 0;
    for answer in answers {
        let there_us = answer.there_ns.abs_diff(first.there_ns) / 1_000;
        at_most("the time between two answers to probes in µs", there_us, most_us)?;
        if answer.there_ns < last_ns {
            return Err("its clock goes backwards".into());
        }
        last_ns = answer.there_ns;
        // What lies between the clocks, at least and at most.
        let between = |answer: &Answer| {
            let there_ns = i128::from(answer.there_ns);
            (there_ns - i128::from(answer.back_ns), there_ns - i128::from(answer.sent_ns))
        };
        let ((least, most), (first_least, first_most)) = (between(answer), between(first));
        let passed_us = answer.back_ns.abs_diff(first.back_ns) / 1_000;
        let apart_ns = i128::from(PROBE_CLOCK_US + passed_us / CLOCK_PART) * 1_000;
        if least > first_most + apart_ns || first_least > most + apart_ns {
            return Err("its clock does not go while probes are under way, or goes too fast".into());
        }
    }
    Ok(())
}

/// From when to when `received` bytes came at least, by what their sender saw: its first payload had been acknowledged, and the last byte of
/// these had not been sent. `None` if its samples do not cover that many bytes.
pub(crate) fn span_us(sender: &LoadSeen, received: u64) -> Option<(u64, u64)> {
    let rows = &sender.rows;
    // Kernels before Linux 4.19 do not say what was sent.
    rows.last().filter(|last| last.sent_bytes >= received)?;
    let from = rows.iter().find(|row| row.kernel_bytes > BEFORE_PAYLOAD)?;
    let before = rows.iter().rposition(|row| row.sent_bytes < received)?;
    // The time of a sample is that of its end.
    let until = rows.get(before.checked_sub(1)?)?;
    (until.at_us > from.at_us).then_some((from.at_us, until.at_us))
}

fn sum(numbers: &[u64]) -> u64 {
    numbers.iter().copied().fold(0, u64::saturating_add)
}

fn at_most(what: &str, value: u64, most: u64) -> Result<(), String> {
    match value <= most {
        true => Ok(()),
        false => Err(format!("{what}: {value}, and no more than {most} can be")),
    }
}

#[cfg(test)]
mod tests {
    use ekiden_record::{LoadSettings, Way};

    use super::*;
    use ekiden_measure_proto::message::{Peak, StreamEnd};

    const ELAPSED: Duration = Duration::from_secs(3);

    /// What is said of a figure, and how it is made wrong.
    type Lie = (&'static str, fn(&mut LoadSeen));

    fn seen(way: Way, bytes: u64) -> LoadSeen {
        let end = StreamEnd {
            bytes,
            duration_us: 2_000_000,
            tenths_bytes: vec![bytes / 2; 2],
            mss_bytes: 1448,
            path_mtu_bytes: 1500,
            ..StreamEnd::default()
        };
        let row = Row {
            at_us: 1_000_000,
            program_bytes: bytes,
            kernel_bytes: bytes / 2,
            rtt_us: 20_000,
            rtt_min_us: 10_000,
            delivered: 700,
            busy_us: 900_000,
            ..Row::default()
        };
        LoadSeen { way, stream: 0, end, rows: vec![row] }
    }

    fn refused(way: Way, lie: impl Fn(&mut LoadSeen)) -> Option<String> {
        let mut far = seen(way, 1_000_000);
        lie(&mut far);
        check(&asked(), &[seen(way, 1_000_000)], &[far], &[], ELAPSED).err()
    }

    fn asked() -> Asked {
        Asked::new(LoadSettings { bytes: Some(2_000_000), ..Asked::default().get().clone() }).unwrap()
    }

    #[test]
    fn what_can_be_is_taken() {
        for way in [Way::Forth, Way::Back] {
            assert_eq!(refused(way, |_| {}), None);
        }
        // The kernel counts whole segments, in a microsecond: 4.4 GB in a second over loopback with 1000 bytes.
        assert_eq!(refused(Way::Back, |far| far.rows[0].delivery_bytes_s = 4_416_000_000), None);
        // A receiver's kernel has measured no round trip.
        assert_eq!(refused(Way::Back, |far| far.rows[0].rtt_min_us = u32::MAX), None);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let lies: [Lie; 12] = [
            ("duration", |far| far.end.duration_us = 5_000_000),
            ("last byte", |far| far.end.first_us = 9_000_000),
            ("segment", |far| far.end.mss_bytes = 65_536),
            ("MTU", |far| far.end.path_mtu_bytes = 70_000),
            ("tenths", |far| far.end.tenths_bytes[0] = 2_000_000),
            ("short time", |far| far.end.peaks = vec![Peak { width_ms: 2, bytes: 1_000_001 }]),
            ("late", |far| far.end.late_us = vec![u32::MAX]),
            ("sample", |far| far.rows[0].at_us = 60_000_000),
            ("bytes of its program", |far| far.rows[0].program_bytes = 1_000_001),
            ("acknowledged", |far| far.rows[0].kernel_bytes = 1_000_065),
            ("under way", |far| far.rows[0].busy_us = u64::MAX),
            ("earlier count", |far| far.rows.push(Row { at_us: 1_100_000, ..Row::default() })),
        ];
        for (what, lie) in lies {
            for way in [Way::Forth, Way::Back] {
                let why = refused(way, lie).unwrap_or_else(|| panic!("{what} {way:?}"));
                assert!(why.contains(what), "{what} {way:?}: {why}");
            }
        }
        let of_a_sender: [Lie; 10] = [
            ("bytes sent", |far| far.end.bytes = 2_000_001),
            ("first time", |far| far.rows[0].sent_bytes = u64::MAX),
            ("sent again", |far| far.rows[0].retransmits = u32::MAX),
            ("segments under way", |far| far.rows[0].unacked = u32::MAX),
            ("lost", |far| far.rows[0].lost = u32::MAX),
            ("congestion window", |far| far.rows[0].cwnd = u32::MAX),
            ("in a second", |far| far.rows[0].delivery_bytes_s = u64::MAX),
            ("round trip", |far| far.rows[0].rtt_us = 4_100_000),
            ("least round trip", |far| far.rows[0].rtt_min_us = u32::MAX - 1),
            ("delivered", |far| far.rows[0].delivered = 1_000_065),
        ];
        for (what, lie) in of_a_sender {
            assert!(refused(Way::Back, lie).is_some_and(|why| why.contains(what)), "{what}");
        }
    }

    #[test]
    fn counts_do_not_fall() {
        let falls: [Lie; 5] = [
            ("sent again", |far| far.rows[0].retransmits = 1),
            ("delivered", |far| far.rows[1].delivered = 1),
            ("under way", |far| far.rows[1].busy_us = 1),
            ("window limited", |far| far.rows[0].window_limited_us = 1),
            ("buffer limited", |far| far.rows[0].buffer_limited_us = 1),
        ];
        for (what, fall) in falls {
            let why = refused(Way::Back, |far| {
                far.rows.push(far.rows[0]);
                fall(far);
            });
            assert!(why.as_ref().is_some_and(|why| why.contains(what) && why.contains("earlier")), "{what}: {why:?}");
        }
    }

    #[test]
    fn what_is_sent_for_long_has_not_come_at_once() {
        let mut near = seen(Way::Forth, 1_000_000);
        let row = |at_us, bytes| Row { at_us, kernel_bytes: bytes, sent_bytes: bytes, ..Row::default() };
        near.rows = vec![
            row(0, 0),
            row(20_000, 9_000),
            row(2_000_000, 900_000),
            row(2_020_000, 950_000),
            row(2_040_000, 1_000_000),
        ];
        assert_eq!(span_us(&near, 1_000_000), Some((20_000, 2_000_000)));
        let check = |duration_us| {
            let mut far = seen(Way::Forth, 1_000_000);
            far.end.duration_us = duration_us;
            check(&asked(), &[near.clone()], &[far], &[], ELAPSED)
        };
        assert!(check(1).unwrap_err().contains("its duration"));
        assert_eq!(check(1_900_000), Ok(()));
        // A kernel that does not say what was sent.
        near.rows.iter_mut().for_each(|row| row.sent_bytes = 0);
        assert_eq!(span_us(&near, 1_000_000), None);
    }

    #[test]
    fn no_more_is_received_than_was_sent() {
        let more = seen(Way::Forth, 1_000_001);
        assert!(
            check(&asked(), &[seen(Way::Forth, 1_000_000)], &[more], &[], ELAPSED)
                .unwrap_err()
                .contains("bytes received")
        );
        let less = seen(Way::Back, 999_999);
        assert!(
            check(&asked(), &[seen(Way::Back, 1_000_000)], &[less], &[], ELAPSED)
                .unwrap_err()
                .contains("bytes received")
        );
    }

    #[test]
    fn a_clock_that_runs_away_is_refused() {
        // A second between them at this end, and round trips of 60 µs.
        let check = |there: [u64; 2]| {
            let answer = |(sent_ns, there_ns)| Answer { sent_ns, there_ns, back_ns: sent_ns + 60_000 };
            let answers: Vec<_> = [5, 1_000_000_005].into_iter().zip(there).map(answer).collect();
            check(&asked(), &[], &[], &answers, ELAPSED)
        };
        assert_eq!(check([7_000, 1_000_007_000]), Ok(()));
        // They run apart a little.
        assert_eq!(check([7_000, 1_005_007_000]), Ok(()));
        assert!(check([7_000, 60_000_000_000]).is_err());
        assert!(check([7_000, 6_000]).is_err());
        assert!(check([7_000, 7_000]).is_err(), "it stands still");
        assert!(check([7_000, 1_500_007_000]).is_err(), "it is fast");
    }
}
