//! The life of a node's process: signals, and a death that must not look like an end.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::net::SocketAddr;
use std::time::Duration;

use crate::common::process::Process;
use crate::common::*;
use ekiden_net::tcp_info::tcp_info;
use nix::sys::signal::Signal;

const SOCKS: &str = "[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n";

fn open(process: &Process, host: &std::net::TcpListener) -> (std::net::TcpStream, std::net::TcpStream) {
    let (code, client) = socks(process.addresses[0], "127.0.0.1", host.local_addr().unwrap().port());
    assert_eq!(code, 0);
    (client, accept(host))
}

#[test]
fn a_killed_node_never_looks_like_an_end() {
    for (mode, victim) in [
        (Mode::Plain, "only"),
        (Mode::Plain, "entry"),
        (Mode::Plain, "exit"),
        (Mode::Tls, "entry"),
        (Mode::Tls, "exit"),
    ] {
        let (key, nodes, known) = (mode.node("key"), mode.listener("key"), mode.peer("key"));
        let leg = format!("[listen.leg]\nkind = \"leg\"\naddress = \"127.0.0.1:0\"\n{nodes}");
        for sent in [0, 10, 8 << 20] {
            let exit = Process::start("kill-exit", &format!("{key}{leg}"));
            let via = format!(
                "[peer.exit]\naddress = \"{}\"\n{known}[[route]]\nto = [\"*\"]\nvia = [\"exit\"]\n",
                exit.addresses[0]
            );
            let way = if victim == "only" { String::new() } else { format!("{key}{SOCKS}{via}") };
            let entry = Process::start("kill-entry", if victim == "only" { SOCKS } else { &way });
            let (host, _) = listener();
            let (mut client, mut server) = open(&entry, &host);
            // A one-way stream, under way: the receiver has not read what is on its way.
            let writer = std::thread::spawn(move || {
                let _ = server.set_write_timeout(Some(Duration::from_millis(300)));
                let _ = server.write_all(&noise(sent, 1));
                server
            });
            let server = writer.join().unwrap();
            std::thread::sleep(Duration::from_millis(50));
            if victim == "exit" { &exit } else { &entry }.signal(Signal::SIGKILL);
            let mut server = server;
            assert!(!ends_cleanly(&mut client), "client, {victim} killed after {sent} bytes");
            assert!(!ends_cleanly(&mut server), "server, {victim} killed after {sent} bytes");
        }
    }
}

#[test]
fn sigterm_lets_streams_end_and_resets_those_that_do_not() {
    let (host, _) = listener();
    for (ends, drain) in [(true, "300s"), (false, "1s")] {
        let mut process = Process::start(&format!("term-{ends}"), &format!("[limits]\ndrain = \"{drain}\"\n{SOCKS}"));
        let (mut client, mut server) = open(&process, &host);
        process.signal(Signal::SIGTERM);
        wait_until("nobody accepts", || std::net::TcpStream::connect(process.addresses[0]).is_err());
        if ends {
            server.write_all(b"the last words").unwrap();
            drop(client.try_clone().unwrap().shutdown(Shutdown::Write));
            let mut rest = Vec::new();
            server.read_to_end(&mut rest).unwrap();
            drop(server);
            let mut words = String::new();
            client.read_to_string(&mut words).unwrap();
            assert_eq!(words, "the last words");
        } else {
            assert!(!ends_cleanly(&mut client));
            assert!(!ends_cleanly(&mut server));
        }
        process.ensure_ends();
        assert!(process.child.wait().unwrap().success());
    }
}

#[test]
fn a_new_process_takes_the_listener_over_while_streams_of_the_old_one_go_on() {
    let (host, _) = listener();
    let socks_at = SOCKS.replace("127.0.0.1:0", &spare_port().to_string());
    let mut old = Process::start("old", &socks_at);
    let (mut client, mut server) = open(&old, &host);
    old.signal(Signal::SIGTERM);
    old.wait_for_line("stopping: 1 stream runs, and has 3600s to end");
    // The old one still closes its listener, and no client is refused meanwhile.
    let new = Process::start("new", &socks_at);
    let (mut other, mut other_server) = open(&new, &host);
    for (from, to) in [(&mut client, &mut server), (&mut other, &mut other_server)] {
        let sent = noise(100_000, 7);
        from.write_all(&sent).unwrap();
        let mut got = vec![0; sent.len()];
        to.read_exact(&mut got).unwrap();
        assert!(got == sent);
    }
    assert!(old.child.try_wait().unwrap().is_none(), "its stream runs");
    drop(client.shutdown(Shutdown::Write));
    drop(server);
    old.ensure_ends();
    assert!(old.child.wait().unwrap().success());
}

