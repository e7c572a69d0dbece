use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn any_counts_are_judged(numbers: [u64; 8], remembers: u64, later: u64, seconds in 0.0..1e9) {
        let [sent, got, to_host, from_host, sent_then, got_then, to_host_then, from_host_then] = numbers;
        let mut delivery = Delivery::new(Time(0), Time(later));
        delivery.ask(counts(sent, got), Time(1));
        delivery.answered(receipt(to_host, from_host), Time(remembers), Time(2));
        delivery.ask(counts(sent_then, got_then), Time(later));
        delivery.answered(receipt(to_host_then, from_host_then), Time(remembers), Time(later));
        let said = receipt(to_host, from_host);
        for ended in [Ended::Done, Ended::Leg, Ended::Entry] {
            delivery.ended(&counts(sent, got), ended, said, Time(remembers), Time(later));
        }
        let attempt = Attempt { begun: Time(1), ended: Time(later), rtt: Time(remembers), was_refused: false };
        attempt.answered(said.map(|said| Receipt { answered_s: Some(seconds), ..said }), Time(remembers), Time(later));
    }

    /// Nodes that pass everything on, however fast, and ends that stand still when they like.
    #[test]
    fn no_honest_node_is_ever_set_aside(
        steps in prop::collection::vec((0..5_000_u64, 0..5_000_u64, 0..1_000_u64, 0..1_000_u64), 1..12),
        ends in 0..4_u8,
    ) {
        // A look sees at the exit what the entry had sent by the look before, and at the entry what the exit had then.
        let mut delivery = Delivery::new(Time(0), Time::ms(100));
        let (mut sent, mut got, mut to_host, mut from_host) = (0, 0, 0, 0);
        for (number, (up, down, more_up, more_down)) in steps.into_iter().enumerate() {
            let now = Time((1 + 3 * number as u64) * SECOND);
            (to_host, got) = (sent, from_host);
            let counted = counts(sent + up, got);
            (sent, from_host) = (sent + up, from_host + down);
            delivery.ask(counted, now);
            let verdict = delivery.answered(receipt((to_host + more_up).min(sent), from_host), LONG, now);
            prop_assert!(matches!(verdict, None | DELIVERED), "{verdict:?}");
            from_host += more_down;
        }
        let (ended, end) = match ends {
            0 => (Ended::Done, End::Done),
            1 => (Ended::Leg, End::Exit),
            2 => (Ended::Entry, End::Leg),
            _ => (Ended::Entry, End::Exit),
        };
        let counted = match ended {
            Ended::Done => Counts { has_got_end: true, ..counts(sent, from_host) },
            _ => counts(sent, got),
        };
        let to_host = if end == End::Done { sent } else { to_host };
        let said = Receipt { end: Some(end), ..receipt(to_host, from_host).unwrap() };
        let verdict = delivery.ended(&counted, ended, Some(said), LONG, Time::secs(60));
        prop_assert!(matches!(verdict, None | DELIVERED | ARRIVED), "{verdict:?}");
    }
}

const SECOND: u64 = 1_000_000_000;
const LONG: Time = Time::secs(1_000);

fn counts(sent: u64, got: u64) -> Counts {
    Counts { sent: Some(sent), got, ..Counts::default() }
}

fn receipt(to_host: u64, from_host: u64) -> Option<Receipt> {
    Some(Receipt { to_host, from_host, is_full: false, answered_s: Some(0.1), still_s: 0.0, end: None })
}

fn with_end(to_host: u64, from_host: u64, end: End) -> Option<Receipt> {
    receipt(to_host, from_host).map(|receipt| Receipt { end: Some(end), ..receipt })
}

/// What the looks at a stream say, each with what its exit has, 3 s after another.
fn looks(looks: &[(Counts, Option<Receipt>)]) -> Vec<Option<Verdict>> {
    let mut delivery = Delivery::new(Time(0), Time::ms(100));
    let look = |(number, (counts, receipt)): (usize, &(Counts, Option<Receipt>))| {
        let now = Time((1 + 3 * number as u64) * SECOND);
        delivery.ask(*counts, now);
        delivery.answered(*receipt, LONG, now)
    };
    looks.iter().enumerate().map(look).collect()
}

const ARRIVED: Option<Verdict> = Some(Verdict::Arrived);
const DELIVERED: Option<Verdict> = Some(Verdict::Delivered);
const HELD: Option<Verdict> = Some(Verdict::HeldBack);
const BROKEN: Option<Verdict> = Some(Verdict::BrokenOff);

