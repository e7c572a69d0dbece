//! How many routers are on the way to a server: a connection whose packets may pass so few does not come about (IP_TTL).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ekiden_record::Finding;
use socket2::{Domain, Protocol, Socket, Type};

/// The most that are looked for.
const MOST: u32 = 64;
/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Finds out by halving. Each step costs a round trip, or `PATIENCE` where routers do not say that a packet's time was over.
pub fn count(server: SocketAddr) -> Finding {
    let (mut too_few, mut enough) = (0, MOST);
    if let Err(error) = connect(server, enough) {
        return Finding::NotObservable { reason: format!("no connection with {MOST} hops: {error}") };
    }
    while enough - too_few > 1 {
        let middle = too_few + (enough - too_few) / 2;
        match connect(server, middle) {
            Ok(()) => enough = middle,
            Err(_) => too_few = middle,
        }
    }
    let value = f64::from(enough - 1);
    let evidence = format!("connections came about with a TTL of {enough} and not with less");
    Finding::Observed { value, low: value, high: value, evidence }
}

fn connect(server: SocketAddr, hops: u32) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, Some(Protocol::TCP))?;
    match server {
        SocketAddr::V4(_) => socket.set_ttl_v4(hops)?,
        SocketAddr::V6(_) => socket.set_unicast_hops_v6(hops)?,
    }
    socket.connect_timeout(&server.into(), PATIENCE)
}
