//! A client of the HTTP proxy that says anything.
#![no_main]

use ekiden_relay_proto::ftp::command;
use ekiden_relay_proto::http::{HeadScanner, parse_request};
use libfuzzer_sys::fuzz_target;

mod cuts;

const HEAD_MOST: usize = 4096;

fuzz_target!(|data: &[u8]| {
    let Some((bytes, cuts)) = cuts::split(data) else { return };
    let mut scanner = HeadScanner::default();
    let split = cuts.iter().map(|cut| scanner.find(&bytes[..*cut], HEAD_MOST)).find(|found| *found != Ok(None));
    let whole = HeadScanner::default().find(bytes, HEAD_MOST);
    assert_eq!(split.unwrap_or(Ok(None)), whole);
    let Ok(Some(length)) = whole else { return };
    let Ok(request) = parse_request(&bytes[..length], 32) else { return };
    assert_ne!(request.target.port, 0);
    if let Some(fetch) = &request.ftp {
        for word in [Some(&fetch.user), Some(&fetch.password), fetch.path.as_ref()] {
            let line = command("X", word);
            assert!(line.iter().position(|&byte| byte < b' ') == Some(line.len() - 2), "more than one line");
        }
    } else if let Some(answer) = &request.answer {
        let text = String::from_utf8_lossy(answer).to_ascii_lowercase();
        assert!(!text.contains("\r\nproxy-authorization:"), "a password is said back");
    } else if !request.is_connect {
        // What is sent on is one head, of a request that an origin reads as one.
        assert_eq!(HeadScanner::default().find(&request.head, usize::MAX), Ok(Some(request.head.len())));
        let text = String::from_utf8_lossy(&request.head).to_ascii_lowercase();
        assert!(!text.contains("\r\nproxy-authorization:"), "a password is passed on");
    }
});
