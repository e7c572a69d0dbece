//! The generators against themselves, on loopback: no relay, no root.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::Result;

use super::{Path, Times, idle, pingpong, storm, stream};

const TIMES: Times = Times { warm_up: Duration::from_millis(20), measured: Duration::from_millis(100) };

fn loopback() -> Path<'static> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    Path { client: None, server: None, connect: free, listen: free }
}

fn no_relay() -> Result<Duration> {
    Ok(Duration::ZERO)
}

#[test]
fn streams_deliver_every_byte_they_send() {
    // The load itself compares what was sent with what arrived.
    let interval = stream::run(loopback(), 3, TIMES, &no_relay).unwrap();
    assert!(interval.count > 1_000_000, "{interval:?}");
    assert!(interval.elapsed >= TIMES.measured && interval.cpu.is_zero());
}

#[test]
fn a_pingpong_measures_round_trips() {
    let samples = pingpong::run(loopback(), TIMES).unwrap();
    let sum: f64 = samples.iter().sum();
    assert!(samples.len() > 10 && samples.iter().all(|sample| *sample > 0.0));
    assert!(sum <= 1e6, "longer than it ran: {sum} us");
}

#[test]
fn a_storm_answers_and_counts_connections() {
    let interval = storm::run(loopback(), 16, TIMES, &no_relay).unwrap();
    assert!(interval.count > 16, "{interval:?}");
}

#[test]
fn a_storm_at_a_closed_port_fails() {
    let (free, closed) = (loopback(), loopback().connect);
    let path = Path { connect: SocketAddr::new(closed.ip(), closed.port()), ..free };
    assert!(storm::run(path, 4, TIMES, &no_relay).is_err());
}

#[test]
fn idle_connections_are_held_while_memory_is_read() {
    let calls = std::sync::atomic::AtomicU64::new(0);
    let memory = || Ok(1000 * calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    assert_eq!(idle::run(loopback(), 20, memory).unwrap(), 50.0);
}
