//! Files that are shown are read back as the same, also where a string holds what a terminal must not get.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
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

/// Whatever paths and names are in it.
#[test]
fn a_configuration_that_is_shown_can_be_loaded_from_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| run(folder.path(), arguments);
    std::fs::create_dir(folder.path().join("city")).unwrap();
    run(&["keygen", "city/node.key"]);
    run(&["keygen", "--shared", "city/line.key"]);
    run(&["keygen", "--shared", "city/password"]);
    let tunnel = "key_file = \"node.key\"\n[device]\naddresses = [\"10.77.0.1/24\"]\n[listen]\naddress = \"127.0.0.1:7100\"\n\
                plain_key_file = \"line.key\"\n[peer.island]\nplain_key_file = \"line.key\"\nallowed = [\"10.77.0.2\"]\n\
                address = \"192.0.2.1:7100\"\nhttp_proxy = \"192.0.2.2:3128\"\nhttp_proxy_user = \"u\"\n\
                http_proxy_password_file = \"password\"\n";
    let monitor = "history = \"h.sqlite\"\nprometheus = \"city.prom\"\nkey_file = \"node.key\"\n[target.city]\n\
                   iperf3 = \"192.0.2.1:5201\"\n";
    // A letter and an accent behind it, which Rust writes as no TOML does.
    let user = "Zoe\u{308}:$argon2id$v=19$m=19456,t=2,p=1$YWJjZGVmZ2hpamtsbW5vcA$kR+Eb8PYhbaCcqbJlN6EOFGqDXAYBZbD1cyeFjT/LRE\n";
    let users = folder.path().join("city/users");
    std::fs::write(&users, user).unwrap();
    std::fs::set_permissions(&users, Permissions::from_mode(0o600)).unwrap();
    std::fs::write(folder.path().join("city/blocked"), "192.0.2.0/24\n").unwrap();
    let proxy = "key_file = \"node.key\"\n[listen.file]\nkind = \"socks5\"\naddress = \"127.0.0.1:1080\"\nusers_file = \"users\"\n\
         [listen.leg]\nkind = \"leg\"\naddress = \"127.0.0.1:7000\"\nplain_key_file = \"line.key\"\n\
         [peer.far]\naddress = \"192.0.2.1:7000\"\nplain_key_file = \"line.key\"\n\
         [[route]]\nto = [\"@blocked\", \".example\"]\naction = \"refuse\"\n\
         [class.fast]\nkind = \"interactive\"\nusers = [\"Zoe\u{308}\"]\n";
    for (command, text) in [(&["tunnel"][..], tunnel), (&["measure", "monitor", "run"], monitor), (&["proxy"], proxy)] {
        std::fs::write(folder.path().join("city/city.toml"), text).unwrap();
        let show = |file| run(&[command, &["-c", file, "--show-config"]].concat());
        let shown = show("city/city.toml");
        for copy in ["city/shown.toml", "shown.toml"] {
            std::fs::write(folder.path().join(copy), &shown).unwrap();
            assert_eq!(show(copy), shown);
        }
    }
}
