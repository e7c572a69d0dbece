//! Whatever a server says is read without a panic, and what is accepted is a number.

use ekiden_iperf3::message::{decode_results, json_length, stream_id};
use proptest::prelude::*;

proptest! {
    #[test]
    fn bytes_are_a_message_or_none(bytes: Vec<u8>, text in "[\\[\\]{}\":,a-z_0-9.e-]{0,200}") {
        for bytes in [&bytes[..], text.as_bytes()] {
            let _ = decode_results(bytes);
        }
        if let Some(header) = bytes.first_chunk::<4>() {
            let _ = json_length(*header);
        }
    }

    #[test]
    fn results_of_an_iperf3_server_are_numbers_or_refused(bytes: f64, from: f64, to: f64, again: f64) {
        let json = format!(
            r#"{{"streams":[{{"id":1,"bytes":{bytes:e},"retransmits":{again:e},"start_time":{from:e},"end_time":{to:e}}}]}}"#
        );
        if let Ok(results) = decode_results(json.as_bytes()) {
            let stream = results.stream(stream_id(0)).unwrap();
            let _ = (stream.moved_bytes(), stream.resent(), results.congestion());
            prop_assert!(!matches!(stream.seconds(), Ok(Some(seconds)) if !seconds.is_finite()));
        }
    }
}
