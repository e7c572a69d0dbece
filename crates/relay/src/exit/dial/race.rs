//! Connects to a name (RFC 8305, "happy eyeballs"). Its addresses, IPv6 and IPv4 alternately, are tried a short time apart, and
//! the first connection that succeeds is used. A dead address costs that short time, not the whole time limit.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ekiden_net::socket::canonical;
use ekiden_relay_proto::{Failure, FailureCode, Target};
use ekiden_transport::take_first_of;
use tokio::net::TcpStream;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Dial, attempt, failure, timed_out};
use crate::exit::names::{MOST_ADDRESSES, Unknown};
use crate::exit::policy::{Policy, Refusal};
use crate::exit::spare::Counted;

/// How long an address has before the next one is tried beside it (RFC 8305 §5, Connection Attempt Delay).
const HEAD_START: Duration = Duration::from_millis(250);

/// The maximum wait for IPv6 addresses once there are IPv4 addresses (RFC 8305 §3, Resolution Delay).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// How many addresses of a name are tried at the same time, of at most [`MOST_ADDRESSES`].
const AT_ONCE: usize = 3;

/// Connects to a name, as [`Dial::connect`].
pub async fn connect(dial: &Dial<'_>, target: &Target) -> Result<TcpStream, Failure> {
    let host = target.host.to_string();
    let (tell, mut found) = unbounded_channel();
    // This cannot fail: the receiver lives as long as the sender.
    let tell = move |ip| tell.send(ip).unwrap_or_default();
    let expansion = Mutex::new(Expansion::default());
    let wanted = |name: &str| {
        let mut expansion = lock(&expansion);
        dial.policy.is_none_or(|policy| expansion.switch_to(policy, name))
    };
    let turn = dial.spare.look_up(dial.asker);
    let mut lookup = pin!(dial.names.find(&host, &turn, wanted, tell));
    let mut deadline = pin!(sleep(dial.limit));
    let mut race = Race::new(dial);
    loop {
        let (next, is_open, is_waiting) = (race.next, race.is_open, race.is_waiting());
        tokio::select! {
            biased;
            () = &mut deadline => {
                // If there was no address at all, the name server has not answered, unless none was asked, or the policy has
                // refused an address.
                match race.added == 0 && race.is_open {
                    true if race.refusal.is_some() => {}
                    true if !turn.has_begun() => race.note(unanswered(&host, &Unknown::NoTurn)),
                    true => race.note(unanswered(&host, &Unknown::Timeout)),
                    false => race.note(timed_out(target)),
                }
                return Err(race.outcome(target));
            }
            (address, done) = race.first_done() => match done {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    tracing::trace!("{target} at {address}: {error}");
                    race.note(failure(target, &error));
                    // The next address need not wait for its turn.
                    race.next = Instant::now();
                }
            },
            Some(ip) = found.recv() => {
                let address = canonical(SocketAddr::new(ip, target.port));
                match dial.policy.and_then(|policy| lock(&expansion).refusal(policy, address)) {
                    Some(refusal) => race.refusal = Some(refusal),
                    None => race.add(address),
                }
            }
            looked_up = &mut lookup, if is_open => {
                if let Err(unknown) = looked_up {
                    return Err(match (lock(&expansion).refusal, &unknown) {
                        (Some(refusal), Unknown::NoSuchName | Unknown::NoAddress) => refusal.of(target),
                        _ => unanswered(&host, &unknown),
                    });
                }
                race.close();
            }
            () = sleep_until(next), if is_waiting => race.start(target),
        }
        if !race.is_open && found.is_empty() && !race.is_waiting() && race.running.is_empty() {
            return Err(race.outcome(target));
        }
    }
}

fn unanswered(host: &str, why: &Unknown) -> Failure {
    Failure::new(why.code(), format_args!("the name {host} {why}"))
}

/// The name that is being looked up. The search list may have made it of the name that was asked for.
#[derive(Default)]
struct Expansion<'a> {
    policy: Option<Policy<'a>>,
    /// Why a name was left out, if one was.
    refusal: Option<Refusal>,
}

impl<'a> Expansion<'a> {
    /// Goes on to `name`. False if its rules refuse it, so that it is left out.
    fn switch_to(&mut self, asked: &'a Policy<'a>, name: &str) -> bool {
        match asked.of_expanded(name) {
            Ok(policy) => self.policy = Some(policy),
            Err(refusal) => {
                self.refusal = Some(refusal);
                return false;
            }
        }
        true
    }

