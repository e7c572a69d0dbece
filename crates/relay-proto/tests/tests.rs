//! The tests of the crate from outside, in one program: it is linked once.

mod ftp;
mod golden;
mod http;
mod leg;
mod proxy_protocol;
mod socks4;
mod socks5;
