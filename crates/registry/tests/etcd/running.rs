//! What is so while etcd is there.

use std::time::{Duration, Instant, SystemTime};

use ekiden_registry::{IfOtherKey, Load, Operator, RegistryError, Terms};

use crate::cluster::{Cluster, OVERLAY, told};
use crate::node::{Apart, LONG, Node, key, settings};
use crate::proxy::Proxy;
use crate::wait;

#[test]
fn nodes_see_each_other_come_change_and_go() {
    let cluster = Cluster::start(1);
    let (a, b) = (Node::join(&cluster, "a", 1), Node::join(&cluster, "b", 2));
    a.wait_names(&["a", "b"]);
    b.wait_names(&["a", "b"]);
    assert_eq!(b.members()["a"].member.fingerprint, key(1));
    assert_eq!(a.registry.status().problem, None);

    b.registry.set_load(Load::new(0.5));
    wait("b's load", LONG, || a.members()["b"].load == Load::new(0.5));

    // A node that is stopped is gone at once, not when its lease ends.
    let mut long = settings(&cluster, "c", 3, true);
    long.lease = Duration::from_secs(3600);
    let c = Node::start(long);
    a.wait_names(&["a", "b", "c"]);
    c.registry.stop();
    a.wait_names(&["a", "b"]);

    // One that is no longer admitted is gone while it still runs.
    let at = Instant::now();
    cluster.operator().expel("b").unwrap();
    a.wait_names(&["a"]);
    told("expelled", at);
    // Its user of etcd has gone too, which it is told when it logs in again.
    b.wait_problem(|error| {
        matches!(error, RegistryError::NotAdmitted { .. } | RegistryError::Refused { .. } | RegistryError::Login { .. })
    });
    b.wait_names(&["a"]);
    let mut operator = cluster.operator();
    let error = cluster.try_etcdctl(&["user", "get", &format!("ekiden.{OVERLAY}.b")]).unwrap_err();
    assert!(error.contains("user name not found"), "{error}");
    assert_eq!(operator.admitted().unwrap().into_keys().collect::<Vec<_>>(), ["a", "c"]);
    operator.admit("b", key(2).parse().unwrap(), Terms::default(), IfOtherKey::Replace).unwrap();
    operator.add_user("b", "b's").unwrap();
    a.wait_names(&["a", "b"]);
}

#[test]
fn a_killed_node_is_gone_within_its_lease_and_may_come_back_sooner() {
    let cluster = Cluster::start(1);
    let a = Node::join(&cluster, "a", 1);
    let mut b = Apart::start(&settings(&cluster, "b", 2, true), &[]);
    a.wait_names(&["a", "b"]);
    b.wait_line("members a b");

    // It is back before anybody has missed it.
    let mut long = settings(&cluster, "c", 3, true);
    long.lease = Duration::from_secs(60);
    let mut c = Apart::start(&long, &[]);
    a.wait_names(&["a", "b", "c"]);
    let (revision, changes) = (cluster.revision(), a.changes());
    c.process.kill();
    let c = Apart::start(&long, &[]);
    c.wait_line("members a b c");
    wait("another registration of c", LONG, || cluster.revision() > revision);
    assert_eq!((a.names().len(), a.has_missed_since("c", changes)), (3, false));

    b.process.kill();
    let at = Instant::now();
    a.wait_names(&["a", "c"]);
    // etcd looks at its leases twice a second, and may be busy.
    assert!(told("a node of a 5 s lease killed, gone", at) < Duration::from_secs(8));
}

#[test]
fn a_wall_clock_that_is_wrong_by_an_hour_harms_nothing() {
    let folders =
        std::fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path().join("faketime/libfaketime.so.1"));
    let library = folders.into_iter().find(|file| file.exists()).expect("libfaketime is needed: scripts/setup test");
    let cluster = Cluster::start(1);
    let a = Node::join(&cluster, "a", 1);
    for (name, number, offset, hours) in [("b", 2, "+3600", 1), ("c", 3, "-3600", -1)] {
        // The monotonic clock of a machine does not jump when its wall clock is set.
        let library = library.to_str().unwrap();
        let clock = [("LD_PRELOAD", library), ("FAKETIME", offset), ("DONT_FAKE_MONOTONIC", "1")];
        let node = Apart::start(&settings(&cluster, name, number, true), &clock);
        a.wait_names(&["a", name]);
        node.wait_line(&format!("members a {name}"));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let date = node.line("date ").parse::<u64>().unwrap();
        assert!(date.abs_diff(now.checked_add_signed(hours * 3600).unwrap()) < 120, "{date} at {now}");
        // It keeps its lease.
        let changes = a.changes();
        std::thread::sleep(Duration::from_secs(7));
        assert_eq!(a.changes(), changes);
        drop(node);
        a.wait_names(&["a"]);
    }
}

#[test]
fn an_idle_node_sends_little() {
    let cluster = Cluster::start(1);
    let proxy = Proxy::to(cluster.port(0));
    let mut own = settings(&cluster, "a", 1, true);
    own.access.endpoints = vec![proxy.endpoint()];
    own.lease = Duration::from_secs(10);
    let a = Node::start(own);
    a.wait_registered();
    std::thread::sleep(Duration::from_secs(4));
    let (bytes, connections, at) = (proxy.bytes(), proxy.connections(), Instant::now());
    std::thread::sleep(Duration::from_secs(20));
    let rate = (proxy.bytes() - bytes) as f64 / at.elapsed().as_secs_f64();
    eprintln!("idle: {rate:.0} bytes a second, with TLS, both ways, without headers of TCP and IP");
    assert!(rate < 2000.0, "{rate} bytes a second");
    assert_eq!((proxy.connections(), a.registry.status().problem), (connections, None));
}

#[test]
fn what_the_role_of_a_node_does_not_allow_etcd_refuses() {
    let cluster = Cluster::start(1);
    let own = settings(&cluster, "a", 1, true);
    // An operator with a node's user is not sent to the node's role.
    let error = Operator::new(&own.access, OVERLAY)
        .unwrap()
        .admit("b", key(2).parse().unwrap(), Terms::default(), IfOtherKey::Refuse)
        .unwrap_err();
    assert!(matches!(error, RegistryError::NoOperator { .. }), "{error}");
    let user = format!("{}:a's", own.access.user.unwrap());
    let endpoint = cluster.endpoints().remove(0);
    let run = |arguments: &[&str]| cluster.etcdctl_as(&["--user", &user], arguments, &endpoint);
    let key = |rest: &str| format!("/ekiden/{OVERLAY}/{rest}");
    assert!(run(&["get", "--prefix", &key("")]).unwrap().contains("admitted/a"));
    run(&["put", &key("nodes/a"), "x"]).unwrap();
    for other in ["nodes/b", "nodes/ab", "admitted/a", "id", "x"] {
        assert!(run(&["put", &key(other), "x"]).unwrap_err().contains("permission denied"), "{other}");
        assert!(run(&["del", &key(other)]).unwrap_err().contains("permission denied"), "{other}");
    }
    assert!(run(&["get", "/ekiden/other/id"]).unwrap_err().contains("permission denied"));
    assert!(run(&["user", "list"]).unwrap_err().contains("permission denied"));
}
