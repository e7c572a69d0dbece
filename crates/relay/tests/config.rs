//! The configuration: what is refused, where and why; what is shown.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::common::process::Process;
use crate::common::*;
use ekiden_relay::{Config, ListenerKind, Pattern, Relay, Rules, sections};

fn refused(text: &str) -> String {
    match Config::parse(text, &directory().join("node.toml")) {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn addresses_that_a_node_could_not_have_are_told() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let missing = |address: &str| {
        let text = format!("[listen.x]\nkind = \"forward\"\naddress = \"{address}\"\nto = \"host:80\"\nopen = true\n");
        Relay::missing_addresses(&config(&text)).concat()
    };
    // An address of documentation (RFC 5737).
    let told = missing("192.0.2.1:7000");
    assert!(
        told.starts_with("[listen.x]: ") && told.contains("192.0.2.1:7000: Cannot assign requested address"),
        "{told}"
    );
    let told = missing(&taken.local_addr().unwrap().to_string());
    assert!(told.contains("would wait 5s") && told.contains("`ss -ltnp"), "{told}");
    // A node that runs may be the one to replace.
    let node = Process::start("check", "[listen.x]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n");
    let port = node.addresses[0].port();
    assert_eq!(missing(&format!("127.0.0.1:{port}")), "");
    // ... if it has the name of this one.
    let text = format!("name = \"other\"\n[listen.x]\nkind = \"socks5\"\naddress = \"127.0.0.1:{port}\"\n");
    let told = Relay::missing_addresses(&config(&text)).concat();
    assert!(told.contains(&format!(", process {}, has it)", node.child.id())), "{told}");
    // It is in nobody's way at an address that is not this host's.
    let any = Process::start("check-any", "[listen.x]\nkind = \"socks5\"\naddress = \"0.0.0.0:0\"\nopen = true\n");
    let told = missing(&format!("192.0.2.1:{}", any.addresses[0].port()));
    assert!(told.contains("Cannot assign requested address"), "{told}");
}

#[test]
fn nothing_needs_no_unit() {
    assert_eq!(config("[limits]\ndrain = 0\n").limits.drain, Duration::ZERO);
}

#[test]
fn what_is_wrong_is_refused_with_its_line() {
    let listen = |kind: &str, address: &str, more: &str| {
        format!("\n[listen.x]\nkind = \"{kind}\"\naddress = \"{address}\"\n{more}\n")
    };
    let peer = "[peer.p]\naddress = \"h:1\"\nplain_key_file = \"key\"\n";
    for (text, line, why) in [
        ("colour = 1".into(), 1, "unknown field `colour`"),
        ("name = ".into(), 1, ""),
        ("\nname = \"a b\"".into(), 2, "not a node name"),
        ("threads = 0".into(), 1, "from 1 to 256"),
        ("[limits]\nhandshake = \"0\"".into(), 2, "limits.handshake"),
        ("[limits]\nhandshake = \"10\"".into(), 2, "needs one of the units"),
        ("[limits]\nidle = \"25h\"".into(), 2, "limits.idle must be from 1ms to 24h"),
        ("[limits]\nhttp_head_size = \"2GiB\"".into(), 2, "limits.http_head_size"),
        ("[limits]\nmemory = \"1KiB\"".into(), 2, "limits.memory must be from 1MiB to 1TiB"),
        ("[limits]\nclient_connections = 0".into(), 2, "limits.client_connections must be from 1 to 1000000"),
        ("[limits]\nconnections = -1".into(), 2, "limits.connections must be from 1 to 1000000"),
        ("threads = -1".into(), 1, "threads must be from 1 to 256"),
        ("[limits]\nuser_rate = 0".into(), 2, "limits.user_rate must be from 1 to 1000000"),
        (format!("{peer}warm = 65\n"), 4, "warm must be from 0 to limits.pool, which is 64"),
        (format!("{peer}warm = -1\n"), 4, "warm must be from 0 to limits.pool, which is 64"),
        (
            "[peer.p]\naddress = \"[::]:7000\"\nplain_key_file = \"key\"".into(),
            2,
            "'[::]:7000' is where a node listens: give the address to which others connect",
        ),
        ("[class.web]\nweight = 0".into(), 2, "weight must be from 1 to 1000"),
        ("[class.web]\nceiling = \"1kbit/s\"".into(), 2, "ceiling must be from 16kbit/s to 1Tbit/s"),
        (
            "[class.web]\nceiling = \"1Mbit/s\"\nfloor = \"2Mbit/s\"".into(),
            3,
            "the floor of 'web', 2Mbit/s, is above its ceiling, 1Mbit/s",
        ),
        ("[class.web]\nstreams = 0".into(), 2, "streams must be from 1 to 1000000"),
        ("[class.web]\nwait = \"1s\"".into(), 2, "'wait' needs 'streams'"),
        ("[class.web]\nusers = [\"eve\"]".into(), 2, "no listener has a user 'eve'"),
        ("[class.\"a b\"]".into(), 1, "not a class name"),
        ("[class.web]\ncolour = 1".into(), 2, "unknown field `colour`"),
        ("[tcp]\nthreads = 2".into(), 2, "; `threads` stands above the first table of the file"),
        (listen("http", "127.0.0.1:1", "class = \"web\""), 5, "there is no [class.web]: known are bulk, interactive"),
        (
            listen("leg", "127.0.0.1:1", "plain_key_file = \"key\"\nclass = \"bulk\""),
            6,
            "a leg listener has no 'class'",
        ),
        (
            "[[route]]\nto = [\"*\"]\naction = \"direct\"\nclass = \"bulk\"".into(),
            4,
            "'class' is for routes with 'via'",
        ),
        (format!("{peer}[[route]]\nto = [\"*\"]\nvia = [\"p\"]\nclass = \"x\""), 7, "there is no [class.x]"),
        ("[tcp]\ncongestion = \"\"".into(), 2, "cannot be a congestion control"),
        ("[tcp]\ncongestion_fallback = \"ekiden_bic\"".into(), 2, "one of the kernel's own"),
        ("[congestion.ghstcp]\nspan = 99".into(), 2, "ghstcp.span cannot be '99': it is a number from 0.05 to 8"),
        ("[congestion.ghstcp]\nspan = nan".into(), 2, "ghstcp.span cannot be 'NaN'"),
        (
            "[congestion.vegas]\nalpha = 1".into(),
            1,
            "there is no [congestion.vegas] (there are hstcp, ghstcp, bic, slow_start, far)",
        ),
        ("\n[congestion.hstpc]\n".into(), 2, "; did you mean `hstcp`?"),
        ("[congestion.ghstcp]\nspam = 1".into(), 2, "; did you mean `span`?"),
        (
            "\n[listen.\"a\\nb\"]\nkind = \"http\"\naddress = \"127.0.0.1:1\"".into(),
            2,
            "\"a\\nb\" cannot be the name of a",
        ),
        ("[listen.\"\\u009b2J\"]\nkind = \"http\"\naddress = \"127.0.0.1:1\"".into(), 1, "it has a control character"),
        ("[congestion.ghstcp]\nlow = 0.9".into(), 1, "ghstcp.low must not exceed ghstcp.high"),
        ("[tcp]\nsend_buffer = \"1B\"".into(), 2, "tcp.send_buffer = 1B: a buffer must be from 4KiB to 1GiB"),
        ("[tcp]\nkeepalive = \"999ms\"".into(), 2, "tcp.keepalive must be from 1s to 9h"),
        ("[tcp]\nuser_timeout = \"25h\"".into(), 2, "tcp.user_timeout must be from 1s to 24h"),
        (listen("socks4", "127.0.0.1:1", ""), 3, "`mixed` takes SOCKS4 and 4a"),
        (listen("https", "127.0.0.1:1", ""), 3, "; an HTTPS proxy is an `http` listener with a table `tls`"),
        (listen("http", "127.0.0.1:1", "tls = true"), 5, "or {} for a certificate of the node's own"),
        (listen("http", "127.0.0.1:1", "tls = { cert_file = \"a\" }"), 5, "; did you mean `certificate_file`?"),
        (listen("http", "127.0.0.1:1", "tls = { ca_file = \"a\" }"), 5, "; did you mean `client_ca_file`?"),
        ("[listen]\ntls = \"127.0.0.1:1\"".into(), 2, "listen.tls: invalid type: "),
        ("[exit]\ndeny = [\"10.0.0.0/8\"]".into(), 2, "; what is refused is a [[route]] with action = \"refuse\""),
        ("[[route]]\nto = [\"*\"]\naction = \"deny\"".into(), 3, "; did you mean `refuse`?"),
        (listen("socks5", "127.0.0.1", ""), 4, "needs a port from 1 to 65535, as in 127.0.0.1:80"),
        (listen("socks5", "localhost:1", ""), 4, "not an address and port"),
        (listen("socks5", "0.0.0.0:1", ""), 4, "open = true"),
        (listen("http", "[::]:1", ""), 4, "open = true"),
        (listen("forward", "192.0.2.1:1", "to = \"a:1\""), 4, "open = true"),
        (listen("forward", "127.0.0.1:1", ""), 2, "to = "),
        (listen("forward", "127.0.0.1:1", "to = \"a\""), 5, "port"),
        (listen("forward", "127.0.0.1:1", "to = \"a:1\"\nvia = [\"p\"]"), 6, "no [peer.p]"),
        (listen("forward", "127.0.0.1:1", "to = \"a:1\"\nusers = { a = \"b\" }"), 6, "has no 'users'"),
        (listen("forward", "127.0.0.1:1", "to = \"a:1\"\nusers_file = \"u\""), 6, "has no 'users_file'"),
        (listen("http", "127.0.0.1:1", "users_file = \"none.txt\""), 5, "none.txt: cannot be read: No such file"),
        (listen("http", "127.0.0.1:1", "users_file = \"key.pem\""), 5, "is a private key (PEM), not a list of users"),
        (
            listen("http", "127.0.0.1:1", "users_file = \"key.pem\"\nusers = {}"),
            6,
            "either users or users_file, not both",
        ),
        ("[[route]]\nto = [\"*:1\", \"@none.txt\"]\naction = \"refuse\"".into(), 2, "none.txt: cannot be read"),
        ("[exit]\nallow = [\"@\"]".into(), 2, "names no file"),
        (listen("socks5", "127.0.0.1:1", "to = \"a:1\""), 5, "has no 'to'"),
        (listen("socks5", "127.0.0.1:1", "proxy_protocol = \"v2\""), 5, "has no 'proxy_protocol'"),
        (listen("forward", "127.0.0.1:1", "to = \"a:1\"\nproxy_protocol = \"v3\""), 6, "unknown variant `v3`"),
        (listen("leg", "127.0.0.1:1", "proxy_protocol_from = []"), 5, "has no 'proxy_protocol_from'"),
        (listen("http", "127.0.0.1:1", "proxy_protocol_from = [\"a\"]"), 5, "not a network"),
        (
            listen("socks5", "127.0.0.1:1", "reply = \"late\""),
            5,
            "unknown variant `late`, expected `early` or `connected`",
        ),
        (listen("leg", "127.0.0.1:1", "plain_key_file = \"key\"\nreply = \"early\""), 6, "has no 'reply'"),
        (listen("http", "127.0.0.1:1", "users = { \"a:b\" = \"c\" }"), 5, "without ':'"),
        (listen("http", "127.0.0.1:1", "users = { a = \"secret\" }"), 5, "'ekiden password' makes it"),
        (listen("http", "127.0.0.1:1", "") + "[listen.y]\nkind = \"http\"\naddress = \"127.0.0.1:1\"", 8, "already"),
        (
            listen("http", "127.0.0.1:1", "") + "[listen.y]\nkind = \"http\"\naddress = \"0.0.0.0:1\"\nopen = true",
            8,
            "[listen.x] has 127.0.0.1:1, and one of both is for all addresses",
        ),
        (listen("transparent", "0.0.0.0:1", "interfaces = [\"a\"]"), 4, "127.0.0.1:PORT"),
        (listen("transparent", "127.0.0.2:1", "interfaces = [\"a\"]"), 4, "127.0.0.1:PORT"),
        (listen("transparent", "[::1]:0", "interfaces = [\"a\"]"), 4, "[::1]:PORT"),
        (listen("transparent", "127.0.0.1:1", ""), 2, "needs interfaces"),
        (listen("transparent", "127.0.0.1:1", "interfaces = []"), 2, "needs interfaces"),
        (listen("transparent", "127.0.0.1:1", "interfaces = [\"a\", \"b}\"]"), 5, "'b}' is not the name"),
        (listen("transparent", "127.0.0.1:1", "interfaces = [\"lo\"]"), 5, "'lo' is not the name"),
        (listen("transparent", "127.0.0.1:1", "interfaces = [\"a\"]\nexcept = [\".jp\"]"), 6, "sees addresses"),
        (listen("transparent", "127.0.0.1:1", "interfaces = [\"a\"]\nusers = {}"), 6, "has no 'users'"),
        (listen("socks5", "127.0.0.1:1", "interfaces = [\"a\"]"), 5, "has no 'interfaces'"),
        (listen("socks5", "127.0.0.1:1", "late_interfaces = true"), 5, "has no 'late_interfaces'"),
        (listen("forward", "127.0.0.1:9", "to = \"127.0.0.1:9\""), 5, "would connect to itself"),
        (listen("forward", "127.0.0.1:9", "to = \"[::ffff:127.0.0.1]:9\""), 5, "would connect to itself"),
        (listen("forward", "127.0.0.1:9", "to = \"0.0.0.0:9\""), 5, "would connect to itself"),
        (listen("forward", "127.0.0.1:9", "to = \"localhost.:9\""), 5, "would connect to itself"),
        (listen("forward", "[::]:9", "open = true\nto = \"127.8.7.6:9\""), 6, "would connect to itself"),
        (
            listen("forward", "127.0.0.1:9", "to = \"127.0.0.1:8\"")
                + "[listen.y]\nkind = \"forward\"\naddress = \"127.0.0.1:8\"\nto = \"127.0.0.1:9\"\n",
            5,
            "[listen.x] would connect to itself",
        ),
        (format!("{peer}[[route]]\nto = [\"*\"]\nvia = []"), 6, "'via' names no node"),
        (format!("{peer}[[route]]\nto = [\"*\"]\nvia = [\"p\", \"q\", \"p\"]"), 6, "'p' is in this chain twice"),
        (format!("name = \"q\"\n{peer}[[route]]\nto = [\"*\"]\nvia = [\"p\", \"q\"]"), 7, "'q' is this node"),
        (
            listen("leg", "127.0.0.1:9", "plain_key_file = \"key\"")
                + "[peer.p]\naddress = \"localhost:9\"\nplain_key_file = \"key\"",
            7,
            "[listen.x] takes what comes there",
        ),
        (listen("http", "127.0.0.1:1", "except = []"), 5, "has no 'except'"),
        (listen("forward", "127.0.0.1:1", "to = \"a:1\"\nbypass = true"), 6, "has no 'bypass'"),
        ("[exit]\nclient_addresses = [\"a\"]".into(), 2, "not a network"),
        (listen("leg", "127.0.0.1:1", ""), 2, "make one with `ekiden keygen FILE`"),
        ("[peer.p]\naddress = \"h:1\"".into(), 1, "make one with `ekiden keygen FILE`"),
        ("key_file = \"key\"".into(), 1, "a shared key is named in plain_key_file"),
        ("[peer.p]\naddress = \"h:1\"\nplain_key_file = \"key.pem\"".into(), 3, "64 hexadecimal digits"),
        ("[peer.p]\naddress = \"h:1\"\nfingerprint = \"x\"\nplain_key_file = \"key\"".into(), 3, "either fingerprint"),
        ("key_file = \"key.pem\"\n[peer.p]\naddress = \"h:1\"\nfingerprint = \"x\"".into(), 4, "'x' is no fingerprint"),
        (listen("leg", "127.0.0.1:1", "nodes = {}\nplain_key_file = \"key\""), 5, "either nodes"),
        (listen("socks5", "127.0.0.1:1", "nodes = {}"), 5, "has no 'nodes'"),
        (listen("http", "127.0.0.1:1", "plain_key_file = \"key\""), 5, "has no 'plain_key_file'"),
        ("key_file = \"missing\"".into(), 1, "No such file"),
        ("key_file = \"/etc/passwd\"".into(), 1, "key file /etc/passwd: holds no private key"),
        (format!("{peer}[[route]]\nto = [\"a b\"]\nvia = [\"p\"]"), 5, "not a destination"),
        (format!("{peer}[[route]]\nto = []\nvia = [\"p\"]"), 4, "at least one destination"),
        (format!("{peer}[[route]]\nto = [\"*\"]"), 4, "either via"),
        (format!("{peer}[[route]]\nto = [\"*\"]\nvia = [\"q\"]"), 6, "no [peer.q]"),
        (format!("{peer}[[route]]\nto = [\"*\"]\nvia = [\"p\"]\naction = \"direct\""), 4, "either via"),
    ] {
        let error = refused(&text);
        let place = if line == 0 { "node.toml: ".to_owned() } else { format!("node.toml:{line}: ") };
        assert!(error.contains(&place) && error.contains(why) && !error.contains('\n'), "{text}\n{error}");
    }
}

#[test]
fn what_is_shown_is_a_configuration_without_secrets() {
    let (key, hash) = (fingerprint("key"), hash_of_secret());
    let text = format!(
        "name = \"island\"\nkey_file = \"key.pem\"\n[tcp]\nsend_buffer = \"4MiB\"\ncongestion = \"reno\"\ncongestion_fallback = \"cubic\"\nuser_timeout = \"90s\"\n\
        [limits]\nlifetime = \"12h\"\n[congestion.hstcp]\nhigh_p = 2e-7\n[congestion.bic]\ns_max = 16\n\
        [listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:1080\"\nusers = {{ alice = \"{hash}\" }}\n\
        [listen.ssh]\nkind = \"forward\"\naddress = \"0.0.0.0:22\"\nto = \"a:22\"\nvia = [\"osaka\", \"tokyo\"]\nopen = true\n\
        [listen.leg]\nkind = \"leg\"\naddress = \"[::]:7000\"\ntcp = {{ receive_buffer = \"1MiB\" }}\n\
        nodes = {{ tokyo = \"{key}\" }}\n\
        [listen.line]\nkind = \"leg\"\naddress = \"[::]:7001\"\nplain_key_file = \"key\"\n\
        [peer.osaka]\naddress = \"198.51.100.7:7000\"\nfingerprint = \"{key}\"\n\
        [peer.kobe]\naddress = \"198.51.100.8:7000\"\n\
        [peer.nagoya]\naddress = \"198.51.100.9:7000\"\nplain_key_file = \"key\"\n\
        [[route]]\nto = [\"10.0.0.0/8\", \".example.jp\", \"example.org:80\", \"*:25\", \"[2001:db8::/32]:1\"]\nvia = [\"osaka\"]\n\
        [[route]]\nto = [\"*\"]\naction = \"refuse\"\n\
        [listen.lan]\nkind = \"transparent\"\naddress = \"127.0.0.1:3129\"\ninterfaces = [\"lan0\"]\nexcept = [\"10.0.0.0/8\", \"*:25\"]\n\
        [class.web]\nkind = \"interactive\"\nweight = 3\nfloor = \"2Mbit/s\"\nusers = [\"alice\"]\nstreams = 9\n\
        [class.bulk]\nceiling = \"50Mbit/s\"\n[[route]]\nto = [\"a:1\"]\nvia = [\"osaka\"]\nclass = \"web\"\n\
        [listen.classed]\nkind = \"http\"\naddress = \"127.0.0.1:8\"\nclass = \"web\"\n\
        [exit]\nclient_addresses = [\"10.0.0.0/8\", \"fd00::1\"]\n"
    );
    let shown = config(&text).to_string();
    let pem = std::fs::read_to_string(directory().join("key.pem")).unwrap();
    let secret = pem.lines().nth(1).unwrap();
    assert!(
        shown.contains("{ alice = \"***\" }")
            && !shown.contains("argon2")
            && !shown.contains("aaaa")
            && !shown.contains(secret),
        "{shown}"
    );
    assert!(!format!("{:?}", config(&text)).contains(secret));
    assert!(shown.contains("connections = 16384") && shown.contains("handshake = \"10s\""), "{shown}");
    assert!(shown.contains("reply = \"connected\"") && shown.contains("reply = \"early\""), "{shown}");
    assert!(shown.contains("congestion_fallback = \"cubic\"") && shown.contains("high_p = 2e-7"), "{shown}");
    assert!(shown.contains("user_timeout = \"90s\"") && shown.contains("keepalive = \"60s\""), "{shown}");
    assert_eq!(config(&shown.replace("***", hash_of_secret())).to_string(), shown);
}

#[test]
fn files_of_users_and_destinations_are_shown_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let users = file("users \\\"x", &format!("alice:{}\n", hash_of_secret()));
    let list = file("list", ".example.org\n10.0.0.0/8:80\n");
    let shown = config(&format!(
        "[listen.web]\nkind = \"mixed\"\naddress = \"0.0.0.0:8080\"\nusers_file = {users:?}\n\
         [class.web]\nusers = [\"whoever comes\"]\n\
         [[route]]\nto = [\"*:25\", \"@{list}\"]\naction = \"refuse\"\n[exit]\nallow = [\"@{list}\"]\n"
    ))
    .to_string();
    for part in [&format!("to = [\"*:25\", \"@{list}\"]"), &format!("allow = [\"@{list}\"]")] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert!(shown.contains("users_file = '") && !shown.contains("argon2"), "{shown}");
    assert_eq!(config(&shown).to_string(), shown);
}

