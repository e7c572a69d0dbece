//! Receivers that do not read, streams that compete, and processes that run out of descriptors or memory.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::common::process::Process;
use crate::common::*;
use socket2::{Domain, SockRef, Socket, Type};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// What every socket of these tests asks for; the kernel takes twice of it.
const BUFFER: usize = 64 << 10;
const BUFFERS: &str = "[tcp]\nsend_buffer = \"64KiB\"\nreceive_buffer = \"64KiB\"\n";

const SOCKS: &str = "[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n";

fn small_listener() -> (TcpListener, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(BUFFER).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.listen(1024).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Bytes of memory that are a process's alone.
fn memory(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * KIB
}

/// The CPU time it has used.
fn cpu(process: &Process) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.child.id())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // A tick is 10 ms on every Linux.
    Duration::from_millis(10 * (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()))
}

/// Processes n1 … n`count` and one before them that takes connections: the last is the exit, the first is returned first.
fn chain(mode: Mode, count: usize, name: &str, extra: &str) -> Vec<Process> {
    let (key, nodes, known) = (mode.node("key"), mode.listener("key"), mode.peer("key"));
    let leg = format!("[listen.leg]\nkind = \"leg\"\naddress = \"127.0.0.1:0\"\n{nodes}");
    let mut all: Vec<Process> = Vec::new();
    for i in (0..=count).rev() {
        let peer = all.first().map(|next| format!("[peer.n{}]\naddress = \"{}\"\n{known}", i + 1, next.addresses[0]));
        let via: Vec<String> = (1..=count).map(|i| format!("n{i}")).collect();
        let front = if i == 0 { format!("{SOCKS}[[route]]\nto = [\"*\"]\nvia = {via:?}\n") } else { leg.clone() };
        let text = format!("name = \"n{i}\"\n{key}threads = 2\n{extra}{}{front}", peer.unwrap_or_default());
        all.insert(0, Process::start(&format!("{name}-{i}"), &text));
    }
    all
}

