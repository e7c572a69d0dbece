//! On devices, in network namespaces of two threads.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use ekiden_gateway::kernel::{Gateway, GatewayError, HookKind, Settings};
use ekiden_net::device::disable_transmit_offload;
use ekiden_window_balance::{BalanceSettings, Direction, flags};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{ObjectBuilder, TC_EGRESS, TcHook};
use libtest_mimic::Failed;
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Pid, gettid};

use crate::both::{paper, settings};
use crate::frames::{Ends, Shape};
use crate::pulled::send_in_parts;

/// Tells a copy of this program to keep a gateway on the device of this number: by tcx or by clsact.
pub const KEEPER: &str = "EKIDEN_TEST_GATEWAY";

/// What the other side does.
type Job = Box<dyn FnOnce() + Send>;

/// A thread in a namespace of its own.
struct Host {
    jobs: Option<(Sender<Job>, JoinHandle<()>)>,
    thread: Pid,
}

impl Host {
    fn new() -> Self {
        let (jobs, queue) = channel::<Job>();
        let (tell, told) = channel();
        let thread = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a namespace");
            tell.send(gettid()).expect("it listens");
            queue.into_iter().for_each(|job| job());
        });
        Self { thread: told.recv().expect("it lives"), jobs: Some((jobs, thread)) }
    }

    /// Does it there, and waits.
    fn there<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = channel();
        let job = Box::new(move || drop(tell.send(job())));
        self.jobs.as_ref().expect("it lives").0.send(job).expect("it lives");
        told.recv().expect("the other side panicked")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some((jobs, thread)) = self.jobs.take() {
            drop(jobs);
            let _ = thread.join();
        }
    }
}

/// This thread's namespace is the gateway's, between those of a sender behind `lan` and a receiver behind `wan`.
struct Site {
    near: Host,
    far: Host,
}

impl Site {
    fn new() -> Self {
        unshare(CloneFlags::CLONE_NEWNET).expect("a namespace");
        let site = Self { near: Host::new(), far: Host::new() };
        let up = |device: &str, net: u8, last: u8| {
            run(&format!("ip address add 10.77.{net}.{last}/24 dev {device}"));
            run(&format!("ip address add fd77:{net}::{last}/64 dev {device} nodad"));
            run(&format!("ip link set {device} up"));
        };
        for (host, device, net) in [(&site.near, "lan", 1), (&site.far, "wan", 0)] {
            run(&format!("ip link add {device} type veth peer name host netns {}", host.thread));
            up(device, net, 1);
            host.there(move || {
                up("host", net, 2);
                run(&format!("ip route add default via 10.77.{net}.1"));
                run(&format!("ip route add default via fd77:{net}::1"));
                // The default of this kernel may be one that loses little.
                fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno").expect("it has Reno");
            });
        }
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("it forwards");
        fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").expect("it forwards");
        site
    }

    fn device(&self) -> i32 {
        if_nametoindex("wan").expect("it is there") as i32
    }

    /// Two packets in each direction.
    fn ping(&self) {
        let far = self.far.there(|| UdpSocket::bind("10.77.0.2:9").expect("a port"));
        let near = UdpSocket::bind("10.77.0.1:9").expect("a port");
        for socket in [&far, &near] {
            socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        }
        for _ in 0..2 {
            near.send_to(&[1], "10.77.0.2:9").expect("it is sent");
            far.recv_from(&mut [0; 9]).expect("it arrives");
            far.send_to(&[2], "10.77.0.1:9").expect("it is sent");
            near.recv_from(&mut [0; 9]).expect("it arrives");
        }
    }
}

/// Runs it in this thread's namespace.
fn run(command: &str) -> String {
    let mut words = command.split(' ');
    let output = Command::new(words.next().expect("a word")).args(words).output().expect("it runs");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A test in a thread with a namespace of its own.
fn apart(test: impl FnOnce(&Site) -> Result<(), Failed> + Send + 'static) -> Result<(), Failed> {
    thread::spawn(move || test(&Site::new()).map_err(|failed| failed.message().unwrap_or_default().to_owned()))
        .join()
        .map_err(|_| "it panicked")?
        .map_err(Failed::from)
}

/// The gateway's programs in the kernel, by id.
fn programs() -> HashSet<u32> {
    let ours = ProgInfoIter::default().filter(|program| program.name.to_string_lossy().starts_with("ekiden_"));
    ours.map(|program| program.id).collect()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < limit, "after 10 s still not: {what}");
        sleep(Duration::from_millis(20));
    }
}

