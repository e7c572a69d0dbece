//! The programs in the running kernel: the verifier takes them, connections use them, and nothing is left. Needs root.

#[path = "../../ekiden/tests/alone/mod.rs"]
mod alone;

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use ekiden_bpf::{Error, Event, EventKind, Level, Registration, Trace, register, registered, try_load};
use ekiden_congestion::{Algorithm, Tunables};
use libtest_mimic::{Arguments, Failed, Trial};
use nix::unistd::geteuid;
use socket2::{Domain, Socket, Type};

/// Bytes of one transfer.
const SIZE: usize = 20 << 20;

fn main() {
    let mut arguments = Arguments::from_args();
    let _alone = alone::alone();
    // The names are one for the whole machine.
    arguments.test_threads = Some(1);
    let root = geteuid().is_root();
    let trial = |name: &str, test: fn() -> Result<(), Failed>| {
        let name = if root { name.to_owned() } else { format!("{name} (needs root)") };
        Trial::test(name, test).with_ignored_flag(!root)
    };
    let trials = vec![
        trial("the_verifier_accepts_all_programs", the_verifier_accepts_all_programs),
        trial("a_name_stays_until_its_last_holder_ends", a_name_stays_until_its_last_holder_ends),
        trial("many_may_register_at_once", many_may_register_at_once),
        trial("parameters_change_while_it_runs", parameters_change_while_it_runs),
        trial("connections_use_them_and_tell", connections_use_them_and_tell),
        trial("one_trace_at_a_time", one_trace_at_a_time),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

fn the_verifier_accepts_all_programs() -> Result<(), Failed> {
    // Also when another process has registered them, so that nothing would be loaded.
    try_load()?;
    let held = register(&Algorithm::LOADABLE, &Tunables::default())?;
    let names = available();
    for (held, algorithm) in held.iter().zip(Algorithm::LOADABLE) {
        assert_eq!(held.algorithm(), algorithm);
        assert!(names.contains(algorithm.name()), "{algorithm} is not among {names:?}");
    }
    assert!(register(&[Algorithm::Reno], &Tunables::default())?.is_empty(), "Reno is the kernel's own");
    Ok(())
}

fn a_name_stays_until_its_last_holder_ends() -> Result<(), Failed> {
    let name = Algorithm::Bic.name();
    let others = registered(Algorithm::Bic)?.is_some();
    let first = register(&[Algorithm::Bic], &Tunables::default())?;
    let second = register(&[Algorithm::Bic], &Tunables::default())?;
    assert_eq!(first[0].id(), second[0].id(), "the second shares the first's registration");
    drop(first);
    thread::sleep(Duration::from_millis(200));
    assert!(available().contains(name), "it went although one still holds it");
    let connection = connection(Algorithm::Bic, Ipv4Addr::LOCALHOST.into())?;
    drop(second);
    if others {
        return Ok(());
    }
    eventually("the name is gone", || !available().contains(name));
    // A connection that has it goes on with it.
    assert_eq!(transfer(connection)?, SIZE as u64);
    // And it can be had again.
    let again = register(&[Algorithm::Bic], &Tunables::default())?;
    assert!(available().contains(name));
    drop(again);
    eventually("the name is gone again", || !available().contains(name));
    Ok(())
}

fn many_may_register_at_once() -> Result<(), Failed> {
    for _ in 0..5 {
        let all: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| register(&Algorithm::LOADABLE, &Tunables::default()))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<_, _>>()
        })?;
        let ids: HashSet<Vec<u32>> =
            all.iter().map(|held: &Vec<Registration>| held.iter().map(Registration::id).collect()).collect();
        assert_eq!(ids.len(), 1, "all hold the same: {ids:?}");
    }
    Ok(())
}

