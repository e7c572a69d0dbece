//! The tests of the crate from outside, in one program: it is linked once.

mod options;
mod packets;
mod pcap;
mod support;