pub fn programs_come_and_go_with_the_gateway() -> Result<(), Failed> {
    apart(|site| {
        let before = programs();
        // Others of this machine may go meanwhile.
        let programs = || programs().difference(&before).count();
        for kind in [None, Some(HookKind::Tcx), Some(HookKind::Clsact)] {
            let mut gateway = Gateway::load(&Settings::default())?;
            let by = gateway.attach_by(site.device(), kind)?;
            assert_eq!(by, kind.unwrap_or(HookKind::Tcx));
            site.ping();
            let seen = gateway.counters()?.seen;
            assert!(seen >= 4, "{kind:?}: {seen} seen");
            gateway.detach();
            site.ping();
            // Of other packets, such as neighbour discovery, some may have come before.
            assert!(gateway.counters()?.seen < seen + 4, "{kind:?}: it is still there");
            // A program that another test begins to run has the links' descriptors for a moment, and with them the links.
            eventually("they are attached again", || match gateway.attach_by(site.device(), kind) {
                Err(error) if error.to_string().contains("File exists") => false,
                attached => attached.map(|_| true).unwrap_or_else(|error| panic!("{error}")),
            });
            assert!(programs() >= 3);
            drop(gateway);
            eventually("the programs are gone", || programs() == 0);
            assert!(!run("tc qdisc show dev wan").contains("clsact"), "{kind:?}: clsact is left");
            site.ping();
        }
        // One that is made anew has not the programs, whatever it is called.
        for kind in [HookKind::Tcx, HookKind::Clsact] {
            run("ip link add again index 77 type veth peer name peer");
            let mut gateway = Gateway::load(&Settings::default())?;
            gateway.attach_by(77, Some(kind))?;
            assert!(gateway.is_on(77) && !gateway.is_on(site.device() as u32), "{kind:?}");
            run("ip link del again");
            assert!(!gateway.is_on(77), "{kind:?}");
            run("ip link add again index 77 type veth peer name peer");
            assert!(!gateway.is_on(77), "{kind:?}");
            run("ip link del again");
        }
        let mut gateway = Gateway::load(&Settings::default())?;
        assert!(matches!(gateway.attach(9999), Err(GatewayError::NoDevice(9999))));
        run("ip tuntap add dev bare mode tun");
        let bare = if_nametoindex("bare")? as i32;
        let refused = gateway.attach(bare);
        assert!(matches!(&refused, Err(GatewayError::NotEthernet(name)) if name == "bare"), "{refused:?}");
        Ok(())
    })
}

/// libbpf reads an ELF file in place, so it must be aligned to 8 bytes.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static OTHER: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/measure.bpf.o")));

pub fn other_programs_on_the_device_stay() -> Result<(), Failed> {
    apart(|site| {
        // A filter that ends the chain, with the priority that ours have.
        let object = ObjectBuilder::default().open_memory(&OTHER.0)?.load()?;
        let program = object.progs().find(|program| program.name() == "measure_last").ok_or("it is there")?;
        let mut filter = TcHook::new(program.as_fd());
        filter.ifindex(site.device()).attach_point(TC_EGRESS).priority(1).handle(1).create()?;
        let mut filter = filter.attach()?;
        for kind in [HookKind::Tcx, HookKind::Clsact] {
            let mut first = Gateway::load(&Settings::default())?;
            first.attach_by(site.device(), Some(HookKind::Tcx))?;
            let mut second = Gateway::load(&Settings::default())?;
            second.attach_by(site.device(), Some(kind))?;
            // The two of the other, and the filter.
            assert_eq!(Gateway::others(site.device())?, 3, "{kind:?}");
            site.ping();
            let seen = first.counters()?.seen;
            assert!(
                seen >= 4 && second.counters()?.seen >= 4,
                "{kind:?}: they stand before the one that ends the chain"
            );
            drop(second);
            site.ping();
            assert!(first.counters()?.seen >= seen + 4);
            filter.query().map_err(|error| format!("{kind:?}: the other filter is gone: {error}"))?;
            let filters = run("tc filter show dev wan egress");
            assert!(filters.contains("measure_last") && !filters.contains("ekiden"), "{filters}");
        }
        filter.detach()?;
        Ok(())
    })
}

