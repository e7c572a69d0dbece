//! The path to another host, as far as a few connections show it.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ekiden_net::lookup;
use ekiden_net::tcp_info::tcp_info;
use ekiden_tcp_info::TcpInfo;
use ekiden_units::{AddressError, BitRate, Bytes, HostPort, HostText, Time};

use crate::{Aim, Finding, Remedy, Verdict};

/// Connections that are made, one after the other.
const TRIES: usize = 5;
/// How long each may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest window without scaling, in bytes.
const UNSCALED: Bytes = Bytes(65_535);
/// TCP over Ethernet: 1500 bytes less the headers of IPv6 and TCP, with timestamps.
const USUAL_MSS: u32 = 1428;

/// Why a path cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// It is no host with a port.
    #[error(transparent)]
    Form(#[from] AddressError),
    /// The name has no address.
    #[error("{to}: the name cannot be resolved: {source}")]
    Unknown {
        /// What was asked for.
        to: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// None of its addresses answers.
    #[error("{address}: cannot be reached: {source}{}", hint(source))]
    Unreachable {
        /// The last one tried.
        address: String,
        /// What the kernel said.
        source: io::Error,
    },
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::ConnectionRefused => "; is something listening there?",
        io::ErrorKind::TimedOut => "; does a packet filter between here and there drop it, or is the host down?",
        _ => "",
    }
}

/// Looks at the path to `to`, a `host:port` where something listens, and returns the least round-trip time too. Nothing is sent
/// but a few empty connections.
///
/// # Errors
/// If it cannot be reached.
pub fn path(to: &str, rate: BitRate) -> Result<(Vec<Finding>, Time), PathError> {
    let unknown = |source: io::Error| PathError::Unknown { to: to.into(), source };
    let place: HostPort = to.parse()?;
    let addresses = lookup::addresses(&place).map_err(unknown)?;
    // An interface as it was written: an address has its number alone.
    let shown = |address: SocketAddr| match place.host {
        HostText::Zoned(..) => place.to_string(),
        HostText::Ip(_) | HostText::Name(_) => address.to_string(),
    };
    let mut last = unknown(io::ErrorKind::NotFound.into());
    for address in addresses {
        match (0..TRIES).map(|_| connect(address)).collect::<io::Result<Vec<TcpInfo>>>() {
            Ok(seen) => return Ok(judge(&shown(address), &seen, rate)),
            Err(source) => last = PathError::Unreachable { address: shown(address), source },
        }
    }
    Err(last)
}

fn connect(address: SocketAddr) -> io::Result<TcpInfo> {
    tcp_info(&TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?)
}

fn judge(address: &str, seen: &[TcpInfo], rate: BitRate) -> (Vec<Finding>, Time) {
    let rtts = seen.iter().map(|info| Time(u64::from(info.rtt_us) * 1000));
    let least = rtts.clone().min().unwrap_or_default();
    let most = rtts.max().unwrap_or_default();
    let subject = |what: &str| format!("{what} to {address}");
    let mut findings = vec![Finding::new(
        subject("round trip"),
        format!("{:.1} to {:.1} ms in {} connections", least.as_ms(), most.as_ms(), seen.len()),
        Verdict::Good,
    )];
    let repeated = seen.iter().filter(|info| info.retransmits > 0).count();
    if repeated > 0 {
        let verdict = Verdict::Note("packets are lost, or the other host refuses bursts".into());
        findings.push(Finding::new(subject("SYNs"), format!("{repeated} of {} were repeated", seen.len()), verdict));
    }
    let Some(info) = seen.first() else { return (findings, least) };
    let aim = Aim { rate, rtt: least };
    let unscaled = aim.carried_with(UNSCALED);
    let advice = "set it at the other host, or find what on the path strips it from SYNs";
    for (name, is_on, what) in [
        ("window scaling", info.options.window_scaling, format!("a connection carries at most {unscaled} (RFC 7323)")),
        ("SACK", info.options.sack, "of several lost packets one is repaired per round trip (RFC 2018)".into()),
        ("timestamps", info.options.timestamps, "round-trip times are measured less often (RFC 7323)".into()),
    ] {
        let verdict = match is_on {
            true => Verdict::Good,
            false => Verdict::Costs { what, remedy: Remedy::Advice(advice) },
        };
        findings.push(Finding::new(subject(name), if is_on { "agreed" } else { "not agreed" }, verdict));
    }
    let small = match info.mss_bytes < USUAL_MSS {
        true => Verdict::Note("smaller segments mean more of them, and slower growth of the window".into()),
        false => Verdict::Good,
    };
    // No full segment was sent: a path may drop it.
    let found =
        format!("{} bytes of payload agreed on; the kernel assumes an MTU of {}", info.mss_bytes, info.path_mtu_bytes);
    findings.push(Finding::new(subject("segments"), found, small));
    (findings, least)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use ekiden_tcp_info::Options;

    use super::*;

    const ALL: Options = Options { timestamps: true, sack: true, window_scaling: true };

    fn costly(info: TcpInfo) -> Vec<String> {
        let (findings, rtt) = judge("192.0.2.1:7000", &[info], BitRate(1_000_000_000));
        assert_eq!(rtt, Time::ms(200));
        findings.iter().filter(|finding| finding.costs()).map(|finding| finding.subject.clone()).collect()
    }

    #[test]
    fn what_was_not_agreed_on_is_found() {
        let good = TcpInfo { rtt_us: 200_000, mss_bytes: 1448, options: ALL, ..TcpInfo::default() };
        assert_eq!(costly(good), [] as [&str; 0]);
        let bad = TcpInfo { options: Options { sack: false, window_scaling: false, ..ALL }, ..good };
        assert_eq!(costly(bad), ["window scaling to 192.0.2.1:7000", "SACK to 192.0.2.1:7000"]);
    }

    #[test]
    fn a_listener_on_this_host_is_near_and_agrees() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (findings, rtt) = path(&listener.local_addr().unwrap().to_string(), BitRate(1_000_000_000)).unwrap();
        assert!(rtt < Time::secs(1));
        assert!(findings.len() >= 5 && findings[0].subject.starts_with("round trip to 127.0.0.1:"), "{findings:?}");
    }

    #[test]
    fn what_cannot_be_reached_is_said_in_a_line() {
        for (to, part) in [
            ("127.0.0.1:1", "127.0.0.1:1: cannot be reached: "),
            ("[fe80::1%lo]:1", "[fe80::1%lo]:1: cannot be reached: "),
            ("127.0.0.1", "'127.0.0.1' needs a port from 1 to 65535"),
            // Longer than a label may be, so nobody is asked.
            (
                "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx:80",
                "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx:80: the name cannot be resolved: ",
            ),
        ] {
            let error = path(to, BitRate(1)).unwrap_err().to_string();
            assert!(error.contains(part) && error.lines().count() == 1, "{error}");
        }
    }
}
