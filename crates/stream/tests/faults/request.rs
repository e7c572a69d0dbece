//! How a stream is opened over legs: OPEN and OPENED, on a leg at rest or on a new one, as `peer.rs` of `relay` dials and `serve/leg.rs`
//! accepts.

use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;

use ekiden_relay_proto::leg::{FrameKind, HEADER_BYTES, Open, Opened};
use ekiden_relay_proto::target::{Host, Target};
use ekiden_stream::between_streams::BetweenStreams;
use ekiden_stream::duplex::Side;
use ekiden_transport::frames::read_frame;
use ekiden_transport::wire::{Wire, send_all};

use super::nodes::{At, BEGUN, Begun, DONE};
use super::tcp::world;
use super::wire::End;

/// The OPEN frame of all streams.
fn open() -> Vec<u8> {
    let target = Target { host: Host::Ip(Ipv4Addr::LOCALHOST.into()), port: 7 };
    Open { chain: Vec::new(), class: String::new(), target, client: None, id: None, passed: Vec::new() }.encode()
}

/// The answer to it.
fn opened() -> Vec<u8> {
    Opened::at(None).encode()
}

/// Notes what no correct node sees.
fn is_wrong(what: impl FnOnce() -> String) {
    DONE.with_borrow_mut(|done| {
        done.wrong.get_or_insert_with(what);
    });
}

/// Whether the frame `due` has come on `leg`, and not the end of the connection.
fn has_come(due: &[u8], got: io::Result<(FrameKind, Vec<u8>)>, leg: &End) -> bool {
    match got {
        Ok((kind, body)) if kind as u8 == due[0] && body == due[HEADER_BYTES..] => return true,
        // A refusal may cross DELIVERED.
        Ok((FrameKind::Reset, _)) if due[0] == FrameKind::Open as u8 => {
            DONE.with_borrow_mut(|done| done.refused.push(leg.0 / 2));
        }
        Err(error) if error.kind() != ErrorKind::InvalidData => {}
        wrong => is_wrong(|| format!("{leg:?}: {wrong:?} where frame {} was due", due[0])),
    }
    false
}

impl At {
    /// The node of the client, which asks for the second stream.
    pub async fn opens(self, client: Side<End>, first: Vec<u8>) {
        // The client is reset where the destination cannot be reached.
        if let Some(upstream) = self.reach().await {
            self.entry(client, upstream, first).await;
        }
    }

    /// The next stream over a leg at rest. Returns the leg, if it may carry another one.
    pub async fn serves_next(&mut self, stream: BetweenStreams<End>) -> Option<BetweenStreams<End>> {
        let leg = stream.0 / 2;
        DONE.with_borrow_mut(|done| done.rests.push(leg));
        let got = read_frame(&*stream).await;
        DONE.with_borrow_mut(|done| done.rests.retain(|rests| *rests != leg));
        if !has_come(&open(), got, &stream) {
            return None;
        }
        self.stream = 1;
        let dialler = stream.into_inner();
        let upstream = self.reach().await?;
        send_all(&dialler, &opened()).await.ok()?;
        self.serves(dialler, upstream).await
    }

    /// The connection beyond: to the host, or to the next node, over a leg at rest if there is one.
    async fn reach(&self) -> Option<Side<End>> {
        if self.is_exit {
            return Some(Side::host(on_path(self.dial())));
        }
        let leg = on_path(self.take().unwrap_or_else(|| self.dial()));
        send_all(&leg, &open()).await.ok()?;
        let got = read_frame(&leg).await;
        has_come(&opened(), got, &leg).then(|| Side::node(leg))
    }

    fn dial(&self) -> End {
        let next = (!self.is_exit).then_some(self.node + 1);
        let [near, far] = world(|world| world.connect([Some(self.node), next], self.beyond)).map(End);
        BEGUN.with_borrow_mut(|begun| begun.push(Begun::Dialled(self.node + 1, far)));
        near
    }

    /// A leg of this node at rest, on which nothing has come.
    fn take(&self) -> Option<End> {
        loop {
            let leg = DONE.with_borrow_mut(|done| {
                let place =
                    done.diallers.iter().position(|leg| world(|world| world.ends[leg.0].node) == Some(self.node));
                place.map(|place| done.diallers.remove(place))
            })?;
            if leg.has_unread() {
                is_wrong(|| format!("bytes have come on leg {leg:?} at rest"));
            }
            if world(|world| world.ends[leg.0].is_quiet()) {
                return Some(leg);
            }
            leg.end_cleanly();
        }
    }
}

/// Notes that the second stream goes over it.
fn on_path(end: End) -> End {
    DONE.with_borrow_mut(|done| done.path.push(end.0 / 2));
    end
}
