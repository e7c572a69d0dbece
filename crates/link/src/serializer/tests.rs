use ekiden_units::{BitRate, Fraction, Time};
use proptest::prelude::*;

use super::{Due, Serializer};
use crate::{Change, Direction, Outage, plain};

fn at(ms: u64, rate: Option<u64>, delay_ms: Option<u64>) -> Change {
    Change { at: Time::ms(ms), rate: rate.map(BitRate), delay: delay_ms.map(Time::ms) }
}

/// When packets come out that are all there at the beginning.
fn all(direction: &Direction, begin_ns: u64, packets: &[u32]) -> Vec<Due> {
    let mut serializer = Serializer::new(direction, 1);
    serializer.begin(begin_ns);
    packets.iter().map(|bytes| serializer.send(*bytes)).collect()
}

fn due_ms(dues: &[Due]) -> Vec<f64> {
    dues.iter().map(|due| due.due_ns as f64 / 1e6).collect()
}

#[test]
fn a_packet_that_a_change_of_the_rate_meets_is_sent_partly_at_each() {
    // 1000 bytes take 8 ms at 1 Mbit/s: half is sent when the rate becomes 4 Mbit/s, then 0.5.
    let changes = vec![at(4, Some(4_000_000), None), at(6, Some(500_000), None)];
    let direction = Direction { changes, ..plain::direction() };
    assert_eq!(due_ms(&all(&direction, 0, &[1000, 500])), [5.0, 6.0]);
    assert_eq!(due_ms(&all(&direction, 0, &[1000, 1000])), [5.0, 14.0]);
    // Times count from the beginning; before, there are none.
    assert_eq!(due_ms(&all(&direction, 100_000_000, &[1000, 500])), [8.0, 12.0]);
    assert_eq!(due_ms(&[Serializer::new(&direction, 1).send(1000)]), [8.0]);
}

#[test]
fn a_delay_counts_from_its_change_on_and_no_packet_overtakes() {
    let changes = vec![at(9, None, Some(20)), at(17, None, Some(5))];
    let direction = Direction { delay: Time::ms(10), changes, ..plain::direction() };
    // Sent at 8, 16, 24 and 32 ms.
    assert_eq!(due_ms(&all(&direction, 0, &[1000; 4])), [18.0, 36.0, 36.0, 37.0]);
    assert_eq!(Serializer::new(&direction, 1).end_ns(36_000_000), 31_000_000, "with the least delay");
}

#[test]
fn what_is_sent_in_an_outage_is_lost() {
    let outage = |at, lasts| Outage { at: Time::ms(at), lasts: Time::ms(lasts) };
    let direction = Direction { outages: vec![outage(9, 8), outage(24, 1)], ..plain::direction() };
    let lost: Vec<_> = all(&direction, 0, &[1000; 4]).iter().map(|due| due.is_out).collect();
    // Sent at 8, 16, 24 and 32 ms.
    assert_eq!(lost, [false, true, true, false]);
    assert!(!Serializer::new(&direction, 1).send(2000).is_out, "before the beginning there is none");
}

#[test]
fn a_late_packet_comes_out_late_and_others_in_their_order() {
    let direction = Direction { reorder: Fraction(100_000_000), reorder_by: Some(Time::ms(20)), ..plain::direction() };
    let dues = all(&direction, 0, &[1000; 10_000]);
    assert!(dues.iter().zip(1..).all(|(due, n)| due.in_order_ns == n * 8_000_000));
    let late = dues.iter().filter(|due| due.due_ns != due.in_order_ns);
    assert!(late.clone().all(|due| due.due_ns == due.in_order_ns + 20_000_000));
    assert!((850..1150).contains(&late.count()));
}

proptest! {
    /// What is sent up to any packet's end is what the rates allow, to the rounding of the end to a nanosecond.
    #[test]
    fn a_busy_line_sends_what_its_rates_add_up_to(
        first in 10_000u64..1_000_000_000, begin_ns in 0u64..5_000_000,
        steps in prop::collection::vec((1u64..3_000_000, 10_000u64..1_000_000_000), 0..20),
        packets in prop::collection::vec(20u32..1500, 1..100),
    ) {
        let mut time = 0;
        let changes: Vec<Change> = steps
            .iter()
            .map(|(gap, rate)| {
                time += gap;
                Change { at: Time(time), rate: Some(BitRate(*rate)), delay: None }
            })
            .collect();
        let direction = Direction { rate: BitRate(first), changes: changes.clone(), ..plain::direction() };
        let mut sent = 0u128;
        for (due, bytes) in all(&direction, begin_ns, &packets).iter().zip(&packets) {
            sent += u128::from(*bytes) * 8_000_000_000;
            let (mut possible, mut from, mut rate) = (0u128, 0u64, first);
            for change in &changes {
                let until = begin_ns + change.at.0;
                if until > due.due_ns {
                    break;
                }
                possible += u128::from(until - from) * u128::from(rate);
                (from, rate) = (until, change.rate.unwrap().0);
            }
            possible += u128::from(due.due_ns - from) * u128::from(rate);
            prop_assert!(possible <= sent && sent < possible + u128::from(rate), "{possible} {sent} {rate}");
        }
    }
}
