//! Reads what the kernel knows about a connection: `TCP_INFO`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use ekiden_tcp_info::{Options, TcpInfo};

/// Asks the kernel about a TCP socket. Works from any thread and namespace.
///
/// # Errors
/// If it is not a TCP socket.
pub fn tcp_info(socket: &impl AsFd) -> io::Result<TcpInfo> {
    raw_info(socket).map(|raw| TcpInfo::from(&raw))
}

fn raw_info(socket: &impl AsFd) -> io::Result<Raw> {
    let mut raw = Raw::default();
    let mut length = size_of::<Raw>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the pointer and length describe `raw`, which holds integers only; the kernel fills a prefix.
    let result =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut raw).cast(), &raw mut length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(raw) }
}

/// As [`tcp_info`], with what the socket's send buffer holds: one more system call.
///
/// # Errors
/// If it is not a TCP socket.
pub fn tcp_info_with_memory(socket: &impl AsFd) -> io::Result<TcpInfo> {
    let info = tcp_info(socket)?;
    let fd = socket.as_fd().as_raw_fd();
    let mut memory = [0_u32; MEMORY_NUMBERS];
    let mut length = size_of_val(&memory) as libc::socklen_t;
    // SAFETY: the pointer and length describe `memory`; the kernel fills a prefix. It stays as it is where the option is not known.
    let _ = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, memory.as_mut_ptr().cast(), &raw mut length)
    };
    Ok(with_memory(info, memory))
}

/// The number of used values of `SK_MEMINFO_…` in linux/sock_diag.h.
pub(crate) const MEMORY_NUMBERS: usize = 6;
const SEND_BUFFER: usize = 3;
const SEND_QUEUED: usize = 5;

/// With what the kernel says of a socket's memory, `SK_MEMINFO_…` of linux/sock_diag.h.
pub(crate) fn with_memory(info: TcpInfo, memory: [u32; MEMORY_NUMBERS]) -> TcpInfo {
    TcpInfo { send_memory_bytes: memory[SEND_QUEUED], send_memory_most_bytes: memory[SEND_BUFFER], ..info }
}

/// From the bytes of a `struct tcp_info` alone, which an older kernel gives fewer of, and a newer one more; `None` if they are fewer
/// than the structure ever had.
pub(crate) fn of_bytes(bytes: &[u8]) -> Option<TcpInfo> {
    if bytes.len() < BYTES_LEAST {
        return None;
    }
    let mut raw = Raw::default();
    let length = bytes.len().min(size_of::<Raw>());
    // SAFETY: `raw` holds integers only, for which all bytes are valid, and both `bytes` and `raw` have at least `length` bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut raw).cast::<u8>(), length) };
    Some(TcpInfo::from(&raw))
}

/// Up to `total_retrans`, as in Linux 2.6.
const BYTES_LEAST: usize = std::mem::offset_of!(Raw, pacing_rate);

impl From<&Raw> for TcpInfo {
    fn from(raw: &Raw) -> Self {
        Self {
            cwnd_segments: raw.snd_cwnd,
            ssthresh_segments: raw.snd_ssthresh,
            rtt_us: raw.rtt,
            rtt_min_us: raw.min_rtt,
            retransmits: raw.total_retrans,
            unacked_segments: raw.unacked,
            sacked_segments: raw.sacked,
            lost_segments: raw.lost,
            acked_bytes: raw.bytes_acked,
            sent_bytes: raw.bytes_sent,
            resent_bytes: raw.bytes_retrans,
            received_bytes: raw.bytes_received,
            data_segments_in: raw.data_segs_in,
            out_of_order_segments: raw.rcv_ooopack,
            is_application_limited: raw.state_and_flags[APPLICATION_LIMITED_AT] & 1 != 0,
            // After a reset the kernel still counts unsent data.
            unsent_bytes: if raw.state_and_flags[0] == CLOSED { 0 } else { raw.notsent_bytes },
            send_memory_bytes: 0,
            send_memory_most_bytes: 0,
            delivery_bytes_s: raw.delivery_rate,
            pacing_bytes_s: raw.pacing_rate,
            delivered_segments: raw.delivered,
            send_window_bytes: raw.snd_wnd,
            mss_bytes: raw.snd_mss,
            advertised_mss_bytes: raw.advmss,
            arrived_mss_bytes: raw.rcv_mss,
            path_mtu_bytes: raw.pmtu,
            options: options(raw.state_and_flags[OPTIONS_AT]),
            busy_us: raw.busy_time,
            window_limited_us: raw.rwnd_limited,
            buffer_limited_us: raw.sndbuf_limited,
            last_ack_ms: raw.last_ack_recv,
            last_sent_ms: raw.last_data_sent,
            last_received_ms: raw.last_data_recv,
            timeouts: raw.total_rto.into(),
            // As numbered in linux/tcp_states.h.
            is_ending: matches!(raw.state_and_flags[0], 4 | 9 | 11),
            has_received_end: matches!(raw.state_and_flags[0], 8 | 9 | 11),
            is_over: raw.state_and_flags[0] == CLOSED,
            unanswered_probes: raw.state_and_flags[PROBES_AT],
        }
    }
}

