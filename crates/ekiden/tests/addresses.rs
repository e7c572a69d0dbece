//! Every flag and key that takes an address reads it in the same way.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Where an address is given: arguments, and the file `c.toml` or none. `ADDRESS` stands for it.
struct Place {
    name: &'static str,
    arguments: &'static [&'static str],
    config: &'static str,
    takes: Takes,
}

#[derive(Clone, Copy, PartialEq)]
enum Takes {
    /// `HOST:PORT`.
    Needed,
    /// `HOST` or `HOST:PORT`.
    Optional,
    /// An address of this host and a port.
    Listening,
    /// `HOST:PORT` that other hosts are told, where a zone means nothing.
    Told,
}

const NODE: &str = "name = \"a\"\nkey_file = \"node.key\"\n";
const SOCKS: &str = "[listen.x]\nkind = \"socks5\"\naddress = \"127.0.0.1:1\"\n";
const PRINT: &str = "sha256:c17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17e";
const CHECK: &[&str] = &["proxy", "--check", "-c", "c.toml"];
const TUNNEL: &[&str] = &["tunnel", "--check", "-c", "c.toml"];
const MONITOR: &[&str] = &["measure", "monitor", "check", "-c", "c.toml"];
const DEVICE: &str = "KEY[device]\naddresses = [\"10.77.0.1/24\"]\n";

const PLACES: &[Place] = &[
    Place { name: "doctor --to", arguments: &["doctor", "--to", "ADDRESS"], config: "", takes: Takes::Needed },
    Place {
        name: "measure client",
        arguments: &["measure", "client", "ADDRESS", "--open"],
        config: "",
        takes: Takes::Optional,
    },
    Place {
        name: "measure client --iperf3",
        arguments: &["measure", "client", "ADDRESS", "--iperf3"],
        config: "",
        takes: Takes::Optional,
    },
    Place {
        name: "measure client --via",
        arguments: &["measure", "client", "127.0.0.1:1", "--open", "--via", "ADDRESS"],
        config: "",
        takes: Takes::Needed,
    },
    Place {
        name: "measure path",
        arguments: &["measure", "path", "ADDRESS", "--open"],
        config: "",
        takes: Takes::Optional,
    },
    Place {
        name: "measure server --listen",
        arguments: &["measure", "server", "--open", "1MB", "--listen", "ADDRESS"],
        config: "",
        takes: Takes::Listening,
    },
    Place {
        name: "measure watch --to",
        arguments: &["measure", "watch", "--for", "1ms", "--to", "ADDRESS"],
        config: "",
        takes: Takes::Optional,
    },
    Place {
        name: "measure watch --from",
        arguments: &["measure", "watch", "--for", "1ms", "--from", "ADDRESS"],
        config: "",
        takes: Takes::Optional,
    },
    Place {
        name: "peer add",
        arguments: &["peer", "add", "-c", "c.toml", "b", "ADDRESS", PRINT],
        config: "NODESOCKS",
        takes: Takes::Needed,
    },
    Place {
        name: "proxy: listen.address",
        arguments: CHECK,
        config: "[listen.x]\nkind = \"socks5\"\naddress = \"ADDRESS\"\nopen = true\n",
        takes: Takes::Listening,
    },
    Place {
        name: "proxy: listen.to",
        arguments: CHECK,
        config: "[listen.x]\nkind = \"forward\"\naddress = \"127.0.0.1:1\"\nto = \"ADDRESS\"\n",
        takes: Takes::Told,
    },
    Place {
        name: "proxy: peer.address",
        arguments: CHECK,
        config: "NODESOCKS[peer.b]\naddress = \"ADDRESS\"\nfingerprint = \"PRINT\"\n",
        takes: Takes::Needed,
    },
    Place {
        name: "tunnel: listen.address",
        arguments: TUNNEL,
        config: "DEVICE[listen]\naddress = \"ADDRESS\"\n[peer.b]\nfingerprint = \"PRINT\"\nallowed = [\"10.77.0.2\"]\n",
        takes: Takes::Listening,
    },
    Place {
        name: "tunnel: peer.address",
        arguments: TUNNEL,
        config: "DEVICE[peer.b]\naddress = \"ADDRESS\"\nfingerprint = \"PRINT\"\nallowed = [\"10.77.0.2\"]\n",
        takes: Takes::Needed,
    },
    Place {
        name: "tunnel: peer.http_proxy",
        arguments: TUNNEL,
        config: "DEVICE[peer.b]\naddress = \"192.0.2.1:1\"\nhttp_proxy = \"ADDRESS\"\nfingerprint = \"PRINT\"\n\
                 allowed = [\"10.77.0.2\"]\n",
        takes: Takes::Needed,
    },
    Place {
        name: "monitor: server",
        arguments: MONITOR,
        config: "history = \"h\"\nkey_file = \"node.key\"\n[target.a]\nserver = \"ADDRESS\"\nfingerprint = \"PRINT\"\n",
        takes: Takes::Needed,
    },
    Place {
        name: "monitor: iperf3",
        arguments: MONITOR,
        config: "history = \"h\"\n[target.a]\niperf3 = \"ADDRESS\"\n",
        takes: Takes::Optional,
    },
    Place {
        name: "monitor: via",
        arguments: MONITOR,
        config: "history = \"h\"\n[target.a]\niperf3 = \"192.0.2.1\"\nvia = \"ADDRESS\"\n",
        takes: Takes::Needed,
    },
    Place {
        name: "plan: site.address",
        arguments: &["plan", "c.toml"],
        config: "rtt = \"10ms\"\nrate = \"1Mbit/s\"\n[site.a]\nclient_rtt = \"5ms\"\nserver_rtt = \"5ms\"\naddress = \"ADDRESS\"\n",
        takes: Takes::Told,
    },
];

