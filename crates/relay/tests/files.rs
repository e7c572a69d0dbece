//! Users and destinations in files, which change while a node runs.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Instant;

use crate::common::log::{self, is_logged, logged};
use crate::common::origin::{get, origin};
use crate::common::*;
use ekiden_relay::{Config, Relay};

/// A file with rights of a secret, in a folder that goes with it.
struct Written {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Written {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = Self { path: folder.path().join("file.txt"), _folder: folder };
        file.say(text);
        file
    }

    /// Replaces it as a whole, as editors do.
    fn say(&self, text: &str) {
        let fresh = self.path.with_extension("fresh");
        fs::write(&fresh, text).unwrap();
        fs::set_permissions(&fresh, Permissions::from_mode(0o600)).unwrap();
        fs::rename(&fresh, &self.path).unwrap();
    }

    fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

/// `NAME:HASH`, for the password "secret".
fn user(name: &str) -> String {
    format!("{name}:{}\n", hash_of_secret())
}

fn guarded(users: &Written) -> String {
    let listener = |name: &str, kind: &str| {
        format!("[listen.{name}]\nkind = \"{kind}\"\naddress = \"127.0.0.1:0\"\nusers_file = \"{}\"\n", users.shown())
    };
    // On a busy machine the guesses before a login take long.
    format!("[limits]\nhandshake = \"60s\"\n{}{}", listener("web", "http"), listener("socks", "socks5"))
}

fn asks(relay: &Relay, server: SocketAddr, user: &str) -> u16 {
    get(&mut connect(relay.address("web").unwrap()), server, &format!("{user}:secret"))
}

/// Whether SOCKS5 takes a user's password.
fn socks_takes(relay: &Relay, user: &str) -> bool {
    let mut stream = connect(relay.address("socks").unwrap());
    stream.write_all(&[5, 1, 2]).unwrap();
    stream.read_exact(&mut [0; 2]).unwrap();
    let login = [&[1, user.len() as u8], user.as_bytes(), &[6], b"secret"].concat();
    stream.write_all(&login).unwrap();
    let mut reply = [0; 2];
    stream.read_exact(&mut reply).unwrap();
    reply == [1, 0]
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn users_come_and_go_with_their_lines() {
    let (server, _) = origin();
    let users = Written::new(&format!("\u{feff}# who\r\n\r\n{}", user("alice").replace('\n', "\r\n")));
    let relay = node(&guarded(&users));
    let mut kept = connect(relay.address("web").unwrap());
    assert_eq!(get(&mut kept, server, "alice:secret"), 200);
    assert_eq!(asks(&relay, server, "bob"), 407);
    assert!(socks_takes(&relay, "alice") && !socks_takes(&relay, "bob"));

    users.say(&user("bob"));
    until("bob is let in", || asks(&relay, server, "bob") == 200);
    assert_eq!(get(&mut kept, server, "alice:secret"), 407, "each request asks again");
    assert!(!socks_takes(&relay, "alice") && socks_takes(&relay, "bob"));

    // A file without users is no open door.
    users.say("# nobody\n");
    until("bob is out", || asks(&relay, server, "bob") == 407);
    let mut stream = connect(relay.address("web").unwrap());
    write!(stream, "GET http://{server}/ HTTP/1.1\r\nHost: {server}\r\n\r\n").unwrap();
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 407 "));
}

#[test]
fn a_change_of_other_users_leaves_a_kept_connection_and_its_origin() {
    let (server, _) = origin();
    let users = Written::new(&user("alice"));
    let relay = node(&guarded(&users));
    let mut kept = connect(relay.address("web").unwrap());
    assert_eq!(get(&mut kept, server, "alice:secret"), 200);
    users.say(&format!("{}{}", user("alice"), user("bob")));
    until("bob is let in", || asks(&relay, server, "bob") == 200);
    assert_eq!(get(&mut kept, server, "alice:secret"), 200);
}

#[test]
fn a_users_file_that_becomes_wrong_keeps_its_users_and_is_warned_of_once() {
    log::keep();
    let (server, _) = origin();
    let users = Written::new(&user("alice"));
    let relay = node(&guarded(&users));
    let file = users.shown();
    users.say(&format!("{}secret\n", user("bob")));
    let wrong = format!("{file}:2: is no user");
    until("the line is named", || is_logged(&wrong));
    assert_eq!((asks(&relay, server, "alice"), asks(&relay, server, "bob")), (200, 407));

    fs::set_permissions(&users.path, Permissions::from_mode(0o644)).unwrap();
    let open = format!("{file}: can be read by others: chmod 600 {file}: what it said before counts");
    until("the rights are named", || is_logged(&open));
    fs::remove_file(&users.path).unwrap();
    until("that it is away is told", || is_logged(&format!("{file}: cannot be read")));
    assert_eq!(asks(&relay, server, "alice"), 200);

    users.say(&user("bob"));
    until("bob is let in", || asks(&relay, server, "bob") == 200);
    // Two listeners have it.
    for said in [&wrong, &open] {
        assert_eq!(logged(said).len(), 1, "{:?}", logged(said));
    }
    assert!(logged(&file).iter().all(|line| !line.contains("secret") && !line.contains("argon2")));
}

#[test]
fn a_new_configuration_has_the_file_as_it_is_or_is_refused() {
    let (server, _) = origin();
    let users = Written::new(&user("alice"));
    let text = guarded(&users);
    let mut relay = node(&text);
    users.say(&user("bob"));
    relay.reload(config(&text)).unwrap();
    assert_eq!((asks(&relay, server, "alice"), asks(&relay, server, "bob")), (407, 200));
    // The file of the new configuration is the one that is followed.
    users.say(&user("carol"));
    until("carol is let in", || asks(&relay, server, "carol") == 200);

    users.say("carol\n");
    let refused = Config::parse(&text, &directory().join("node.toml")).unwrap_err().to_string();
    assert!(refused.starts_with(&format!("{}:1: is no user", users.shown())), "{refused}");
}

fn web(more: &str) -> String {
    format!("[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n{more}")
}

#[test]
fn what_a_list_refuses_is_refused_also_on_a_kept_connection() {
    log::keep();
    let (server, _) = origin();
    let list = Written::new("# none yet\n.example.org\n");
    let relay = node(&web(&format!("[[route]]\nto = [\"*:1\", \"@{}\"]\naction = \"refuse\"\n", list.shown())));
    let mut kept = connect(relay.address("web").unwrap());
    assert_eq!(get(&mut kept, server, "any:secret"), 200);

    list.say(&format!("127.0.0.0/8:{}\n", server.port()));
    until("the server is refused", || asks(&relay, server, "any") == 403);
    assert_eq!(get(&mut kept, server, "any:secret"), 403, "the origin's connection was made before");

    list.say("127.0.0.0/8\n10.0.0.1/8\n");
    let wrong = format!("{}:2: 10.0.0.1/8 is no network", list.shown());
    until("the line is named", || is_logged(&wrong));
    assert_eq!(asks(&relay, server, "any"), 403);
    list.say("");
    until("the server is let through", || asks(&relay, server, "any") == 200);
    assert_eq!(logged(&wrong).len(), 1);
}

#[test]
fn an_exit_allows_what_a_list_has() {
    let (server, _) = origin();
    let list = Written::new(&format!("# {server}\n192.0.2.1\n"));
    let relay = node(&web(&format!("[exit]\nallow = [\"@{}\"]\n", list.shown())));
    assert_eq!(asks(&relay, server, "any"), 403);
    list.say(&format!("192.0.2.1\n{server}\n"));
    until("the server is allowed", || asks(&relay, server, "any") == 200);
}
