//! Measuring a target that is a plain iperf3 server.

use std::io::ErrorKind;
use std::thread;
use std::time::Duration;

use ekiden_iperf3::{Error, Outcome, Progress, Settings, Until};
use ekiden_units::quantile;

use crate::config::{Direction, Target};
use crate::measurement::{Failure, Measured};

/// The number of attempts. An iperf3 server serves one client at a time, and between two clients it does not listen for a
/// moment ...
const TRIES: u32 = 4;
/// ... and the pause between attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// Measures with the iperf3 server at `address`, which is `HOST` or `HOST:PORT`.
///
/// # Errors
/// One line, for people.
pub fn by_iperf3(target: &Target, address: &str) -> Result<Measured, Failure> {
    let settings = Settings {
        streams: target.streams,
        direction: match target.direction {
            Direction::Receive => ekiden_iperf3::LoadDirection::Receive,
            Direction::Send => ekiden_iperf3::LoadDirection::Send,
        },
        until: Until::Time(Duration::from(target.duration)),
        bytes_most: Some(target.bytes),
        via: target.via.clone(),
        ..Settings::new(address)
    };
    let mut rtts_us: Vec<u64> = Vec::new();
    let mut progress = |progress: Progress<'_>| {
        if let Progress::Sampled { samples, .. } = progress {
            rtts_us.extend(samples.iter().map(|sample| sample.rtt_us).filter(|rtt| *rtt > 0));
        }
    };
    let mut outcome = ekiden_iperf3::run(&settings, &mut progress);
    for _ in 1..TRIES {
        if !outcome.as_ref().is_err_and(may_pass) {
            break;
        }
        thread::sleep(PAUSE);
        outcome = ekiden_iperf3::run(&settings, &mut progress);
    }
    let outcome = outcome.map_err(|error| Failure(error.to_string()))?;
    Ok(measured(target, &outcome, rtts_us))
}

fn may_pass(error: &Error) -> bool {
    match error {
        Error::Busy => true,
        Error::Connect { source, .. } => source.kind() == ErrorKind::ConnectionRefused,
        _ => false,
    }
}

fn measured(target: &Target, outcome: &Outcome, mut rtts_us: Vec<u64>) -> Measured {
    let is_sent = target.direction == Direction::Send;
    let streams = || outcome.streams.iter().filter(move |stream| stream.is_sent == is_sent);
    // Through a SOCKS5 listener, our end sees only the path to the listener.
    let is_direct = target.via.is_none();
    rtts_us.sort_unstable();
    let loaded = quantile::above(&rtts_us, 50);
    let retransmits = streams().map(|stream| stream.retransmits).reduce(|sum, more| Some(sum?.saturating_add(more?)));
    Measured {
        received_bit_s: outcome.received_bit_s(is_sent).unwrap_or_default(),
        received_bytes: streams().map(|stream| stream.received_bytes).fold(0, u64::saturating_add),
        duration_us: streams().map(|stream| stream.duration_us).max().unwrap_or_default(),
        rtt_base_us: streams().filter_map(|stream| stream.rtt_min_us).min().filter(|_| is_direct),
        // Only a sender measures round trips continuously.
        rtt_loaded_us: loaded.filter(|_| is_direct && is_sent),
        retransmits: retransmits.flatten(),
        shares: streams().find_map(|stream| stream.shares).filter(|_| is_direct && target.streams == 1),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use ekiden_iperf3::StreamOutcome;
    use ekiden_units::{Bytes, Time};

    use super::*;
    use crate::config::Server;

    fn target(via: Option<&str>) -> Target {
        Target {
            name: "a".into(),
            server: Server::Iperf3("192.0.2.1".into()),
            via: via.map(str::to_owned),
            direction: Direction::Send,
            bytes: Bytes(1_000_000),
            duration: Time::secs(1),
            streams: 2,
        }
    }

    #[test]
    fn streams_are_added_up_and_the_way_to_a_listener_is_not_taken_for_the_path() {
        let stream = |connection: u32| StreamOutcome {
            is_sent: true,
            connection,
            sent_bytes: 10,
            received_bytes: 9,
            duration_us: 100,
            received_bit_s: 720_000,
            retransmits: Some(2),
            rtt_min_us: Some(30 - u64::from(connection)),
            rtt_max_us: Some(90),
            shares: None,
        };
        let outcome = Outcome {
            server: ([127, 0, 0, 1], 1).into(),
            server_congestion: None,
            congestion: "cubic".into(),
            streams: vec![stream(0), stream(1)],
            late: None,
        };
        let direct = measured(&target(None), &outcome, vec![50, 40, 60]);
        assert_eq!((direct.received_bit_s, direct.received_bytes, direct.retransmits), (1_440_000, 18, Some(4)));
        assert_eq!((direct.rtt_base_us, direct.rtt_loaded_us), (Some(29), Some(50)));
        let via = measured(&target(Some("127.0.0.1:1080")), &outcome, vec![50]);
        assert_eq!((via.rtt_base_us, via.rtt_loaded_us, via.received_bytes), (None, None, 18));
    }

    #[test]
    fn a_server_that_is_not_there_is_a_reason() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let reason = by_iperf3(&target(None), &address.to_string()).unwrap_err();
        assert!(reason.0.starts_with(&format!("no connection to {address}: ")), "{reason}");
    }
}
