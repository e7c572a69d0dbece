//! Bad input: one clear line each.

use std::time::Duration;

use ekiden_registry::{IfOtherKey, Operator, OverlayId, RegistryError, Terms};

use crate::cluster::{Cluster, OVERLAY};
use crate::node::{LONG, Node, key, settings};
use crate::wait;

#[test]
fn another_clusters_etcd_is_refused() {
    let (cluster, other) = (Cluster::start(1), Cluster::start(1));
    let id = cluster.operator().init().unwrap();
    assert_eq!(cluster.operator().init().unwrap(), id);
    let mut own = settings(&other, "a", 1, false);
    own.expected_id = Some(id);
    let a = Node::start(own.clone());
    let line = a.wait_problem(|error| matches!(error, RegistryError::NoOverlay { .. }));
    assert!(line.contains("has no overlay 'blue'"), "{line}");

    other.operator().init().unwrap();
    other.operator().admit("a", key(1).parse().unwrap(), Terms::default(), IfOtherKey::Replace).unwrap();
    let line = a.wait_problem(|error| matches!(error, RegistryError::OtherOverlay { .. }));
    assert!(line.contains(&id.to_string()), "{line}");
    assert!(!a.registry.status().registered && a.names().is_empty());

    own.expected_id = Some("0".repeat(64).parse::<OverlayId>().unwrap());
    Node::start(own).wait_problem(|error| matches!(error, RegistryError::OtherOverlay { .. }));
}

#[test]
fn the_first_overlay_seen_counts() {
    let (cluster, other) = (Cluster::start(1), Cluster::start(1));
    let mut own = settings(&cluster, "a", 1, true);
    settings(&other, "a", 1, true);
    // A second member that is another cluster's: found out as soon as the first is gone.
    own.access.endpoints.extend(other.endpoints());
    let authorities = [cluster.ca_file(), other.ca_file()].map(|file| std::fs::read_to_string(file).unwrap()).concat();
    std::fs::write(cluster.ca_file(), authorities).unwrap();
    let a = Node::start(own);
    a.wait_names(&["a"]);
    let mut cluster = cluster;
    cluster.kill_all();
    a.wait_problem(|error| matches!(error, RegistryError::OtherOverlay { .. }));
    assert_eq!(a.names(), ["a"]);
}

#[test]
fn certificates_that_are_not_right_are_named() {
    let expired = Cluster::with_certificate(1, Duration::ZERO);
    let mut access = expired.root();
    let mut operator = Operator::new(&access, OVERLAY).unwrap();
    let last = std::sync::Mutex::new(None);
    // It is not there yet when this begins.
    let operator = std::sync::Mutex::new(&mut operator);
    wait("the certificate", LONG, || {
        let error = operator.lock().unwrap().init().unwrap_err();
        let is_it = matches!(error, RegistryError::CertificateDate { fault: "expired", .. });
        *last.lock().unwrap() = Some(error);
        is_it
    });
    let line = last.lock().unwrap().take().unwrap().to_string();
    assert!(line.contains("is expired") && line.contains("clock"), "{line}");

    let other = Cluster::start(1);
    access.ca_file = Some(other.ca_file());
    let error = Operator::new(&access, OVERLAY).unwrap().init().unwrap_err();
    assert!(matches!(error, RegistryError::Certificate { .. } | RegistryError::CertificateDate { .. }), "{error}");
    let mut access = other.root();
    access.ca_file = Some(expired.ca_file());
    let error = Operator::new(&access, OVERLAY).unwrap().init().unwrap_err();
    assert!(matches!(error, RegistryError::Certificate { .. }), "{error}");
    access.ca_file = Some(expired.folder().join("etcd.key"));
    let line = Operator::new(&access, OVERLAY).err().unwrap().to_string();
    assert!(line.starts_with("ca_file: ") && line.contains("etcd.key holds no certificate in PEM"), "{line}");
}