#[test]
fn names_that_need_quotes_are_shown_so_that_they_can_be_read() {
    let users = format!("users = {{ \"d\\u0007e\\u0301 \\\"f\\\"\" = \"{}\" }}", hash_of_secret());
    let shown =
        config(&format!("[listen.\"a 'b\\\"c\"]\nkind = \"http\"\naddress = \"127.0.0.1:1\"\n{users}\n")).to_string();
    let again = config(&shown.replace("***", hash_of_secret()));
    assert_eq!(again.to_string(), shown);
    assert!(again.listeners.contains_key("a 'b\"c"), "{shown}");
    let ListenerKind::Http { users } = &again.listeners[0].kind else { panic!("{shown}") };
    let users = users.as_ref().unwrap().current();
    assert_eq!(users.keys().collect::<Vec<_>>(), ["d\u{7}e\u{301} \"f\""]);
}

#[test]
fn without_a_key_the_default_holds_that_the_list_of_keys_shows() {
    let shown = config("").to_string();
    let value =
        |key: &str| shown.lines().find_map(|line| line.trim_start_matches("# ").strip_prefix(key)?.strip_prefix(" = "));
    let mut seen = 0;
    for key in sections().iter().flat_map(|section| &section.keys).filter(|key| !key.default.is_empty()) {
        if let Some(value) = value(key.name).filter(|_| key.name != "threads") {
            let default = key.default.split(", or ").next().unwrap();
            assert_eq!(value.trim_matches('"'), default, "{}", key.name);
            seen += 1;
        }
    }
    assert!(seen > 15, "found only {seen}");
    for (group, parameter) in ekiden_congestion::PARAMETERS.iter().map(|one| one.name.split_once('.').unwrap()) {
        let name = format!("[congestion.{group}]");
        let section = sections().into_iter().find(|section| section.name == name).unwrap();
        assert!(section.keys.iter().any(|key| key.name == parameter), "{name} lacks {parameter}");
    }
    let limits = config("[limits]\nclient_rate = 7\n").limits;
    assert_eq!((limits.client_rate, limits.loopback_rate), (7, 7));
}

