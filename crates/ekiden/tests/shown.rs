//! Files that are shown are read back as the same, also where a string holds what a terminal must not get.

use std::path::Path;
use std::process::Command;

/// What `ekiden` prints in `folder`.
fn run(folder: &Path, args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ekiden")).args(args).current_dir(folder).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{args:?}: {out}{err}");
    out.into_owned()
}

#[test]
fn what_cannot_be_seen_is_read_back_as_the_same() {
    const SCENARIO: &str = "[node.a]\n[node.b]\n[link.l]\nends = [\"a\", \"b\"]\nrate = \"1Mbit/s\"\n";
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Quotes and backslashes make the writer of TOML take literal strings.
    for text in
        ["a\\u200Cb", "\\\"a\\\" \\u200C \\\\ \\u202E", "'\\u00AD\\\\", "line\\n\\u200B\\\"\\\\", "\\u009B\\\"\\u007F"]
    {
        let given = format!("name = \"x\"\ndescription = \"{text}\"\n{SCENARIO}");
        std::fs::write(folder.join("s.toml"), given).unwrap();
        std::fs::write(folder.join("again.toml"), run(folder, &["scenario", "show", "s.toml"])).unwrap();
        let [first, again] = ["s.toml", "again.toml"].map(|file| run(folder, &["scenario", "show", "--json", file]));
        assert_eq!(first, again, "{text}");
        let [first, again] = ["s.toml", "again.toml"].map(|file| run(folder, &["scenario", "show", file]));
        assert_eq!(first, again, "{text}");
    }
}

#[test]
fn a_configuration_with_what_cannot_be_seen_is_read_back_as_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, key) = (folder.path(), "key\u{200c}\"\\");
    run(folder, &["keygen", key]);
    let listen = "[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:1080\"\n";
    let given = format!("name = \"x\"\nkey_file = \"key\\u200C\\\"\\\\\"\n{listen}");
    std::fs::write(folder.join("p.toml"), given).unwrap();
    let shown = run(folder, &["proxy", "-c", "p.toml", "--show-config"]);
    std::fs::write(folder.join("again.toml"), &shown).unwrap();
    assert_eq!(run(folder, &["proxy", "-c", "again.toml", "--show-config"]), shown);
}
