//! The protocols of the relay without I/O: bytes in, decisions and bytes out.
//!
//! - [`socks5`]: the server side of SOCKS5 (RFC 1928, RFC 1929);
//! - [`socks4`]: the server side of SOCKS4 and 4a;
//! - [`http`]: an HTTP/1.1 forward proxy (RFC 9110, RFC 9112);
//! - [`ftp`]: the client side of FTP (RFC 959), for `ftp` URLs that are asked for by HTTP;
//! - [`proxy_protocol`]: whose connection it is, told before its first byte (HAProxy's PROXY protocol);
//! - [`mixup`]: what a client speaks that takes a listener for another;
//! - [`names`]: what the system's files say of names (hosts(5), resolv.conf(5));
//! - [`leg`]: the protocol between two nodes (docs/design/protocol.md).
//!
//! Every parser takes arbitrary bytes, split anywhere, within limits it states, and never panics.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod failure;
pub mod ftp;
pub mod http;
pub mod leg;
pub mod mixup;
pub mod names;
pub mod proxy_protocol;
pub mod socks4;
pub mod socks5;
pub mod target;

pub use failure::{Failure, FailureCode};
pub use target::{Host, Target, TargetError};
