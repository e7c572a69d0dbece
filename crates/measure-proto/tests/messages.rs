//! Whatever comes over a connection is read without a panic, and what is accepted is within bounds.

use ekiden_measure_proto::gathered::Gathered;
use ekiden_measure_proto::message::{
    OLDEST, Preamble, Purpose, ROWS_MOST, Reply, Request, Speaks, StreamEnd, Trace, VERSION, decode, encode, shown,
};
use ekiden_measure_proto::row::Row;
use ekiden_measure_proto::settings::{Asked, BYTES_MOST, DURATION_MOST_US, STREAMS_MOST};
use ekiden_record::{EndSettings, LoadSettings, Way};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn way() -> impl Strategy<Value = Way> {
    prop_oneof![Just(Way::Forth), Just(Way::Back)]
}

fn row() -> impl Strategy<Value = Row> {
    (any::<[u64; 7]>(), any::<[u32; 11]>(), any::<bool>()).prop_map(|(long, short, is_buffer_full)| Row {
        at_us: long[0],
        program_bytes: long[1],
        kernel_bytes: long[2],
        sent_bytes: long[3],
        retransmits: short[0],
        delivered: short[1],
        cwnd: short[2],
        ssthresh: short[3],
        unacked: short[4],
        lost: short[5],
        rtt_us: short[6],
        rtt_min_us: short[7],
        window: short[8],
        unsent: short[9],
        delivery_bytes_s: long[4],
        busy_us: long[5],
        window_limited_us: long[6],
        buffer_limited_us: short[10].into(),
        is_buffer_full,
    })
}

fn settings() -> impl Strategy<Value = LoadSettings> {
    let near = |most: u64| prop_oneof![0..4_u64, most.saturating_sub(2)..most.saturating_add(2), any::<u64>()];
    let small = || option::of(prop_oneof![0..4_u32, any::<u32>()]);
    let long = move |most| option::of(near(most));
    let first = (vec(way(), 0..4), 0..200_u32, long(DURATION_MOST_US), long(BYTES_MOST), small(), long(1 << 30));
    let second = (long(1 << 30), small(), small(), option::of(".{0,20}"), long(8_000), long(8_000), any::<u32>());
    (first, second).prop_map(|(first, second)| LoadSettings {
        ways: first.0,
        streams: first.1,
        duration_us: first.2,
        bytes: first.3,
        data_bytes: first.4,
        send_buffer_bytes: first.5,
        receive_buffer_bytes: second.0,
        window_bytes: second.1,
        mss_bytes: second.2,
        congestion: second.3,
        pacing_bit_s: second.4,
        offered_bit_s: second.5,
        sample_us: second.6,
    })
}

fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        Just(Reply::Started),
        Just(Reply::Done),
        (way(), 0..3_u32, vec(row(), 0..5)).prop_map(|(way, stream, rows)| Reply::Rows { way, stream, rows }),
        (way(), 0..3_u32, ".{0,20}", option::of(".{0,20}")).prop_map(|(way, stream, congestion, failed)| {
            Reply::Stream { way, stream, end: StreamEnd { congestion, failed, ..StreamEnd::default() } }
        }),
        ".{0,400}".prop_map(|why| Reply::Failed { why }),
        (".{0,400}", any::<bool>()).prop_map(|(why, busy)| Reply::Refused { why, busy }),
    ]
}

/// What is behind a message's length.
fn body(message: &impl serde::Serialize) -> Vec<u8> {
    let bytes = encode(message).unwrap();
    let (length, body) = bytes.split_first_chunk::<4>().unwrap();
    assert_eq!(u32::from_be_bytes(*length) as usize, body.len());
    body.to_vec()
}