/// Holds a gateway until it is killed.
pub fn keep(what: &str) -> Result<(), GatewayError> {
    let (kind, device) = what.split_once(' ').expect("a kind and a number");
    let kind = if kind == "clsact" { HookKind::Clsact } else { HookKind::Tcx };
    let mut gateway = Gateway::load(&Settings::default())?;
    gateway.attach_by(device.parse().expect("a number"), Some(kind))?;
    println!("ready");
    loop {
        sleep(Duration::from_secs(1));
    }
}

fn keeper(site: &Site, kind: &str) -> Result<Child, Failed> {
    let mut child = Command::new(std::env::current_exe()?)
        .env(KEEPER, format!("{kind} {}", site.device()))
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("a pipe")?).read_line(&mut line)?;
    assert_eq!(line, "ready\n");
    Ok(child)
}

pub fn nothing_acts_after_a_kill() -> Result<(), Failed> {
    apart(|site| {
        let before = programs();
        // Others of this machine may go meanwhile.
        let programs = || programs().difference(&before).count();
        let mut child = keeper(site, "tcx")?;
        assert!(programs() >= 3);
        child.kill()?;
        child.wait()?;
        eventually("the programs are gone", || programs() == 0);
        // With clsact they stay, and do nothing; the next one takes their place, and takes them away.
        let mut child = keeper(site, "clsact")?;
        child.kill()?;
        child.wait()?;
        sleep(Duration::from_millis(100));
        assert_eq!(programs(), 2);
        site.ping();
        let mut gateway = Gateway::load(&Settings::default())?;
        gateway.attach_by(site.device(), Some(HookKind::Clsact))?;
        eventually("those of before are gone", || programs() == 3);
        drop(gateway);
        eventually("the programs are gone", || programs() == 0);
        Ok(())
    })
}

/// Leaves none.
struct Pins(String);

impl Drop for Pins {
    fn drop(&mut self) {
        let _ = Gateway::unpin(&self.0);
    }
}

pub fn a_pinned_gateway_outlives_its_process() -> Result<(), Failed> {
    apart(|site| {
        let before = programs();
        // Others of this machine may go meanwhile.
        let programs = || programs().difference(&before).count();
        let name = format!("test-{}", std::process::id());
        let _pins = Pins(name.clone());
        let mut gateway = Gateway::load(&Settings { streams4: 7, ..Settings::default() })?;
        gateway.attach(site.device())?;
        gateway.keep_always()?;
        gateway.pin(&name)?;
        let twice = gateway.pin(&name);
        drop(gateway);
        sleep(Duration::from_millis(200));
        assert!(matches!(twice, Err(GatewayError::Pinned(_))), "{twice:?}");
        let again = Gateway::open_pinned(&name)?;
        let before = again.counters()?.seen;
        site.ping();
        assert!(again.counters()?.seen >= before + 4);
        again.renew()?;
        assert!(
            again.streams()?.is_empty()
                && again.sweep(Default::default()).sum::<Result<u64, _>>()? == 0
                && again.counted_streams()? == 0
        );
        drop(again);
        assert!(Gateway::unpin(&name)? && !Gateway::unpin(&name)?);
        eventually("the programs are gone", || programs() == 0);
        assert!(matches!(Gateway::open_pinned(&name), Err(GatewayError::NotPinned(_))));
        assert!(matches!(Gateway::unpin("../x"), Err(GatewayError::Name(_))));
        let mut gateway = Gateway::load(&Settings::default())?;
        gateway.attach_by(site.device(), Some(HookKind::Clsact))?;
        assert!(matches!(gateway.pin(&name), Err(GatewayError::PinsNeedTcx)));
        Ok(())
    })
}

