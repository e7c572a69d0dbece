//! Small messages on a connection of their own, and their answers: the latency beside a load.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ekiden_net::clock::monotonic_ns;
use ekiden_net::schedule;

use ekiden_diagnosis::latency::Answer;

/// Interval between two messages, where the path carries enough.
const INTERVAL_NS: u64 = 20_000_000;
/// The longest interval, however slow the path is.
const INTERVAL_MOST_NS: u64 = 1_000_000_000;
/// The ratio of the load's rate to that of the messages, at least.
const LOAD_PART: u64 = 100;
/// A message on the line, with IPv4, TCP and timestamps.
const ON_LINE_BITS: u64 = (ANSWER as u64 + 52) * 8;
/// Bytes of a question: its number, from 0, and 8 bytes without meaning. An answer appends the server's time.
const QUESTION: usize = 16;
const ANSWER: usize = 24;
/// The most answers that are kept: enough for more than an hour.
const ANSWERS_MOST: usize = 200_000;

/// The mean interval between two answers, four times as many as a client asks for, and how many may exceed it in one burst, from a client
/// that was late. A client that asks more often waits, so that the bytes of its messages are negligible beside a limit on bytes.
const ANSWER_EVERY: Duration = Duration::from_millis(5);
const ANSWERS_AT_ONCE: u32 = 64;

/// Answers until the other end leaves or the connection is shut down.
pub fn answer(mut socket: TcpStream) {
    let mut message = [0; ANSWER];
    let (began, mut answers) = (Instant::now(), 0_u32);
    while socket.read_exact(&mut message[..QUESTION]).is_ok() {
        message[QUESTION..].copy_from_slice(&monotonic_ns().to_be_bytes());
        if socket.write_all(&message).is_err() {
            return;
        }
        answers = answers.saturating_add(1);
        thread::sleep((ANSWER_EVERY * answers.saturating_sub(ANSWERS_AT_ONCE)).saturating_sub(began.elapsed()));
    }
}

/// A thread that asks, until this is dropped.
pub struct Prober {
    socket: TcpStream,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    interval_ns: Arc<AtomicU64>,
    /// `None` once it has been joined.
    thread: Option<JoinHandle<Vec<Answer>>>,
}

