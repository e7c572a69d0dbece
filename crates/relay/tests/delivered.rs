//! What was said to a server that ends its side first and reads late arrives, whatever becomes of the entry's connection
//! to the next node after the client has left; and streams that come later do not wait behind it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::peer::{accept_node, ask_for, frame, open_at, say, stream_that_both_end};
use crate::common::process::Process;
use crate::common::*;
use ekiden_relay::Relay;
use ekiden_relay_proto::leg::{FrameKind, Header, Opened};
use nix::sys::signal::Signal;
use socket2::{Domain, Socket, Type};

/// More than the sockets on the way to a server that does not read take at first.
const SAID: usize = 5_000_000;

/// Nodes behind the entry.
const COUNTS: [usize; 3] = [1, 2, 3];

/// The nodes behind an entry, and what the entry's file says.
struct Way {
    mode: Mode,
    nodes: Vec<Relay>,
    text: String,
}

impl Way {
    fn new(mode: Mode, count: usize) -> Self {
        Self::having(mode, count, "")
    }

    /// With more configuration for each of the nodes.
    fn having(mode: Mode, count: usize, each: &str) -> Self {
        let mut nodes: Vec<Relay> = Vec::new();
        for i in (1..=count).rev() {
            let next = format!("n{}", i + 1);
            let peer = nodes.first().map(|node| (next.as_str(), node.address("leg").unwrap()));
            nodes.insert(0, leg_node(mode, &format!("n{i}"), peer, each));
        }
        let via: Vec<String> = (1..=count).map(|i| format!("n{i}")).collect();
        let (own, known, address) = (mode.node("key"), mode.peer("key"), nodes[0].address("leg").unwrap());
        let text = format!(
            "name = \"entry\"\n{own}threads = 2\n[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n\
             [listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n\
             [[route]]\nto = [\"*\"]\nvia = {via:?}\n[peer.n1]\naddress = \"{address}\"\n{known}"
        );
        Self { mode, nodes, text }
    }

    /// The entry's file with more behind the entry of its peer.
    fn with(&self, more: &str) -> String {
        format!("{}{more}", self.text)
    }
}

/// Plain and TLS, one node, two and three.
fn ways() -> impl Iterator<Item = Way> {
    [Mode::Plain, Mode::Tls].into_iter().flat_map(|mode| COUNTS.map(|count| Way::new(mode, count)))
}

/// A stream whose server has said its end and not read a byte, and whose client has said [`SAID`] bytes, seen the server's
/// end and left.
struct Late {
    server: TcpStream,
    data: Vec<u8>,
}

/// What the server got.
#[derive(Debug, PartialEq, Eq)]
enum Got {
    All,
    Reset,
}

impl Late {
    fn new(socks_listener: SocketAddr) -> Self {
        let (listener, target) = listener();
        let (code, mut client) = socks(socks_listener, "127.0.0.1", target.port());
        assert_eq!(code, 0);
        let late = Self { server: Self::accept(&listener), data: noise(SAID, 9) };
        client.write_all(&late.data).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut end = Vec::new();
        client.read_to_end(&mut end).unwrap();
        assert_eq!(end, b"that is all");
        late
    }

    fn accept(listener: &TcpListener) -> TcpStream {
        let mut server = accept(listener);
        server.write_all(b"that is all").unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        server
    }

    /// Reads at last. An end before the last byte is nobody's to say.
    fn read(mut self) -> Got {
        let mut all = Vec::new();
        match self.server.read_to_end(&mut all) {
            Ok(_) => {
                assert!(all == self.data, "{} of {SAID} bytes and an end", all.len());
                Got::All
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                eprintln!("{} of {SAID} bytes and a reset", all.len());
                Got::Reset
            }
        }
    }
}

