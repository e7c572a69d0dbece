//! Whether what a server says of its end can be, by what this end has seen. No I/O.

use std::time::Duration;

use crate::load::{Seen, Side};
use crate::message::Row;
use crate::probe::Answer;

/// The clocks of two ends run apart by less: one part in so many, and this.
const CLOCK_PART: u64 = 100;
const CLOCK_US: u64 = 1_000_000;
/// The kernel counts the SYN, the FIN and the first bytes of a connection with its payload.
const BEYOND_PAYLOAD: u64 = 64;
/// No segment is larger (RFC 9293, section 3.7.1).
const SEGMENT_MOST: u32 = 65_535;
/// No packet is larger: the most of IPv6, with its header (RFC 8200, section 3). The loopback interface has packets of 65,536 bytes.
const PACKET_MOST: u32 = 65_575;

/// Checks the figures of the server's streams, and its times in answers to probes. All of it lies within `elapsed` at this end.
///
/// # Errors
/// One line, about the first figure that cannot be.
pub fn check(near: &[Seen], far: &[Seen], answers: &[Answer], elapsed: Duration) -> Result<(), String> {
    let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    let most_us = elapsed_us.saturating_add(elapsed_us / CLOCK_PART).saturating_add(CLOCK_US);
    for far in far {
        let own = near.iter().find(|near| (near.way, near.stream) == (far.way, far.stream));
        let own = own.ok_or("there is no such stream at this end")?;
        stream(own, far, most_us).map_err(|why| format!("stream {} {}: {why}", far.stream, far.way.word()))?;
    }
    clock(answers, most_us)
}

fn stream(near: &Seen, far: &Seen, most_us: u64) -> Result<(), String> {
    let far_sends = Side::Far.sends(far.way);
    let (sent, received) = match far_sends {
        true => (far.end.bytes, near.end.bytes),
        false => (near.end.bytes, far.end.bytes),
    };
    at_most("bytes received", received, sent)?;
    let end = &far.end;
    at_most("its duration in µs", end.duration_us, most_us)?;
    at_most("the time of its last byte in µs", far.end_us(), most_us)?;
    at_most("its largest segment", end.mss_bytes.into(), SEGMENT_MOST.into())?;
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
            // Each segment that was delivered had a byte, once or again.
            let segments = carried.saturating_add(row.retransmits.into());
            at_most("segments delivered", row.delivered.into(), segments)?;
        }
        before = *row;
    }
    Ok(())
}

/// The server's clock goes like this end's: what lies between two answers there lies between them here.
fn clock(answers: &[Answer], most_us: u64) -> Result<(), String> {
    let Some(first) = answers.first() else { return Ok(()) };
    for answer in answers {
        let there_us = answer.there_ns.abs_diff(first.there_ns) / 1_000;
        at_most("the time between two answers to probes in µs", there_us, most_us)?;
        if answer.there_ns < first.there_ns {
            return Err("its clock goes backwards".into());
        }
    }
    Ok(())
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
    use ekiden_record::Way;

    use super::*;
    use crate::message::{Peak, StreamEnd};

    const ELAPSED: Duration = Duration::from_secs(3);

    /// What is said of a figure, and how it is made wrong.
    type Lie = (&'static str, fn(&mut Seen));

    fn seen(way: Way, bytes: u64) -> Seen {
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
        Seen { way, stream: 0, end, rows: vec![row] }
    }

    fn refused(way: Way, lie: impl Fn(&mut Seen)) -> Option<String> {
        let mut far = seen(way, 1_000_000);
        lie(&mut far);
        check(&[seen(way, 1_000_000)], &[far], &[], ELAPSED).err()
    }

    #[test]
    fn what_can_be_is_taken() {
        for way in [Way::Forth, Way::Back] {
            assert_eq!(refused(way, |_| {}), None);
        }
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
        let of_a_sender: [Lie; 3] = [
            ("round trip", |far| far.rows[0].rtt_us = 4_100_000),
            ("least round trip", |far| far.rows[0].rtt_min_us = u32::MAX - 1),
            ("delivered", |far| far.rows[0].delivered = 1_000_065),
        ];
        for (what, lie) in of_a_sender {
            assert!(refused(Way::Back, lie).is_some_and(|why| why.contains(what)), "{what}");
        }
    }

    #[test]
    fn no_more_is_received_than_was_sent() {
        let more = seen(Way::Forth, 1_000_001);
        assert!(check(&[seen(Way::Forth, 1_000_000)], &[more], &[], ELAPSED).unwrap_err().contains("bytes received"));
        let less = seen(Way::Back, 999_999);
        assert!(check(&[seen(Way::Back, 1_000_000)], &[less], &[], ELAPSED).unwrap_err().contains("bytes received"));
    }

    #[test]
    fn a_clock_that_runs_away_is_refused() {
        let answer = |there_ns| Answer { sent_ns: 5, there_ns, back_ns: 10 };
        let check = |there: &[u64]| {
            let answers: Vec<_> = there.iter().map(|there| answer(*there)).collect();
            check(&[], &[], &answers, ELAPSED)
        };
        assert_eq!(check(&[7_000, 1_000_007_000]), Ok(()));
        assert!(check(&[7_000, 60_000_000_000]).is_err());
        assert!(check(&[7_000, 6_000]).is_err());
    }
}
