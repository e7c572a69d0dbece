//! Tests of sockets' options, and of what is queued in sockets.

use std::io::Read;
use std::time::Instant;

use super::*;
use crate::tcp_info::tcp_info;

#[test]
fn a_connection_that_is_watched_closely_gets_its_timeouts_back() {
    for (silence, user_timeout, watched) in [(60, None, (5, 9)), (3, Some(4), (3, 4)), (60, Some(40), (5, 9))] {
        let [silence, keepalive, timeout] = [silence, watched.0, watched.1].map(Duration::from_secs);
        let user_timeout = user_timeout.map(Duration::from_secs);
        let options = TcpOptions { keepalive: Some(silence), user_timeout, ..TcpOptions::default() };
        let socket = new_socket(SocketAddr::from(([127, 0, 0, 1], 0)), &options).unwrap();
        let timeouts = watch_closely(&socket).unwrap();
        assert_eq!(socket.tcp_keepalive_time().unwrap(), keepalive);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(timeout));
        timeouts.restore(&socket).unwrap();
        assert_eq!(socket.tcp_keepalive_time().unwrap(), silence);
        assert_eq!(socket.tcp_user_timeout().unwrap(), user_timeout);
    }
}

#[test]
fn what_lies_behind_urgent_data_is_seen() {
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), true, &TcpOptions::default()).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = accept(&listener).unwrap();
    let client = SockRef::from(&client);
    let mut buffer = [0; 64];
    client.send(b"abc").unwrap();
    assert_eq!(receive_and_look(&accepted, &mut buffer).unwrap(), (3, false));
    client.send(b"abc").unwrap();
    assert_eq!(receive_and_look(&accepted, &mut buffer[..2]).unwrap(), (2, true));
    assert_eq!(receive_and_look(&accepted, &mut buffer[..1]).unwrap(), (1, false), "a full buffer that took all");
    client.send(b"abc").unwrap();
    client.send_out_of_band(b"!").unwrap();
    client.send(b"def").unwrap();
    assert_eq!(receive_and_look(&accepted, &mut buffer).unwrap(), (3, true));
    assert_eq!(receive_and_look(&accepted, &mut buffer).unwrap(), (3, false));
    client.send(b"x").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(receive_and_look(&accepted, &mut buffer).unwrap(), (1, true), "the end is still to be seen");
    assert_eq!(receive_and_look(&accepted, &mut buffer).unwrap().0, 0);
}

/// The window that a connection with these options begins with, and what it takes although its receiver reads nothing, in bytes.
fn first_and_taken_unread(options: &TcpOptions) -> [u64; 2] {
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), true, &TcpOptions::default()).unwrap();
    let address = listener.local_addr().unwrap();
    let socket = new_socket(address, options).unwrap();
    socket.set_nonblocking(false).unwrap();
    socket.connect(&address.into()).unwrap();
    let mut receiver = TcpStream::from(socket);
    let (sender, _) = accept(&listener).unwrap();
    let first = tcp_info(&sender).unwrap().send_window_bytes.into();
    // No read waits for more than there is.
    send(&sender, b"x", false).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert_eq!(receiver.read(&mut [0; 2]).unwrap(), 1);
    let mut taken = 0;
    loop {
        while send(&sender, &[7; 65536], false).is_ok() {}
        std::thread::sleep(Duration::from_millis(200));
        match unread(&receiver) {
            more if more == taken => return [first, taken],
            more => taken = more,
        }
    }
}

#[test]
fn a_connection_begins_with_the_window_that_it_is_given() {
    let window = 1 << 20;
    let given = first_and_taken_unread(&TcpOptions { first_window: Some(Bytes(window)), ..TcpOptions::default() });
    assert!(given.iter().all(|bytes| *bytes >= window), "{given:?}");
    let kernels = first_and_taken_unread(&TcpOptions::default());
    assert!(kernels.iter().all(|bytes| *bytes < window / 2), "{kernels:?}");
}

#[test]
fn accepted_connections_inherit_everything() {
    let size = Bytes(100_000);
    let congestion = Some("reno".to_owned());
    let (silence, patience) = (Duration::from_secs(18), Duration::from_millis(1500));
    let options = TcpOptions {
        congestion,
        send_buffer: Some(size),
        receive_buffer: Some(size),
        first_window: None,
        keepalive: Some(silence),
        user_timeout: Some(patience),
        max_segment: Some(1000),
    };
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), true, &options).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    // The listener does not block, and on loopback the connection is there when `connect` returns.
    let (accepted, _) = accept(&listener).unwrap();
    let socket = SockRef::from(&accepted);
    assert!(socket.tcp_nodelay().unwrap());
    assert!(socket.keepalive().unwrap());
    assert_eq!(socket.linger().unwrap(), Some(Duration::ZERO));
    assert_eq!(socket.tcp_congestion().unwrap().split(|&b| b == 0).next(), Some(&b"reno"[..]));
    assert_eq!(socket.send_buffer_size().unwrap(), 200_000);
    assert_eq!(socket.recv_buffer_size().unwrap(), 200_000);
    assert_eq!(socket.tcp_keepalive_time().unwrap(), silence);
    assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(3));
    assert_eq!(socket.tcp_user_timeout().unwrap(), Some(patience));
    drop(client);
}

