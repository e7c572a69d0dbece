//! What a tunnel reads: whatever arrives, however it is cut, packets fit the MTU, and their headers are read without a fault. What
//! passes the checks of a super-packet can be cut into segments that fit the MTU.

#![no_main]

#[path = "cuts.rs"]
mod cuts;

use ekiden_tunnel::wire::{Decoder, Frame, Header, VNET_BYTES, VnetHeader, clamp_mss, split};
use libfuzzer_sys::fuzz_target;

const MTU: u16 = 1500;

fuzz_target!(|data: &[u8]| {
    let Some((bytes, ends)) = cuts::split(data) else { return };
    let (mut decoder, mut from) = (Decoder::new(MTU), 0);
    for end in ends {
        let new = &bytes[from..end];
        from = end;
        // Not empty, and inputs are shorter than it is.
        decoder.room()[..new.len()].copy_from_slice(new);
        decoder.filled(new.len());
        loop {
            match decoder.next_frame() {
                Ok(None) => break,
                Err(_) => return,
                Ok(Some(Frame::Plain(packet))) => {
                    assert!((1..=usize::from(MTU)).contains(&packet.len()));
                    look(packet, None);
                }
                Ok(Some(Frame::Offloaded { vnet, bytes })) => {
                    assert!((1..=65_535).contains(&(bytes.len() - VNET_BYTES)));
                    look(&mut bytes[VNET_BYTES..], Some(vnet));
                }
            }
        }
    }
});

fn look(packet: &mut [u8], vnet: Option<VnetHeader>) {
    let Some(header) = Header::read(packet) else { return };
    header.flow(packet);
    clamp_mss(packet, &header, 1400, vnet.is_some());
    assert_eq!(Header::read(packet), Some(header));
    let Some(vnet) = vnet else { return };
    let is_right = vnet.check(packet, &header, MTU).is_ok();
    let segments = split(vnet, packet, 0);
    if is_right && vnet.is_super() {
        for segment in segments.expect("it has been checked") {
            assert!(segment.len() <= usize::from(MTU));
            let own = Header::read(&segment).expect("a segment is a packet");
            assert_eq!((own.source, own.destination), (header.source, header.destination));
        }
    }
}
