//! An FTP server that says anything, in pieces of any length.
#![no_main]

use ekiden_relay_proto::ftp::{Replies, Reply, ReplyError};
use libfuzzer_sys::fuzz_target;

mod cuts;

fuzz_target!(|data: &[u8]| {
    let Some((bytes, cuts)) = cuts::split(data) else { return };
    let split = read(bytes, &cuts);
    assert_eq!(split, read(bytes, &[bytes.len()]));
    for reply in split.into_iter().flatten() {
        assert!((100..600).contains(&reply.code));
        assert!(!reply.text.chars().any(char::is_control));
        let _ = (reply.extended_port(), reply.passive_port(), reply.size());
        if let Some(modified) = reply.modified() {
            assert_eq!(modified.len(), "Sun, 06 Nov 1994 08:49:37 GMT".len());
        }
    }
});

fn read(bytes: &[u8], cuts: &[usize]) -> Result<Vec<Reply>, ReplyError> {
    let (mut replies, mut found, mut buffer, mut at) = (Replies::default(), Vec::new(), Vec::new(), 0);
    for cut in cuts {
        buffer.extend(&bytes[at..*cut]);
        at = *cut;
        while let Some(reply) = replies.take(&mut buffer)? {
            found.push(reply);
        }
    }
    Ok(found)
}
