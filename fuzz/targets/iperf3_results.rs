//! An iperf3 server that says anything at the end of a measurement.
#![no_main]

use ekiden_iperf3::message::{State, decode_results, json_length, stream_id};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((header, json)) = data.split_first_chunk::<4>() else { return };
    let _ = State::of(header[0]);
    if let Ok(length) = json_length(*header) {
        assert!((1..=1 << 20).contains(&length));
    }
    let Ok(results) = decode_results(json) else { return };
    let name = results.congestion().unwrap_or_default();
    assert!(name.len() < 16 && !name.contains(char::is_control));
    for index in 0..3 {
        let Ok(stream) = results.stream(stream_id(index)) else { continue };
        let _ = (stream.moved_bytes(), stream.resent());
        if let Ok(Some(seconds)) = stream.seconds() {
            assert!(seconds.is_finite() && seconds > 0.0);
        }
    }
});
