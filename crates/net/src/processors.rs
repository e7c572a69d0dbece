//! Reads how this machine's processors have spent their time, and keeps them from sleeping.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::kernel_text::kernel_text;
use crate::schedule;

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

/// Keeps every processor that this process may use busy while it lives, with a thread that gives way to all others
/// (SCHED_IDLE). Of all such threads on the machine one computes on each processor: others of that class would have to share it
/// with them.
///
/// A virtual processor with nothing to do is given to other machines, also while it polls for work ([`Awake`]): a hypervisor
/// sees that it waits, and may bring it back tens of milliseconds later. One that computes keeps its place. It needs no
/// privilege, and costs power, and processor time of other machines on the same hypervisor.
#[derive(Debug)]
pub struct Busy {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    /// A processor for which no thread can be had is left as it is. None is kept busy where a control group limits this
    /// process's processor time: it would be used up.
    pub fn keep() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        if is_limited(&kernel_text("/proc/self/cgroup").unwrap_or_default(), Path::new("/sys/fs/cgroup")) {
            return Self { is_over, threads: Vec::new() };
        }
        let usable = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
        let usable = (0..CpuSet::count()).filter(|processor| usable.is_set(*processor).unwrap_or(false));
        let turns = File::options().write(true).open(TURNS).ok().map(Arc::new);
        let threads = usable.filter_map(|processor| Self::start(processor, turns.clone(), Arc::clone(&is_over)).ok());
        let threads = threads.collect();
        Self { is_over, threads }
    }

    fn start(processor: usize, turns: Option<Arc<File>>, is_over: Arc<AtomicBool>) -> io::Result<JoinHandle<()>> {
        thread::Builder::new().name("busy".into()).spawn(move || {
            let mut here = CpuSet::new();
            let is_placed = here.set(processor).and_then(|()| sched_setaffinity(Pid::from_raw(0), &here)).is_ok();
            if !is_placed || schedule::give_way().is_err() {
                return;
            }
            while !is_over.load(Ordering::Relaxed) && turns.as_ref().is_some_and(|turns| is_taken(turns, processor)) {
                thread::park_timeout(TAKEN_CHECK);
            }
            // Not `spin_loop`: its instruction tells the hypervisor that this processor waits.
            while !is_over.load(Ordering::Relaxed) {}
        })
    }
}

/// The file with one byte for each processor, which the thread that keeps it busy has locked. All programs of a machine can open it,
/// and a lock changes nothing of it.
const TURNS: &str = "/dev/null";

/// How often a thread looks whether the one that keeps its processor busy has ended.
const TAKEN_CHECK: Duration = Duration::from_millis(50);

/// Whether another process keeps this processor busy. If not, this one has the turn from now on, until `turns` is closed.
fn is_taken(turns: &File, processor: usize) -> bool {
    let byte = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: processor as libc::off_t,
        l_len: 1,
        l_pid: 0,
    };
    matches!(fcntl(turns, FcntlArg::F_OFD_SETLK(&byte)), Err(Errno::EAGAIN | Errno::EACCES))
}

/// Whether a control group limits the processor time of a process, by what /proc/PID/cgroup says of it (cgroups(7)) and the
/// files below `root`.
fn is_limited(groups: &str, root: &Path) -> bool {
    groups.lines().any(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { return false };
        let (folder, file, without) = match controllers {
            "" => (root.to_owned(), "cpu.max", "max"),
            _ if controllers.split(',').any(|controller| controller == "cpu") => {
                (root.join("cpu"), "cpu.cfs_quota_us", "-1")
            }
            _ => return false,
        };
        // A limit of a group holds for those in it. In a container the path may be one that is not to be seen.
        Path::new(group.trim_start_matches('/')).ancestors().any(|group| {
            fs::read_to_string(folder.join(group).join(file)).is_ok_and(|limit| !limit.starts_with(without))
        })
    })
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_keep_processors_busy_give_way_and_end() {
        let busy = Busy::keep();
        let class_of =
            |line: &str| line.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(38)?.parse().ok());
        // The field `policy` of proc_pid_stat(5). A thread that has begun may not have given way yet.
        let begun = std::time::Instant::now();
        loop {
            let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
            let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
            let stats: Vec<_> = stats.filter(|stat| stat.contains("(busy)")).collect();
            if stats.len() == busy.threads.len() && stats.iter().all(|stat| class_of(stat) == Some(libc::SCHED_IDLE)) {
                break;
            }
            assert!(begun.elapsed().as_secs() < 60, "{stats:?}");
            thread::yield_now();
        }
        drop(busy);
        // The kernel shows a thread that has been joined for a moment longer.
        loop {
            let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
            let names: Vec<_> = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok()).collect();
            if !names.iter().any(|name| name.trim() == "busy") {
                break;
            }
            assert!(begun.elapsed().as_secs() < 60, "{names:?}");
            thread::yield_now();
        }
    }

    #[test]
    fn a_processor_is_kept_busy_by_one_of_all() {
        let (first, second) = (File::options().write(true).open(TURNS), File::options().write(true).open(TURNS));
        let (first, second) = (first.unwrap(), second.unwrap());
        // No machine has it.
        let processor = CpuSet::count() + std::process::id() as usize;
        assert!(!is_taken(&first, processor) && is_taken(&second, processor) && !is_taken(&second, processor + 1));
        drop(first);
        assert!(!is_taken(&second, processor));
    }

    #[test]
    fn a_limit_of_a_control_group_or_of_one_around_it_is_seen() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert!(!is_limited("0::/a/b\n", root.path()));
        write("a/b/cpu.max", "max 100000\n");
        assert!(!is_limited("0::/a/b\n", root.path()));
        write("a/cpu.max", "150000 100000\n");
        assert!(is_limited("0::/a/b\n", root.path()));
        assert!(!is_limited("0::/\n", root.path()));
        write("cpu/x/cpu.cfs_quota_us", "-1\n");
        assert!(!is_limited("3:cpu,cpuacct:/x\n2:memory:/a\n", root.path()));
        write("cpu/cpu.cfs_quota_us", "50000\n");
        assert!(is_limited("3:cpu,cpuacct:/x\n", root.path()));
        assert!(!is_limited("2:memory:/a\nrubbish\n", root.path()));
    }

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
