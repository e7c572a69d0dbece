//! Whatever the network does, every byte arrives once and in order, and both ends close.

use crate::common::{Fate, Pair, Random};
use ekiden_packet::Ecn;
use ekiden_tcp::{Connection, Failure, Pipe, State, TcpSettings, Transmit};
use ekiden_units::Time;
use proptest::prelude::*;

#[derive(Debug, Clone)]
struct Network {
    loss_percent: u64,
    late_percent: u64,
    twice_percent: u64,
    mark_percent: u64,
    delay: Time,
    seed: u64,
}

impl Network {
    fn still(delay: Time) -> Self {
        Self { loss_percent: 0, late_percent: 0, twice_percent: 0, mark_percent: 0, delay, seed: 1 }
    }

    fn fate(&self, random: &mut Random, transmit: &mut Transmit) -> Fate {
        let Self { loss_percent, late_percent, twice_percent, .. } = *self;
        if transmit.segment.ecn == Ecn::Ect0 && random.below(100) < self.mark_percent {
            transmit.segment.ecn = Ecn::Ce;
        }
        let roll = random.below(100);
        let by = Time(random.below(self.delay.0 * 3));
        if roll < loss_percent {
            Fate::Lost
        } else if roll < loss_percent + late_percent {
            Fate::Late(by)
        } else if roll < loss_percent + late_percent + twice_percent {
            Fate::Twice(by)
        } else {
            Fate::Arrives
        }
    }
}

fn networks() -> impl Strategy<Value = Network> {
    (0u64..30, 0u64..20, 0u64..10, 0u64..30, 0u64..200, any::<u64>()).prop_map(|(loss, late, twice, mark, ms, seed)| {
        Network {
            loss_percent: loss,
            late_percent: late,
            twice_percent: twice,
            mark_percent: mark,
            delay: Time::ms(ms) + Time(1000),
            seed,
        }
    })
}

fn settings() -> impl Strategy<Value = TcpSettings> {
    let profile = prop_oneof![
        Just(TcpSettings::rfc()),
        Just(TcpSettings::linux()),
        Just(TcpSettings::ns2()),
        Just(TcpSettings::opnet())
    ];
    let buffer = || prop_oneof![5 => 500u64..200_000, 1 => 1u64..500];
    (profile, 64u32..9000, buffer(), buffer(), any::<[bool; 5]>()).prop_map(
        |(profile, mss, send_buffer, receive_buffer, [sack, ecn, timestamps, window_scaling, nagle])| TcpSettings {
            mss,
            send_buffer,
            receive_buffer,
            sack,
            ecn,
            timestamps,
            window_scaling,
            nagle,
            // Less than any profile's least RTO, which others' delayed acknowledgements could exceed.
            ack_delay: Time::ms(40),
            // Whole transfers, not patience, are tested.
            retries: 1000,
            ..profile
        },
    )
}

