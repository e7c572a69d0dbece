//! Nodes in between that pass everything on, beside destinations, clients and limits that look as if they did not: none is set aside.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::overlay::{Overlay, here};
use crate::common::*;
use ekiden_relay::{Config, Relay};
use socket2::SockRef;

/// For how long the node of this number is set aside.
fn aside(overlay: &Overlay, number: usize) -> Option<f64> {
    let name = overlay.name(number);
    overlay.status(0).nodes.into_iter().find(|node| node.name == name).unwrap().aside_s
}

/// A destination that is there and not there in turn, for so long each.
fn flapping(each: Duration) -> SocketAddr {
    let address = spare_port();
    std::thread::spawn(move || {
        loop {
            let listener = TcpListener::bind(address).unwrap();
            listener.set_nonblocking(true).unwrap();
            let (begun, mut streams) = (Instant::now(), Vec::new());
            while begun.elapsed() < each {
                streams.extend(listener.accept().ok());
                std::thread::sleep(Duration::from_millis(2));
            }
            drop(listener);
            std::thread::sleep(each);
        }
    });
    address
}

/// A destination that takes connections only after so long: its queue is full until then.
fn late(after: Duration) -> SocketAddr {
    let (listener, address) = listener();
    let socket = SockRef::from(&listener);
    socket.listen(0).unwrap();
    let full = TcpStream::connect(address).unwrap();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(after);
            let _ = listener.accept();
            drop(TcpStream::connect(address));
            let _ = &full;
        }
    });
    address
}

/// Asks for a stream to `to` again and again, says `said`, waits as long as it is told to and drops it.
fn client(overlay: &Overlay, to: SocketAddr, said: &[u8], stays: Duration, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let Some(mut stream) = overlay.stream(to) else { continue };
        stream.set_write_timeout(Some(stays)).unwrap();
        stream.set_read_timeout(Some(stays)).unwrap();
        let _ = stream.write_all(said);
        let begun = Instant::now();
        while begun.elapsed() < stays && matches!(stream.read(&mut [0; 4096]), Ok(1..)) {}
        std::thread::sleep(stays.saturating_sub(begun.elapsed()));
    }
}

