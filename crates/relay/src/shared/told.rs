//! What the log says of failures.

use std::borrow::Cow;

use ekiden_relay_proto::{Failure, FailureCode};

use super::Node;

impl Node {
    /// The log's text for a failure. The failure's own text may name the destination, which the configuration may leave out.
    pub fn told<'a>(&self, failure: &'a Failure) -> Cow<'a, str> {
        if self.config().log_addresses { (&failure.text).into() } else { word(failure.code).into() }
    }
}

/// The failure in a word or two, which is also the kind of its line.
pub fn word(code: FailureCode) -> &'static str {
    use FailureCode as C;
    match code {
        C::Refused => "connection refused",
        C::NetworkUnreachable => "network unreachable",
        C::HostUnreachable => "host unreachable",
        C::TimedOut => "no answer in time",
        C::NameNotFound => "unknown name",
        C::Forbidden => "forbidden",
        C::UnknownNode => "unknown node",
        C::Authentication => "unknown key",
        C::NodeUnreachable => "node unreachable",
        C::Overloaded => "overloaded",
        C::Protocol => "protocol broken",
        C::Other => "another reason",
        C::Unsupported => "older build",
    }
}
