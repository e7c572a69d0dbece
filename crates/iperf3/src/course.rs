//! The course of a measurement: asked for, begun, watched, ended, and what came out of it.
//!
//! This end ends it, after its time or once all bytes are acknowledged. What was received is taken from the end that received it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use ekiden_net::blocking::Block;
use ekiden_net::socket::TcpOptions;
use ekiden_record::Sample;

use super::{
    BLOCK_MOST, Error, LoadDirection, OMIT_MOST, Outcome, Progress, STREAMS_MOST, Settings, StreamOutcome, TIME_MOST,
    Until,
};
use crate::control::{self, Control};
use crate::error::Phase;
use crate::message::{self, Parameters, Results, State, StreamResult};
use crate::stream::{Shared, Stream, Watched};
use crate::who;
use ekiden_diagnosis::jitter::Jitter;

/// How long a server may still have something to say when a stream has broken.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How long a server may take to end the control connection; until then it has no time for others.
const LAST_STEP: Duration = Duration::from_secs(2);
/// How long the server's program has for what its kernel has received, after a transfer by bytes.
const LAST_READ: Duration = Duration::from_millis(50);
/// Between two measurements an iperf3 server closes its listener and opens it again: whoever waits there is reset, and whoever comes meanwhile is
/// refused. Another attempt is made this much later, so often.
const BETWEEN: Duration = Duration::from_millis(100);
const BETWEEN_TRIES: usize = 3;
/// A slow start threshold that means none (TCP_INFINITE_SSTHRESH).
const NO_SSTHRESH: u32 = 0x7fff_ffff;

