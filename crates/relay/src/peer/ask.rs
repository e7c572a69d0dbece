//! Asks a node what it knows of its legs.

use std::time::{Duration, Instant};

use ekiden_relay_proto::leg::{FrameKind, Header, encode_ask};
use ekiden_relay_proto::{Failure, FailureCode};
use ekiden_transport::frames::read_told;
use ekiden_transport::{Connection, Resting};
use tokio::time::timeout;

use super::dial::{dial_limits, dial_peer, first_window};
use super::{broken, lost, no_dial_permit};
use crate::config::{Config, Peer};
use crate::pool::DialPermit;
use crate::shared::Node;

/// How long an answer may take, and before that the place to ask for it.
const LIMIT: Duration = Duration::from_secs(5);

/// Asks the peer of this name, and tells it the nodes to which this one wants paths. How long the answer takes is the leg's round trip.
pub async fn ask(node: &Node, name: &str, wanted: &[String]) -> Result<Vec<u8>, Failure> {
    let (told, took) = question(node, name, &encode_ask(wanted), true).await?;
    node.overlay.answered(name, took);
    Ok(told)
}

/// Asks the peer of this name what it has of streams of which it is the exit. One that is asked too much of them answers late, and its leg is
/// well all the same.
pub async fn ask_receipts(node: &Node, name: &str, asked: &[u8]) -> Result<Vec<u8>, Failure> {
    Ok(question(node, name, &Header::frame(FrameKind::Receipts, asked), false).await?.0)
}

/// Says `frame` to a peer, on a connection that goes back to the pool, and returns the answer and how long that took. Without one in
/// time the leg has failed, if it is `due`.
async fn question(node: &Node, name: &str, frame: &[u8], due: bool) -> Result<(Vec<u8>, Duration), Failure> {
    let config = node.config();
    let Some(peer) = config.peers.get(name) else {
        return Err(Failure::new(FailureCode::UnknownNode, format_args!("there is no node '{name}'")));
    };
    // This node's own queue says nothing of the other.
    let Ok(place) = timeout(LIMIT, node.pool.get(name, peer)).await else {
        return Err(no_dial_permit(&config.name, name));
    };
    let asked = timeout(LIMIT, async {
        let connection = connection(node, &config, (name, peer), place).await;
        let connection = connection.inspect_err(|failure| node.leg_failed(name, failure))?;
        let begun = Instant::now();
        let told = async {
            connection.send_all(frame).await?;
            read_told(&connection, |about| node.builds.learn(name, &about)).await
        };
        // A connection that has rested may have died, and the node may be well.
        let told = told.await.map_err(|error| broken(node, name, &error))?;
        node.pool.put(name, peer, connection);
        Ok((told, begun.elapsed()))
    });
    asked.await.unwrap_or_else(|_| {
        if due {
            node.pool.forget(name);
            node.overlay.leg_failed(name);
        }
        Err(Failure::new(FailureCode::NodeUnreachable, format_args!("node {name} does not answer a question")))
    })
}

/// A connection of the pool, or a new one.
async fn connection(
    node: &Node,
    config: &Config,
    (name, peer): (&str, &Peer),
    place: Result<Resting, Option<DialPermit>>,
) -> Result<Connection, Failure> {
    match place {
        Ok(warm) => warm.wake().map_err(|error| lost(name, &error)),
        Err(permit) => {
            let segments = node.pool.segments(name);
            let (limits, window) = (dial_limits(config), first_window(node, config));
            let dialled = dial_peer(config, &node.names, &node.spare, &segments, (name, peer), limits, window).await;
            let (connection, auth) = dialled?;
            if let Some(permit) = permit {
                permit.connected();
            }
            connection.send_all(&auth).await.map_err(|error| lost(name, &error))?;
            Ok(connection)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    use ekiden_keys::Identity;
    use ekiden_relay_proto::leg::{Acceptor, SharedSecret};
    use ekiden_transport::frames::read_frame;
    use tokio::net::TcpListener;

    use super::*;

    async fn listener() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").await.unwrap()
    }

    /// Accepts a node, which proves its key, and answers none of its questions.
    async fn mute(nodes: &TcpListener) -> Connection {
        let node = Connection::from(nodes.accept().await.unwrap().0);
        let mut acceptor = Acceptor::new(SharedSecret([0xaa; 32]), [7; 32]);
        let hello = read_frame(&node).await.unwrap().1;
        node.send_all(&acceptor.hello(&hello).unwrap()).await.unwrap();
        acceptor.authenticate(&read_frame(&node).await.unwrap().1).unwrap();
        node
    }

    #[tokio::test]
    async fn a_late_answer_about_streams_fails_no_leg_and_one_about_legs_does() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("key"), "a".repeat(64)).unwrap();
        std::fs::set_permissions(file("key"), PermissionsExt::from_mode(0o600)).unwrap();
        let own = Identity::generate(&file("own.pem")).unwrap().fingerprint();
        std::fs::write(file("members"), format!("[node.near]\naddress = \"127.0.0.1:1\"\nfingerprint = \"{own}\"\n"))
            .unwrap();
        let (late, deaf) = (listener().await, listener().await);
        let mut text = "name = \"near\"\nkey_file = \"own.pem\"\n[overlay]\nmembers_file = \"members\"\n".to_owned();
        for (name, nodes) in [("late", &late), ("deaf", &deaf)] {
            let address = nodes.local_addr().unwrap();
            writeln!(text, "[peer.{name}]\naddress = \"{address}\"\nplain_key_file = \"key\"").unwrap();
        }
        let config = Config::parse(&text, &file("node.toml")).unwrap_or_else(|error| panic!("{error}"));
        let node = Node::new(Arc::new(config)).unwrap();
        node.overlay.configure(&node.config());
        let questions = async { tokio::join!(ask_receipts(&node, "late", b"{}"), ask(&node, "deaf", &[])) };
        let (told, _late, _deaf) = tokio::join!(questions, mute(&late), mute(&deaf));
        assert!([told.0, told.1].into_iter().all(|told| told.unwrap_err().text.contains("does not answer")));
        assert_eq!(["late", "deaf"].map(|name| node.overlay.has_failed(name)), [false, true]);
    }
}
