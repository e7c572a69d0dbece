//! A node's process is replaced as docs/guide/operations.md says, while streams go over it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::common::process::Process;
use crate::common::*;
use ekiden_net::privileges::keep_only;
use ekiden_net::steer::ignore_new;
use nix::sys::signal::Signal;

/// How many streams begin, and how long after each other.
const STREAMS: usize = 60;
/// How many clients come one after another at a time.
const CLIENTS: usize = 4;
/// How often a node is replaced under them.
const UPGRADES: usize = 5;
const PAUSE: Duration = Duration::from_millis(40);

fn exit_at(mode: Mode, address: SocketAddr) -> String {
    let (own, nodes) = (mode.node("key"), mode.listener("key"));
    format!("name = \"n1\"\n{own}[listen.leg]\nkind = \"leg\"\naddress = \"{address}\"\n{nodes}")
}

/// A stream that says this and is told the same; with `early` before it knows that it is open.
fn says(proxy: SocketAddr, to: SocketAddr, data: &[u8], early: bool) -> Result<(), String> {
    says_on(connect(proxy), to, data, early)
}

fn says_on(mut stream: TcpStream, to: SocketAddr, data: &[u8], early: bool) -> Result<(), String> {
    let mut request = vec![5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1];
    request.extend(to.port().to_be_bytes());
    if early {
        request.extend(data);
    }
    stream.write_all(&request).map_err(|e| e.to_string())?;
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).map_err(|e| format!("reply: {e}"))?;
    if reply[3] != 0 {
        return Err(format!("reply {}", reply[3]));
    }
    if !early {
        stream.write_all(data).map_err(|e| e.to_string())?;
    }
    let mut got = vec![0; data.len()];
    stream.read_exact(&mut got).map_err(|e| format!("echo: {e}"))?;
    if got == data { Ok(()) } else { Err("other bytes".into()) }
}

