//! resolv.conf and the hosts file: changed, missing, odd, not to be read.

use std::fs;

use super::*;
use crate::exit::names::files::NameServers;

#[test]
fn changed_files_are_read_again_and_without_a_name_server_the_hosts_file_counts() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    fs::write(file("resolv.conf"), "nameserver fe80::1%no-such-if\n").unwrap();
    let names = Resolver::of(Files { resolv_conf: file("resolv.conf"), hosts: file("hosts") });
    assert_eq!(find(&names, "web"), Err(Unknown::NoServer));
    fs::write(file("hosts"), "192.0.2.7 web\n").unwrap();
    names.forget();
    assert_eq!(find(&names, "web"), Ok(vec![V4]));
    fs::write(file("hosts"), "2001:db8::7 web\n192.0.2.7 web\n").unwrap();
    std::thread::sleep(CHECK_INTERVAL);
    while find(&names, "web") != Ok(vec![V4, V6]) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn odd_lines_of_the_files_cost_no_other_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let long = "a".repeat(64);
    let conf = format!("search .home {long}\noptions timeout:0 ndots:x\nnameserver fe80::1%no-such-if\n# caf\u{e9}\n");
    fs::write(file("resolv.conf"), [conf.as_bytes(), b"# caf\xe9\nnameserver 127.0.0.1\n"].concat()).unwrap();
    fs::write(file("hosts"), b"300.1.1.1 a\n# caf\xe9\n192.0.2.7 web caf\xe9\n").unwrap();
    let files = || Files { resolv_conf: file("resolv.conf"), hosts: file("hosts") };
    assert!(has_servers(&files()));
    let files = files();
    assert_eq!(find(&Resolver::of(files), "web"), Ok(vec![V4]));
    fs::write(file("resolv.conf"), "nameserver fe80::1%no-such-if\n").unwrap();
    let files = Files { resolv_conf: file("resolv.conf"), hosts: file("hosts") };
    let bytes = fs::read(&files.resolv_conf).unwrap();
    assert_eq!(files.servers(&bytes, &mut Vec::new()).err(), Some("it names no name server that can be asked".into()));
}

#[test]
fn an_interface_that_comes_or_is_made_anew_has_the_files_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let (resolv_conf, hosts) = (folder.path().join("resolv.conf"), folder.path().join("hosts"));
    fs::write(&resolv_conf, "nameserver fe80::1%lo\nnameserver fe80::2%none-such\nnameserver fe80::3%4294967295\n")
        .unwrap();
    let files = Files { resolv_conf, hosts };
    let mut loaded = NameServers::default();
    let bytes = fs::read(&files.resolv_conf).unwrap();
    let servers = files.servers(&bytes, &mut loaded.zones).unwrap();
    assert_eq!(servers.addresses(), ["[fe80::1%1]:53"]);
    let zone = |zone: &str, index| (zone.to_owned(), index);
    assert_eq!(loaded.zones, [zone("lo", Some(1)), zone("none-such", None), zone("4294967295", None)]);
    assert!(loaded.has_its_zones());
    loaded.zones[0].1 = Some(77);
    assert!(!loaded.has_its_zones(), "it was made anew");
    loaded.zones[0].1 = None;
    assert!(!loaded.has_its_zones(), "it has come");
}

#[test]
fn without_a_name_server_that_of_this_host_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let files = || Files { resolv_conf: file("resolv.conf"), hosts: file("hosts") };
    assert!(has_servers(&files()), "there is no such file");
    fs::write(file("resolv.conf"), "search example\n").unwrap();
    assert!(has_servers(&files()));
    assert!(has_servers(&Files { resolv_conf: "/dev/null".into(), hosts: file("hosts") }), "it is said to be empty");
    assert!(!has_servers(&Files { resolv_conf: "/dev/zero".into(), hosts: file("hosts") }));
}

/// Whether resolv.conf leads to a name server.
fn has_servers(files: &Files) -> bool {
    files.load(None, 0).name_servers.value.servers.is_some()
}

