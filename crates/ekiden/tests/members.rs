//! A member of an overlay that other nodes cannot reach is told.

use std::path::Path;
use std::process::{Command, Output};

fn ekiden(folder: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
    command.args(arguments.split(' ')).current_dir(folder).output().unwrap()
}

#[test]
fn a_member_without_a_leg_listener_is_told_by_join_and_check() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert!(ekiden(folder, "keygen tokyo.key").status.success());
    let web = "[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n";
    let leg = "[listen.leg]\nkind = \"leg\"\naddress = \"127.0.0.1:0\"\n";
    for (listener, is_reached) in [(web, false), (leg, true)] {
        let head = "name = \"tokyo\"\nkey_file = \"tokyo.key\"\n";
        let text = format!("{head}{listener}[overlay]\nmembers_file = \"members.toml\"\n");
        std::fs::write(folder.join("tokyo.toml"), text).unwrap();
        let join = "overlay join members.toml -c tokyo.toml --address 192.0.2.1:7000 --replace";
        for arguments in [join, "proxy --check -c tokyo.toml"] {
            let output = ekiden(folder, arguments);
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{arguments}: {said}");
            assert_eq!(said.contains("add a [listen.NAME] with kind = \"leg\""), !is_reached, "{arguments}: {said}");
        }
    }
}
