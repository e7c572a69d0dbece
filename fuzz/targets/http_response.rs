//! An origin that answers anything to a GET, a HEAD and an HTTP/1.0 client.
#![no_main]

use ekiden_relay_proto::http::{HeadScanner, parse_request, parse_response};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(Some(length)) = HeadScanner::default().find(data, 4096) else { return };
    for request in ["GET http://a/ HTTP/1.1", "HEAD http://a/ HTTP/1.1", "GET http://a/ HTTP/1.0"] {
        let request = format!("{request}\r\nHost: a\r\n\r\n");
        let request = parse_request(request.as_bytes(), 32).expect("it is one");
        if let Ok(response) = parse_response(&data[..length], 32, &request, true) {
            // An interim response is nothing to a client that does not know of them.
            if response.is_interim && response.head.is_empty() {
                continue;
            }
            assert_eq!(HeadScanner::default().find(&response.head, usize::MAX), Ok(Some(response.head.len())));
        }
    }
});
