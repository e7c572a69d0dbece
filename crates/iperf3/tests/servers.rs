//! The client of iperf3 servers, against Debian's iperf3 and against servers that are none or break off.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ekiden_iperf3::{Error, LoadDirection, Outcome, Phase, Progress, Settings, Until, run};
use ekiden_units::Bytes;

/// A running iperf3 server, which ends with this.
struct Server(Child, u16);

impl Server {
    /// Starts one, and waits until it listens.
    fn start(more: &[&str]) -> Self {
        // Freed for the server. Another program may take it in between; then the next port is tried.
        for _ in 0..20 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut command = Command::new("iperf3");
            command.args(["-s", "--forceflush", "-B", "127.0.0.1", "-p", &port.to_string()]).args(more);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("iperf3 is installed");
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let mut lines = lines.map_while(Result::ok);
            if lines.any(|line| line.contains("listening")) {
                // It must not wait for somebody to read.
                thread::spawn(move || lines.for_each(drop));
                return Self(child, port);
            }
            let _ = child.wait();
        }
        panic!("iperf3 does not listen");
    }

    fn settings(&self) -> Settings {
        Settings { until: Until::Time(Duration::from_millis(600)), ..Settings::new(&format!("127.0.0.1:{}", self.1)) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measured(settings: &Settings) -> Outcome {
    run(settings, &mut |_| {}).unwrap()
}

#[test]
fn streams_to_the_server_count_what_it_has_received() {
    let server = Server::start(&["-1"]);
    let settings = Settings { streams: 3, congestion: Some("reno".into()), ..server.settings() };
    let (mut samples, mut begun, mut last) = (0, 0, 0.0);
    let mut progress = |progress: Progress<'_>| match progress {
        Progress::Begun { mss_bytes, .. } => begun = mss_bytes,
        Progress::Sampled { samples: all, done, .. } => {
            assert!(all.len() == 3 && done >= last, "{} {done} {last}", all.len());
            (samples, last) = (samples + 1, done);
        }
    };
    let outcome = run(&settings, &mut progress).unwrap();
    assert!(begun > 500 && samples > 1 && last == 1.0, "{begun} {samples} {last}");
    assert_eq!((outcome.congestion.as_str(), outcome.server_congestion.as_deref()), ("reno", Some("reno")));
    assert_eq!(
        outcome.streams.iter().map(|stream| (stream.is_sent, stream.connection)).collect::<Vec<_>>(),
        [(true, 0), (true, 1), (true, 2)]
    );
    for stream in &outcome.streams {
        assert!(stream.received_bytes > 0 && stream.received_bit_s > 0, "{stream:?}");
        let shares = stream.shares.unwrap();
        let sum = shares.application + shares.receive_window + shares.send_buffer + shares.path;
        assert!((sum - 1.0).abs() < 1e-9, "{shares:?}");
    }
    assert_eq!(outcome.late.map(|late| late.samples), Some(samples));
    assert_eq!(outcome.received_bit_s(false), None);
}

#[test]
fn streams_from_the_server_count_what_we_have_received() {
    let server = Server::start(&["-1"]);
    let outcome = measured(&Settings { direction: LoadDirection::Receive, streams: 2, ..server.settings() });
    assert_eq!(outcome.streams.len(), 2);
    for stream in &outcome.streams {
        assert!(
            !stream.is_sent && stream.received_bytes > 0 && stream.sent_bytes >= stream.received_bytes,
            "{stream:?}"
        );
        assert!(stream.retransmits.is_some() && stream.shares.is_none(), "{stream:?}");
    }
}

#[test]
fn both_directions_at_once_have_their_streams_each() {
    let server = Server::start(&["-1"]);
    let outcome = measured(&Settings { direction: LoadDirection::Both, streams: 2, ..server.settings() });
    let ways: Vec<bool> = outcome.streams.iter().map(|stream| stream.is_sent).collect();
    assert_eq!(ways, [true, true, false, false]);
    assert!(outcome.streams.iter().all(|stream| stream.received_bytes > 0), "{outcome:?}");
    assert!(outcome.received_bit_s(true) > Some(0) && outcome.received_bit_s(false) > Some(0));
}

#[test]
fn a_measurement_by_bytes_moves_so_many() {
    for (direction, streams) in
        [(LoadDirection::Send, 1), (LoadDirection::Send, 3), (LoadDirection::Receive, 1), (LoadDirection::Both, 1)]
    {
        let server = Server::start(&["-1"]);
        let until = Until::Bytes(Bytes::mib(20));
        let settings = Settings { direction, streams, until, block_bytes: 10_000, ..server.settings() };
        let outcome = measured(&settings);
        for is_sent in [true, false] {
            let all: Vec<_> = outcome.streams.iter().filter(|stream| stream.is_sent == is_sent).collect();
            let sent: u64 = all.iter().map(|stream| stream.sent_bytes).sum();
            let received: u64 = all.iter().map(|stream| stream.received_bytes).sum();
            if is_sent && !all.is_empty() {
                assert_eq!(sent, 20 << 20, "{direction:?}");
            }
            // A server that is slow to read does not count what its kernel still has.
            assert!(all.is_empty() || (received > 10 << 20 && received <= sent), "{direction:?}: {received} of {sent}");
        }
        assert_eq!(
            settings.announced_bytes(),
            Some(if direction == LoadDirection::Both { 40 << 20 } else { 20 << 20 })
        );
    }
}

#[test]
fn a_measurement_by_time_may_have_a_limit_of_bytes() {
    for direction in [LoadDirection::Send, LoadDirection::Receive] {
        let server = Server::start(&["-1"]);
        let until = Until::Time(Duration::from_secs(3600));
        let settings = Settings { direction, until, bytes_most: Some(Bytes::mib(5)), ..server.settings() };
        let stream = &measured(&settings).streams[0];
        assert!(direction == LoadDirection::Receive || stream.sent_bytes == 5 << 20, "{stream:?}");
        assert!((1..=5 << 20).contains(&stream.received_bytes) && stream.duration_us < 3_000_000_000, "{stream:?}");
    }
}

/// A SOCKS5 listener that does what it is asked for, and answers with `code`.
fn socks5(code: u8) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            client.read_exact(&mut [0; 3]).unwrap();
            client.write_all(&[5, 0]).unwrap();
            let mut request = [0; 10];
            client.read_exact(&mut request).unwrap();
            client.write_all(&[5, code, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
            if code == 0 {
                let [.., high, low] = request;
                let server = TcpStream::connect(("127.0.0.1", u16::from_be_bytes([high, low]))).unwrap();
                for (mut from, mut to) in [
                    (client.try_clone().unwrap(), server.try_clone().unwrap()),
                    (server.try_clone().unwrap(), client.try_clone().unwrap()),
                ] {
                    thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(std::net::Shutdown::Write);
                    });
                }
            }
        }
    });
    address
}