#[test]
fn no_destination_and_no_client_sets_a_node_aside() {
    let overlay = Overlay::new(3, here, "class = \"interactive\"\nthrough = [\"@b\"]");
    let second = Duration::from_secs(1);
    // It says a byte now and then.
    let slow = server(|mut stream| {
        while stream.write_all(&[7]).is_ok() {
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    // It reads nothing; it reads a little now and then.
    let deaf = server(|stream| {
        std::thread::sleep(Duration::from_secs(60));
        drop(stream);
    });
    let reads_slowly = server(|mut stream| {
        SockRef::from(&stream).set_recv_buffer_size(4096).unwrap();
        while matches!(stream.read(&mut [0; 100]), Ok(1..)) {
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    // It says what the client cannot read; resets when it has answered; says bytes that are not carried.
    let floods = server(|mut stream| while stream.write_all(&[7; 65_536]).is_ok() {});
    let resets = server(|mut stream| {
        let _ = stream.read(&mut [0; 64]);
        let _ = stream.write_all(&[7; 300_000]);
        reset(stream);
    });
    let urgent = server(|mut stream| {
        for _ in 0..20 {
            let _ = SockRef::from(&stream).send_out_of_band(b"!");
            let _ = stream.write_all(&[7; 9]);
        }
        let _ = stream.read(&mut [0; 64]);
        std::thread::sleep(Duration::from_secs(6));
    });
    let half = server(|mut stream| {
        let _ = stream.write_all(&[7; 64]);
        let _ = stream.shutdown(Shutdown::Write);
        std::thread::sleep(Duration::from_secs(6));
    });
    // Its answer's head stands still half way, behind one that says that more is to come.
    let stalls = server(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n");
        std::thread::sleep(Duration::from_secs(60));
    });
    let mut web = connect(overlay.nodes[0].as_ref().unwrap().address("web").unwrap());
    write!(web, "GET http://{stalls}/ HTTP/1.1\r\nHost: {stalls}\r\n\r\n").unwrap();
    // Nobody reads it.
    let mut unread = None;
    wait_until("a stream comes about", || {
        unread = overlay.stream(floods);
        unread.is_some()
    });
    let big = vec![7; 3 << 20];
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (overlay, is_over, big) = (&overlay, &is_over, &big[..]);
        let begin = |to, said, stays| _ = scope.spawn(move || client(overlay, to, said, stays, is_over));
        for each in [30, 45, 60] {
            begin(flapping(Duration::from_millis(each)), b"said".as_slice(), Duration::from_millis(20));
        }
        begin(late(3 * second), b"said", second);
        begin(late(4 * second), b"said", second);
        begin(slow, b"", 5 * second);
        begin(deaf, big, 7 * second);
        begin(reads_slowly, big, 7 * second);
        begin(floods, b"", second / 100);
        begin(resets, b"said", second / 10);
        begin(urgent, b"said", 7 * second);
        begin(half, b"said", 7 * second);
        begin(echo(), b"said", second / 20);
        begin(closed_port(), b"", second / 100);
        let begun = Instant::now();
        while begun.elapsed() < 9 * second {
            std::thread::sleep(second / 4);
            let aside = aside(overlay, 1);
            if aside.is_some() {
                is_over.store(true, Ordering::Relaxed);
            }
            assert_eq!(aside, None, "after {:?}", begun.elapsed());
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn destinations_that_come_and_go_set_no_node_aside_where_there_are_several() {
    let overlay = Overlay::new(4, here, "class = \"interactive\"\nmost_relays = 1");
    let to = [25, 35, 50].map(|each| flapping(Duration::from_millis(each)));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for to in to.into_iter().chain([echo()]) {
            let (overlay, is_over) = (&overlay, &is_over);
            scope.spawn(move || client(overlay, to, b"said", Duration::from_millis(10), is_over));
        }
        std::thread::sleep(Duration::from_secs(6));
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!([aside(&overlay, 1), aside(&overlay, 2)], [None, None]);
}

#[test]
fn a_node_whose_limits_break_idle_streams_off_is_not_set_aside() {
    let mut overlay = Overlay::new(3, here, "class = \"interactive\"\nthrough = [\"@b\"]");
    drop(overlay.nodes[1].take());
    let text = format!("{}[limits]\nidle = \"5500ms\"\n", overlay.text(1, ""));
    let limited = Relay::start(Config::parse(&text, &overlay.folder.join("node.toml")).unwrap()).unwrap();
    overlay.nodes[1] = Some(limited);
    let echo = echo();
    let is_broken = |mut stream: TcpStream| {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(&[7; 64]).unwrap();
        stream.read_exact(&mut [0; 64]).unwrap();
        let said = stream.read(&mut [0]);
        said.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
    };
    let mut first = None;
    wait_until("streams go over b", || {
        first = overlay.stream(echo);
        first.is_some()
    });
    std::thread::scope(|scope| {
        let first = scope.spawn(|| is_broken(first.unwrap()));
        std::thread::sleep(Duration::from_millis(2_500));
        let second = scope.spawn(|| is_broken(overlay.stream(echo).unwrap()));
        assert!(first.join().unwrap() && second.join().unwrap());
    });
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(aside(&overlay, 1), None);
}

#[test]
fn a_node_that_is_started_anew_is_not_set_aside() {
    let mut overlay = Overlay::new(3, here, "class = \"interactive\"\nthrough = [\"@b\"]");
    let echo = echo();
    let mut streams = Vec::new();
    wait_until("streams go over b", || {
        streams.extend(overlay.stream(echo));
        streams.len() == 5
    });
    for stream in &mut streams {
        stream.write_all(&[7; 64]).unwrap();
        stream.read_exact(&mut [0; 64]).unwrap();
    }
    drop(overlay.nodes[1].take());
    for stream in &mut streams {
        stream.read_exact(&mut [0]).expect_err("it is broken off");
    }
    overlay.nodes[1] = Some(overlay.start(1, ""));
    let data = Arc::new(noise(1_000, 1));
    wait_until("streams go over b again", || {
        overlay.stream(echo).is_some_and(|stream| exchange(stream, &data) == *data)
    });
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(aside(&overlay, 1), None);
}
