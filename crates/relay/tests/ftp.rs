//! `ftp` URLs through the HTTP listener, and FTP clients through SOCKS, with a server that does what a test wants.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::common::*;

/// What a server does, where it is not what a good one does.
#[derive(Clone, Default)]
struct Habits {
    /// Beginnings of commands (`""` is the greeting), and what it answers instead.
    answers: Vec<(&'static str, String)>,
    content: Vec<u8>,
    /// So many bytes are sent.
    sends: Option<usize>,
    /// Said after the data; with an empty text it closes the connection.
    last: Option<&'static str>,
    /// Where it waits for data connections.
    data_port: u16,
    /// It answers EPSV with 500.
    is_old: bool,
}

struct Server {
    address: SocketAddr,
    /// The commands it heard.
    heard: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(habits: Habits) -> Self {
        Self::at(Ipv4Addr::LOCALHOST.into(), habits)
    }

    fn at(ip: IpAddr, habits: Habits) -> Self {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let hears = heard.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.set_nodelay(true).unwrap();
                let (habits, hears) = (habits.clone(), hears.clone());
                std::thread::spawn(move || serve(&habits, &stream, &hears));
            }
        });
        Self { address, heard }
    }

    fn url(&self, path: &str) -> String {
        format!("ftp://{}/{path}", self.address)
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

/// One control connection. `None`: it is over.
fn serve(habits: &Habits, stream: &TcpStream, heard: &Mutex<Vec<String>>) -> Option<()> {
    let mut lines = BufReader::new(stream).lines();
    let mut out = stream;
    let mut say = |text: &str| write!(out, "{text}\r\n").ok();
    let special = |command: &str| habits.answers.iter().find(|(verb, _)| *verb == command).map(|(_, text)| text);
    let (mut data, mut offset) = (None, 0);
    say(special("").map_or("220-Hello\r\n220 there", String::as_str))?;
    loop {
        let line = lines.next()?.ok()?;
        heard.lock().unwrap().push(line.clone());
        let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
        if let Some(text) = special(verb) {
            say(text)?;
            continue;
        }
        let ip = stream.local_addr().unwrap().ip();
        match verb {
            "USER" => say("331 and?")?,
            "PASS" => say("230 in")?,
            "TYPE" | "CWD" => say("250 fine")?,
            "SIZE" => say(&format!("213 {}", habits.content.len()))?,
            "MDTM" => say("213 19941106084937")?,
            "REST" => {
                offset = argument.parse().unwrap();
                say("350 from there")?;
            }
            "EPSV" if habits.is_old => say("500 what?")?,
            "EPSV" | "PASV" => {
                let listener = TcpListener::bind((ip, habits.data_port)).unwrap();
                let port = listener.local_addr().unwrap().port();
                data = Some(listener);
                match verb {
                    "EPSV" => say(&format!("229 Extended passive (|||{port}|)"))?,
                    // Somebody else's address.
                    _ => say(&format!("227 Passive (192,0,2,1,{},{})", port >> 8, port & 255))?,
                }
            }
            "RETR" | "LIST" | "NLST" => {
                say("150 coming")?;
                let mut to = accept(&data.take()?);
                let all = &habits.content[offset..];
                to.write_all(all.get(..habits.sends.unwrap_or(all.len())).unwrap_or(all)).ok()?;
                if habits.sends.is_some_and(|sends| sends > all.len()) {
                    to.write_all(b"!").ok()?;
                }
                drop(to);
                match habits.last {
                    Some("") => return None,
                    last => say(last.unwrap_or("226 done"))?,
                }
            }
            "QUIT" => return say("221 bye"),
            _ => say("502 no")?,
        }
    }
}

/// Asks on a connection to an HTTP listener; the head of the response.
fn ask(client: &mut TcpStream, method: &str, url: &str, fields: &str) -> String {
    write!(client, "{method} {url} HTTP/1.1\r\nHost: x\r\n{fields}\r\n").unwrap();
    read_head(client)
}

fn length(head: &str) -> usize {
    let line = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    line.unwrap_or_else(|| panic!("{head}")).parse().unwrap()
}

/// The status and the text of a refusal.
fn refusal(chain: &Chain, url: &str) -> (u16, String) {
    let mut client = connect(chain.address("web"));
    let head = ask(&mut client, "GET", url, "");
    let text = String::from_utf8(body(&mut client, length(&head))).unwrap();
    assert!(ends_cleanly(&mut client) && text.lines().count() == 1, "{head}{text}");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), text)
}