#[test]
fn logins_that_are_not_right_are_named() {
    let cluster = Cluster::start(1);
    let mut own = settings(&cluster, "a", 1, true);
    let file = own.access.password_file.clone().unwrap();
    std::fs::write(&file, "wrong").unwrap();
    let line = Node::start(own.clone()).wait_problem(|error| matches!(error, RegistryError::Login { .. }));
    assert!(line.contains("ekiden.blue.a"), "{line}");
    (own.access.user, own.access.password_file) = (None, None);
    Node::start(own).wait_problem(|error| matches!(error, RegistryError::NoUser { .. }));

    let open = Cluster::with_certificate(1, Duration::from_secs(3600));
    let error = open.operator().init().unwrap_err();
    assert!(matches!(error, RegistryError::UsersOff { .. }), "{error}");
}

#[test]
fn who_is_not_admitted_registers_nothing() {
    let cluster = Cluster::start(1);
    let a = Node::join(&cluster, "a", 1);
    let b = Node::start(settings(&cluster, "b", 2, false));
    let line = b.wait_problem(|error| matches!(error, RegistryError::NotAdmitted { .. }));
    assert!(line.contains(&key(2)), "{line}");
    // It tries all the same, by other means.
    let record = cluster.etcdctl(&["get", "--print-value-only", &format!("/ekiden/{OVERLAY}/nodes/a")]);
    let record = record.trim().replace(&key(1), &key(2));
    cluster.etcdctl(&["put", "--lease", &cluster.lease(), &format!("/ekiden/{OVERLAY}/nodes/b"), &record]);
    wait("a reason", LONG, || a.registry.status().ignored.get("b").is_some_and(|why| why.contains("not admitted")));
    assert_eq!(a.names(), ["a"]);
}

#[test]
fn two_nodes_with_one_name_or_one_key_are_named() {
    let cluster = Cluster::start(1);
    let own = settings(&cluster, "a", 1, true);
    let first = Node::start(own.clone());
    first.wait_registered();

    // The same name with another key, which the operator has not admitted.
    let mut other = own.clone();
    other.fingerprint = key(9);
    let second = Node::start(other.clone());
    let line = second.wait_problem(|error| matches!(error, RegistryError::AdmittedOtherKey { .. }));
    assert!(line.contains("two nodes with one name"), "{line}");
    // Which it now has: the name is the second's as soon as the first has gone.
    cluster.operator().admit("a", key(9).parse().unwrap(), Terms::default(), IfOtherKey::Replace).unwrap();
    first.wait_problem(|error| matches!(error, RegistryError::AdmittedOtherKey { .. }));
    second.wait_problem(|error| matches!(error, RegistryError::NameTaken { .. }));
    first.registry.stop();
    second.wait_registered();

    // The same name with the same key: the later one has it.
    let mut third = other;
    third.address = "192.0.2.77:7000".into();
    let third = Node::start(third);
    third.wait_registered();
    let line = second.wait_problem(|error| matches!(error, RegistryError::Replaced { .. }));
    assert!(line.contains("192.0.2.77:7000") && line.contains("two nodes with one key"), "{line}");

    // A key is replaced only if that is said; the same one is fine.
    let mut operator = cluster.operator();
    let error = operator.admit("a", key(8).parse().unwrap(), Terms::default(), IfOtherKey::Refuse).unwrap_err();
    assert!(matches!(error, RegistryError::HasOtherKey { .. }) && error.to_string().contains(&key(9)), "{error}");
    let (_, before) = operator.admit("a", key(9).parse().unwrap(), Terms::default(), IfOtherKey::Refuse).unwrap();
    assert_eq!(before.map(|before| before.fingerprint), Some(key(9)));
    assert!(!operator.lacks_user("a").unwrap() && operator.lacks_user("b").unwrap());
    assert!(!operator.add_user("a", "new").unwrap() && operator.add_user("b", "new").unwrap());

    // Another name with the same key.
    let error =
        cluster.operator().admit("b", key(9).parse().unwrap(), Terms::default(), IfOtherKey::Replace).unwrap_err();
    assert!(matches!(error, RegistryError::KeyTaken { .. }), "{error}");
}

