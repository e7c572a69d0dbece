//! Sockets of loads, with the options that a load asks for, each at the moment at which it works.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use ekiden_measure_proto::message::{PLAIN_SEGMENT_BYTES, Trace};
use ekiden_net::privileges::{Capability, has};
use ekiden_net::socket::{SocketError, TcpOptions, clamp_window, limit_unsent, set_options};
use ekiden_record::LoadSettings;
use ekiden_units::Bytes;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Bytes of a buffer of a traced load, where the kernel allows that.
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

/// Connects with the options that count from the SYN on: buffers decide the window scale (RFC 7323, section 2.2), and segments are no longer
/// than [`PLAIN_SEGMENT_BYTES`] without a load.
///
/// # Errors
/// The system's.
pub fn connect(address: SocketAddr, within: Duration, load: Option<Load<'_>>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    match &load {
        Some(load) => prepare(&socket, load).map_err(io::Error::other)?,
        None => socket.set_tcp_mss(PLAIN_SEGMENT_BYTES.into())?,
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
    if trace.is_close() {
        // The path is to be seen, not the buffers. Without the privilege the kernel's own tuning gives more than the limit does that it sets.
        if has(Capability::CAP_NET_ADMIN) {
            let size = Some(Bytes(TRACE_BUFFER_BYTES));
            let buffer = match sends {
                true => TcpOptions { send_buffer: size, ..TcpOptions::default() },
                false => TcpOptions { receive_buffer: size, ..TcpOptions::default() },
            };
            let _ = set_options(socket, &buffer);
        }
        // Less written ahead ends it sooner.
        limit_unsent(socket, TRACE_UNSENT_BYTES).map_err(failed("TCP_NOTSENT_LOWAT"))?;
    }
    set_options(socket, &options(settings, sends)).map_err(|error| error.to_string())?;
    match settings.window_bytes {
        Some(bytes) if !sends => clamp_window(socket, bytes).map_err(failed("TCP_WINDOW_CLAMP")),
        _ => Ok(()),
    }
}

/// Finds out whether this end's kernel gives a sender or receiver what a load asks for.
///
/// # Errors
/// One line that says what is lacking and what to do.
pub fn check(settings: &LoadSettings, sends: bool) -> Result<(), String> {
    ekiden_net::socket::check(&options(settings, sends)).map_err(|error| match error {
        SocketError::UnknownCongestion { ref name, .. } => {
            format!("{error}; load it (modprobe tcp_{name}), or ask for another")
        }
        SocketError::ForbiddenCongestion { ref name, .. } => {
            format!("{error}; allow it (add {name} to net.ipv4.tcp_allowed_congestion_control), or ask for another")
        }
        SocketError::Buffer { size, most, sysctl, .. } => format!(
            "{} {size} is more than the {most} bytes that net.core.{sysctl} allows; raise it there, or ask for less",
            if sends { "--send-buffer" } else { "--receive-buffer (or four times --window)" },
        ),
        other => other.to_string(),
    })
}

/// The options of a sender or receiver.
fn options(settings: &LoadSettings, sends: bool) -> TcpOptions {
    let mut options = TcpOptions::default();
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
    options
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use ekiden_net::tcp_info::tcp_info;

    use super::*;
    use ekiden_measure_proto::settings::Asked;

    #[test]
    fn both_ends_of_a_connection_without_a_load_send_short_segments() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let most = |load| {
            let near = connect(listener.local_addr().unwrap(), Duration::from_secs(9), load).unwrap();
            let (far, _) = listener.accept().unwrap();
            [near, far].map(|socket| tcp_info(&socket).unwrap().mss_bytes).into_iter().max().unwrap()
        };
        assert!(most(None) <= u32::from(PLAIN_SEGMENT_BYTES));
        let asked = Asked::default();
        let load = Load { settings: asked.get(), sends: true, trace: Trace::No };
        assert!(most(Some(load)) > u32::from(PLAIN_SEGMENT_BYTES));
    }
}