fn parameters_change_while_it_runs() -> Result<(), Failed> {
    let held = register(&[Algorithm::Ghstcp], &Tunables::default())?;
    let before = held[0].parameters()?;
    let mut changed = before;
    changed.set("ghstcp.span", "2.5")?;
    changed.set("hstcp.low_window", "50")?;
    held[0].set(&changed)?;
    let seen = registered(Algorithm::Ghstcp)?.ok_or("it is registered")?.parameters();
    held[0].set(&before)?;
    assert_eq!(seen?, changed);
    assert_eq!(held[0].parameters()?, before);
    let mut wrong = before;
    wrong.set("hstcp.low_window", "90000")?;
    assert!(matches!(held[0].set(&wrong), Err(Error::Invalid(_))));
    Ok(())
}

fn connections_use_them_and_tell() -> Result<(), Failed> {
    let held = register(&Algorithm::LOADABLE, &Tunables::default())?;
    for algorithm in Algorithm::LOADABLE {
        for address in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let mut trace = Trace::start(&held, Level::Calls)?;
            let connection = connection(algorithm, address)?;
            let (local, remote) = (connection.local_addr()?, connection.peer_addr()?);
            let mover = thread::spawn(move || transfer(connection));
            let mut events = Vec::new();
            while !mover.is_finished() {
                events.extend(trace.poll(Duration::from_millis(50))?);
            }
            assert_eq!(mover.join().expect("no panic")?, SIZE as u64);
            let ended = |events: &[Event]| events.iter().any(|event| event.kind == EventKind::End);
            eventually("the end is told", || {
                events.extend(trace.poll(Duration::from_millis(50)).unwrap_or_default());
                events.retain(|event| event.local == local && event.remote == remote);
                ended(&events)
            });
            assert!(events.iter().all(|event| event.algorithm == algorithm), "{algorithm} by {address}");
            let count = |wanted: fn(&EventKind) -> bool| events.iter().filter(|event| wanted(&event.kind)).count();
            assert_eq!(count(|kind| *kind == EventKind::Start), 1);
            assert!(count(|kind| *kind == EventKind::Round) >= 3, "rounds");
            assert!(count(|kind| matches!(kind, EventKind::Rtt { .. })) >= 10, "round-trip times");
            let odd = events.iter().find(|event| event.window.cwnd == 0 || event.namespace == 0);
            assert!(odd.is_none(), "{odd:?}");
        }
    }
    Ok(())
}

fn one_trace_at_a_time() -> Result<(), Failed> {
    let held = register(&[Algorithm::Hstcp], &Tunables::default())?;
    for _ in 0..20 {
        let started: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| Trace::start(&held, Level::Rounds))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(started.iter().filter(|one| one.is_ok()).count(), 1);
        assert!(started.iter().flat_map(|one| one.as_ref().err()).all(|error| matches!(error, Error::Traced(_))));
    }
    Ok(())
}

/// Congestion controls that the kernel has by name.
fn available() -> HashSet<String> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// A connection to a thread that reads to the end and answers how much there was.
fn connection(algorithm: Algorithm, address: IpAddr) -> io::Result<TcpStream> {
    let listener = TcpListener::bind((address, 0))?;
    let target = listener.local_addr()?;
    thread::spawn(move || -> io::Result<()> {
        let (mut peer, _) = listener.accept()?;
        let count = io::copy(&mut peer, &mut io::sink())?;
        peer.write_all(&count.to_be_bytes())
    });
    let socket = Socket::new(Domain::for_address(SocketAddr::new(address, 0)), Type::STREAM, None)?;
    socket.set_tcp_congestion(algorithm.name().as_bytes())?;
    socket.connect(&target.into())?;
    Ok(socket.into())
}

/// Sends [`SIZE`] bytes; returns how many arrived.
fn transfer(mut connection: TcpStream) -> io::Result<u64> {
    let piece = vec![7; 1 << 16];
    for _ in 0..SIZE / piece.len() {
        connection.write_all(&piece)?;
    }
    connection.shutdown(std::net::Shutdown::Write)?;
    let mut count = [0; 8];
    io::Read::read_exact(&mut connection, &mut count)?;
    Ok(u64::from_be_bytes(count))
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < limit, "after 10 s still not: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