#[test]
fn a_closed_socket_outlives_a_receiver_that_has_no_room_for_a_while() {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.set_recv_buffer_size(8192).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    // With its bound of 1 s the kernel would give up after about 3 s.
    let options = TcpOptions { keepalive: Some(Duration::from_secs(6)), ..TcpOptions::default() };
    let sender = new_socket(address.as_socket().unwrap(), &options).unwrap();
    let _ = sender.connect(&address);
    let (receiver, _) = listener.accept().unwrap();
    let mut sent = 0;
    while let Ok(n) = sender.send(&[7; 100_000]) {
        sent += n;
    }
    assert!(sent > 0);
    pause_longest(&sender).unwrap();
    end_on_close(&sender).unwrap();
    drop(sender);
    std::thread::sleep(Duration::from_secs(5));
    let mut receiver = TcpStream::from(receiver);
    receiver.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut all = Vec::new();
    receiver.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), sent);
}

#[test]
fn an_end_is_told_from_a_reset_whichever_call_the_error_was_reported_to() {
    for (ends, sends, reads) in [(true, 0, 0), (true, 5, 0), (true, 5, 2), (true, 5, 5), (false, 0, 0), (false, 5, 2)] {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), true, &TcpOptions::default()).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = accept(&listener).unwrap();
        SockRef::from(&client).send(&[7; 5][..sends]).unwrap();
        if ends {
            client.shutdown(std::net::Shutdown::Write).unwrap();
        }
        SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        // A connection over loopback has taken the reset as soon as it was sent.
        let error = send(&accepted, b"refused", false).expect_err("it takes the reset's error");
        let what = format!("{ends}, {reads} of {sends} bytes read, {error}");
        assert_eq!(error.kind() == io::ErrorKind::BrokenPipe, ends, "{what}");
        assert_eq!(receive(&accepted, &mut [0; 5][..reads]).unwrap(), reads, "{what}");
        assert_eq!(has_received_end(&accepted), ends, "{what}");
        let mut rest = [0; 8];
        assert_eq!(receive(&accepted, &mut rest).unwrap(), sends - reads, "{what}");
        assert_eq!(receive(&accepted, &mut rest).unwrap(), 0, "{what}: the kernel says an end in either case");
        assert_eq!(has_received_end(&accepted), ends, "{what}");
    }
}

#[test]
fn an_urgent_byte_is_no_end() {
    for ends in [false, true] {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), true, &TcpOptions::default()).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = accept(&listener).unwrap();
        SockRef::from(&client).send(&[7; 5]).unwrap();
        SockRef::from(&client).send_out_of_band(&[8]).unwrap();
        SockRef::from(&client).send(&[7; 3]).unwrap();
        if ends {
            client.shutdown(std::net::Shutdown::Write).unwrap();
        }
        SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        send(&accepted, b"refused", false).expect_err("it takes the reset's error");
        let mut read = 0;
        loop {
            assert!(ends || !has_received_end(&accepted), "behind {read} bytes");
            match receive(&accepted, &mut [0; 2]).unwrap() {
                0 => break,
                n => read += n,
            }
        }
        // Behind the urgent byte, which is not read, an end is seen again.
        assert_eq!((read, has_received_end(&accepted)), (8, ends));
    }
}

#[test]
fn an_address_that_another_process_gives_up_is_had_and_one_that_this_host_does_not_have_is_not() {
    let until = Instant::now() + Duration::from_secs(30);
    let old = listen(SocketAddr::from(([127, 0, 0, 1], 0)), true, &TcpOptions::default()).unwrap();
    let address = old.local_addr().unwrap();
    let mut told = 0;
    // All waiting tasks have been notified before the old one is dropped.
    let mut old = Some(old);
    await_free(address, true, until, |error| {
        assert!(error.to_string().contains("in use"), "{error}");
        told += 1;
        old = None;
    })
    .unwrap();
    assert_eq!(told, 1);
    let elsewhere = SocketAddr::from(([192, 0, 2, 9], 7));
    let error = await_free(elsewhere, true, Instant::now() + Duration::from_millis(50), |_| told += 1).unwrap_err();
    assert!(error.may_pass() && told == 2, "{error}");
}

#[test]
fn a_socket_of_another_process_is_set_up_again() {
    let made = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    made.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    made.listen(1).unwrap();
    let listener = TcpListener::from(made);
    // Of a listener, the kernel tells how many connections may wait here.
    let may_wait = || tcp_info(&listener).unwrap().sacked_segments;
    assert_eq!(may_wait(), 1);
    let silence = Duration::from_secs(7);
    listen_again(&listener, &TcpOptions { keepalive: Some(silence), ..TcpOptions::default() }).unwrap();
    assert!(may_wait() > 1, "{}", may_wait());
    assert_eq!(SockRef::from(&listener).tcp_keepalive_time().unwrap(), silence);
    assert!(SockRef::from(&listener).tcp_nodelay().unwrap());
}
