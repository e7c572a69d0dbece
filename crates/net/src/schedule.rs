//! Asking the scheduler for short delays.

use std::io;

/// Gives the calling thread precise timers. Where permitted, it also gets processor time soon after it wakes, even when other
/// programs want it. With the deadline scheduler that is most of every 200 µs, or half of it if other such threads have taken
/// the rest. Without, it has nice −20 and short slices.
///
/// Nice alone is not enough: with `sched_autogroup_enabled` it counts only against programs of the same session. SCHED_FIFO is
/// too much: now and then it keeps all other programs from a processor for most of a second. So does a deadline thread that may
/// use what others leave (SCHED_FLAG_RECLAIM).
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`; timers are precise all the same.
pub fn prefer_this_thread() -> io::Result<()> {
    exact_timers();
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

/// Gives the calling thread precise timers, and nothing else: without it a thread may wake 50 µs late, on purpose.
pub fn exact_timers() {
    // SAFETY: takes two integers and changes nothing but the calling thread's timer slack.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
}

/// The calling thread gets only the time that no other thread wants (SCHED_IDLE).
///
/// # Errors
/// What sched_setattr(2) says; it needs no privilege.
pub fn give_way() -> io::Result<()> {
    set(Attributes { policy: libc::SCHED_IDLE as u32, ..Attributes::default() })
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
