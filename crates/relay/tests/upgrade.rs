//! A node's process is replaced as docs/guide/operations.md says, while streams go over it.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use crate::common::process::Process;
use crate::common::*;
use nix::sys::signal::Signal;

/// How many streams begin, and how long after each other.
const STREAMS: usize = 60;
const PAUSE: Duration = Duration::from_millis(40);

fn exit_at(mode: Mode, address: SocketAddr) -> String {
    let (own, nodes) = (mode.node("key"), mode.listener("key"));
    format!("name = \"n1\"\n{own}[listen.leg]\nkind = \"leg\"\naddress = \"{address}\"\n{nodes}")
}

/// A stream that says this and is told the same; with `early` before it knows that it is open.
fn says(proxy: SocketAddr, to: SocketAddr, data: &[u8], early: bool) -> Result<(), String> {
    let mut stream = connect(proxy);
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
        assert!(old.ends_within(PATIENCE));
    }
}
