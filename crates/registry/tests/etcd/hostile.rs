//! A member, or an etcd, that harms the others as far as it can.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ekiden_registry::{Access, IfOtherKey, RegistryError, Settings, Terms};
use serde_json::{Value, json};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::cluster::{Cluster, OVERLAY, ROOT_PASSWORD};
use crate::node::{LONG, Node, key, settings};
use crate::wait;

#[test]
fn a_member_takes_no_destinations_by_its_own_record() {
    let cluster = Cluster::start(1);
    let a = Node::join(&cluster, "a", 1);
    let near = Terms { near: Some(vec!["127.0.0.0/8".into()]), ..Terms::default() };
    cluster.operator().admit("b", key(2).parse().unwrap(), near, IfOtherKey::Refuse).unwrap();
    let b = Node::join(&cluster, "b", 2);
    a.wait_names(&["a", "b"]);
    assert_eq!(a.members()["b"].member.near, ["127.0.0.0/8"]);

    // The record of the liar, as it may write it.
    cluster.operator().admit("liar", key(3).parse().unwrap(), Terms::default(), IfOtherKey::Refuse).unwrap();
    let record = json!({
        "member_format": 2, "instance": "aa", "address": "192.0.2.3:7000", "fingerprint": key(3), "load": 0.0,
        "near": ["127.0.0.1/32"],
    });
    let path = format!("/ekiden/{OVERLAY}/nodes/liar");
    cluster.etcdctl(&["put", "--lease", &cluster.lease(), &path, &record.to_string()]);
    let reason = || a.registry.status().ignored.get("liar").cloned().unwrap_or_default();
    wait("a reason", LONG, || reason().contains("has 'near', which is for the operator"));
    assert_eq!(a.names(), ["a", "b"]);

    // Where b is gone, others know for which destinations it is needed, and that is the operator's word too.
    b.registry.stop();
    a.wait_names(&["a"]);
    wait("b's absence", LONG, || a.roster().absent.contains_key("b"));
    assert_eq!(a.roster().absent["b"].near, ["127.0.0.0/8"]);
    assert!(a.roster().absent["liar"].near.is_empty());
}

#[test]
fn a_flood_of_records_is_told_seldom_and_what_follows_it_is_heard() {
    let cluster = Cluster::start(1);
    let (a, b) = (Node::join(&cluster, "a", 1), Node::join(&cluster, "b", 2));
    a.wait_names(&["a", "b"]);
    let (changes, lease, path) = (a.changes(), cluster.lease(), format!("/ekiden/{OVERLAY}/nodes/b"));
    let record = |number: usize| {
        let address = format!("192.0.2.2:{}", 1000 + number);
        json!({ "member_format": 2, "instance": "bb", "address": address, "fingerprint": key(2), "load": 0.0 })
    };
    let writes = 400;
    let took = flood(&cluster, &path, &lease, (0..writes).map(|number| record(number).to_string()));
    // It is none that others work for, and what they are told is little.
    a.wait_names(&["a"]);
    let reason = || a.registry.status().ignored.get("b").cloned().unwrap_or_default();
    wait("a reason", LONG, || reason().contains("again and again"));
    let told = a.changes() - changes;
    let most = 3 + took.as_millis() as usize / 250;
    assert!(told <= most && told < writes / 2, "{told} changes told of {writes} in {took:?}");
    // Others come and go meanwhile.
    let c = Node::join(&cluster, "c", 3);
    a.wait_names(&["a", "c"]);
    c.registry.stop();
    a.wait_names(&["a"]);
    drop(b);
    cluster.operator().expel("b").unwrap();
    wait("b's end", LONG, || !a.roster().absent.contains_key("b"));
}

