//! What a tunnel reads: whatever arrives, however it is cut, packets fit the MTU, and their headers are read without a fault.

#![no_main]

#[path = "cuts.rs"]
mod cuts;

use ekiden_tunnel::wire::{Decoder, Header, clamp_mss};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((bytes, ends)) = cuts::split(data) else { return };
    let (mut decoder, mut from) = (Decoder::new(1500), 0);
    for end in ends {
        decoder.push(&bytes[from..end]);
        from = end;
        loop {
            match decoder.next_packet() {
                Ok(None) => break,
                Err(_) => return,
                Ok(Some(packet)) => {
                    assert!((1..=1500).contains(&packet.len()));
                    let before = Header::read(packet);
                    clamp_mss(packet, 1400);
                    assert_eq!(Header::read(packet), before);
                    if let Some(header) = before {
                        header.flow(packet);
                    }
                }
            }
        }
    }
});
