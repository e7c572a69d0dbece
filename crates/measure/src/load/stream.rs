//! A stream: the thread that sends, and the one that receives.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ekiden_net::blocking::discard;
use ekiden_net::clock::monotonic_ns;
use ekiden_net::socket::{await_bytes, clamp_window, congestion, limit_rate, limit_unacknowledged};
use ekiden_net::tcp_info::tcp_info;
use ekiden_record::Way;

use super::batch::Batch;
use super::calls::{self, Calls};
use super::evenness::Evenness;
use super::payload::Payload;
use super::{Link, Most, Shared};
use crate::socket::{Load, prepare};
use ekiden_diagnosis::budget;
use ekiden_measure_proto::message::{StreamEnd, TENTHS_MOST, Trace};
use ekiden_measure_proto::seen::Side;
use ekiden_measure_proto::settings::Asked;

/// Timeout of a socket call, after which the thread checks whether it is to stop.
const WAIT: Duration = Duration::from_millis(50);
/// Bytes that a sender hands over at a time unless asked for another number, and that a receiver takes.
const PIECE: u64 = 256 << 10;
/// Threshold in bytes: until a receiver has received this much, it clamps its window at every call.
const CLAMPED: u64 = 1 << 20;
/// Interval at which a sender with a limited rate hands over data, and the most that it makes up for, as a time in nanoseconds.
const OFFER: Duration = Duration::from_millis(5);
const OFFER_MOST_NS: u64 = 100_000_000;
/// Bytes that a traced sender hands over at a time: few, so that it ends soon after it is told to.
const TRACE_PIECE: u64 = 32 << 10;
/// How soon a traced sender that has used up its allowance checks again whether it may send more.
const LOOK: Duration = Duration::from_micros(200);
/// Timeout of a connection whose data is not acknowledged.
const SILENCE_MOST: Duration = Duration::from_secs(20);
/// Length of the intervals whose bytes are counted separately: a tenth of a second, in nanoseconds.
const TENTH_NS: u64 = 100_000_000;

/// One end of a stream.
pub(super) struct Stream {
    pub way: Way,
    pub number: u32,
    pub sends: bool,
    pub socket: TcpStream,
    /// Bytes that it carries in all, where that was asked for.
    bytes: Option<u64>,
    /// Bytes at which it ends whatever was asked for.
    bytes_most: u64,
    duration_ns: Option<u64>,
    data_bytes: Option<u32>,
    offered_bit_s: Option<u64>,
    /// Bytes that the program has written, or received.
    pub program_bytes: AtomicU64,
    pub trace: Trace,
    /// The most that a receiver advertises.
    window_bytes: Option<u32>,
    /// The time between two calls of the kernel that move little.
    pause_ns: u64,
    /// Whether a receiver may wait until more has come.
    in_batches: bool,
    /// Bytes that a sender may have handed over: each look at a traced one may raise it.
    pub allowance: AtomicU64,
    /// Whether a traced sender has shown what it can show, or has sent what it may.
    pub is_spent: AtomicBool,
}

impl Stream {
    pub fn new(asked: &Asked, link: Link, side: Side, trace: Trace, most: Most) -> io::Result<Self> {
        let Link { way, stream: number, socket } = link;
        let settings = asked.get();
        let sends = side.sends(way);
        prepare(&socket, &Load { settings, sends, trace }).map_err(io::Error::other)?;
        socket.set_read_timeout(Some(WAIT))?;
        socket.set_write_timeout(Some(WAIT))?;
        limit_unacknowledged(&socket, SILENCE_MOST)?;
        if let (true, Some(rate)) = (sends, settings.pacing_bit_s) {
            limit_rate(&socket, rate / 8)?;
        }
        Ok(Self {
            way,
            number,
            sends,
            socket,
            bytes: asked.bytes_of(number),
            bytes_most: most.bytes.map_or(u64::MAX, |most| most / u64::from(settings.streams)),
            duration_ns: settings.duration_us.map(|time| time * 1_000),
            data_bytes: settings.data_bytes,
            offered_bit_s: settings.offered_bit_s,
            program_bytes: AtomicU64::new(0),
            trace,
            window_bytes: settings.window_bytes,
            pause_ns: calls::pause_ns(most, u64::from(settings.streams) * settings.ways.len() as u64),
            in_batches: !trace.is_close() && Batch::is_allowed(settings),
            allowance: AtomicU64::new(budget::allowance(trace, None)),
            is_spent: AtomicBool::new(false),
        })
    }

    /// Bytes moved: acknowledged, or received.
    pub fn moved(&self) -> u64 {
        match self.sends {
            true => tcp_info(&self.socket).map_or(0, |info| info.acked_bytes),
            false => self.program_bytes.load(Ordering::Relaxed),
        }
    }

    /// Clamps a receiver's window again: kernels since Linux 6.6 set it anew when the first segments show how much memory they take.
    pub fn clamp(&self) {
        if let (false, Some(bytes)) = (self.sends, self.window_bytes) {
            let _ = clamp_window(&self.socket, bytes);
        }
    }

