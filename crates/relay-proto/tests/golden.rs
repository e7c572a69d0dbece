//! What each release has said on a leg, byte for byte: this build reads it, and says the same.
//!
//! A file holds a release: it stays, and a test reads all of them. A line is the name of a frame and its bytes in hexadecimal digits.
//! `EKIDEN_GOLDENS=write cargo test -p ekiden-relay-proto golden::` writes that of the release to come anew.

use std::path::{Path, PathBuf};

use ekiden_relay_proto::leg::*;
use ekiden_relay_proto::{Failure, FailureCode, Host, Target};

/// The release to come. The file of one that is out does not change.
const COMING: &str = "0.1.txt";
const KEY: SharedSecret = SharedSecret([7; 32]);
const NAME: &str = "island";

/// Frames by their names.
type Frames = Vec<(String, Vec<u8>)>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn opens() -> [(&'static str, Open); 3] {
    let name = Host::Name("www.example.net".into());
    let bare = Open {
        chain: Vec::new(),
        class: String::new(),
        target: Target { host: name, port: 443 },
        client: None,
        id: None,
        passed: Vec::new(),
    };
    let ip = |text: &str| Target { host: Host::Ip(text.parse().unwrap()), port: 80 };
    let via = Open {
        chain: vec!["tokyo".into(), "osaka".into()],
        class: "web".into(),
        target: ip("192.0.2.1"),
        ..bare.clone()
    };
    let whole = Open {
        target: ip("2001:db8::1"),
        client: Some("[2001:db8::9]:4660".parse().unwrap()),
        id: Some(*b"0123456789abcdef"),
        ..via.clone()
    };
    [("OPEN", bare), ("OPEN via", via), ("OPEN whole", whole)]
}

fn openeds() -> [(&'static str, Opened); 2] {
    [("OPENED", Opened::at(None)), ("OPENED at", Opened::at(Some("[2001:db8::1]:258".parse().unwrap())))]
}

fn failed() -> Failure {
    Failure::new(FailureCode::Refused, "node tokyo: 192.0.2.1:80: connection refused")
}

fn about() -> About {
    About { build: "0.1.0".into(), capabilities: 0, asks: true }
}

fn asked() -> Vec<String> {
    vec!["tokyo".into(), "osaka".into()]
}

/// The handshake of the plain proof, in both roles.
fn shake_hands() -> [(&'static str, Vec<u8>); 3] {
    let dialler = Dialler::new(KEY, NAME, [1; 32]);
    let mut acceptor = Acceptor::new(KEY, [2; 32]);
    let answer = acceptor.hello(&dialler.hello()[HEADER_BYTES..]).unwrap();
    let auth = dialler.auth(&answer[HEADER_BYTES..]).unwrap();
    [("HELLO dialler", dialler.hello()), ("HELLO acceptor", answer), ("AUTH", auth)]
}

/// All that this build says.
fn said() -> Frames {
    let mut all: Vec<(&str, Vec<u8>)> = shake_hands().into();
    all.push(("ABOUT", about().encode()));
    all.extend(opens().map(|(name, open)| (name, open.encode())));
    all.extend(openeds().map(|(name, opened)| (name, opened.encode())));
    all.push(("FAILED", encode_failed(&failed())));
    all.push(("ASK", encode_ask(&asked())));
    all.push(("TOLD", Header::frame(FrameKind::Told, b"{}")));
    all.push(("RECEIPTS", Header::frame(FrameKind::Receipts, b"{}")));
    all.push(("FILL", Header::frame(FrameKind::Fill, &[0; 3])));
    all.push(("DATA", Header::frame(FrameKind::Data, b"payload")));
    all.push(("END", Header { kind: FrameKind::End, length: 0 }.encode().into()));
    all.push(("RESET", Header { kind: FrameKind::Reset, length: 1 }.encode().into()));
    all.push(("DELIVERED", Header { kind: FrameKind::Delivered, length: 0 }.encode().into()));
    all.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
}

/// Those of each release, with its file's name.
fn releases() -> Vec<(String, Frames)> {
    let files = std::fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path());
    let parse = |line: &str| {
        let (name, digits) = line.rsplit_once(' ').unwrap();
        let byte = |at: usize| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap();
        (name.to_owned(), (0..digits.len() / 2).map(byte).collect())
    };
    let read = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).unwrap();
        (file.file_name().unwrap().to_string_lossy().into_owned(), text.lines().map(parse).collect())
    };
    files.map(read).collect()
}

#[test]
fn this_build_says_what_the_releases_have_said() {
    if std::env::var("EKIDEN_GOLDENS").is_ok_and(|value| value == "write") {
        let digits = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let text: String = said().into_iter().map(|(name, bytes)| format!("{name} {}\n", digits(bytes))).collect();
        std::fs::write(folder().join(COMING), text).unwrap();
    }
    let releases = releases();
    assert!(releases.iter().any(|(name, _)| name == COMING));
    for (name, frames) in releases {
        assert!(frames.iter().all(|frame| said().contains(frame)), "{name}: {:?}", said());
        assert!(name != COMING || frames.len() == said().len(), "{name} lacks a frame of this build");
    }
}

#[test]
fn this_build_reads_what_the_releases_have_said() {
    for (release, frames) in releases() {
        let body = |name: &str| {
            let (_, bytes) = frames.iter().find(|(found, _)| found == name).unwrap();
            let header = Header::decode(*bytes.first_chunk().unwrap()).unwrap();
            assert!(
                header.kind == FrameKind::Reset || header.length as usize == bytes.len() - HEADER_BYTES,
                "{release}: {name}"
            );
            &bytes[HEADER_BYTES..]
        };
        // Its dialler, and its acceptor.
        let mut acceptor = Acceptor::new(KEY, [2; 32]);
        assert_eq!(acceptor.hello(body("HELLO dialler")).unwrap()[HEADER_BYTES..], *body("HELLO acceptor"));
        assert_eq!(acceptor.authenticate(body("AUTH")), Ok(NAME.to_owned()));
        let auth = Dialler::new(KEY, NAME, [1; 32]).auth(body("HELLO acceptor")).unwrap();
        assert_eq!(auth[HEADER_BYTES..], *body("AUTH"));
        assert_eq!(About::decode(body("ABOUT")), Ok(about()));
        for (name, open) in opens() {
            assert_eq!(Open::decode(body(name)), Ok(open), "{release}");
        }
        for (name, opened) in openeds() {
            assert_eq!(Opened::decode(body(name)), Ok(opened), "{release}");
        }
        assert_eq!(decode_failed(body("FAILED")), Ok(failed()));
        assert_eq!(decode_ask(body("ASK")), Ok(asked()));
        for name in ["TOLD", "RECEIPTS", "FILL", "DATA", "END", "RESET", "DELIVERED"] {
            body(name);
        }
    }
}
