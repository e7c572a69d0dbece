//! TLS on listeners for clients: who is served, who is refused, and what either is told.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ekiden_keys::{Certificate, Identity};
use rustls::version::{TLS12, TLS13};

use crate::common::process::Process;
use crate::common::tls::*;
use crate::common::*;

/// A listener of this kind that speaks TLS.
fn listener(kind: &str, asks: bool, more: &str) -> String {
    let (own, clients) = files();
    let tls = if asks { format!("{own}, {clients}") } else { own.to_owned() };
    format!("[listen.{kind}]\nkind = \"{kind}\"\naddress = \"127.0.0.1:0\"\ntls = {{ {tls} }}\n{more}\n")
}

fn each_kind(asks: bool, more: &str) -> String {
    ["http", "socks5", "mixed"].map(|kind| listener(kind, asks, more)).concat()
}

/// Sends `data` and the end, and returns all that comes back up to the end.
fn exchanged(mut tls: Tls, data: &[u8]) -> Vec<u8> {
    tls.write_all(data).unwrap();
    say_end(&mut tls);
    let (back, is_said) = rest(&mut tls);
    assert!(is_said, "{} bytes, and no end", back.len());
    back
}

#[test]
fn each_kind_of_listener_serves_its_protocol_over_either_version() {
    let host = late_echo();
    for (mode, count) in [(Mode::Tls, 0), (Mode::Plain, 1), (Mode::Tls, 2)] {
        let chain = Chain::of(mode, count, &each_kind(false, ""), "");
        let data = noise(300_000, 7);
        for version in [&TLS12, &TLS13] {
            let client = Client { versions: vec![version], ..Client::default() };
            for kind in ["http", "mixed"] {
                let stream = tunnel(client.connect(chain.address(kind)), host);
                assert!(exchanged(stream, &data) == data, "{kind} {version:?} {count}");
            }
            for kind in ["socks5", "mixed"] {
                let mut stream = client.connect(chain.address(kind));
                assert_eq!(socks5(&mut stream, host), 0);
                assert!(exchanged(stream, &data) == data, "{kind} {version:?} {count}");
            }
        }
    }
}

#[test]
fn plain_requests_follow_each_other_on_a_connection() {
    let origin = server(|mut stream| {
        while let Ok(head) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| head(&mut stream))) {
            let path = head.split(' ').nth(1).unwrap().to_owned();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len()).unwrap();
        }
    });
    let node = node(&each_kind(false, ""));
    for kind in ["http", "mixed"] {
        let mut tls = Client::default().connect(node.address(kind).unwrap());
        for path in ["/one", "/two", "/three"] {
            write!(tls, "GET http://{origin}{path} HTTP/1.1\r\nHost: {origin}\r\n\r\n").unwrap();
            assert!(head(&mut tls).starts_with("HTTP/1.1 200 "));
            let mut body = vec![0; path.len()];
            tls.read_exact(&mut body).unwrap();
            assert_eq!(body, path.as_bytes());
        }
    }
}

