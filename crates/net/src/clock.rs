//! Two clocks: the monotonic one, which never steps, and the realtime one, with which the kernel stamps packets.

use std::io;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn monotonic_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// Nanoseconds of `CLOCK_REALTIME`, in which `SO_TIMESTAMPNS` reports.
pub fn realtime_ns() -> u64 {
    read(ClockId::CLOCK_REALTIME)
}

/// Whether something keeps `CLOCK_REALTIME` right, as NTP does (adjtimex(2)).
///
/// # Errors
/// If the kernel does not say.
pub fn is_synchronised() -> io::Result<bool> {
    // SAFETY: it holds integers only, for which zeros are valid; without a mode nothing is set.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a structure that the kernel fills.
    match unsafe { libc::adjtimex(&raw mut state) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(state.status & libc::STA_UNSYNC == 0),
    }
}

/// Processor time of the calling thread, in microseconds.
pub fn thread_processor_us() -> u64 {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID) / 1_000
}

/// Sleeps until the monotonic clock shows `at_ns`, about 50 µs longer unless the thread's timer slack is small.
pub fn sleep_until(at_ns: u64) {
    let now = monotonic_ns();
    if at_ns > now {
        std::thread::sleep(Duration::from_nanos(at_ns - now));
    }
}

fn read(clock: ClockId) -> u64 {
    // Cannot fail: these clocks exist on every Linux. A zero would only mean a frame without delay.
    let Ok(time) = clock_gettime(clock) else { return 0 };
    (time.tv_sec() as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec() as u64)
}