/// Clients that come one after another, [`CLIENTS`] at a time, until `work` is done, and how many of them there were.
fn clients_during(work: impl FnOnce(), client: impl Fn() -> Result<(), String> + Sync) -> usize {
    let (is_over, failed, count) = (AtomicBool::new(false), Mutex::new(Vec::new()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    failed.lock().unwrap().extend(client().err());
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        work();
        is_over.store(true, Ordering::Relaxed);
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {count:?}: {failed:?}", failed.len());
    count.into_inner()
}

/// The same while a node is replaced, each time with the next of these texts.
fn clients_of(texts: &[&str], client: impl Fn() -> Result<(), String> + Sync) -> usize {
    let (is_same, mut texts) = (texts.len() == 1, texts.iter().cycle());
    let mut node = Process::start("replaced", texts.next().unwrap());
    let replace = || {
        for _ in 0..UPGRADES {
            let new = node.replace("replaces", texts.next().unwrap());
            assert!(!is_same || new.first.iter().any(|line| line.contains("is taken over from process")));
            let mut old = std::mem::replace(&mut node, new);
            old.ensure_ends();
        }
    };
    clients_during(replace, client)
}

#[test]
fn no_client_is_refused_or_reset_while_a_node_is_replaced() {
    let (host, address) = (echo(), spare_port());
    let text = format!("threads = 2\n[listen.socks]\nkind = \"socks5\"\naddress = \"{address}\"\n");
    let count = clients_of(&[&text], || says(address, host, b"hello", false));
    assert!(count > 10 * UPGRADES, "{count}");
}

/// Whether the kernel takes a packet filter from a process without capabilities, such as a node.
fn nodes_may_filter() -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let without = std::thread::spawn(move || {
        keep_only(&[]).unwrap();
        ignore_new(&listener).is_ok()
    });
    without.join().unwrap()
}

#[test]
fn a_listener_with_other_settings_is_not_taken_over_and_its_queue_is_served() {
    let (host, address) = (echo(), spare_port());
    let text = format!("threads = 2\n[listen.socks]\nkind = \"socks5\"\naddress = \"{address}\"\n");
    let other = format!("{text}tcp = {{ keepalive = \"7s\" }}\n");
    let failed = AtomicUsize::new(0);
    let count = clients_of(&[&text, &other], || {
        // There is a moment at which nobody listens.
        let Ok(stream) = TcpStream::connect(address) else { return Ok(()) };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        failed.fetch_add(usize::from(says_on(stream, host, b"hello", false).is_err()), Ordering::Relaxed);
        Ok(())
    });
    assert!(count > 10 * UPGRADES, "{count}");
    // Where the kernel takes no packet filter from a node, who connects at the moment before may be reset: one of each client at a time.
    let most = if nodes_may_filter() { 0 } else { CLIENTS * UPGRADES };
    assert!(failed.load(Ordering::Relaxed) <= most, "{failed:?} of {count}");
}

/// Two listeners, the second with these TCP settings.
fn two(names: [&str; 2], addresses: [SocketAddr; 2], keepalive: u32) -> String {
    let ([one, other], [first, second]) = (names, addresses);
    format!(
        "threads = 2\n[limits]\ndrain = \"0s\"\n[listen.{one}]\nkind = \"socks5\"\naddress = \"{first}\"\n[listen.{other}]\nkind = \"socks5\"\n\
         address = \"{second}\"\ntcp = {{ keepalive = \"{keepalive}s\" }}\n"
    )
}

/// Streams have no time to end: one that is open when the listeners are passed on and closed may be reset, one of each client at a time. All
/// others are served.
#[test]
fn a_listener_is_taken_over_beside_one_with_other_settings() {
    let host = echo();
    for names in [["a", "b"], ["b", "a"]] {
        let addresses = [spare_port(), spare_port()];
        let texts = [7, 8].map(|keepalive| two(names, addresses, keepalive));
        let cut = AtomicUsize::new(0);
        let client = || match says(addresses[0], host, b"hello", false) {
            Err(why) if why.contains("reset") => {
                cut.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            other => other,
        };
        let count = clients_of(&texts.each_ref().map(String::as_str), client);
        assert!(count > 10 * UPGRADES && cut.load(Ordering::Relaxed) <= CLIENTS * UPGRADES, "{cut:?} of {count}");
    }
}

#[test]
fn a_process_takes_nothing_before_it_can_have_all_addresses() {
    let (host, address, other) = (echo(), spare_port(), TcpListener::bind("127.0.0.1:0").unwrap());
    let own = |address: SocketAddr| format!("[listen.a]\nkind = \"socks5\"\naddress = \"{address}\"\n");
    let old = Process::start("upgrade-waits", &own(address));
    let (told, was_told) = channel();
    std::thread::scope(|scope| {
        let text = two(["a", "b"], [address, other.local_addr().unwrap()], 60);
        let client = scope.spawn(move || {
            was_told.recv_timeout(PATIENCE).unwrap();
            // Longer than an old process accepts for one that has not asked.
            std::thread::sleep(Duration::from_millis(1500));
            let stream = connect(address);
            stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            let served = says_on(stream, host, b"by the old one", false);
            drop(other);
            served
        });
        let new = old.replace_and_tell("upgrade-waits-new", &text, &told);
        client.join().unwrap().unwrap();
        says(new.addresses[0], host, b"by the new one", false).unwrap();
    });
}

#[test]
fn a_process_that_ends_before_it_accepts_gives_the_listeners_back() {
    let (host, address) = (echo(), spare_port());
    let text = format!("threads = 2\n[listen.socks]\nkind = \"socks5\"\naddress = \"{address}\"\n");
    // Found when listeners are bound, and so once they are taken.
    let wrong = format!("{text}tcp = {{ congestion = \"nosuch\" }}\n");
    let old = Process::start("upgrade-in-vain", &text);
    let count = clients_during(
        || {
            let said = old.replace_in_vain("upgrade-wrong", &wrong);
            assert!(said.iter().any(|line| line.contains("is taken over from process")), "{said:?}");
        },
        || says(address, host, b"by the old one", false),
    );
    assert!(count > 0);
}

#[test]
fn all_of_many_listeners_are_taken_over() {
    const COUNT: usize = 420;
    let port = spare_port().port();
    let listener = |number: usize| {
        let address = format!("127.9.{}.{}:{port}", number / 250, 1 + number % 250);
        format!("[listen.l{number}]\nkind = \"socks5\"\naddress = \"{address}\"\n")
    };
    let text = format!("threads = 1\n{}", (0..COUNT).map(listener).collect::<String>());
    let old = Process::start("upgrade-many", &text);
    let new = old.replace("upgrade-many-new", &text);
    let taken = new.first.iter().filter(|line| line.contains("is taken over from process"));
    assert_eq!(taken.count(), COUNT);
}

#[test]
fn a_listener_for_legs_is_taken_over_with_whatever_congestion_control() {
    let address = spare_port();
    let texts = ["", "[tcp]\ncongestion = \"reno\"\n", ""].map(|tcp| format!("{}{tcp}", exit_at(Mode::Tls, address)));
    let mut node = Process::start("upgrade-leg", &texts[0]);
    for text in &texts[1..] {
        // Keeps the one that stops until the other has asked.
        let _open = connect(address);
        let new = node.replace("upgrade-leg-new", text);
        assert!(new.first.iter().any(|line| line.contains("is taken over from process")), "{:?}", new.first);
        node = new;
    }
}

#[test]
fn a_full_node_that_stops_keeps_no_address() {
    let (host, address) = (echo(), spare_port());
    let text = format!("[limits]\nconnections = 4\n[listen.socks]\nkind = \"socks5\"\naddress = \"{address}\"\n");
    let mut old = Process::start("upgrade-full", &text);
    let mut running: Vec<_> = (0..4).map(|_| socks(address, "127.0.0.1", host.port()).1).collect();
    std::thread::scope(|scope| {
        // They are in the queue.
        let clients = [(); 3].map(|()| connect(address));
        let waiting = clients.map(|client| scope.spawn(move || says_on(client, host, b"waits", true)));
        let new = old.replace("upgrade-full-new", &text);
        waiting.into_iter().for_each(|client| client.join().unwrap().unwrap());
        drop(new);
    });
    let again = Process::start("upgrade-full-again", &text);
    says(address, host, b"by the third", false).unwrap();
    drop(again);
    for stream in &mut running {
        stream.write_all(b"goes on").unwrap();
        stream.read_exact(&mut [0; 7]).unwrap();
    }
    drop(running);
    old.ensure_ends();
}

#[test]
fn a_full_node_that_stops_is_in_no_ones_way() {
    let host = echo();
    let address = spare_port();
    let any = SocketAddr::from(([0, 0, 0, 0], address.port()));
    let text = |address: SocketAddr, open: &str| {
        format!("[limits]\nconnections = 4\n[listen.socks]\nkind = \"socks5\"\naddress = \"{address}\"\n{open}")
    };
    let old = Process::start("upgrade-full-near", &text(address, ""));
    let running: Vec<_> = (0..4).map(|_| socks(address, "127.0.0.1", host.port()).1).collect();
    // In its queue: there is no room for it.
    let waiting = connect(address);
    let new = old.replace("upgrade-full-around", &text(any, "open = true\n"));
    says(address, host, b"by the new one", false).unwrap();
    drop((new, waiting, running));
}

#[test]
fn a_full_node_that_stops_closes_its_listeners() {
    let (host, address) = (echo(), spare_port());
    let text = format!("[limits]\nconnections = 4\n[listen.socks]\nkind = \"socks5\"\naddress = \"{address}\"\n");
    let old = Process::start("upgrade-full-alone", &text);
    let running: Vec<_> = (0..4).map(|_| socks(address, "127.0.0.1", host.port()).1).collect();
    old.signal(Signal::SIGTERM);
    wait_until("nobody listens", || TcpListener::bind(address).is_ok());
    drop(running);
}

#[test]
fn no_request_is_lost_while_a_node_is_replaced() {
    let (address, origin) = (
        spare_port(),
        server(|mut stream| {
            while read_head(&mut stream).starts_with("GET") {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
        }),
    );
    let text = format!("threads = 2\n[listen.http]\nkind = \"http\"\naddress = \"{address}\"\n");
    // Each client goes on with a connection until it is told that it ends.
    let count = clients_of(&[&text], || {
        let mut stream = connect(address);
        for number in 0..1000 {
            let failed = |error: std::io::Error| format!("request {number}: {error}");
            stream
                .write_all(format!("GET http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\n\r\n").as_bytes())
                .map_err(failed)?;
            let head = read_head(&mut stream);
            if head.is_empty() {
                return Err(format!("request {number}: no answer"));
            }
            stream.read_exact(&mut [0; 2]).map_err(failed)?;
            if head.contains("Connection: close") {
                break;
            }
        }
        Ok(())
    });
    assert!(count > 0);
}

#[test]
fn no_stream_fails_while_an_exit_is_replaced() {
    for mode in [Mode::Tls, Mode::Plain] {
        let (host, address) = (echo(), spare_port());
        let mut old = Process::start("upgrade-old", &exit_at(mode, address));
        let (own, known) = (mode.node("key"), mode.peer("key"));
        let entry = node(&format!(
            "name = \"entry\"\n{own}threads = 2\n[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n\
             [peer.n1]\naddress = \"{address}\"\n{known}[[route]]\nto = [\"*\"]\nvia = [\"n1\"]\n"
        ));
        let proxy = entry.address("socks").unwrap();
        let (code, mut long) = socks(proxy, "127.0.0.1", host.port());
        assert_eq!(code, 0);
        let mut failed = Vec::new();
        std::thread::scope(|scope| {
            let mut running = Vec::new();
            let mut new = None;
            for number in 0..STREAMS {
                if number == STREAMS / 4 {
                    old.signal(Signal::SIGTERM);
                    new = Some(scope.spawn(move || Process::start("upgrade-new", &exit_at(mode, address))));
                }
                let say = move || says(proxy, host, &noise(3000, number as u64), number % 2 == 0);
                running.push(scope.spawn(say));
                std::thread::sleep(PAUSE);
            }
            for (number, stream) in running.into_iter().enumerate() {
                failed.extend(stream.join().unwrap().err().map(|why| (number, why)));
            }
            assert!(failed.is_empty(), "{mode:?}: {failed:?}");
            long.write_all(b"goes on").unwrap();
            long.read_exact(&mut [0; 7]).unwrap();
            drop(new.unwrap().join().unwrap());
        });
        drop(long);
        old.ensure_ends();
    }
}