#[test]
fn only_http_1_is_spoken_to_clients_that_ask_which_protocol_it_is() {
    log::keep();
    let node = node(&each_kind(false, ""));
    let offers = |protocols: &[&'static str]| Client { protocols: protocols.to_vec(), ..Client::default() };
    for kind in ["http", "mixed"] {
        let address = node.address(kind).unwrap();
        let mut both = tunnel(offers(&["h2", "http/1.1"]).connect(address), echo());
        assert_eq!(both.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
        both.write_all(b"x").unwrap();
        assert_eq!(both.read(&mut [0]).unwrap(), 1);
        let told = offers(&["h2"]).greeting(address);
        assert!(told.contains("NoApplicationProtocol"), "{told}");
    }
    wait_until("the log has it", || {
        log::logged("http/1.1 is spoken here").len() > 1 || !log::logged("(ALPN)").is_empty()
    });
}

#[test]
fn with_an_authority_clients_show_a_certificate_of_it() {
    log::keep();
    let node = node(&each_kind(true, ""));
    let host = late_echo();
    for kind in ["http", "socks5", "mixed"] {
        let address = node.address(kind).unwrap();
        for version in [&TLS12, &TLS13] {
            let of = |client: Client| Client { versions: vec![version], ..client };
            let nobody = of(Client::default()).greeting(address);
            assert!(nobody.contains("alert") || nobody.contains("Alert"), "{kind} {version:?}: {nobody}");
            let stranger = of(Client::known(2, "mallory")).greeting(address);
            assert!(
                stranger.contains("UnknownCA") || stranger.contains("DecryptError"),
                "{kind} {version:?}: {stranger}"
            );
            let mut alice = of(Client::known(1, "alice")).connect(address);
            let stream = match kind {
                "socks5" => {
                    assert_eq!(socks5(&mut alice, host), 0);
                    alice
                }
                _ => tunnel(alice, host),
            };
            assert_eq!(exchanged(stream, b"hello"), b"hello");
        }
    }
    wait_until("the log has both", || {
        ["it has shown no certificate", "its certificate was signed by none of client_ca_file"]
            .iter()
            .all(|why| !log::logged(why).is_empty())
    });
}

#[test]
fn the_name_in_a_certificate_is_the_users_and_where_there_are_users_both_are_asked() {
    let limits = "[limits]\nuser_connections = 1\n";
    let open = node(&format!("{limits}{}", each_kind(true, "")));
    let host = echo();
    let alice = || Client::known(1, "alice");
    let held = tunnel(alice().connect(open.address("http").unwrap()), host);
    let mut second = alice().connect(open.address("http").unwrap());
    write!(second, "CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    assert!(head(&mut second).starts_with("HTTP/1.1 429 "));
    let mut third = alice().connect(open.address("socks5").unwrap());
    assert_eq!(socks5(&mut third, host), 2);
    drop(tunnel(Client::known(1, "bob").connect(open.address("mixed").unwrap()), host));
    drop(held);

    put("users.txt", &format!("me:{}\n", hash_of_secret()));
    let written = format!("users = {{ me = \"{}\" }}\n", hash_of_secret());
    for users in [&*written, "users_file = \"users.txt\"\n"] {
        let locked = node(&each_kind(true, users));
        for kind in ["http", "mixed"] {
            let address = locked.address(kind).unwrap();
            let ask = |client: Client, line: &str| {
                let mut tls = client.connect(address);
                write!(tls, "CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n{line}\r\n").unwrap();
                head(&mut tls)
            };
            assert!(ask(alice(), "").starts_with("HTTP/1.1 407 "));
            assert!(ask(alice(), "Proxy-Authorization: Basic bWU6c2VjcmV0\r\n").starts_with("HTTP/1.1 200 "));
            let stranger = Client::default().greeting(address);
            assert!(stranger.contains("ertificate"), "{stranger}");
        }
        for (password, right) in [(b"secret", 0), (b"wrong!", 1)] {
            let mut tls = alice().connect(locked.address("socks5").unwrap());
            tls.write_all(&[&[5, 1, 2, 1, 2], &b"me"[..], &[6], password].concat()).unwrap();
            let mut answers = [0; 4];
            tls.read_exact(&mut answers).unwrap();
            assert_eq!(answers, [5, 2, 1, right]);
        }
    }
}

#[test]
fn a_common_name_that_is_passed_over_is_told() {
    log::keep();
    let node = node(&listener("http", true, ""));
    let turned = Client::known(1, "ali\u{202e}ce");
    drop(tunnel(turned.connect(node.address("http").unwrap()), echo()));
    wait_until("the log has it", || !log::logged("counts as \"sha256:").is_empty());
    assert!(log::logged("characters that are not seen").iter().all(|line| !line.contains('\u{202e}')));
}

#[test]
fn a_class_takes_the_streams_of_a_user_whom_a_certificate_names() {
    let class = "[class.fast]\nkind = \"interactive\"\nusers = [\"alice\"]\n";
    put("nobody.txt", "");
    for more in ["", "users = {}", "users_file = \"nobody.txt\""] {
        config(&format!("{}{class}", listener("http", true, more)));
    }
    let refused =
        ekiden_relay::Config::parse(&format!("{}{class}", listener("http", false, "")), &directory().join("x.toml"));
    assert!(refused.unwrap_err().to_string().contains("no listener has a user 'alice'"));
}

#[test]
fn without_a_file_clients_see_a_certificate_of_the_nodes_own_key() {
    files();
    let node = node(
        "name = \"city\"\nkey_file = \"key.pem\"\n[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\ntls = {}\n",
    );
    let own = Certificate::of(&Identity::load(&directory().join("key.pem")).unwrap(), "city").unwrap();
    let client = Client { trusts: Some((own.der().to_vec(), "city")), ..Client::default() };
    let stream = tunnel(client.connect(node.address("web").unwrap()), late_echo());
    assert_eq!(exchanged(stream, b"hello"), b"hello");
    let told = Client::default().greeting(node.address("web").unwrap());
    assert!(told.contains("UnknownIssuer"), "{told}");
}

#[test]
fn who_speaks_no_tls_is_told_so_in_its_own_protocol() {
    log::keep();
    let node = node(&each_kind(false, ""));
    let mut number = 0;
    for kind in ["http", "socks5", "mixed"] {
        for (says, answer, logged) in [
            (&b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n"[..], &b"HTTP/1.1 400 "[..], "HTTP"),
            (&[5, 1, 0], &[5, 0xff], "SOCKS5"),
            (b"\x04\x01\x00\x50\x7f\x00\x00\x01user\0", b"\x00\x5b\0\0\0\0\0\0", "SOCKS4"),
            (b"EHLO there\r\n", b"\x15\x03\x01\x00\x02\x02\x28", "something else"),
            (b"\0\0\0\0\0\0\0\0", b"\x15\x03", "TLS: "),
        ] {
            for piece in [says.len(), 1] {
                number += 1;
                let mut client = connect_from([127, 0, 9, number], node.address(kind).unwrap());
                for piece in says.chunks(piece) {
                    if client.write_all(piece).is_err() {
                        break;
                    }
                }
                let mut told = Vec::new();
                client.read_to_end(&mut told).unwrap();
                assert!(told.starts_with(answer), "{logged} at {kind}: {:?}", String::from_utf8_lossy(&told));
                let from = client.local_addr().unwrap().to_string();
                wait_until("the log has it", || log::logged(&from).iter().any(|line| line.contains(logged)));
            }
        }
    }
}

#[test]
fn a_proxy_header_comes_before_tls() {
    let node = node(&listener("http", false, "proxy_protocol_from = [\"127.0.0.0/8\"]"));
    let mut stream = connect(node.address("http").unwrap());
    stream.write_all(b"PROXY TCP4 192.0.2.7 192.0.2.1 40000 3128\r\n").unwrap();
    let stream = tunnel(Client::default().on(stream), late_echo());
    assert_eq!(exchanged(stream, b"hello"), b"hello");
}

#[test]
fn a_handshake_that_takes_too_long_is_ended_and_its_place_is_free() {
    let node = node(&format!("[limits]\nhandshake = \"500ms\"\n{}", listener("http", false, "")));
    let address = node.address("http").unwrap();
    // Nothing; the beginning of a record; a whole record with half a hello.
    let half = [&[0x16, 3, 1, 0, 100, 1, 0, 3, 0][..], &[7; 95]].concat();
    let mut slow: Vec<TcpStream> = Vec::new();
    for said in [&[][..], &[0x16, 3], &half] {
        let mut stream = connect(address);
        stream.write_all(said).unwrap();
        slow.push(stream);
    }
    for mut stream in slow {
        assert!(stream.read(&mut [0]).map_or(true, |n| n == 0));
    }
    wait_until("its place is free", || node.connections() == 0);
}

#[test]
fn handshakes_hold_a_quarter_of_the_memory_at_most_and_a_newcomer_is_served() {
    // Seven places of 32 KiB, in a process of its own: its memory is the process's.
    let limits = "[limits]\nmemory = \"1MiB\"\nhandshake = \"100s\"\n";
    let node = Process::start("shaking", &format!("{limits}{}", listener("http", false, "")));
    let address = node.addresses[0];
    let half = [&[0x16, 3, 1, 0, 100, 1, 0, 3, 0][..], &[7; 95]].concat();
    let mut silent: Vec<TcpStream> = Vec::new();
    for _ in 0..40 {
        let mut stream = connect(address);
        stream.write_all(&half).unwrap();
        silent.push(stream);
    }
    silent.iter().for_each(|stream| stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap());
    wait_until("those beyond seven are closed", || {
        silent.retain(|stream| !is_told(stream));
        silent.len() == 7
    });
    let stream = tunnel(Client::default().connect(address), late_echo());
    assert_eq!(exchanged(stream, b"hello"), b"hello");
}

/// Whether something has come, or the end.
fn is_told(mut stream: &TcpStream) -> bool {
    stream.read(&mut [0]).map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |n| n <= 1)
}

/// As heads do that are not complete.
#[test]
fn beginnings_of_records_hold_a_quarter_of_the_memory_at_most_and_a_newcomer_is_served() {
    // Seven places of 64 KiB for a head and five records, in a process of its own.
    let limits = "[limits]\nmemory = \"4MiB\"\nhandshake = \"100s\"\n";
    for asks in [false, true] {
        let node = Process::start("records", &format!("{limits}{}", each_kind(asks, "")));
        for (address, kind) in node.addresses.iter().zip(["http", "socks5", "mixed"]) {
            let client = || if asks { Client::known(1, "alice") } else { Client::default() };
            let begun = || {
                let mut tls = client().connect(*address);
                while tls.conn.is_handshaking() {
                    tls.conn.complete_io(&mut tls.sock).unwrap();
                }
                tls.sock.write_all(&[&[23, 3, 3, 0x40, 0x10][..], &[7; 16_000]].concat()).unwrap();
                tls.sock.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
                tls.sock
            };
            let mut begun: Vec<TcpStream> = (0..20).map(|_| begun()).collect();
            wait_until("those beyond seven are told", || {
                begun.retain(|stream| !is_told(stream));
                begun.len() == 7
            });
            let mut newcomer = client().connect(*address);
            let stream = match kind {
                "socks5" => {
                    assert_eq!(socks5(&mut newcomer, late_echo()), 0);
                    newcomer
                }
                _ => tunnel(newcomer, late_echo()),
            };
            assert_eq!(exchanged(stream, b"hello"), b"hello");
            drop(begun);
            // Silence between two requests holds nothing, and nobody's place.
            let mut idle: Vec<Tls> = (0..20).map(|_| client().connect(*address)).collect();
            for tls in &mut idle {
                while tls.conn.is_handshaking() {
                    tls.conn.complete_io(&mut tls.sock).unwrap();
                }
                tls.sock.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            }
            std::thread::sleep(Duration::from_millis(300));
            assert!(idle.iter().all(|tls| !is_told(&tls.sock)), "{kind}");
        }
    }
}

fn swap(certificate: &[String; 2], to: &str) {
    put(&format!("{to}.pem"), &certificate[0]);
    put(&format!("{to}.key"), &certificate[1]);
}

/// The common name that the proxy's certificate has for a client.
fn shown(address: SocketAddr) -> Option<String> {
    let tls = tunnel(Client::default().connect(address), echo());
    let shown = tls.conn.peer_certificates().unwrap()[0].to_vec();
    ekiden_keys::subject_name(&shown)
}

#[test]
fn a_renewed_certificate_is_shown_from_a_reload_on_and_a_wrong_one_changes_nothing() {
    let text = |port: u16| {
        format!(
            "[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:{port}\"\ntls = {{ certificate_file = \"renewed.pem\", key_file = \"renewed.key\" }}\n"
        )
    };
    let text = text(spare_port().port());
    let authority = &authorities()[0];
    swap(&authority.signs("localhost"), "renewed");
    let mut node = node(&text);
    let address = node.address("web").unwrap();
    assert_eq!(shown(address).as_deref(), Some("localhost"));
    let mut old = tunnel(Client::default().connect(address), echo());
    let next = authority.signs("localhost");
    put("renewed.pem", &next[0]);
    let why = ekiden_relay::Config::parse(&text, &directory().join("node.toml")).unwrap_err().to_string();
    assert!(
        why.contains("node.toml:4: certificate file ") && why.contains("is not the certificate of the key in"),
        "{why}"
    );
    put("renewed.key", &next[1]);
    node.reload(config(&text)).unwrap();
    let of = |tls: &Tls| tls.conn.peer_certificates().unwrap()[0].to_vec();
    let new = tunnel(Client::default().connect(address), echo());
    assert_ne!(of(&old), of(&new));
    old.write_all(b"x").unwrap();
    assert_eq!(old.read(&mut [0]).unwrap(), 1, "a stream that runs goes on");
}

#[test]
fn a_kept_connection_ends_where_its_listener_asks_for_other_certificates() {
    let text = listener("http", true, "").replace(":0", &format!(":{}", spare_port().port()));
    let mut node = node(&text);
    let mut kept = Client::known(1, "alice").connect(node.address("http").unwrap());
    let mut ask = || {
        write!(kept, "OPTIONS http://a/ HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n").unwrap();
        head(&mut kept)
    };
    assert!(ask().starts_with("HTTP/1.1 200 "));
    node.reload(config(&text)).unwrap();
    assert!(ask().starts_with("HTTP/1.1 200 "), "the same authority");
    put("other-clients.pem", &authorities()[2].pem);
    node.reload(config(&text.replace("\"clients.pem", "\"other-clients.pem"))).unwrap();
    assert!(ask().starts_with("HTTP/1.1 503 "));
    let body = String::from_utf8(rest(&mut kept).0).unwrap();
    assert!(body.contains("what this proxy asks of its clients by TLS has changed"), "{body}");
}

#[test]
fn each_setting_that_cannot_be_is_one_line_with_its_place() {
    let (own, clients) = files();
    for (kind, tls, more, said) in [
        ("forward", "", "to = \"a:1\"", "3: a forward listener has no 'tls'"),
        ("leg", "", "", "3: a leg listener has no 'tls'"),
        ("http", "", "", "3: tls without certificate_file needs this node's own key"),
        ("http", "certificate_file = \"proxy.pem\"", "", "3: certificate_file needs key_file beside it"),
        ("http", "key_file = \"proxy.key\"", "", "3: key_file needs certificate_file beside it"),
        ("http", "certificate = \"proxy.pem\"", "", "unknown field `certificate`"),
        ("http", "certificate_file = \"none.pem\", key_file = \"proxy.key\"", "", "none.pem: cannot be read"),
        (
            "http",
            "certificate_file = \"proxy.key\", key_file = \"proxy.pem\"",
            "",
            "but a private key: the file with the certificate is wanted here",
        ),
        (
            "http",
            &format!("{own}, client_ca_file = \"proxy.key\""),
            "",
            "holds no certificate in PEM but a private key",
        ),
        ("http", own, "", "anyone who can reach 0.0.0.0:1 could use this http listener"),
        ("http", &format!("{own}, {clients}"), "", "ok"),
    ] {
        let own = if kind == "leg" { "key_file = \"key.pem\"\n" } else { "" };
        let text = format!(
            "{own}[listen.a]\naddress = \"0.0.0.0:1\"\ntls = {{ {tls} }}\nkind = \"{kind}\"\nopen = false\n{more}\n"
        );
        let text = if said.contains("anyone") || said == "ok" { text } else { text.replace("0.0.0.0", "127.0.0.1") };
        let said = if kind == "leg" { said.replace("3:", "4:") } else { said.to_owned() };
        let told = ekiden_relay::Config::parse(&text, &directory().join("node.toml"));
        let told = told.map_or_else(|error| error.to_string(), |_| "ok".into());
        assert!(told.contains(&said) && !told.contains('\n'), "{said}: {told}");
    }
}

#[test]
fn what_is_shown_is_read_again_and_untimely_certificates_are_told() {
    let text = format!(
        "{}{}",
        listener("http", true, ""),
        "[listen.own]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\ntls = {}\n"
    );
    let text = format!("key_file = \"key.pem\"\n{text}");
    let before = config(&text);
    let after = config(&before.to_string());
    assert_eq!(before.listeners, after.listeners, "{before}");
    assert!(before.untimely(std::time::SystemTime::now()).is_empty());
    // rcgen's end in the year 4096.
    let late = std::time::UNIX_EPOCH + Duration::from_secs(70_000_000_000);
    let told = before.untimely(late);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].starts_with("[listen.http] certificate file ") && told[0].contains("has expired on 4096-01-01"),
        "{told:?}"
    );
}
