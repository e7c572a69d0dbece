//! A measuring client or server that says anything: what is accepted is within bounds, and what is said of a load can be judged.
#![no_main]

use ekiden_diagnosis::measured::Measured;
use ekiden_diagnosis::outcome::{samples, told};
use ekiden_diagnosis::verdict::sentence;
use ekiden_measure_proto::gathered::{Gathered, Next};
use ekiden_measure_proto::message::{Preamble, ROWS_MOST, Reply, Request, decode, encode};
use ekiden_measure_proto::settings::{Asked, BYTES_MOST, DURATION_MOST_US, STREAMS_MOST};
use ekiden_record::EndSettings;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(preamble) = data.first_chunk().and_then(Preamble::decode) {
        assert_eq!(Preamble::decode(&preamble.encode()), Some(preamble));
    }
    if let Ok(Some(request)) = decode::<Request>(data) {
        assert_eq!(decode::<Request>(&encode(&request).unwrap()[4..]).unwrap().as_ref(), Some(&request));
        if let Request::Measure { settings, .. } = request
            && let Ok(asked) = Asked::new(*settings)
        {
            let settings = asked.get();
            assert!((1..=STREAMS_MOST).contains(&settings.streams) && (1..=2).contains(&settings.ways.len()));
            assert!(settings.duration_us.is_none_or(|time| (1_000..=DURATION_MOST_US).contains(&time)));
            assert!(settings.bytes.is_none_or(|bytes| (1..=BYTES_MOST).contains(&bytes)));
        }
    }
    // One message a line.
    let asked = Asked::default();
    let [mut near, mut far] = [Gathered::new(&asked), Gathered::new(&asked)];
    for line in data.split(|byte| *byte == b'\n') {
        let Ok(Some(reply)) = decode::<Reply>(line) else { continue };
        if near.add(reply.clone()).is_err() || far.add(reply) != Ok(Next::More) {
            break;
        }
    }
    let [near_seen, far_seen] = [near.seen(), far.seen()];
    assert!(far_seen.len() <= 1 && far_seen.iter().all(|seen| seen.rows.len() <= ROWS_MOST));
    let from = ([127, 0, 0, 1], 1).into();
    let measured = Measured {
        from,
        far: EndSettings::default(),
        near_seen,
        far_seen,
        answers: Vec::new(),
        began_ns: 0,
        ended_ns: 1,
        bytes_most: None,
    };
    if let Ok((loads, latency)) = told(&asked, &measured) {
        for load in &loads {
            let _ = sentence(load, asked.get(), Some(&latency));
        }
    }
    let _ = samples(&measured);
});
