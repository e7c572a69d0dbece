//! What the kernel does for a device with offloads, done here for one without: checksums, and super-packets cut into segments.
//! No I/O.

use std::io;

use tun_rs::{VirtioNetHdr, gso_split};

use crate::vnet::VnetHeader;

/// Cuts a super-packet into the packets that it stands for, each behind `room` bytes for a header. `vnet` must have the real
/// length of its headers.
///
/// # Errors
/// If the packet is not as `vnet` describes it.
pub fn split(vnet: VnetHeader, packet: &mut [u8], room: usize) -> io::Result<Vec<Vec<u8>>> {
    let (headers, size) = (usize::from(vnet.hdr_len), usize::from(vnet.gso_size));
    let payload = packet.len().checked_sub(headers).filter(|payload| *payload > 0 && size > 0 && headers > 0);
    let payload = payload.ok_or(io::ErrorKind::InvalidInput)?;
    let segments = payload.div_ceil(size);
    // The last may be shorter.
    let length = |number: usize| room + headers + (payload - number * size).min(size);
    let mut out: Vec<Vec<u8>> = (0..segments).map(|_| vec![0; room + headers + payload.min(size)]).collect();
    let header = VirtioNetHdr {
        flags: 0,
        gso_type: vnet.gso_type,
        hdr_len: vnet.hdr_len,
        gso_size: vnet.gso_size,
        csum_start: vnet.csum_start,
        csum_offset: vnet.csum_offset,
    };
    let is_v6 = packet.first().is_some_and(|first| first >> 4 == 6);
    let made = gso_split(packet, header, &mut out, &mut vec![0; segments], room, is_v6)?;
    out.truncate(made);
    for (number, segment) in out.iter_mut().enumerate() {
        segment.truncate(length(number));
    }
    Ok(out)
}

/// Computes the checksum that a packet lacks. Returns whether `vnet` says a place within the packet.
pub fn complete_checksum(vnet: VnetHeader, packet: &mut [u8]) -> bool {
    let (start, field) = (usize::from(vnet.csum_start), usize::from(vnet.csum_start) + usize::from(vnet.csum_offset));
    if field + 2 > packet.len() {
        return false;
    }
    // The field already holds the sum of the pseudo-header, so that it is summed with the rest.
    let sum = tun_rs::checksum(&packet[start..], 0);
    // 0 would say that there is none (RFC 768); both stand for the same number.
    let complete = if sum == 0xffff { 0xffff } else { !sum };
    packet[field..field + 2].copy_from_slice(&complete.to_be_bytes());
    true
}

#[cfg(test)]
mod tests;
