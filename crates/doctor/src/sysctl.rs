//! The kernel's settings.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ekiden_units::Bytes;

use crate::{Aim, Finding, Remedy, Verdict};

/// Where the kernel shows its settings.
pub const SYSCTLS: &str = "/proc/sys";

/// The largest number that tcp_rmem and tcp_wmem can have: the kernel keeps them in 32 bits with a sign.
const BUFFER_MOST: u64 = i32::MAX as u64;

/// A setting that throughput over a distance depends on.
struct Setting {
    key: &'static str,
    wanted: Wanted,
    /// What another value costs.
    costs: &'static str,
}

enum Wanted {
    /// One of these values; the first is the one to set.
    OneOf(&'static [&'static str]),
    /// The third of three numbers, the largest size of a socket's buffer, is large enough for the aim.
    Buffer,
    /// At least this value.
    AtLeast(u64),
}

const SETTINGS: &[Setting] = &[
    Setting {
        key: "net.ipv4.tcp_window_scaling",
        wanted: Wanted::OneOf(&["1"]),
        costs: "no window exceeds 64 KB (RFC 7323), so no connection carries more than that per round trip",
    },
    Setting {
        key: "net.ipv4.tcp_sack",
        wanted: Wanted::OneOf(&["1"]),
        costs: "of several lost packets one is repaired per round trip (RFC 2018)",
    },
    Setting {
        key: "net.ipv4.tcp_timestamps",
        wanted: Wanted::OneOf(&["1", "2"]),
        costs: "round-trip times are measured less often, and sequence numbers wrap unprotected at high rates (RFC 7323)",
    },
    Setting {
        key: "net.ipv4.tcp_moderate_rcvbuf",
        wanted: Wanted::OneOf(&["1"]),
        costs: "receive buffers do not grow with the connection",
    },
    Setting { key: "net.ipv4.tcp_rmem", wanted: Wanted::Buffer, costs: "the window that a receiver can advertise" },
    Setting { key: "net.ipv4.tcp_wmem", wanted: Wanted::Buffer, costs: "what a sender can have on the way" },
    Setting {
        key: "net.ipv4.tcp_slow_start_after_idle",
        wanted: Wanted::OneOf(&["0"]),
        costs: "a warm leg, or a tunnel, begins with the initial window again after each pause (RFC 5681, section 4.1)",
    },
    Setting {
        key: "net.ipv4.tcp_no_ssthresh_metrics_save",
        wanted: Wanted::OneOf(&["1"]),
        costs: "the slow start threshold of an unlucky connection is inherited by the next to the same host",
    },
    Setting {
        key: "net.ipv4.tcp_mtu_probing",
        wanted: Wanted::OneOf(&["1", "2"]),
        costs: "a connection stands still where something on the way drops large packets without a word (RFC 4821)",
    },
    Setting {
        key: "net.core.somaxconn",
        wanted: Wanted::AtLeast(1024),
        costs: "connections that come in a burst wait for a repetition of their SYN",
    },
];

