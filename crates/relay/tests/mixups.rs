//! Clients that speak another protocol than the listener's are told so at once, and so is the log.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::common::*;

/// A first record of TLS, as far as anyone looks at it.
const HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
const SOCKS4: &[u8] = b"\x04\x01\x00\x50\x7f\x00\x00\x01user\0";
/// handshake_failure, fatal (RFC 8446 §6).
const ALERT: &[u8] = b"\x15\x03\x01\x00\x02\x02\x28";
const REJECTED: &[u8] = b"\x00\x5b\0\0\0\0\0\0";

#[test]
fn another_protocol_is_told_so_at_once() {
    log::keep();
    let chain = Chain::new(0);
    let start = Instant::now();
    let connect_request = b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
    let long = [b"GET http://a/ HTTP/1.1\r\nHost: a\r\nX: ".to_vec(), vec![b'y'; 9000], b"\r\n\r\n".to_vec()].concat();
    // Each from an address of its own: lines about one are counted, not repeated.
    let mut address = 0;
    for (listener, says, answer, logged) in [
        ("socks", connect_request.as_slice(), b"HTTP/1.1 400 ".as_slice(), "HTTP"),
        ("locked", &long, b"HTTP/1.1 400 ", "HTTP"),
        ("socks", SOCKS4, REJECTED, "SOCKS4"),
        ("locked", SOCKS4, REJECTED, "SOCKS4"),
        ("socks", HELLO, ALERT, "TLS"),
        ("web", SOCKS4, REJECTED, "SOCKS4"),
        ("web", b"\x05\x01\x00", b"\x05\xff", "SOCKS5"),
        ("web", b"\x05\x02\x00\x02", b"\x05\xff", "SOCKS5"),
        ("weblocked", HELLO, ALERT, "TLS"),
    ] {
        // In one piece, and byte by byte. Neither client ends its side.
        for piece in [says.len(), 1] {
            address += 1;
            let mut client = connect_from([127, 0, 8, address], chain.address(listener));
            let mut writer = client.try_clone().unwrap();
            for piece in says.chunks(piece) {
                // The answer may come before all is sent.
                if writer.write_all(piece).is_err() {
                    break;
                }
            }
            let mut told = Vec::new();
            client.read_to_end(&mut told).unwrap();
            assert!(told.starts_with(answer), "{logged} at {listener}: {:?}", String::from_utf8_lossy(&told));
            let from = client.local_addr().unwrap().to_string();
            wait_until("the log has it", || log::logged(&from).iter().any(|line| line.contains(logged)));
        }
    }
    // Nobody waited for more: what each has said decides.
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}
