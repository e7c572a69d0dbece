//! Asks a measuring server for a load, runs this end of it, and puts together what both ends saw.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream as StdStream};
use std::thread;
use std::time::{Duration, Instant};

use ekiden_keys::Fingerprint;
use ekiden_net::clock::monotonic_ns;
use ekiden_net::lookup;
use ekiden_net::socket::limit_unacknowledged;
use ekiden_record::EndSettings;
use ekiden_transport::{Connection, Security, dial, is_own_key_refused};
use ekiden_units::{AddressError, HostPort};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

use crate::load::{Link, Most, Running};
use crate::probe::Prober;
use crate::refused::{is_closed, of_handshake};
use crate::{Error, control, socket};
use ekiden_diagnosis::measured::Measured;
use ekiden_diagnosis::{hole, plausible};
use ekiden_measure_proto::gathered::{Gathered, Next};
use ekiden_measure_proto::message::{
    PLAIN, Preamble, Purpose, REPLY_BYTES_MOST, Reply, Request, Speaks, TAKEN, Trace, shown, token_of,
};
use ekiden_measure_proto::seen::{LoadSeen, Side};
use ekiden_measure_proto::settings::{Asked, DURATION_MOST_US};
use ekiden_net::socks5;

/// How long this end waits for a server that lets it wait. The default is what [`measure`] has.
#[derive(Debug, Clone)]
pub struct Patience {
    /// For all connections of a load, beyond a second for each. 10 s.
    pub links: Duration,
    /// For the end of a load, beyond its duration, or beyond the longest that the server allows. 60 s.
    pub margin: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { links: Duration::from_secs(10), margin: Duration::from_secs(60) }
    }
}

/// How long a connection may take, and a reply without load.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a reply may take behind a full queue.
const PATIENCE_LOADED: Duration = Duration::from_secs(60);
/// Timeout of a load on which nothing moves.
const STALLED: Duration = Duration::from_secs(30);
/// How long the server may take to tell what it saw, beyond the time that the load took.
const RESULTS: Duration = Duration::from_secs(90);
/// How long a server that has given up may take to say why.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long the idle path is measured before the load: until this many probes are answered, but within these limits of time.
const IDLE_ANSWERS: usize = 25;
const IDLE_LEAST: Duration = Duration::from_millis(500);
const IDLE_MOST: Duration = Duration::from_secs(2);

/// A measuring server, and how it is known.
#[derive(Debug)]
pub struct Server {
    /// Its host and port, as the user has written them.
    pub name: String,
    /// How both prove their keys; `None` for a server that is open.
    pub security: Option<Security<Option<Fingerprint>>>,
    /// A SOCKS5 listener without password, `HOST:PORT`, that all connections go through. What TCP says of itself is then of the connections
    /// to the listener.
    pub via: Option<String>,
}

impl Server {
    fn unreachable(&self, source: io::Error) -> Error {
        Error::Unreachable { to: self.name.clone(), source }
    }

    /// Where connections go first, and what the listener there is asked for.
    fn way(&self) -> Result<(Vec<SocketAddr>, Option<Via>), Error> {
        let Some(via) = &self.via else {
            let addresses = lookup::addresses(&place(&self.name)?).map_err(|source| self.unreachable(source))?;
            return Ok((addresses, None));
        };
        let HostPort { host, port } = place(&self.name)?;
        let of_via = |source: io::Error| Error::Via { via: via.clone(), why: source.to_string() };
        let addresses = lookup::addresses(&place(via)?).map_err(of_via)?;
        Ok((addresses, Some(Via { name: via.clone(), host: host.bare(), port })))
    }

    /// Connects, through a listener where there is one.
    fn reach(
        &self,
        address: SocketAddr,
        via: Option<&Via>,
        load: Option<socket::Load<'_>>,
    ) -> Result<StdStream, Error> {
        let connected = socket::connect(address, PATIENCE, load);
        let Some(Via { name, host, port }) = via else { return connected.map_err(|source| self.unreachable(source)) };
        let failed = |why: String| Error::Via { via: name.clone(), why };
        let socket = connected.map_err(|source| failed(socks5::absent(&source)))?;
        socks5::ask(&socket, host, *port).map_err(failed)?;
        Ok(socket)
    }

