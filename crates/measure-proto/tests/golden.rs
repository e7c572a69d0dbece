//! What each release has said, a message a line: this build reads it, and says the same. The file of a release that is out stays.
//! `EKIDEN_GOLDENS=write cargo test -p ekiden-measure-proto golden::` writes that of the release to come anew.

use std::path::Path;

use ekiden_measure_proto::message::{Reply, Request, Segments, Speaks, StreamEnd, Trace, decode, encode};
use ekiden_measure_proto::row::Row;
use ekiden_record::{EndSettings, LoadSettings, Way};
use serde::Serialize;
use serde::de::DeserializeOwned;

fn requests() -> Vec<Request> {
    let settings = LoadSettings {
        ways: vec![Way::Forth, Way::Back],
        streams: 2,
        duration_us: Some(5_000_000),
        bytes: None,
        data_bytes: None,
        send_buffer_bytes: Some(65_536),
        receive_buffer_bytes: None,
        window_bytes: None,
        mss_bytes: None,
        congestion: Some("reno".into()),
        pacing_bit_s: None,
        offered_bit_s: None,
        sample_us: 10_000,
    };
    let speaks = Speaks { version: 2, oldest: Some(2), requires: Vec::new(), build: "0.1.0".into() };
    let trace = Trace::UntilLoss { bdps_most: 10.0, bytes_least: 300_000 };
    vec![Request::Measure { speaks, settings: Box::new(settings), trace }, Request::Start, Request::Stop]
}

fn replies() -> Vec<Reply> {
    let text = str::to_owned;
    let end = EndSettings {
        version: text("0.1.0"),
        kernel: text("6.1.0"),
        congestion: text("cubic"),
        tcp_rmem: text("4096 131072 6291456"),
        tcp_wmem: text("4096 16384 4194304"),
    };
    let stream = StreamEnd {
        bytes: 1_000_000,
        congestion: text("reno"),
        segments: Some(Segments { longest_bytes: 1448, whole_bytes: 1_000_000, mtu_probing: 0 }),
        ..StreamEnd::default()
    };
    let (way, rows) = (Way::Back, vec![Row { at_us: 7, rtt_us: 40_000, ..Row::default() }]);
    vec![
        Reply::Ready { version: 2, token: "07".repeat(16), end, bytes_most: None, duration_most_us: 3_600_000_000 },
        Reply::Refused { why: text("it measures already"), busy: true },
        Reply::Started,
        Reply::Rows { way, stream: 0, rows },
        Reply::Stream { way, stream: 0, end: stream },
        Reply::Done,
        Reply::Failed { why: text("a stream has failed") },
    ]
}

fn lines(messages: &[impl Serialize]) -> String {
    let line = |message| String::from_utf8(encode(message).unwrap()[4..].to_vec()).unwrap() + "\n";
    messages.iter().map(line).collect()
}

fn read<T: DeserializeOwned>(text: &str) -> Vec<T> {
    text.lines().map(|line| decode(line.as_bytes()).unwrap().unwrap()).collect()
}

#[test]
fn this_build_reads_and_says_what_each_release_has_said() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    if std::env::var("EKIDEN_GOLDENS").is_ok_and(|value| value == "write") {
        std::fs::write(folder.join("0.1.client.jsonl"), lines(&requests())).unwrap();
        std::fs::write(folder.join("0.1.server.jsonl"), lines(&replies())).unwrap();
    }
    let text = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    let [client, server] = ["0.1.client.jsonl", "0.1.server.jsonl"].map(text);
    assert_eq!((lines(&requests()), lines(&replies())), (client.clone(), server.clone()));
    assert_eq!((read(&client), read(&server)), (requests(), replies()));
}
