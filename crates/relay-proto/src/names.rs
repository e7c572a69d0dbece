//! What the system's files say of names: [`Hosts`] (hosts(5)) and [`ResolvConf`] (resolv.conf(5)).
//!
//! They are not ekiden's files, so they are read as glibc reads them: line by line, as bytes, and a line that makes no sense
//! costs that line alone. The lines that were left out are returned beside the result, so that they can be reported.

use std::fmt;

pub mod hosts;
pub mod resolv_conf;

pub use hosts::Hosts;
pub use resolv_conf::{NameServer, ResolvConf};

/// A line, or a part of it, that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Odd {
    /// The line in its file, counted from 1.
    pub line: usize,
    /// What is wrong with it, fit for a log line.
    pub reason: String,
}

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// The lines with their numbers, without line ends of any system and without a byte-order mark.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let lines = bytes.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    (1..).zip(lines)
}

/// The words of a line, between what isspace(3) calls white space.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'\x0b';
    line.split(is_space).filter(|word| !word.is_empty())
}

/// What a file has written, fit for a log line.
fn shown(word: &[u8]) -> String {
    crate::target::shown(&String::from_utf8_lossy(word))
}
