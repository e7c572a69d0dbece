//! What links do to packets: directions that differ, schedules, outages, and packets out of order.

use ekiden_record::{Kept, Outcome, Record};
use ekiden_scenario::Scenario;

fn run(link: &str, amount: &str) -> Record {
    let text = format!(
        "name = 'link'
        [tcp]
        receive_buffer = '16MiB'
        send_buffer = '16MiB'
        [node.a]
        [node.b]
        [link.line]
        ends = ['a', 'b']
        {link}
        [flow.there]
        from = 'a'
        to = 'b'
        {amount}
        [background.steady]
        from = 'b'
        to = 'a'
        rate = '800kbit/s'
        packet = '1000B'"
    );
    let scenario = Scenario::parse(&text, "test.toml").unwrap();
    ekiden_sim::simulate(&scenario, &Default::default(), &mut Kept::default(), &mut |_| {}).unwrap()
}

#[test]
fn directions_have_their_own_rates() {
    for (forth, back, least, most) in [(20, 5, 17.0, 19.5), (5, 20, 4.4, 4.9)] {
        let link = format!("rate = '1Gbit/s'\nforth.rate = '{forth}Mbit/s'\nback.rate = '{back}Mbit/s'\ndelay = '5ms'");
        let goodput = run(&link, "duration = '5s'").flows[0].goodput_bit_s as f64 / 1e6;
        assert!((least..most).contains(&goodput), "{goodput}");
    }
}

#[test]
fn a_flow_gets_what_the_rates_add_up_to() {
    let changes = "changes = [{ at = '2s', rate = '5Mbit/s' }, { at = '6s', rate = '40Mbit/s' }]";
    let record = run(&format!("rate = '20Mbit/s'\ndelay = '5ms'\n{changes}"), "duration = '8s'");
    // 20 x 2 + 5 x 4 + 40 x 2, less headers and what a slow start takes.
    let megabits = record.flows[0].received_bytes as f64 * 8.0 / 1e6;
    assert!((115.0..136.0).contains(&megabits), "{megabits}");
    // A steady source of 100 packets a second fills neither direction.
    assert_eq!(record.links[1].queue_drops, 0);
}

/// 100 packets a second for 8 s and what the flow takes to end; in 2.5 s of outages none of them arrives.
#[test]
fn an_outage_loses_what_is_sent_meanwhile() {
    let outages = "outages = [{ at = '1s', lasts = '2s' }, { at = '5s', lasts = '500ms' }]";
    let record = run(&format!("rate = '20Mbit/s'\ndelay = '5ms'\nback.{outages}"), "duration = '8s'");
    let (forth, back) = (&record.links[0], &record.links[1]);
    assert_eq!(forth.outage_losses, 0);
    assert!(back.outage_losses >= 250 && back.random_losses == 0, "{back:?}");
    assert_eq!(record.flows[0].outcome, Outcome::Complete);
}

#[test]
fn a_flow_outlives_an_outage_of_both_directions() {
    let record = run("rate = '20Mbit/s'\ndelay = '5ms'\noutages = [{ at = '500ms', lasts = '3s' }]", "bytes = '5MB'");
    assert!(record.flows[0].outcome == Outcome::Complete && record.flows[0].duration_us > 3_500_000);
    assert!(record.links[0].outage_losses > 1, "{:?}", record.links[0]);
}

/// Every discipline: with some a packet's fate is known on arrival, with some when it leaves the queue.
#[test]
fn packets_out_of_order_lose_nothing() {
    for discipline in ["drop_tail", "red", "codel", "fq_codel"] {
        let link = |part| {
            format!(
                "rate = '20Mbit/s'\ndelay = '5ms'\nqueue = '20MB'\ndiscipline = '{discipline}'\nreorder = '{part}'\nreorder_by = '3ms'"
            )
        };
        let (without, with) = (run(&link("0"), "bytes = '5MB'"), run(&link("5%"), "bytes = '5MB'"));
        for record in [&without, &with] {
            assert_eq!(record.flows[0].outcome, Outcome::Complete, "{discipline}");
            assert!(record.links.iter().all(|line| line.random_losses == 0), "{discipline}");
        }
        // A sender takes some of what comes late for lost.
        let is_drop_tail = discipline == "drop_tail";
        assert!(!is_drop_tail || (with.flows[0].retransmits > 0 && without.flows[0].retransmits == 0), "{with:?}");
    }
}

/// Each packet arrives once, whether others overtake it or not.
#[test]
fn all_of_a_steady_source_arrives_out_of_order_too() {
    for discipline in ["drop_tail", "codel"] {
        let link = format!(
            "rate = '20Mbit/s'\ndelay = '5ms'\ndiscipline = '{discipline}'\nback.reorder = '30%'\nback.reorder_by = '50ms'"
        );
        let record = run(&link, "duration = '3s'");
        let back = &record.links[1];
        assert!(back.packets > 300 && back.queue_drops + back.random_losses + back.outage_losses == 0, "{back:?}");
        assert_eq!(record.flows[0].outcome, Outcome::Complete);
    }
}
