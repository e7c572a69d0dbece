//! What the gateway's programs cost: nanoseconds per packet by BPF test runs, absolute and beyond an empty program's in the same run.
//! Run as root by bench/load/gateway/run; prints a table, or one JSON object with `--json`.

use std::error::Error;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ekiden_bpf::run::test_run;
use ekiden_gateway::kernel::{Gateway, Group, Settings};
use ekiden_window_balance::{BalanceSettings, Direction, Policy, flags};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};

/// libbpf reads an ELF file in place, so it must be aligned to 8 bytes.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static PROGRAMS: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/measure.bpf.o")));

/// Times that each program runs in one measurement, and measurements of which the shortest counts.
const REPEAT: u32 = 200_000;
const ROUNDS: usize = 31;
/// Other streams in the tables.
const OTHERS: u32 = 50_000;

const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 1, 2, 0, 0, 3, 4];

/// An IPv4 packet of the stream with this sender, port 1000 to 5001 of 192.0.2.9. Checksums are not set: nothing reads them.
fn frame(sender: u32, direction: Direction, seq: u32, ack: u32, bits: u8, options: &[u8], payload: usize) -> Vec<u8> {
    let sender = (sender.to_be_bytes(), 1000_u16);
    let receiver = ([192, 0, 2, 9], 5001_u16);
    let (from, to) = if direction == Direction::Data { (sender, receiver) } else { (receiver, sender) };
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend(((40 + options.len() + payload) as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
    frame.extend(from.0);
    frame.extend(to.0);
    frame.extend(from.1.to_be_bytes());
    frame.extend(to.1.to_be_bytes());
    frame.extend(seq.to_be_bytes());
    frame.extend(ack.to_be_bytes());
    frame.extend([((20 + options.len()) / 4 * 16) as u8, bits]);
    frame.extend(60_000_u16.to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(options);
    frame.extend(vec![0; payload]);
    frame
}

fn program(object: &Object, name: &str) -> Result<OwnedFd, Box<dyn Error>> {
    let program = object.progs().find(|program| program.name() == name).ok_or("it lacks a program")?;
    Ok(program.as_fd().try_clone_to_owned()?)
}

/// A stream whose windows are lowered, of the paper's policy: 20 segments in flight, one lost.
fn throttle(gateway: &Gateway, sender: u32) -> Result<u32, Box<dyn Error>> {
    let mut clock = 1_000_000;
    let mut pass = |direction, seq, ack, bits, options: &[u8], payload| -> Result<(), Box<dyn Error>> {
        clock += 1_000;
        gateway.set_clock_us(clock)?;
        gateway.run(direction, &frame(sender, direction, seq, ack, bits, options, payload), 0, 1)?;
        Ok(())
    };
    let scale = [3, 3, 2, 0];
    pass(Direction::Data, 0, 0, flags::SYN, &scale, 0)?;
    pass(Direction::Acks, 0, 1, flags::SYN | flags::ACK, &scale, 0)?;
    for segment in 0..20 {
        pass(Direction::Data, 1 + segment * 1000, 1, flags::ACK, &TIMESTAMPS, 1000)?;
    }
    for segment in 0..40 {
        pass(Direction::Acks, 1, 1001 + segment * 1000, flags::ACK, &TIMESTAMPS, 0)?;
        pass(Direction::Data, 20_001 + segment * 1000, 1, flags::ACK, &TIMESTAMPS, 1000)?;
    }
    for _ in 0..4 {
        pass(Direction::Acks, 1, 40_001, flags::ACK, &TIMESTAMPS, 0)?;
    }
    Ok(40_001)
}

fn settings() -> Settings {
    let balance = BalanceSettings {
        policy: Policy::Paper,
        repeats: 3,
        shortest_rtt: Duration::ZERO,
        ..BalanceSettings::default()
    };
    Settings { groups: vec![Group { balance, ..Group::default() }], streams4: 100_000, streams6: 1 }
}

fn main() -> Result<(), Box<dyn Error>> {
    let is_json = std::env::args().any(|argument| argument == "--json");
    // As it is deployed, for what is not rewritten; with a clock that stands still, so that throttling does not end, for what is.
    let gateway = Gateway::load(&settings())?;
    let still = Gateway::load_with_own_clock(&settings())?;
    let base = u32::from_be_bytes([10, 0, 0, 0]);
    for gateway in [&gateway, &still] {
        gateway.keep_always()?;
        for other in 0..OTHERS {
            let syn = frame(base + 100 + other, Direction::Data, 0, 0, flags::SYN, &[3, 3, 7, 0], 0);
            gateway.run(Direction::Data, &syn, 0, 1)?;
        }
    }
    let tracked = throttle(&still, base + 1)?;
    // Beside it an untroubled one.
    for (direction, seq, ack, bits) in
        [(Direction::Data, 0, 0, flags::SYN), (Direction::Acks, 0, 1, flags::SYN | flags::ACK)]
    {
        gateway.run(direction, &frame(base + 1, direction, seq, ack, bits, &[3, 3, 2, 0], 0), 0, 1)?;
    }
    gateway.run(Direction::Data, &frame(base + 1, Direction::Data, 1, 1, flags::ACK, &TIMESTAMPS, 1000), 0, 1)?;
    let object = ObjectBuilder::default().open_memory(&PROGRAMS.0)?.load()?;
    let (empty, again) = (program(&object, "measure_empty")?, program(&object, "measure_again")?);
    let next = object.maps().find(|map| map.name() == "measure_next").ok_or("it lacks a map")?;
    let go_on = |to: BorrowedFd<'_>| next.update(&0_u32.to_ne_bytes(), &to.as_raw_fd().to_ne_bytes(), MapFlags::ANY);

    let mut udp = frame(base + 1, Direction::Data, 1, 1, 0, &[], 1000);
    udp[23] = 17;
    let data = |sender, ack, payload| frame(sender, Direction::Data, 1, ack, flags::ACK, &TIMESTAMPS, payload);
    let ack = |sender, number, options: &[u8]| frame(sender, Direction::Acks, 1, number, flags::ACK, options, 0);
    let mut sack = TIMESTAMPS.to_vec();
    sack.extend([1, 1, 5, 10]);
    sack.extend((tracked + 3000).to_be_bytes());
    sack.extend((tracked + 4000).to_be_bytes());
    let (egress, ingress) = (gateway.program(Direction::Data), gateway.program(Direction::Acks));
    let lowers = still.program(Direction::Acks);
    // What, the program, what it is compared with, whether the window is set anew first, and the packet.
    let cases = [
        ("UDP", egress, false, udp),
        ("untracked data", egress, false, data(base, 1, 1000)),
        ("untracked ACK", ingress, false, ack(base, 1, &TIMESTAMPS)),
        ("tracked data", egress, false, data(base + 1, 1, 1000)),
        ("tracked ACK", ingress, false, ack(base + 1, 1, &TIMESTAMPS)),
        ("tracked ACK with SACK", ingress, false, ack(base + 1, 1, &sack)),
        ("lowered ACK", lowers, true, ack(base + 1, tracked, &TIMESTAMPS)),
        ("lowered ACK with SACK", lowers, true, ack(base + 1, tracked, &sack)),
    ];
    if !is_json {
        println!("{:24} {:>8} {:>8} {:>9} {:>7}", "ns per packet", "empty", "program", "beyond it", "ratio");
    }
    let mut lines = Vec::new();
    for (name, program, is_set_anew, frame) in &cases {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let measure = |to: BorrowedFd<'_>| -> Result<f64, Box<dyn Error>> {
                if !*is_set_anew {
                    return Ok(test_run(to, frame, 0, REPEAT)?.time.as_nanos() as f64);
                }
                go_on(to)?;
                Ok(test_run(again.as_fd(), frame, 0, REPEAT)?.time.as_nanos() as f64)
            };
            times.push((measure(empty.as_fd())?, measure(*program)?));
        }
        // What else runs on the machine only adds to it.
        let least = |of: fn(&(f64, f64)) -> f64| times.iter().map(of).fold(f64::INFINITY, f64::min);
        let (nothing, all) = (least(|times| times.0), least(|times| times.1));
        let beyond = all - nothing;
        if is_json {
            lines.push(format!(
                r#"{{"packet":"{name}","empty_ns":{nothing},"program_ns":{all},"beyond_ns":{beyond},"ratio":{:.2}}}"#,
                all / nothing
            ));
        } else {
            println!("{name:24} {nothing:8.0} {all:8.0} {beyond:9.0} {:7.2}", all / nothing);
        }
    }
    let (counters, lowered) = (gateway.counters()?, still.counters()?);
    let expected = u64::from(REPEAT) * ROUNDS as u64;
    assert!(counters.tracked >= 3 * expected && lowered.rewritten >= 2 * expected, "{counters:?} {lowered:?}");
    if is_json {
        println!(r#"{{"repeat":{REPEAT},"rounds":{ROUNDS},"others":{OTHERS},"cases":[{}]}}"#, lines.join(","));
    }
    Ok(())
}