/// What an older build cannot read it does not replace without being told to, and does not take the key of.
#[test]
fn an_admission_by_a_later_build_is_not_lost_by_an_older_one() {
    let cluster = Cluster::start(1);
    let mut operator = cluster.operator();
    operator.init().unwrap();
    let sealed = format!(r#"{{"admission_format":1,"fingerprint":"{}","requires":["sealed"],"sealed":true}}"#, key(1));
    cluster.put_long(&format!("/ekiden/{OVERLAY}/admitted/a"), sealed.as_bytes());
    let mut admit = |name: &str, of: u8, if_other| {
        let terms = Terms { price: Some(2.0), ..Terms::default() };
        operator.admit(name, key(of).parse().unwrap(), terms, if_other).map(|(admission, _)| admission.price)
    };
    for of in [1, 2] {
        let error = admit("a", of, IfOtherKey::Refuse).unwrap_err();
        assert!(matches!(error, RegistryError::Unreadable { .. }) && error.to_string().contains("sealed"), "{error}");
    }
    assert!(matches!(admit("b", 1, IfOtherKey::Replace), Err(RegistryError::KeyTaken { .. })));
    assert_eq!(admit("a", 2, IfOtherKey::Replace).unwrap(), 2.0);
    // What would be too long to be read is not written.
    let later = "x".repeat(32_600);
    let long = format!(r#"{{"admission_format":1,"fingerprint":"{}","later":"{later}"}}"#, key(3));
    cluster.put_long(&format!("/ekiden/{OVERLAY}/admitted/c"), long.as_bytes());
    let terms = Terms { near: Some(vec![".example".into(); 20]), ..Terms::default() };
    let error = operator.admit("c", key(3).parse().unwrap(), terms, IfOtherKey::Refuse).unwrap_err();
    assert!(error.to_string().contains("bytes"), "{error}");
    assert!(operator.admitted().unwrap()["c"].as_ref().is_ok_and(|of| of.near.is_empty()));
}

#[test]
fn absurd_records_are_ignored_with_a_reason() {
    let cluster = Cluster::start(1);
    let a = Node::join(&cluster, "a", 1);
    let long = "x".repeat(100_000);
    for (number, (name, record, reason)) in
        [("b", r#"{"member_format":1,"new":1}"#, "member_format 1"), ("c", "junk", "no JSON"), ("d", &long, "bytes")]
            .into_iter()
            .enumerate()
    {
        cluster
            .operator()
            .admit(name, key(20 + number as u8).parse().unwrap(), Terms::default(), IfOtherKey::Replace)
            .unwrap();
        cluster.etcdctl(&["put", &format!("/ekiden/{OVERLAY}/nodes/{name}"), record]);
        wait(reason, LONG, || a.registry.status().ignored.get(name).is_some_and(|why| why.contains(reason)));
    }
    // Who comes later reads them at once.
    let e = Node::join(&cluster, "e", 5);
    a.wait_names(&["a", "e"]);
    e.wait_names(&["a", "e"]);
    assert_eq!(e.registry.status().ignored.len(), 3);
}

#[test]
fn many_keys_and_huge_records_are_read_in_pages() {
    let cluster = Cluster::start(1);
    let a = Node::join(&cluster, "a", 1);
    let mut operator = cluster.operator();
    for number in 0..150 {
        let fingerprint = format!("sha256:{number:064x}");
        operator
            .admit(&format!("n{number}"), fingerprint.parse().unwrap(), Terms::default(), IfOtherKey::Replace)
            .unwrap();
    }
    // Ten of them are more than one answer may have, and each is about as long as etcd takes.
    for number in 0..10 {
        cluster.put_long(&format!("/ekiden/{OVERLAY}/nodes/n{number}"), &vec![b'x'; 1_400_000]);
    }
    let b = Node::join(&cluster, "b", 2);
    a.wait_names(&["a", "b"]);
    b.wait_names(&["a", "b"]);
    for node in [&a, &b] {
        wait("reasons", LONG, || node.registry.status().ignored.len() == 10);
        // Two checks find nothing missing.
        std::thread::sleep(Duration::from_secs(5));
        let status = node.registry.status();
        assert!(status.problem.is_none() && status.registered, "{status:?}");
    }
}
