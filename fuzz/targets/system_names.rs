//! A hosts file and a resolv.conf that say anything.
#![no_main]

use ekiden_relay_proto::names::{Hosts, Odd, ResolvConf};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // A line that makes sense is taken, whatever is before and behind it.
    let (before, behind) = data.split_at(data.len() / 2);
    let hosts = [before, b"\n192.0.2.7 the-one\n", behind].concat();
    let (names, odd) = Hosts::parse(&hosts);
    assert!(names.addresses("THE-ONE.").any(|ip| ip.to_string() == "192.0.2.7"));
    told(&hosts, &odd);
    let conf = [before, b"\nnameserver 192.0.2.7\n", behind].concat();
    let (servers, odd) = ResolvConf::parse(&conf);
    assert!((1..=3).contains(&servers.servers.len()));
    assert!((1..=30).contains(&servers.timeout_s) && (1..=5).contains(&servers.attempts) && servers.ndots <= 15);
    told(&conf, &odd);
});

fn told(file: &[u8], odd: &[Odd]) {
    let lines = file.iter().filter(|&&byte| byte == b'\n').count() + 1;
    for Odd { line, reason } in odd {
        assert!((1..=lines).contains(line) && !reason.contains(char::is_control), "{line}: {reason:?}");
    }
}