/// TCP_CLOSE in linux/tcp_states.h.
const CLOSED: u8 = 7;
/// The places of `tcpi_probes` and of the options among the first bytes.
const PROBES_AT: usize = 3;
const OPTIONS_AT: usize = 5;
/// The place of `tcpi_delivery_rate_app_limited`, which is the lowest bit there.
const APPLICATION_LIMITED_AT: usize = 7;

/// `TCPI_OPT_…` of linux/tcp.h.
fn options(bits: u8) -> Options {
    Options { timestamps: bits & 1 != 0, sack: bits & 2 != 0, window_scaling: bits & 4 != 0 }
}

/// `struct tcp_info` of linux/tcp.h, up to the last member used here.
#[repr(C)]
#[derive(Default)]
struct Raw {
    state_and_flags: [u8; 8],
    rto: u32,
    ato: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt: u32,
    rttvar: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt: u32,
    rcv_space: u32,
    total_retrans: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
    delivered: u32,
    delivered_ce: u32,
    bytes_sent: u64,
    bytes_retrans: u64,
    dsack_dups: u32,
    reord_seen: u32,
    rcv_ooopack: u32,
    snd_wnd: u32,
    rcv_wnd: u32,
    rehash: u32,
    total_rto: u16,
    total_rto_recoveries: u16,
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use ekiden_units::Bytes;

    use super::*;
    use crate::socket::{TcpOptions, new_socket};

    /// The window scale that a connection's own side has offered: its half of `tcpi_snd_wscale` and `tcpi_rcv_wscale`.
    fn offered_scale(options: &TcpOptions) -> u8 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let socket = new_socket(address, options).unwrap();
        socket.set_nonblocking(false).unwrap();
        socket.connect(&address.into()).unwrap();
        raw_info(&socket).unwrap().state_and_flags[6] >> 4
    }

    /// Only kernels whose SO_RCVLOWAT clamps the window can fail it: most before Linux 6.18.
    #[test]
    fn the_window_with_which_a_connection_begins_does_not_bound_the_one_it_may_grow_to() {
        let given = TcpOptions { first_window: Some(Bytes(128 << 10)), ..TcpOptions::default() };
        let small = TcpOptions { receive_buffer: Some(Bytes(128 << 10)), ..TcpOptions::default() };
        let scale = offered_scale(&TcpOptions::default());
        assert_eq!(offered_scale(&given), scale);
        assert!(offered_scale(&small) < scale, "{scale}");
    }

    #[test]
    fn what_a_kernel_does_not_know_is_zero_and_what_it_knows_beyond_is_left_out() {
        let mut bytes = vec![0; 400];
        bytes[0] = 4;
        bytes[APPLICATION_LIMITED_AT] = 1;
        for (field, value) in [(std::mem::offset_of!(Raw, rtt), 7_u32), (std::mem::offset_of!(Raw, snd_wnd), 9)] {
            bytes[field..field + 4].copy_from_slice(&value.to_ne_bytes());
        }
        let whole = of_bytes(&bytes).unwrap();
        assert_eq!((whole.rtt_us, whole.send_window_bytes), (7, 9));
        assert!(whole.is_ending && whole.is_application_limited);
        let old = of_bytes(&bytes[..BYTES_LEAST]).unwrap();
        assert_eq!((old.rtt_us, old.send_window_bytes), (7, 0));
        assert_eq!(of_bytes(&bytes[..BYTES_LEAST - 1]), None);
    }
}
