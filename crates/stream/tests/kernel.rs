//! What only a real kernel can show.

use std::time::Duration;

use ekiden_net::socket::{TcpOptions, outgoing};
use ekiden_stream::duplex::{Duplex, Finished};
use ekiden_transport::Connection;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

type Side = ekiden_stream::duplex::Side<Connection>;

/// With the pauses that this means the kernel gives up a closed socket whose receiver has no room after about 3 s.
const KEEPALIVE: Duration = Duration::from_secs(6);

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let (connected, accepted) = tokio::join!(connecting, listener.accept());
    (connected.unwrap(), accepted.unwrap().0)
}

#[tokio::test]
async fn an_end_arrives_although_a_reset_follows_at_once_and_a_write_hears_of_it_first() {
    for sent in [1, 200_000] {
        let ((mut client, a), (mut host, b)) = (pair().await, pair().await);
        client.write_all(&vec![1; sent]).await.unwrap();
        host.write_all(b"the answer").await.unwrap();
        host.shutdown().await.unwrap();
        SockRef::from(&host).set_linger(Some(Duration::ZERO)).unwrap();
        drop(host);
        // What the client has sent is moved first, and refused.
        let running = Duplex::new(Side::host(a), Side::host(b), &[]);
        let ended = timeout(Duration::from_secs(20), running.run(&mut None, ())).await;
        assert!(ended.expect("it ends").is_err(), "the client is told that it was refused");
        let mut all = Vec::new();
        client.read_to_end(&mut all).await.expect("an end, not a reset");
        assert_eq!(all, b"the answer", "{sent}");
    }
}

#[tokio::test]
async fn a_side_that_was_sent_more_than_a_segment_is_asked_whether_it_took_it() {
    // What was read with the request counts as well.
    for (first, rest, is_little) in [(64, 0, true), (64, 400, true), (400, 400, false), (0, 200_000, false)] {
        let ((mut client, a), (mut host, b)) = (pair().await, pair().await);
        client.write_all(&vec![1; rest]).await.unwrap();
        client.shutdown().await.unwrap();
        let first = vec![1; first];
        let [a, b] = [a, b].map(|socket| Side { was_sent_little: true, ..Side::host(socket) });
        let duplex = Duplex::new(a, b, &first);
        let mut all = Vec::new();
        let answered = async {
            host.read_to_end(&mut all).await.unwrap();
            host.write_all(b"taken").await.unwrap();
            host.shutdown().await.unwrap();
        };
        let mut expiry = None;
        let (finished, ()) = tokio::join!(duplex.run(&mut expiry, ()), answered);
        let Finished { a, b, .. } = finished.unwrap();
        assert_eq!(all.len(), first.len() + rest);
        assert_eq!((a.was_sent_little, b.was_sent_little), (true, is_little), "{} + {rest}", first.len());
    }
}

#[tokio::test]
async fn what_is_no_longer_waited_for_stays_with_the_kernel_for_longer_than_its_keepalive_means() {
    let small = TcpSocket::new_v4().unwrap();
    small.set_recv_buffer_size(8192).unwrap();
    small.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let listener = small.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let options = TcpOptions { keepalive: Some(KEEPALIVE), ..TcpOptions::default() };
    let socket = TcpSocket::from_std_stream(outgoing(address, &options).unwrap().into());
    let side = Side::host(socket.connect(address).await.unwrap());
    let (mut host, _) = listener.accept().await.unwrap();
    // More than a small receive buffer takes, and less than the other socket does besides.
    let bytes = vec![7; 400_000];
    side.output().write(&bytes).await.unwrap();
    timeout(Duration::from_millis(200), side.deliver(&mut None)).await.expect_err("the host has no room");
    sleep(KEEPALIVE).await;
    let mut all = Vec::new();
    host.read_to_end(&mut all).await.unwrap();
    assert!(all == bytes, "{} bytes and an end", all.len());
}
