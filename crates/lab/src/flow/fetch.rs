//! Flows that the receiver fetches with curl: from the lab, which speaks HTTP or FTP at the sender.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ekiden_net::clock::{monotonic_ns, sleep_until};
use ekiden_net::schedule::waited;
use ekiden_net::socket;
use ekiden_scenario::{Amount, Fetch, Flow};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::connections::Connection;
use super::{Arriving, PIECE, Running, STALL_TIMEOUT, lock};
use crate::error::building;
use crate::payload::Comparison;
use crate::ports::{HTTP_PORT, SOCKS_PORT, data_port, flow_port};
use crate::programs::find;
use crate::{Error, Lab};

/// What fetches.
pub(crate) const CURL: &str = "curl";
/// The longest line of a request.
const LINE_MOST: u64 = 16 << 10;

/// What a flow that is fetched has beside others.
pub(super) struct Fetched {
    /// As curl's `--proxy` takes it; empty: none.
    proxy: String,
    url: String,
    bytes: u64,
    /// Where FTP's data connections arrive.
    data: Option<TcpListener>,
    /// FTP's control connection, once the data is asked for.
    control: Mutex<Option<TcpStream>>,
    /// Curl has ended.
    is_over: AtomicBool,
    /// Why it failed.
    failure: Mutex<Option<String>>,
}

impl Fetched {
    /// `None` for a flow whose sender opens the connection.
    pub fn prepare(lab: &Lab, index: usize, flow: &Flow) -> Result<Option<Self>, Error> {
        let (Some(fetch), Amount::Bytes(bytes)) = (flow.fetch, flow.amount) else { return Ok(None) };
        let server = lab.address(&flow.from)?;
        let proxy = match flow.via.last() {
            None => String::new(),
            Some(last) if fetch == Fetch::Socks => format!("socks5h://{}:{SOCKS_PORT}", lab.address(last)?),
            Some(last) => format!("http://{}:{HTTP_PORT}", lab.address(last)?),
        };
        let (scheme, data) = match fetch {
            Fetch::Http | Fetch::Socks => ("http", None),
            Fetch::Ftp => {
                let address = SocketAddr::from((server, data_port(index)));
                let listener = lab.namespace(&flow.from)?.run(|| socket::listen_plainly(address));
                let listener = listener.map_err(building(format!("listen for FTP's data on {address}")))?;
                listener.set_nonblocking(true).map_err(building("listen for FTP's data"))?;
                ("ftp", Some(listener))
            }
        };
        Ok(Some(Self {
            proxy,
            url: format!("{scheme}://{server}:{}/file", flow_port(index)),
            bytes: bytes.0,
            data,
            control: Mutex::default(),
            is_over: AtomicBool::new(false),
            failure: Mutex::default(),
        }))
    }