#[test]
fn files_and_directories_come_over_one_connection() {
    for (mode, count) in CHAINS {
        let chain = Chain::of(mode, count, "", "");
        let content = noise(3_000_001, 4);
        let server = Server::new(Habits { content: content.clone(), ..Habits::default() });
        let mut client = connect(chain.address("web"));
        for _ in 0..3 {
            let head = ask(&mut client, "GET", &server.url("a/b%20c"), "");
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            assert!(head.contains("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), "{head}");
            assert!(body(&mut client, length(&head)) == content, "{mode:?} {count}");
        }
        let head = ask(&mut client, "HEAD", &server.url("a/b"), "");
        assert_eq!(length(&head), content.len());
        let head = ask(&mut client, "GET", &server.url("a/b"), "Range: bytes=3000000-\r\n");
        assert!(head.starts_with("HTTP/1.1 206 "), "{head}");
        assert!(head.contains("Content-Range: bytes 3000000-3000000/3000001\r\n"), "{head}");
        assert_eq!(body(&mut client, 1), content[3_000_000..]);
        let head = ask(&mut client, "GET", &server.url("-la/"), "");
        assert!(head.contains("Transfer-Encoding: chunked\r\n") && head.contains("text/plain\r\n"), "{head}");
        let mut listing = Vec::new();
        while let Some(chunk) = chunk(&mut client) {
            listing.extend(chunk);
        }
        assert!(listing == content, "{mode:?} {count}");
        // The connections are let go of, and the next request is served on those of the first.
        wait_until("streams are over", || chain.nodes.iter().all(|node| node.busy() == 0));
        wait_until("the server is left", || server.heard().contains(&"QUIT".into()));
        let heard = server.heard();
        for line in ["USER anonymous", "TYPE I", "SIZE a/b c", "RETR a/b c", "CWD -la", "LIST", "REST 3000000"] {
            assert!(heard.iter().any(|heard| heard == line), "{line} {heard:?}");
        }
    }
}

/// The next chunk's data; `None` after the last.
fn chunk(client: &mut TcpStream) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.extend(body(client, 1));
    }
    let length = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).unwrap();
    let data = body(client, length);
    assert_eq!(body(client, 2), b"\r\n");
    (length > 0).then_some(data)
}

#[test]
fn nothing_is_a_file_too() {
    let chain = Chain::new(1);
    let server = Server::new(Habits::default());
    let mut client = connect(chain.address("web"));
    for path in ["empty", "empty/"] {
        let head = ask(&mut client, "GET", &server.url(path), "");
        assert!(head.starts_with("HTTP/1.1 200 ") && length(&head) == 0, "{head}");
    }
}

#[test]
fn text_has_no_size_and_names_are_asked_for_as_such() {
    let chain = Chain::new(1);
    let server = Server::new(Habits { content: b"one\r\n".to_vec(), ..Habits::default() });
    let mut client = connect(chain.address("web"));
    for path in ["f;type=a", "f;type=d"] {
        let head = ask(&mut client, "GET", &server.url(path), "Range: bytes=1-\r\n");
        assert!(head.contains("200 OK\r\nContent-Type: text/plain\r\n") && head.contains("chunked"), "{head}");
        assert_eq!((chunk(&mut client), chunk(&mut client)), (Some(b"one\r\n".to_vec()), None));
    }
    let heard = server.heard();
    assert!(["TYPE A", "RETR f", "CWD f", "NLST"].iter().all(|line| heard.contains(&line.to_string())), "{heard:?}");
    assert!(!heard.iter().any(|line| line.starts_with("SIZE") || line.starts_with("REST")), "{heard:?}");
}

#[test]
fn an_old_client_is_sent_a_directory_until_the_end() {
    let server = Server::new(Habits { content: b"one\r\ntwo\r\n".to_vec(), ..Habits::default() });
    let chain = Chain::new(0);
    let mut client = connect(chain.address("web"));
    write!(client, "GET {} HTTP/1.0\r\n\r\n", server.url("")).unwrap();
    assert!(!read_head(&mut client).contains("chunked"));
    let mut listing = Vec::new();
    client.read_to_end(&mut listing).unwrap();
    assert_eq!(listing, b"one\r\ntwo\r\n");
}

