use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::*;

const LIMIT: Duration = Duration::from_secs(20);

/// A node with a delay of its answer to FILL for each connection, by the connection's number; `None`: never. Returns its address.
async fn answering(after: impl Fn(usize) -> Option<Duration> + Send + 'static) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for number in 0.. {
            let (socket, _) = listener.accept().await.unwrap();
            let after = after(number);
            tokio::spawn(async move {
                let connection = Connection::from(socket);
                while let Ok((FrameKind::Fill, body)) = read_frame(&connection).await {
                    assert!(!body.is_empty());
                    if let Some(after) = after {
                        sleep(after).await;
                        answer(&connection).await.unwrap();
                    }
                }
            });
        }
    });
    address
}

/// A node that answers on connections from this number on, and never on those before.
async fn node(first: usize) -> std::net::SocketAddr {
    answering(move |number| (number >= first).then_some(Duration::ZERO)).await
}

/// Dials, and returns the limits that the attempts were given.
async fn limits(segments: &Segments, proof: Proof, address: std::net::SocketAddr) -> Vec<Option<u16>> {
    let given = Mutex::new(Vec::new());
    let attempt = async |limit| {
        given.lock().unwrap().push(limit);
        Ok::<_, io::Error>((Connection::from(TcpStream::connect(address).await?), Vec::new()))
    };
    timeout(LIMIT, segments.dial("it", proof, attempt)).await.expect("in time").expect("a connection");
    given.into_inner().unwrap()
}

#[tokio::test]
async fn shorter_segments_are_tried_beside_when_full_ones_do_not_pass_and_are_remembered() {
    let segments = Segments::default();
    let address = node(1).await;
    assert_eq!(limits(&segments, Proof::WhenUnknown, address).await, [None, Some(1220)]);
    timeout(LIMIT, segments.settled()).await.unwrap();
    assert_eq!(segments.limit(), Some(1220));
    // From then on no attempt has longer ones, proven or not.
    for proof in [Proof::WhenUnknown, Proof::Always] {
        assert_eq!(limits(&segments, proof, address).await, [Some(1220)]);
    }
    segments.forget();
    assert_eq!(segments.limit(), None);
    assert_eq!(limits(&segments, Proof::WhenUnknown, address).await, [None]);
}

#[tokio::test]
async fn a_path_that_is_known_to_carry_full_segments_is_not_asked_again() {
    let segments = Segments::default();
    assert_eq!(limits(&segments, Proof::WhenUnknown, node(0).await).await, [None]);
    // This one never answers.
    let deaf = node(usize::MAX).await;
    assert_eq!(limits(&segments, Proof::WhenUnknown, deaf).await, [None]);
    segments.forget();
    let attempt = async |_| Ok::<_, io::Error>((Connection::from(TcpStream::connect(deaf).await?), Vec::new()));
    let dialling = segments.dial("it", Proof::WhenUnknown, attempt);
    assert!(timeout(Duration::from_millis(300), dialling).await.is_err());
}

#[tokio::test]
async fn a_node_that_answers_nothing_is_given_up_in_seconds() {
    let segments = Segments::default();
    let deaf = node(usize::MAX).await;
    let attempt = async |_| Ok::<_, io::Error>((Connection::from(TcpStream::connect(deaf).await?), Vec::new()));
    let failed = timeout(LIMIT, segments.dial("it", Proof::Always, attempt)).await.expect("in time").err();
    assert!(matches!(failed, Some(Unproven::Broken(error)) if error.to_string().contains("no full segments pass")));
    assert_eq!(segments.limit(), None);
}

#[tokio::test]
async fn an_attempt_that_fails_is_the_answer_and_no_other_is_made() {
    let (segments, attempts) = (Segments::default(), AtomicUsize::new(0));
    let attempt = async |_| {
        attempts.fetch_add(1, Ordering::Relaxed);
        Err::<Dialled, _>("refused")
    };
    let failed = timeout(LIMIT, segments.dial("it", Proof::Always, attempt)).await.unwrap().err();
    assert!(matches!(failed, Some(Unproven::Attempt("refused"))));
    assert_eq!(attempts.load(Ordering::Relaxed), 1);
}

/// A node that answers on the first connection only after a delay: the path was down.
async fn node_after(outage: Duration) -> std::net::SocketAddr {
    answering(move |number| Some(if number == 0 { outage } else { Duration::ZERO })).await
}

#[tokio::test]
async fn an_outage_while_a_node_is_dialled_is_no_black_hole() {
    let segments = Segments::default();
    let address = node_after(Duration::from_millis(1500)).await;
    assert_eq!(limits(&segments, Proof::WhenUnknown, address).await, [None, Some(1220)]);
    // Until it is clear what it was, connections have the segments that have passed.
    assert_eq!(segments.limit(), None);
    assert_eq!(limits(&segments, Proof::WhenUnknown, address).await, [Some(1220)]);
    timeout(LIMIT, segments.settled()).await.unwrap();
    assert_eq!(segments.limit(), None);
    assert_eq!(limits(&segments, Proof::WhenUnknown, address).await, [None]);
}

#[tokio::test]
async fn a_full_segment_whose_connection_breaks_says_nothing_of_the_path() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let silent = listener.accept().await.unwrap().0;
        let connection = Connection::from(listener.accept().await.unwrap().0);
        read_frame(&connection).await.unwrap();
        answer(&connection).await.unwrap();
        drop(silent);
        sleep(LIMIT).await;
    });
    let segments = Segments::default();
    assert_eq!(limits(&segments, Proof::WhenUnknown, address).await, [None, Some(1220)]);
    timeout(LIMIT, segments.settled()).await.unwrap();
    assert_eq!(segments.limit(), None);
    assert!(segments.known().is_none(), "the longest are tried again");
}

/// That segments of this step pass, for a minute more.
fn known(step: usize) -> Segments {
    let until = Some(Instant::now() + Duration::from_secs(60));
    Segments(Arc::new(Mutex::new(Known { step, until, is_sure: true })))
}

#[test]
fn what_is_known_of_shorter_segments_ends_in_its_time_and_not_with_a_connection() {
    let (full, shorter) = (known(0), known(1));
    full.doubt();
    shorter.doubt();
    assert!(full.known().is_none());
    assert_eq!(shorter.limit(), Some(1220));

    let before = *shorter.lock();
    shorter.learn("it", 1, 1208);
    let after = *shorter.lock();
    assert_eq!((after.step, after.until), (before.step, before.until));
    shorter.learn("it", 0, 1448);
    let after = *shorter.lock();
    assert_eq!(after.step, 0);
}

#[test]
fn only_a_length_is_named_that_was_sent() {
    let says = |full, text: &str| told("it", full, 1208).to_string().contains(text);
    assert!(says(1448, "segments of 1448 bytes do not arrive, and those of 1208 bytes do"));
    // The other end's were longer.
    assert!(says(1012, "segments of more than 1208 bytes do not arrive, and those of 1208 bytes do"));
}
