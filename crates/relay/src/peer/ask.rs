//! Asks a node what it knows of its legs.

use std::time::{Duration, Instant};

use ekiden_relay_proto::leg::encode_ask;
use ekiden_relay_proto::{Failure, FailureCode};
use ekiden_transport::frames::read_told;
use tokio::time::timeout;

use super::{dial_peer, lost, no_dial_permit};
use crate::shared::Node;

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(5);

/// Asks the peer of this name, and tells it the nodes to which this one wants paths, on a connection that goes back to the pool. How long the answer takes is the leg's round trip.
pub async fn ask(node: &Node, name: &str, wanted: &[String]) -> Result<Vec<u8>, Failure> {
    let config = node.config();
    let Some(peer) = config.peers.get(name) else {
        return Err(Failure::new(FailureCode::UnknownNode, format_args!("there is no node '{name}'")));
    };
    let warm = match timeout(config.limits.connect, node.pool.get(name, peer)).await {
        Ok(warm) => warm,
        Err(_) => return Err(no_dial_permit(&config.name, name)),
    };
    let connection = match warm {
        Ok(warm) => warm.wake().map_err(|error| lost(name, &error)),
        Err(permit) => {
            let limit = config.limits.connect.min(LIMIT);
            match dial_peer(&config, &node.names, &node.spare, name, peer, limit).await {
                Ok((connection, auth)) => {
                    if let Some(permit) = permit {
                        permit.connected();
                    }
                    connection.send_all(&auth).await.map(|()| connection).map_err(|error| lost(name, &error))
                }
                Err(failure) => Err(failure),
            }
        }
    };
    let connection = connection.inspect_err(|_| node.overlay.leg_failed(name))?;
    let begun = Instant::now();
    let asked = timeout(LIMIT, async {
        connection.send_all(&encode_ask(wanted)).await?;
        read_told(&connection).await
    });
    match asked.await {
        Ok(Ok(told)) => {
            node.overlay.answered(name, begun.elapsed());
            node.pool.put(name, peer, connection);
            Ok(told)
        }
        Ok(Err(error)) => Err(lost(name, &error)),
        Err(_) => {
            node.overlay.leg_failed(name);
            node.pool.forget(name);
            Err(Failure::new(FailureCode::NodeUnreachable, format_args!("node {name} does not answer a question")))
        }
    }
}