#[test]
fn what_is_no_address_is_refused_everywhere_with_the_same_words() {
    for place in PLACES {
        for (address, said) in wrong(place.takes) {
            let (code, error) = run(place, address);
            let expected = if place.config.is_empty() { 2 } else { 3 };
            assert_eq!(code, Some(expected), "{}: {address}: {error}", place.name);
            assert!(error.contains(said), "{}: {address}: {error}", place.name);
        }
    }
}

/// What connects or listens is not tried here, but in the tests of the commands.
#[test]
fn an_address_is_taken_in_each_of_its_forms() {
    for place in PLACES.iter().filter(|place| !place.config.is_empty()) {
        let zone = ["[fe80::1%lo]:7000"].into_iter().filter(|_| place.takes != Takes::Told);
        let name = ["city.example:7000"].into_iter().filter(|_| place.takes != Takes::Listening);
        let alone = ["::1", "[::1]", "fe80::1%lo", "city.example"].into_iter();
        let alone = alone.filter(|_| place.takes == Takes::Optional);
        for address in ["192.0.2.1:7000", "[::1]:7000"].into_iter().chain(zone).chain(name).chain(alone) {
            let (code, error) = run(place, address);
            assert_eq!(code, Some(0), "{}: {address}: {error}", place.name);
        }
    }
}

/// Destinations of routes and exits, and what a node says that it is near. One that was read otherwise than meant would let through what
/// was to be refused.
#[test]
fn a_destination_hides_no_port() {
    let join = ["overlay", "join", "m.toml", "-c", "c.toml", "--address", "192.0.2.1:1", "--near", "ADDRESS"];
    let route = format!("{SOCKS}open = true\n[[route]]\nto = [\"ADDRESS\"]\naction = \"refuse\"\n");
    let exit = format!("{SOCKS}open = true\n[exit]\nallow = [\"ADDRESS\"]\n");
    for (name, arguments, config, code) in [
        ("route.to", CHECK, route.as_str(), 3),
        ("exit.allow", CHECK, exit.as_str(), 3),
        ("near", &join, "NODESOCKS", 2),
    ] {
        let config = config.to_owned().leak();
        let arguments = arguments.to_vec().leak();
        let place = Place { name, arguments, config, takes: Takes::Optional };
        for (text, said) in [
            ("::1:9000", "or [::1]:9000"),
            ("2001:db8::1:443", "or [2001:db8::1]:443"),
            ("example.org:+25", "'example.org:+25' is not a destination"),
            ("[::1]:+80", "'[::1]:+80' is not a destination"),
        ] {
            let (given, error) = run(&place, text);
            assert!(given == Some(code) && error.contains(said), "{name}: {text}: {given:?}, {error}");
        }
        for text in ["::1", "[::1]:9000", "2001:db8::/32", "[2001:db8::/32]:443", "example.org:25", ".example.org"] {
            let (given, error) = run(&place, text);
            assert_eq!(given, Some(0), "{name}: {text}: {error}");
        }
    }
}

