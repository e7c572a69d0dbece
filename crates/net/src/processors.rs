//! What this machine's processors did with their time.

use std::fs;

/// Time of all processors together since the machine started, in ticks (proc_stat(5), the line `cpu`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// All of it, without guests' of this machine, whose time is counted as the host's programs' already.
    pub whole: u64,
    /// What a hypervisor took for others.
    pub stolen: u64,
}

impl Times {
    /// Until now; `None` if the kernel does not say.
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        const STEAL: usize = 7;
        let times = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let times: Vec<u64> = times.split_whitespace().map_while(|time| time.parse().ok()).collect();
        // What follows it is time of guests.
        Some(Self { whole: times.iter().take(STEAL + 1).sum(), stolen: *times.get(STEAL)? })
    }

    /// The part of the time that a hypervisor took for others, in percent.
    pub fn stolen_percent(&self) -> f64 {
        100.0 * self.stolen as f64 / self.whole.max(1) as f64
    }

    /// The time since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self { whole: self.whole.saturating_sub(before.whole), stolen: self.stolen.saturating_sub(before.stolen) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_a_part_of_all_without_guests() {
        let times = Times::parse("cpu  10 0 20 60 0 0 0 10 5 5\ncpu0 1\n").unwrap();
        assert_eq!(times, Times { whole: 100, stolen: 10 });
        assert_eq!(times.stolen_percent(), 10.0);
        let later = Times { whole: 300, stolen: 20 };
        assert_eq!(later.since(&times).stolen_percent(), 5.0);
        assert_eq!(times.since(&times).stolen_percent(), 0.0);
    }

    #[test]
    fn a_kernel_that_does_not_say_is_no_error() {
        assert_eq!(Times::parse("cpu  10 0 20\n"), None);
        assert_eq!(Times::parse(""), None);
    }

    #[test]
    fn this_kernel_says() {
        assert!((0.0..=100.0).contains(&Times::now().unwrap().stolen_percent()));
    }
}
