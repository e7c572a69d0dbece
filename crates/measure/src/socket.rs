//! Sockets of loads, with the options that a load asks for, each at the moment at which it works.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use crate::message::Trace;
use ekiden_net::socket::{TcpOptions, clamp_window, limit_unsent, set_options};
use ekiden_record::LoadSettings;
use ekiden_units::Bytes;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Buffers of a traced load, where the kernel gives so much.
const TRACE_BUFFER_BYTES: u64 = 256 << 20;
/// What a traced sender writes ahead.
const TRACE_UNSENT_BYTES: u32 = 64 << 10;

/// What a socket is for.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// The load's settings.
    pub settings: &'a LoadSettings,
    /// Whether it sends.
    pub sends: bool,
    /// How closely it is looked at.
    pub trace: Trace,
}

/// Connects with the options that count from the SYN on: buffers decide the window scale (RFC 7323, section 2.2).
///
/// # Errors
/// The system's.
pub fn connect(address: SocketAddr, within: Duration, load: Option<Load<'_>>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(load) = &load {
        prepare(&socket, load).map_err(io::Error::other)?;
    }
    socket.set_tcp_nodelay(true)?;
    socket.connect_timeout(&address.into(), within)?;
    Ok(socket.into())
}

/// Sets what a load asks for on a socket that sends or receives.
///
/// # Errors
/// One line that names the option and what the kernel says.
pub fn prepare(socket: &impl AsFd, load: &Load<'_>) -> Result<(), String> {
    let Load { settings, sends, trace } = *load;
    let of = SockRef::from(socket);
    let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    of.set_tcp_nodelay(true).map_err(failed("TCP_NODELAY"))?;
    if let Some(mss) = settings.mss_bytes {
        of.set_tcp_mss(mss).map_err(failed("TCP_MAXSEG"))?;
    }
    let mut options = TcpOptions::default();
    if trace.is_close() {
        // As large as the kernel gives: the path is to be seen, not the buffers. Less written ahead ends it sooner.
        let size = Some(Bytes(TRACE_BUFFER_BYTES));
        let buffer = match sends {
            true => TcpOptions { send_buffer: size, ..options.clone() },
            false => TcpOptions { receive_buffer: size, ..options.clone() },
        };
        let _ = set_options(socket, &buffer);
        limit_unsent(socket, TRACE_UNSENT_BYTES).map_err(failed("TCP_NOTSENT_LOWAT"))?;
    }
    match sends {
        true => {
            options.congestion = settings.congestion.clone();
            options.send_buffer = settings.send_buffer_bytes.map(Bytes);
        }
        false => {
            // A kernel that tunes the buffer by itself raises the clamp, too. Small segments take several times their payload.
            let clamped = settings.window_bytes.map(|bytes| u64::from(bytes).saturating_mul(4));
            options.receive_buffer = settings.receive_buffer_bytes.or(clamped).map(Bytes);
        }
    }
    set_options(socket, &options).map_err(|error| error.to_string())?;
    match settings.window_bytes {
        Some(bytes) if !sends => clamp_window(socket, bytes).map_err(failed("TCP_WINDOW_CLAMP")),
        _ => Ok(()),
    }
}