impl Prober {
    /// Begins to ask.
    ///
    /// # Errors
    /// The system's.
    pub fn start(socket: TcpStream) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicUsize::new(0));
        let interval_ns = Arc::new(AtomicU64::new(INTERVAL_NS));
        let (of_thread, stopped, count) = (socket.try_clone()?, stop.clone(), answered.clone());
        let interval = interval_ns.clone();
        let work = move || ask(of_thread, &stopped, &count, &interval);
        let thread = thread::Builder::new().name("probes".into()).spawn(work)?;
        Ok(Self { socket, stop, answered, interval_ns, thread: Some(thread) })
    }

    /// Asks no more often than is negligible beside a load of this rate.
    pub fn keep_below(&self, load_bit_s: u64) {
        self.interval_ns.store(interval_ns(load_bit_s), Ordering::Relaxed);
    }

    /// Waits for `count` answers, but no less than `least` and no longer than `most`.
    pub fn await_answers(&self, count: usize, least: Duration, most: Duration) {
        let start = Instant::now();
        while start.elapsed() < least || (self.answered.load(Ordering::Relaxed) < count && start.elapsed() < most) {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends, and says what was answered.
    pub fn finish(mut self) -> Vec<Answer> {
        self.stop();
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop();
    }
}

fn interval_ns(load_bit_s: u64) -> u64 {
    let interval = (ON_LINE_BITS * LOAD_PART * 1_000_000_000).checked_div(load_bit_s).unwrap_or(INTERVAL_MOST_NS);
    interval.clamp(INTERVAL_NS, INTERVAL_MOST_NS)
}

fn ask(mut socket: TcpStream, stop: &AtomicBool, answered: &AtomicUsize, interval_ns: &AtomicU64) -> Vec<Answer> {
    schedule::exact_timers();
    let mut answers = Vec::new();
    // When the last question was to be sent.
    let mut asked_ns = 0_u64;
    let (mut partial, mut filled) = ([0; ANSWER], 0);
    let mut questions = Questions::default();
    while !stop.load(Ordering::Acquire) {
        let (now_ns, interval) = (monotonic_ns(), interval_ns.load(Ordering::Relaxed));
        let due_ns = asked_ns + interval;
        if now_ns >= due_ns {
            let mut question = [0; QUESTION];
            question[..8].copy_from_slice(&questions.ask(now_ns).to_be_bytes());
            if socket.write_all(&question).is_err() {
                break;
            }
            // One that was missed is not made up for.
            asked_ns = if now_ns - due_ns < interval { due_ns } else { now_ns };
        }
        // No longer than that the interval may have changed.
        let left_ns = (asked_ns + interval).saturating_sub(monotonic_ns()).clamp(1_000, INTERVAL_NS);
        let wait = Duration::from_nanos(left_ns);
        if socket.set_read_timeout(Some(wait)).is_err() {
            break;
        }
        match socket.read(&mut partial[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
        if filled == ANSWER {
            filled = 0;
            let at = |from: usize| partial[from..from + 8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            if let Some(sent_ns) = questions.answer(at(0)) {
                if answers.len() < ANSWERS_MOST {
                    answers.push(Answer { sent_ns, there_ns: at(16), back_ns: monotonic_ns() });
                }
                answered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    answers
}

/// Questions without an answer yet. Answers come in their order; an answer counts once, and the time of its question is this end's.
#[derive(Debug, Default)]
struct Questions {
    /// The number of the first one.
    first: u64,
    sent_ns: VecDeque<u64>,
}

impl Questions {
    /// The number of a question that is sent now.
    fn ask(&mut self, now_ns: u64) -> u64 {
        self.sent_ns.push_back(now_ns);
        self.first + self.sent_ns.len() as u64 - 1
    }

    /// When the question was sent that an answer is to; `None` if it is to no question, or to one that was answered.
    fn answer(&mut self, number: u64) -> Option<u64> {
        if number != self.first {
            return None;
        }
        let sent_ns = self.sent_ns.pop_front()?;
        self.first += 1;
        Some(sent_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_once_and_with_the_time_at_which_its_question_was_sent() {
        let mut questions = Questions::default();
        assert_eq!((questions.ask(70), questions.ask(90)), (0, 1));
        assert_eq!((questions.answer(1), questions.answer(u64::MAX)), (None, None), "not in its order");
        assert_eq!((questions.answer(0), questions.answer(0)), (Some(70), None), "answered twice");
        assert_eq!((questions.answer(1), questions.answer(2)), (Some(90), None), "not asked");
        assert_eq!(questions.ask(95), 2);
    }

    #[test]
    fn who_asks_without_end_is_answered_no_faster_than_who_measures() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut asks = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (answers, _) = listener.accept().unwrap();
        let began = Instant::now();
        let answering = thread::spawn(move || answer(answers));
        let asked = thread::spawn({
            let mut asks = asks.try_clone().unwrap();
            move || while asks.write_all(&[0; 100 * QUESTION]).is_ok() {}
        });
        let (mut came, mut message) = (0, [0; ANSWER]);
        while began.elapsed() < Duration::from_millis(400) && asks.read_exact(&mut message).is_ok() {
            came += 1;
        }
        let most = ANSWERS_AT_ONCE + 1 + (began.elapsed().as_micros() / ANSWER_EVERY.as_micros()) as u32;
        assert!((ANSWERS_AT_ONCE..=most).contains(&came), "{came} answers, and {most} at most");
        asks.shutdown(Shutdown::Both).unwrap();
        drop(asks);
        answering.join().unwrap();
        asked.join().unwrap();
    }

    #[test]
    fn messages_are_a_hundredth_of_a_slow_load_at_most() {
        assert_eq!(interval_ns(1_000_000_000), INTERVAL_NS);
        let bit_s = ON_LINE_BITS as f64 / (interval_ns(384_000) as f64 / 1e9);
        assert!((bit_s - 3_840.0).abs() < 1.0, "{bit_s}");
        assert_eq!(interval_ns(1), INTERVAL_MOST_NS);
        assert_eq!(interval_ns(0), INTERVAL_MOST_NS, "nothing has come yet");
    }
}
