//! What the machine, its kernel and this process can do.

use std::fs;
use std::path::Path;

use ekiden_net::processors::Times;
use ekiden_net::socket::raise_open_files;
use ekiden_net::{clock, device, kernel_text};

use crate::{Finding, Remedy, Verdict};

/// Streams that a node serves at one time with ten descriptors, about: each takes two, a quarter of all is for pipes, and up to
/// an eighth for looking up names and the like.
const STREAMS_OF_TEN: u64 = 3;
/// Fewer descriptors than this are few for a relay.
const FEW_DESCRIPTORS: u64 = 4096;
/// A hypervisor that takes more than this part of the processors' time makes round trips longer, in percent.
const MUCH_STOLEN_PERCENT: f64 = 2.0;
/// The MTU of Ethernet.
const USUAL_MTU: u32 = 1500;

/// Capabilities, by their number in capability.h, and what is missing without them.
const CAPABILITIES: &[(u8, &str, &str)] = &[
    (10, "CAP_NET_BIND_SERVICE", "ports below 1024 cannot be listened on"),
    (
        12,
        "CAP_NET_ADMIN",
        "buffers beyond net.core.*mem_max and the kernel's reserved congestion controls are not available",
    ),
    (39, "CAP_BPF", "ekiden's congestion controls cannot be brought into the kernel"),
];

/// Those that bringing a congestion control in takes: CAP_NET_ADMIN, CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF.
const TO_BRING_IN: [u8; 4] = [12, 21, 38, 39];

/// The first kernel that takes them (docs/guide/congestion.md).
const KERNEL: (u32, u32) = (6, 4);

/// Looks at the machine.
pub fn machine() -> Vec<Finding> {
    let mut findings = vec![congestion(), for_lossy_legs(&sysctl("available_congestion_control"), loads()), btf()];
    findings.extend(capabilities());
    findings.push(descriptors());
    findings.extend(Times::now().as_ref().map(stolen));
    findings.extend(synchronised());
    findings.extend(mtus());
    findings
}

fn congestion() -> Finding {
    let found = format!("{}; available: {}", sysctl("congestion_control"), sysctl("available_congestion_control"));
    Finding::new("congestion control", found, Verdict::Good)
}

fn sysctl(key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{key}"));
    text.map_or("unknown".into(), |text| text.trim().to_owned())
}

/// Who can load ekiden's congestion controls into this kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loads {
    /// Whoever looks.
    Own,
    /// Root, from the first user namespace.
    Root,
    /// Nobody: it is too old, or has no types.
    Nobody,
}

/// Whether there is a control for legs that lose packets at random. The kernel loads a module by itself only for a privileged process.
fn for_lossy_legs(available: &str, loads: Loads) -> Finding {
    const SUBJECT: &str = "for legs that lose packets";
    let has = |name: &str| available.split_whitespace().any(|control| control == name);
    let found = match (has("ekiden_far") || loads == Loads::Own, has("bbr"), loads) {
        (true, true, _) => "ekiden_far, or bbr, which leaves others little",
        (true, false, _) => "ekiden_far",
        (false, true, Loads::Nobody) => {
            "bbr, which leaves others little; ekiden_far needs Linux 6.4 or newer, with BTF"
        }
        (false, true, _) => {
            "bbr, which leaves others little; ekiden_far only where root loads it (docs/guide/congestion.md)"
        }
        (false, false, _) => {
            let far = match loads {
                Loads::Nobody => "ekiden_far needs Linux 6.4 or newer, with BTF, and root may modprobe tcp_bbr",
                _ => "root loads ekiden_far (docs/guide/congestion.md), and modprobe tcp_bbr bbr, if the kernel has it",
            };
            let without = format!("{far}; other controls leave most of such a line unused");
            return Finding::new(SUBJECT, "neither ekiden_far nor bbr is loaded", Verdict::Note(without));
        }
    };
    Finding::new(SUBJECT, found, Verdict::Good)
}

