//! Asking the scheduler for short delays.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

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

/// How long that thread of a process that waited longest could have run and had no processor, since it began. Threads that have ended
/// do not count. `None` if there is no such process, or the kernel does not say (CONFIG_SCHED_INFO; sched-stats in the kernel's
/// documentation).
pub fn waited(process: u32) -> Option<Duration> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let waits = threads.flatten().filter_map(|thread| read_waited(&thread.path().join("schedstat")));
    waits.max()
}

/// The same for the calling thread.
pub fn waited_here() -> Option<Duration> {
    read_waited(Path::new("/proc/thread-self/schedstat"))
}

/// Three numbers: nanoseconds on a processor, nanoseconds of waiting for one, and how often it got one.
fn read_waited(schedstat: &Path) -> Option<Duration> {
    let text = fs::read_to_string(schedstat).ok()?;
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn threads_that_share_a_processor_wait_for_it() {
        let (processors, own) = (thread::available_parallelism().unwrap().get(), std::process::id());
        let before = waited(own).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            // One more than there are processors: together they wait for as long as they run.
            let spinners: Vec<_> = (0..=processors)
                .map(|_| {
                    scope.spawn(|| {
                        while !stop.load(Ordering::Relaxed) {
                            std::hint::spin_loop();
                        }
                        waited_here().unwrap()
                    })
                })
                .collect();
            let since = Instant::now();
            let most = Duration::from_secs(10);
            while waited(own).unwrap() < before + Duration::from_millis(20) && since.elapsed() < most {
                thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::Relaxed);
            let waits: Duration = spinners.into_iter().map(|spinner| spinner.join().unwrap()).sum();
            assert!(waits >= Duration::from_millis(10), "{waits:?}");
        });
        assert_eq!(waited(u32::MAX), None);
    }
}