proptest! {
    #[test]
    fn any_row_survives(row in row()) {
        let reply = Reply::Rows { way: Way::Back, stream: 7, rows: vec![row] };
        prop_assert_eq!(decode::<Reply>(&body(&reply)).unwrap(), Some(reply));
    }

    #[test]
    fn any_settings_survive_and_what_is_accepted_can_be_run(settings in settings(), count: u32) {
        let trace = Trace::Episodes { count };
        let request = Request::Measure { speaks: Speaks::own(), settings: Box::new(settings.clone()), trace };
        prop_assert_eq!(decode::<Request>(&body(&request)).unwrap(), Some(request));
        match Asked::new(settings.clone()) {
            Ok(asked) => {
                let got = asked.get();
                prop_assert_eq!(got, &settings);
                prop_assert!((1..=2).contains(&got.ways.len()) && (1..=STREAMS_MOST).contains(&got.streams));
                prop_assert!(got.duration_us.is_none_or(|time| (1_000..=DURATION_MOST_US).contains(&time)));
                let all = (0..got.streams).map(|stream| asked.bytes_of(stream).unwrap_or_default()).sum::<u64>();
                prop_assert_eq!(all, got.bytes.unwrap_or_default());
            }
            Err(why) => prop_assert!(!why.contains(char::is_control), "{why}"),
        }
    }

    #[test]
    fn any_preamble_comes_back(token: [u8; 16], way in option::of(way()), stream: u16) {
        let purpose = way.map_or(Purpose::Probe, |way| Purpose::Stream(way, stream));
        let preamble = Preamble { token, purpose };
        prop_assert_eq!(Preamble::decode(&preamble.encode()), Some(preamble));
    }

    #[test]
    fn bytes_are_a_preamble_or_none(bytes in any::<[u8; Preamble::BYTES]>(), is_begun: bool, kind in 0..4_u8) {
        let mut bytes = bytes;
        if is_begun {
            bytes[..4].copy_from_slice(b"EKD1");
            bytes[20] = kind;
        }
        if let Some(preamble) = Preamble::decode(&bytes) {
            prop_assert!(preamble.purpose == Purpose::Probe || preamble.encode() == bytes);
        }
    }

    #[test]
    fn bytes_are_a_message_or_none(bytes: Vec<u8>, text in "[\\[\\]{}\":,a-z_0-9.e-]{0,200}") {
        for bytes in [&bytes[..], text.as_bytes()] {
            let _ = (decode::<Request>(bytes), decode::<Reply>(bytes));
        }
    }

    #[test]
    fn what_a_server_says_is_kept_within_bounds(replies in vec(reply(), 0..12)) {
        let asked = Asked::default();
        let mut gathered = Gathered::new(&asked);
        for reply in replies {
            if let Err(why) = gathered.add(reply.shown()) {
                prop_assert!(!why.contains(char::is_control) && why.chars().count() <= 300, "{why}");
                break;
            }
        }
        let seen = gathered.seen();
        prop_assert!(seen.len() <= 1);
        for seen in seen {
            prop_assert_eq!((seen.way, seen.stream), (Way::Forth, 0));
            prop_assert!(seen.rows.len() <= ROWS_MOST && seen.rows.is_sorted_by_key(|row| row.at_us));
            prop_assert!(!seen.end.congestion.contains(char::is_control));
        }
    }

    #[test]
    fn texts_of_a_server_are_shown_without_control_characters(texts in any::<[String; 5]>()) {
        let [version, kernel, congestion, tcp_rmem, tcp_wmem] = texts;
        let end = EndSettings { version, kernel, congestion, tcp_rmem, tcp_wmem };
        let ready = Reply::Ready { version: VERSION, token: String::new(), end, bytes_most: None, duration_most_us: 0 };
        let Reply::Ready { end, .. } = ready.shown() else { unreachable!() };
        for text in [end.version, end.kernel, end.congestion, end.tcp_rmem, end.tcp_wmem] {
            prop_assert!(!text.contains(char::is_control), "{text:?}");
        }
    }

    #[test]
    fn what_is_shown_is_one_line(text: String) {
        prop_assert!(!shown(&text).contains(char::is_control));
        let (turned, long) = (format!("no\u{202e}{text}\u{2066}\u{200b}\u{2028}\u{feff}"), "A".repeat(5_000));
        let turns = shown(&turned).contains(['\u{202e}', '\u{2066}', '\u{200b}', '\u{2028}', '\u{feff}']);
        prop_assert!(!turns);
        prop_assert_eq!(shown(&long).len(), 300);
    }
}

#[test]
fn what_a_newer_end_says_besides_has_no_effect() {
    let row: Vec<u64> = (0..19).collect();
    let rows =
        |more: &[u64]| format!(r#"{{"say":"rows","way":"back","stream":7,"rows":[{:?}]}}"#, [&row[..], more].concat());
    let read = |text: String| decode::<Reply>(text.as_bytes());
    assert_eq!(read(rows(&[19, 20])).unwrap(), read(rows(&[])).unwrap());
    assert!(read(rows(&[]).replace("[0, ", "[")).is_err(), "one number is missing");
    let more = r#"{"say":"started","more":[1,{"a":null}]}"#;
    assert_eq!(decode::<Reply>(more.as_bytes()).unwrap(), Some(Reply::Started));
    // A message of a new kind is skipped only if its sender says so.
    assert_eq!(decode::<Reply>(br#"{"say":"news","may_be_skipped":true}"#).unwrap(), None);
    for text in [r#"{"say":"news"}"#, r#"{"say":"news","may_be_skipped":false}"#, "[]", r#"{"may_be_skipped":1}"#] {
        assert!(decode::<Reply>(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn ends_agree_on_the_newest_version_that_both_speak_or_say_both_builds() {
    let client = |version, oldest, requires: &[&str]| {
        let requires = requires.iter().map(|name| name.to_string()).collect();
        Speaks { version, oldest, requires, build: "9.9.9".into() }.agreed()
    };
    assert_eq!(Speaks::own().agreed(), Ok(VERSION));
    assert_eq!(client(VERSION + 3, Some(OLDEST), &[]), Ok(VERSION));
    for (version, oldest) in
        [(VERSION + 2, Some(VERSION + 1)), (VERSION + 1, None), (OLDEST - 1, None), (OLDEST - 1, Some(VERSION))]
    {
        let why = client(version, oldest, &[]).unwrap_err();
        assert!(
            why.starts_with(&format!(
                "it speaks version {version} of the measuring protocol, and this server {VERSION}; "
            )),
            "{why}"
        );
        assert!(why.contains("it is ekiden 9.9.9, and this server ekiden "), "{why}");
    }
    let why = client(VERSION, None, &["warp\n"]).unwrap_err();
    assert!(why.starts_with("it requires 'warp ', which this server does not know; it is ekiden 9.9.9"), "{why}");
}
