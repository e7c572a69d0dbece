//! A balancer that tells anything about a connection, in pieces of any length.
#![no_main]

use ekiden_relay_proto::proxy_protocol::{Header, MAX_HEADER, Malformed, Version, read, write};
use libfuzzer_sys::fuzz_target;

mod cuts;

fuzz_target!(|data: &[u8]| {
    let Some((bytes, cuts)) = cuts::split(data) else { return };
    let whole = follow(bytes, &[bytes.len()]);
    // A byte that makes it none may come before the one that is named.
    assert_eq!(follow(bytes, &cuts).ok(), whole.clone().ok());
    if let Ok(Some(Header { length, addresses })) = whole {
        assert!(length <= MAX_HEADER);
        for (version, addresses) in [Version::V1, Version::V2].into_iter().zip(addresses.into_iter().cycle()) {
            let header = write(version, &addresses);
            assert_eq!(read(&header), Ok(Some(Header { length: header.len(), addresses: Some(addresses) })));
        }
    }
});

fn follow(bytes: &[u8], cuts: &[usize]) -> Result<Option<Header>, Malformed> {
    for cut in cuts {
        match read(&bytes[..*cut])? {
            Some(header) => {
                assert!(header.length <= *cut);
                return Ok(Some(header));
            }
            None => assert!(*cut < MAX_HEADER, "it waits for more than a header"),
        }
    }
    Ok(None)
}
