//! What is so when etcd is away, or comes back another.

use std::time::{Duration, Instant};

use crate::cluster::{Cluster, told};
use crate::node::{LONG, Node, settings};
use crate::proxy::Proxy;
use crate::wait;

/// Members are right again within 10 s of etcd. Where other programs have the processors, its own elections take longer.
const SOON: Duration = Duration::from_secs(30);

fn wait_well(nodes: &[&Node], names: &[&str]) {
    for node in nodes {
        let at = Instant::now();
        loop {
            let status = node.registry.status();
            if node.names() == names && status.registered && status.problem.is_none() {
                break;
            }
            assert!(at.elapsed() < LONG, "{:?} instead of {names:?}, {status:?}", node.names());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn members_go_on_when_etcd_is_killed_and_are_right_again_soon_after() {
    let mut cluster = Cluster::start(3);
    let nodes = [Node::join(&cluster, "a", 1), Node::join(&cluster, "b", 2), Node::join(&cluster, "c", 3)];
    let all: Vec<&Node> = nodes.iter().collect();
    wait_well(&all, &["a", "b", "c"]);

    // One member of etcd: all nodes used the first.
    let changes: Vec<usize> = all.iter().map(|node| node.changes()).collect();
    cluster.kill(0);
    let at = Instant::now();
    let moved =
        || all.iter().all(|node| node.registry.status().endpoint.is_some_and(|used| used != cluster.endpoints()[0]));
    wait("other members of etcd", LONG, moved);
    assert!(told("one of three members of etcd killed, all nodes with another", at) < SOON);
    cluster.start_member(0);
    cluster.wait_until_healthy();

    // Two of them: the one that is left may decide nothing.
    cluster.kill(1);
    cluster.kill(2);
    wait("nodes to notice", LONG, || all.iter().all(|node| node.registry.status().endpoint.is_none()));
    cluster.start_member(1);
    let at = Instant::now();
    wait_well(&all, &["a", "b", "c"]);
    assert!(told("a majority of etcd is back, all nodes registered", at) < SOON);
    cluster.start_member(2);
    cluster.wait_until_healthy();

    // All of them, for longer than the lease.
    cluster.kill_all();
    wait("nodes to notice", LONG, || all.iter().all(|node| node.registry.status().endpoint.is_none()));
    std::thread::sleep(Duration::from_secs(12));
    cluster.start_all();
    let at = Instant::now();
    wait_well(&all, &["a", "b", "c"]);
    assert!(told("three members of etcd restarted, all nodes registered", at) < SOON);
    // Those whose lease ends now were never there again.
    std::thread::sleep(Duration::from_secs(8));
    for (node, changes) in all.iter().zip(changes) {
        assert!(node.fewest_since(changes) >= 3);
    }
}

#[test]
fn a_node_that_starts_while_etcd_is_away_begins_with_the_members_of_its_file() {
    let mut cluster = Cluster::start(1);
    let mut own = settings(&cluster, "a", 1, true);
    own.members_cache = Some(cluster.folder().join("cache/a.json"));
    let a = Node::start(own.clone());
    let (b, c, d) = (Node::join(&cluster, "b", 2), Node::join(&cluster, "c", 3), Node::join(&cluster, "d", 4));
    wait_well(&[&a, &b, &c, &d], &["a", "b", "c", "d"]);
    assert_eq!(a.registry.status().from_file, None);
    let before = a.members();
    a.registry.stop();
    // Who is expelled while this node is down and etcd away is not known to it before etcd answers.
    cluster.operator().expel("c").unwrap();
    cluster.kill_all();
    drop(d);

    let a = Node::start(own.clone());
    a.wait_names(&["a", "b", "c", "d"]);
    assert_eq!(a.members()["b"].member, before["b"].member);
    let age = || a.registry.status().from_file;
    assert!(age().is_some_and(|age| age < LONG), "{:?}", age());
    wait("a to notice", LONG, || a.problem().is_some());
    assert!(age().is_some());
    let told_before = a.changes();
    cluster.start_all();
    let at = Instant::now();
    wait("etcd's word", LONG, || age().is_none());
    assert!(told("started without etcd, etcd back, members are those that it names", at) < SOON);
    // b's lease may have ended meanwhile: it comes back, and is not dropped until then. c is expelled, and d has died.
    assert!(!a.names().contains(&"c".to_owned()), "{:?}", a.names());
    wait_well(&[&a, &b], &["a", "b"]);
    assert!(a.fewest_since(told_before) >= 2);
    a.registry.stop();

    // The file has what etcd said last.
    cluster.kill_all();
    let a = Node::start(own.clone());
    a.wait_names(&["a", "b"]);
    drop(a);

    // A damaged file is left alone, and the node starts without it.
    let file = own.members_cache.clone().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &text[..text.len() / 2]).unwrap();
    let a = Node::start(own.clone());
    wait("a to notice", LONG, || a.problem().is_some());
    assert_eq!((a.members().len(), a.registry.status().from_file), (0, None));
    cluster.start_all();
    wait_well(&[&a, &b], &["a", "b"]);
    drop(a);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text[..text.len() / 2]);
}

#[test]
fn the_overlay_of_the_file_is_the_one_that_counts() {
    let cluster = Cluster::start(1);
    let mut own = settings(&cluster, "a", 1, true);
    own.members_cache = Some(cluster.folder().join("a.json"));
    let a = Node::start(own.clone());
    wait_well(&[&a], &["a"]);
    a.registry.stop();
    cluster.etcdctl(&["put", "/ekiden/blue/id", &"0".repeat(64)]);
    let a = Node::start(own.clone());
    let line = a.wait_problem(|error| matches!(error, ekiden_registry::RegistryError::OtherOverlay { .. }));
    assert!(line.contains("a.json"), "{line}");
    drop(a);
    std::fs::remove_file(own.members_cache.as_ref().unwrap()).unwrap();
    wait_well(&[&Node::start(own)], &["a"]);
}

#[test]
fn a_partition_with_a_compaction_in_it_heals() {
    let cluster = Cluster::start(1);
    let a = Node::join(&cluster, "a", 1);
    let b = Node::join(&cluster, "b", 2);
    let proxy = Proxy::to(cluster.port(0));
    let mut own = settings(&cluster, "w", 7, true);
    own.access.endpoints = vec![proxy.endpoint()];
    own.lease = Duration::from_secs(30);
    let w = Node::start(own);
    wait_well(&[&a, &b, &w], &["a", "b", "w"]);

    // Shorter than its lease: connections are closed, others come and go, etcd forgets.
    proxy.close();
    wait("w to notice", LONG, || w.registry.status().endpoint.is_none());
    b.registry.stop();
    let c = Node::join(&cluster, "c", 3);
    a.wait_names(&["a", "c", "w"]);
    cluster.compact();
    assert_eq!(w.names(), ["a", "b", "w"]);
    proxy.open();
    let at = Instant::now();
    wait_well(&[&a, &c, &w], &["a", "c", "w"]);
    assert!(told("cut off, compacted, healed", at) < SOON);

    // The same without a compaction: it goes on from its revision.
    proxy.close();
    wait("w to notice", LONG, || w.registry.status().endpoint.is_none());
    let d = Node::join(&cluster, "d", 4);
    proxy.open();
    let at = Instant::now();
    wait_well(&[&a, &c, &d, &w], &["a", "c", "d", "w"]);
    assert!(told("cut off, healed", at) < SOON);
}

#[test]
fn a_silent_partition_that_outlasts_the_leases_heals_and_no_member_is_dropped_that_returns() {
    let cluster = Cluster::start(1);
    let (proxy_a, proxy_b) = (Proxy::to(cluster.port(0)), Proxy::to(cluster.port(0)));
    let [mut of_a, mut of_b] = [settings(&cluster, "a", 1, true), settings(&cluster, "b", 2, true)];
    of_a.access.endpoints = vec![proxy_a.endpoint()];
    of_b.access.endpoints = vec![proxy_b.endpoint()];
    let (a, b) = (Node::start(of_a), Node::start(of_b));
    let c = Node::join(&cluster, "c", 3);
    wait_well(&[&a, &b, &c], &["a", "b", "c"]);
    let changes = [a.changes(), b.changes()];
    proxy_a.silence();
    proxy_b.silence();
    c.wait_names(&["c"]);
    c.registry.stop();
    cluster.compact();
    wait("nodes to notice", LONG, || [&a, &b].iter().all(|node| node.registry.status().endpoint.is_none()));
    assert_eq!((a.names().len(), b.names().len()), (3, 3));
    // a is back first, and keeps b.
    proxy_a.open();
    let at = Instant::now();
    wait("a's registration", LONG, || a.registry.status().registered);
    told("silent for longer than the lease, healed, registered", at);
    proxy_b.open();
    wait_well(&[&a, &b], &["a", "b"]);
    assert!(told("silent for longer than the lease, healed, right again", at) < SOON);
    assert!(a.fewest_since(changes[0]) >= 2 && b.fewest_since(changes[1]) >= 2);
}

#[test]
fn a_watch_that_has_gone_silent_is_found_out() {
    let cluster = Cluster::start(1);
    let a = Node::join(&cluster, "a", 1);
    let behind = || {
        let proxy = Proxy::to(cluster.port(0));
        let mut own = settings(&cluster, "w", 7, true);
        own.access.endpoints = vec![proxy.endpoint()];
        let w = Node::start(own);
        wait_well(&[&a, &w], &["a", "w"]);
        (proxy, w)
    };
    let (mut proxy, mut w) = behind();
    // Where etcd answers late, a request is made on a further connection.
    for _ in 0..10 {
        if proxy.connections() == 2 {
            break;
        }
        w.registry.stop();
        a.wait_names(&["a"]);
        (proxy, w) = behind();
    }
    // Requests have the first connection, and the watch the second.
    assert_eq!(proxy.connections(), 2);
    proxy.freeze(1);
    let b = Node::join(&cluster, "b", 2);
    let at = Instant::now();
    wait_well(&[&a, &b, &w], &["a", "b", "w"]);
    assert!(told("one silent watch found out", at) < SOON);
}

#[test]
fn etcd_restored_from_a_copy_is_read_anew() {
    let mut cluster = Cluster::start(1);
    let (a, b) = (Node::join(&cluster, "a", 1), Node::join(&cluster, "b", 2));
    wait_well(&[&a, &b], &["a", "b"]);
    cluster.save();
    let c = Node::join(&cluster, "c", 3);
    wait_well(&[&a, &b, &c], &["a", "b", "c"]);
    cluster.restore();
    // c's admission came after the copy.
    let at = Instant::now();
    wait_well(&[&a, &b], &["a", "b"]);
    assert!(told("restored from a copy, right again", at) < SOON);
    c.wait_problem(|error| {
        matches!(
            error,
            ekiden_registry::RegistryError::NotAdmitted { .. } | ekiden_registry::RegistryError::Login { .. }
        )
    });
}
