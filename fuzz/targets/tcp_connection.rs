//! A TCP peer that sends any segments at any times, to an engine whose program reads and writes.
#![no_main]

use std::sync::{Arc, LazyLock};

use ekiden_congestion::{CongestionParameters, Tunables, control};
use ekiden_packet::{Flags, SackBlock, Segment, Seq, Timestamps};
use ekiden_tcp::{Connection, TcpSettings};
use ekiden_units::Time;
use libfuzzer_sys::fuzz_target;

/// Both initial sequence numbers are close to the wrap.
const FIRST: Seq = Seq(u32::MAX - 20_000);
const PEERS_FIRST: Seq = Seq(u32::MAX - 300);
const PORTS: (u16, u16) = (1, 2);
/// Segments that may leave between two events: the windows below allow far fewer.
const BURST_MOST: usize = 4096;

fuzz_target!(|data: &[u8]| {
    let Some((&kind, mut data)) = data.split_first() else { return };
    let profiles = [
        TcpSettings::rfc(),
        TcpSettings::linux(),
        TcpSettings::ns2(),
        TcpSettings::ns2_linux(),
        TcpSettings::opnet(),
        TcpSettings::ns2_bitcp(),
    ];
    let mut settings = profiles[usize::from(kind) % profiles.len()].clone();
    (settings.send_buffer, settings.receive_buffer) = (200_000, 100_000);
    // Generating the tables of HSTCP takes longer than all the rest.
    static TUNABLES: LazyLock<Arc<Tunables>> =
        LazyLock::new(|| Arc::new(Tunables::new(&CongestionParameters::default()).expect("the defaults are valid")));
    let names = ["reno", "cubic", "bic", "ekiden_hstcp", "ekiden_ghstcp", "ekiden_bic"];
    let control = control(names[usize::from(kind >> 4) % names.len()], &TUNABLES).expect("a known name");
    let mut connection = Connection::connect(&settings, control, PORTS, FIRST);
    let mut now = Time::secs(1);
    let (mut written, mut read) = (0u64, 0u64);
    while let Some((event, rest)) = data.split_first_chunk::<12>() {
        data = rest;
        now = now + Time(u64::from(event[0]) * u64::from(event[0]) * 1_000_000);
        match event[1] % 8 {
            0 => written += connection.write(u64::from(event[2]) * 1000),
            1 => read += connection.read(u64::from(event[2]) * 1000),
            2 => connection.finish(),
            3 if event[2] == 0xff => connection.abort(),
            _ => {
                connection.on_segment(now, &segment(event));
            }
        }
        if connection.timeout().is_some_and(|at| at <= now) {
            connection.on_time(now);
        }
        let sent = std::iter::from_fn(|| connection.poll_transmit(now)).take(BURST_MOST).count();
        assert!(sent < BURST_MOST, "it sends without end");
        assert!(connection.readable() <= settings.receive_buffer);
        assert!(connection.room() <= settings.send_buffer && written <= u64::from(u32::MAX));
    }
    let _ = read;
});

/// A segment of the peer: mostly near what it could send.
fn segment(event: &[u8; 12]) -> Segment {
    let [_, _, flags, seq, more_seq, ack, more_ack, window, payload, sack, more_sack, stamp] = *event;
    let near = |base: Seq, steps: u8, bytes: u8| {
        Seq(base.0.wrapping_add(u32::from(steps) * 1448).wrapping_add(u32::from(bytes)).wrapping_sub(32))
    };
    let mut segment = Segment {
        source: PORTS.1,
        destination: PORTS.0,
        seq: near(PEERS_FIRST, seq, more_seq),
        ack: (flags & 1 == 0).then(|| near(FIRST, ack, more_ack)),
        flags: Flags {
            // Rare, but for the one that opens the connection.
            syn: flags & 0x0e == 0x0e,
            fin: flags & 0x70 == 0x70,
            rst: flags == 0xff,
            psh: flags & 0x80 != 0,
            ece: more_ack & 1 != 0,
            cwr: more_ack & 2 != 0,
        },
        window: u16::from(window) << 8,
        payload: u32::from(payload) * 8,
        ..Segment::default()
    };
    segment.options.mss = Some(1460);
    segment.options.window_scale = Some(window % 16);
    segment.options.sack_permitted = more_seq & 1 == 0;
    if stamp > 0 {
        segment.options.timestamps = Some(Timestamps { value: stamp.into(), echo: more_ack.into() });
    }
    if sack > 0 {
        let start = near(FIRST, sack, more_sack);
        segment.options.sack.push(SackBlock { start, end: near(start, more_sack % 8, 33) });
    }
    segment.as_sent()
}
