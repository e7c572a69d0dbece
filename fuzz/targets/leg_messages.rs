//! A node that says anything before a stream is open: what is read reads the same when it is written again, and nobody gets
//! in without the key.
#![no_main]

use ekiden_relay_proto::leg::{
    About, Acceptor, Dialler, HEADER_BYTES, Open, Opened, SharedSecret, decode_ask, decode_failed, encode_ask, encode_failed,
};
use libfuzzer_sys::fuzz_target;

const KEY: SharedSecret = SharedSecret([7; 32]);

fuzz_target!(|data: &[u8]| {
    if let Ok(open) = Open::decode(data) {
        assert_ne!(open.target.port, 0);
        assert_eq!(Open::decode(&open.encode()[HEADER_BYTES..]), Ok(open));
    }
    if let Ok(opened) = Opened::decode(data) {
        assert_eq!(Opened::decode(&opened.encode()[HEADER_BYTES..]), Ok(opened));
    }
    if let Ok(about) = About::decode(data) {
        assert_eq!(About::decode(&about.encode()[HEADER_BYTES..]), Ok(about));
    }
    if let Ok(failure) = decode_failed(data) {
        assert_eq!(decode_failed(&encode_failed(&failure)[HEADER_BYTES..]), Ok(failure));
    }
    if let Ok(nodes) = decode_ask(data) {
        assert_eq!(decode_ask(&encode_ask(&nodes)[HEADER_BYTES..]), Ok(nodes));
    }
    let mut acceptor = Acceptor::new(KEY, [1; 32]);
    // Any nonce is one; a proof has to be right.
    let _ = acceptor.hello(data);
    assert!(acceptor.authenticate(data).is_err());
    assert!(Dialler::new(KEY, "name", [2; 32]).auth(data).is_err());
});
