//! A measurement, as the server sees it.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use ekiden_record::Way;
use ekiden_transport::Connection;
use tokio::time::{timeout, timeout_at};

use super::{Admits, Client, Happened, Links, PATIENCE, Server, end_settings};
use crate::load::{Link, Most, Running};
use crate::socket;
use crate::{control, probe};
use ekiden_diagnosis::hole;
use ekiden_measure_proto::message::{Purpose, REQUEST_BYTES_MOST, Reply, Request, TAKEN, Trace, shown, token_text};
use ekiden_measure_proto::seen::{LoadSeen, Side};
use ekiden_measure_proto::settings::Asked;

/// Limit on the time for which a client measures the idle path before it starts the load, and on that of a load beyond what was asked for.
const MARGIN: Duration = Duration::from_secs(60);
/// Interval between two checks whether anything moves.
const MOVES: Duration = Duration::from_secs(1);
/// Rows in a message.
const ROWS: usize = 1_000;
/// Limit on the small pieces that a load of a client without a key may send and take in a second, in all its streams together: a limit on
/// bytes does not bound the processor time that they cost.
const OPEN_CALLS: u32 = 25_000;
/// Interval between two checks whether a load has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What a client wants, checked.
struct Wanted {
    /// The version that both ends speak.
    version: u32,
    asked: Asked,
    trace: Trace,
}

/// A measurement that has begun.
pub(super) struct Begun {
    client: Client,
    connection: Connection,
    wanted: Wanted,
    token: [u8; 16],
    links: Links,
    under_way: UnderWay,
}

/// Hears what a client wants that may measure. `None` if it was refused, or has left.
pub(super) async fn begin(server: &Arc<Server>, connection: Connection, client: Client) -> Option<Begun> {
    let wanted = match wanted(server, &connection).await {
        Ok(wanted) => wanted,
        Err(Refusal::Gone) => return None,
        Err(Refusal::Told { why }) => {
            refuse(server, &connection, client, why, false).await;
            return None;
        }
    };
    match server.begin(&client) {
        Ok((token, links)) => {
            Some(Begun { client, connection, wanted, token, links, under_way: UnderWay(server.clone()) })
        }
        Err(why) => {
            refuse(server, &connection, client, why, true).await;
            None
        }
    }
}

/// Serves a measurement to its end.
pub(super) async fn run(server: &Server, begun: Begun) {
    let Begun { client, connection, wanted, token, links, under_way } = begun;
    let measured = measure(server, &connection, &client, &wanted, token, links).await;
    drop(under_way);
    let Client { from, name: client } = client;
    server.measured.fetch_add(1, Ordering::Relaxed);
    match measured {
        Ok(what) => (server.log)(Happened::Ended { from, client, what }),
        Err(error) => {
            let why = error.to_string();
            let _ = control::send(&connection, &Reply::Failed { why: why.clone() }, PATIENCE).await;
            (server.log)(Happened::Failed { from, client, why });
        }
    }
    connection.end_cleanly();
}

/// The next may measure when this is dropped, however the measurement ends.
struct UnderWay(Arc<Server>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.end();
    }
}

enum Refusal {
    /// The client is gone and cannot be told.
    Gone,
    Told {
        why: String,
    },
}

async fn wanted(server: &Server, connection: &Connection) -> Result<Wanted, Refusal> {
    let request = control::receive(connection, REQUEST_BYTES_MOST, PATIENCE).await;
    let told = |why: String| Refusal::Told { why };
    let (speaks, settings, trace) = match request {
        Ok(Request::Measure { speaks, settings, trace }) => (speaks, settings, trace),
        Ok(_) => return Err(told("the first message does not ask for a measurement".into())),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let error = shown(&error.to_string());
            return Err(told(format!("a message that this version does not know: {error}")));
        }
        Err(_) => return Err(Refusal::Gone),
    };
    let version = speaks.agreed().map_err(told)?;
    let asked = Asked::new(*settings).map_err(told)?;
    let most_us = server.duration_most_us();
    if let Some(duration_us) = asked.get().duration_us.filter(|duration_us| *duration_us > most_us) {
        let [asked, most] = [duration_us, most_us].map(|us| us as f64 / 1e6);
        return Err(told(format!("a load of {asked} s, where this server allows {most} s")));
    }
    // A load with a duration ends there, too, if its bytes are reached first.
    match (server.settings.bytes_most, asked.get().bytes) {
        (Some(most), Some(bytes)) if bytes > most && asked.get().duration_us.is_none() => {
            Err(told(format!("a load of {bytes} bytes, where this server allows {most}")))
        }
        _ => {
            for side in asked.get().ways.iter().map(|way| Side::Far.sends(*way)) {
                socket::check(asked.get(), side).map_err(|why| told(format!("at the server's end, {why}")))?;
            }
            Ok(Wanted { version, asked, trace })
        }
    }
}