#[test]
fn a_full_etcd_is_named_and_its_members_are_known_all_the_same() {
    let cluster = Cluster::start_with(1, &["--quota-backend-bytes", "8000000"]);
    let a = Node::join(&cluster, "a", 1);
    let own = settings(&cluster, "b", 2, true);
    let path = format!("/ekiden/{OVERLAY}/nodes/c");
    let filled = || !cluster.try_put_long(&path, &vec![b'x'; 1_400_000]);
    assert!((0..20).any(|_| filled()), "8 MB have room for 28");
    // It gets no lease, and knows the others.
    let b = Node::start(own);
    let line = b.wait_problem(|error| matches!(error, RegistryError::NoSpace { .. }));
    assert!(line.contains("NOSPACE") && line.contains("docs/guide/overlay.md"), "{line}");
    b.wait_names(&["a"]);
    assert!(!b.registry.status().registered && b.registry.status().endpoint.is_some());
    // What is registered goes on, and somebody can still be expelled.
    assert!(a.registry.status().registered);
    let error = cluster.operator().admit("d", key(4).parse().unwrap(), Terms::default(), IfOtherKey::Refuse);
    assert!(matches!(error, Err(RegistryError::NoSpace { .. })), "{error:?}");
    // As the guide says.
    cluster.etcdctl(&["del", &path]);
    cluster.compact();
    cluster.etcdctl(&["defrag"]);
    cluster.etcdctl(&["alarm", "disarm"]);
    b.wait_registered();
    a.wait_names(&["a", "b"]);
}

#[test]
fn an_etcd_that_talks_garbage_is_asked_and_told_of_seldom() {
    asked_seldom(|_| json!({ "header": { "revision": "9" } }));
}

/// The first key of a page, again and again, with more to come; or one that was not asked for.
#[test]
fn an_etcd_that_never_comes_to_an_end_is_asked_seldom() {
    let page = |key: Value| {
        let kvs = json!([{ "key": key, "value": "", "mod_revision": "1", "create_revision": "1", "version": "1" }]);
        json!({ "header": { "revision": "9" }, "more": true, "count": "2", "kvs": kvs })
    };
    asked_seldom(move |question| {
        let prefix = STANDARD.decode(question["key"].as_str().unwrap_or_default()).unwrap_or_default();
        let first: Vec<u8> = prefix.into_iter().take_while(|byte| *byte != 0).collect();
        page(STANDARD.encode(first).into())
    });
    asked_seldom(move |_| page("enp6eg==".into()));
}

/// Its watch delivers results that hold nothing, as fast as they are read.
#[test]
fn a_watch_that_never_ends_is_read_slowly() {
    let (asked, lines) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = lines.clone();
    let nothing = |_: &Value| json!({ "header": { "revision": "9" } });
    let endless = move |to: &mut TcpStream| -> Option<()> {
        let some = "{\"result\":{}}\n".repeat(1000);
        write!(to, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").ok()?;
        loop {
            write!(to, "{:x}\r\n{some}\r\n", some.len()).ok()?;
            counted.fetch_add(1000, Ordering::Relaxed);
        }
    };
    let a = Node::start(babbling(asked.clone(), nothing, endless));
    wait("a watch", LONG, || lines.load(Ordering::Relaxed) > 0);
    // What the sockets hold fills first.
    let taken = || {
        let before = lines.load(Ordering::Relaxed);
        thread::sleep(Duration::from_secs(2));
        lines.load(Ordering::Relaxed) - before
    };
    let first = taken();
    let later = taken();
    assert!(later < 20_000, "{first} lines in 2 s, then {later}");
    assert!(a.registry.status().endpoint.is_some() && asked.load(Ordering::Relaxed) < 50);
}

/// Such an etcd, by what it answers to questions for all members, is asked a few times a second.
fn asked_seldom(all: impl Fn(&Value) -> Value + Send + Sync + 'static) {
    let asked = Arc::new(AtomicUsize::new(0));
    let compacted = |to: &mut TcpStream| say(to, &json!({ "result": { "canceled": true, "compact_revision": "4" } }));
    let a = Node::start(babbling(asked.clone(), all, compacted));
    wait("questions", LONG, || asked.load(Ordering::Relaxed) > 5);
    let before = asked.load(Ordering::Relaxed);
    thread::sleep(Duration::from_secs(3));
    let more = asked.load(Ordering::Relaxed) - before;
    // Some ten each time, after 0.25 s and later.
    assert!(more < 150, "{more} questions within 3 s");
    drop(a);
}

/// The settings of a node of an etcd that is none. `watched` answers who watches, until the connection has ended.
fn babbling(
    asked: Arc<AtomicUsize>,
    all: impl Fn(&Value) -> Value + Send + Sync + 'static,
    watched: impl Fn(&mut TcpStream) -> Option<()> + Send + Sync + 'static,
) -> Settings {
    let (all, watched) = (Arc::new(all), Arc::new(watched));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (asked, all, watched) = (asked.clone(), all.clone(), watched.clone());
            thread::spawn(move || babble(stream, &asked, &*all, &*watched));
        }
    });
    Settings {
        access: Access {
            endpoints: vec![endpoint],
            ca_file: None,
            user: None,
            password_file: None,
            timeout: Duration::from_secs(2),
        },
        overlay: OVERLAY.into(),
        expected_id: None,
        name: "a".into(),
        address: "192.0.2.1:7000".into(),
        fingerprint: key(1),
        lease: Duration::from_secs(5),
        members_cache: None,
    }
}