#[test]
fn a_transfer_that_breaks_off_never_looks_complete() {
    let content = noise(200_000, 5);
    let habits = |sends, last| Habits { content: content.clone(), sends, last, ..Habits::default() };
    let breaks = [
        ("the server dies", habits(Some(100_000), Some(""))),
        ("the server dies after the last byte", habits(None, Some(""))),
        ("the server says so", habits(Some(100_000), Some("426 broken off"))),
        ("the server says so after the last byte", habits(None, Some("451 no"))),
        ("there is less than SIZE said", habits(Some(199_999), None)),
        ("there is more than SIZE said", habits(Some(200_001), None)),
    ];
    for (mode, count) in CHAINS {
        let chain = Chain::of(mode, count, "", "");
        for (what, habits) in &breaks {
            let server = Server::new(habits.clone());
            let mut client = connect(chain.address("web"));
            let head = ask(&mut client, "GET", &server.url("file"), "");
            assert_eq!(length(&head), content.len());
            let received = read_until_reset(&mut client).unwrap_or_else(|| panic!("{what}: a clean end"));
            assert!(received.len() < content.len() && content.starts_with(&received), "{what}: looks complete");
            // A directory has no size.
            if what.contains("SIZE") {
                continue;
            }
            let mut client = connect(chain.address("web"));
            assert!(ask(&mut client, "GET", &server.url("file/"), "").contains("chunked"));
            let received = read_until_reset(&mut client).unwrap_or_else(|| panic!("{what}: a clean end"));
            assert!(!received.ends_with(b"\r\n0\r\n\r\n"), "{what}: a last chunk");
            let mut client = connect(chain.address("web"));
            write!(client, "GET {} HTTP/1.0\r\n\r\n", server.url("file/")).unwrap();
            assert!(read_until_reset(&mut client).is_some(), "{what}: a clean end");
        }
    }
}

/// What came before a reset. `None` at a clean end.
fn read_until_reset(client: &mut TcpStream) -> Option<Vec<u8>> {
    let mut received = Vec::new();
    let mut piece = vec![0; 65_536];
    loop {
        match client.read(&mut piece) {
            Ok(0) => return None,
            Ok(n) => received.extend(&piece[..n]),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
                return Some(received);
            }
        }
    }
}

