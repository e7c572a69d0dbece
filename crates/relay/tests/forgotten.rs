//! A host that says its end and then forgets the connection: everything that it has said arrives, and the end, however late its
//! receiver reads. Whoever sends to it hears that nothing is taken.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::common::*;
use ekiden_net::tcp_info::tcp_info;
use socket2::{Domain, Socket, Type};

/// More than the slow receiver's buffer and the send buffer before it take, and less than they and one receive buffer.
const BYTES: usize = 150_000;
const BUFFERS: &str = "[tcp]\nsend_buffer = \"16KiB\"\nreceive_buffer = \"256KiB\"\n";
const WAYS: [(Mode, usize); 5] = [(Mode::Plain, 0), (Mode::Plain, 1), (Mode::Tls, 1), (Mode::Plain, 2), (Mode::Tls, 2)];

fn small(socket: &Socket) {
    socket.set_recv_buffer_size(8192).unwrap();
}

/// A listener whose connections take little.
fn slow_listener() -> (TcpListener, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    small(&socket);
    socket.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.listen(1).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A stream through `chain`: the host that ends first, and a slow one.
fn stream(chain: &Chain, client_is_slow: bool) -> (TcpStream, TcpStream) {
    let (listener, address) = if client_is_slow { listener() } else { slow_listener() };
    if !client_is_slow {
        return (chain.socks(address), accept(&listener));
    }
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    small(&socket);
    socket.connect(&chain.address("socks").into()).unwrap();
    let mut client = TcpStream::from(socket);
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    client.write_all(&[5, 1, 0]).unwrap();
    client.read_exact(&mut [0; 2]).unwrap();
    assert_eq!(socks_request(&mut client, &address.ip().to_string(), address.port()), 0);
    (accept(&listener), client)
}

/// Says everything and its end, and is gone as soon as its kernel knows that the node's has it.
fn say_and_forget(mut host: TcpStream, bytes: &[u8]) {
    host.write_all(bytes).unwrap();
    host.shutdown(Shutdown::Write).unwrap();
    wait_until("the node's kernel has everything", || {
        tcp_info(&host).is_ok_and(|info| !info.is_ending && !info.awaits_ack())
    });
    reset(host);
}

/// On each way, with either host slow: a host has said these bytes and its end, and is gone. `check` has the slow one, and what this is.
fn each_way(bytes: &[u8], check: impl Fn(TcpStream, &str) + Sync) {
    std::thread::scope(|scope| {
        for way in WAYS {
            for client_is_slow in [true, false] {
                let check = &check;
                scope.spawn(move || on_way(way, client_is_slow, bytes, check));
            }
        }
    });
}

fn on_way((mode, count): (Mode, usize), client_is_slow: bool, bytes: &[u8], check: impl Fn(TcpStream, &str)) {
    let what = format!("{mode:?}, {count} nodes behind the first, the client is slow: {client_is_slow}");
    let chain = Chain::of(mode, count, BUFFERS, BUFFERS);
    let (host, slow) = stream(&chain, client_is_slow);
    say_and_forget(host, bytes);
    check(slow, &what);
    wait_until(&format!("nothing is busy: {what}"), || {
        chain.entry.busy() == 0 && chain.nodes.iter().all(|node| node.busy() == 0)
    });
}

#[test]
fn what_a_host_has_said_arrives_although_it_has_gone() {
    let bytes = noise(BYTES, 3);
    each_way(&bytes, |mut slow, what| {
        let mut all = vec![0; BYTES];
        slow.read_exact(&mut all).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(all == bytes && ends_cleanly(&mut slow), "{what}");
    });
}

#[test]
fn it_arrives_although_something_is_sent_to_the_host_and_the_sender_hears_that_it_was_refused() {
    let bytes = noise(BYTES, 4);
    each_way(&bytes, |mut slow, what| {
        let (mut all, mut hears) = (vec![0; BYTES], false);
        for piece in all.chunks_mut(1000) {
            // It fails once the slow one's kernel has everything, and takes the socket's error with it.
            hears |= slow.write_all(b"a window update").is_err();
            slow.read_exact(piece).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        assert!(all == bytes, "{what}");
        wait_until(&format!("the slow one hears of it: {what}"), || hears || slow.take_error().unwrap().is_some());
    });
}

#[test]
fn what_is_refused_is_discarded_up_to_a_limit_and_what_was_said_still_arrives() {
    let bytes = noise(BYTES, 5);
    each_way(&bytes, |mut slow, what| {
        let (piece, mut sent) = ([7; 1 << 16], 0_usize);
        slow.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        // 16 MiB at the node with the host that has gone, and what sockets hold.
        while let Ok(n) = slow.write(&piece) {
            sent += n;
            assert!(sent < 100 << 20, "{what}: {sent} bytes");
        }
        assert!(sent > 16 << 20, "{what}: {sent} bytes");
        let mut all = vec![0; BYTES];
        slow.read_exact(&mut all).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(all == bytes, "{what}");
    });
}

/// A host that goes without an end while bytes flow to it at full speed. A splice that is cut short takes the error of its reset, so that later
/// calls know nothing of it.
#[test]
fn a_host_that_is_gone_without_an_end_has_not_ended() {
    for (mode, count) in [(Mode::Plain, 0), (Mode::Plain, 1), (Mode::Tls, 1)] {
        let chain = Chain::of(mode, count, "", "");
        for round in 0..40 {
            let what = format!("{mode:?}, {count} nodes behind the first, round {round}");
            let (listener, address) = listener();
            let client = chain.socks(address);
            let server = accept(&listener);
            let (mut leaver, mut other) = if round % 2 == 0 { (server, client) } else { (client, server) };
            leaver.write_all(b"a part").unwrap();
            other.set_nonblocking(true).unwrap();
            leaver.set_nonblocking(true).unwrap();
            let piece = [7; 1 << 18];
            let mut leaver = Some(leaver);
            // The kernel's word for a reset behind a FIN is EPIPE.
            let told = (0..).find_map(|turn| {
                assert!(!says_fin(&other), "{what}: an end that nobody said");
                if turn == 200 + 10 * round {
                    reset(leaver.take()?);
                } else if let Some(leaver) = &mut leaver {
                    let _ = leaver.read(&mut [0; 1 << 17]);
                }
                match other.write(&piece) {
                    Err(error) if error.kind() != ErrorKind::WouldBlock => Some(error.kind()),
                    _ => None,
                }
            });
            assert_eq!(told, Some(ErrorKind::ConnectionReset), "{what}");
        }
    }
}

/// A download is on its way in frames when its receiver says its end and goes. Its sender ends then.
#[test]
fn what_is_cut_off_in_a_frame_leaves_no_stream_behind() {
    let ways = [(Mode::Plain, 1), (Mode::Plain, 2), (Mode::Tls, 1)];
    let chains = ways.map(|(mode, count)| std::thread::spawn(move || are_cut_off(mode, count)));
    for chain in chains {
        chain.join().expect("what went wrong stands above");
    }
}

fn are_cut_off(mode: Mode, count: usize) {
    let chain = Chain::of(mode, count, "", "");
    for round in 0..12 {
        let (listener, address) = listener();
        let mut client = chain.socks(address);
        let mut server = accept(&listener);
        fill(&mut server);
        client.read_exact(&mut vec![0; 1 << (10 + round % 8)]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        server.set_nonblocking(false).unwrap();
        assert_eq!(server.read(&mut [0]).unwrap(), 0);
        reset(client);
        drop(server);
    }
    wait_until(&format!("nothing is busy: {mode:?}, {count} nodes behind the first"), || {
        chain.entry.busy() == 0 && chain.nodes.iter().all(|node| node.busy() == 0)
    });
}

/// Whether a FIN has come.
fn says_fin(stream: &TcpStream) -> bool {
    tcp_info(stream).is_ok_and(|info| info.has_received_end)
}

#[test]
fn what_a_host_has_said_arrives_although_it_has_closed_without_reading() {
    const ROUNDS: usize = 10;
    let answer = noise(1000, 9);
    let run = |(mode, count)| {
        let chain = Chain::of(mode, count, "", "");
        for round in 0..ROUNDS {
            let (listener, address) = listener();
            let mut client = chain.socks(address);
            let mut sender = client.try_clone().unwrap();
            let mut server = accept(&listener);
            std::thread::scope(|scope| {
                scope.spawn(move || while sender.write_all(&[7; 1 << 16]).is_ok() {});
                server.read_exact(&mut [0; 100_000]).unwrap();
                server.write_all(&answer).unwrap();
                // With something unread, the kernel resets the connection that is closed.
                assert_eq!(server.peek(&mut [0]).unwrap(), 1);
                drop(server);
                let mut all = vec![0; answer.len()];
                let got = client.read_exact(&mut all);
                got.unwrap_or_else(|error| panic!("{mode:?}, {count} nodes, round {round}: {error}"));
                assert!(all == answer);
                // So that the sender ends too.
                let _ = client.read_to_end(&mut all);
            });
        }
        wait_until("nothing is busy", || chain.entry.busy() == 0 && chain.nodes.iter().all(|node| node.busy() == 0));
    };
    std::thread::scope(|scope| {
        for way in WAYS {
            let run = &run;
            scope.spawn(move || run(way));
        }
    });
}

#[test]
fn it_arrives_although_it_is_read_late() {
    let bytes = noise(BYTES, 10);
    let run = |(mode, count), client_is_slow| {
        let what = format!("{mode:?}, {count} nodes behind the first, the client is slow: {client_is_slow}");
        let chain = Chain::of(mode, count, BUFFERS, BUFFERS);
        let (mut host, mut slow) = stream(&chain, client_is_slow);
        slow.write_all(b"nobody reads this").unwrap();
        assert_eq!(host.peek(&mut [0]).unwrap(), 1);
        host.write_all(&bytes).unwrap();
        wait_until("the node's kernel has everything", || tcp_info(&host).is_ok_and(|info| !info.awaits_ack()));
        drop(host);
        std::thread::sleep(Duration::from_millis(300));
        let mut all = vec![0; BYTES];
        slow.read_exact(&mut all).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(all == bytes && !ends_cleanly(&mut slow), "{what}");
        wait_until(&format!("nothing is busy: {what}"), || {
            chain.entry.busy() == 0 && chain.nodes.iter().all(|node| node.busy() == 0)
        });
    };
    std::thread::scope(|scope| {
        for way in WAYS {
            for client_is_slow in [true, false] {
                let run = &run;
                scope.spawn(move || run(way, client_is_slow));
            }
        }
    });
}

/// A leg stands still for seconds then: its receiver makes room for megabytes at once.
#[test]
fn it_arrives_although_its_receiver_takes_little_at_a_time() {
    let bytes = noise(30_000_000, 12);
    let run = |mode| {
        let chain = Chain::of(mode, 1, "", "");
        let (listener, address) = listener();
        let mut client = chain.socks(address);
        let mut host = accept(&listener);
        client.write_all(b"nobody reads this").unwrap();
        assert_eq!(host.peek(&mut [0]).unwrap(), 1);
        host.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        // As much as there is room for.
        let _ = host.write_all(&bytes);
        // A SYN may be counted too.
        let had = tcp_info(&host).unwrap().acked_bytes as usize - 1;
        drop(host);
        let mut all = vec![0; had];
        let (late, rest) = all.split_at_mut(1_600_000);
        for piece in late.chunks_mut(4000) {
            std::thread::sleep(Duration::from_millis(12));
            client.read_exact(piece).unwrap();
        }
        client.read_exact(rest).unwrap_or_else(|error| panic!("{mode:?}: of {had} bytes: {error}"));
        assert!(all == bytes[..had]);
    };
    std::thread::scope(|scope| {
        for mode in [Mode::Plain, Mode::Tls] {
            let run = &run;
            scope.spawn(move || run(mode));
        }
    });
}

#[test]
fn a_stream_that_has_broken_does_not_outlive_its_limits() {
    let chain = Chain::of(Mode::Plain, 0, &format!("{BUFFERS}[limits]\nlifetime = \"2s\"\n"), "");
    let (mut host, mut slow) = stream(&chain, true);
    slow.write_all(b"nobody reads this").unwrap();
    assert_eq!(host.peek(&mut [0]).unwrap(), 1);
    host.write_all(&noise(BYTES, 11)).unwrap();
    drop(host);
    let mut piece = [0; 4000];
    let left = (0..BYTES / piece.len()).find_map(|_| {
        std::thread::sleep(Duration::from_millis(300));
        slow.read_exact(&mut piece).err()
    });
    assert_eq!(left.map(|error| error.kind()), Some(ErrorKind::ConnectionReset));
}

#[test]
fn a_host_that_reads_nothing_is_reset_too_although_both_have_broken() {
    for count in [0, 1] {
        let chain = Chain::of(Mode::Plain, count, BUFFERS, BUFFERS);
        let (listener, address) = listener();
        let mut client = chain.socks(address);
        let mut server = accept(&listener);
        // Nobody reads: all buffers on the way are full.
        fill(&mut client);
        fill(&mut server);
        reset(client);
        reset(server);
        wait_until("nothing is busy", || chain.entry.busy() == 0 && chain.nodes.iter().all(|node| node.busy() == 0));
    }
}