#[test]
fn patterns_match_what_they_say() {
    let matches = |pattern: &str, target: &str| Pattern::parse(pattern).unwrap().matches(&target.parse().unwrap());
    for (pattern, target) in [
        ("*", "a:1"),
        ("*:25", "a:25"),
        ("10.0.0.0/8", "10.1.2.3:9"),
        ("10.0.0.0/8", "[::ffff:10.1.2.3]:9"),
        ("10.1.2.3", "10.1.2.3:9"),
        ("192.0.2.0/24:80", "192.0.2.9:80"),
        ("2001:db8::/32", "[2001:db8::1]:1"),
        ("[2001:db8::1]:22", "[2001:db8::1]:22"),
        (".example.jp", "www.Example.JP:1"),
        (".example.jp", "example.jp:1"),
        ("example.org", "EXAMPLE.org.:1"),
    ] {
        assert!(matches(pattern, target), "{pattern} {target}");
    }
    for (pattern, target) in [
        ("*:25", "a:26"),
        ("10.0.0.0/8", "11.0.0.1:1"),
        ("10.0.0.0/8", "a:1"),
        (".example.jp", "notexample.jp:1"),
        ("example.org", "www.example.org:1"),
        ("192.0.2.0/24:80", "192.0.2.9:81"),
    ] {
        assert!(!matches(pattern, target), "{pattern} {target}");
    }
    for wrong in ["", ":80", ".10.0.0.1", "a/b", "10.0.0.1-10.0.0.9", "192.0.2.300:80", ".1"] {
        assert!(Pattern::parse(wrong).unwrap_err().contains("use a network (10.0.0.0/8)"), "{wrong}");
    }
    for (wrong, said) in [
        ("a:0", "'a:0' is not a destination: '0' is not one port from 1 to 65535; all ports are meant without"),
        (
            "*:80-90",
            "'*:80-90' is not a destination: '80-90' is not one port from 1 to 65535; all ports are meant without",
        ),
        ("*.example.jp", "'*.example.jp' is not a destination: write '.example.jp' for a domain and all below it"),
        ("http://a", "'http://a' is not a destination: write the host alone, without 'http://'"),
        ("10.0.0.1/8", "10.0.0.1/8 is no network: 10.0.0.0/8 is the one around it"),
        ("10.0.0.0/33", "'10.0.0.0/33': the prefix of an IPv4 network has 0 to 32 bits"),
        ("[2001:db8::1/32]:443", "2001:db8::1/32 is no network: 2001:db8::/32 is the one around it"),
    ] {
        assert_eq!(Pattern::parse(wrong).unwrap_err(), said);
    }
}