    /// Sends what was asked for.
    pub fn send(&self, shared: &Shared, payload: &Payload) -> StreamEnd {
        let began_ns = monotonic_ns();
        let until_ns = self.duration_ns.map_or(u64::MAX, |time| began_ns.saturating_add(time));
        let limit = self.bytes.unwrap_or(u64::MAX).min(self.bytes_most);
        let mut end = self.end();
        let mut sent = 0;
        let (mut offer, mut offered_ns) = (self.offered(began_ns), began_ns);
        let mut calls = Calls::new(self.pause_ns);
        while sent < limit
            && !shared.is_stopped()
            && monotonic_ns() < until_ns
            && !self.is_spent.load(Ordering::Relaxed)
        {
            if self.offered_bit_s.is_some() && offer == 0 {
                thread::sleep(OFFER);
                offer = self.offered(offered_ns);
                offered_ns = monotonic_ns();
                continue;
            }
            let allowed = self.allowance.load(Ordering::Relaxed).saturating_sub(sent);
            if allowed == 0 {
                // The next look says whether it is all.
                thread::sleep(LOOK.max(Duration::from_nanos(self.pause_ns)));
                continue;
            }
            let left = offer.min(limit - sent).min(allowed);
            let written = match self.data_bytes {
                Some(bytes) => payload.write(&self.socket, left.min(bytes.into())),
                None if self.trace.is_close() => payload.send(&self.socket, left.min(TRACE_PIECE)),
                None => payload.send(&self.socket, left.min(PIECE)),
            };
            match written {
                Ok(bytes) => {
                    sent += bytes as u64;
                    offer = offer.saturating_sub(bytes as u64);
                    pause(calls.made(bytes as u64, monotonic_ns()));
                }
                Err(error) if is_transient(&error) => {}
                // The receiver has what counts, and has left.
                Err(_) if shared.is_stopped() => break,
                Err(error) => {
                    end.failed = Some(error.to_string());
                    break;
                }
            }
            self.program_bytes.store(sent, Ordering::Relaxed);
        }
        if sent == limit || self.trace.is_close() {
            // A receiver that counts bytes sees an end that was said.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
        end.bytes = sent;
        end.first_us = shared.since_begin_us(began_ns);
        end.duration_us = (monotonic_ns() - began_ns) / 1_000;
        end
    }

    /// Bytes that a sender with a limited rate hands over now, where it last did so at `since_ns`. Of a pause longer than
    /// [`OFFER_MOST_NS`] only that much is made up for.
    fn offered(&self, since_ns: u64) -> u64 {
        let Some(rate) = self.offered_bit_s else { return u64::MAX };
        let time_ns = (monotonic_ns() - since_ns).min(OFFER_MOST_NS);
        (u128::from(rate) * u128::from(time_ns) / 8_000_000_000) as u64
    }

    /// Receives until everything that counts has arrived.
    pub fn receive(&self, shared: &Shared) -> StreamEnd {
        let mut end = self.end();
        let expected = self.bytes.unwrap_or(u64::MAX).min(self.bytes_most);
        let mut evenness = Evenness::default();
        let (mut last_ns, mut received) = (0, 0);
        let mut batch = Batch::default();
        let mut calls = Calls::new(self.pause_ns);
        while !shared.is_stopped() {
            // One byte more than expected shows that the sender sends too much.
            let wanted = PIECE.min((expected - received).saturating_add(1));
            let taken = discard(&self.socket, wanted as usize);
            let now_ns = monotonic_ns();
            let over_ns =
                shared.first_arrival_ns().zip(self.duration_ns).map(|(first, time)| first.saturating_add(time));
            if over_ns.is_some_and(|over| now_ns > over) {
                last_ns = over_ns.unwrap_or_default();
                break;
            }
            match taken {
                Ok(0) => {
                    if received < expected && !self.is_done(received) && !self.trace.is_close() {
                        end.failed = Some(format!("the sender ended after {received} bytes"));
                    }
                    break;
                }
                Ok(bytes) => {
                    if received < CLAMPED {
                        self.clamp();
                    }
                    let first = shared.arrived(now_ns);
                    received += bytes as u64;
                    if received > expected {
                        end.failed = Some(format!("the sender sent more than {expected} bytes"));
                        break;
                    }
                    last_ns = now_ns;
                    count(&mut end.tenths_bytes, now_ns - first, bytes as u64);
                    evenness.add(now_ns - first, bytes as u64);
                    self.program_bytes.store(received, Ordering::Relaxed);
                    if self.in_batches
                        && let Some(bytes) = batch.taken(now_ns, bytes as u64)
                    {
                        let _ = await_bytes(&self.socket, bytes);
                    }
                    pause(calls.made(bytes as u64, now_ns));
                }
                Err(error) if is_transient(&error) => {}
                Err(error) => {
                    end.failed = Some(error.to_string());
                    break;
                }
            }
        }
        let first_ns = shared.first_arrival_ns().unwrap_or(last_ns);
        end.bytes = received;
        end.peaks = evenness.peaks();
        end.first_us = shared.since_begin_us(first_ns);
        end.duration_us = last_ns.saturating_sub(first_ns) / 1_000;
        end
    }

    /// Whether all bytes that were asked for have been `received`, so that the end is due.
    fn is_done(&self, received: u64) -> bool {
        self.bytes.is_some_and(|bytes| received >= bytes)
    }

    fn end(&self) -> StreamEnd {
        let info = tcp_info(&self.socket).unwrap_or_default();
        StreamEnd {
            congestion: congestion(&self.socket).unwrap_or_default(),
            mss_bytes: info.mss_bytes,
            path_mtu_bytes: info.path_mtu_bytes,
            has_timestamps: info.options.timestamps,
            ..StreamEnd::default()
        }
    }
}

fn pause(ns: u64) {
    if ns > 0 {
        thread::sleep(Duration::from_nanos(ns));
    }
}

/// Adds to the tenth of a second in which they came.
fn count(tenths: &mut Vec<u64>, since_first_ns: u64, bytes: u64) {
    let tenth = (since_first_ns / TENTH_NS) as usize;
    if tenth < TENTHS_MOST {
        if tenths.len() <= tenth {
            tenths.resize(tenth + 1, 0);
        }
        tenths[tenth] += bytes;
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
        && error.raw_os_error() != Some(libc::ETIMEDOUT)
}
