//! Reads how this machine's processors have spent their time, and keeps them from sleeping.

use std::fs::{self, File};
use std::io::{self, Write};

/// Time of all processors together since the machine started, in ticks (proc_stat(5), the line `cpu`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// All of it, without the time of this machine's guests, which is already counted as that of the programs that run them.
    pub whole: u64,
    /// Time in which there was nothing to do, or only a disk to wait for.
    pub idle: u64,
    /// Time that a hypervisor took for other machines.
    pub stolen: u64,
}

impl Times {
    /// The times until now. `None` if the kernel does not say.
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        const IDLE: usize = 3;
        const STEAL: usize = 7;
        let times = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let times: Vec<u64> = times.split_whitespace().map_while(|time| time.parse().ok()).collect();
        // The fields after this one are the time of guests.
        Some(Self {
            whole: times.iter().take(STEAL + 1).sum(),
            idle: times.get(IDLE..IDLE + 2)?.iter().sum(),
            stolen: *times.get(STEAL)?,
        })
    }

    /// The part of the time that a hypervisor took for others, in percent.
    pub fn stolen_percent(&self) -> f64 {
        100.0 * self.stolen as f64 / self.whole.max(1) as f64
    }

    /// The time since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            whole: self.whole.saturating_sub(before.whole),
            idle: self.idle.saturating_sub(before.idle),
            stolen: self.stolen.saturating_sub(before.stolen),
        }
    }
}

/// Keeps this machine's processors from sleeping while it lives: an idle processor polls for work instead. To wake a processor
/// from its deepest sleep takes up to 1 ms. To get back a virtual processor that has halted takes many, because the hypervisor
/// gives it to other machines meanwhile.
///
/// It is a request to the kernel (Documentation/power/pm_qos_interface.rst) that ends with the process, however that ends. It
/// costs power, and processor time of other machines on the same hypervisor.
#[derive(Debug)]
pub struct Awake {
    _promised: File,
}

impl Awake {
    /// Takes effect at once.
    ///
    /// # Errors
    /// `EACCES` without root (in a user namespace too), `ENOENT` where there is no such device.
    pub fn keep() -> io::Result<Self> {
        let mut promised = File::options().write(true).open("/dev/cpu_dma_latency")?;
        promised.write_all(&0i32.to_ne_bytes())?;
        Ok(Self { _promised: promised })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_a_part_of_all_without_guests() {
        let times = Times::parse("cpu  10 0 20 50 10 0 0 10 5 5\ncpu0 1\n").unwrap();
        assert_eq!(times, Times { whole: 100, idle: 60, stolen: 10 });
        assert_eq!(times.stolen_percent(), 10.0);
        let later = Times { whole: 300, idle: 70, stolen: 20 };
        assert_eq!(later.since(&times).stolen_percent(), 5.0);
        assert_eq!(times.since(&times).stolen_percent(), 0.0);
    }

    #[test]
    fn a_kernel_that_does_not_say_is_no_error() {
        assert_eq!(Times::parse("cpu  10 0 20\n"), None);
        assert_eq!(Times::parse(""), None);
    }

    #[test]
    fn a_promise_is_kept_where_it_may_be_made() {
        let promised = || fs::read("/dev/cpu_dma_latency").unwrap();
        match Awake::keep() {
            Ok(_awake) => assert_eq!(promised(), 0i32.to_ne_bytes()),
            Err(error) => assert!([io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied].contains(&error.kind())),
        }
    }

    #[test]
    fn this_kernel_says() {
        assert!((0.0..=100.0).contains(&Times::now().unwrap().stolen_percent()));
    }
}
