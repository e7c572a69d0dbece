//! A log that cannot be written, or is not read, does not concern those whom the node serves.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use socket2::{Domain, Socket, Type};

/// Nothing here takes this long; only a hang does.
const PATIENCE: Duration = Duration::from_secs(30);

const SOCKS: &str = "[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n[exit]\nallow = [\"127.0.0.1\"]\n";

struct Node {
    child: Child,
    directory: tempfile::TempDir,
    socks: SocketAddr,
    leg: SocketAddr,
}

impl Node {
    fn start(log: impl Into<Stdio>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ekiden = env!("CARGO_BIN_EXE_ekiden");
        let file = directory.path().join("node.toml");
        let key = Command::new(ekiden).args(["keygen", "--shared", "key"]).current_dir(&directory).output().unwrap();
        assert!(key.status.success());
        let leg = "[listen.leg]\nkind = \"leg\"\naddress = \"127.0.0.1:0\"\nplain_key_file = \"key\"\n";
        fs::write(&file, format!("{SOCKS}{leg}")).unwrap();
        let mut command = Command::new(ekiden);
        command.args(["proxy", "-c"]).arg(&file).env("EKIDEN_LOG", "trace").stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let (said, hears) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).for_each(|line| drop(said.send(line)))
        });
        let address = |kind: &str| {
            let line = hears.recv_timeout(PATIENCE).expect("the node says where it listens");
            line.strip_prefix(&format!("listening {kind} ")).unwrap().parse().unwrap()
        };
        let (socks, leg) = (address("socks5"), address("leg"));
        Self { child, directory, socks, leg }
    }

    /// A stream through the node, and its other end.
    fn stream(&self) -> (TcpStream, TcpStream) {
        let host = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = patient(TcpStream::connect(self.socks).unwrap());
        client.write_all(&[5, 1, 0]).unwrap();
        client.read_exact(&mut [0; 2]).unwrap();
        let mut request = b"\x05\x01\x00\x01\x7f\x00\x00\x01".to_vec();
        request.extend(host.local_addr().unwrap().port().to_be_bytes());
        client.write_all(&request).unwrap();
        client.read_exact(&mut [0; 10]).unwrap();
        (client, patient(host.accept().unwrap().0))
    }

    /// Handshakes that are refused, with a line for each.
    fn refuses(&self, count: usize) {
        for i in 0..count {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            let from = IpAddr::from([127, 0, 1 + (i / 200) as u8, 1 + (i % 200) as u8]);
            socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
            socket.connect(&self.leg.into()).unwrap();
            let mut stream = patient(socket.into());
            let _ = stream.write_all(&[0x55; 100]);
            let _ = stream.read(&mut [0; 100]);
        }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Streams go on, new ones begin, SIGHUP brings another listener, and SIGTERM ends it.
    fn lives_and_ends(mut self, (mut client, mut server): (TcpStream, TcpStream)) {
        client.write_all(b"still here").unwrap();
        server.read_exact(&mut [0; 10]).unwrap();
        drop((client, server));
        drop(self.stream());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let more = format!("[listen.more]\nkind = \"socks5\"\naddress = \"{port}\"\n{SOCKS}");
        fs::write(self.directory.path().join("node.toml"), more).unwrap();
        self.signal(Signal::SIGHUP);
        wait_until("there is another listener", || TcpStream::connect(port).is_ok());
        self.signal(Signal::SIGTERM);
        wait_until("the node has ended", || self.child.try_wait().unwrap().is_some());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        sleep(Duration::from_millis(5));
    }
}

/// A pipe that takes nothing more.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    (reader, writer)
}

#[test]
fn a_level_that_does_not_exist_is_told_and_leaves_the_log_as_it_is() {
    for (level, is_wrong) in [
        ("warning", true),
        ("verbose", true),
        ("debug=x", true),
        ("", false),
        ("warn", false),
        ("info,ekiden=debug", false),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
        let said = command.args(["proxy", "-c", "/nonexistent"]).env("EKIDEN_LOG", level).output().unwrap().stderr;
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains("ekiden: /nonexistent: cannot be read"), "{said}");
        assert_eq!(
            said.contains(&format!("EKIDEN_LOG: '{level}' is none of error, warn, ")),
            is_wrong,
            "{level}: {said}"
        );
        assert_eq!(said.lines().count(), 1 + usize::from(is_wrong), "{said}");
    }
}