#[test]
fn a_file_that_cannot_be_read_counts_as_before_and_is_read_again_although_it_has_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let files = Files { resolv_conf: file("resolv.conf"), hosts: file("hosts") };
    let all = ["resolv.conf", "hosts"];
    fs::write(file("resolv.conf"), "nameserver 127.0.0.1\n").unwrap();
    fs::write(file("hosts"), "192.0.2.7 web\n").unwrap();
    let put_away = || {
        for name in all {
            fs::rename(file(name), file("away").with_extension(name)).unwrap();
            fs::create_dir(file(name)).unwrap();
        }
    };
    let put_back = || {
        for name in all {
            fs::remove_dir(file(name)).unwrap();
            fs::rename(file("away").with_extension(name), file(name)).unwrap();
        }
    };
    let says = |loaded: &Loaded| {
        (loaded.hosts.value.addresses("web").collect::<Vec<_>>(), loaded.name_servers.value.servers.is_some())
    };
    put_away();
    let never = files.load(None, 0);
    assert_eq!((says(&never), never.is_current(&files)), ((vec![], false), false));
    put_back();
    let first = files.load(Some(&never), 0);
    assert_eq!((says(&first), first.is_current(&files)), ((vec![V4], true), true));
    for forgotten in [0, 1] {
        put_away();
        let unread = files.load(Some(&first), forgotten);
        assert_eq!((says(&unread), unread.is_current(&files)), ((vec![V4], true), false));
        let unread = files.load(Some(&unread), forgotten);
        assert_eq!(says(&unread), (vec![V4], true), "twice");
        put_back();
        // As after a failure without any change of the file.
        assert!(!unread.is_current(&files));
        let again = files.load(Some(&unread), forgotten);
        assert_eq!((says(&again), again.is_current(&files)), ((vec![V4], true), true));
    }
    fs::remove_file(file("hosts")).unwrap();
    let gone = files.load(Some(&first), 0);
    assert_eq!((says(&gone), gone.is_current(&files)), ((vec![], true), true), "it is gone");
}

#[test]
fn a_change_of_permissions_has_a_file_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files { resolv_conf: folder.path().join("resolv.conf"), hosts: folder.path().join("hosts") };
    fs::write(&files.hosts, "192.0.2.7 web\n").unwrap();
    let loaded = files.load(None, 0);
    assert!(loaded.is_current(&files));
    let mode = fs::metadata(&files.hosts).unwrap().permissions();
    // The kernel's time of a change is some milliseconds coarse.
    while loaded.is_current(&files) {
        fs::set_permissions(&files.hosts, mode.clone()).unwrap();
    }
}

#[test]
fn a_file_that_has_not_changed_keeps_the_answers() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files { resolv_conf: folder.path().join("resolv.conf"), hosts: folder.path().join("hosts") };
    let first = files.load(None, 0);
    fs::write(&files.hosts, "192.0.2.7 web\n").unwrap();
    let second = files.load(Some(&first), 0);
    assert!(Arc::ptr_eq(&first.name_servers.value, &second.name_servers.value));
    assert!(!Arc::ptr_eq(&first.name_servers.value, &files.load(Some(&second), 1).name_servers.value));
}

#[test]
fn while_a_file_is_read_what_it_said_before_counts_unless_it_has_been_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files { resolv_conf: folder.path().join("resolv.conf"), hosts: folder.path().join("hosts") };
    fs::write(&files.hosts, "192.0.2.7 web\n").unwrap();
    let hosts = files.hosts.clone();
    let names = Resolver::of(files);
    assert_eq!(find(&names, "web"), Ok(vec![V4]));
    fs::write(hosts, "2001:db8::7 web\n").unwrap();
    // As if it took long.
    names.0.lock().is_loading = true;
    std::thread::sleep(CHECK_INTERVAL);
    assert_eq!(find(&names, "web"), Ok(vec![V4]));
    names.0.lock().is_loading = false;
    names.forget();
    assert_eq!(find(&names, "web"), Ok(vec![V6]));
}