#[test]
fn a_stream_that_its_exit_does_not_know_was_invented() {
    assert_eq!(looks(&[(counts(64, 0), None)]), [HELD]);
    // An exit that has begun since, or had too many, may have forgotten it.
    let mut delivery = Delivery::new(Time(0), Time(0));
    delivery.ask(counts(64, 0), Time::secs(30));
    assert_eq!(delivery.answered(None, Time::secs(29), Time::secs(30)), None);
}

#[test]
fn silence_of_the_destination_or_of_the_client_is_nobodys_fault() {
    // A long poll; a server that speaks first and says nothing; a client that says nothing.
    assert_eq!(looks(&[(counts(300, 0), receipt(300, 0)); 3])[0], None);
    assert_eq!(looks(&[(counts(0, 0), receipt(0, 0)); 3]), [None; 3]);
    // What has arrived at the destination has been delivered.
    assert_eq!(looks(&[(counts(300, 0), receipt(300, 0)); 3])[1..], [DELIVERED, DELIVERED]);
    assert_eq!(looks(&[(counts(20, 90), receipt(20, 90)); 2]), [DELIVERED, DELIVERED]);
}

#[test]
fn what_has_not_arrived_in_time_was_held_back_in_either_direction() {
    // Nothing comes at the exit; nothing of what the exit has comes back; a byte now and then.
    assert_eq!(looks(&[(counts(64, 0), receipt(0, 0)); 2]), [None, HELD]);
    assert_eq!(looks(&[(counts(64, 0), receipt(64, 500)); 2]), [None, HELD]);
    assert_eq!(looks(&[(counts(64, 0), receipt(64, 500)), (counts(64, 3), receipt(64, 500))]), [None, HELD]);
    assert_eq!(looks(&[(counts(9_000, 5), receipt(2, 5)), (counts(9_000, 5), receipt(5, 5))])[1], HELD);
    // What was under way at the first look has come by the second.
    let early = (counts(64, 0), receipt(0, 0));
    assert_eq!(looks(&[early, (counts(128, 0), receipt(64, 0))]), [None, DELIVERED]);
}

#[test]
fn the_last_byte_counts_as_much_as_all() {
    // In either direction, also if it is an end.
    assert_eq!(looks(&[(counts(64, 0), receipt(63, 0)); 2]), [None, HELD]);
    assert_eq!(looks(&[(counts(64, 499), receipt(64, 500)); 2]), [None, HELD]);
    assert_eq!(looks(&[(counts(1, 0), receipt(0, 0)); 2]), [None, HELD]);
}

#[test]
fn what_the_destination_has_not_sent_was_invented() {
    assert_eq!(looks(&[(counts(64, 1), receipt(64, 0)); 2]), [None, HELD]);
    // An exit passes on what it no longer counts of a stream that its destination has broken off.
    assert_eq!(looks(&[(counts(64, 9), with_end(64, 5, End::Exit))]), [DELIVERED]);
}

#[test]
fn a_slow_line_and_a_receiver_that_reads_late_are_no_fault_of_nodes() {
    let slow = [(counts(900_000, 0), receipt(10_000, 0)), (counts(900_000, 0), receipt(20_000, 0))];
    assert_eq!(looks(&slow), [None, None]);
    let full = receipt(10_000, 0).map(|receipt| Receipt { is_full: true, ..receipt });
    assert_eq!(looks(&[(counts(900_000, 0), full); 3]), [None; 3]);
    let client = Counts { is_full: true, ..counts(10, 4_000) };
    assert_eq!(looks(&[(client, receipt(10, 900_000)); 2]), [None, DELIVERED]);
    // The destination has sent all, and said its end, and most of it is on the line.
    let tail = |got: u64| (counts(10, got), with_end(10, 4_000_000, End::Done));
    assert_eq!(looks(&[tail(10_000), tail(60_000), tail(200_000)]), [None, DELIVERED, DELIVERED]);
}

#[test]
fn an_end_that_does_not_come_is_held_back() {
    for end in [End::Done, End::Exit, End::Leg] {
        assert_eq!(looks(&[(counts(64, 63), with_end(64, 64, end)); 2]), [None, HELD], "{end:?}");
    }
    // A client that gets another message than the stream has, slowly.
    let other = Counts { sent: None, ..counts(0, u64::MAX / 2) };
    assert_eq!(looks(&[(other, with_end(64, 64, End::Done)); 2]), [DELIVERED, DELIVERED]);
    let reset = (counts(64, 64), with_end(64, 64, End::Exit));
    assert_eq!(looks(&[reset; 2]), [DELIVERED, HELD]);
}

fn ended(counts: Counts, ended: Ended, receipt: Option<Receipt>) -> Option<Verdict> {
    Delivery::new(Time(0), Time(0)).ended(&counts, ended, receipt, Time::secs(30), Time::secs(2))
}

