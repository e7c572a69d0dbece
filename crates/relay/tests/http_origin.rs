//! What becomes of an origin's connection, and of a client's, when the other one is done.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::common::*;

/// An origin that says the same to every request and closes.
fn closing_origin() -> SocketAddr {
    server(|mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok");
    })
}

#[test]
fn an_origin_that_closes_after_each_response_leaves_the_leg_warm() {
    let chain = Chain::new(1);
    let origin = closing_origin();
    let mut client = connect(chain.address("web"));
    for _ in 0..5 {
        write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        read_head(&mut client);
        let mut body = [0; 2];
        client.read_exact(&mut body).unwrap();
        wait_until("the stream is over", || chain.nodes[0].busy() == 0);
        // The node said so a moment before the entry hears it.
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(chain.nodes[0].connections(), 1);
    }
}

#[test]
fn an_origin_is_let_go_when_its_client_resets() {
    for count in [0, 1] {
        let chain = Chain::new(count);
        let (host, origin) = listener();
        let mut client = connect(chain.address("web"));
        write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut silent = accept(&host);
        read_head(&mut silent);
        reset(client);
        ends_cleanly(&mut silent);
        wait_until("nothing is left", || chain.entry.connections() == 0);
    }
}

#[test]
fn a_client_that_ended_its_side_is_waited_for_but_not_for_ever() {
    let chain = Chain::with(0, "[limits]\npool_idle = \"500ms\"\n", "");
    let (host, origin) = listener();
    for answers in [true, false] {
        let mut client = connect(chain.address("web"));
        write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut server = accept(&host);
        read_head(&mut server);
        client.shutdown(Shutdown::Write).unwrap();
        if answers {
            std::thread::sleep(Duration::from_millis(100));
            server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
        } else {
            ends_cleanly(&mut server);
        }
        ends_cleanly(&mut client);
        wait_until("nothing is left", || chain.entry.connections() == 0);
    }
}

#[test]
fn a_request_that_stands_still_is_answered_by_504() {
    for count in [0, 1] {
        let chain = Chain::with(count, "[limits]\nresponse = \"300ms\"\n", "");
        let (host, origin) = listener();
        // Without a body, and with one of which nothing comes.
        for length in [0, 5] {
            let mut client = connect(chain.address("web"));
            write!(client, "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n").unwrap();
            let mut silent = accept(&host);
            let head = read_head(&mut client);
            assert!(head.starts_with("HTTP/1.1 504 "), "{head}");
            ends_cleanly(&mut silent);
        }
    }
}

#[test]
fn a_body_that_moves_and_a_response_that_has_begun_have_no_limit() {
    let chain = Chain::with(1, "[limits]\nresponse = \"500ms\"\n", "");
    let (host, origin) = listener();
    let mut client = connect(chain.address("web"));
    write!(client, "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n").unwrap();
    let mut server = accept(&host);
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(200));
        client.write_all(b"x").unwrap();
    }
    server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no").unwrap();
    std::thread::sleep(Duration::from_millis(700));
    server.write_all(b"k").unwrap();
    assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
    let mut body = [0; 2];
    client.read_exact(&mut body).unwrap();
}

#[test]
fn an_origin_that_resets_while_it_is_sent_a_body_has_not_ended_its_response() {
    for count in [0, 1] {
        let chain = Chain::new(count);
        let (host, origin) = listener();
        // Which of the node's two directions hears of the reset first is up to chance.
        for _ in 0..6 {
            let mut client = connect(chain.address("web"));
            write!(client, "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n").unwrap();
            let mut server = accept(&host);
            read_head(&mut server);
            // A client that writes would be told of the reset by that, and then be shown an end by its own kernel.
            fill(&mut client);
            server.write_all(b"HTTP/1.0 200 OK\r\n\r\na part").unwrap();
            // The rest of the request is not read, so closing resets.
            drop(server);
            let mut all = Vec::new();
            let ended = client.read_to_end(&mut all).is_ok();
            // Where the reset has overtaken the response, the node has one of its own to give.
            assert!(!ended || all.starts_with(b"HTTP/1.1 502 "), "{count} nodes: {}", String::from_utf8_lossy(&all));
        }
    }
}

/// A response that is complete, whatever is still to be read of the request.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Sends the head of a request with a body of `length` bytes; its origin answers at once.
fn answered_early(chain: &Chain, length: usize, answer: &[u8]) -> (TcpStream, TcpStream) {
    let (host, origin) = listener();
    let mut client = connect(chain.address("web"));
    write!(client, "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n").unwrap();
    let mut server = accept(&host);
    read_head(&mut server);
    server.write_all(answer).unwrap();
    read_head(&mut client);
    assert_eq!(body(&mut client, 2), b"ok");
    (client, server)
}

#[test]
fn an_origin_that_answers_early_and_reads_on_gets_the_whole_request() {
    const CLOSING: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    const UNTIL_END: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nok";
    // More than all buffers on the way hold.
    let data = noise(20_000_000, 14);
    for (count, answer) in
        [0, 1, 2].into_iter().flat_map(|count| [ANSWER, CLOSING, UNTIL_END].map(|answer| (count, answer)))
    {
        let chain = Chain::new(count);
        let (mut client, mut server) = answered_early(&chain, data.len(), answer);
        if answer == UNTIL_END {
            // The client sees the end of the response before it has sent its request.
            server.shutdown(Shutdown::Write).unwrap();
            assert!(ends_cleanly(&mut client));
        }
        std::thread::scope(|scope| {
            scope.spawn(|| client.write_all(&data).unwrap());
            assert!(body(&mut server, data.len()) == data, "{count} nodes");
        });
    }
}

