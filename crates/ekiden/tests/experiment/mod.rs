//! A user's own experiment, for `ekiden reproduce --from own`.

use std::fs;
use std::path::Path;
use std::process::Command;

const SCENARIO: &str = "name = \"pair\"\n[node.a]\n[node.b]\n[link.line]\nends = [\"a\", \"b\"]\nrate = \"10Mbit/s\"\ndelay = \"10ms\"\n\
                        [flow.f]\nfrom = \"a\"\nto = \"b\"\nduration = \"3s\"\n[tcp]\nreceive_buffer = \"16KiB\"\n";

/// The experiment T1-window of paper T1: one connection over `[keys] delay`, with these runs, claims and plots of it.
pub fn reproduce(folder: &Path, rest: &str, arguments: &[&str]) -> Command {
    let experiment = folder.join("own/window");
    fs::create_dir_all(&experiment).unwrap();
    fs::write(experiment.join("pair.toml"), SCENARIO).unwrap();
    let head = "title = \"A window\"\npaper = \"T1\"\nsection = \"2\"\ndid = \"Something.\"\n\n[keys]\ndelay = \"link.line.delay\"\n\n";
    fs::write(experiment.join("experiment.toml"), format!("{head}{rest}")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
    command.current_dir(folder).args(["reproduce", "--from", "own"]).args(arguments);
    command
}