#[test]
fn connections_can_go_through_a_socks5_listener() {
    for direction in [LoadDirection::Send, LoadDirection::Receive] {
        let server = Server::start(&["-1"]);
        let outcome = measured(&Settings { direction, streams: 2, via: Some(socks5(0)), ..server.settings() });
        assert!(outcome.streams.iter().all(|stream| stream.received_bytes > 0), "{outcome:?}");
    }
    for (code, why) in
        [(5, "connection refused; is the server running there?"), (2, "add the address to `allow` of [exit]")]
    {
        let via = socks5(code);
        let refused = Settings { via: Some(via.clone()), ..Settings::new("127.0.0.1:1") };
        let said = failed(&refused).to_string();
        let expected = format!("--via {via}: the node there gets no connection to 127.0.0.1:1: ");
        assert!(said.starts_with(&expected) && said.contains(why), "{said}");
    }
    let absent = Settings { via: Some("127.0.0.1:1".into()), ..Settings::new("127.0.0.1:2") };
    let said = failed(&absent).to_string();
    assert!(said.starts_with("--via 127.0.0.1:1: no SOCKS5 listener is there"), "{said}");
}

#[test]
fn what_is_omitted_does_not_count() {
    for direction in [LoadDirection::Send, LoadDirection::Receive] {
        let server = Server::start(&["-1"]);
        let start = Instant::now();
        let outcome = measured(&Settings { direction, omit: Duration::from_secs(1), ..server.settings() });
        let (stream, whole_us) = (&outcome.streams[0], start.elapsed().as_micros() as u64);
        // The time is the receiver's: ours, or the server's, whose second began before ours.
        let most_us = if direction == LoadDirection::Receive { whole_us - 1_000_000 } else { whole_us };
        assert!(stream.duration_us > 0 && stream.duration_us <= most_us, "{stream:?} {whole_us}");
    }
}

