//! Scripts of bash in namespaces that vanish with them, behind `harness.sh`, which makes networks and waits. Their surroundings are the same whoever runs the tests: signals as at a
//! login (`nohup` ignores SIGHUP), locale, time zone, home, file mode. Each has an end.

use std::ffi::OsStr;
use std::process::{Command, Output};

use libtest_mimic::Failed;

/// What all scripts have in common.
pub const HARNESS: &str = include_str!("harness.sh");

/// Longer than any script takes on a busy machine.
const MOST_SECONDS: &str = "400";

/// Runs a script with these variables, in a folder of its own, to its end.
pub fn run<V: AsRef<OsStr>>(
    script: &str,
    variables: impl IntoIterator<Item = (&'static str, V)>,
) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new("env");
    command.arg("--default-signal").args(["LC_ALL=C.UTF-8", "TZ=UTC"]);
    command.arg(format!("HOME={}", folder.path().display()));
    command.args(["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    // The first process of the namespaces, with whose end all ends.
    command.args([
        "timeout",
        "--kill-after=10",
        MOST_SECONDS,
        "bash",
        "-c",
        &format!("umask 022\n{HARNESS}\n{script}"),
    ]);
    command.env("EKIDEN", env!("CARGO_BIN_EXE_ekiden")).envs(variables).current_dir(folder.path());
    succeeded(&command.output()?)
}

fn succeeded(output: &Output) -> Result<(), Failed> {
    if output.status.success() {
        return Ok(());
    }
    let late = if output.status.code() == Some(124) { " (it took too long)" } else { "" };
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    Err(format!("{}{late}\n{}", output.status, String::from_utf8_lossy(&said)).into())
}
