//! Asking the scheduler for short delays.

use std::io;

/// Gives the calling thread precise timers, and, where permitted, processor time soon after it wakes even when other
/// programs want it: most of every 200 µs under the deadline scheduler, or half of it if other such threads have taken
/// the rest; failing that, nice −20 with short slices.
///
/// Nice alone does not suffice: with `sched_autogroup_enabled` it counts only against programs of the same session. And
/// SCHED_FIFO, as well as a deadline thread that may reclaim what others leave (SCHED_FLAG_RECLAIM), now and then keeps
/// all other programs from a processor for most of a second.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`; timers are precise all the same.
pub fn prefer_this_thread() -> io::Result<()> {
    // SAFETY: takes two integers and changes nothing but the calling thread's timer slack.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
    let deadline = |runtime| Attributes {
        policy: libc::SCHED_DEADLINE as u32,
        runtime,
        deadline: 200_000,
        period: 200_000,
        ..Attributes::default()
    };
    let nice = Attributes { policy: libc::SCHED_OTHER as u32, nice: -20, runtime: 100_000, ..Attributes::default() };
    set(deadline(170_000)).or_else(|_| set(deadline(100_000))).or_else(|_| set(nice))
}

fn set(attributes: Attributes) -> io::Result<()> {
    let attributes = Attributes { size: size_of::<Attributes>() as u32, ..attributes };
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
