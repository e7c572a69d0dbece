//! What the log says of streams that failed or broke: whose they were and where they were to go, unless the configuration leaves
//! that out.

use std::borrow::Cow;
use std::net::SocketAddr;

use ekiden_relay_proto::{Failure, Target};

use super::departure::has_left;
use crate::access::quota::ClientKey;
use crate::config::Peer;
use crate::shared::{Node, word};
use crate::stream::{Broken, PumpError};

/// Whose stream it is.
#[derive(Debug)]
pub struct Asked {
    /// The client, or the node that asks for it.
    pub from: SocketAddr,
    /// How it was asked for, or by which node.
    pub by: Cow<'static, str>,
    /// Where it goes.
    pub target: Target,
}

impl Asked {
    /// A stream to `target`.
    pub fn new(from: SocketAddr, by: impl Into<Cow<'static, str>>, target: &Target) -> Self {
        Self { from, by: by.into(), target: target.clone() }
    }

    /// Logs why the destination was not reached.
    pub fn log_failure(&self, node: &Node, failure: &Failure) {
        let Self { from, by, target } = self;
        // A client that has left knows.
        if has_left(failure) {
            tracing::debug!("{from} by {by} to {target}: {failure}");
            return;
        }
        let kind = word(failure.code);
        match node.config().log_addresses {
            true => {
                node.lines.info(
                    kind,
                    ClientKey::from(from.ip()),
                    format_args!("{from} by {by} to {target}: {failure}"),
                );
            }
            // The failure's text names the destination.
            false => node.lines.info(kind, "all", format_args!("a stream by {by} failed: {kind}")),
        }
    }

    /// Logs what is wrong with the destination's answer.
    pub fn log_answer(&self, node: &Node, wrong: &str) {
        let Self { from, by, target } = self;
        let key = ClientKey::from(from.ip());
        match node.config().log_addresses {
            true => node.lines.info("answer", key, format_args!("{from} by {by} to {target}: {wrong}")),
            false => node.lines.info("answer", "all", format_args!("a stream by {by} failed: {wrong}")),
        }
    }

    /// Logs why the stream broke; `peer` is the node that it went to. Hosts reset connections every day; a node's connection that
    /// breaks is worth a line. It does not show who broke it: a node whose host resets while a frame is under way can only reset, too.
    pub fn log_broken(&self, node: &Node, peer: Option<&(String, Peer)>, broken: &Broken) {
        let Self { from, by, target } = self;
        match peer {
            Some((name, _)) if broken.is_beyond && !matches!(broken.error, PumpError::Reset(_)) => {
                let place = format_args!("a stream broke off at node {name}, before it or behind it");
                match node.config().log_addresses {
                    true => {
                        let line = format_args!("{place}: {from} by {by} to {target}: {broken}");
                        node.lines.info("broke", name, line);
                    }
                    false => node.lines.info("broke", name, format_args!("{place}: {broken}")),
                }
            }
            _ => tracing::debug!("{from} by {by} to {target}: the stream was reset: {broken}"),
        }
    }
}
