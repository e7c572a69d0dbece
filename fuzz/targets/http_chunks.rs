//! A chunked body of anything, in pieces of any length: it goes on the same, and what goes on reads as the same again.
#![no_main]

use ekiden_relay_proto::http::Chunked;
use libfuzzer_sys::fuzz_target;

mod cuts;

fuzz_target!(|data: &[u8]| {
    let Some((bytes, cuts)) = cuts::split(data) else { return };
    for unchunk in [false, true] {
        assert_eq!(rewrite(bytes, &cuts, unchunk), rewrite(bytes, &[bytes.len()], unchunk));
    }
    let Some((anew, _, true)) = rewrite(bytes, &cuts, false) else { return };
    assert_eq!(rewrite(&anew, &[anew.len()], false), Some((anew.clone(), anew.len(), true)));
    let body = |bytes: &[u8]| rewrite(bytes, &[bytes.len()], true).map(|(body, ..)| body);
    assert_eq!(body(&anew), body(bytes));
});

/// What goes on, how many bytes were used, and whether the body is done. `None` if it is malformed.
fn rewrite(bytes: &[u8], cuts: &[usize], unchunk: bool) -> Option<(Vec<u8>, usize, bool)> {
    let (mut chunked, mut out, mut used) = (Chunked::new(unchunk), Vec::new(), 0);
    for cut in cuts {
        used += chunked.advance(&bytes[used..*cut], &mut out).ok()?;
        assert!(used == *cut || chunked.is_done(), "it stands still");
        if chunked.is_done() {
            break;
        }
    }
    Some((out, used, chunked.is_done()))
}