    /// Why curl failed, if it did.
    pub fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }

    /// All data has been sent, and its end. Nothing more is answered: curl would wait for that.
    pub fn sent(&self) -> io::Result<()> {
        let Some(control) = &*lock(&self.control) else { return Ok(()) };
        (&*control).write_all(b"226 sent\r\n")?;
        control.shutdown(Shutdown::Write)
    }

    /// The next connection; `None` if curl has ended.
    fn next(&self, listener: &TcpListener) -> io::Result<Option<TcpStream>> {
        while !self.is_over.load(Ordering::Acquire) {
            let mut waited = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut waited, PollTimeout::from(100u8));
            match listener.accept() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
                Ok((socket, _)) => {
                    socket.set_nonblocking(false)?;
                    socket.set_read_timeout(Some(STALL_TIMEOUT))?;
                    return Ok(Some(socket));
                }
            }
        }
        Ok(None)
    }

    /// Reads a request, and says what comes. `None` if the client went without having asked for anything.
    fn http(&self, client: TcpStream) -> io::Result<Option<TcpStream>> {
        let mut lines = BufReader::new(client.try_clone()?);
        let Some(request) = line(&mut lines)? else { return Ok(None) };
        if !request.starts_with("GET ") {
            return Err(unexpected(&request));
        }
        loop {
            match line(&mut lines)? {
                None => return Ok(None),
                Some(field) if field.is_empty() => break,
                Some(_) => {}
            }
        }
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.bytes
        );
        (&client).write_all(head.as_bytes())?;
        Ok(Some(client))
    }

    /// Answers commands until the data is asked for, and returns its connection.
    fn ftp(&self, control: TcpStream, data: &TcpListener) -> io::Result<Option<TcpStream>> {
        let mut lines = BufReader::new(control.try_clone()?);
        let SocketAddr::V4(own) = data.local_addr()? else { return Ok(None) };
        let mut answer = "220 ready".to_owned();
        loop {
            (&control).write_all(format!("{answer}\r\n").as_bytes())?;
            let Some(command) = line(&mut lines)? else { return Ok(None) };
            let verb = command.split(' ').next().unwrap_or_default().to_ascii_uppercase();
            answer = match verb.as_str() {
                "RETR" => break,
                "QUIT" => return Ok(None),
                _ => self.answer(&verb, *own.ip(), own.port()),
            };
        }
        (&control).write_all(b"150 here it comes\r\n")?;
        let socket = self.next(data)?;
        *lock(&self.control) = Some(control);
        Ok(socket)
    }

    fn answer(&self, verb: &str, own: Ipv4Addr, port: u16) -> String {
        match verb {
            "USER" => "331 any password".into(),
            "PASS" => "230 welcome".into(),
            "PWD" => "257 \"/\"".into(),
            "CWD" | "TYPE" => "200 so it is".into(),
            "SIZE" => format!("213 {}", self.bytes),
            "EPSV" => format!("229 listening (|||{port}|)"),
            "PASV" => {
                let [a, b, c, d] = own.octets();
                let [high, low] = port.to_be_bytes();
                format!("227 listening ({a},{b},{c},{d},{high},{low})")
            }
            _ => "502 there is no such command here".into(),
        }
    }
}

