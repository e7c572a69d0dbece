use ekiden_scenario::Scenario;

use super::*;

const SCENARIO: &str = "name = \"pair\"\n[node.a]\n[node.b]\n[link.line]\nends = [\"a\", \"b\"]\nrate = \"10Mbit/s\"\n\
                        [flow.f]\nfrom = \"a\"\nto = \"b\"\n";

#[test]
fn only_a_wait_as_long_as_a_stall_says_that_nothing_moved() {
    let late = || io::Error::from(ErrorKind::WouldBlock);
    assert!(is_early(&late(), STALL_TIMEOUT - Duration::from_millis(1)));
    assert!(!is_early(&late(), STALL_TIMEOUT));
    assert!(!is_early(&ErrorKind::ConnectionReset.into(), Duration::from_millis(1)));
    assert!(describe(&late()).contains("nothing moved"));
}

/// The outcome of a flow of one connection on loopback, which the sender opens and `pass` passes on to the receiver.
fn outcome_of(amount: &str, cut: Option<Duration>, pass: impl FnOnce(TcpStream, SocketAddr) + Send) -> Outcome {
    let scenario = Scenario::parse(&format!("{SCENARIO}{amount}\n"), "test").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let (receiver, entry) = (listener.local_addr().unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let origin_ns = monotonic_ns();
    let running = Running {
        name: "f",
        flow: &scenario.flows["f"],
        seed: 1,
        own_seed: 1,
        bytes: Vec::new(),
        lasted_ns: AtomicU64::new(0),
        listener,
        target: entry.local_addr().unwrap(),
        origin_ns,
        cut_ns: cut.map(|cut| origin_ns + cut.as_nanos() as u64),
        connections: Mutex::new(Connections::new(1)),
        received_bytes: AtomicU64::new(0),
        began_ns: AtomicU64::new(origin_ns),
        differs: Mutex::new(None),
        senders_left: AtomicU64::new(1),
        last_arrival_ns: AtomicU64::new(0),
        given_up: AtomicBool::new(false),
        rtt_max_us: AtomicU32::new(0),
        waited_ns: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        scope.spawn(|| running.accept_all());
        scope.spawn(|| pass(entry.accept().unwrap().0, receiver));
        running.send_over(0, |connection| {
            connection.sender().connected_ns = Some(monotonic_ns());
            Ok(Some(TcpStream::connect(running.target)?))
        });
    });
    running.outcome(&lock(&running.connections))
}

fn carry(mut from: TcpStream, receiver: SocketAddr) {
    let mut to = TcpStream::connect(receiver).unwrap();
    io::copy(&mut from, &mut to).unwrap();
    to.shutdown(Shutdown::Write).unwrap();
    let _ = to.read(&mut [0]);
}

#[test]
fn a_path_that_was_tried_beside_another_is_no_fault() {
    let cut = Some(Duration::from_millis(700));
    for (amount, cut) in [("bytes = \"300KB\"", None), ("duration = \"700ms\"\nfile = \"50KB\"", cut)] {
        for is_reset in [false, true] {
            let outcome = outcome_of(amount, cut, move |from, receiver| {
                let tried = TcpStream::connect(receiver).unwrap();
                if is_reset {
                    reset_when_closed(&tried).unwrap();
                }
                // The receiver has accepted it before the one that carries.
                thread::sleep(Duration::from_millis(50));
                drop(tried);
                carry(from, receiver);
            });
            assert!(matches!(outcome, Outcome::Complete), "{amount}, {is_reset}: {outcome:?}");
        }
    }
}

#[test]
fn a_clean_end_without_a_byte_is_found_at_the_sender() {
    for (amount, cut) in
        [("bytes = \"30KB\"", None), ("duration = \"2s\"\nfile = \"30KB\"", Some(Duration::from_secs(2)))]
    {
        let outcome = outcome_of(amount, cut, |mut from, receiver| {
            drop(TcpStream::connect(receiver).unwrap());
            io::copy(&mut from, &mut io::sink()).unwrap();
        });
        assert!(matches!(outcome, Outcome::Differs { connection: 0, at_bytes: 0 }), "{amount}: {outcome:?}");
    }
}
