use super::*;

/// A packet of 1500 bytes.
struct Packet;

impl Queued for Packet {
    fn bytes(&self) -> u32 {
        1_500
    }

    fn flow(&self) -> u64 {
        0
    }
}

const INTERVAL: Time = Time::ms(100);

#[test]
fn the_control_law_is_the_interval_over_a_square_root() {
    for count in 1..1_000_000 {
        let exact = 1e8 / (count as f64).sqrt();
        assert_eq!(control_law(0, INTERVAL, count), exact as u64, "{count}");
    }
    assert_eq!(control_law(u64::MAX, INTERVAL, 1), u64::MAX);
}

/// The first drop of a queue whose delay grows by `part` of the time, with these times: when it comes, and the delay then.
fn first_drop(times: CodelTimes, part: f64) -> (Time, Time) {
    let mut queue = Fifo::default();
    let mut codel = Codel::new(1500, times);
    for at_ms in 1..10_000_u64 {
        let now = at_ms * 1_000_000;
        let waited = (now as f64 * part) as u64;
        for _ in 0..3 {
            queue.push(now - waited, Packet);
        }
        codel.dequeue(now, &mut queue, 9_000);
        while queue.pop().is_some() {}
        if codel.signals().drops > 0 {
            return (Time(now), Time(waited));
        }
    }
    panic!("no drop");
}

#[test]
fn an_overshoot_is_not_waited_for() {
    let times = CodelTimes { target: Time::ms(20), interval: Time::secs(1), overshoot: None };
    // The delay grows by half of the time: 20 ms after 40, and an interval more.
    assert_eq!(first_drop(times, 0.5), (Time::ms(1_040), Time::ms(520)));
    let told = CodelTimes { overshoot: Some(Time::ms(300)), ..times };
    assert_eq!(first_drop(told, 0.5), (Time::ms(600), Time::ms(300)));
    // A queue that stays shorter has its interval.
    assert_eq!(first_drop(told, 0.05), first_drop(times, 0.05));
}