/// An origin that answers before it reads the body, keeps its connection, and reads after the client has left.
#[test]
fn a_request_whose_origin_reads_late_arrives_whole() {
    let lanes: Vec<_> = ways().map(|way| std::thread::spawn(move || late_origin(&way))).collect();
    lanes.into_iter().for_each(|lane| lane.join().unwrap());
}

fn late_origin(way: &Way) {
    let entry = node(&way.text);
    let (listener, origin) = listener();
    // The sockets on the way take it all, so that the request is over for the client.
    let body = noise(1_500_000, 10);
    let mut client = connect(entry.address("web").unwrap());
    write!(client, "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len()).unwrap();
    let mut server = accept(&listener);
    read_head(&mut server);
    client.write_all(&body).unwrap();
    a_moment();
    server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
    client.read_exact(&mut [0; 2]).unwrap();
    drop(client);
    // Longer than an origin is waited for in passing.
    sleep(Duration::from_millis(3500));
    let mut all = Vec::new();
    server.read_to_end(&mut all).unwrap();
    assert!(all == body, "{} of {} bytes, {:?}, {} nodes", all.len(), body.len(), way.mode, way.nodes.len());
    drop(server);
    wait_until("the connection is free", || entry.idle("n1") == 1);
}

/// Time for the entry to do whatever it does to a connection.
fn a_moment() {
    sleep(Duration::from_millis(400));
}

#[test]
fn nothing_is_lost_where_no_connection_is_kept() {
    for way in ways() {
        let entry = node(&way.with("[limits]\npool = 0\n"));
        let late = Late::new(entry.address("socks").unwrap());
        a_moment();
        assert_eq!(late.read(), Got::All, "{:?}, {} nodes", way.mode, way.nodes.len());
        wait_until("the entry is done", || entry.connections() == 0 && entry.busy() == 0);
        assert_eq!(entry.idle("n1"), 0);
    }
}

#[test]
fn nothing_is_lost_when_the_peer_changes() {
    for way in ways() {
        let mut entry = node(&way.text);
        let late = Late::new(entry.address("socks").unwrap());
        a_moment();
        entry.reload(config(&way.with("tcp = { keepalive = \"7s\" }\n"))).unwrap();
        a_moment();
        assert_eq!(late.read(), Got::All, "{:?}, {} nodes", way.mode, way.nodes.len());
    }
}

#[test]
fn nothing_is_lost_when_kept_connections_expire() {
    for way in ways() {
        let entry = node(&way.with("[limits]\npool_idle = \"100ms\"\n"));
        let late = Late::new(entry.address("socks").unwrap());
        sleep(Duration::from_millis(800));
        assert_eq!(late.read(), Got::All, "{:?}, {} nodes", way.mode, way.nodes.len());
    }
}

#[test]
fn an_entry_that_is_stopped_waits_until_all_has_been_delivered() {
    for way in ways() {
        let mut entry = Process::start(
            &format!("delivered-stop-{:?}-{}", way.mode, way.nodes.len()),
            &way.with("[limits]\ndrain = \"1h\"\n"),
        );
        let late = Late::new(entry.addresses[0]);
        a_moment();
        entry.signal(Signal::SIGTERM);
        assert!(!entry.ends_within(Duration::from_millis(500)), "{:?}, {} nodes", way.mode, way.nodes.len());
        assert_eq!(late.read(), Got::All, "{:?}, {} nodes", way.mode, way.nodes.len());
        entry.ensure_ends();
    }
}

#[test]
fn an_entry_that_stops_waiting_leaves_what_is_on_its_way_to_the_kernel() {
    for way in ways() {
        let mut entry = Process::start(
            &format!("delivered-leave-{:?}-{}", way.mode, way.nodes.len()),
            &way.with("[limits]\ndrain = \"100ms\"\n"),
        );
        let late = Late::new(entry.addresses[0]);
        a_moment();
        entry.signal(Signal::SIGTERM);
        entry.ensure_ends();
        assert_eq!(late.read(), Got::All, "{:?}, {} nodes", way.mode, way.nodes.len());
    }
}

#[test]
fn an_entry_that_goes_leaves_what_is_on_its_way_to_the_kernel() {
    for way in ways() {
        let entry = node(&way.text);
        let late = Late::new(entry.address("socks").unwrap());
        a_moment();
        drop(entry);
        a_moment();
        assert_eq!(late.read(), Got::All, "{:?}, {} nodes", way.mode, way.nodes.len());
    }
}

#[test]
fn a_killed_entry_leaves_no_false_end() {
    for way in ways() {
        let mut entry = Process::start(&format!("delivered-kill-{:?}-{}", way.mode, way.nodes.len()), &way.text);
        let late = Late::new(entry.addresses[0]);
        a_moment();
        entry.signal(Signal::SIGKILL);
        entry.child.wait().unwrap();
        a_moment();
        // With an end it is all.
        late.read();
    }
}

#[test]
fn streams_that_come_later_do_not_wait_behind_it() {
    let echo = late_echo();
    for way in ways() {
        let entry = node(&way.text);
        let socks_listener = entry.address("socks").unwrap();
        let mut late = Vec::new();
        // Forty of these made every other client fail for 20 s.
        let many = if way.nodes.len() == 1 { 40 } else { 2 };
        for _ in 0..many {
            late.push(Late::new(socks_listener));
        }
        let begun = Instant::now();
        for _ in 0..many {
            let (code, stream) = socks(socks_listener, "127.0.0.1", echo.port());
            assert_eq!((code, exchange(stream, b"hello")), (0, b"hello".to_vec()));
        }
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}, {:?}, {} nodes", way.mode, way.nodes.len());
        for late in late {
            assert_eq!(late.read(), Got::All, "{:?}, {} nodes", way.mode, way.nodes.len());
        }
        // What is free afterwards is what there is.
        wait_until("all are done", || entry.busy() == 0);
        assert!(entry.idle("n1") > 0);
    }
}