#[test]
fn a_client_is_told_that_a_node_that_stops_closes() {
    let (host, address) = listener();
    let http = SOCKS.replace("socks5", "http").replace("socks", "http");
    let process = Process::start("close", &http);
    let asks = |client: &mut std::net::TcpStream| {
        client.write_all(format!("GET http://{address}/ HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
    };
    let answers = |server: &mut std::net::TcpStream| {
        read_head(server);
        server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    };
    // One waits for its answer, and one has begun a second request.
    let [mut waits, mut begins] = [(); 2].map(|()| connect(process.addresses[0]));
    asks(&mut begins);
    let mut of_begins = accept(&host);
    answers(&mut of_begins);
    assert!(!read_head(&mut begins).contains("Connection: close"));
    body(&mut begins, 2);
    begins.write_all(b"GET http").unwrap();
    asks(&mut waits);
    let mut of_waits = accept(&host);
    process.signal(Signal::SIGTERM);
    process.wait_for_line("stopping: ");
    begins.write_all(format!("://{address}/ HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
    for (client, server) in [(&mut begins, &mut of_begins), (&mut waits, &mut of_waits)] {
        answers(server);
        assert!(read_head(client).contains("Connection: close"));
        assert_eq!(body(client, 2), b"ok");
        assert!(ends_cleanly(client));
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    let (host, _) = listener();
    let mut process = Process::start("twice", &format!("[limits]\ndrain = \"1h\"\n{SOCKS}"));
    let (mut client, _server) = open(&process, &host);
    process.signal(Signal::SIGINT);
    wait_until("nobody accepts", || std::net::TcpStream::connect(process.addresses[0]).is_err());
    process.signal(Signal::SIGTERM);
    process.ensure_ends();
    assert!(!ends_cleanly(&mut client));
}

#[test]
fn sighup_takes_a_right_file_and_keeps_the_old_one_otherwise() {
    let (host, address) = listener();
    let process = Process::start("hup", SOCKS);
    let (mut client, mut server) = open(&process, &host);
    let port = spare_port();
    let more = format!("[listen.more]\nkind = \"socks5\"\naddress = \"{port}\"\n");
    let refuse = format!("[[route]]\nto = [\"{address}\"]\naction = \"refuse\"\n");

    std::fs::write(&process.file, "kind = ").unwrap();
    process.signal(Signal::SIGHUP);
    process.wait_for_line("the configuration stays as it was");
    assert_eq!(socks(process.addresses[0], "127.0.0.1", address.port()).0, 0, "the old configuration stays");
    drop(accept(&host));

    process.rewrite(&format!("{SOCKS}{more}{refuse}"));
    process.signal(Signal::SIGHUP);
    wait_until("the new listener is there", || std::net::TcpStream::connect(port).is_ok());
    assert_eq!(socks(port, "127.0.0.1", address.port()).0, 2, "the new routes hold");
    process.wait_for_line(&format!("[listen.more] is new: listening socks5 {port}"));
    wait_until("they hold on the old listener", || socks(process.addresses[0], "127.0.0.1", address.port()).0 == 2);

    client.write_all(b"still here").unwrap();
    let mut words = [0; 10];
    server.read_exact(&mut words).unwrap();
    assert_eq!(&words, b"still here");

    process.rewrite(SOCKS);
    process.signal(Signal::SIGHUP);
    wait_until("the listener is gone", || std::net::TcpStream::connect(port).is_err());
    process.wait_for_line(&format!("[listen.more] is closed: socks5 {port}"));
    process.rewrite(&SOCKS.replace("socks5", "mixed"));
    process.signal(Signal::SIGHUP);
    process.wait_for_line(&format!("was socks5, and is mixed from now on: {}", process.addresses[0]));
    server.write_all(b"and here").unwrap();
    client.read_exact(&mut [0; 8]).unwrap();
}

#[test]
fn its_status_says_which_peer_is_not_reached() {
    let (host, port) = (listener().0, spare_port());
    let leg = |address: SocketAddr| {
        format!("[listen.leg]\nkind = \"leg\"\naddress = \"{address}\"\n{}", Mode::Tls.listener("key"))
    };
    let (own, known) = (Mode::Tls.node("key"), Mode::Tls.peer("key"));
    let way = format!("[peer.n1]\naddress = \"{port}\"\n{known}[[route]]\nto = [\"*\"]\nvia = [\"n1\"]\n");
    let entry = Process::start("entry", &format!("name = \"entry\"\n{own}{SOCKS}{way}"));
    let is_failing = || {
        let status = ekiden_relay::status::ask(entry.child.id()).unwrap();
        status.peers.iter().find(|peer| peer.name == "n1").unwrap().is_failing
    };
    assert!(!is_failing());
    let host = host.local_addr().unwrap();
    assert_ne!(socks(entry.addresses[0], "127.0.0.1", host.port()).0, 0);
    assert!(is_failing());
    let _exit = Process::start("exit", &format!("name = \"n1\"\n{own}{}", leg(port)));
    wait_until("it is reached again", || socks(entry.addresses[0], "127.0.0.1", host.port()).0 == 0);
    assert!(!is_failing());
}

/// Which of the two the exit learns of first is up to chance. What comes to it has TLS, and so is copied to the host.
#[test]
fn what_a_host_has_said_arrives_although_it_ends_and_resets_while_much_is_sent_to_it() {
    let leg = format!("[listen.leg]\nkind = \"leg\"\naddress = \"127.0.0.1:0\"\n{}", Mode::Tls.listener("key"));
    let exit = Process::start("exit", &format!("name = \"n1\"\n{}{leg}", Mode::Tls.node("key")));
    let (own, known, address) = (Mode::Tls.node("key"), Mode::Tls.peer("key"), exit.addresses[0]);
    let way = format!("[peer.n1]\naddress = \"{address}\"\n{known}[[route]]\nto = [\"*\"]\nvia = [\"n1\"]\n");
    let entry = Process::start("entry", &format!("name = \"entry\"\n{own}{SOCKS}{way}"));
    let (host, _) = listener();
    for round in 0..100 {
        let (mut client, mut server) = open(&entry, &host);
        let mut writer = client.try_clone().unwrap();
        let writing = std::thread::spawn(move || while writer.write_all(&[7; 1 << 16]).is_ok() {});
        server.read_exact(&mut vec![0; 1_000_000]).unwrap();
        server.write_all(&[9; 1000]).unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        while tcp_info(&server).is_ok_and(|info| info.is_ending || info.awaits_ack()) {}
        server.read_exact(&mut vec![0; 500_000]).unwrap();
        reset(server);
        client.read_exact(&mut [0; 1000]).unwrap_or_else(|error| panic!("round {round}: {error}"));
        drop(client);
        writing.join().unwrap();
    }
}