pub fn headers_in_a_packets_later_parts_are_read() -> Result<(), Failed> {
    apart(|site| {
        run("ip link set wan mtu 9000");
        site.far.there(|| run("ip link set host mtu 9000"));
        let mut gateway = Gateway::load(&settings(paper()))?;
        gateway.attach(site.device())?;
        gateway.keep_always()?;
        for ends in [Ends::ipv4(8000), Ends::ipv6(8000)] {
            let syn = Shape { flags: flags::SYN, seq: 0, ..ends.shape(Direction::Data) };
            gateway.run(Direction::Data, &syn.frame(), 0, 1)?;
            let before = gateway.counters()?;
            for tags in [Vec::new(), vec![0x8100, 0x8100]] {
                let frame = Shape { tags, payload: 6000, ..ends.shape(Direction::Acks) }.frame();
                site.far.there(move || send_in_parts(if_nametoindex("host").expect("it is there"), &frame))?;
            }
            eventually("both are of the stream", || {
                gateway.counters().is_ok_and(|counters| counters.tracked == before.tracked + 2)
            });
            assert_eq!(gateway.counters()?.malformed, 0);
        }
        Ok(())
    })
}

/// Bytes of one stream, and streams of a transfer.
const SIZE: usize = 12 << 20;
const STREAMS: u16 = 4;

fn pattern() -> Vec<u8> {
    (0..SIZE).map(|index| (index ^ index >> 8 ^ index >> 16) as u8).collect()
}

/// Packets that TCP dropped for a wrong checksum, in this thread's namespace.
fn checksum_errors() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/snmp").expect("it can be read");
    let rows: Vec<Vec<&str>> =
        text.lines().filter(|line| line.starts_with("Tcp:")).map(|line| line.split(' ').collect()).collect();
    let column = rows[0].iter().position(|name| *name == "InCsumErrors").expect("the kernel counts them");
    rows[1][column].parse().expect("a number")
}

/// Parallel streams through a narrow queue, which drops. All bytes must arrive.
fn transfer(site: &Site, address: &'static str) -> Result<(), Failed> {
    let receivers = site.far.there(move || {
        let listeners: Vec<_> =
            (0..STREAMS).map(|port| TcpListener::bind((address, 7000 + port)).expect("a port")).collect();
        let receive = |listener: TcpListener| -> std::io::Result<bool> {
            let (mut stream, _) = listener.accept()?;
            let mut all = Vec::new();
            stream.read_to_end(&mut all)?;
            Ok(all == pattern())
        };
        listeners.into_iter().map(|listener| thread::spawn(move || receive(listener))).collect::<Vec<_>>()
    });
    let senders = site.near.there(move || {
        let send = move |port| -> std::io::Result<()> {
            let mut stream = TcpStream::connect((address, 7000 + port))?;
            stream.write_all(&pattern())?;
            stream.shutdown(Shutdown::Write)
        };
        (0..STREAMS).map(|port| thread::spawn(move || send(port))).collect::<Vec<_>>()
    });
    for sender in senders {
        sender.join().map_err(|_| "a sender panicked")??;
    }
    for receiver in receivers {
        assert!(receiver.join().map_err(|_| "a receiver panicked")??, "what arrived is not what was sent");
    }
    Ok(())
}

pub fn rewritten_packets_keep_their_checksums() -> Result<(), Failed> {
    for (near, far) in [(true, true), (false, true), (true, false), (false, false)] {
        apart(move |site| checksums(site, near, far))?;
    }
    Ok(())
}

/// With the devices computing checksums, or not.
fn checksums(site: &Site, near: bool, far: bool) -> Result<(), Failed> {
    run("tc qdisc add dev wan root tbf rate 300mbit burst 128kb limit 200kb");
    if !near {
        disable_transmit_offload("wan")?;
    }
    if !far {
        site.far.there(|| disable_transmit_offload("host"))?;
    }
    for (address, balance) in [
        ("10.77.0.2", BalanceSettings { repeats: 1, ..paper() }),
        ("fd77:0::2", BalanceSettings { repeats: 1, ..paper() }),
    ] {
        let mut gateway = Gateway::load(&settings(balance))?;
        gateway.attach(site.device())?;
        gateway.keep_always()?;
        transfer(site, address)?;
        let counters = gateway.counters()?;
        println!("devices compute {near}, {far}, {address}: {counters:?}");
        assert!(counters.rewritten > 20 && counters.begun == u64::from(STREAMS), "{counters:?}");
        assert_eq!((counters.malformed, counters.signed, counters.full, counters.unkept), (0, 0, 0, 0));
        assert_eq!((site.near.there(checksum_errors), site.far.there(checksum_errors)), (0, 0));
        assert_eq!(gateway.counted_streams()?, gateway.streams()?.len() as u64);
    }
    Ok(())
}