#[test]
fn an_end_that_comes_before_all_has_come_is_held_back() {
    let got = |bytes: u64| Counts { has_got_end: true, ..counts(65, bytes) };
    assert_eq!(ended(got(501), Ended::Done, with_end(65, 501, End::Done)), ARRIVED);
    // One byte, and an end, of 500 and an end; of 500 while there are more to come; of all that came so far.
    assert_eq!(ended(got(2), Ended::Done, with_end(65, 501, End::Done)), HELD);
    assert_eq!(ended(got(2), Ended::Done, receipt(65, 500)), HELD);
    assert_eq!(ended(got(501), Ended::Done, receipt(65, 500)), HELD);
    assert_eq!(ended(got(2), Ended::Entry, receipt(65, 500)), HELD);
    // The same towards the destination; but an end that is on its way is no fault.
    assert_eq!(ended(got(501), Ended::Done, with_end(2, 501, End::Done)), HELD);
    assert_eq!(ended(got(501), Ended::Done, receipt(64, 501)), ARRIVED);
    assert_eq!(ended(got(501), Ended::Done, receipt(63, 501)), None);
}

#[test]
fn a_stream_that_is_broken_off_in_between_is_never_one_that_was_delivered() {
    let broken = |counts: Counts, receipt| ended(counts, Ended::Leg, receipt);
    assert_eq!(broken(counts(64, 0), None), HELD);
    for end in [None, Some(End::Leg)] {
        let receipt = receipt(64, 64).map(|receipt| Receipt { end, ..receipt });
        assert_eq!(broken(counts(64, 64), receipt), BROKEN);
        // A limit of a node in between may have passed.
        assert_eq!(broken(Counts { still: STOOD_STILL, ..counts(64, 64) }, receipt), None);
        let later = Delivery::new(Time(0), Time(0));
        let verdict = later.ended(&counts(64, 64), Ended::Leg, receipt, Time::secs(90), Time::secs(61));
        assert_eq!(verdict, BROKEN, "after a minute");
    }
    // The destination has reset it; the end was lost in between; the client has left.
    assert_eq!(broken(counts(64, 0), with_end(64, 64, End::Exit)), None);
    assert_eq!(broken(counts(64, 60), with_end(65, 65, End::Done)), BROKEN);
    assert_eq!(broken(counts(65, 64), with_end(65, 65, End::Done)), None, "the exit did not get to say the end");
    assert_eq!(ended(counts(64, 0), Ended::Entry, with_end(64, 64, End::Leg)), None);
}

#[test]
fn a_client_that_gives_up_waiting_has_shown_what_was_held_back() {
    let given_up = |still: u64, still_s: f64, counts: Counts, receipt: Option<Receipt>| {
        let counts = Counts { still: Time::ms(still), ..counts };
        ended(counts, Ended::Entry, receipt.map(|receipt| Receipt { still_s, ..receipt }))
    };
    assert_eq!(given_up(2_400, 2.4, counts(64, 63), with_end(64, 64, End::Leg)), HELD);
    assert_eq!(given_up(2_400, 2.4, counts(64, 0), receipt(63, 0)), HELD);
    // It may have been under way; or the client did not read, or the destination.
    assert_eq!(given_up(2_400, 0.1, counts(64, 63), with_end(64, 64, End::Leg)), None);
    assert_eq!(given_up(100, 2.4, counts(64, 63), with_end(64, 64, End::Leg)), None);
    let full = Counts { is_full: true, ..counts(64, 63) };
    assert_eq!(given_up(2_400, 2.4, full, with_end(64, 64, End::Leg)), None);
    assert_eq!(given_up(2_400, 2.4, counts(64, 0), with_end(63, 0, End::Exit)), None);
}

#[test]
fn a_path_that_did_not_open_a_stream_is_judged_by_what_its_exit_had() {
    let attempt = |was_refused| Attempt { begun: Time(0), ended: Time::secs(3), rtt: Time::ms(100), was_refused };
    let said = |was_refused, receipt| attempt(was_refused).answered(receipt, Time::secs(90), Time::secs(4));
    let with = |answered_s, end| Some(Receipt { answered_s, end, ..receipt(0, 0).unwrap() });
    // The exit never heard of it.
    assert_eq!((said(false, None), said(true, None)), (BROKEN, HELD));
    assert_eq!(attempt(true).answered(None, Time::secs(3), Time::secs(4)), None);
    // The destination was slow, or has refused; that took as long on this path as at the exit.
    assert_eq!(said(false, with(None, Some(End::Leg))), None);
    assert_eq!(said(false, with(Some(2.0), Some(End::Failed))), None);
    assert_eq!(said(true, with(Some(3.5), Some(End::Failed))), None);
    // The exit had opened it; or has said that long before the path was given up.
    assert_eq!(said(true, with(Some(3.5), None)), HELD);
    assert_eq!(said(true, with(None, None)), HELD);
    assert_eq!(said(false, with(Some(3.5), Some(End::Leg))), HELD);
}

