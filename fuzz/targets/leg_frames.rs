//! A node that says anything in an open stream, in pieces of any length.
#![no_main]

use ekiden_relay_proto::leg::{Event, Incoming, ProtocolError};
use libfuzzer_sys::fuzz_target;

mod cuts;

fuzz_target!(|data: &[u8]| {
    let Some((bytes, cuts)) = cuts::split(data) else { return };
    let mut dialler = Incoming::default();
    dialler.said_end();
    for incoming in [Incoming::default(), dialler] {
        assert_eq!(receive(incoming, bytes, &cuts), receive(incoming, bytes, &[bytes.len()]));
    }
});

/// The payload's length, how the stream ended, and how many bytes were used.
fn receive(mut incoming: Incoming, bytes: &[u8], cuts: &[usize]) -> (u64, Option<Result<Event, ProtocolError>>, usize) {
    let (mut payload, mut used) = (0, 0);
    for cut in cuts {
        while used < *cut {
            let there = cut - used;
            if incoming.payload() > 0 {
                let n = there.min(incoming.payload() as usize);
                incoming.took_payload(n as u32);
                (payload, used) = (payload + n as u64, used + n);
                continue;
            }
            let n = there.min(incoming.header_missing());
            let event = incoming.took_header(&bytes[used..used + n]);
            used += n;
            match event {
                Ok(None | Some(Event::Data(_))) => {}
                Ok(Some(event)) => return (payload, Some(Ok(event)), used),
                Err(violation) => return (payload, Some(Err(violation)), used),
            }
        }
    }
    (payload, None, used)
}