#[test]
fn a_node_whose_log_cannot_be_written_goes_on() {
    let node = Node::start(File::create("/dev/full").unwrap());
    let stream = node.stream();
    node.refuses(50);
    node.lives_and_ends(stream);
}

#[test]
fn a_node_whose_log_s_reader_is_gone_goes_on() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let node = Node::start(writer);
    let stream = node.stream();
    node.refuses(50);
    node.lives_and_ends(stream);
}

#[test]
fn a_node_whose_log_is_not_read_goes_on_and_says_what_was_lost() {
    let (reader, writer) = full_pipe();
    let node = Node::start(writer);
    let stream = node.stream();
    node.refuses(2000);
    // More than the node keeps for a reader that comes late: a line or two for each connection.
    for _ in 0..12_000 {
        drop(TcpStream::connect(node.socks).unwrap());
    }
    let (found, finds) = std::sync::mpsc::channel();
    let reads = std::thread::spawn(move || {
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            if String::from_utf8_lossy(&line).contains(" lines of the log were lost: ") {
                let _ = found.send(());
            }
        }
    });
    finds.recv_timeout(PATIENCE).expect("it says what was lost");
    node.lives_and_ends(stream);
    reads.join().unwrap();
}

#[test]
fn a_node_whose_log_is_not_read_ends_when_it_is_told_to() {
    let (_reader, writer) = full_pipe();
    let node = Node::start(writer);
    let stream = node.stream();
    node.refuses(2000);
    node.lives_and_ends(stream);
}

#[test]
fn a_new_configuration_is_no_warning() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("log");
    let node = Node::start(File::create(&file).unwrap());
    node.signal(Signal::SIGHUP);
    let line = || {
        let text = fs::read_to_string(&file).unwrap();
        text.lines().find(|line| line.contains("the configuration was read again")).map(str::to_owned)
    };
    wait_until("it is read again", || line().is_some());
    assert!(line().unwrap().contains(" INFO "), "{:?}", line());
}

#[test]
fn the_level_changes_by_signals_while_the_node_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (config, log) = (folder.path().join("node.toml"), folder.path().join("log"));
    fs::write(&config, SOCKS).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
    command.args(["proxy", "-c"]).arg(&config).env_remove("EKIDEN_LOG");
    let mut child = command.stdout(Stdio::piped()).stderr(File::create(&log).unwrap()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let socks: SocketAddr = lines.next().unwrap().strip_prefix("listening socks5 ").unwrap().parse().unwrap();
    let said = |part: &str| fs::read_to_string(&log).unwrap().matches(part).count();
    let signal = |signal| kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    // Whoever connects is told at the level trace only.
    let connects = || {
        let mut client = patient(TcpStream::connect(socks).unwrap());
        client.write_all(&[5, 1, 0]).unwrap();
        client.read_exact(&mut [0; 2]).unwrap();
    };
    connects();
    for (which, level) in [(Signal::SIGUSR1, "debug"), (Signal::SIGUSR1, "trace")] {
        signal(which);
        wait_until("it says so", || said(&format!("the log's level is '{level}' from now on")) == 1);
    }
    assert_eq!(said("accepted"), 0);
    connects();
    wait_until("it is more detailed", || said("accepted") == 1);
    signal(Signal::SIGUSR2);
    wait_until("it says so", || said("the log's level is 'info' from now on") == 1);
    connects();
    let counted = said("accepted");
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(counted, 1, "it is as it was");
}

#[test]
fn a_node_whose_standard_output_nobody_reads_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let file = directory.path().join("node.toml");
    fs::write(&file, format!("[listen.socks]\nkind = \"socks5\"\naddress = \"{port}\"\n")).unwrap();
    for is_full in [false, true] {
        let (reader, writer) = if is_full { full_pipe() } else { std::io::pipe().unwrap() };
        let reader = is_full.then_some(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
        command.args(["proxy", "-c"]).arg(&file).stdout(writer).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        wait_until("it listens", || TcpStream::connect(port).is_ok());
        // It has said all that it says by then, or waits.
        sleep(Duration::from_millis(200));
        kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
        let start = Instant::now();
        while child.try_wait().unwrap().is_none() && start.elapsed() < PATIENCE {
            sleep(Duration::from_millis(5));
        }
        let ended = child.try_wait().unwrap();
        let _ = child.kill();
        let _ = child.wait();
        assert!(ended.is_some_and(|status| status.success()), "full: {is_full}, {ended:?}");
        drop(reader);
    }
}
