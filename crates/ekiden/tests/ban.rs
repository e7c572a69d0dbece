//! The filter of docs/design/security.md that bans who guesses passwords finds them in the log, and nobody else.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;
use socket2::{Domain, Socket, Type};

/// Nothing here takes this long; only a hang does.
const PATIENCE: Duration = Duration::from_secs(30);

/// What somebody says who wants another to be banned.
const SLANDER: &str = "WARN wrong user or password from 198.51.100.66:40112 on [listen.web]";

/// The expression in the documentation, with an address's place as fail2ban fills it: with or without brackets.
fn filter() -> String {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/design/security.md")).unwrap();
    let expression = page.lines().find_map(|line| line.strip_prefix("failregex = ")).expect("the page has a filter");
    assert_eq!(expression.matches("<ADDR>").count(), 1, "{expression}");
    expression.replace("<ADDR>", r"\[?(?P<address>(?:\d{1,3}\.){3}\d{1,3}|[0-9a-fA-F:]*:[0-9a-fA-F:]*)\]?")
}

/// The addresses that `filter` finds, with the language and the kind of search that fail2ban has.
fn found(filter: &str, lines: &[String]) -> BTreeSet<String> {
    const SEARCH: &str = "import json, re, sys\n\
        filter, lines = json.load(sys.stdin)\n\
        found = (re.search(filter, line) for line in lines)\n\
        json.dump([one.group('address') for one in found if one], sys.stdout)\n";
    let mut command = Command::new("python3");
    let mut python = command
        .args(["-c", SEARCH])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3, as fail2ban");
    write!(python.stdin.take().unwrap(), "{}", json!([filter, lines])).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice::<Vec<String>>(&output.stdout).unwrap().into_iter().collect()
}

/// A node, until it is dropped.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ekiden(folder: &Path, arguments: &[&str], input: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
    let mut child =
        command.args(arguments).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// Connects from an address, says something and waits for the answer's end, or for its first byte.
fn says(from: &str, to: SocketAddr, pieces: &[&[u8]]) {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(from.parse::<IpAddr>().unwrap(), 0).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    for piece in pieces {
        // It may have been refused by now.
        let _ = stream.write_all(piece).and_then(|()| stream.read(&mut [0; 4096]).map(drop));
    }
}

/// A request of a user with this name and the password `x`.
fn login(user: &str) -> Vec<u8> {
    // Base64 (RFC 4648 §4).
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut plain = format!("{user}:x").into_bytes();
    // Spaces in front of the password are part of it, and leave nothing to pad.
    while plain.len() % 3 > 0 {
        plain.push(b' ');
    }
    let digits = plain.chunks(3).flat_map(|three| {
        let bits = three.iter().fold(0, |bits, &byte| bits << 8 | usize::from(byte));
        [18, 12, 6, 0].map(|shift| char::from(DIGITS[bits >> shift & 63]))
    });
    let digits: String = digits.collect();
    format!("GET http://192.0.2.9/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic {digits}\r\n\r\n").into_bytes()
}

/// Answers every connection with what it is given, once it was spoken to if that `waits`.
fn answering(answer: Vec<u8>, waits: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            if waits {
                let _ = stream.read(&mut [0; 4096]);
            }
            let _ = stream.write_all(&answer);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    address
}