#[test]
fn a_window_limits_and_is_named_as_the_limit() {
    let server = Server::start(&["-1"]);
    let outcome = measured(&Settings { window: Some(Bytes::kib(16)), ..server.settings() });
    let shares = outcome.streams[0].shares.unwrap();
    assert!(shares.receive_window + shares.send_buffer + shares.application > 0.0, "{shares:?}");
}

#[test]
fn one_server_serves_one_client_at_a_time() {
    let server = Server::start(&[]);
    let mut holder = TcpStream::connect(("127.0.0.1", server.1)).unwrap();
    holder.write_all(&[b'a'; 36]).unwrap();
    holder.write_all(&[0]).unwrap();
    // Now it waits for the parameters of this one.
    holder.read_exact(&mut [0]).unwrap();
    let parameters = br#"{"tcp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":1,"len":1000}"#;
    holder.write_all(&(parameters.len() as u32).to_be_bytes()).unwrap();
    holder.write_all(parameters).unwrap();
    holder.read_exact(&mut [0]).unwrap();
    let error = run(&server.settings(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Busy), "{error}");
}

#[test]
fn a_server_that_is_stopped_says_so() {
    let mut server = Server::start(&[]);
    let settings = Settings { until: Until::Time(Duration::from_secs(60)), ..server.settings() };
    let mut stopped = false;
    let error = run(&settings, &mut |progress| {
        if matches!(progress, Progress::Sampled { .. }) && !stopped {
            stopped = true;
            let id = nix::unistd::Pid::from_raw(server.0.id() as i32);
            nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
        }
    });
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Terminated | Error::Gone { .. }), "{error}");
    let _ = server.0.wait();
}

/// A server that does what `serve` does with each control connection, and its settings.
fn fake(serve: impl FnMut(TcpStream, &TcpListener) + Send + 'static) -> Settings {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let mut serve = serve;
    thread::spawn(move || {
        if let Ok((stream, _)) = listener.accept() {
            serve(stream, &listener);
        }
    });
    let until = Until::Time(Duration::from_millis(100));
    Settings { patience: Duration::from_secs(1), until, ..Settings::new(&address.to_string()) }
}

fn failed(settings: &Settings) -> Error {
    run(settings, &mut |_| {}).unwrap_err()
}

/// Plays a server up to the end of the load, with one stream towards it, and returns what the client has sent on it.
fn serve_until_end(control: &mut TcpStream, listener: &TcpListener) -> u64 {
    control.read_exact(&mut [0; 37]).unwrap();
    control.write_all(&[9]).unwrap();
    let mut length = [0; 4];
    control.read_exact(&mut length).unwrap();
    let mut json = vec![0; u32::from_be_bytes(length) as usize];
    control.read_exact(&mut json).unwrap();
    control.write_all(&[10]).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; 37]).unwrap();
    let drain = thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()).unwrap_or_default());
    control.write_all(&[1, 2]).unwrap();
    control.read_exact(&mut [0]).unwrap();
    drop(drain);
    control.write_all(&[13]).unwrap();
    control.read_exact(&mut length).unwrap();
    let mut json = vec![0; u32::from_be_bytes(length) as usize];
    control.read_exact(&mut json).unwrap();
    u64::from(u32::from_be_bytes(length))
}