impl Running<'_> {
    /// Serves the next client that asks for the data. `None` if curl has ended.
    pub(super) fn served(&self, fetched: &Fetched, connection: &Connection) -> io::Result<Option<TcpStream>> {
        loop {
            let Some(client) = fetched.next(&self.listener)? else { return Ok(None) };
            let asked = match &fetched.data {
                Some(data) => fetched.ftp(client, data)?,
                None => fetched.http(client)?,
            };
            if let Some(socket) = asked {
                let mut sender = connection.sender();
                sender.connected_ns = Some(monotonic_ns());
                sender.socket = Some(socket.try_clone()?);
                return Ok(Some(socket));
            }
        }
    }

    /// The receiving side: curl, and the comparison of what it gets.
    pub(super) fn fetch(&self, lab: &Lab, fetched: &Fetched) {
        sleep_until(self.origin_ns.saturating_add(self.flow.start.0));
        self.began_ns.fetch_min(monotonic_ns(), Ordering::Relaxed);
        if let Err(error) = self.curl(lab, fetched) {
            lock(&fetched.failure).get_or_insert(format!("{CURL}: {error}"));
        }
        fetched.is_over.store(true, Ordering::Release);
    }

    fn curl(&self, lab: &Lab, fetched: &Fetched) -> io::Result<()> {
        let mut child = fetched.start(lab, &self.flow.to)?;
        let mut arriving = Arriving { comparison: Comparison::new(self.seed, self.name, [0]), found: None };
        let mut buffer = vec![0; 4 * PIECE];
        if let Some(mut output) = child.stdout.take() {
            loop {
                match output.read(&mut buffer)? {
                    0 => break,
                    count if self.take(&mut arriving, &buffer[..count]) => {}
                    _ => {
                        child.kill()?;
                        break;
                    }
                }
            }
        }
        let waited = waited(child.id()).unwrap_or_default();
        self.waited_ns.fetch_max(waited.as_nanos() as u64, Ordering::Relaxed);
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            let reason = said.lines().next().map(|line| line.trim_start_matches("curl: "));
            return Err(io::Error::other(reason.unwrap_or("it failed and said nothing").to_owned()));
        }
        // Without the time that the program took to start.
        if let Ok(seconds) = said.trim().parse() {
            let took = Duration::from_secs_f64(seconds).as_nanos() as u64;
            let last = self.last_arrival_ns.load(Ordering::Relaxed);
            self.began_ns.store(last.saturating_sub(took), Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Fetched {
    fn start(&self, lab: &Lab, node: &str) -> io::Result<Child> {
        let program = find(CURL).ok_or(ErrorKind::NotFound)?;
        let mut command = lab.command(node, program).map_err(io::Error::other)?;
        command.args(["--disable", "--silent", "--show-error", "--fail", "--noproxy", ""]);
        command.args(["--speed-limit", "1", "--speed-time"]).arg(STALL_TIMEOUT.as_secs().to_string());
        // An empty one outdoes that of the environment.
        command.args(["--write-out", "%{stderr}%{time_total}", "--proxy", &self.proxy, &self.url]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    }
}

/// A line without its end; `None` at the end of the stream.
fn line(lines: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    lines.take(LINE_MOST).read_line(&mut line)?;
    match line.strip_suffix('\n') {
        Some(line) => Ok(Some(line.trim_end_matches('\r').to_owned())),
        None if line.is_empty() => Ok(None),
        None => Err(unexpected(&line)),
    }
}

fn unexpected(request: &str) -> io::Error {
    let start: String = request.chars().take(40).collect();
    io::Error::new(ErrorKind::InvalidData, format!("'{start}' is no request that the sender knows"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetched(data: Option<TcpListener>) -> Fetched {
        Fetched {
            proxy: String::new(),
            url: String::new(),
            bytes: 1234,
            data,
            control: Mutex::default(),
            is_over: AtomicBool::new(false),
            failure: Mutex::default(),
        }
    }

    /// Two ends of a connection on loopback.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn a_request_is_answered_with_the_size_of_what_comes() {
        let (mut client, server) = pair();
        client.write_all(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert!(fetched(None).http(server).unwrap().is_some());
        let mut head = String::new();
        client.read_to_string(&mut head).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("\r\nContent-Length: 1234\r\n"), "{head}");
    }

    #[test]
    fn a_connection_without_a_request_is_none_and_another_request_an_error() {
        let (client, server) = pair();
        drop(client);
        assert!(fetched(None).http(server).unwrap().is_none());
        let (mut client, server) = pair();
        client.write_all(b"CONNECT a:1 HTTP/1.1\r\n\r\n").unwrap();
        let error = fetched(None).http(server).unwrap_err().to_string();
        assert!(error.contains("'CONNECT a:1 HTTP/1.1' is no request"), "{error}");
    }

    #[test]
    fn ftp_leads_to_the_data_and_its_end_is_confirmed() {
        let (control, server) = pair();
        let data = TcpListener::bind("127.0.0.1:0").unwrap();
        data.set_nonblocking(true).unwrap();
        let port = data.local_addr().unwrap().port();
        let ftp = fetched(Some(data));
        let client = std::thread::spawn(move || {
            let mut lines = BufReader::new(control.try_clone().unwrap());
            let mut said = vec![line(&mut lines).unwrap().unwrap()];
            for command in ["USER a", "PASS b", "EPSV", "PASV", "SIZE file", "MDTM file"] {
                (&control).write_all(format!("{command}\r\n").as_bytes()).unwrap();
                said.push(line(&mut lines).unwrap().unwrap());
            }
            let data = TcpStream::connect(("127.0.0.1", port)).unwrap();
            (&control).write_all(b"RETR file\r\n").unwrap();
            said.extend((0..2).map(|_| line(&mut lines).unwrap().unwrap()));
            drop(data);
            assert!(line(&mut lines).unwrap().is_none(), "nothing comes after it");
            said
        });
        let socket = ftp.ftp(server, ftp.data.as_ref().unwrap()).unwrap();
        ftp.sent().unwrap();
        let [high, low] = port.to_be_bytes();
        let expected = [
            "220 ready".to_owned(),
            "331 any password".into(),
            "230 welcome".into(),
            format!("229 listening (|||{port}|)"),
            format!("227 listening (127,0,0,1,{high},{low})"),
            "213 1234".into(),
            "502 there is no such command here".into(),
            "150 here it comes".into(),
            "226 sent".into(),
        ];
        assert_eq!(client.join().unwrap(), expected);
        assert!(socket.is_some());
    }

    #[test]
    fn who_waits_for_a_client_ends_with_curl() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let fetched = fetched(None);
        fetched.is_over.store(true, Ordering::Release);
        assert!(fetched.next(&listener).unwrap().is_none());
    }
}
