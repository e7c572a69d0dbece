//! TCP options, byte by byte, and the small values: sequence numbers and SACK blocks.

use std::net::IpAddr;

use crate::support::*;
use ekiden_packet::*;
use proptest::collection::vec;
use proptest::prelude::*;

const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const NOP: &[u8] = &[1];

/// Parses a segment with these bytes of options, filled up with zeros.
fn parse(syn: bool, options: &[u8]) -> Result<Options, ParseError> {
    let words = options.len().div_ceil(4);
    let mut bytes = vec![0; 20 + 4 * words];
    bytes[12] = (5 + words as u8) << 4;
    bytes[13] = if syn { 2 } else { 16 };
    bytes[20..20 + options.len()].copy_from_slice(options);
    let sum = tcp_checksum(ADDRESS, ADDRESS, &bytes);
    bytes[16..18].copy_from_slice(&sum.to_be_bytes());
    Segment::parse(&bytes, ADDRESS, ADDRESS).map(|(segment, _)| segment.options)
}

/// An option of a kind with a value of the length that goes with it; unknown ones of any length.
fn known_or_unknown() -> impl Strategy<Value = Vec<u8>> {
    let of = |kind: u8, length: usize| {
        vec(any::<u8>(), length).prop_map(move |value| [&[kind, value.len() as u8 + 2][..], &value].concat())
    };
    prop_oneof![
        Just(NOP.to_vec()),
        of(2, 2),
        of(3, 1),
        of(4, 0),
        of(8, 8),
        (1..=4usize).prop_flat_map(move |blocks| of(5, 8 * blocks)),
        (prop_oneof![6..=7u8, 9..=255u8], 0..6usize).prop_flat_map(move |(kind, length)| of(kind, length)),
    ]
}

/// Well-formed options that fit into `room` bytes.
fn well_formed(room: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(known_or_unknown(), 0..12).prop_map(move |mut pieces| {
        let mut bytes = 0;
        pieces.retain(|piece| {
            let fits = bytes + piece.len() <= room;
            bytes += if fits { piece.len() } else { 0 };
            fits
        });
        pieces
    })
}

/// Reads well-formed options one at a time, the last of a kind counts.
fn read(pieces: &[Vec<u8>], syn: bool) -> Options {
    let mut options = Options::default();
    for piece in pieces {
        let number = |at: usize| u32::from_be_bytes(piece[at..at + 4].try_into().unwrap());
        match piece[0] {
            2 if syn => options.mss = Some(u16::from(piece[2]) << 8 | u16::from(piece[3])),
            3 if syn => options.window_scale = Some(piece[2].min(14)),
            4 if syn => options.sack_permitted = true,
            5 => {
                options.sack = SackBlocks::default();
                for at in (2..piece.len()).step_by(8) {
                    options.sack.push(SackBlock { start: Seq(number(at)), end: Seq(number(at + 4)) });
                }
            }
            8 => options.timestamps = Some(Timestamps { value: number(2), echo: number(6) }),
            _ => {}
        }
    }
    options
}

/// Whether an option of this length is allowed with so many bytes left for it.
fn judged(kind: u8, length: u8, room: u8) -> Result<(), ParseError> {
    let right = match kind {
        2 => length == 4,
        3 => length == 3,
        4 => length == 2,
        5 => [10, 18, 26, 34].contains(&length),
        8 => length == 10,
        _ => length >= 2,
    };
    if right && length <= room { Ok(()) } else { Err(ParseError::OptionLength { kind, length }) }
}

proptest! {
    #[test]
    fn options_in_any_order_are_read_and_unknown_ones_skipped(pieces in well_formed(40), syn: bool) {
        prop_assert_eq!(parse(syn, &pieces.concat()), Ok(read(&pieces, syn)));
    }

    #[test]
    fn an_option_of_a_wrong_length_is_named(before in well_formed(38), unknown in 9..=255u8) {
        let before = before.concat();
        for (kind, length) in [2, 3, 4, 5, 8, unknown].into_iter().flat_map(|kind| (0..=255).map(move |length| (kind, length))) {
            let bytes = [&before[..], &[kind, length]].concat();
            let room = (bytes.len().div_ceil(4) * 4 - before.len()) as u8;
            prop_assert_eq!(parse(true, &bytes).map(|_| ()), judged(kind, length, room));
            // With all the room that a header has.
            let long = [&bytes[..], &vec![0; 40 - bytes.len()]].concat();
            prop_assert_eq!(parse(true, &long).map(|_| ()), judged(kind, length, 40 - before.len() as u8));
        }
    }

    #[test]
    fn sequence_numbers_wrap_around(start: u32, distance: i32, steps: u32) {
        let [start, far] = [Seq(start), Seq(start.wrapping_add_signed(distance))];
        prop_assert_eq!(far.since(start), distance);
        prop_assert_eq!((start + steps) - steps, start);
        prop_assert_eq!(u64::from((start + steps).0), (u64::from(start.0) + u64::from(steps)) % (1 << 32));
    }
}

#[test]
fn an_option_without_a_length_is_an_error() {
    for kind in [2, 77] {
        assert_eq!(parse(true, &[1, 1, 1, kind]), Err(ParseError::OptionLength { kind, length: 0 }));
    }
}

#[test]
fn nothing_after_the_end_of_the_options_is_read() {
    let expected = Options { mss: Some(1460), ..Options::default() };
    assert_eq!(parse(true, &[2, 4, 5, 180, 0, 3, 3, 7, 2, 1, 9, 9]), Ok(expected));
}

#[test]
fn before_and_after_are_told_across_zero() {
    assert_eq!(Seq(3).since(Seq(u32::MAX - 1)), 5);
    assert_eq!(Seq(u32::MAX - 1).since(Seq(3)), -5);
    assert_eq!(Seq(1 << 31).since(Seq(0)), i32::MIN);
    assert_eq!(Seq(u32::MAX) + 1, Seq(0));
    assert_eq!(Seq(0) - 1, Seq(u32::MAX));
}

#[test]
fn a_segment_has_room_for_four_sack_blocks_and_three_beside_timestamps() {
    let block = |n| SackBlock { start: Seq(n), end: Seq(n + 1) };
    let mut sack = SackBlocks::default();
    assert!(sack.is_empty());
    for n in 0..4 {
        assert!(sack.push(block(n)));
    }
    assert!(!sack.push(block(4)));
    assert_eq!((sack.len(), (0..9).map(block).collect::<SackBlocks>()), (4, sack));
    let mut segment = Segment { options: Options { sack, ..Options::default() }, ..Segment::default() };
    assert_eq!((segment.header_bytes(), segment.as_sent()), (56, segment));
    segment.options.timestamps = Some(Timestamps::default());
    assert_eq!(segment.header_bytes(), 60);
    assert!(segment.as_sent().options.sack.iter().eq((0..3).map(block)));
}

#[test]
fn syn_and_fin_take_a_sequence_number_each() {
    let mut segment = Segment { payload: 100, ..Segment::default() };
    assert_eq!(segment.sequence_len(), 100);
    segment.flags = Flags { rst: true, psh: true, ..Flags::default() };
    assert_eq!(segment.sequence_len(), 100);
    segment.flags.syn = true;
    assert_eq!(segment.sequence_len(), 101);
    segment.flags.fin = true;
    assert_eq!(segment.sequence_len(), 102);
}

#[test]
fn a_segment_stays_small() {
    assert!(size_of::<Segment>() <= 88, "{} bytes", size_of::<Segment>());
}
