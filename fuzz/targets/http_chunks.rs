//! A chunked body of anything, in pieces of any length.
#![no_main]

use ekiden_relay_proto::http::Chunked;
use libfuzzer_sys::fuzz_target;

mod cuts;

fuzz_target!(|data: &[u8]| {
    let Some((bytes, cuts)) = cuts::split(data) else { return };
    assert_eq!(follow(bytes, &cuts), follow(bytes, &[bytes.len()]));
});

/// The data, how many bytes were used, and how it ended.
fn follow(bytes: &[u8], cuts: &[usize]) -> (Vec<u8>, Option<usize>, bool) {
    let (mut chunked, mut body, mut used) = (Chunked::default(), Vec::new(), 0);
    for cut in cuts {
        while used < *cut && !chunked.is_done() {
            let Ok(piece) = chunked.advance(&bytes[used..*cut]) else { return (body, None, false) };
            assert!(piece.length > 0, "it stands still");
            if piece.is_data {
                body.extend(&bytes[used..used + piece.length]);
            }
            used += piece.length;
        }
    }
    (body, Some(used), chunked.is_done())
}