#[test]
fn what_is_no_iperf3_server_is_told() {
    let garbage = fake(|mut control, _| {
        let _ = control.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
        let _ = control.read(&mut [0; 100]);
    });
    let error = failed(&garbage);
    assert!(matches!(error, Error::NotIperf3(_)), "{error}");

    let closes = fake(|mut control, _| drop(control.read_exact(&mut [0; 37])));
    let error = failed(&closes);
    assert!(matches!(error, Error::NotIperf3(_) | Error::Gone { .. }), "{error}");

    let (done, wait) = std::sync::mpsc::channel::<()>();
    let silent = fake(move |control, _| {
        let _ = wait.recv();
        drop(control);
    });
    let error = failed(&silent);
    assert!(matches!(error, Error::Silent { phase: Phase::Greet, .. }), "{error}");
    drop(done);

    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = failed(&Settings::new(&nobody.to_string()));
    assert!(matches!(error, Error::Connect { .. }), "{error}");
}

#[test]
fn a_server_that_is_busy_or_refuses_is_told() {
    let busy = fake(|mut control, _| {
        let _ = control.read_exact(&mut [0; 37]);
        let _ = control.write_all(&[0xff]);
        let _ = control.read(&mut [0]);
    });
    assert!(matches!(failed(&busy), Error::Busy));

    for (code, words) in [(142, "it wants a user"), (134, "congestion control"), (9999, "no words for")] {
        let refuses = fake(move |mut control, _| {
            let _ = control.read_exact(&mut [0; 37]);
            let _ = control.write_all(&[0xfe]);
            let _ = control.write_all(&i32::to_be_bytes(code));
            let _ = control.write_all(&i32::to_be_bytes(13));
            let _ = control.read(&mut [0]);
        });
        let error = failed(&refuses);
        let text = error.to_string();
        assert!(matches!(error, Error::Server { errno: 13, .. }) && text.contains(words), "{text}");
        assert!(text.contains("Permission denied") && !text.contains('\n'), "{text}");
    }
}

#[test]
fn a_server_that_goes_away_in_the_middle_is_told() {
    let early = fake(|mut control, _| {
        let _ = control.read_exact(&mut [0; 37]);
        let _ = control.write_all(&[9]);
        let mut length = [0; 4];
        let _ = control.read_exact(&mut length);
        let _ = control.read_exact(&mut vec![0; u32::from_be_bytes(length) as usize]);
    });
    let error = failed(&early);
    // With what may be the reason: this is how a server ends that wants a user.
    assert!(matches!(error, Error::Declined), "{error}");

    let truncated = fake(|mut control, listener| {
        serve_until_end(&mut control, listener);
        let _ = control.write_all(&100_u32.to_be_bytes());
        let _ = control.write_all(b"{\"streams\"");
    });
    let error = failed(&truncated);
    assert!(matches!(error, Error::Gone { phase: Phase::SendResults, .. }), "{error}");
}