#[test]
fn failures_are_told_in_the_words_of_http() {
    let closed = closed_port();
    let data = closed_port().port();
    let cases: [(&'static str, &str, u16); 11] = [
        ("", "421 too many", 502),
        ("", "SSH-2.0-x", 502),
        ("USER", "530 no", 401),
        ("PASS", "530 no \x1b[2J\x07", 401),
        ("PASS", "332 account?", 401),
        ("RETR", "550 no such file", 404),
        ("RETR", "450 busy", 502),
        ("TYPE", "504 no", 502),
        ("EPSV", "229 fine", 502),
        ("EPSV", &format!("229 (|||{data}|)"), 502),
        ("RETR", "451 no", 502),
    ];
    for count in [0, 3] {
        let chain = Chain::new(count);
        for (verb, text, status) in &cases {
            let server = Server::new(Habits { answers: vec![(verb, text.to_string())], ..Habits::default() });
            let (code, told) = refusal(&chain, &server.url("file"));
            assert_eq!(code, *status, "{verb} {text}: {told}");
            assert!(told.starts_with(&format!("ftp {}: ", server.address)), "{told}");
        }
        assert_eq!(refusal(&chain, &format!("ftp://{closed}/")).0, 502);
        // The server's own words, not what follows from them.
        let last = Some("451 disk error");
        let none = Habits { content: b"1234".to_vec(), sends: Some(0), last, ..Habits::default() };
        let (code, told) = refusal(&chain, &Server::new(none).url("file"));
        assert_eq!(code, 502, "{told}");
        assert!(told.contains("the transfer: 451 disk error"), "{told}");
        let server = Server::new(Habits { answers: vec![("CWD", "550 no".into())], ..Habits::default() });
        assert_eq!(refusal(&chain, &server.url("file/")).0, 404);
    }
    let server = Server::new(Habits { content: b"1234".to_vec(), ..Habits::default() });
    let chain = Chain::new(0);
    let mut client = connect(chain.address("web"));
    assert!(ask(&mut client, "GET", &server.url("f"), "Range: bytes=4-\r\n").starts_with("HTTP/1.1 416 "));
}

#[test]
fn a_password_goes_to_the_server_and_nowhere_else() {
    let chain = Chain::new(0);
    let server = Server::new(Habits { answers: vec![("PASS", "530 no".into())], ..Habits::default() });
    let url = server.url("f").replace("ftp://", "ftp://alice:s%20ecret@");
    let (status, told) = refusal(&chain, &url);
    assert!(status == 401 && !told.contains("ecret"), "{told}");
    let heard = server.heard();
    assert!(heard.contains(&"USER alice".into()) && heard.contains(&"PASS s ecret".into()), "{heard:?}");
    let mut client = connect(chain.address("web"));
    assert!(ask(&mut client, "PUT", &server.url("f"), "Content-Length: 0\r\n").contains("Allow: GET, HEAD\r\n"));
}

#[test]
fn of_a_passive_address_only_the_port_counts() {
    for count in [0, 3] {
        let server = Server::new(Habits { content: noise(10_000, 6), is_old: true, ..Habits::default() });
        let chain = Chain::new(count);
        let mut client = connect(chain.address("web"));
        let head = ask(&mut client, "GET", &server.url("f"), "");
        assert!(body(&mut client, length(&head)) == noise(10_000, 6));
    }
}

#[test]
fn both_connections_go_by_the_same_route_and_no_route_is_broken() {
    // Each server waits for data on a port of its own, which a route refuses.
    let refused_data = || {
        let data_port = spare_port().port();
        let server = Server::new(Habits { content: vec![7], data_port, ..Habits::default() });
        (server, format!("[[route]]\nto = [\"127.0.0.1:{data_port}\"]\naction = \"refuse\"\n"))
    };
    for (count, is_entry) in [(0, true), (1, true), (1, false)] {
        let (server, refuse) = refused_data();
        let (entry, exit) = if is_entry { (refuse.as_str(), "") } else { ("", refuse.as_str()) };
        let (status, told) = refusal(&Chain::with(count, entry, exit), &server.url("f"));
        assert!(status == 403 && told.contains("data"), "{told}");
    }
    let (server, refuse) = refused_data();
    // Only the control connection's port has a route by the node, which refuses the other.
    let node_at_exit = leg_node(Mode::Tls, "n1", None, &refuse);
    let entry = node(&format!(
        "{}[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n[peer.n1]\naddress = \"{}\"\n{}\
         [[route]]\nto = [\"127.0.0.1:{}\"]\nvia = [\"n1\"]\n",
        Mode::Tls.node("key"),
        node_at_exit.address("leg").unwrap(),
        Mode::Tls.peer("key"),
        server.address.port(),
    ));
    let chain = Chain { entry, nodes: vec![node_at_exit] };
    assert_eq!(refusal(&chain, &server.url("f")).0, 403);
}

#[test]
fn curl_fetches_in_passive_mode_over_ipv4_and_ipv6() {
    let content = noise(2_000_000, 8);
    let file = directory().join("fetched-by-ftp");
    for count in [0, 3] {
        let chain = Chain::new(count);
        for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let server = Server::at(ip, Habits { content: content.clone(), ..Habits::default() });
            for proxy in [format!("socks5h://{}", chain.address("socks")), format!("http://{}", chain.address("web"))] {
                let mut curl = Command::new("curl");
                let curl = curl.args(["-sS", "--globoff", "--noproxy", "", "--max-time", "60", "--proxy"]).arg(&proxy);
                let output = curl.arg(server.url("file")).arg("-o").arg(&file).output().unwrap();
                assert!(output.status.success(), "{ip} {proxy}: {}", String::from_utf8_lossy(&output.stderr));
                assert!(std::fs::read(&file).unwrap() == content, "{ip} {proxy}");
            }
            assert!(server.heard().contains(&"EPSV".into()));
        }
    }
}

#[test]
fn a_client_that_leaves_ends_the_transfer() {
    // More than the buffers on the way take.
    let server = Server::new(Habits { content: noise(64 << 20, 9), ..Habits::default() });
    for count in [0, 3] {
        let chain = Chain::new(count);
        let mut client = connect(chain.address("web"));
        ask(&mut client, "GET", &server.url("f"), "");
        reset(client);
        wait_until("nothing is under way", || {
            chain.entry.busy() == 0 && chain.nodes.iter().all(|node| node.busy() == 0)
        });
        // Before the server has said anything.
        let (silent, address) = listener();
        let mut client = connect(chain.address("web"));
        write!(client, "GET ftp://{address}/f HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut control = accept(&silent);
        reset(client);
        assert!(!ends_cleanly(&mut control));
    }
}
