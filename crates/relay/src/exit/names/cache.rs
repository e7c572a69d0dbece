//! The answers of name servers, for as long as they allow. An entry has some hundred bytes, whatever was answered.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RecordType};
use moka::Expiry;
use moka::sync::Cache;

use super::{MOST_ADDRESSES, Unknown};

/// The most answers that are cached, positive and negative. Beyond it those that are seldom asked for are dropped.
const REMEMBERED: u64 = 1024;

/// The longest time for which an answer is cached, whatever its TTL. It is a day, and less for negative answers, for which RFC
/// 2308 §5 asks for a bound.
const LONGEST: Duration = Duration::from_secs(86_400);
const LONGEST_NEGATIVE: Duration = Duration::from_secs(600);

/// How long a failure is cached (RFC 9520 §3.2: 1 s to 5 min).
const FAILURE: Duration = Duration::from_secs(1);

/// The largest TTL. A larger one counts as 0 (RFC 2181 §8).
const TTL_MOST: u32 = i32::MAX as u32;

/// The addresses of a name in one family, at most [`MOST_ADDRESSES`], or why there is none.
pub(super) type Found = Result<Arc<[IpAddr]>, Unknown>;

/// What a server says of a name.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) found: Found,
    /// For how long it may be kept.
    ttl: Duration,
}

/// The answers that are kept.
pub(super) struct Answers(Cache<(Name, RecordType), Answer>);

impl Answers {
    pub(super) fn new() -> Self {
        Self(Cache::builder().max_capacity(REMEMBERED).expire_after(Ttl).build())
    }

    pub(super) fn get(&self, name: &Name, kind: RecordType) -> Option<Found> {
        self.0.get(&(name.clone(), kind)).map(|answer| answer.found)
    }

    pub(super) fn put(&self, name: &Name, kind: RecordType, answer: Answer) {
        if !answer.ttl.is_zero() {
            self.0.insert((name.clone(), kind), answer);
        }
    }
}

impl Answer {
    pub(super) fn of(said: Result<Lookup, NetError>) -> Self {
        let seconds = |ttl: u32| Duration::from_secs(if ttl > TTL_MOST { 0 } else { ttl.into() });
        match said {
            Ok(said) => {
                let ttls = said.answers().iter().map(|record| seconds(record.ttl));
                let ttl = ttls.fold(said.valid_until().saturating_duration_since(Instant::now()), Duration::min);
                let mut ips = said.answers().iter().filter_map(|record| record.data.ip_addr()).peekable();
                let found = match ips.peek() {
                    // Whatever addresses it gives with that.
                    _ if said.message().metadata.response_code == ResponseCode::NXDomain => Err(Unknown::NoSuchName),
                    None => Err(Unknown::NoAddress),
                    Some(_) => Ok(ips.take(MOST_ADDRESSES).collect()),
                };
                Self { ttl: ttl.min(if found.is_ok() { LONGEST } else { LONGEST_NEGATIVE }), found }
            }
            Err(error) => {
                let ttl = match &error {
                    NetError::Dns(DnsError::NoRecordsFound(none)) => none.negative_ttl.map(seconds),
                    _ => None,
                };
                let found = Err(Unknown::because(&error));
                let ttl = match found {
                    Err(Unknown::NoSuchName | Unknown::NoAddress) => ttl.unwrap_or_default().min(LONGEST_NEGATIVE),
                    Err(Unknown::NoDescriptor) => Duration::ZERO,
                    _ => FAILURE,
                };
                Self { found, ttl }
            }
        }
    }
}

impl From<Unknown> for Answer {
    fn from(unknown: Unknown) -> Self {
        Self { found: Err(unknown), ttl: Duration::ZERO }
    }
}

/// An answer goes when its time is over.
struct Ttl;

impl Expiry<(Name, RecordType), Answer> for Ttl {
    fn expire_after_create(&self, _: &(Name, RecordType), answer: &Answer, _: Instant) -> Option<Duration> {
        Some(answer.ttl)
    }

    fn expire_after_update(
        &self,
        _: &(Name, RecordType),
        answer: &Answer,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(answer.ttl)
    }
}