/// Writes the key again and again, as fast as etcd takes it. Returns how long it took.
fn flood(cluster: &Cluster, path: &str, lease: &str, values: impl Iterator<Item = String>) -> Duration {
    let base64 = |text: &str| STANDARD.encode(text);
    let authority = Certificate::from_pem(&std::fs::read(cluster.ca_file()).unwrap()).unwrap();
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(vec![authority])))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    let agent = ureq::Agent::config_builder().tls_config(tls).timeout_global(Some(LONG)).build().new_agent();
    let endpoint = cluster.endpoints().remove(0);
    let post = |path: &str, token: &str, request: Value| -> Value {
        let mut post = agent.post(format!("{endpoint}/v3/{path}"));
        if !token.is_empty() {
            post = post.header("Authorization", token);
        }
        serde_json::from_str(&post.send(request.to_string()).unwrap().into_body().read_to_string().unwrap()).unwrap()
    };
    let login = post("auth/authenticate", "", json!({ "name": "root", "password": ROOT_PASSWORD }));
    let token = login["token"].as_str().unwrap();
    let (begun, lease) = (Instant::now(), u64::from_str_radix(lease, 16).unwrap().to_string());
    let values: Vec<String> = values.collect();
    // Some at a time: one after the other they would be no flood where the disk is slow.
    let post = &post;
    thread::scope(|scope| {
        for some in values.chunks(values.len().div_ceil(8)) {
            let lease = &lease;
            scope.spawn(move || {
                for value in some {
                    post("kv/put", token, json!({ "key": base64(path), "value": base64(value), "lease": lease }));
                }
            });
        }
    });
    begun.elapsed()
}

/// Answers as an etcd that holds the overlay's id alone, and loses what is written.
fn babble(
    stream: TcpStream,
    asked: &AtomicUsize,
    all: &dyn Fn(&Value) -> Value,
    watched: &dyn Fn(&mut TcpStream) -> Option<()>,
) -> Option<()> {
    let mut from = BufReader::new(stream.try_clone().ok()?);
    let mut to = stream;
    loop {
        let (mut path, mut length) = (String::new(), 0);
        from.read_line(&mut path).ok().filter(|read| *read > 0)?;
        loop {
            let mut line = String::new();
            from.read_line(&mut line).ok().filter(|read| *read > 0)?;
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        from.read_exact(&mut body).ok()?;
        asked.fetch_add(1, Ordering::Relaxed);
        let question: Value = serde_json::from_slice(&body).ok()?;
        let answer = match path.split(' ').nth(1)? {
            "/v3/kv/range" if question.get("range_end").is_none() => {
                // 64 zeros in base64.
                let id = "MDAw".repeat(21) + "MA==";
                json!({ "header": { "revision": "9" }, "kvs": [{ "key": "eA==", "value": id, "mod_revision": "1" }] })
            }
            "/v3/kv/range" => all(&question),
            "/v3/watch" => {
                watched(&mut to)?;
                continue;
            }
            _ => json!({ "header": { "revision": "9" } }),
        };
        say(&mut to, &answer)?;
    }
}

fn say(to: &mut TcpStream, answer: &Value) -> Option<()> {
    let answer = format!("{answer}\n");
    write!(to, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len()).ok()
}
