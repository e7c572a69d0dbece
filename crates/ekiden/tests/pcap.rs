//! `ekiden simulate --pcap`: what a reader that shares no code with the writer finds in the files.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ekiden_record::{LinkDirection, Record};
use etherparse::{Ipv4HeaderSlice, Ipv4Slice, TcpSlice, UdpSlice};
use pcap_parser::{Linktype, PcapCapture};

const BYTES: u32 = 100_000;
const SCENARIO: &str = "name = \"pair\"\nseed = 4\n[node.a]\n[node.r]\nkind = \"router\"\n[node.b]\n\
                        [link.near]\nends = [\"a\", \"r\"]\nrate = \"100Mbit/s\"\n\
                        [link.far]\nends = [\"b\", \"r\"]\nrate = \"10Mbit/s\"\ndelay = \"10ms\"\nqueue = \"1MB\"\nloss = \"LOSS\"\n\
                        [flow.f]\nfrom = \"a\"\nto = \"b\"\nbytes = \"100KB\"\n";
const A: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);

/// A packet in a file.
struct Seen {
    at_ns: u64,
    /// The headers, and zeros for what else there was.
    bytes: Vec<u8>,
}

impl Seen {
    fn ip(&self) -> Ipv4Slice<'_> {
        Ipv4Slice::from_slice(&self.bytes).unwrap()
    }

    fn source(&self) -> Ipv4Addr {
        self.ip().header().source_addr()
    }

    fn tcp(&self) -> TcpSlice<'_> {
        let start = self.ip().header().slice().len();
        TcpSlice::from_slice(&self.bytes[start..]).unwrap()
    }

    /// As in `tcpdump`: S, F, R, P, and a dot for ACK.
    fn flags(&self) -> String {
        let tcp = self.tcp();
        let all = [(tcp.syn(), 'S'), (tcp.fin(), 'F'), (tcp.rst(), 'R'), (tcp.psh(), 'P'), (tcp.ack(), '.')];
        all.iter().filter(|(is_set, _)| *is_set).map(|(_, letter)| *letter).collect()
    }
}

fn simulate(folder: &Path, scenario: &str, arguments: &[&str]) -> Output {
    fs::write(folder.join("pair.toml"), scenario).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
    command.current_dir(folder).args(["simulate", "pair.toml", "--force", "--record", "r.json"]).args(arguments);
    command.output().unwrap()
}

/// A run's record, with all packets in `packets`.
fn captured(folder: &Path, scenario: &str) -> Record {
    let output = simulate(folder, scenario, &["--pcap", "packets"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).ends_with("packets: packets\n"), "{}", text(&output.stdout));
    Record::read(&folder.join("r.json")).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The packets in a file, in its order, which must be that of time.
fn read(folder: &Path, name: &str) -> Vec<Seen> {
    let file = fs::read(folder.join("packets").join(name)).unwrap();
    let capture = PcapCapture::from_file(&file).unwrap();
    assert!(capture.header.is_nanosecond_precision());
    assert_eq!(capture.header.network, Linktype::RAW);
    let seen = capture.blocks.iter().map(|block| {
        assert!(block.caplen <= 100 && block.caplen <= block.origlen && block.caplen as usize == block.data.len());
        assert!(block.ts_usec < 1_000_000_000);
        let mut bytes = block.data.to_vec();
        bytes.resize(block.origlen as usize, 0);
        let ip = Ipv4HeaderSlice::from_slice(&bytes).unwrap();
        assert_eq!(u32::from(ip.total_len()), block.origlen);
        assert_eq!(ip.to_header().calc_header_checksum(), ip.header_checksum());
        Seen { at_ns: u64::from(block.ts_sec) * 1_000_000_000 + u64::from(block.ts_usec), bytes }
    });
    let seen: Vec<_> = seen.collect();
    assert!(seen.is_sorted_by_key(|packet| packet.at_ns));
    seen
}

fn direction<'a>(record: &'a Record, link: &str, from: &str) -> &'a LinkDirection {
    record.links.iter().find(|direction| direction.link == link && direction.from == from).unwrap()
}

#[test]
fn a_flow_is_there_from_its_handshake_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let record = captured(folder.path(), &SCENARIO.replace("LOSS", "0"));
    let seen = read(folder.path(), "a.near.pcap");
    for packet in &seen {
        let header = packet.tcp().to_header();
        let sum = header.calc_checksum_ipv4(&packet.ip().header().to_header(), packet.tcp().payload()).unwrap();
        assert_eq!(header.checksum, sum);
        assert!([(A, 40_000, 20_000), (B, 20_000, 40_000)].contains(&(
            packet.source(),
            header.source_port / 10_000 * 10_000,
            header.destination_port / 10_000 * 10_000
        )));
    }
    let first: Vec<_> = seen.iter().take(3).map(|packet| (packet.source(), packet.flags())).collect();
    assert_eq!(first, [(A, "S".into()), (B, "S.".into()), (A, ".".into())]);
    assert_eq!(seen[0].at_ns, 0);
    // There and back, and the time on the lines: 60 bytes at either rate, twice.
    let lines_ns = 2 * (60 * 8 * 100 + 60 * 8 * 10);
    assert_eq!(seen[1].at_ns, 20_000_000 + lines_ns);
    let [mine, theirs] = [0, 1].map(|at| seen[at].tcp().sequence_number());
    assert_eq!(seen[1].tcp().acknowledgment_number(), mine.wrapping_add(1));
    assert_eq!(seen[2].tcp().acknowledgment_number(), theirs.wrapping_add(1));

    // Without losses the data comes once and in order, and ends with a FIN.
    let mut next = mine.wrapping_add(1);
    for packet in seen.iter().filter(|packet| packet.source() == A && !packet.tcp().payload().is_empty()) {
        assert_eq!(packet.tcp().sequence_number(), next);
        next = next.wrapping_add(packet.tcp().payload().len() as u32);
    }
    assert_eq!(next, mine.wrapping_add(1 + BYTES));
    let end_of_data = |packet: &Seen| packet.tcp().sequence_number().wrapping_add(packet.tcp().payload().len() as u32);
    let fin = seen.iter().find(|packet| packet.source() == A && packet.tcp().fin()).unwrap();
    assert_eq!(end_of_data(fin), next);
    // The run ends when all has arrived: the answer to that has only left then.
    let last = read(folder.path(), "b.far.pcap").pop().unwrap();
    assert_eq!((last.source(), last.flags()), (B, "F.".into()));
    assert_eq!(last.tcp().sequence_number(), theirs.wrapping_add(1));
    assert_eq!(last.tcp().acknowledgment_number(), next.wrapping_add(1));
    assert_eq!(last.at_ns / 1000, record.flows[0].duration_us);
    assert!(seen.iter().all(|packet| !packet.tcp().rst()));
}

