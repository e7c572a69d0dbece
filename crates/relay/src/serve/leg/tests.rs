//! What becomes of a stream when the dialler leaves before the host has read all, and of the socket of one that is over.

use std::path::Path;
use std::time::Duration;

use ekiden_relay_proto::leg::Header;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::config::Config;
use crate::exit::dial::used;

/// More than a small receive buffer takes, and less than a node's socket does besides.
const BYTES: usize = 400_000;

/// Nothing here takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether the node goes on with the stream after the dialler has left, while as many as may be are delivered for nobody; and
/// what the host then reads.
async fn left_by_its_dialler(client: Option<SocketAddr>) -> (bool, io::Result<usize>) {
    let text = "[exit]\nallow = [\"127.0.0.1\"]\nclient_addresses = [\"192.0.2.0/24\"]\n";
    let node = Arc::new(Node::new(Arc::new(Config::parse(text, Path::new("node.toml")).unwrap())).unwrap());
    node.abandoned.forget_permits(usize::MAX);
    let small = TcpSocket::new_v4().unwrap();
    small.set_recv_buffer_size(8192).unwrap();
    small.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let hosts = small.listen(1).unwrap();
    let request = Open {
        chain: Vec::new(),
        class: String::new(),
        target: hosts.local_addr().unwrap().into(),
        client,
        id: None,
        passed: Vec::new(),
    };
    let (mut dialler, serving) = asked(node, request).await;
    let (mut host, _) = hosts.accept().await.unwrap();
    dialler.write_all(&Header::frame(FrameKind::Data, &vec![7; BYTES])).await.unwrap();
    dialler.write_all(&Header { kind: FrameKind::End, length: 0 }.encode()).await.unwrap();
    // The node has it all by then, and the host says its end.
    sleep(Duration::from_millis(300)).await;
    host.shutdown().await.unwrap();
    let mut opened = [0; HEADER_BYTES + 7];
    dialler.read_exact(&mut opened).await.unwrap();
    let mut end = [0; HEADER_BYTES];
    dialler.read_exact(&mut end).await.unwrap();
    assert_eq!(end, Header { kind: FrameKind::End, length: 0 }.encode());
    SockRef::from(&dialler).set_linger(Some(Duration::ZERO)).unwrap();
    drop(dialler);
    sleep(Duration::from_millis(500)).await;
    let goes_on = !serving.is_finished();
    let mut all = Vec::new();
    let read = timeout(PATIENCE, host.read_to_end(&mut all)).await.unwrap();
    (goes_on, read)
}

/// A node that another one asks for this stream: the other one's connection, and the task that serves it.
async fn asked(node: Arc<Node>, request: Open) -> (TcpStream, JoinHandle<io::Result<()>>) {
    let nodes = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dialler = TcpStream::connect(nodes.local_addr().unwrap()).await.unwrap();
    let (accepted, from) = nodes.accept().await.unwrap();
    let far = Dialler { address: from, name: "far".into(), remembered: "far".into(), owner: "far".into() };
    let serving = async move { serve_stream(&node, accepted.into(), &request, &far, &mut Vec::new()).await.map(drop) };
    (dialler, tokio::spawn(serving))
}

#[tokio::test]
async fn what_a_dialler_has_left_is_the_kernel_s_to_deliver() {
    let (goes_on, read) = left_by_its_dialler(None).await;
    assert_eq!((goes_on, read.unwrap()), (false, BYTES));
}

/// On loopback the connection has the node's own address, and is held to be the client's.
#[tokio::test]
async fn what_a_dialler_has_left_at_a_transparent_address_is_the_node_s_to_deliver() {
    let (goes_on, read) = left_by_its_dialler(Some(([192, 0, 2, 7], 40_000).into())).await;
    assert_eq!((goes_on, read.unwrap()), (true, BYTES));
}

#[tokio::test]
async fn the_socket_of_a_stream_that_is_over_connects_again() {
    let text = "[exit]\nallow = [\"127.0.0.1\"]\n";
    let node = Arc::new(Node::new(Arc::new(Config::parse(text, Path::new("node.toml")).unwrap())).unwrap());
    let tcp = node.config().tcp.clone();
    let hosts = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = hosts.local_addr().unwrap();
    let request = Open {
        chain: Vec::new(),
        class: String::new(),
        target: target.into(),
        client: None,
        id: None,
        passed: Vec::new(),
    };
    let (mut dialler, serving) = asked(node, request).await;
    let (mut host, _) = hosts.accept().await.unwrap();
    dialler.write_all(&Header { kind: FrameKind::End, length: 0 }.encode()).await.unwrap();
    assert_eq!(timeout(PATIENCE, host.read(&mut [0])).await.unwrap().unwrap(), 0);
    assert!(used::take(target, &tcp.options).is_none(), "the host has not said its end");
    drop(host);
    timeout(PATIENCE, serving).await.unwrap().unwrap().unwrap();
    assert!(used::take(target, &tcp.options).is_some());
}