/// Measures with a plain iperf3 server.
///
/// # Errors
/// If the settings are wrong, the server cannot be reached, is busy, is not iperf3, goes away, or says what cannot be.
pub fn run(settings: &Settings, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Outcome, Error> {
    check(settings)?;
    let block = block(settings.block_bytes)?;
    let control = greeted(settings)?;
    control.send(&message::encode(&parameters(settings)), Phase::TakeParameters)?;
    control.expect(State::CreateStreams, Phase::TakeParameters)?;
    let streams = open_streams(settings, &control)?;
    control.expect(State::TestStart, Phase::TakeStreams)?;
    control.expect(State::TestRunning, Phase::Begin)?;

    let mut course = Course::new(settings, &control, &streams);
    course.carry(&block, progress)?;
    control.expect(State::ExchangeResults, Phase::SendResults)?;
    control.send(&message::encode(&course.own_results()), Phase::SendResults)?;
    let results = control.results()?;
    control.expect(State::DisplayResults, Phase::Finish)?;
    // The results are here; a server that is gone now takes nothing away.
    if control.say(State::IperfDone, Phase::Finish).is_ok() {
        control.wait_for_end(LAST_STEP);
    }
    course.outcome(&results)
}

/// A connection to a server that takes parameters.
fn greeted(settings: &Settings) -> Result<Control, Error> {
    let mut tries = BETWEEN_TRIES;
    loop {
        let (error, control) = match Control::open(settings) {
            Ok(control) => match control.expect(State::ParamExchange, Phase::Greet) {
                Ok(()) => return Ok(control),
                Err(error) => (error, Some(control)),
            },
            Err(error) => (error, None),
        };
        if tries == 0 || !is_between(&error) {
            return Err(match control {
                Some(control) => named(settings, &control, error),
                None => error,
            });
        }
        tries -= 1;
        thread::sleep(BETWEEN);
    }
}

/// Whether a server that is between two measurements may be the reason.
fn is_between(error: &Error) -> bool {
    match error {
        Error::Gone { phase: Phase::Greet, .. } => true,
        Error::Connect { source, .. } => source.kind() == io::ErrorKind::ConnectionRefused,
        _ => false,
    }
}

/// The error, naming the server that answers instead of an iperf3 server where it can be recognised.
fn named(settings: &Settings, control: &Control, error: Error) -> Error {
    let is_strange = matches!(error, Error::NotIperf3(_) | Error::Gone { phase: Phase::Greet, .. });
    match is_strange && settings.via.is_none() && who::is_ekiden(control.server) {
        true => Error::NotIperf3("it is a measuring server of ekiden: measure without --iperf3"),
        false => error,
    }
}

fn check(settings: &Settings) -> Result<(), Error> {
    let wrong = |reason: String| Err(Error::Settings(reason));
    let Settings { streams, omit, block_bytes, .. } = *settings;
    if !(1..=STREAMS_MOST).contains(&streams) {
        return wrong(format!("{streams} streams are out of range: 1 to {STREAMS_MOST}"));
    }
    if !(1..=BLOCK_MOST).contains(&block_bytes) {
        return wrong(format!("blocks of {block_bytes} bytes are out of range: 1 to {BLOCK_MOST}"));
    }
    if omit > OMIT_MOST || omit.subsec_nanos() != 0 {
        return wrong(format!("the omitted time must be whole seconds up to {}", OMIT_MOST.as_secs()));
    }
    match settings.until {
        Until::Time(time) if !(Duration::from_millis(100)..=TIME_MOST).contains(&time) => {
            return wrong(format!("the duration must be 100 ms to {} s", TIME_MOST.as_secs()));
        }
        Until::Bytes(bytes) if bytes.0 == 0 => return wrong("0 bytes are nothing to measure".into()),
        Until::Bytes(_) if omit > Duration::ZERO => {
            return wrong("a beginning can be omitted only of a measurement by time".into());
        }
        Until::Time(_) | Until::Bytes(_) => {}
    }
    if settings.sample_every < Duration::from_millis(1) || settings.patience < Duration::from_secs(1) {
        return wrong("samples need at least 1 ms, patience at least 1 s".into());
    }
    Ok(())
}

fn parameters(settings: &Settings) -> Parameters {
    let (time, num) = match settings.until {
        // In whole seconds: the server's own limit. We end it.
        Until::Time(time) => (time.as_secs() + u64::from(time.subsec_nanos() > 0), 0),
        Until::Bytes(bytes) => (0, bytes.0),
    };
    Parameters {
        tcp: true,
        omit: settings.omit.as_secs(),
        time,
        num,
        blockcount: 0,
        parallel: settings.streams,
        reverse: settings.direction == LoadDirection::Receive,
        bidirectional: settings.direction == LoadDirection::Both,
        window: settings.window.map(|window| window.0),
        len: settings.block_bytes,
        pacing_timer: 1000,
        congestion: settings.congestion.clone(),
        client_version: "3.12",
    }
}

/// Bytes that no link can compress.
fn block(bytes: u32) -> Result<Block, Error> {
    let local = |source| Error::Local { what: "make a block to send", source };
    let mut content = vec![0; bytes as usize];
    getrandom::fill(&mut content).map_err(|error| local(io::Error::other(error.to_string())))?;
    Block::new(&content).map_err(local)
}

/// The connections that carry data, those towards the server first: it takes them in this order.
fn open_streams(settings: &Settings, control: &Control) -> Result<Vec<Stream>, Error> {
    let options = TcpOptions {
        congestion: settings.congestion.clone(),
        send_buffer: settings.window,
        receive_buffer: settings.window,
        ..TcpOptions::default()
    };
    let ways: &[bool] = match settings.direction {
        LoadDirection::Send => &[true],
        LoadDirection::Receive => &[false],
        LoadDirection::Both => &[true, false],
    };
    let all = ways.iter().flat_map(|&is_sent| (0..settings.streams).map(move |connection| (is_sent, connection)));
    all.map(|(is_sent, connection)| {
        let socket = control::connect(settings, control.server, &options)?;
        let gone = |error| Error::Gone { phase: Phase::TakeStreams, source: Some(error) };
        io::Write::write_all(&mut &socket, &control.cookie).map_err(gone)?;
        Stream::new(socket, is_sent, connection).map_err(|source| Error::Local { what: "set up a socket", source })
    })
    .collect()
}

/// A measurement whose streams are there.
struct Course<'a> {
    settings: &'a Settings,
    control: &'a Control,
    streams: &'a [Stream],
    watched: Vec<Watched>,
    /// When counting began, and the last sample, in microseconds since data may flow.
    begun_us: u64,
    ended_us: u64,
    late: Jitter,
}

/// Tells the threads to stop, whatever happens.
struct StopAtEnd<'a>(&'a Shared);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Relaxed);
    }
}