/// Two ends and what they want.
#[derive(Debug, Clone)]
struct Ends {
    settings: [TcpSettings; 2],
    controls: [&'static str; 2],
    amounts: [u64; 2],
    first: [u32; 2],
    both_open: bool,
    /// Side 1 writes only after it has received everything: a half-closed connection.
    answers: bool,
}

fn ends() -> impl Strategy<Value = Ends> {
    let control =
        || prop::sample::select(vec!["reno", "cubic", "ekiden_hstcp", "ekiden_ghstcp", "ekiden_bic", "ekiden_far"]);
    // Numbers that wrap somewhere in the transfer are as likely as others.
    let first = || prop_oneof![any::<u32>(), (0u32..50_000).prop_map(|before| 0u32.wrapping_sub(before))];
    let amounts = [0u64..100_000, 0u64..30_000];
    let opening = (prop::bool::weighted(0.2), prop::bool::weighted(0.3));
    ([settings(), settings()], [control(), control()], amounts, [first(), first()], opening).prop_map(
        |(settings, controls, amounts, first, (both_open, answers))| {
            // Through small buffers go small amounts: there the number of segments is the same.
            let through = |from: &TcpSettings, to: &TcpSettings| 1000 * from.send_buffer.min(to.receive_buffer);
            let [a, b] = &settings;
            let amounts = [amounts[0].min(through(a, b)), amounts[1].min(through(b, a))];
            Ends { settings, controls, amounts, first, both_open, answers }
        },
    )
}

/// Both sides send, the reader of each reads now and then.
fn transfer(ends: &Ends, network: &Network) -> Pair {
    let mut pair = Pair::with_controls(ends.settings.clone(), ends.controls, network.delay, ends.first);
    if ends.both_open {
        pair.open_both();
    }
    pair.keeps_log = false;
    let mut random = Random::new(network.seed);
    let mut reader = Random::new(!network.seed);
    let mut written = [0; 2];
    let mut fate = |_: usize, transmit: &mut Transmit| network.fate(&mut random, transmit);
    loop {
        for (side, written) in written.iter_mut().enumerate() {
            if let Some(end) = &mut pair.ends[side]
                && (side == 0 || !ends.answers || end.is_peer_finished())
            {
                *written += end.write(ends.amounts[side] - *written);
                if *written == ends.amounts[side] {
                    end.finish();
                }
            }
            // Also a reader that lets its window fill.
            if reader.below(4) > 0 || pair.steps > 200_000 {
                pair.read(side);
            }
        }
        let is_over = |state| matches!(state, Some(State::TimeWait | State::Closed));
        if is_over(pair.state(0)) && is_over(pair.state(1)) {
            return pair;
        }
        for (end, settings) in
            pair.ends.iter().zip(&ends.settings).filter_map(|(end, settings)| Some((end.as_ref()?, settings)))
        {
            check(end, settings);
        }
        assert!(pair.step(&mut fate), "nothing more happens: {:?} {:?}", pair.state(0), pair.state(1));
        assert!(
            pair.steps < 2_000_000,
            "no end: {:?} {:?}",
            pair.ends[0].as_ref().map(|e| e.info()),
            pair.ends[1].as_ref().map(|e| e.info())
        );
    }
}

/// What holds at any time.
fn check(end: &Connection, settings: &TcpSettings) {
    let info = end.info();
    assert!(info.cwnd >= 1, "{info:?}");
    assert!(info.lost <= info.outstanding, "{info:?}");
    // What was sent again without being lost counts twice. What acknowledgements tell alone has no such bound.
    assert!(settings.pipe == Pipe::Acknowledgements || info.pipe <= 2 * info.outstanding, "{info:?}");
    assert!(info.ssthresh.is_none_or(|ssthresh| ssthresh >= 2), "RFC 5681, equation 4: {info:?}");
    assert!(!(info.is_recovering && info.is_after_timeout), "{info:?}");
    assert!(info.outstanding > 0 || info.pipe == 0 && info.lost == 0, "{info:?}");
    // What is outstanding is watched by a timer.
    assert!(info.outstanding == 0 || end.state() == State::Closed || end.timeout().is_some(), "{info:?}");
}

/// What is sent again is in proportion to what is lost, apart from a few windows' worth. What a timeout sends again without SACK is
/// none of that: the larger the window, the more of it had arrived. It is at most what was outstanding then.
fn no_storm(pair: &mut Pair, side: usize, amount: u64, loss_percent: u64) {
    let needed = amount + 20 * u64::from(pair.end(side).info().mss);
    let (sent, gone_back, timed_out) = (pair.bytes_sent[side], pair.bytes_gone_back[side], pair.bytes_timed_out[side]);
    assert!(
        (sent - gone_back) * (100 - loss_percent) <= needed * 150,
        "{sent} sent, {gone_back} after timeouts although they had arrived, {needed} needed"
    );
    assert!(gone_back <= timed_out, "{gone_back} sent again after timeouts, {timed_out} outstanding then");
}

/// Without SACK a loss of a retransmission is found by a timeout alone (RFC 6582, section 3.2), and that sends the window again.
/// A control that keeps its window at losses has much in it: here that is most of what is sent in vain, and all of it comes from
/// timeouts. Whatever the control, the rest is what is lost.
#[test]
fn without_sack_only_timeouts_send_again_what_has_arrived() {
    let network = Network {
        loss_percent: 11,
        late_percent: 0,
        twice_percent: 7,
        mark_percent: 0,
        delay: Time::ms(2),
        seed: 9_686_850_378_002_820_848,
    };
    for control in ["reno", "cubic", "ekiden_hstcp", "ekiden_ghstcp", "ekiden_bic", "ekiden_far"] {
        for profile in [TcpSettings::rfc(), TcpSettings::linux(), TcpSettings::ns2()] {
            let settings = TcpSettings {
                mss: 71,
                send_buffer: 100_000,
                receive_buffer: 100_000,
                sack: false,
                timestamps: false,
                retries: 1000,
                ack_delay: Time::ms(40),
                ..profile
            };
            let ends = Ends {
                settings: [settings.clone(), settings],
                controls: [control, control],
                amounts: [63_896, 0],
                first: [0, 0],
                both_open: false,
                answers: false,
            };
            for seed in (0..20).map(|more| network.seed + more) {
                let mut pair = transfer(&ends, &Network { seed, ..network.clone() });
                no_storm(&mut pair, 0, ends.amounts[0], network.loss_percent);
                // Of every 100 that are sent 11 are lost. Some are sent again because an acknowledgement was lost or late.
                let needed = pair.bytes_sent[0] - pair.bytes_gone_back[0];
                let share = needed * (100 - network.loss_percent) / ends.amounts[0];
                assert!((85..115).contains(&share), "{control}: {share} % of what losses alone explain");
            }
        }
    }
}

/// So many cases, or as many as PROPTEST_CASES asks for.
fn config(cases: u32) -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(cases),
    }
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn every_byte_arrives_once_and_in_order_and_both_ends_close(ends in ends(), network in networks()) {
        let mut pair = transfer(&ends, &network);
        for side in 0..2 {
            pair.read(side);
            prop_assert_eq!(pair.read[side], ends.amounts[1 - side]);
            prop_assert!(pair.end(side).is_peer_finished());
            // Who ended last may wait for the acknowledgement of its end from a peer that has forgotten the connection.
            if !pair.end(side).is_finished() {
                prop_assert_eq!(pair.end(side).failure(), Some(Failure::Reset));
            }
            no_storm(&mut pair, side, ends.amounts[side], network.loss_percent);
        }
    }

    #[test]
    fn without_disturbance_nothing_is_sent_twice(
        ends in ends(),
        // With a delayed acknowledgement less than the least RTO of any profile: a steady path's RTO is hardly more than that.
        ms in 0u64..80,
    ) {
        // Ends that both open send their SYN again, with an acknowledgement.
        let ends = Ends { both_open: false, ..ends };
        let mut pair = transfer(&ends, &Network::still(Time::ms(ms)));
        for side in 0..2 {
            pair.read(side);
            prop_assert_eq!(pair.read[side], ends.amounts[1 - side]);
            prop_assert_eq!(pair.end(side).info().retransmits, 0);
        }
    }
}