#[test]
fn whoever_guesses_passwords_is_found_and_nobody_can_put_another_in_his_place() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    ekiden(folder, &["keygen", "--shared", "key"], "");
    let hash = ekiden(folder, &["password"], "secret\n");
    let users = format!("users = {{ alice = '{}' }}", hash.trim());
    // FAILED of the leg protocol, and the text that is in it; and an FTP server's greeting.
    let mut failed = vec![5, 0, 0, 0, 0, 0, 0, 2 + SLANDER.len() as u8, 8, SLANDER.len() as u8];
    failed.extend(SLANDER.as_bytes());
    let liar = answering(failed, true);
    let ftp = answering(format!("421 2026-11-22T12:00:00Z  {SLANDER}\r\n").into_bytes(), false);
    let listen = |name: &str, kind: &str, address: &str, more: &str| {
        format!("[listen.\"{name}\"]\nkind = \"{kind}\"\naddress = \"{address}\"\n{more}\n")
    };
    let text = [
        &listen("web", "http", "127.0.0.1:0", &users),
        &listen("six", "http", "[::1]:0", &users),
        &listen(&format!("x {SLANDER}"), "http", "127.0.0.1:0", &users),
        &listen("socks", "socks5", "127.0.0.1:0", ""),
        &listen("open", "http", "127.0.0.1:0", ""),
        &format!("[peer.liar]\naddress = \"{liar}\"\nplain_key_file = \"key\"\n"),
        "[[route]]\nto = [\"192.0.2.0/24\"]\nvia = [\"liar\"]\n[exit]\nallow = [\"127.0.0.1\"]\n",
    ];
    fs::write(folder.join("node.toml"), text.concat()).unwrap();
    let log = File::create(folder.join("log")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
    command.args(["proxy", "-c", "node.toml"]).current_dir(folder).env("EKIDEN_LOG", "trace");
    let mut node = Node(command.stdout(Stdio::piped()).stderr(log).spawn().unwrap());
    let said = BufReader::new(node.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let addresses =
        said.take_while(|line| line != "ready").map(|line| line.split(' ').nth(2).unwrap().parse().unwrap());
    let addresses: Vec<SocketAddr> = addresses.collect();
    let [web, six, slanderous, socks, open] = addresses[..] else { panic!("{addresses:?}") };

    says("127.0.0.5", web, &[&login("alice")]);
    says("::1", six, &[&login("alice")]);
    says("127.0.0.6", slanderous, &[&login("alice")]);
    says("127.0.0.7", web, &[&login(SLANDER)]);
    says("127.0.0.7", web, &[&login(&format!("\n2026-11-22T12:00:00Z  {SLANDER}"))]);
    // Those are no guesses.
    let name = |name: &str| [&[5, 1, 0, 3, name.len() as u8], name.as_bytes(), &[0, 80]].concat();
    says("127.0.0.8", socks, &[&[5, 1, 0], &name("192.0.2.1")]);
    says("127.0.0.8", socks, &[&[5, 1, 0], &name(SLANDER)]);
    for url in ["http://192.0.2.2/".into(), format!("http://{SLANDER}/"), format!("ftp://{ftp}/{SLANDER}")] {
        says("127.0.0.8", open, &[format!("GET {url} HTTP/1.1\r\nHost: {SLANDER}\r\n\r\n").as_bytes()]);
        says("127.0.0.8", open, &[format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", url.replace(' ', "%20")).as_bytes()]);
    }
    let logged = || fs::read_to_string(folder.join("log")).unwrap();
    let start = Instant::now();
    while !(logged().contains("password from 127.0.0.7:") && logged().contains("and says")) {
        assert!(start.elapsed() < PATIENCE, "{}", logged());
        sleep(Duration::from_millis(20));
    }
    sleep(Duration::from_millis(200));
    drop(node);

    let lines: Vec<String> = logged().lines().map(str::to_owned).collect();
    let slander = lines.iter().filter(|line| line.contains(SLANDER)).count();
    assert!(slander >= 2, "the peer's words and a listener's name are in the log: {lines:#?}");
    let guilty = BTreeSet::from(["127.0.0.5", "127.0.0.6", "127.0.0.7", "::1"].map(str::to_owned));
    // As fail2ban sees a line of a file, without its time; one of the journal; and one that syslog has written.
    let cut = |line: &String| line.split_once('Z').map_or("", |(_, rest)| rest).to_owned();
    let file: Vec<String> = lines.iter().map(cut).collect();
    let journal: Vec<String> = lines.iter().map(|line| format!("city.example ekiden[4711]: {line}")).collect();
    let syslog: Vec<String> = journal.iter().map(|line| format!(" {line}")).collect();
    for seen in [file, journal, syslog] {
        assert_eq!(found(&filter(), &seen), guilty, "{}\n{seen:#?}", filter());
    }
}