async fn refuse(server: &Server, connection: &Connection, client: Client, why: String, busy: bool) {
    let _ = control::send(connection, &Reply::Refused { why: why.clone(), busy }, PATIENCE).await;
    connection.end_cleanly();
    let Client { from, name: client } = client;
    (server.log)(Happened::Failed { from, client, why });
}

async fn measure(
    server: &Server,
    connection: &Connection,
    client: &Client,
    wanted: &Wanted,
    token: [u8; 16],
    mut links: Links,
) -> io::Result<String> {
    let settings = wanted.asked.get();
    let ready = Reply::Ready {
        version: wanted.version,
        token: token_text(&token),
        end: end_settings(),
        bytes_most: server.settings.bytes_most,
        duration_most_us: server.duration_most_us(),
    };
    control::send(connection, &ready, PATIENCE).await?;
    let (taken, probes) = gather(server, connection, &wanted.asked, &mut links).await?;
    // What comes now belongs to no measurement.
    drop(links);
    let what = describe(settings.streams, &settings.ways);
    (server.log)(Happened::Begins { from: client.from, client: client.name.clone(), what: what.clone() });
    let calls_s = matches!(server.settings.admits, Admits::Everyone).then_some(OPEN_CALLS);
    let most = Most { bytes: server.settings.bytes_most, calls_s };
    let running = Running::start(&wanted.asked, taken, Side::Far, wanted.trace, most)?;
    let began = Instant::now();
    let result = load(server, connection, wanted, &running).await;
    let took = began.elapsed();
    drop(probes);
    // Joining waits for threads that look every 50 ms whether they are to stop.
    let seen = tokio::task::spawn_blocking(move || running.finish()).await.map_err(io::Error::other)?;
    result.map_err(|error| match hole::of_stalled(&seen) {
        Some(hole) => io::Error::new(error.kind(), format!("{error}: {hole}")),
        None => error,
    })?;
    let carried = carried(&settings.ways, &seen);
    let within = server.settings.patience.results + took;
    match timeout(within, results(connection, seen, within)).await {
        Ok(told) => told.map(|()| format!("{what}: {carried}")),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "it does not take the results")),
    }
}

/// Sends all that was seen.
async fn results(connection: &Connection, seen: Vec<LoadSeen>, within: Duration) -> io::Result<()> {
    for seen in seen {
        report(connection, seen, within).await?;
    }
    control::send(connection, &Reply::Done, within).await
}

fn describe(streams: u32, ways: &[Way]) -> String {
    let ways: Vec<_> = ways.iter().map(|way| way.word()).collect();
    let each = if ways.len() > 1 { " each" } else { "" };
    format!("{streams} {}{each} {}", if streams == 1 { "stream" } else { "streams" }, ways.join(" and "))
}

/// What this end has received of the way forth, and sent on the way back.
fn carried(ways: &[Way], seen: &[LoadSeen]) -> String {
    let of = |way: &Way| {
        let bytes = seen.iter().filter(|seen| seen.way == *way).map(|seen| seen.end.bytes).fold(0, u64::saturating_add);
        format!("{:.1} MB {}", bytes as f64 / 1e6, if Side::Far.sends(*way) { "sent" } else { "received" })
    };
    ways.iter().map(of).collect::<Vec<_>>().join(", ")
}

/// The connection of the probes. The thread that answers them ends with it.
struct Probes(TcpStream);