/// Writes as much as is taken, until nothing is taken from any for a while. Returns how much.
fn write_all_that_is_taken(streams: &mut [TcpStream], quiet: Duration) -> Vec<u64> {
    let piece = noise(64 << 10, 1);
    let mut taken = vec![0; streams.len()];
    let mut last = Instant::now();
    while last.elapsed() < quiet {
        for (stream, taken) in streams.iter_mut().zip(&mut taken) {
            match stream.write(&piece) {
                Ok(n) => {
                    *taken += n as u64;
                    last = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    taken
}

#[test]
fn two_hundred_receivers_that_do_not_read_stop_their_senders_and_fill_no_memory() {
    const STREAMS: usize = 200;
    for mode in [Mode::Plain, Mode::Tls] {
        let nodes = chain(mode, 3, "slow", BUFFERS);
        let (listener, address) = small_listener();
        let (mut clients, mut servers) = (Vec::new(), Vec::new());
        for _ in 0..STREAMS {
            let (code, client) = socks(nodes[0].addresses[0], "127.0.0.1", address.port());
            assert_eq!(code, 0);
            SockRef::from(&client).set_send_buffer_size(BUFFER).unwrap();
            client.set_nonblocking(true).unwrap();
            clients.push(client);
            servers.push(accept(&listener));
        }
        let before: Vec<u64> = nodes.iter().map(memory).collect();
        let taken = write_all_that_is_taken(&mut clients, Duration::from_secs(1));
        let (filled, then) = (nodes.iter().map(memory).collect::<Vec<_>>(), Instant::now());
        // Five connections, each with a buffer at both ends; and what each of four nodes holds between two of them.
        let buffers = 5 * 2 * 2 * BUFFER as u64;
        let held = if mode == Mode::Plain { 2 * BUFFER as u64 } else { 3 * 66 * KIB };
        let bound = buffers + 4 * held;
        assert!(taken.iter().all(|&n| (64 * KIB..=bound).contains(&n)), "{mode:?}: {taken:?}, at most {bound}");
        for ((node, before), filled) in nodes.iter().zip(&before).zip(&filled) {
            let most = before + STREAMS as u64 * 4 * 66 * KIB;
            assert!(*filled <= most, "{mode:?}: {filled} bytes of memory, {before} before");
            let later = write_all_that_is_taken(&mut clients, Duration::from_millis(200)).iter().sum::<u64>();
            assert_eq!(later, 0, "{mode:?}: {:?} after all was full", then.elapsed());
            let now = memory(node);
            assert!(now <= filled + MIB, "{mode:?}: {now} bytes of memory, {filled} when all was full");
        }
        // Nothing of it is lost.
        for ((client, mut server), taken) in clients.into_iter().zip(servers).zip(taken) {
            client.shutdown(Shutdown::Write).unwrap();
            let mut all = Vec::new();
            server.read_to_end(&mut all).unwrap();
            assert_eq!(all.len() as u64, taken, "{mode:?}");
        }
    }
}

#[test]
fn streams_share_a_node_and_one_that_stands_still_stops_no_other() {
    const STREAMS: usize = 6;
    for mode in [Mode::Plain, Mode::Tls] {
        let (listener, address) = listener();
        let exit = leg_node(mode, "exit", None, "");
        let (own, known) = (mode.node("key"), mode.peer("key"));
        // One thread has to do it all.
        let entry = node(&format!(
            "{own}threads = 1\n[listen.fwd]\nkind = \"forward\"\naddress = \"127.0.0.1:0\"\nto = \"{address}\"\nvia = [\"exit\"]\n\
             [peer.exit]\naddress = \"{}\"\n{known}",
            exit.address("leg").unwrap()
        ));
        let mut still = connect(entry.address("fwd").unwrap());
        let _not_read = accept(&listener);
        fill(&mut still);
        let (stop, piece) = (AtomicBool::new(false), noise(256 << 10, 2));
        let counts: Vec<AtomicU64> = (0..STREAMS).map(|_| AtomicU64::new(0)).collect();
        let fairest = std::thread::scope(|scope| {
            for count in &counts {
                let mut client = connect(entry.address("fwd").unwrap());
                let mut server = accept(&listener);
                let (stop, piece) = (&stop, &piece);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        client.write_all(piece).unwrap();
                    }
                });
                scope.spawn(move || {
                    let mut room = vec![0; 256 << 10];
                    while let Ok(n @ 1..) = server.read(&mut room) {
                        count.fetch_add(n as u64, Ordering::Relaxed);
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(500));
            // A busy machine runs these threads as it likes; a node that is unfair is so each time.
            let shares = (0..6).map(|_| moved_in_a_second(&counts));
            let fairest = shares.map(|shares| (fairness(&shares), shares)).find(|(fairness, _)| *fairness >= 0.8);
            stop.store(true, Ordering::Relaxed);
            fairest
        });
        assert!(fairest.is_some(), "{mode:?}");
    }
}

fn moved_in_a_second(counts: &[AtomicU64]) -> Vec<u64> {
    let now = || counts.iter().map(|count| count.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let before = now();
    std::thread::sleep(Duration::from_secs(1));
    now().into_iter().zip(before).map(|(after, before)| after - before).collect()
}

/// Jain's index: 1 if all are equal, 1/n if one of n has all.
fn fairness(shares: &[u64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(a, b), &n| (a + n as f64, b + (n as f64).powi(2)));
    eprintln!("fairness {:.3}, {shares:?}", sum * sum / (shares.len() as f64 * squares));
    sum * sum / (shares.len() as f64 * squares)
}

/// Greets, asks for `to` and says something, all at once.
fn asks(proxy: SocketAddr, to: SocketAddr) -> TcpStream {
    let mut stream = connect(proxy);
    let [high, low] = to.port().to_be_bytes();
    stream.write_all(&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, high, low, b'h', b'i']).unwrap();
    stream
}

/// The reply to that, and what came back.
fn is_answered(mut stream: TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    (head[3], back)
}

#[test]
fn more_connections_than_there_are_descriptors_for_wait_and_are_served() {
    let node = Process::start_with_files("files", &format!("threads = 1\n{SOCKS}"), 160);
    let server = late_echo();
    let (asked, come) = channel();
    let asking: Vec<_> = (0..150)
        .map(|_| {
            let stream = asks(node.addresses[0], server);
            let asked = asked.clone();
            std::thread::spawn(move || {
                let mut first = [0];
                assert_eq!(stream.peek(&mut first).unwrap(), 1);
                asked.send(()).unwrap();
                stream
            })
        })
        .collect();
    let at_once = std::iter::from_fn(|| come.recv_timeout(Duration::from_secs(1)).ok()).count();
    assert!((10..=75).contains(&at_once), "{at_once} were served at once");
    let before = cpu(&node);
    std::thread::sleep(Duration::from_secs(1));
    let spent = cpu(&node) - before;
    assert!(spent <= Duration::from_millis(300), "{spent:?} of CPU time in a second of waiting");
    // As each ends, another has its turn.
    let answers = asking.into_iter().map(|thread| std::thread::spawn(move || is_answered(thread.join().unwrap())));
    for answer in answers.collect::<Vec<_>>() {
        assert_eq!(answer.join().unwrap(), (0, b"hi".to_vec()));
    }
}

#[test]
fn strangers_on_a_leg_listener_leave_room_also_where_descriptors_are_few() {
    let leg = "[listen.leg]\nkind = \"leg\"\naddress = \"127.0.0.1:0\"\nplain_key_file = \"key\"\n";
    // They may stay for longer than a client waits here.
    let limits = "[limits]\nhandshake = \"300s\"\n";
    let node = Process::start_with_files("few", &format!("threads = 1\n{SOCKS}{leg}{limits}"), 160);
    let (socks, leg) = (node.addresses[0], node.addresses[1]);
    let strangers: Vec<TcpStream> = (0..150).map(|_| connect(leg)).collect();
    assert_eq!(is_answered(asks(socks, late_echo())), (0, b"hi".to_vec()));
    drop(strangers);
}

/// As [`asks`], of a proxy that is told who the client is.
fn asks_for(client: &str, proxy: SocketAddr, to: SocketAddr) -> TcpStream {
    let mut stream = connect(proxy);
    let [high, low] = to.port().to_be_bytes();
    write!(stream, "PROXY TCP4 {client} 192.0.2.1 1000 1080\r\n").unwrap();
    // It may be reset by now.
    let _ = stream.write_all(&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, high, low, b'h', b'i']);
    stream
}

#[test]
fn one_client_leaves_room_for_others_where_descriptors_are_few() {
    let listen = format!("{SOCKS}proxy_protocol_from = [\"127.0.0.1\"]\n");
    let node = Process::start_with_files("one-client", &format!("threads = 1\n{listen}"), 160);
    let (proxy, server) = (node.addresses[0], late_echo());
    let held: Vec<TcpStream> = (0..100).map(|_| asks_for("192.0.2.7", proxy, server)).collect();
    assert_eq!(is_answered(asks_for("192.0.2.8", proxy, server)), (0, b"hi".to_vec()), "another client is served");
    drop(held);
}

#[test]
fn one_client_leaves_room_for_others_where_few_connections_are_allowed() {
    let node = Process::start(
        "few",
        &format!("threads = 1\n[limits]\nconnections = 20\n{SOCKS}proxy_protocol_from = [\"127.0.0.1\"]\n"),
    );
    let (proxy, server) = (node.addresses[0], late_echo());
    let held: Vec<TcpStream> = (0..30).map(|_| asks_for("192.0.2.7", proxy, server)).collect();
    assert_eq!(is_answered(asks_for("192.0.2.8", proxy, server)), (0, b"hi".to_vec()), "another client is served");
    drop(held);
}

#[test]
fn one_client_whose_streams_stand_still_leaves_memory_to_others() {
    let told = "proxy_protocol_from = [\"127.0.0.1\"]\n";
    let limits = "[limits]\nmemory = \"4MiB\"\n";
    let node = Process::start("share", &format!("threads = 1\n{BUFFERS}{limits}{SOCKS}{told}"));
    let (proxy, echo, (listener, still)) = (node.addresses[0], late_echo(), small_listener());
    let first_reply = |stream: &mut TcpStream| {
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        head[3]
    };
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    // A piece of each direction is 64 KiB, and so 4 MiB are soon full.
    let held = (0..400).find(|_| {
        let mut client = asks_for("192.0.2.7", proxy, still);
        if first_reply(&mut client) == 1 {
            return true;
        }
        servers.push(accept(&listener));
        client.set_nonblocking(true).unwrap();
        clients.push(client);
        write_all_that_is_taken(&mut clients[servers.len() - 1..], Duration::from_millis(20));
        false
    });
    assert!(held.is_some_and(|streams| streams >= 8), "its share is reached: {held:?}");
    // What is there goes on, a little at a time, and all of it leaves room.
    write_all_that_is_taken(&mut clients, Duration::from_millis(200));
    assert_eq!(is_answered(asks_for("192.0.2.8", proxy, echo)), (0, b"hi".to_vec()), "another client is served");
    drop((clients, servers));
    wait_until("it may begin streams again", || first_reply(&mut asks_for("192.0.2.7", proxy, echo)) == 0);
}

#[test]
fn a_process_whose_descriptors_are_taken_away_refuses_and_recovers() {
    let node = Process::start("taken", &format!("threads = 1\n{SOCKS}"));
    let server = late_echo();
    let all_open = || -> BTreeSet<usize> {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", node.child.id())).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
    };
    let idle = all_open().len();
    let held: Vec<TcpStream> = (0..20).map(|_| asks(node.addresses[0], server)).collect();
    wait_until("both sides of all of them are open", || all_open().len() >= idle + 40);
    let files = |soft: &str| {
        let limit = format!("--nofile={soft}:");
        let status = Command::new("prlimit").args(["--pid", &node.child.id().to_string(), &limit]).status();
        assert!(status.expect("prlimit, of util-linux").success());
    };
    // One more can be accepted, and none be connected: numbers below the limit are given out, and only the first free one is.
    let open = all_open();
    let second = (0..).filter(|number| !open.contains(number)).nth(1).unwrap();
    files(&second.to_string());
    let refused: Vec<TcpStream> = (0..20).map(|_| asks(node.addresses[0], server)).collect();
    let (before, begun) = (cpu(&node), Instant::now());
    let mut first = [0; 12];
    let mut one = &refused[0];
    one.read_exact(&mut first).unwrap();
    assert_eq!(first[3], 1, "told why: {first:?}");
    std::thread::sleep(Duration::from_secs(1).saturating_sub(begun.elapsed()));
    let spent = cpu(&node) - before;
    assert!(spent <= Duration::from_millis(300), "{spent:?} of CPU time in a second of want");
    files("4096");
    for stream in held {
        assert_eq!(is_answered(stream), (0, b"hi".to_vec()), "one that was open before");
    }
    for stream in refused.into_iter().skip(1) {
        let (code, back) = is_answered(stream);
        assert!((code, &back[..]) == (0, b"hi") || (code, &back[..]) == (1, b""), "{code} {back:?}");
    }
    assert_eq!(is_answered(asks(node.addresses[0], server)), (0, b"hi".to_vec()));
}

#[test]
fn a_node_that_holds_as_much_as_it_may_begins_nothing_new_until_it_is_read() {
    let (listener, address) = small_listener();
    let echo = late_echo();
    let nodes = chain(Mode::Plain, 1, "full", BUFFERS);
    let exit = Process::start(
        "full-exit",
        &std::fs::read_to_string(&nodes[1].file)
            .unwrap()
            .replace("threads = 2\n", "threads = 2\n[limits]\nmemory = \"1MiB\"\n"),
    );
    let entry = std::fs::read_to_string(&nodes[0].file).unwrap();
    let entry = entry.replace(&nodes[1].addresses[0].to_string(), &exit.addresses[0].to_string());
    let entry = Process::start("full-entry", &entry);
    drop(nodes);
    let is_full = || socks(entry.addresses[0], "127.0.0.1", echo.port()).0 == 1;
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..250 {
        let (code, client) = socks(entry.addresses[0], "127.0.0.1", address.port());
        assert_eq!(code, 0);
        client.set_nonblocking(true).unwrap();
        clients.push(client);
        servers.push(accept(&listener));
    }
    assert!(!is_full());
    let mut taken = vec![0; clients.len()];
    wait_until("250 streams stand still", || {
        let more = write_all_that_is_taken(&mut clients, Duration::from_secs(1));
        taken.iter_mut().zip(more).for_each(|(taken, more)| *taken += more);
        is_full()
    });
    assert!(taken.iter().all(|&n| n >= 64 * KIB), "each has moved: {taken:?}");
    // What it holds goes on as soon as somebody reads.
    for ((client, mut server), taken) in clients.into_iter().zip(servers).zip(taken) {
        client.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        server.read_to_end(&mut all).unwrap();
        assert_eq!(all.len() as u64, taken);
    }
    wait_until("there is room again", || !is_full());
}

/// Whether one of these, each of which has greeted, is refused for want of memory when it asks. The others are connected.
fn is_refused(greeted: &mut Vec<TcpStream>, to: SocketAddr) -> bool {
    let mut stream = greeted.pop().expect("there are enough of them");
    socks_request(&mut stream, "127.0.0.1", to.port()) == 1
}

#[test]
fn heads_of_http_count_in_the_memory_that_a_node_may_hold() {
    const FIELD: usize = 200 << 10;
    let limits = "[limits]\nmemory = \"1MiB\"\nhttp_head_size = \"1MiB\"\nhandshake = \"1h\"\n";
    let web = "[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n";
    let node = Process::start("heads", &format!("threads = 1\n{SOCKS}{web}{limits}"));
    let (proxy, web, echo) = (node.addresses[0], node.addresses[1], late_echo());
    // It answers nothing.
    let (_silent, origin) = listener();
    let field = "x".repeat(FIELD);
    let head = format!("GET http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\nX: {field}");
    let greet = |_| {
        let mut stream = connect(proxy);
        stream.write_all(&[5, 1, 0]).unwrap();
        stream.read_exact(&mut [0; 2]).unwrap();
        stream
    };
    let says = |end: &str| {
        let mut stream = connect(web);
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(end.as_bytes()).unwrap();
        stream
    };
    let mut greeted: Vec<TcpStream> = (0..100).map(greet).collect();
    // A head that is not complete takes 256 KiB, and goes for a newer one.
    let incomplete: Vec<TcpStream> = (0..6).map(|_| says("")).collect();
    a_moment();
    assert!(!is_refused(&mut greeted, echo), "incomplete heads leave room");
    drop(incomplete);
    // One whose request waits for its response is held as it goes out.
    let waits = || {
        let mut waits = says("\r\n\r\n");
        a_moment();
        waits.set_nonblocking(true).unwrap();
        let mut said = [0; 64];
        match waits.read(&mut said) {
            Ok(read) => {
                assert!(said[..read].starts_with(b"HTTP/1.1 503 "), "{}", said.escape_ascii());
                None
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                Some(waits)
            }
        }
    };
    let held: Vec<TcpStream> = std::iter::from_fn(waits).take(20).collect();
    assert!((2..=5).contains(&held.len()), "{} wait in 1 MiB", held.len());
    // A client that ends its side may wait on. One that resets is gone.
    for waits in held {
        SockRef::from(&waits).set_linger(Some(Duration::ZERO)).unwrap();
    }
    wait_until("there is room again", || waits().is_some());
}

#[test]
fn the_head_of_a_tunnel_that_waits_for_its_destination_is_freed() {
    let limits = "[limits]\nmemory = \"1MiB\"\nhttp_head_size = \"1MiB\"\nconnect = \"1h\"\nhandshake = \"1h\"\n";
    let web = "[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n";
    let node = Process::start("tunnel-heads", &format!("threads = 1\n{SOCKS}{web}{limits}"));
    let (proxy, web) = (node.addresses[0], node.addresses[1]);
    // It takes one connection, and drops the SYNs of all others.
    let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    silent.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    silent.listen(0).unwrap();
    let silent_at = silent.local_addr().unwrap().as_socket().unwrap();
    let _taken = connect(silent_at);
    let field = "x".repeat(200 << 10);
    let head = format!("CONNECT {silent_at} HTTP/1.1\r\nHost: {silent_at}\r\nX: {field}\r\n\r\n");
    let _tunnels: Vec<TcpStream> = (0..12)
        .map(|_| {
            let mut tunnel = connect(web);
            tunnel.write_all(head.as_bytes()).unwrap();
            a_moment();
            tunnel.set_nonblocking(true).unwrap();
            let mut said = [0; 64];
            let read = tunnel.read(&mut said);
            assert!(read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{}", said.escape_ascii());
            tunnel
        })
        .collect();
    assert_eq!(socks(proxy, "127.0.0.1", late_echo().port()).0, 0);
}

/// Time for the node to read what it was sent.
fn a_moment() {
    std::thread::sleep(Duration::from_millis(300));
}
