//! Who else answers at an address where the server that was looked for does not.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use ekiden_record::LoadSettings;

use crate::iperf3::message::{State, cookie};
use crate::message::{PLAIN, REPLY_BYTES_MOST, Reply, Request, Trace, decode, encode};
use crate::settings::Asked;
use crate::socket;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether an iperf3 server answers: after a cookie it says at once that it takes parameters, or that it is busy.
pub fn is_iperf3(address: SocketAddr) -> bool {
    let asked = || -> std::io::Result<u8> {
        let mut socket = socket::connect(address, PATIENCE, None)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(&cookie(&[0; 36]))?;
        let mut byte = [0];
        socket.read_exact(&mut byte).map(|()| byte[0])
    };
    asked().is_ok_and(|byte| matches!(State::of(byte), Some(State::ParamExchange | State::AccessDenied)))
}

/// Whether a measuring server of ekiden answers: it refuses a version that there is not, with keys or without.
pub fn is_ekiden(address: SocketAddr) -> bool {
    let asked = || -> std::io::Result<bool> {
        let mut socket = socket::connect(address, PATIENCE, None)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let settings: Box<LoadSettings> = Box::new(Asked::default().get().clone());
        socket.write_all(&PLAIN)?;
        socket.write_all(&encode(&Request::Measure { version: 0, settings, trace: Trace::No })?)?;
        let mut length = [0; 4];
        socket.read_exact(&mut length)?;
        let length = (u32::from_be_bytes(length) as usize).min(REPLY_BYTES_MOST);
        let mut bytes = Vec::new();
        socket.take(length as u64).read_to_end(&mut bytes)?;
        Ok(matches!(decode(&bytes), Ok(Reply::Refused { .. })))
    };
    asked().unwrap_or_default()
}
