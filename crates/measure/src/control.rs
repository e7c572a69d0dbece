//! The control connection: whole messages, each within a time and a length.

use std::io;
use std::time::Duration;

use ekiden_transport::Connection;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use ekiden_measure_proto::message::{decode, encode};

/// Sends a message.
///
/// # Errors
/// The connection's, or [`io::ErrorKind::TimedOut`] if the other end takes nothing.
pub async fn send(connection: &Connection, message: &impl Serialize, within: Duration) -> io::Result<()> {
    let bytes = encode(message)?;
    match timeout(within, connection.send_all(&bytes)).await {
        Ok(sent) => sent,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "it takes no message")),
    }
}

/// How many messages that it does not know an end skips one after another.
const SKIPPED_MOST: usize = 16;

/// Receives a message of at most `most` bytes.
///
/// # Errors
/// The connection's; [`io::ErrorKind::InvalidData`] if it is too long or nothing that is known here; [`io::ErrorKind::TimedOut`].
pub async fn receive<T: DeserializeOwned>(connection: &Connection, most: usize, within: Duration) -> io::Result<T> {
    let known = async {
        for _ in 0..=SKIPPED_MOST {
            let bytes = whole(connection, most).await?;
            if let Some(message) = decode(&bytes).map_err(|error| invalid(error.to_string()))? {
                return Ok(message);
            }
        }
        Err(invalid("messages that this end does not know, again and again".into()))
    };
    match timeout(within, known).await {
        Ok(received) => received,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "it says nothing")),
    }
}

/// A message as it is.
async fn whole(connection: &Connection, most: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    connection.receive_exact(&mut length).await?;
    if let Some(other) = other_protocol(length) {
        return Err(invalid(format!("it speaks {other}")));
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > most {
        return Err(invalid(format!(
            "a message of {length} bytes, where {most} are the most (does a node or a tunnel connect here?)"
        )));
    }
    // Memory follows what has come, not what was announced.
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let from = bytes.len();
        bytes.resize(length.min(from + (64 << 10)), 0);
        connection.receive_exact(&mut bytes[from..]).await?;
    }
    Ok(bytes)
}

/// The other protocol that begins with these bytes. Read as a length they exceed that of every message of this protocol.
fn other_protocol(bytes: [u8; 4]) -> Option<&'static str> {
    match &bytes {
        [20..=23, 3, ..] => Some("TLS: it wants a key, which --config or --key names"),
        b"SSH-" => Some("SSH"),
        b"HTTP" => Some("HTTP"),
        _ => None,
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_measure_proto::message::Reply;

    #[test]
    fn another_protocol_is_named_and_no_message_of_this_one_is_taken_for_it() {
        assert_eq!(other_protocol(*b"SSH-"), Some("SSH"));
        assert_eq!(other_protocol(*b"HTTP"), Some("HTTP"));
        assert!(other_protocol([21, 3, 3, 0]).is_some_and(|name| name.starts_with("TLS")));
        let length = encode(&Reply::Started).unwrap();
        assert_eq!(other_protocol(length[..4].try_into().unwrap()), None);
    }
}
