//! What a tunnel's configuration needs of this host, and the ways to its peers.

use std::path::Path;

use ekiden_doctor::{Remedy, Verdict};
use ekiden_net::privileges::{Capability, has};
use ekiden_tunnel::status::{PeerStatus, ask};
use ekiden_tunnel::{Config, Peer, StartError, check_device, probe};
use ekiden_units::{BitRate, Time};

use super::{Failed, Paths};

/// Looks at the device, and at the way to every peer that has an address.
pub fn look(paths: &mut Paths, file: &Path, rate: BitRate) -> anyhow::Result<()> {
    let config = Config::load(file)?;
    device(paths, &config);
    for (name, peer) in &config.peers {
        match &peer.address {
            Some((host, port)) => way(paths, &config, name, peer, &joined(host, *port), rate),
            None => {
                let note = "it connects to this node: run `ekiden doctor` there".into();
                paths.add(format!("way to {name}"), "not looked at", Verdict::Note(note));
            }
        }
    }
    Ok(())
}

fn device(paths: &mut Paths, config: &Config) {
    let subject = format!("device {}", config.device.name);
    match check_device(config) {
        Ok(()) => paths.add(subject, "can be made", Verdict::Good),
        Err(error) => match (&error, ask(&config.device.name)) {
            (StartError::DeviceInUse(_), Ok(status)) => {
                paths.add(subject, "there; a tunnel runs with it", Verdict::Good);
                status.peers.iter().for_each(|peer| foreign(paths, peer));
            }
            _ => paths.failed.push(Failed { subject, reason: error.to_string(), is_of_host: true }),
        },
    }
    if !has(Capability::CAP_NET_ADMIN) {
        let note = "`ekiden tunnel` needs it to make its device".into();
        paths.add("CAP_NET_ADMIN for the tunnel".into(), "not held by this process", Verdict::Note(note));
    }
}

/// What the tunnel that runs has dropped for its source address.
fn foreign(paths: &mut Paths, peer: &PeerStatus) {
    let Some(last) = &peer.foreign_last else { return };
    let (name, count) = (&peer.name, peer.foreign);
    let what =
        format!("{name} sends from addresses that are not in `allowed` of [peer.{name}] here, {last} was the last");
    let remedy = Remedy::Advice("add their network there and restart the tunnel, if these hosts are to be reached");
    paths.add(format!("packets of {name}"), format!("{count} dropped"), Verdict::Costs { what, remedy });
}

/// The path that the outer connection takes, and what the peer at its end says.
fn way(paths: &mut Paths, config: &Config, name: &str, peer: &Peer, address: &str, rate: BitRate) {
    // An HTTP proxy is where this host's connection ends.
    let first = peer.http_proxy.as_ref().map(|proxy| joined(&proxy.address.0, proxy.address.1));
    if !paths.look(first.as_deref().unwrap_or(address), rate) {
        return;
    }
    let subject = format!("handshake with {name}");
    let probed = match probe(config, name, peer) {
        Ok(probed) => probed,
        Err(error) => {
            return paths.failed.push(Failed { subject, reason: format!("{name}: {error}"), is_of_host: false });
        }
    };
    let through = first.map_or(String::new(), |proxy| format!(", through the HTTP proxy {proxy}"));
    let build = if probed.build.is_empty() { String::new() } else { format!("; it is ekiden {}", probed.build) };
    paths.add(subject, format!("each end takes the other's key{through}{build}"), Verdict::Good);
    paths.segments(name, peer.segments.limit());
    let round_trip = Time::from(probed.round_trip);
    paths.rtt = paths.rtt.max(Some(round_trip));
    paths.add(format!("round trip to {name}"), format!("{:.1} ms", round_trip.as_ms()), Verdict::Good);
    if probed.has_dropped {
        let what = format!("{name} has dropped packets of this end: their source addresses are not in `allowed` there");
        let remedy = Remedy::Advice(
            "`ekiden tunnel status` there names the last one; add its network to this node's table in its file, and restart its tunnel",
        );
        paths.add(format!("packets to {name}"), "some dropped there", Verdict::Costs { what, remedy });
    }
    let (subject, theirs, ours) = (format!("MTU of the tunnel to {name}"), probed.mtu, config.device.mtu);
    if theirs == ours {
        return paths.add(subject, format!("{ours} at both ends"), Verdict::Good);
    }
    let reason =
        format!("{name}: its device has an MTU of {theirs}, and this node's {ours}: set the same `mtu` in [device]");
    paths.failed.push(Failed { subject, reason, is_of_host: false });
}

/// A host and a port as they are written; an IPv6 address in brackets.
fn joined(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
