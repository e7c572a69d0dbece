//! A node that says anything in an open stream, in pieces of any length.
#![no_main]

use ekiden_relay_proto::leg::{Event, FrameDecoder, ProtocolError};
use libfuzzer_sys::fuzz_target;

mod cuts;

fuzz_target!(|data: &[u8]| {
    let Some((bytes, cuts)) = cuts::split(data) else { return };
    let mut dialler = FrameDecoder::default();
    dialler.said_end();
    for decoder in [FrameDecoder::default(), dialler] {
        assert_eq!(receive(decoder, bytes, &cuts), receive(decoder, bytes, &[bytes.len()]));
    }
});

/// The payload's length, how the stream ended, and how many bytes were used.
fn receive(
    mut decoder: FrameDecoder,
    bytes: &[u8],
    cuts: &[usize],
) -> (u64, Option<Result<Event, ProtocolError>>, usize) {
    let (mut payload, mut used) = (0, 0);
    for cut in cuts {
        while used < *cut {
            let there = cut - used;
            if decoder.payload() > 0 {
                let n = there.min(decoder.payload() as usize);
                let is_unknown = decoder.is_unknown();
                decoder.took_payload(n as u32);
                (payload, used) = (payload + if is_unknown { 0 } else { n as u64 }, used + n);
                continue;
            }
            let n = there.min(decoder.header_missing());
            let event = decoder.took_header(&bytes[used..used + n]);
            used += n;
            match event {
                Ok(None | Some(Event::Data(_) | Event::Unknown(_))) => {}
                Ok(Some(event)) => return (payload, Some(Ok(event)), used),
                Err(violation) => return (payload, Some(Err(violation)), used),
            }
        }
    }
    (payload, None, used)
}
