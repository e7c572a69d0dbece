//! The generators against themselves, on loopback: no relay, no root.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;

use super::files::{self, Begin};
use super::{Path, Times, idle, pingpong, storm, stream};

const TIMES: Times = Times { warm_up: Duration::from_millis(20), measured: Duration::from_millis(100) };

/// On a port below those that the kernel chooses, so that no connection of another test has it.
fn loopback() -> Path<'static> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let port = || {
        let number = std::process::id().wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        SocketAddr::from((Ipv4Addr::LOCALHOST, 12000 + (number % 20000) as u16))
    };
    let free = std::iter::repeat_with(port).find(|address| TcpListener::bind(address).is_ok()).unwrap();
    Path { client: None, server: None, connect: free, listen: free }
}

fn no_relay() -> Result<Duration> {
    Ok(Duration::ZERO)
}

#[test]
fn streams_deliver_every_byte_they_send() {
    // The load itself compares what was sent with what arrived.
    let bulk = stream::run(loopback(), 3, TIMES, &no_relay, &|| Ok(7)).unwrap();
    assert!(bulk.interval.count > 0, "{bulk:?}");
    assert!(bulk.interval.elapsed >= TIMES.measured && bulk.interval.cpu.is_zero());
    assert!(bulk.fairness > 1.0 / 3.0 && bulk.fairness <= 1.0 && bulk.memory == 7, "{bulk:?}");
}

#[test]
fn more_streams_than_threads_are_all_served() {
    let bulk = stream::run(loopback(), 100, TIMES, &no_relay, &|| Ok(0)).unwrap();
    assert!(bulk.fairness > 0.02, "some streams alone carry everything: {bulk:?}");
}

#[test]
fn a_pingpong_measures_round_trips() {
    let samples = pingpong::run(loopback(), TIMES).unwrap();
    let sum: f64 = samples.iter().sum();
    assert!(!samples.is_empty() && samples.iter().all(|sample| *sample > 0.0));
    assert!(sum <= 1e6, "longer than it ran: {sum} us");
}

#[test]
fn a_storm_answers_and_counts_connections() {
    let interval = storm::run(loopback(), 16, TIMES, &no_relay).unwrap();
    assert!(interval.count > 0, "{interval:?}");
}

#[test]
fn a_storm_at_a_closed_port_fails() {
    let (free, closed) = (loopback(), loopback().connect);
    let path = Path { connect: SocketAddr::new(closed.ip(), closed.port()), ..free };
    assert!(storm::run(path, 4, TIMES, &no_relay).is_err());
}

#[test]
fn idle_connections_are_held_while_memory_is_read() {
    let calls = AtomicU64::new(0);
    let memory = || Ok(1000 * calls.fetch_add(1, Ordering::Relaxed));
    assert_eq!(idle::run(loopback(), 20, memory).unwrap(), 50.0);
}

#[test]
fn files_arrive_in_whole_at_a_rate_and_some_at_a_time() {
    for begin in [Begin::PerSecond(200.0), Begin::AtATime(3)] {
        let transfers = files::run(loopback(), begin, Duration::from_millis(100)).unwrap();
        assert!(transfers.begun >= 3 && transfers.took.len() as u64 == transfers.begun, "{transfers:?}");
        assert_eq!((transfers.refused, transfers.lost), (0, 0));
    }
}

#[test]
fn files_from_a_closed_port_are_refused_and_no_result() {
    let path = Path { connect: loopback().connect, ..loopback() };
    assert!(files::run(path, Begin::PerSecond(100.0), Duration::from_millis(50)).is_err());
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_bare_relay_passes_bytes_and_ends_on() {
    let program = std::env::temp_dir().join(format!("bare-relay-{}", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/load/relay/bare.c");
    let built = Command::new("gcc").args(["-O2", "-Wall", "-Werror", "-pthread", source, "-o"]).arg(&program).status();
    assert!(built.unwrap().success());
    for low_water in [&[][..], &["-l", "524288"]] {
        let (relay, server) = (loopback().connect, loopback());
        let ends = [relay, server.listen].map(|end| [end.ip().to_string(), end.port().to_string()]);
        let process = Command::new(&program).args(low_water).args(ends.as_flattened()).spawn().unwrap();
        let _process = Running(process);
        while TcpStream::connect(relay).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let path = Path { connect: relay, ..server };
        // Every byte that was sent must arrive, and every end.
        let bulk = stream::run(path, 20, TIMES, &no_relay, &|| Ok(0)).unwrap();
        assert!(bulk.interval.count > 0, "{bulk:?}");
        assert!(!pingpong::run(path, TIMES).unwrap().is_empty());
        assert!(storm::run(path, 16, TIMES, &no_relay).unwrap().count > 0);
    }
    std::fs::remove_file(&program).unwrap();
}