    fn refusal(&self, asked: &Policy<'_>, address: SocketAddr) -> Option<Refusal> {
        let refusal = asked.refusal(address)?;
        self.policy.as_ref().map_or(Some(refusal), |policy| policy.refusal(address))
    }
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection that is being tried.
struct Attempt<'a> {
    address: SocketAddr,
    since: Instant,
    connecting: Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send + 'a>>,
    /// Its descriptor. `None` for the attempt that has the one with which every connection is counted anyway.
    counted: Option<Counted<'a>>,
}

/// Addresses that wait, and those that are being tried.
struct Race<'a> {
    dial: &'a Dial<'a>,
    six: VecDeque<SocketAddr>,
    four: VecDeque<SocketAddr>,
    /// The oldest first.
    running: Vec<Attempt<'a>>,
    /// How many addresses have been added.
    added: usize,
    /// Whether more addresses may come.
    is_open: bool,
    /// Why an address was refused, if one was.
    refusal: Option<Refusal>,
    /// When the next attempt may start.
    next: Instant,
    /// Whether an IPv6 address is tried next, if there is one.
    six_is_next: bool,
    /// The failure that says most so far.
    failure: Option<Failure>,
}

impl<'a> Race<'a> {
    fn new(dial: &'a Dial<'a>) -> Self {
        Self {
            dial,
            six: VecDeque::new(),
            four: VecDeque::new(),
            running: Vec::new(),
            added: 0,
            is_open: true,
            refusal: None,
            next: Instant::now(),
            six_is_next: true,
            failure: None,
        }
    }

    fn add(&mut self, address: SocketAddr) {
        if self.added == MOST_ADDRESSES {
            return;
        }
        self.added += 1;
        match address {
            SocketAddr::V6(_) => {
                self.six.push_back(address);
                // The wait for an IPv6 address is over.
                if self.running.is_empty() {
                    self.next = Instant::now();
                }
            }
            SocketAddr::V4(_) => {
                self.four.push_back(address);
                if self.added == 1 && self.is_open {
                    self.next = Instant::now() + RESOLUTION_DELAY;
                }
            }
        }
    }

    /// The look-up is over. Addresses that it has already told may still come.
    fn close(&mut self) {
        self.is_open = false;
        if self.running.is_empty() {
            self.next = Instant::now();
        }
    }

    fn is_waiting(&self) -> bool {
        !self.six.is_empty() || !self.four.is_empty()
    }

    /// Tries the next address if there is room for it. If there is none, it replaces the oldest attempt, as soon as that has
    /// had its share of the time.
    fn start(&mut self, target: &Target) {
        // A share such that `MOST_ADDRESSES` addresses, `AT_ONCE` at a time, have one each within the limit.
        let share = self.dial.limit * AT_ONCE as u32 / (MOST_ADDRESSES + AT_ONCE) as u32;
        let counted = if self.running.is_empty() {
            None
        } else if let Some(counted) = (self.running.len() < AT_ONCE).then(|| self.dial.spare.one()).flatten() {
            Some(counted)
        } else if self.running[0].since.elapsed() >= share {
            self.note(timed_out(target));
            self.running.remove(0).counted
        } else {
            self.next = self.running[0].since + share;
            return;
        };
        let (first, second) = match self.six_is_next {
            true => (&mut self.six, &mut self.four),
            false => (&mut self.four, &mut self.six),
        };
        let Some(address) = first.pop_front().or_else(|| second.pop_front()) else { return };
        self.six_is_next = address.is_ipv4();
        let connecting = Box::pin(attempt(address, self.dial.client, self.dial.tcp));
        self.running.push(Attempt { address, since: Instant::now(), connecting, counted });
        self.next = Instant::now() + HEAD_START;
    }

    /// Completes with the first attempt that is over. It never completes if there is none.
    async fn first_done(&mut self) -> (SocketAddr, io::Result<TcpStream>) {
        let (attempt, done) = take_first_of(&mut self.running, |attempt| attempt.connecting.as_mut()).await;
        (attempt.address, done)
    }

    fn note(&mut self, failure: Failure) {
        if self.failure.as_ref().is_none_or(|other| specificity(failure.code) > specificity(other.code)) {
            self.failure = Some(failure);
        }
    }

    fn outcome(self, target: &Target) -> Failure {
        let refused = self.refusal.map(|refusal| refusal.of(target));
        let none = || Failure::new(FailureCode::NameNotFound, format_args!("no address for the name {}", target.host));
        self.failure.or(refused).unwrap_or_else(none)
    }
}

/// How much a failure says about the destination. An answer from it says more than silence, and silence says more than that
/// this node has no route to one of its addresses.
fn specificity(code: FailureCode) -> u8 {
    match code {
        FailureCode::Refused => 5,
        FailureCode::Overloaded => 4,
        FailureCode::HostUnreachable => 3,
        FailureCode::TimedOut => 2,
        FailureCode::NetworkUnreachable => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