/// Looks at the kernel's settings below `root`, which is [`SYSCTLS`], with a connection in mind. Settings that this kernel
/// does not have are left out.
///
/// # Errors
/// If one cannot be read.
pub fn sysctls(root: &Path, aim: &Aim) -> io::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for setting in SETTINGS {
        match fs::read_to_string(file(root, setting.key)) {
            Ok(text) => findings.push(setting.judge(&normal(&text), aim)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(findings)
}

/// The file of a setting below `root`.
pub(crate) fn file(root: &Path, key: &str) -> PathBuf {
    root.join(key.replace('.', "/"))
}

/// The words of a setting, each a space apart.
pub(crate) fn normal(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Setting {
    fn judge(&self, value: &str, aim: &Aim) -> Finding {
        let verdict = match &self.wanted {
            Wanted::OneOf(values) if values.contains(&value) => Verdict::Good,
            Wanted::OneOf(values) => self.costs_until(values[0]),
            Wanted::AtLeast(least) if number(value) >= *least => Verdict::Good,
            Wanted::AtLeast(least) => self.costs_until(&least.to_string()),
            Wanted::Buffer => self.judge_buffer(value, aim),
        };
        Finding::new(self.key, value, verdict)
    }

    fn judge_buffer(&self, value: &str, aim: &Aim) -> Verdict {
        let numbers: Vec<u64> = value.split(' ').map(number).collect();
        let &[least, default, most] = &numbers[..] else {
            return Verdict::Note("three numbers were expected".into());
        };
        let wanted = aim.buffer().0;
        if most >= wanted {
            return Verdict::Good;
        }
        // Half of a buffer is for the kernel's own structures.
        let carried = |buffer: u64| {
            format!("at {} a connection carries at most {}", aim.rtt, aim.carried_with(Bytes(buffer / 2)))
        };
        if most >= BUFFER_MOST {
            return Verdict::Note(format!("the kernel takes no more: {}; use several at once", carried(most)));
        }
        Verdict::Costs {
            what: format!("{}: {}", self.costs, carried(most)),
            remedy: Remedy::Set(format!("{least} {default} {}", wanted.min(BUFFER_MOST))),
        }
    }

    fn costs_until(&self, value: &str) -> Verdict {
        Verdict::Costs { what: self.costs.into(), remedy: Remedy::Set(value.into()) }
    }
}

/// A text that is no number counts as 0.
fn number(text: &str) -> u64 {
    text.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ekiden_units::{BitRate, Time};

    use super::*;

    fn aim() -> Aim {
        Aim { rate: BitRate(100_000_000), rtt: Time::ms(200) }
    }

    /// A host with these settings; all others are as they should be.
    fn host(changed: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let mut values: BTreeMap<&str, &str> = SETTINGS
            .iter()
            .map(|setting| match setting.wanted {
                Wanted::OneOf(values) => (setting.key, values[0]),
                Wanted::Buffer => (setting.key, "4096\t131072\t5000000"),
                Wanted::AtLeast(_) => (setting.key, "4096"),
            })
            .collect();
        values.extend(changed.iter().copied());
        for (key, value) in values {
            let file = file(root.path(), key);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{value}\n")).unwrap();
        }
        root
    }

    fn costly(changed: &[(&str, &str)]) -> Vec<Finding> {
        let findings = sysctls(host(changed).path(), &aim()).unwrap();
        assert_eq!(findings.len(), SETTINGS.len());
        findings.into_iter().filter(Finding::costs).collect()
    }

    #[test]
    fn a_host_as_it_should_be_costs_nothing() {
        assert_eq!(costly(&[]), []);
        assert_eq!(costly(&[("net.ipv4.tcp_timestamps", "2"), ("net.ipv4.tcp_mtu_probing", "2")]), []);
    }

    #[test]
    fn each_wrong_setting_is_found_alone_with_the_value_to_set() {
        for (key, wrong, right) in [
            ("net.ipv4.tcp_window_scaling", "0", "1"),
            ("net.ipv4.tcp_slow_start_after_idle", "1", "0"),
            ("net.core.somaxconn", "128", "1024"),
            ("net.ipv4.tcp_rmem", "4096 131072 4999999", "4096 131072 5000000"),
            ("net.ipv4.tcp_wmem", "1 2 3", "1 2 5000000"),
        ] {
            let [finding] = &costly(&[(key, wrong)])[..] else { panic!("{key}") };
            assert_eq!((&*finding.subject, &*finding.found, finding.fixed_value()), (key, wrong, Some(right)));
        }
    }

    #[test]
    fn a_buffer_is_told_with_what_it_carries() {
        let [finding] = &costly(&[("net.ipv4.tcp_rmem", "4096 131072 1000000")])[..] else { panic!() };
        let Verdict::Costs { what, .. } = &finding.verdict else { panic!() };
        // Half of it per 200 ms.
        assert!(what.ends_with("at 200ms a connection carries at most 20Mbit/s"), "{what}");
    }

    #[test]
    fn no_more_is_asked_for_than_the_kernel_takes() {
        let far = Aim { rate: BitRate(100_000_000_000), rtt: Time::ms(200) };
        let rmem = |value: &str| {
            let findings = sysctls(host(&[("net.ipv4.tcp_rmem", value)]).path(), &far).unwrap();
            findings.into_iter().find(|finding| finding.subject == "net.ipv4.tcp_rmem").unwrap()
        };
        assert_eq!(rmem("4096 131072 6291456").fixed_value(), Some("4096 131072 2147483647"));
        let Verdict::Note(what) = rmem("4096 131072 2147483647").verdict else { panic!("nothing is left to set") };
        // 1 GiB per 200 ms.
        assert!(what.contains("a connection carries at most 42950Mbit/s"), "{what}");
    }

    #[test]
    fn what_the_kernel_lacks_or_writes_otherwise_is_no_cost() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(sysctls(root.path(), &aim()).unwrap(), []);
        assert_eq!(costly(&[("net.ipv4.tcp_rmem", "7")]), []);
    }
}