/// What the test says to a node as its dialler.
fn payload(bytes: &[u8]) -> Vec<u8> {
    Header::frame(FrameKind::Data, bytes)
}

/// Whether nothing comes within a moment.
fn is_silent(stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let seen = stream.peek(&mut [0]);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    seen.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn an_exit_says_delivered_once_in_place_of_its_end_or_behind_it() {
    let exit = leg_node(Mode::Plain, "exit", None, "");
    let (listener, target) = listener();
    let mut stream = open_at(exit.address("leg").unwrap(), target);
    for round in 0..2 {
        // The dialler's side ends first.
        let mut server = accept(&listener);
        stream.write_all(&payload(b"hello")).unwrap();
        say(&stream, FrameKind::End);
        assert!(ends_cleanly(&mut server));
        assert!(is_silent(&stream));
        server.write_all(b"bye").unwrap();
        drop(server);
        assert_eq!(frame(&mut stream), (FrameKind::Data, b"bye".to_vec()), "round {round}");
        assert_eq!(frame(&mut stream).0, FrameKind::Delivered, "round {round}");
        assert!(is_silent(&stream));
        // The server's does.
        ask_for(&mut stream, target);
        let mut server = accept(&listener);
        server.shutdown(Shutdown::Write).unwrap();
        assert_eq!(frame(&mut stream).0, FrameKind::End, "round {round}");
        stream.write_all(&payload(b"late")).unwrap();
        assert!(is_silent(&stream));
        say(&stream, FrameKind::End);
        assert_eq!(frame(&mut stream).0, FrameKind::Delivered, "round {round}");
        assert!(ends_cleanly(&mut server));
        ask_for(&mut stream, target);
    }
}

#[test]
fn an_exit_says_nothing_while_its_host_has_no_room() {
    let exit = leg_node(Mode::Plain, "exit", None, "");
    for server_resets in [false, true] {
        let (listener, target) = listener();
        let mut stream = open_at(exit.address("leg").unwrap(), target);
        let mut server = accept(&listener);
        server.shutdown(Shutdown::Write).unwrap();
        assert_eq!(frame(&mut stream).0, FrameKind::End);
        // More than a receiver takes that does not read, and less than the exit's own socket does besides.
        let data = noise(1_500_000, 11);
        data.chunks(1 << 20).for_each(|piece| stream.write_all(&payload(piece)).unwrap());
        say(&stream, FrameKind::End);
        assert!(is_silent(&stream));
        assert_eq!(exit.busy(), 1);
        if server_resets {
            reset(server);
        } else {
            let mut all = Vec::new();
            server.read_to_end(&mut all).unwrap();
            assert!(all == data);
        }
        // There is nobody to tell of a reset, and nothing left.
        assert_eq!(frame(&mut stream).0, FrameKind::Delivered);
        wait_until("the stream is over", || exit.busy() == 0);
    }
}

#[test]
fn a_host_gets_all_also_from_an_exit_whose_dialler_has_gone() {
    let exit = leg_node(Mode::Plain, "exit", None, "");
    let (listener, target) = listener();
    let mut stream = open_at(exit.address("leg").unwrap(), target);
    let mut server = accept(&listener);
    server.shutdown(Shutdown::Write).unwrap();
    assert_eq!(frame(&mut stream).0, FrameKind::End);
    let data = noise(1_500_000, 12);
    data.chunks(1 << 20).for_each(|piece| stream.write_all(&payload(piece)).unwrap());
    say(&stream, FrameKind::End);
    a_moment();
    reset(stream);
    a_moment();
    let mut all = Vec::new();
    server.read_to_end(&mut all).unwrap();
    assert!(all == data);
}

#[test]
fn one_client_whose_origins_read_late_does_not_fill_the_nodes_behind_the_entry() {
    const REQUESTS: usize = 300;
    // As many as the entry waits for, and as each node does whose dialler has gone.
    const EACH: usize = 64;
    const KEPT: usize = 8;
    // The pauses between retransmissions grow to 1 s: what the kernel is left with would be given up after about 3 s.
    let tcp = "[tcp]\nkeepalive = \"6s\"\n";
    let way = Way::having(Mode::Tls, 2, tcp);
    let entry = node(&way.with(tcp));
    let small = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    small.set_recv_buffer_size(4096).unwrap();
    small.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    small.listen(16).unwrap();
    let listener = TcpListener::from(small);
    let origin = listener.local_addr().unwrap();
    let body = noise(60_000, 13);
    let mut client = connect(entry.address("web").unwrap());
    let mut servers = Vec::new();
    for _ in 0..REQUESTS {
        write!(client, "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len()).unwrap();
        client.write_all(&body).unwrap();
        let mut server = accept(&listener);
        read_head(&mut server);
        server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
        client.read_exact(&mut [0; 2]).unwrap();
        servers.push(server);
    }
    wait_until("the nodes have few of them", || {
        way.nodes.iter().zip(2..).all(|(node, before)| node.connections() <= before * EACH + KEPT)
    });
    sleep(Duration::from_secs(5));
    for mut server in servers {
        let mut all = Vec::new();
        server.read_to_end(&mut all).unwrap();
        assert!(all == body, "{} bytes", all.len());
    }
    wait_until("all have been delivered", || way.nodes.iter().all(|node| node.busy() == 0));
}

#[test]
fn delivered_out_of_place_resets_the_stream() {
    // A dialler has nothing to say it of.
    let exit = leg_node(Mode::Plain, "exit", None, "");
    let (host, target) = listener();
    let stream = open_at(exit.address("leg").unwrap(), target);
    let mut server = accept(&host);
    say(&stream, FrameKind::Delivered);
    assert!(!ends_cleanly(&mut server));
    // Nor has an acceptor before all was said.
    let (listener, address) = listener();
    let entry = node(&format!(
        "[listen.fwd]\nkind = \"forward\"\naddress = \"127.0.0.1:0\"\nto = \"192.0.2.1:1\"\nvia = [\"p\"]\n\
         [peer.p]\naddress = \"{address}\"\nplain_key_file = \"key\"\n"
    ));
    let mut client = connect(entry.address("fwd").unwrap());
    let mut peer = accept_node(&listener);
    assert_eq!(frame(&mut peer).0, FrameKind::Open);
    peer.write_all(&Opened::at(None).encode()).unwrap();
    say(&peer, FrameKind::Delivered);
    assert!(!ends_cleanly(&mut client));
}

#[test]
fn a_connection_is_not_used_again_before_delivered() {
    let (listener, address) = listener();
    let entry = node(&format!(
        "[listen.fwd]\nkind = \"forward\"\naddress = \"127.0.0.1:0\"\nto = \"192.0.2.1:1\"\nvia = [\"p\"]\n\
         [peer.p]\naddress = \"{address}\"\nplain_key_file = \"key\"\n"
    ));
    let front = entry.address("fwd").unwrap();
    let mut client = connect(front);
    let mut first = accept_node(&listener);
    assert_eq!(frame(&mut first).0, FrameKind::Open);
    first.write_all(&Opened::at(None).encode()).unwrap();
    say(&first, FrameKind::End);
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(frame(&mut first).0, FrameKind::End);
    // The client is not made to wait.
    assert!(ends_cleanly(&mut client));
    assert_eq!((entry.idle("p"), entry.busy(), entry.connections()), (0, 1, 1));
    let _second = connect(front);
    let mut other = accept_node(&listener);
    assert_eq!(frame(&mut other).0, FrameKind::Open);
    say(&first, FrameKind::Delivered);
    wait_until("it is free", || entry.idle("p") == 1);
    let _third = connect(front);
    assert_eq!(frame(&mut first).0, FrameKind::Open);
}

#[test]
fn a_peer_that_never_says_delivered_is_left_by_a_fin_when_the_limits_pass() {
    for limit in ["idle", "lifetime"] {
        let (listener, address) = listener();
        let entry = node(&format!(
            "[limits]\n{limit} = \"2s\"\n\
             [listen.fwd]\nkind = \"forward\"\naddress = \"127.0.0.1:0\"\nto = \"192.0.2.1:1\"\nvia = [\"p\"]\n\
             [peer.p]\naddress = \"{address}\"\nplain_key_file = \"key\"\n"
        ));
        let (mut client, mut peer) = stream_that_both_end(&entry, &listener);
        assert_eq!(frame(&mut peer).0, FrameKind::End);
        assert!(ends_cleanly(&mut client));
        assert!(ends_cleanly(&mut peer), "{limit}");
        wait_until("nothing is busy", || entry.busy() == 0);
        assert_eq!(entry.idle("p"), 0);
    }
}

#[test]
fn what_is_not_delivered_keeps_no_turn_and_no_place_of_a_client_beyond_its_share() {
    let (listener, address) = listener();
    let entry = node(&format!(
        "[class.bulk]\nstreams = 1\n\
         [listen.fwd]\nkind = \"forward\"\naddress = \"127.0.0.1:0\"\nto = \"192.0.2.1:1\"\nvia = [\"p\"]\n\
         [peer.p]\naddress = \"{address}\"\nplain_key_file = \"key\"\n"
    ));
    let mut streams: Vec<_> = (0..18).map(|_| stream_that_both_end(&entry, &listener)).collect();
    streams.iter_mut().for_each(|(client, _)| assert!(ends_cleanly(client)));
    wait_until("16 places are free", || entry.connections() == 2);
    assert_eq!(entry.busy(), 18);
    streams.iter().for_each(|(_, peer)| say(peer, FrameKind::Delivered));
    wait_until("all have been delivered", || entry.busy() == 0 && entry.connections() == 0 && entry.idle("p") == 18);
}
