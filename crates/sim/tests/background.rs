//! Background traffic: how much of it there is, when, and what it leaves to others.

use ekiden_record::{Kept, Record};
use ekiden_scenario::Scenario;

fn run(text: &str) -> Record {
    let scenario = Scenario::parse(text, "test.toml").unwrap();
    ekiden_sim::simulate(&scenario, &Default::default(), &mut Kept::default(), &mut |_| {}).unwrap()
}

/// A flow of `seconds`, and beside it a line of its own for background with these keys. Returns its packets.
fn packets(seconds: u32, seed: u32, background: &str) -> u64 {
    let record = run(&format!(
        "name = 'beside'
        seed = {seed}
        [tcp]
        send_buffer = '16KiB'
        [node.a]
        [node.b]
        [node.c]
        [node.d]
        [link.flow]
        ends = ['a', 'b']
        rate = '1Mbit/s'
        [link.line]
        ends = ['c', 'd']
        rate = '1Gbit/s'
        [flow.bulk]
        from = 'a'
        to = 'b'
        duration = '{seconds}s'
        [background.noise]
        from = 'c'
        to = 'd'
        packet = '1000B'
        {background}"
    ));
    let line = &record.links[2];
    assert_eq!((line.link.as_str(), line.from.as_str(), line.queue_drops), ("line", "c", 0));
    assert_eq!(line.bytes, line.packets * 1000);
    line.packets
}

#[test]
fn it_sends_exactly_its_rate_while_it_lasts() {
    assert_eq!(packets(5, 1, "rate = '8Mbit/s'\nstart = '1s'\nduration = '2s'"), 2000);
    // 2 s × 7 Mbit/s are 1750 packets; the first leaves at once.
    assert_eq!(packets(5, 1, "rate = '7Mbit/s'\nstart = '1s'\nduration = '2s'"), 1750);
    assert_eq!(packets(5, 1, "rate = '7001kbit/s'\nduration = '2s'"), 1751);
}

#[test]
fn it_lasts_until_the_run_ends() {
    let packets = packets(5, 1, "rate = '8Mbit/s'");
    // The flow's last 16 KiB arrive in less than half a second.
    assert!((5000..5500).contains(&packets), "{packets}");
}

#[test]
fn on_and_off_have_their_means_over_many_periods() {
    for (seed, on, off, share) in [(1, 10, 30, 0.25), (2, 20, 20, 0.5), (3, 3, 1, 0.75)] {
        let background = format!("rate = '16Mbit/s'\nduration = '60s'\non = '{on}ms'\noff = '{off}ms'");
        let part = packets(60, seed, &background) as f64 / (2000.0 * 60.0);
        // At least 1500 periods: the share's standard deviation is below 3 % of it.
        assert!((part / share - 1.0).abs() < 0.1, "on {on} ms, off {off} ms: {part} of the time");
    }
}

#[test]
fn it_takes_its_share_from_a_flow() {
    let goodput = |rate: &str| {
        let record = run(&format!(
            "name = 'share'
            [node.a]
            [node.b]
            [link.line]
            ends = ['a', 'b']
            rate = '10Mbit/s'
            delay = '10ms'
            queue = '100 packets'
            [flow.bulk]
            from = 'a'
            to = 'b'
            duration = '30s'
            [background.noise]
            from = 'a'
            to = 'b'
            rate = '{rate}'"
        ));
        record.flows[0].goodput_bit_s as f64 / 1e6
    };
    let (alone, beside) = (goodput("1kbit/s"), goodput("4Mbit/s"));
    assert!((9.0..10.0).contains(&alone), "{alone} Mbit/s");
    assert!((5.0..6.0).contains(&beside), "{beside} Mbit/s");
}
