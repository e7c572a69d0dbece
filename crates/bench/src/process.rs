//! What the kernel says about processes: CPU time and memory, of one and of all its descendants.

use std::fs;
use std::io;
use std::time::Duration;

use anyhow::{Context, Result};
use ekiden_net::processors::Times;
use nix::unistd::{SysconfVar, sysconf};

/// One line of /proc/PID/stat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    pid: u32,
    parent: u32,
    /// User and system time of all its threads, in clock ticks.
    ticks: u64,
}

/// The CPU time that `root` and its descendants have used so far. Threads count, processes that have ended do not.
pub fn cpu_of_tree(root: u32) -> Result<Duration> {
    let all = all()?;
    let tree = tree(&all, root);
    to_time(all.iter().filter(|stat| tree.contains(&stat.pid)).map(|stat| stat.ticks).sum())
}

/// The CPU time of all processes in this PID namespace.
pub fn cpu_of_all() -> Result<Duration> {
    to_time(all()?.iter().map(|stat| stat.ticks).sum())
}

/// The time that the machine's CPUs have spent on anything, what a hypervisor took included.
pub fn cpu_of_machine() -> Result<Duration> {
    let times = Times::now().context("cannot understand /proc/stat")?;
    to_time(times.whole - times.idle)
}

/// The number of CPUs.
pub fn cpus() -> Result<usize> {
    let cpus = sysconf(SysconfVar::_NPROCESSORS_ONLN)?.context("the kernel does not say how many CPUs there are")?;
    Ok(usize::try_from(cpus)?)
}

/// The memory of `root` and its descendants in bytes; pages shared by n processes count as 1/n.
pub fn memory_of_tree(root: u32) -> Result<u64> {
    let mut sum = 0;
    for pid in tree(&all()?, root) {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        sum += parse_pss(&text).with_context(|| format!("cannot understand {path}"))?;
    }
    Ok(sum)
}

fn all() -> Result<Vec<Stat>> {
    let mut stats = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot read /proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        match fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(text) => stats.push(parse_stat(&text).with_context(|| format!("cannot understand /proc/{pid}/stat"))?),
            // It has ended since.
            Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(3) => {}
            Err(error) => return Err(error).with_context(|| format!("cannot read /proc/{pid}/stat")),
        }
    }
    Ok(stats)
}

/// `root` and its descendants.
fn tree(all: &[Stat], root: u32) -> Vec<u32> {
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(&parent) = tree.get(next) {
        tree.extend(all.iter().filter(|stat| stat.parent == parent).map(|stat| stat.pid));
        next += 1;
    }
    tree
}

fn to_time(ticks: u64) -> Result<Duration> {
    let per_second = sysconf(SysconfVar::CLK_TCK)?.context("the kernel does not say how long a tick is")?;
    Ok(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// The name of a program may contain anything, also parentheses and spaces, so fields count from the last parenthesis.
fn parse_stat(line: &str) -> Option<Stat> {
    let (pid, _) = line.split_once(' ')?;
    let (_, rest) = line.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat { pid: pid.parse().ok()?, parent: fields.get(1)?.parse().ok()?, ticks: number(11)? + number(12)? })
}

fn parse_pss(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "4242 (a) R (b c) S 17 4242 4242 0 -1 4194560 906 0 0 0 31 12 5 6 20 0 1 0 51 1 2 3\n";

    #[test]
    fn a_name_with_parentheses_and_spaces_moves_no_field() {
        assert_eq!(parse_stat(LINE), Some(Stat { pid: 4242, parent: 17, ticks: 43 }));
    }

    #[test]
    fn a_line_cut_short_is_not_understood() {
        assert_eq!(parse_stat("4242 (x) S 17 4242"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn a_tree_is_the_root_with_children_and_grandchildren_only() {
        let stat = |pid, parent| Stat { pid, parent, ticks: 0 };
        let all = [stat(1, 0), stat(5, 1), stat(6, 5), stat(7, 6), stat(8, 1)];
        assert_eq!(tree(&all, 5), [5, 6, 7]);
    }

    #[test]
    fn pss_is_in_kilobytes() {
        assert_eq!(parse_pss("Rss:  10 kB\nPss:                 123 kB\nPss_Dirty: 7 kB\n"), Some(123 * 1024));
    }

    #[test]
    fn this_process_uses_cpu_and_memory() {
        let own = std::process::id();
        let before = cpu_of_tree(own).unwrap();
        let mut sum = 0u64;
        while cpu_of_tree(own).unwrap() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(memory_of_tree(own).unwrap() > 100_000);
        assert!(cpus().unwrap() > 0);
        assert!(cpu_of_machine().unwrap() >= before);
        assert!(cpu_of_all().unwrap() >= before);
    }
}
