//! `ekiden lab run --pcap`: what a reader that shares no code with the writer finds in the files, and that it is what the record
//! says.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::Path;

use ekiden_record::Record;
use etherparse::{Ipv4Slice, TcpSlice};
use libtest_mimic::Failed;
use pcap_parser::{Linktype, PcapCapture};

use super::ensure;
use super::place::Place;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// A TCP segment in a file.
#[derive(Clone, Copy)]
struct Seen {
    at_ns: u64,
    is_clients: bool,
    syn: bool,
    seq: u32,
    ack: Option<u32>,
    payload: u32,
}

/// A handshake, all data, a round trip as the kernel saw it; and as many packets as the record has counted.
pub fn whole() -> Result<(), Failed> {
    let place = Place::new("20Mbit/s", "10ms", "1MB", "", "bytes = \"300KB\"")?;
    let record = captured(&place, &[])?;
    let seen = read(&place, "client.line.pcap")?;
    let first: Vec<_> = seen.iter().take(3).map(|segment| (segment.is_clients, segment.syn)).collect();
    ensure(first == [(true, true), (false, true), (true, false)], || format!("{first:?}"))?;
    ensure(seen.iter().filter(|segment| segment.syn).count() == 2, || "more than one handshake".into())?;

    let start = seen[0].seq.wrapping_add(1);
    let data = seen.iter().filter(|segment| segment.is_clients && segment.payload > 0);
    let mut end = 0;
    let mut again = 0;
    for segment in data {
        let at = segment.seq.wrapping_sub(start);
        ensure(at <= end, || format!("nothing at {end}"))?;
        again += u64::from(at < end);
        end = end.max(at + segment.payload);
    }
    ensure(end == 300_000, || format!("{end} bytes"))?;
    let flow = &record.flows[0];
    ensure(again == flow.retransmits, || format!("{again} segments sent again, by the kernel {}", flow.retransmits))?;

    // What the kernel measures has the time in the kernel too.
    let trip_us = round_trips(&seen).min().ok_or("no acknowledgement")? / 1_000;
    let by_kernel = flow.rtt_min_us.ok_or("no round trip")?;
    ensure((19_500..=by_kernel + 50).contains(&trip_us), || format!("{trip_us} µs, by the kernel {by_kernel}"))?;

    // The counts are those of the run; the files go on until the network is taken down.
    for (file, from, is_clients) in [("server.line.pcap", "client", true), ("client.line.pcap", "server", false)] {
        let counted = record.links.iter().find(|link| link.from == from).ok_or("no link")?.packets;
        let arrived = read(&place, file)?.iter().filter(|segment| segment.is_clients == is_clients).count() as u64;
        ensure((counted..counted + 10).contains(&arrived), || format!("{arrived} packets, counted {counted}"))?;
    }
    Ok(())
}

/// What is lost is in the file of the end where it was sent, and not in the other's.
pub fn lost() -> Result<(), Failed> {
    let place = Place::with_loss("50Mbit/s", "2ms", "1MB", "", "bytes = \"2MB\"", "2%")?;
    let record = captured(&place, &[])?;
    let [sent, arrived] = ["client.line.pcap", "server.line.pcap"].map(|file| -> Result<usize, Failed> {
        Ok(read(&place, file)?.iter().filter(|segment| segment.is_clients).count())
    });
    let lost = sent?.checked_sub(arrived?).ok_or("more has arrived than was sent")? as u64;
    let counted = record.links[0].random_losses;
    ensure(counted > 0 && lost >= counted, || format!("{lost} lost, counted {counted}"))
}

/// Some nodes only; what cannot be captured is refused before anything runs; a full disk is told, and the record is there.
pub fn refused() -> Result<(), Failed> {
    let place = Place::small()?;
    let folder = place.directory.path();
    captured(&place, &["--pcap-nodes", "server"])?;
    let names: Vec<_> = fs::read_dir(folder.join("packets"))?.flatten().map(|entry| entry.file_name()).collect();
    ensure(names == ["server.line.pcap"], || format!("{names:?}"))?;
    fs::remove_dir_all(folder.join("packets"))?;
    fs::remove_file(place.record_file())?;

    fs::write(folder.join("in-the-way"), "")?;
    fs::create_dir(folder.join("full"))?;
    symlink("/dev/full", folder.join("full/client.line.pcap"))?;
    for (arguments, code, why) in [
        (&["--pcap", "packets", "--repeat", "2"][..], 2, "--pcap is for a single run"),
        (&["--pcap", "packets", "--pcap-nodes", "client,x"], 2, "the scenario has no node 'x'"),
        (&["--pcap-nodes", "client"], 2, "--pcap <DIR>"),
        (&["--pcap", "in-the-way"], 3, "in-the-way: cannot be written: "),
        (&["--pcap", "full"], 3, "full: cannot be written: No space left on device"),
    ] {
        let mut command = place.lab(&[&["run", "--record", "r.json"], arguments].concat());
        let output = command.current_dir(folder).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure(output.status.code() == Some(code) && said.contains(why), || format!("{arguments:?}: {said}"))?;
        ensure(folder.join("r.json").exists() == arguments.contains(&"full"), || format!("{arguments:?}: a record?"))?;
        ensure(!folder.join("packets").exists(), || format!("{arguments:?}: something was written"))?;
    }
    Ok(())
}