#[test]
fn a_server_that_sends_a_byte_now_and_then_is_silent() {
    let drips = fake(|mut control, listener| {
        serve_until_end(&mut control, listener);
        let _ = control.write_all(&1000_u32.to_be_bytes());
        while control.write_all(b" ").is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
    let error = failed(&drips);
    assert!(matches!(error, Error::Silent { phase: Phase::SendResults, .. }), "{error}");
}

#[test]
fn absurd_results_are_refused() {
    for (json, words) in [
        (r#"{"streams":[]}"#, "stream 1 is missing"),
        (r#"{"streams":[{"id":1,"bytes":9e15,"end_time":0.1}]}"#, "that were sent"),
        (r#"{"streams":[{"id":1,"bytes":-5,"end_time":0.1}]}"#, "has moved -5 bytes"),
        (r#"{"streams":[{"id":1,"bytes":10,"end_time":1e-9}]}"#, "has lasted"),
        (r#"{"streams":[{"id":1,"bytes":10,"end_time":86400}]}"#, "has lasted"),
        (r#"{"streams":[{"id":1,"bytes":10},{"id":1,"bytes":10}]}"#, "there twice"),
        (r#"{"streams":"#, "not the JSON"),
    ] {
        let absurd = fake(move |mut control, listener| {
            serve_until_end(&mut control, listener);
            let _ = control.write_all(&(json.len() as u32).to_be_bytes());
            let _ = control.write_all(json.as_bytes());
            let _ = control.write_all(&[14]);
            let _ = control.read(&mut [0]);
        });
        let error = failed(&absurd);
        assert!(matches!(error, Error::Results(_)) && error.to_string().contains(words), "{error}");
    }
    let long = fake(|mut control, listener| {
        serve_until_end(&mut control, listener);
        let _ = control.write_all(&u32::MAX.to_be_bytes());
        let _ = control.read(&mut [0]);
    });
    assert!(matches!(failed(&long), Error::Results(_)));
}

#[test]
fn settings_that_cannot_be_are_refused_before_anything_is_sent() {
    let right = Settings::new("192.0.2.1");
    for wrong in [
        Settings { streams: 0, ..right.clone() },
        Settings { streams: 129, ..right.clone() },
        Settings { block_bytes: 0, ..right.clone() },
        Settings { until: Until::Bytes(Bytes(0)), ..right.clone() },
        Settings { until: Until::Time(Duration::ZERO), ..right.clone() },
        Settings { until: Until::Bytes(Bytes(9)), omit: Duration::from_secs(1), ..right.clone() },
        Settings { omit: Duration::from_millis(1500), ..right.clone() },
        Settings { server: "127.0.0.1:0".into(), ..right.clone() },
        Settings { sample_every: Duration::ZERO, ..right.clone() },
    ] {
        let error = failed(&wrong);
        assert!(matches!(error, Error::Settings(_)), "{error}");
    }
    let error = failed(&Settings {
        congestion: Some("no_such".into()),
        ..fake(|mut control, _| {
            let _ = control.read_exact(&mut [0; 37]);
            let _ = control.write_all(&[9, 10]);
            let _ = control.read(&mut [0; 500]);
            let _ = control.read(&mut [0]);
        })
    });
    assert!(matches!(error, Error::Socket(_)), "{error}");
}

/// A server between two measurements resets who waits at the listener that it closes.
#[test]
fn a_server_that_is_between_two_measurements_is_asked_again() {
    for (resets, is_reached) in [(1, true), (9, false)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let settings = Settings::new(&listener.local_addr().unwrap().to_string());
        thread::spawn(move || {
            for _ in 0..resets {
                let (stream, _) = listener.accept().unwrap();
                // With what it has not read, it is reset.
                let _ = stream.peek(&mut [0]);
            }
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 37]).unwrap();
            // It takes parameters.
            stream.write_all(&[9]).unwrap();
            let _ = stream.read(&mut [0; 100]);
        });
        let error = run(&settings, &mut |_| {}).unwrap_err();
        match is_reached {
            true => assert!(matches!(error, Error::Declined), "{error}"),
            false => assert!(matches!(error, Error::Gone { phase: Phase::Greet, .. }), "{error}"),
        }
    }
    // Nobody listens.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let begun = Instant::now();
    let error = run(&Settings::new(&address.to_string()), &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Connect { .. }) && begun.elapsed() >= Duration::from_millis(300), "{error}");
}