impl<'a> Course<'a> {
    fn new(settings: &'a Settings, control: &'a Control, streams: &'a [Stream]) -> Self {
        let watched = streams.iter().map(|_| Watched::default()).collect();
        Self { settings, control, streams, watched, begun_us: 0, ended_us: 0, late: Jitter::default() }
    }

    /// Moves data until it is enough, and tells the server so.
    fn carry(&mut self, block: &Block, progress: &mut dyn FnMut(Progress<'_>)) -> Result<(), Error> {
        let most = match self.settings.until {
            Until::Bytes(bytes) => Some(bytes),
            Until::Time(_) => self.settings.bytes_most,
        };
        let (shared, size) = (Shared::new(most.map(|bytes| bytes.0)), u64::from(self.settings.block_bytes));
        let start = Instant::now();
        self.begin_counting(start)?;
        thread::scope(|scope| {
            let _stop = StopAtEnd(&shared);
            for stream in self.streams {
                let work = || stream.carry(&shared, block, size);
                thread::Builder::new()
                    .name("stream".into())
                    .spawn_scoped(scope, work)
                    .map_err(|source| Error::Local { what: "start a thread", source })?;
            }
            self.watch(start, &shared, progress)?;
            // Before the threads have ended: what still flows is the server's to count.
            self.control.say(State::TestEnd, Phase::SendResults)
        })
    }

    fn begin_counting(&mut self, start: Instant) -> Result<(), Error> {
        let at_us = self.sample(start)?;
        (self.begun_us, self.ended_us) = (at_us, at_us);
        self.watched.iter_mut().for_each(|watched| watched.begin(at_us));
        Ok(())
    }

    fn watch(&mut self, start: Instant, shared: &Shared, progress: &mut dyn FnMut(Progress<'_>)) -> Result<(), Error> {
        let every = self.settings.sample_every;
        let mut moved = (0, Instant::now());
        let mut is_counting = self.settings.omit.is_zero();
        let mut next = Duration::ZERO;
        let mut is_first = true;
        loop {
            shared.wait(next.saturating_sub(start.elapsed()));
            let now = start.elapsed();
            // Where all has come, the last sample is early.
            self.late.add(u64::try_from(now.saturating_sub(next).as_micros()).unwrap_or(u64::MAX));
            // The next one that has not passed yet.
            next = every * u32::try_from(now.as_nanos() / every.as_nanos() + 1).unwrap_or(u32::MAX);
            self.control.look()?;
            self.check_streams(shared)?;
            if !is_counting && now >= self.settings.omit {
                is_counting = true;
                self.begin_counting(start)?;
            }
            let at_us = self.sample(start)?;
            self.ended_us = at_us;
            if let (true, Some(first)) = (std::mem::take(&mut is_first), self.watched.first()) {
                progress(Progress::Begun { server: self.control.server, mss_bytes: first.info.mss_bytes });
            }
            let samples: Vec<Sample> = self.samples(at_us);
            progress(Progress::Sampled { at_us, samples: &samples, done: self.done(now) });
            match self.settings.until {
                Until::Time(time) if now >= self.settings.omit + time => return Ok(()),
                Until::Time(_) if self.settings.bytes_most.is_some_and(|bytes| self.has_moved(bytes.0)) => {
                    return Ok(());
                }
                Until::Time(_) => {}
                Until::Bytes(bytes) if self.is_through(bytes.0) => {
                    self.ended_us -= self.since_last_ack_us().min(at_us - self.begun_us);
                    // The server's program has to take from its kernel what has arrived there.
                    thread::sleep(LAST_READ);
                    return Ok(());
                }
                Until::Bytes(_) => {
                    let sum = samples.iter().fold(0_u64, |sum, sample| sum.saturating_add(sample.received_bytes));
                    if sum != moved.0 {
                        moved = (sum, Instant::now());
                    } else if moved.1.elapsed() > self.settings.patience {
                        return Err(Error::Stalled { patience: self.settings.patience });
                    }
                }
            }
        }
    }

    /// Fails if a stream broke. The server's own word is better than the kernel's, if it comes.
    fn check_streams(&self, shared: &Shared) -> Result<(), Error> {
        let broken = shared.broken.lock().ok().and_then(|mut broken| broken.take());
        let Some(source) = broken else { return Ok(()) };
        let until = Instant::now() + LAST_WORDS;
        while Instant::now() < until {
            match self.control.look() {
                Err(Error::Gone { .. }) => break,
                other => other?,
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err(Error::Gone { phase: Phase::Carry, source })
    }

    fn sample(&mut self, start: Instant) -> Result<u64, Error> {
        let at_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        for (watched, stream) in self.watched.iter_mut().zip(self.streams) {
            let sampled = watched.sample(stream, at_us);
            sampled.map_err(|source| Error::Local { what: "read TCP_INFO", source })?;
        }
        Ok(at_us)
    }

    fn samples(&self, at_us: u64) -> Vec<Sample> {
        let [sent, received]: [Arc<str>; 2] = ["send".into(), "receive".into()];
        let all = self.watched.iter().zip(self.streams);
        all.map(|(watched, stream)| Sample {
            at_us,
            flow: if stream.is_sent { sent.clone() } else { received.clone() },
            connection: stream.connection,
            received_bytes: if stream.is_sent { watched.acked_bytes() } else { watched.moved },
            acked_bytes: watched.info.acked_bytes,
            cwnd_segments: watched.info.cwnd_segments,
            ssthresh_segments: Some(watched.info.ssthresh_segments).filter(|&segments| segments < NO_SSTHRESH),
            unacked_segments: watched.info.unacked_segments,
            window_bytes: watched.info.send_window_bytes.into(),
            rtt_us: watched.info.rtt_us.into(),
            rtt_min_us: watched.rtt_min_us().unwrap_or_default(),
            retransmits: watched.info.retransmits.into(),
            delivery_bit_s: watched.info.delivery_bytes_s.saturating_mul(8),
        })
        .collect()
    }

    /// Which part is done.
    fn done(&self, now: Duration) -> f64 {
        let part = match self.settings.until {
            Until::Time(time) => now.as_secs_f64() / (self.settings.omit + time).as_secs_f64(),
            Until::Bytes(bytes) => {
                let ways = [true, false].into_iter().filter_map(|is_sent| self.arrived(is_sent));
                ways.min().unwrap_or_default() as f64 / bytes.0 as f64
            }
        };
        part.clamp(0.0, 1.0)
    }

    /// Bytes that have arrived in one direction; `None` without streams in it.
    fn arrived(&self, is_sent: bool) -> Option<u64> {
        let all = self.watched.iter().zip(self.streams).filter(|(_, stream)| stream.is_sent == is_sent);
        all.map(|(watched, _)| if is_sent { watched.acked_bytes() } else { watched.moved }).reduce(u64::saturating_add)
    }

    /// Whether at least `bytes` have arrived in a direction.
    fn has_moved(&self, bytes: u64) -> bool {
        [true, false].into_iter().any(|is_sent| self.arrived(is_sent).is_some_and(|arrived| arrived >= bytes))
    }

    /// Whether all bytes of a measurement by bytes have arrived.
    fn is_through(&self, bytes: u64) -> bool {
        let moved = |is_sent: bool| {
            let all = self.watched.iter().zip(self.streams).filter(|(_, stream)| stream.is_sent == is_sent);
            all.map(|(watched, _)| watched.moved).reduce(u64::saturating_add)
        };
        let is_whole = [true, false].into_iter().filter_map(moved).all(|moved| moved >= bytes);
        is_whole
            && self.watched.iter().all(|watched| watched.info.unsent_bytes == 0 && watched.info.unacked_segments == 0)
    }

    /// How long ago the last byte was acknowledged, where we are the only sender; the kernel counts whole milliseconds.
    fn since_last_ack_us(&self) -> u64 {
        let is_sender = self.streams.iter().all(|stream| stream.is_sent);
        let last = self.watched.iter().map(|watched| watched.info.last_ack_ms).min().filter(|_| is_sender);
        u64::from(last.unwrap_or_default()) * 1000
    }

    /// What the server is told.
    fn own_results(&self) -> Results {
        let seconds = self.ended_us.saturating_sub(self.begun_us) as f64 / 1e6;
        let streams = self.watched.iter().zip(self.streams).enumerate();
        let has_sent = self.streams.iter().any(|stream| stream.is_sent);
        Results {
            cpu_util_total: 0.0,
            cpu_util_user: 0.0,
            cpu_util_system: 0.0,
            sender_has_retransmits: if has_sent { 1.0 } else { -1.0 },
            congestion_used: None,
            streams: streams
                .map(|(index, (watched, stream))| StreamResult {
                    id: message::stream_id(index) as f64,
                    bytes: watched.counted_bytes() as f64,
                    retransmits: if stream.is_sent { f64::from(watched.counted_retransmits()) } else { -1.0 },
                    jitter: 0.0,
                    errors: 0.0,
                    packets: 0.0,
                    start_time: 0.0,
                    end_time: seconds,
                })
                .collect(),
        }
    }

    fn outcome(self, results: &Results) -> Result<Outcome, Error> {
        let own_us = self.ended_us.saturating_sub(self.begun_us).max(1);
        let streams = self.watched.iter().zip(self.streams).enumerate();
        let streams = streams.map(|(index, (watched, stream))| {
            self.stream_outcome(watched, stream, results.stream(message::stream_id(index))?, results, own_us)
        });
        let streams = streams.collect::<Result<Vec<_>, Error>>()?;
        let first = self.streams.first();
        let congestion = first.map_or(Ok(String::new()), |stream| ekiden_net::socket::congestion(&stream.socket));
        Ok(Outcome {
            server: self.control.server,
            server_congestion: results.congestion().map(str::to_owned),
            congestion: congestion.map_err(|source| Error::Local { what: "read a congestion control", source })?,
            streams,
            late: self.late.lateness(),
        })
    }

    fn stream_outcome(
        &self,
        watched: &Watched,
        stream: &Stream,
        said: &StreamResult,
        results: &Results,
        own_us: u64,
    ) -> Result<StreamOutcome, Error> {
        let moved = said.moved_bytes()?;
        let (sent_bytes, received_bytes, duration_us) = match stream.is_sent {
            true => {
                // With what it may have counted of the omitted beginning: its clock is not ours.
                let most = stream.moved.load(Relaxed);
                if moved > most {
                    return Err(Error::Results(format!("it has received {moved} bytes of {most} that were sent")));
                }
                let said_us = plausible_us(said.seconds()?, own_us)?;
                // The server's time has our wait in it, where everything was to arrive.
                let is_by_time = matches!(self.settings.until, Until::Time(_));
                (watched.counted_bytes(), moved, if is_by_time { said_us } else { own_us })
            }
            false => {
                let received = watched.counted_bytes();
                if moved < received && self.settings.omit.is_zero() {
                    return Err(Error::Results(format!("it has sent {moved} bytes, and {received} have arrived")));
                }
                (moved, received, own_us)
            }
        };
        let retransmits = match stream.is_sent {
            true => Some(watched.counted_retransmits().into()),
            false => said.resent().filter(|_| results.sender_has_retransmits == 1.0),
        };
        let rate = u128::from(received_bytes) * 8_000_000 / u128::from(duration_us.max(1));
        Ok(StreamOutcome {
            is_sent: stream.is_sent,
            connection: stream.connection,
            sent_bytes,
            received_bytes,
            duration_us,
            received_bit_s: u64::try_from(rate).unwrap_or(u64::MAX),
            retransmits,
            rtt_min_us: watched.rtt_min_us(),
            rtt_max_us: Some(watched.rtt_max_us.into()).filter(|&rtt| rtt > 0),
            shares: watched.limits.shares().filter(|_| stream.is_sent),
        })
    }
}

/// The server's time in microseconds. It must be about ours: a rate follows from it. A host that is late may miss much of a short one.
fn plausible_us(said: Option<f64>, own_us: u64) -> Result<u64, Error> {
    let Some(seconds) = said else { return Ok(own_us) };
    let own = own_us as f64 / 1e6;
    match (own / 10.0..=own * 2.0 + 30.0).contains(&seconds) {
        true => Ok(((seconds * 1e6) as u64).max(1)),
        false => Err(Error::Results(format!("a stream has lasted {seconds} s, and the measurement {own:.3} s"))),
    }
}