#[test]
fn what_is_lost_on_a_link_is_seen_before_it_and_not_behind() {
    let folder = tempfile::tempdir().unwrap();
    let record = captured(folder.path(), &SCENARIO.replace("LOSS", "5%"));
    let mut lost = 0;
    for (link, ends, delay_ns) in [("near", ["a", "r"], 0), ("far", ["r", "b"], 10_000_000)] {
        for [from, to] in [ends, [ends[1], ends[0]]] {
            let is_mine = |packet: &&Seen| (packet.source() == A) == (ends == [from, to]);
            let [there, here] = [from, to].map(|node| read(folder.path(), &format!("{node}.{link}.pcap")));
            let [sent, arrived]: [Vec<_>; 2] = [&there, &here].map(|all| all.iter().filter(is_mine).collect());
            let counts = direction(&record, link, from);
            // Deliveries that were due after the end of the run are not in the counts.
            assert!(sent.len() as u64 >= counts.packets + counts.queue_drops + counts.random_losses);
            assert_eq!(arrived.len() as u64, counts.packets);
            let mut sent = sent.iter();
            for packet in arrived {
                let as_sent = sent.find(|sent| sent.bytes == packet.bytes).expect("what arrives was sent");
                assert!(packet.at_ns > as_sent.at_ns + delay_ns);
            }
            lost += counts.random_losses;
        }
    }
    assert!(lost > 0);
}

#[test]
fn background_is_udp_of_its_size() {
    let folder = tempfile::tempdir().unwrap();
    let background =
        "[background.noise]\nfrom = \"b\"\nto = \"a\"\nrate = \"1Mbit/s\"\npacket = \"700B\"\nduration = \"50ms\"\n";
    captured(folder.path(), &(SCENARIO.replace("LOSS", "0") + background));
    let seen = read(folder.path(), "r.near.pcap");
    let datagrams: Vec<_> = seen.iter().filter(|packet| packet.bytes[9] == 17).collect();
    // A datagram takes 5.6 ms of the rate.
    assert_eq!(datagrams.len(), 9);
    for packet in datagrams {
        let udp = UdpSlice::from_slice(&packet.bytes[20..]).unwrap();
        assert_eq!((packet.bytes.len(), udp.payload().len()), (700, 672));
        assert_eq!((packet.source(), udp.destination_port()), (B, 9));
        let expected = udp.to_header().calc_checksum_ipv4_raw(B.octets(), A.octets(), udp.payload()).unwrap();
        assert_eq!(udp.checksum(), expected);
    }
}

#[test]
fn writing_packets_changes_no_record_and_nodes_can_be_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = SCENARIO.replace("LOSS", "1%");
    let run = |arguments: &[&str]| {
        let output = simulate(folder.path(), &scenario, arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let mut record = Record::read(&folder.path().join("r.json")).unwrap();
        record.manifest.command.clear();
        record.manifest.started_unix_ms = 0;
        record
    };
    let without = run(&[]);
    assert_eq!(run(&["--pcap", "deep/packets", "--pcap-nodes", "a,r"]), without);
    let files: Vec<PathBuf> =
        fs::read_dir(folder.path().join("deep/packets")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let mut names: Vec<_> = files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a.near.pcap", "r.far.pcap", "r.near.pcap"]);
}

#[test]
fn what_cannot_be_captured_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in-the-way"), "").unwrap();
    for (arguments, code, why) in [
        (&["--pcap", "packets", "--repeat", "2"][..], 2, "--pcap is for a single run"),
        (&["--pcap", "packets", "--pcap-nodes", "a,x"], 2, "the scenario has no node 'x'"),
        (&["--pcap-nodes", "a"], 2, "--pcap <DIR>"),
        (&["--pcap", "in-the-way"], 3, "in-the-way: cannot be written: "),
    ] {
        fs::write(folder.path().join("pair.toml"), SCENARIO.replace("LOSS", "0")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
        let output =
            command.current_dir(folder.path()).args(["simulate", "pair.toml"]).args(arguments).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
        assert!(!folder.path().join("record").exists());
        assert!(!folder.path().join("packets").exists());
    }
}