#[test]
fn rules_say_what_is_taken_and_carry_the_name_of_the_node() {
    let rules = |text: &str| Rules::of(&config(text)).map(|rules| rules.to_string());
    assert_eq!(rules("[listen.x]\nkind = \"socks5\"\naddress = \"127.0.0.1:1\"\n"), None);
    let text = "name = \"isle-1\"\n[listen.x]\nkind = \"transparent\"\naddress = \"[::1]:3129\"\n\
        interfaces = [\"lan0\", \"lan1.5\"]\nexcept = [\"*:25\", \"10.0.0.0/8\", \"[2001:db8::/32]:80\"]\n";
    let shown = rules(text).unwrap();
    assert!(shown.contains("table inet ekiden_isle-1 {") && shown.contains("{ \"lan0\", \"lan1.5\" }"), "{shown}");
    assert!(shown.contains("\ttcp dport 25 return\n"), "{shown}");
    assert!(shown.contains("\tip6 daddr 2001:db8::/32 tcp dport 80 return\n"), "{shown}");
    assert!(
        shown.contains("tproxy ip6 to [::1]:3129 ") && !shown.contains("ipv4") && !shown.contains("10.0.0.0"),
        "{shown}"
    );
    let mark = |shown: &str| shown.split("fwmark ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert_ne!(mark(&shown), mark(&rules(&text.replace("isle-1", "isle-2")).unwrap()));
    // An exit takes nothing, but its connections have other addresses than its own.
    let exit = rules("[exit]\nclient_addresses = [\"10.0.0.0/8\"]\n").unwrap();
    assert!(exit.contains("ipv4") && !exit.contains("ipv6") && !exit.contains("tproxy"), "{exit}");
}

#[test]
fn forwards_that_lead_elsewhere_are_taken() {
    let peer = "[peer.p]\naddress = \"h:1\"\nplain_key_file = \"key\"\n";
    for (address, more) in [
        ("127.0.0.1:9", "to = \"127.0.0.1:8\""),
        ("127.0.0.1:9", "to = \"127.0.0.2:9\""),
        ("127.0.0.1:9", "to = \"192.0.2.1:9\""),
        // At the other end of a chain, this is another host.
        ("127.0.0.1:9", "to = \"127.0.0.1:9\"\nvia = [\"p\"]"),
        ("127.0.0.1:9", "to = \"127.0.0.1:9\"\n[[route]]\nto = [\"*\"]\nvia = [\"p\"]"),
        ("[::1]:9", "to = \"127.0.0.1:9\""),
    ] {
        config(&format!("{peer}[listen.x]\nkind = \"forward\"\naddress = \"{address}\"\n{more}\n"));
    }
}

#[test]
fn a_file_without_a_listener_is_refused() {
    let file = directory().join("idle.toml");
    std::fs::write(&file, "name = \"idle\"\n").unwrap();
    let error = Config::load(&file).unwrap_err().to_string();
    assert!(error.ends_with("add a [listen.NAME]"), "{error}");
}
