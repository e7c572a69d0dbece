//! `ekiden keygen` and `ekiden peer`: what they make, keep and refuse.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

const CONFIG: &str = "# The node in the city.
name = \"city\"  # as others see it
key_file = \"node.key\"

[listen.leg] # for other nodes
kind = \"leg\"
address = \"192.0.2.1:7000\"

# Where it goes on.
[peer.inland]
address = \"192.0.2.2:7000\"
fingerprint = \"sha256:1111111111111111111111111111111111111111111111111111111111111111\"

[[route]] # all of it
to = [\"*\"]
via = [\"inland\"]
";

fn ekiden(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ekiden")).current_dir(folder).args(arguments).output().unwrap()
}

/// What it prints.
fn done(folder: &Path, arguments: &[&str]) -> String {
    let output = ekiden(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Its one line.
fn refused(folder: &Path, arguments: &[&str], code: i32) -> String {
    let output = ekiden(folder, arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(code == 2 || said.lines().count() == 1, "{said}");
    said
}

fn print(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

#[test]
fn a_key_is_made_once_shown_again_and_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let made = done(folder, &["keygen", "node.key"]);
    assert!(made.starts_with("sha256:") && made.len() == 7 + 64 + 1, "{made}");
    let mode = std::fs::metadata(folder.join("node.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(done(folder, &["keygen", "--show", "node.key"]), made);
    for arguments in [&["keygen", "node.key"][..], &["keygen", "--shared", "node.key"]] {
        assert!(refused(folder, arguments, 3).contains("is there already"));
    }
    assert_eq!(done(folder, &["keygen", "--show", "node.key"]), made);
    assert_ne!(done(folder, &["keygen", "other.key"]), made);
    assert_eq!(done(folder, &["keygen", "--shared", "line.key"]), "");
    assert!(refused(folder, &["keygen", "--show", "line.key"], 3).contains("holds a key that nodes share"));
    assert!(refused(folder, &["keygen", "--show", "missing"], 3).contains("No such file"));
    std::fs::set_permissions(folder.join("node.key"), PermissionsExt::from_mode(0o440)).unwrap();
    assert_eq!(done(folder, &["keygen", "--show", "node.key"]), made);
    std::fs::set_permissions(folder.join("node.key"), PermissionsExt::from_mode(0o644)).unwrap();
    assert!(refused(folder, &["keygen", "--show", "node.key"], 3).contains("chmod 600"));
}

/// systemd.exec(5): a credential may have an access control list, whose mask the group's bits then are.
#[test]
fn a_key_that_systemd_hands_to_a_service_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("node.key");
    done(folder.path(), &["keygen", "node.key"]);
    let shown = |mode, directory: &Path| {
        std::fs::set_permissions(&key, PermissionsExt::from_mode(mode)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
        command.args(["keygen", "--show"]).arg(&key).env("CREDENTIALS_DIRECTORY", directory);
        command.output().unwrap().status.code()
    };
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(shown(0o440, folder.path()), Some(0));
    assert_eq!(shown(0o444, folder.path()), Some(3));
    assert_eq!(shown(0o460, folder.path()), Some(3));
    // Of a group that this process is not in, where that can be had.
    if std::os::unix::fs::chown(&key, None, Some(65_534)).is_ok() {
        assert_eq!(shown(0o440, Path::new("/")), Some(3));
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(shown(0o440, folder.path()), Some(3), "others could look for it there");
    }
}

#[test]
fn nodes_are_written_into_a_configuration_and_nothing_else_changes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = folder.join("city.toml");
    done(folder, &["keygen", "node.key"]);
    let own = done(folder, &["keygen", "--show", "node.key"]);
    std::fs::write(&file, CONFIG).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
    done(folder, &["peer", "add", "-c", "city.toml", "north", "[2001:db8::1]:7000", &print('2')]);
    done(folder, &["peer", "allow", "-c", "city.toml", "island", &print('3')]);
    done(folder, &["peer", "allow", "-c", "city.toml", "-l", "leg", "islet", &print('4')]);
    let now = std::fs::read_to_string(&file).unwrap();
    for line in CONFIG.lines() {
        assert!(now.lines().any(|kept| kept == line), "{line} is gone:\n{now}");
    }
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 2, "nothing is left behind");
    let shown = done(folder, &["proxy", "--show-config", "-c", "city.toml"]);
    let nodes = format!("nodes = {{ island = \"{}\", islet = \"{}\" }}", print('3'), print('4'));
    assert!(shown.contains(&nodes), "{shown}");
    assert!(shown.contains("[peer.north]\naddress = \"[2001:db8::1]:7000\""), "{shown}");
    assert!(shown.contains(&format!("fingerprint = \"{}\"", print('2'))), "{shown}");

    for (arguments, why) in [
        (&["add", "-c", "city.toml", "inland", "a:1", &print('5')][..], "there is a [peer.inland] already"),
        (&["add", "-c", "city.toml", "west", "no port", &print('5')], "nothing is written"),
        (&["add", "-c", "city.toml", "we st", "a:1", &print('5')], "not a node name"),
        (&["allow", "-c", "city.toml", "island", &print('5')], "has a node 'island' already"),
        (&["allow", "-c", "city.toml", "isle", &print('3')], "has the same key as 'island'"),
        (&["allow", "-c", "city.toml", "-l", "socks", "isle", &print('5')], "no leg listener [listen.socks]"),
        (&["allow", "-c", "missing.toml", "isle", &print('5')], "cannot be read"),
        (&["add", "-c", "city.toml", "city", "a:1", &print('5')], "'city' is the name of this node itself"),
        (&["allow", "-c", "city.toml", "city", &print('5')], "'city' is the name of this node itself"),
        (
            &["allow", "-c", "city.toml", "isle", own.trim()],
            "is the key of this node itself: give the fingerprint that",
        ),
        (
            &["add", "-c", "city.toml", "west", "a:1", own.trim()],
            "is the key of this node itself: give the fingerprint that",
        ),
    ] {
        let arguments = [&["peer"][..], arguments].concat();
        let said = refused(folder, &arguments, 3);
        assert!(said.contains(why), "{arguments:?}: {said}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), now, "{arguments:?}");
    }
    // Written by hand, it runs: two nodes may have copies of one key. The check refuses it.
    let by_hand = CONFIG.to_owned() + &format!("[peer.west]\naddress = \"a:1\"\nfingerprint = \"{}\"\n", own.trim());
    std::fs::write(folder.join("west.toml"), by_hand).unwrap();
    let said = refused(folder, &["proxy", "--check", "-c", "west.toml"], 3);
    assert!(said.contains("west.toml: [peer.west] fingerprint:"), "{said}");
    assert!(said.contains("is the key of this node itself"), "{said}");
    let said = refused(folder, &["peer", "allow", "-c", "city.toml", "isle", "md5:1"], 2);
    assert!(said.contains("is no fingerprint"), "{said}");
}

#[test]
fn nodes_are_changed_and_taken_out_and_nothing_else_changes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let now = || std::fs::read_to_string(folder.join("city.toml")).unwrap();
    done(folder, &["keygen", "node.key"]);
    std::fs::write(
        folder.join("city.toml"),
        format!(
            "{CONFIG}[peer.north]\naddress = \"192.0.2.3:7000\" # moves soon\nfingerprint = \"{}\"\nwarm = 2\n",
            print('5')
        ),
    )
    .unwrap();
    done(folder, &["peer", "allow", "-c", "city.toml", "island", &print('3')]);

    let add = ["peer", "add", "-c", "city.toml", "north", "192.0.2.4:7000", &print('6')];
    assert!(refused(folder, &add, 3).contains("there is a [peer.north] already; --replace changes"));
    assert_eq!(
        done(folder, &[&add[..], &["--replace"]].concat()),
        "city.toml: [peer.north] changed; a node that runs takes it at SIGHUP\n"
    );
    assert!(
        now().contains(&format!(
            "address = \"192.0.2.4:7000\" # moves soon\nfingerprint = \"{}\"\nwarm = 2\n",
            print('6')
        )),
        "{}",
        now()
    );
    let allow = ["peer", "allow", "-c", "city.toml", "island", &print('4')];
    assert!(refused(folder, &allow, 3).contains("--replace changes it"));
    done(folder, &[&allow[..], &["--replace"]].concat());
    assert!(now().contains(&print('4')) && !now().contains(&print('3')), "{}", now());
    // Also a new one.
    assert!(
        done(folder, &["peer", "add", "--replace", "-c", "city.toml", "west", "a:1", &print('7')]).contains("added")
    );

    done(folder, &["peer", "remove", "-c", "city.toml", "west"]);
    assert_eq!(
        done(folder, &["peer", "remove", "-c", "city.toml", "north"]),
        "city.toml: removed [peer.north]; a node that runs takes it at SIGHUP\n"
    );
    let said = done(folder, &["peer", "remove", "-c", "city.toml", "island"]);
    assert_eq!(said, "city.toml: removed 'island' of the nodes of [listen.leg]; a node that runs takes it at SIGHUP\n");
    for line in CONFIG.lines() {
        assert!(now().lines().any(|kept| kept == line), "{line} is gone:\n{}", now());
    }
    assert!(!now().contains(&print('4')) && !now().contains("north") && !now().contains("west"), "{}", now());
    // A route leads over it.
    let before = now();
    let said = refused(folder, &["peer", "remove", "-c", "city.toml", "inland"], 3);
    assert!(said.contains("nothing is written, for it would be wrong: 'inland' begins a chain"), "{said}");
    assert_eq!(now(), before);
    let said = refused(folder, &["peer", "remove", "-c", "city.toml", "nobody"], 3);
    assert!(said.contains("there is no [peer.nobody], and no leg listener has a node 'nobody'"), "{said}");
}

#[test]
fn nodes_are_listed_as_tables_and_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &["keygen", "node.key"]);
    done(folder, &["keygen", "--shared", "line.key"]);
    let more =
        "[peer.x]\naddress = \"[2001:db8::1]:7000\"\n[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:1\"\n";
    let plain = "plain_key_file = \"line.key\"\n[listen.line]\nkind = \"leg\"\naddress = \"127.0.0.1:2\"\n";
    let text =
        format!("{CONFIG}{more}[peer.line]\naddress = \"line.example:7000\"\n{plain}plain_key_file = \"line.key\"\n");
    std::fs::write(folder.join("city.toml"), text).unwrap();
    let inland = print('1');
    let nobody = "\nlistener  node    key\nleg       (none)  (none)\n";
    assert!(done(folder, &["peer", "list", "-c", "city.toml"]).contains(nobody));
    done(folder, &["peer", "allow", "-c", "city.toml", "-l", "leg", "island", &print('3')]);
    let expected = format!(
        "peer    address             key\n\
         inland  192.0.2.2:7000      {inland}\n\
         x       [2001:db8::1]:7000  (none)\n\
         line    line.example:7000   plain_key_file = \"line.key\"\n\n\
         listener  node    key\n\
         leg       island  {}\n\
         line      (any)   plain_key_file = \"line.key\"\n",
        print('3')
    );
    assert_eq!(done(folder, &["peer", "list", "-c", "city.toml"]), expected);
    let shown: Value = serde_json::from_str(&done(folder, &["peer", "list", "--json", "-c", "city.toml"])).unwrap();
    let expected = json!({
        "peers": [
            { "name": "inland", "address": "192.0.2.2:7000", "fingerprint": inland, "plain_key_file": null },
            { "name": "x", "address": "[2001:db8::1]:7000", "fingerprint": null, "plain_key_file": null },
            { "name": "line", "address": "line.example:7000", "fingerprint": null, "plain_key_file": "line.key" },
        ],
        "listeners": [
            {
                "name": "leg", "address": "192.0.2.1:7000", "plain_key_file": null,
                "nodes": [{ "name": "island", "fingerprint": print('3') }],
            },
            { "name": "line", "address": "127.0.0.1:2", "plain_key_file": "line.key", "nodes": [] },
        ],
    });
    assert_eq!(shown, expected);

    std::fs::write(folder.join("none.toml"), "name = \"none\"\n").unwrap();
    assert_eq!(done(folder, &["peer", "list", "-c", "none.toml"]), "peer  address  key\n\nlistener  node  key\n");
    assert!(refused(folder, &["peer", "list", "-c", "missing.toml"], 3).contains("missing.toml: cannot be read"));
    std::fs::write(folder.join("wrong.toml"), "name = \"none\"\n[pear.x]\n").unwrap();
    let said = refused(folder, &["peer", "list", "-c", "wrong.toml"], 3);
    assert!(
        said.contains("wrong.toml:2: unknown field `pear`, ") && said.ends_with("; did you mean `peer`?\n"),
        "{said}"
    );
}

#[test]
fn what_a_node_leaves_behind_that_is_taken_out_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &["keygen", "node.key"]);
    let north = format!("[peer.north]\naddress = \"192.0.2.3:7000\"\nfingerprint = \"{}\"\n", print('5'));
    let route = "[[route]]\nto = [\"10.0.0.0/8\", \"*:443\"]\nvia = [\"inland\", \"north\"]\n";
    let forward =
        "[listen.f]\nkind = \"forward\"\naddress = \"127.0.0.1:1\"\nto = \"a:1\"\nvia = [\"inland\", \"north\"]\n";
    std::fs::write(folder.join("city.toml"), format!("{CONFIG}{north}{route}{forward}")).unwrap();
    for (name, digit) in [("island", '3'), ("islet", '4')] {
        done(folder, &["peer", "allow", "-c", "city.toml", name, &print(digit)]);
    }
    for (name, warnings) in [
        ("island", ""),
        ("islet", "ekiden: warning: city.toml: [listen.leg] lets no node in any more\n"),
        (
            "north",
            "ekiden: warning: city.toml: the route to = [\"10.0.0.0/8\", \"*:443\"] still leads over 'north': \
             via = [\"inland\", \"north\"]\n\
             ekiden: warning: city.toml: [listen.f] still leads over 'north': via = [\"inland\", \"north\"]\n",
        ),
    ] {
        let output = ekiden(folder, &["peer", "remove", "-c", "city.toml", name]);
        assert!(output.status.success() && !output.stdout.is_empty(), "{name}: {output:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), warnings, "{name}");
    }
    // It never was a peer here, and nothing about the route changes.
    done(folder, &["peer", "allow", "-c", "city.toml", "island", &print('3')]);
    done(folder, &["peer", "allow", "-c", "city.toml", "north", &print('5')]);
    let output = ekiden(folder, &["peer", "remove", "-c", "city.toml", "north"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    // One that makes the configuration wrong can be taken out.
    let text = std::fs::read_to_string(folder.join("city.toml")).unwrap();
    std::fs::write(folder.join("city.toml"), format!("{text}[peer.bad]\naddress = \"no port\"\n")).unwrap();
    assert!(refused(folder, &["peer", "list", "-c", "city.toml"], 3).contains("no port"));
    done(folder, &["peer", "remove", "-c", "city.toml", "bad"]);
    assert_eq!(std::fs::read_to_string(folder.join("city.toml")).unwrap(), text);
}

#[test]
fn a_peer_without_a_fingerprint_is_told_when_the_configuration_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &["keygen", "node.key"]);
    let socks = "[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n";
    let text = format!("key_file = \"node.key\"\n{socks}[peer.city]\naddress = \"192.0.2.1:7000\"\n");
    let warned = |text: &str| {
        std::fs::write(folder.join("node.toml"), text).unwrap();
        let output = ekiden(folder, &["proxy", "--check", "-c", "node.toml"]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(warned(&text), "ekiden: [peer.city] has no fingerprint, so no stream can go over it\n");
    assert_eq!(warned(&format!("{text}fingerprint = \"{}\"\n", print('3'))), "");
}

#[test]
fn keys_and_hashes_are_printed_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let shown = |arguments: &[&str]| -> Value { serde_json::from_str(&done(folder, arguments)).unwrap() };
    let made = shown(&["keygen", "--json", "node.key"]);
    let fingerprint = done(folder, &["keygen", "--show", "node.key"]);
    assert_eq!(made, json!({ "key_file": "node.key", "fingerprint": fingerprint.trim() }));
    assert_eq!(shown(&["keygen", "--json", "--show", "node.key"]), made);
    assert_eq!(shown(&["keygen", "--json", "--shared", "line.key"]), json!({ "plain_key_file": "line.key" }));
    // A failure is the same line.
    assert!(refused(folder, &["keygen", "--json", "node.key"], 3).starts_with("ekiden: key file node.key: "));

    let output = password(&["--json"], "correct horse\n");
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let hash = shown["hash"].as_str().unwrap();
    assert!(hash.starts_with("$argon2id$") && shown.as_object().unwrap().len() == 1, "{shown}");
}

/// What `ekiden password` says of what is written to it.
fn password(arguments: &[&str], text: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
    let mut child = command
        .arg("password")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn tables_written_in_one_line_stay_in_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &["keygen", "node.key"]);
    let listen = "leg = { kind = \"leg\", address = \"127.0.0.1:1\" }";
    std::fs::write(folder.join("a.toml"), format!("key_file = \"node.key\"\nlisten = {{ {listen} }}\n")).unwrap();
    done(folder, &["peer", "allow", "-c", "a.toml", "island", &print('3')]);
    done(folder, &["peer", "add", "-c", "a.toml", "city", "a:1", &print('2')]);
    let now = std::fs::read_to_string(folder.join("a.toml")).unwrap();
    assert!(now.lines().any(|line| line.starts_with("listen = {") && line.contains(&print('3'))), "{now}");
    assert!(now.contains("\n[peer.city]\n"), "{now}");
    std::fs::write(folder.join("b.toml"), "name = \"b\"\n").unwrap();
    assert!(refused(folder, &["peer", "allow", "-c", "b.toml", "x", &print('3')], 3).contains("no leg listener"));
}

#[test]
fn a_password_becomes_a_hash_that_a_configuration_takes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let password = |text: &str| password(&[], text);
    let hash = String::from_utf8(password("correct horse\n").stdout).unwrap();
    assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$") && hash.lines().count() == 1, "{hash}");
    assert_ne!(password("correct horse\n").stdout, hash.as_bytes(), "another salt");
    for wrong in ["", "\n", "two\nlines\n", &"x".repeat(256)] {
        let output = password(wrong);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{wrong:?}: {said}");
        assert!(said.contains("a password is one line of 1 to 255 bytes") && output.stdout.is_empty(), "{said}");
    }

    let config = |secret: &str| {
        let text =
            format!("[listen.web]\nkind = \"http\"\naddress = \"10.0.0.1:3128\"\nusers = {{ alice = '{secret}' }}\n");
        std::fs::write(folder.join("users.toml"), text).unwrap();
    };
    config(hash.trim());
    assert_eq!(done(folder, &["proxy", "-c", "users.toml", "--check"]), "users.toml: ok\n");
    let shown = done(folder, &["proxy", "-c", "users.toml", "--show-config"]);
    assert!(shown.contains("alice") && !shown.contains("argon2"), "{shown}");
    config("correct horse");
    let said = refused(folder, &["proxy", "-c", "users.toml", "--check"], 3);
    assert!(said.contains("the password of 'alice' must be a hash, as 'ekiden password' makes it"), "{said}");
    assert!(!said.contains("correct horse"), "{said}");
}