/// An interface may come later: its address is waited for, and the exit code is that of an address that cannot be had yet, with which
/// services are started again.
#[test]
fn an_address_of_an_interface_that_is_not_there_is_waited_for() {
    let listen = "[listen.x]\nkind = \"socks5\"\naddress = \"ADDRESS\"\nopen = true\n";
    let tunnel =
        "DEVICE[listen]\naddress = \"ADDRESS\"\n[peer.b]\nfingerprint = \"PRINT\"\nallowed = [\"10.77.0.2\"]\n";
    for (name, arguments, config) in [
        ("proxy", &["proxy", "-c", "c.toml"][..], listen),
        ("tunnel", &["tunnel", "-c", "c.toml"], tunnel),
        ("measure server", &["measure", "server", "--open", "1MB", "--listen", "ADDRESS"], ""),
    ] {
        let place = Place { name, arguments, config, takes: Takes::Listening };
        let (code, error) = run(&place, "[fe80::1%none-such]:1");
        assert_eq!(code, Some(5), "{name}: {error}");
        assert!(error.contains("there is no network interface 'none-such'"), "{name}: {error}");
        assert!(error.contains("waited for") && error.lines().count() == 2, "{name}: {error}");
    }
}

fn wrong(takes: Takes) -> Vec<(&'static str, &'static str)> {
    let mut wrong = vec![
        ("2001:db8::1:7100", "[2001:db8::1]:7100"),
        ("192.0.2.1:70000", "the port must be a number from 1 to 65535, not '70000'"),
        ("[::1]:x", "the port must be a number from 1 to 65535, not 'x'"),
        ("http://192.0.2.1:80", "without http://, as in 192.0.2.1:80"),
        ("192.0.2.1/24:80", "without /24, as in 192.0.2.1:80"),
        ("[192.0.2.1]:80", "write 192.0.2.1:80"),
        ("fe80::1%lo:80", "write [fe80::1%lo]:80"),
        ("[fe80::1%25lo]:80", "write [fe80::1%lo]:80"),
        ("a b:80", "'a b' is not an address"),
    ];
    if takes != Takes::Optional {
        wrong.extend([("192.0.2.1", "needs a port"), ("2001:db8::1", "write [2001:db8::1]:PORT")]);
    }
    match takes {
        Takes::Listening => {
            wrong.push(("localhost:80", "is not an address and port"));
            wrong.extend(["7100", ":7100", "*:7100"].map(|text| (text, "write 0.0.0.0:7100 for all IPv4 addresses")));
        }
        Takes::Told => wrong.push(("[fe80::1%lo]:80", "has a zone")),
        Takes::Needed | Takes::Optional => wrong.push(("city.example:0", "not '0'")),
    }
    if takes != Takes::Listening {
        wrong.push((":80", "a host is missing"));
    }
    if matches!(takes, Takes::Listening | Takes::Needed) {
        wrong.push(("[fe80::1]:80", "write [fe80::1%INTERFACE]:80"));
    }
    wrong
}

/// The exit code, and what is said on standard error.
fn run(place: &Place, address: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let ekiden = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
        command.current_dir(folder.path()).args(arguments).stdin(Stdio::null()).output().unwrap()
    };
    if ["NODE", "DEVICE", "key_file"].iter().any(|word| place.config.contains(word)) {
        write_key(folder.path());
    }
    let config = place.config.replace("DEVICE", DEVICE).replace("NODE", NODE).replace("SOCKS", SOCKS);
    let config = config.replace("KEY", "key_file = \"node.key\"\n").replace("PRINT", PRINT);
    fs::write(folder.path().join("c.toml"), config.replace("ADDRESS", address)).unwrap();
    let arguments: Vec<_> =
        place.arguments.iter().map(|argument| if *argument == "ADDRESS" { address } else { *argument }).collect();
    let output = ekiden(&arguments);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn write_key(folder: &Path) {
    ekiden_keys::Identity::generate(&folder.join("node.key")).unwrap();
}
