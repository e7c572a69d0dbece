//! Messages, loads, and servers of ours that go on until the tests end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use ekiden_measure::server::{self, Admits, Happened, Patience, Settings};
use ekiden_measure_proto::message::{
    Preamble, Purpose, REPLY_BYTES_MOST, Reply, Request, Speaks, Trace, decode, encode, token_of,
};
use ekiden_measure_proto::settings::Asked;
use ekiden_record::LoadSettings;

/// What a load carries.
pub const BYTES: u64 = 1_000_000;

pub fn asked() -> Asked {
    Asked::new(LoadSettings { duration_us: None, bytes: Some(BYTES), ..Asked::default().get().clone() }).unwrap()
}

pub fn say(mut socket: &TcpStream, message: &impl serde::Serialize) -> bool {
    socket.write_all(&encode(message).unwrap()).is_ok()
}

pub fn hear<T: serde::de::DeserializeOwned>(mut socket: &TcpStream) -> Option<T> {
    let mut length = [0; 4];
    socket.read_exact(&mut length).ok()?;
    let mut bytes = vec![0; (u32::from_be_bytes(length) as usize).min(REPLY_BYTES_MOST)];
    socket.read_exact(&mut bytes).ok()?;
    decode(&bytes).ok().flatten()
}

pub fn take_all(mut link: TcpStream, _: &[u8]) {
    while link.read(&mut [0; 65_536]).is_ok_and(|taken| taken > 0) {}
}

/// An open server of ours, which goes on until the tests end.
pub fn open_server() -> String {
    open_server_at("127.0.0.1:0")
}

pub fn open_server_at(address: &str) -> String {
    server_at(address, Admits::Everyone)
}

pub fn server_at(address: &str, admits: Admits) -> String {
    let (ready, listens) = std::sync::mpsc::channel();
    let settings = Settings {
        address: address.parse().unwrap(),
        admits,
        bytes_most: Some(1 << 30),
        duration_most: Duration::from_secs(60),
        patience: Patience {
            gathering: Duration::from_secs(1),
            stalled: Duration::from_secs(4),
            stopped: Duration::from_secs(1),
            results: Duration::from_secs(5),
        },
    };
    thread::spawn(move || {
        server::run(
            settings,
            || None,
            move |happened| {
                if let Happened::Ready(address) = happened {
                    let _ = ready.send(address.to_string());
                }
            },
        )
    });
    listens.recv_timeout(Duration::from_secs(20)).unwrap()
}

/// A client that asks an open server and opens the connections of the load: the control connection, and the streams with the probes.
pub fn asking(address: &str, settings: LoadSettings) -> (TcpStream, Vec<TcpStream>) {
    let (control, token) = admitted(address, &settings).expect("ready");
    let streams = settings
        .ways
        .iter()
        .flat_map(|way| (0..settings.streams).map(|stream| Purpose::Stream(*way, u16::try_from(stream).unwrap())));
    let links = streams.chain([Purpose::Probe]).map(|purpose| {
        let mut link = link(address, token, purpose);
        link.read_exact(&mut [0]).unwrap();
        link
    });
    let links = links.collect();
    (control, links)
}

/// The control connection and the token, unless the server is busy.
pub fn admitted(address: &str, settings: &LoadSettings) -> Option<(TcpStream, [u8; 16])> {
    let mut control = TcpStream::connect(address).unwrap();
    control.write_all(b"EKM1").unwrap();
    let settings = Box::new(settings.clone());
    say(&control, &Request::Measure { speaks: Speaks::own(), settings, trace: Trace::No });
    match hear(&control) {
        Some(Reply::Ready { token, .. }) => Some((control, token_of(&token).unwrap())),
        Some(Reply::Refused { busy: true, .. }) => None,
        other => panic!("{other:?}"),
    }
}

pub fn link(address: &str, token: [u8; 16], purpose: Purpose) -> TcpStream {
    let mut link = TcpStream::connect(address).unwrap();
    let _ = link.write_all(&Preamble { token, purpose }.encode());
    link
}