    /// Connects to the first of its addresses that can be reached.
    pub(crate) fn connect(&self) -> Result<(SocketAddr, Option<Via>, StdStream), Error> {
        let (addresses, via) = self.way()?;
        let mut failure = self.unreachable(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        for address in addresses {
            match self.reach(address, via.as_ref(), None) {
                Ok(socket) => return Ok((address, via, socket)),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

/// A SOCKS5 listener, and what it is asked for.
pub(crate) struct Via {
    name: String,
    host: String,
    port: u16,
}

/// What goes on, for a progress bar.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Time since the load began.
    pub elapsed: Duration,
    /// Bytes moved in all directions.
    pub bytes: u64,
}

/// A connection to a server that has agreed to a load.
struct Agreed<'a> {
    server: &'a Server,
    runtime: Runtime,
    control: Connection,
    address: SocketAddr,
    via: Option<Via>,
    token: [u8; 16],
    far: EndSettings,
    most: Most,
    /// The longest load that the server allows.
    longest: Duration,
}

/// Runs a load and gathers what was seen. With `trace` both ends look as often as they can, for [`ekiden_diagnosis::path`].
///
/// # Errors
/// [`Error`]; nothing is left behind.
pub fn measure(
    server: &Server,
    asked: &Asked,
    trace: Trace,
    progress: &mut dyn FnMut(Progress),
) -> Result<Measured, Error> {
    measure_within(server, asked, trace, &Patience::default(), progress)
}

/// The same with other waits.
///
/// # Errors
/// As [`measure`].
pub fn measure_within(
    server: &Server,
    asked: &Asked,
    trace: Trace,
    patience: &Patience,
    progress: &mut dyn FnMut(Progress),
) -> Result<Measured, Error> {
    let opened = Instant::now();
    for side in asked.get().ways.iter().map(|way| Side::Near.sends(*way)) {
        socket::check(asked.get(), side).map_err(Error::Here)?;
    }
    let agreed = agree(server, asked, trace).map_err(|error| named(server, error))?;
    let broken = |error: io::Error| agreed.broken(error);
    let mut links = Vec::new();
    let count = asked.get().ways.len() as u64 * u64::from(asked.get().streams) + 1;
    let until = Instant::now() + patience.links + Duration::from_secs(count);
    let streams = u16::try_from(asked.get().streams).unwrap_or(u16::MAX);
    for way in &asked.get().ways {
        for stream in 0..streams {
            let (settings, sends) = (asked.get(), Side::Near.sends(*way));
            let load = Some(socket::Load { settings, sends, trace });
            let socket = agreed.link(Purpose::Stream(*way, stream), load, until)?;
            links.push(Link { way: *way, stream: stream.into(), socket });
        }
    }
    let probes = agreed.link(Purpose::Probe, None, until)?;
    let from = probes.local_addr().map_err(broken)?;
    let running = Running::start(asked, links, Side::Near, trace, agreed.most);
    let running = running.map_err(|error| Error::Here(error.to_string()))?;
    let prober = Prober::start(probes).map_err(broken)?;
    prober.await_answers(IDLE_ANSWERS, IDLE_LEAST, IDLE_MOST);
    let began_ns = monotonic_ns();
    agreed.say(&Request::Start).map_err(broken)?;
    running.begin();
    let started = Instant::now();
    let (mut moved, mut moved_at, mut stalled) = (0, started, None);
    let longest = asked.get().duration_us.map_or(agreed.longest, Duration::from_micros) + patience.margin;
    while !running.is_over() {
        thread::sleep(Duration::from_millis(20));
        let (elapsed, each) = (started.elapsed(), asked.get().ways.iter().map(|way| running.moved(*way)));
        let bytes = each.clone().fold(0, u64::saturating_add);
        if !trace.is_close() {
            let least = each.min().unwrap_or_default() as f64;
            prober.keep_below((least * 8.0 / elapsed.as_secs_f64().max(1e-3)) as u64);
        }
        if bytes != moved {
            (moved, moved_at) = (bytes, Instant::now());
        }
        if moved_at.elapsed() > STALLED {
            stalled = Some(format!("nothing has moved for {} s", STALLED.as_secs()));
            break;
        }
        if elapsed > longest {
            let why = format!("the load does not end within {:.1} s", longest.as_secs_f64());
            return Err(Error::Broken { to: server.name.clone(), why });
        }
        progress(Progress { elapsed, bytes });
        if agreed.has_gone() {
            break;
        }
    }
    let ended_ns = monotonic_ns();
    let within = if stalled.is_some() { PATIENCE } else { RESULTS + started.elapsed() };
    let told = agreed.say(&Request::Stop).and_then(|()| agreed.results(asked, within));
    let answers = prober.finish();
    let near_seen = running.finish();
    let far_senders = told.as_deref().unwrap_or_default();
    let mut holes =
        asked.get().ways.iter().filter_map(|way| hole::of_way(*way, &near_seen, far_senders, &answers, began_ns));
    let hole = holes.next();
    let why = |why: String| hole.map_or(why, |hole| hole.to_string());
    let is_told = told.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidData);
    let far_seen = told.map_err(|error| match near_seen.iter().find_map(|seen| seen.end.failed.clone()) {
        // What the server says of it is better than what the kernel says of a connection that the server has ended.
        Some(failed) if error.kind() != io::ErrorKind::InvalidData => failed,
        _ => agreed.why(error),
    });
    if let Some(stalled) = stalled {
        // What the server says of it is what its own senders have seen.
        let why = why(far_seen.err().filter(|_| is_told).unwrap_or(stalled));
        return Err(Error::Broken { to: server.name.clone(), why });
    }
    let far_seen = far_seen.map_err(|failed| Error::Broken { to: server.name.clone(), why: why(failed) })?;
    let elapsed = opened.elapsed();
    let failed = near_seen.iter().chain(&far_seen).find_map(|seen| seen.end.failed.clone());
    if let Some(failed) = failed {
        return Err(Error::Broken { to: server.name.clone(), why: why(failed) });
    }
    plausible::check(asked, &near_seen, &far_seen, &answers, elapsed)
        .map_err(|why| Error::Impossible { to: server.name.clone(), why })?;
    let bytes_most = agreed.most.bytes;
    Ok(Measured { from, far: agreed.far, near_seen, far_seen, answers, began_ns, ended_ns, bytes_most })
}

/// Tries again while the server is busy, so often in all, with pauses.
///
/// # Errors
/// Those of `work`; the last if all failed.
pub fn patiently<T>(tries: u32, pause: Duration, mut work: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let mut left = tries;
    loop {
        left = left.saturating_sub(1);
        match work() {
            Err(Error::Busy { .. }) if left > 0 => thread::sleep(pause),
            done => return done,
        }
    }
}

/// Connects, proves keys, and asks.
fn agree<'a>(server: &'a Server, asked: &Asked, trace: Trace) -> Result<Agreed<'a>, Error> {
    let to = || server.name.clone();
    let unreachable = |source| server.unreachable(source);
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| Error::Here(error.to_string()))?;
    let (address, via, socket) = server.connect()?;
    let _ = limit_unacknowledged(&socket, PATIENCE_LOADED);
    socket.set_nonblocking(true).map_err(unreachable)?;
    let control = runtime.block_on(async {
        let socket = TcpStream::from_std(socket).map_err(unreachable)?;
        match &server.security {
            Some(security) => {
                let dialled = tokio::time::timeout(PATIENCE, dial(socket, security, "measuring client")).await;
                let dialled = dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                dialled.map(|(connection, _)| connection).map_err(|error| of_handshake(to(), &error))
            }
            None => {
                let connection = Connection::from(socket);
                connection.send_all(&PLAIN).await.map_err(unreachable)?;
                Ok(connection)
            }
        }
    })?;
    let request = Request::Measure { speaks: Speaks::own(), settings: Box::new(asked.get().clone()), trace };
    let reply: io::Result<Reply> = runtime.block_on(async {
        control::send(&control, &request, PATIENCE).await?;
        control::receive(&control, REPLY_BYTES_MOST, PATIENCE).await.map(Reply::shown)
    });
    let strange = |why: String| Error::NotAServer { to: to(), why };
    match reply {
        Ok(Reply::Ready { version: _, token, end: far, bytes_most, duration_most_us }) => {
            let token = token_of(&token).ok_or_else(|| strange("its token is none".into()))?;
            let most = Most { bytes: bytes_most, calls_s: None };
            let longest = Duration::from_micros(duration_most_us.min(DURATION_MOST_US));
            Ok(Agreed { server, runtime, control, address, via, token, far, most, longest })
        }
        Ok(Reply::Refused { why, busy: true }) => Err(Error::Busy { to: to(), why }),
        Ok(Reply::Refused { why, busy: false }) => Err(Error::Refused { to: to(), why }),
        Ok(Reply::Failed { why }) => Err(Error::Broken { to: to(), why }),
        Ok(_) => Err(strange("it answers with a message that does not belong here".into())),
        // A server with keys that does not know this one says so only now: with TLS 1.3 a client's key is looked at last.
        Err(error) if is_own_key_refused(&error) => Err(of_handshake(to(), &error)),
        Err(error) if is_closed(&error) => Err(Error::Closed { to: to() }),
        Err(error) if server.security.is_none() => Err(match error.kind() {
            io::ErrorKind::TimedOut => strange(format!("it says nothing for {} s", PATIENCE.as_secs())),
            _ => strange(shown(&error.to_string())),
        }),
        Err(error) => Err(of_handshake(to(), &error)),
    }
}