/// What is in the documentation works.
pub fn documented() -> Result<(), Failed> {
    let block = |page: &'static str, mark: &str| {
        let (_, rest) = page.split_once(&format!("```{mark}\n"))?;
        rest.split_once("```").map(|(block, _)| block)
    };
    let scenario = block(include_str!("../../../../docs/guide/scenario.md"), "toml scenario").ok_or("no scenario")?;
    let calls = block(include_str!("../../../../docs/guide/lab.md"), "sh lab-run").ok_or("no calls")?;
    let place = Place::from(scenario)?;
    let folder = place.directory.path();
    fs::rename(&place.scenario, folder.join("island.toml"))?;
    for call in calls.lines() {
        let _ = fs::remove_dir_all(folder.join("packets"));
        let words: Vec<&str> = call.split_whitespace().skip(1).collect();
        let output = place.ekiden().args(&words).current_dir(folder).output()?;
        ensure(output.status.success(), || String::from_utf8_lossy(&output.stderr).into())?;
        let files = fs::read_dir(folder.join("packets"))?.count();
        ensure(files == if call.contains("--pcap-nodes") { 1 } else { 6 }, || format!("{files} files of {call}"))?;
    }
    Ok(())
}

/// The record of a run, with its packets in `packets`.
fn captured(place: &Place, options: &[&str]) -> Result<Record, Failed> {
    let mut command = place.lab(&[&["run", "--pcap", "packets"], options].concat());
    command.arg("--record").arg(place.record_file()).current_dir(place.directory.path());
    let output = command.output()?;
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    ensure(output.status.success(), || said.concat())?;
    ensure(said[0].ends_with("packets: packets\n") && !said[1].contains("missing"), || said.concat())?;
    Ok(Record::read(&place.record_file())?)
}

/// The segments in a file, which must be in the order of time.
fn read(place: &Place, name: &str) -> Result<Vec<Seen>, Failed> {
    let file = fs::read(place.directory.path().join(Path::new("packets")).join(name))?;
    let capture = PcapCapture::from_file(&file).map_err(|error| error.to_string())?;
    ensure(capture.header.is_nanosecond_precision(), || "not in nanoseconds".into())?;
    ensure(capture.header.network == Linktype::RAW, || format!("{:?}", capture.header.network))?;
    let mut all: Vec<Seen> = Vec::new();
    for block in &capture.blocks {
        ensure(block.caplen <= 120 && block.caplen <= block.origlen, || format!("{} bytes kept", block.caplen))?;
        let mut bytes = block.data.to_vec();
        bytes.resize(block.origlen as usize, 0);
        let ip = Ipv4Slice::from_slice(&bytes)?;
        let tcp = TcpSlice::from_slice(&bytes[ip.header().slice().len()..])?;
        all.push(Seen {
            at_ns: u64::from(block.ts_sec) * 1_000_000_000 + u64::from(block.ts_usec),
            is_clients: ip.header().source_addr() == CLIENT,
            syn: tcp.syn(),
            seq: tcp.sequence_number(),
            ack: tcp.ack().then(|| tcp.acknowledgment_number()),
            payload: tcp.payload().len() as u32,
        });
    }
    ensure(all.is_sorted_by_key(|segment| segment.at_ns), || format!("{name} is not in the order of time"))?;
    Ok(all)
}

/// Of each of the client's segments that takes sequence numbers, how long it took until its end was acknowledged, in ns.
fn round_trips(seen: &[Seen]) -> impl Iterator<Item = u64> + '_ {
    let takes = |segment: &Seen| segment.payload + u32::from(segment.syn);
    let sent = seen.iter().enumerate().filter(move |(_, segment)| segment.is_clients && takes(segment) > 0);
    sent.filter_map(move |(at, segment)| {
        let end = segment.seq.wrapping_add(takes(segment));
        let covers =
            |answer: &&Seen| !answer.is_clients && answer.ack.is_some_and(|ack| ack.wrapping_sub(end) < u32::MAX / 2);
        Some(seen[at..].iter().find(covers)?.at_ns - segment.at_ns)
    })
}