#[test]
fn an_exit_that_cannot_be_asked_leaves_what_can_be_seen() {
    let unasked = |counts: Counts, seconds: u64| {
        let mut delivery = Delivery::new(Time(0), Time(0));
        delivery.ask(counts, Time::secs(seconds));
        delivery.unanswered(Time::secs(seconds))
    };
    assert_eq!(unasked(counts(64, 1), 1), Some(Verdict::Came));
    assert_eq!(unasked(counts(64, 0), 1), None);
    assert_eq!(unasked(counts(64, 0), 2), Some(Verdict::Silent));
    assert_eq!(unasked(counts(0, 0), 60), None);
    // An end is no answer.
    let hollow = Counts { has_got_end: true, ..counts(64, 1) };
    assert!(hollow.is_hollow() && !counts(64, 1).is_hollow());
    assert_eq!(unasked(hollow, 60), None);
}

#[test]
fn a_stream_is_asked_about_ever_more_seldom() {
    let mut delivery = Delivery::new(Time(0), Time::ms(250));
    let mut asked = Vec::new();
    for second in 0..400 {
        if delivery.is_due(Time::secs(second)) {
            delivery.ask(Counts::default(), Time::secs(second));
            asked.push(second);
            delivery.unanswered(Time::secs(second));
        }
    }
    assert_eq!(asked, [1, 4, 10, 22, 46, 94, 158, 222, 286, 350]);
}

/// The side that does not read its data is the cause, at either of two looks.
#[test]
fn an_end_that_takes_nothing_is_no_fault_of_the_path() {
    let full = |counts: Counts, is_full: bool| Counts { is_full, ..counts };
    let full_exit = |is_full: bool| receipt(1_000, 9_000).map(|receipt| Receipt { is_full, ..receipt });
    for [had, has] in [[true, false], [false, true], [true, true]] {
        // The client has not taken what has come.
        let client = looks(&[
            (full(counts(10, 5_000), had), receipt(10, 9_000)),
            (full(counts(10, 5_000), has), receipt(10, 9_000)),
        ]);
        assert_eq!(client[1], DELIVERED, "{had} {has}");
        // Nor the host.
        let host = looks(&[(counts(9_000, 9_000), full_exit(had)), (counts(9_000, 9_000), full_exit(has))]);
        assert_eq!(host[1], DELIVERED, "{had} {has}");
    }
    let neither = looks(&[(counts(9_000, 9_000), full_exit(false)), (counts(9_000, 9_000), full_exit(false))]);
    assert_eq!(neither[1], HELD);
}

#[test]
fn what_an_end_did_not_take_before_the_stream_was_broken_off_is_no_fault_of_the_path() {
    let still = |is_full: bool| Counts { still: Time::secs(60), is_full, ..counts(9_000, 5_000) };
    let said = |is_full: bool, from_host: u64| {
        receipt(1_000, from_host).map(|receipt| Receipt { is_full, still_s: 60.0, ..receipt })
    };
    let ended = |counts: Counts, said: Option<Receipt>| {
        Delivery::new(Time(0), Time::ms(100)).ended(&counts, Ended::Entry, said, LONG, Time::secs(90))
    };
    assert_eq!(ended(still(false), said(false, 5_000)), HELD, "the host takes all that comes");
    assert_eq!(ended(still(false), said(true, 5_000)), DELIVERED);
    assert_eq!(ended(still(false), said(true, 9_000)), HELD, "the client takes all that comes");
    assert_eq!(ended(still(true), said(true, 9_000)), None);
}

/// The exit counts nothing more behind a break of its host, or of the leg.
#[test]
fn what_comes_behind_a_break_is_not_invented() {
    for (end, verdict) in
        [(None, HELD), (Some(End::Done), HELD), (Some(End::Exit), DELIVERED), (Some(End::Leg), DELIVERED)]
    {
        let said = receipt(10, 4_000).map(|receipt| Receipt { end, ..receipt });
        let delivery = Delivery::new(Time(0), Time::ms(100));
        assert_eq!(delivery.ended(&counts(10, 5_000), Ended::Entry, said, LONG, Time::secs(9)), verdict, "{end:?}");
    }
}
