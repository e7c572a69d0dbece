//! What is between a node and etcd: bytes go through, are held back, or connections are closed.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Open,
    /// Nothing comes through, and nobody is told.
    Silent,
    /// Connections are closed.
    Closed,
    /// For good.
    Over,
}

struct State {
    mode: Mutex<Mode>,
    /// How many connections of the oldest ones are silent whatever the mode; then the next is not.
    frozen: Mutex<Option<u64>>,
    bytes: AtomicU64,
    connections: AtomicU64,
}

/// A TCP proxy on a port of its own.
pub struct Proxy {
    port: u16,
    state: Arc<State>,
}

impl Proxy {
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            mode: Mutex::new(Mode::Open),
            frozen: Mutex::new(None),
            bytes: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        });
        let shared = state.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                match *shared.mode.lock().unwrap() {
                    Mode::Over => return,
                    Mode::Closed => continue,
                    Mode::Open | Mode::Silent => {}
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                let number = shared.connections.fetch_add(1, Ordering::Relaxed);
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to, state) = (from.try_clone().unwrap(), to.try_clone().unwrap(), shared.clone());
                    thread::spawn(move || carry(from, to, number, &state));
                }
            }
        });
        Self { port, state }
    }

    pub fn endpoint(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    pub fn open(&self) {
        self.set(Mode::Open);
    }

    pub fn silence(&self) {
        self.set(Mode::Silent);
    }

    pub fn close(&self) {
        self.set(Mode::Closed);
    }

    /// Silences the connection with this number, from 0, for good.
    pub fn freeze(&self, number: u64) {
        *self.state.frozen.lock().unwrap() = Some(number);
    }

    /// How many connections there have been.
    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// Payload of TCP so far, both ways.
    pub fn bytes(&self) -> u64 {
        self.state.bytes.load(Ordering::Relaxed)
    }

    fn set(&self, mode: Mode) {
        *self.state.mode.lock().unwrap() = mode;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(Mode::Over);
        // So that the listener looks.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, number: u64, state: &State) {
    from.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut buffer = [0; 16 << 10];
    loop {
        let mode = *state.mode.lock().unwrap();
        match mode {
            Mode::Closed | Mode::Over => break,
            Mode::Silent => {
                thread::sleep(Duration::from_millis(20));
                continue;
            }
            Mode::Open if *state.frozen.lock().unwrap() == Some(number) => {
                thread::sleep(Duration::from_millis(20));
                continue;
            }
            Mode::Open => {}
        }
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => {
                state.bytes.fetch_add(read as u64, Ordering::Relaxed);
                if to.write_all(&buffer[..read]).is_err() {
                    break;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