#[test]
fn an_origin_that_says_more_than_it_was_asked_gets_the_whole_request() {
    const CLOSING: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    let data = noise(6_000_000, 15);
    let run = |(mode, count), answer: &[u8], is_at_once: bool| {
        let chain = Chain::of(mode, count, "", "");
        let more: &[u8] = if is_at_once { b"\r\n" } else { b"" };
        let (mut client, mut server) = answered_early(&chain, data.len(), &[answer, more].concat());
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| client.write_all(&data).unwrap());
            let mut got = body(&mut server, 100_000);
            if !is_at_once {
                server.write_all(b"\r\n").unwrap();
            }
            // Slowly: a tail is on its way when the client has sent all.
            while got.len() < data.len() {
                got.extend(body(&mut server, 100_000));
                std::thread::sleep(Duration::from_millis(5));
            }
            sender.join().unwrap();
            assert!(got == data, "{mode:?}, {count} nodes, at once: {is_at_once}");
        });
        drop((client, server));
        wait_until("nothing is left", || chain.entry.connections() == 0);
    };
    let run = &run;
    std::thread::scope(|scope| {
        for way in [(Mode::Plain, 0), (Mode::Plain, 1), (Mode::Tls, 1), (Mode::Plain, 2)] {
            for answer in [ANSWER, CLOSING] {
                scope.spawn(move || [true, false].map(|is_at_once| run(way, answer, is_at_once)));
            }
        }
    });
}

#[test]
fn a_client_is_served_again_when_all_of_a_request_that_was_answered_early_is_sent() {
    for count in [0, 1] {
        let chain = Chain::new(count);
        let (mut client, mut server) = answered_early(&chain, 3, ANSWER);
        let address = server.local_addr().unwrap();
        write!(client, "abcGET http://{address}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert_eq!(body(&mut server, 3), b"abc");
        read_head(&mut server);
        server.write_all(ANSWER).unwrap();
        read_head(&mut client);
    }
}

#[test]
fn a_client_that_sends_no_more_after_an_early_answer_has_it_and_its_origin_no_end() {
    for count in [0, 1] {
        let chain = Chain::new(count);
        let refusal = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
        let (mut client, mut server) = answered_early(&chain, 1_000_000, refusal);
        client.write_all(b"abc").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert!(ends_cleanly(&mut client));
        assert!(!ends_cleanly(&mut server), "{count} nodes");
        wait_until("nothing is left", || chain.entry.connections() == 0);
    }
}

#[test]
fn an_origin_that_answers_ends_and_resets_holds_no_upload() {
    let refusal = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    for (mode, count) in [(Mode::Plain, 0), (Mode::Plain, 1), (Mode::Tls, 1), (Mode::Plain, 2)] {
        let chain = Chain::of(mode, count, "", "");
        let (mut client, mut server) = answered_early(&chain, 80_000_000, refusal);
        // Nobody has asked for it.
        server.write_all(b"\r\n").unwrap();
        let sender = std::thread::spawn(move || {
            let piece = [7; 1 << 16];
            while let Ok(_more) = client.write_all(&piece) {}
            client
        });
        server.shutdown(Shutdown::Write).unwrap();
        server.read_exact(&mut vec![0; 500_000]).unwrap();
        reset(server);
        wait_until(&format!("the upload ends: {mode:?}, {count} nodes"), || sender.is_finished());
        wait_until("nothing is left", || chain.entry.connections() == 0);
    }
}

/// A chain of so many nodes behind the entry, whose client has had an answer to a POST and has sent the next one on the same connection,
/// all of which the origin has read but for its body.
fn second_post(count: usize) -> (Chain, TcpStream, TcpStream) {
    let chain = Chain::new(count);
    let (host, origin) = listener();
    let mut client = connect(chain.address("web"));
    let post = |client: &mut TcpStream| {
        write!(client, "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx").unwrap()
    };
    post(&mut client);
    let mut server = accept(&host);
    read_head(&mut server);
    server.read_exact(&mut [0]).unwrap();
    server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    read_head(&mut client);
    client.read_exact(&mut [0; 2]).unwrap();
    post(&mut client);
    read_head(&mut server);
    (chain, client, server)
}

#[test]
fn a_post_that_meets_the_end_of_a_kept_connection_is_left_to_the_client_to_repeat() {
    // What is unread makes a reset of the end.
    for (count, is_read) in [(0, true), (0, false), (2, true), (2, false)] {
        let (_chain, mut client, mut server) = second_post(count);
        if is_read {
            server.read_exact(&mut [0]).unwrap();
        }
        drop(server);
        let mut all = Vec::new();
        let _ = client.read_to_end(&mut all);
        assert!(all.is_empty(), "{count} nodes: {}", String::from_utf8_lossy(&all));
    }
}

#[test]
fn a_part_of_a_response_on_a_kept_connection_is_answered_by_502() {
    for (count, part) in [(0, "200 OK\r\nContent-Len"), (2, "200 OK\r\nContent-Len"), (0, "103 Early Hints\r\n\r\n")] {
        let (_chain, mut client, mut server) = second_post(count);
        server.read_exact(&mut [0]).unwrap();
        write!(server, "HTTP/1.1 {part}").unwrap();
        drop(server);
        let mut head = read_head(&mut client);
        if head.starts_with("HTTP/1.1 103 ") {
            head = read_head(&mut client);
        }
        assert!(head.starts_with("HTTP/1.1 502 "), "{count} nodes: {head}");
    }
}