fn place(text: &str) -> Result<HostPort, Error> {
    text.parse().map_err(|error: AddressError| Error::Settings(error.to_string()))
}

/// Says who is there instead of a measuring server, where that can be told.
fn named(server: &Server, error: Error) -> Error {
    if !matches!(error, Error::NotAServer { .. } | Error::Closed { .. }) {
        return error;
    }
    let addresses = server.name.parse().ok().filter(|_| server.via.is_none());
    match addresses.and_then(|place| lookup::addresses(&place).ok()?.into_iter().next()) {
        Some(address) if ekiden_iperf3::is_there(address) => {
            let why = "it is an iperf3 server: measure with --iperf3".into();
            Error::NotAServer { to: server.name.clone(), why }
        }
        _ => error,
    }
}

impl Agreed<'_> {
    /// Opens a connection of the load, and waits until the server has taken it. All are to be there at `until`.
    fn link(&self, purpose: Purpose, load: Option<socket::Load<'_>>, until: Instant) -> Result<StdStream, Error> {
        let left = until.saturating_duration_since(Instant::now()).min(PATIENCE);
        if left.is_zero() {
            return Err(self.broken(io::Error::other("the connections of the load take too long")));
        }
        let socket = self.server.reach(self.address, self.via.as_ref(), load);
        let mut socket = socket.map_err(|error| match error {
            Error::Unreachable { source, .. } => self.broken(source),
            other => other,
        })?;
        let mut taken = || {
            socket.write_all(&Preamble { token: self.token, purpose }.encode())?;
            socket.set_read_timeout(Some(left))?;
            let mut byte = [0];
            match socket.read(&mut byte) {
                Ok(1) if byte == [TAKEN] => socket.set_read_timeout(None),
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => Err(io::Error::other("a connection of the load begins with what does not belong there")),
                Err(error) => Err(error),
            }
        };
        let said = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                io::Error::other(format!("a connection of the load timed out after {:.1} s", left.as_secs_f64()))
            }
            _ if is_closed(&error) => io::Error::other(
                "the server closed a connection of the load at once: it may have too many connections that prove nothing; \
                 try again in 10 s",
            ),
            _ => error,
        };
        let taken = taken();
        taken.map_err(|error| self.broken(said(error))).map(|()| socket)
    }

    /// That the measurement broke off, and why.
    fn broken(&self, error: io::Error) -> Error {
        Error::Broken { to: self.server.name.clone(), why: self.why(error) }
    }

    /// What the server says of a measurement that has broken off, or else `error`.
    fn why(&self, error: io::Error) -> String {
        match error.kind() {
            // What it has said, and what it says too late.
            io::ErrorKind::InvalidData | io::ErrorKind::TimedOut => error.to_string(),
            _ => match self.hear(LAST_WORDS) {
                Ok(Reply::Failed { why }) => why,
                _ => error.to_string(),
            },
        }
    }

    fn say(&self, request: &Request) -> io::Result<()> {
        self.runtime.block_on(control::send(&self.control, request, PATIENCE_LOADED))
    }

    fn hear(&self, within: Duration) -> io::Result<Reply> {
        self.runtime.block_on(control::receive(&self.control, REPLY_BYTES_MOST, within)).map(Reply::shown)
    }

    /// Whether the server has closed the connection.
    fn has_gone(&self) -> bool {
        let mut byte = [0; 1];
        match ekiden_net::socket::peek(self.control.socket(), &mut byte) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// What the server's end saw of a load. Fails if the server has not sent all of it `within` this time.
    fn results(&self, asked: &Asked, within: Duration) -> io::Result<Vec<LoadSeen>> {
        let until = Instant::now() + within;
        let mut gathered = Gathered::new(asked);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not come to an end with its results"));
            }
            let next = gathered.add(self.hear(left.min(PATIENCE_LOADED))?);
            if next.map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))? == Next::Done {
                return Ok(gathered.seen());
            }
        }
    }
}