impl Drop for Probes {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Takes the connections of a load, and that of its probes. Each is told that it was taken.
async fn gather(
    server: &Server,
    connection: &Connection,
    asked: &Asked,
    links: &mut Links,
) -> io::Result<(Vec<Link>, Probes)> {
    let settings = asked.get();
    let streams = settings.ways.iter().flat_map(|way| {
        let streams = u16::try_from(settings.streams).unwrap_or(u16::MAX);
        (0..streams).map(move |stream| Purpose::Stream(*way, stream))
    });
    let wanted: Vec<_> = streams.chain([Purpose::Probe]).collect();
    let mut taken: BTreeMap<Purpose, TcpStream> = BTreeMap::new();
    let until =
        tokio::time::Instant::now() + server.settings.patience.gathering + Duration::from_secs(wanted.len() as u64);
    let mut byte = [0];
    while taken.len() < wanted.len() {
        let come = tokio::select! {
            come = timeout_at(until, links.recv()) => come,
            // It has nothing to say before all are there.
            _ = connection.receive(&mut byte) => return Err(io::Error::other("the client has left")),
        };
        let (purpose, socket) = match come {
            Ok(Some(link)) => link,
            _ => {
                let (came, all) = (taken.len(), wanted.len());
                return Err(io::Error::other(format!("{came} of {all} connections came: can the others pass?")));
            }
        };
        if !wanted.contains(&purpose) || taken.contains_key(&purpose) {
            return Err(io::Error::other("a connection that does not belong to this measurement"));
        }
        // One byte on a new connection: never waits.
        if ekiden_net::socket::send(&socket, &[TAKEN], false).is_ok() {
            taken.insert(purpose, socket);
        }
    }
    let missing = || io::Error::other("no connection for probes came");
    let probes = taken.remove(&Purpose::Probe).ok_or_else(missing)?;
    probes.set_nonblocking(false)?;
    let answering = probes.try_clone()?;
    let probes = Probes(probes);
    thread::Builder::new().name("answers".into()).spawn(move || probe::answer(answering))?;
    let mut all = Vec::new();
    for (purpose, socket) in taken {
        socket.set_nonblocking(false)?;
        if let Purpose::Stream(way, stream) = purpose {
            all.push(Link { way, stream: stream.into(), socket });
        }
    }
    Ok((all, probes))
}

/// Waits until the load is over: this end's streams have ended, and the client has said that its own have, or has left.
async fn load(server: &Server, connection: &Connection, wanted: &Wanted, running: &Running) -> io::Result<()> {
    let (settings, stalled) = (wanted.asked.get(), server.settings.patience.stalled);
    match control::receive(connection, REQUEST_BYTES_MOST, MARGIN).await? {
        Request::Start => {}
        Request::Stop => return Ok(()),
        Request::Measure { .. } => return Err(io::Error::other("it asks twice")),
    }
    running.begin();
    control::send(connection, &Reply::Started, PATIENCE).await?;
    let longest = settings.duration_us.unwrap_or(server.duration_most_us());
    let deadline = Instant::now() + Duration::from_micros(longest) + MARGIN;
    let stop = control::receive::<Request>(connection, REQUEST_BYTES_MOST, Duration::from_secs(2 * 3_600));
    tokio::pin!(stop);
    let mut stopped = false;
    let moved = || settings.ways.iter().map(|way| running.moved(*way)).fold(0, u64::saturating_add);
    let (mut last, mut moved_at, mut looked_at) = (0, Instant::now(), Instant::now());
    while !(running.is_over() && stopped) {
        if Instant::now() > deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the load does not end"));
        }
        if looked_at.elapsed() >= MOVES {
            looked_at = Instant::now();
            let now = moved();
            if now != last {
                (last, moved_at) = (now, looked_at);
            } else if moved_at.elapsed() > if stopped { server.settings.patience.stopped } else { stalled } {
                let after = if stopped { " since the client said that it is done" } else { "" };
                let why = format!("nothing has moved for {} s{after}", moved_at.elapsed().as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
        }
        tokio::select! {
            said = &mut stop, if !stopped => match said? {
                // What its own receivers count has come; what this end's receivers count may still be under way.
                Request::Stop => (stopped, moved_at) = (true, Instant::now()),
                _ => return Err(io::Error::other("a message that does not belong here")),
            },
            () = tokio::time::sleep(LOOK) => {}
        }
    }
    Ok(())
}

/// Sends what was seen of a stream.
async fn report(connection: &Connection, seen: LoadSeen, within: Duration) -> io::Result<()> {
    let LoadSeen { way, stream, end, rows } = seen;
    for rows in rows.chunks(ROWS) {
        control::send(connection, &Reply::Rows { way, stream, rows: rows.to_vec() }, within).await?;
    }
    control::send(connection, &Reply::Stream { way, stream, end }, within).await
}
