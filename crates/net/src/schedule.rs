//! Asking the scheduler for short delays.

use std::io;

/// Gives the calling thread precise timers, and, where permitted, nice −20 with short slices, so that it runs soon
/// after it wakes even when other programs want the processor.
///
/// Not the real-time classes: those are throttled for 50 ms when they use most of a processor.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`; timers are precise all the same.
pub fn prefer_this_thread() -> io::Result<()> {
    const SLICE_NS: u64 = 100_000;
    // SAFETY: takes two integers and changes nothing but the calling thread's timer slack.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        nice: -20,
        runtime: SLICE_NS,
        ..Attributes::default()
    };
    // SAFETY: `attributes` is a struct sched_attr of the size it states; the kernel only reads it.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `struct sched_attr` of sched_setattr(2), in its first published size.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}
