//! What a program that starts waits for: that another process gives something up, or that the machine has it.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// The timeout of a start for all of it together. Then the start fails, and the service manager may start the program again.
pub const LONGEST: Duration = Duration::from_secs(5);

/// The interval between attempts. Clients that connect between the end of one process and the beginning of the next are
/// refused.
pub const LOOK: Duration = Duration::from_millis(5);
/// How often what takes longer is tried, such as reading a configuration.
pub const LOOK_ANEW: Duration = Duration::from_millis(200);

/// Until when a start that begins now waits.
pub fn deadline() -> Instant {
    Instant::now() + LONGEST
}

/// As [`patiently_every`], as often as is right for an attempt that costs nothing.
///
/// # Errors
/// The last one.
pub fn patiently<T, E>(
    until: Instant,
    attempt: impl FnMut() -> Result<T, E>,
    passes: impl Fn(&E) -> bool,
    waits: impl FnOnce(&E),
) -> Result<T, E> {
    patiently_every(LOOK, until, attempt, passes, waits)
}

/// Tries, with these pauses, until it succeeds, fails for a reason that does not pass, or `until`. `waits` is told the first reason. Blocks
/// the thread.
///
/// # Errors
/// The last one.
pub fn patiently_every<T, E>(
    pause: Duration,
    until: Instant,
    mut attempt: impl FnMut() -> Result<T, E>,
    passes: impl Fn(&E) -> bool,
    waits: impl FnOnce(&E),
) -> Result<T, E> {
    let mut waits = Some(waits);
    loop {
        match attempt() {
            Err(error) if passes(&error) && Instant::now() < until => {
                if let Some(waits) = waits.take() {
                    waits(&error);
                }
                sleep(pause);
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_waited_for_and_told_once() {
        let (mut tries, mut told) = (0, 0);
        let attempt = || {
            tries += 1;
            if tries < 4 { Err("in use") } else { Ok(tries) }
        };
        assert_eq!(patiently(deadline(), attempt, |_| true, |_| told += 1), Ok(4));
        assert_eq!(told, 1);
        let never = || Err::<(), _>("forbidden");
        assert_eq!(patiently(deadline(), never, |_| false, |_| unreachable!()), Err("forbidden"));
        assert_eq!(patiently(Instant::now(), never, |_| true, |_| ()), Err("forbidden"), "its time is over");
    }
}