/// Who can load ekiden's congestion controls into the kernel: a process that has the capabilities, from the first user namespace.
fn loads() -> Loads {
    let text = |path| kernel_text(path).unwrap_or_default();
    let held = effective(&text("/proc/self/status"));
    let needed = TO_BRING_IN.iter().fold(0, |all, number| all | 1 << number);
    let is_first = text("/proc/self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]);
    if !has_types() || release(&text("/proc/sys/kernel/osrelease")) < Some(KERNEL) {
        return Loads::Nobody;
    }
    if held & needed == needed && is_first { Loads::Own } else { Loads::Root }
}

/// The first two numbers of a kernel's release.
fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn has_types() -> bool {
    Path::new("/sys/kernel/btf/vmlinux").exists()
}

fn btf() -> Finding {
    match has_types() {
        true => Finding::new("kernel types (BTF)", "there", Verdict::Good),
        false => Finding::new(
            "kernel types (BTF)",
            "not there",
            Verdict::Note("ekiden's congestion controls cannot be brought into this kernel".into()),
        ),
    }
}

fn capabilities() -> Vec<Finding> {
    let status = kernel_text("/proc/self/status").unwrap_or_default();
    let held = effective(&status);
    let judge = |&(number, name, without): &(u8, &str, &str)| match held >> number & 1 {
        1 => Finding::new(name, "held", Verdict::Good),
        _ => Finding::new(name, "not held by this process", Verdict::Note(without.into())),
    };
    CAPABILITIES.iter().map(judge).collect()
}

/// The effective capabilities in a text of `/proc/PID/status`; none if it does not say.
fn effective(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or_default()
}

fn descriptors() -> Finding {
    // A node raises its limit by itself as far as it may; so does this process, which ends soon.
    let Ok(most) = raise_open_files() else {
        return Finding::new("open files", "unknown", Verdict::Good);
    };
    let found = format!("at most {most}, so about {} streams at one time", most / 10 * STREAMS_OF_TEN);
    let verdict = match most < FEW_DESCRIPTORS {
        false => Verdict::Good,
        true => Verdict::Costs {
            what: "more than that wait until others end".into(),
            remedy: Remedy::Advice("raise the hard limit: LimitNOFILE= of its service, or ulimit -Hn"),
        },
    };
    Finding::new("open files", found, verdict)
}

/// How much of the processors' time since boot a hypervisor has taken.
fn stolen(times: &Times) -> Finding {
    let percent = times.stolen_percent();
    let found = format!("{percent:.0} % of the processors' time since boot");
    let verdict = match percent > MUCH_STOLEN_PERCENT {
        false => Verdict::Good,
        true => Verdict::Note("the machine stands still at times, and bursts follow".into()),
    };
    Finding::new("taken by the hypervisor", found, verdict)
}

fn synchronised() -> Option<Finding> {
    let verdict = match clock::is_synchronised().ok()? {
        true => return Some(Finding::new("clock", "synchronised", Verdict::Good)),
        false => Verdict::Note("logs and records of several hosts do not line up; run an NTP client".into()),
    };
    Some(Finding::new("clock", "not synchronised", verdict))
}

fn mtus() -> Vec<Finding> {
    let mut devices = device::running().unwrap_or_default();
    devices.sort();
    devices.into_iter().map(|(device, mtu)| judge_mtu(&device, mtu)).collect()
}

fn judge_mtu(device: &str, mtu: u32) -> Finding {
    let verdict = match mtu < USUAL_MTU {
        false => Verdict::Good,
        true => Verdict::Note("smaller segments mean more of them, and slower growth of the window".into()),
    };
    Finding::new(format!("MTU of {device}"), mtu.to_string(), verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status() {
        assert_eq!(
            effective("Name:\tx\nCapPrm:\t0000000000000001\nCapEff:\t0000008000001400\n"),
            1 << 39 | 1 << 12 | 1 << 10
        );
        assert_eq!(effective(""), 0);
        assert_eq!(effective("CapEff:\tnonsense\n"), 0);
    }

    #[test]
    fn what_a_leg_that_loses_packets_can_have_is_said() {
        let found = |available, loads| for_lossy_legs(available, loads).found;
        assert_eq!(found("reno cubic", Loads::Own), "ekiden_far");
        assert_eq!(["6.1.0-31-amd64\n", "6.18.5", "x"].map(release), [Some((6, 1)), Some((6, 18)), None]);
        assert_eq!(found("reno cubic ekiden_far", Loads::Root), "ekiden_far");
        assert!(found("reno cubic bbr", Loads::Own).starts_with("ekiden_far, or bbr"));
        assert!(found("reno bbr", Loads::Root).contains("where root loads it"));
        assert!(found("reno bbr", Loads::Nobody).contains("needs Linux 6.4"));
        for (loads, remedy) in [(Loads::Root, "root loads ekiden_far"), (Loads::Nobody, "needs Linux 6.4")] {
            let nothing = for_lossy_legs("reno cubic", loads);
            let said = |what: &str| what.contains(remedy) && what.contains("modprobe tcp_bbr");
            assert!(matches!(&nothing.verdict, Verdict::Note(what) if said(what)), "{nothing:?}");
        }
    }

    #[test]
    fn stolen_time_is_a_part_of_all() {
        let finding = stolen(&Times { whole: 100, idle: 0, stolen: 10 });
        assert!(finding.found.starts_with("10 %") && matches!(finding.verdict, Verdict::Note(_)));
        assert_eq!(stolen(&Times { whole: 100, idle: 0, stolen: 1 }).verdict, Verdict::Good);
    }

    #[test]
    fn looking_at_this_machine_finds_something_of_each_kind() {
        let subjects: Vec<_> = machine().into_iter().map(|finding| finding.subject).collect();
        for subject in
            ["congestion control", "for legs that lose packets", "kernel types (BTF)", "CAP_NET_ADMIN", "open files"]
        {
            assert!(subjects.iter().any(|found| found == subject), "{subjects:?}");
        }
    }
}
