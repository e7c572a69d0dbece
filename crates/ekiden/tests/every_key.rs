//! `--show-config` says every key of every program: none is forgotten when it is read, and none when it is shown.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ekiden_config::Section;
use ekiden_keys::{Identity, generate_shared};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use toml::{Table, Value};

/// Of a password.
const HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$YWJjZGVmZ2hpamtsbW5vcA$kR+Eb8PYhbaCcqbJlN6EOFGqDXAYBZbD1cyeFjT/LRE";

type Shown = Result<String, Box<dyn Error>>;

struct Program {
    /// Files that have all keys together, none of them at its default.
    files: &'static [&'static str],
    sections: Vec<Section>,
    show: fn(&Path) -> Shown,
}

fn programs() -> Vec<Program> {
    vec![
        Program {
            files: &[include_str!("every_key/proxy.toml"), include_str!("every_key/etcd.toml")],
            sections: ekiden_relay::sections(),
            show: |file| Ok(ekiden_relay::Config::load(file)?.to_string()),
        },
        Program {
            files: &[
                include_str!("every_key/tunnel.toml"),
                "[device]\naddresses = [\"10.77.0.1/24\"]\n[queue]\ndiscipline = \"drop_tail\"\n[listen]\naddress = \"127.0.0.1:7100\"\n\
                 plain_key_file = \"line.key\"\n[peer.island]\nplain_key_file = \"line.key\"\nallowed = [\"10.77.0.2\"]\n",
            ],
            sections: ekiden_tunnel::sections(),
            show: |file| Ok(ekiden_tunnel::Config::load(file)?.to_string()),
        },
        Program {
            files: &[include_str!("every_key/gateway.toml")],
            sections: ekiden_gateway::sections(),
            show: |file| Ok(ekiden_gateway::Config::load(file)?.to_string()),
        },
        Program {
            files: &[include_str!("every_key/monitor.toml")],
            sections: ekiden_monitor::sections(),
            show: |file| Ok(ekiden_monitor::Config::load(file)?.to_string()),
        },
    ]
}

/// The files that the configurations name.
fn write_files(folder: &Path) -> String {
    let own = |name: &str, text: &str| {
        fs::write(folder.join(name), text).unwrap();
        fs::set_permissions(folder.join(name), Permissions::from_mode(0o600)).unwrap();
    };
    Identity::generate(&folder.join("node.key")).unwrap();
    generate_shared(&folder.join("line.key")).unwrap();
    own("password", "secret\n");
    own("users", &format!("zoe:{HASH}\n"));
    let made = rcgen::generate_simple_self_signed(["gate.example".to_owned()]).unwrap();
    own("gate.pem", &made.cert.pem());
    own("gate.key", &made.signing_key.serialize_pem());
    let mut authority = CertificateParams::new(["authority.example".to_owned()]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    own("ca.pem", &authority.self_signed(&KeyPair::generate().unwrap()).unwrap().pem());
    let other = |name: &str| Identity::generate(&folder.join(format!("{name}.key"))).unwrap().fingerprint();
    let member = |name| {
        format!(
            "[node.{name}]\naddress = \"{name}.example:7000\"\nfingerprint = \"{}\"\nregion = \"asia\"\n",
            other(name)
        )
    };
    own("members.toml", &["here", "there"].map(member).concat());
    other("other").to_string()
}

/// The paths of all keys in a table, each as the table's path and the key. The elements of an array of tables have numbers.
fn paths(table: &Table, at: &[String], found: &mut Vec<Vec<String>>) {
    for (key, value) in table {
        let path = [at, std::slice::from_ref(key)].concat();
        match value {
            Value::Table(inner) => paths(inner, &path, found),
            Value::Array(all) if all.iter().any(Value::is_table) => {
                for (number, inner) in
                    all.iter().enumerate().filter_map(|(number, one)| Some((number, one.as_table()?)))
                {
                    paths(inner, &[&path[..], &[number.to_string()]].concat(), found);
                }
            }
            _ => {}
        }
        found.push(path);
    }
}

fn remove(table: &mut Table, path: &[String]) {
    let (last, tables) = path.split_last().unwrap();
    let mut at = table;
    let mut words = tables.iter();
    while let Some(word) = words.next() {
        at = match at.get_mut(word) {
            Some(Value::Table(inner)) => inner,
            Some(Value::Array(all)) => all[words.next().unwrap().parse::<usize>().unwrap()].as_table_mut().unwrap(),
            other => panic!("{word} of {path:?} is {other:?}"),
        };
    }
    at.remove(last);
}

/// Whether a path is that of a key in a section, such as `[peer.NAME]` or `[[route]]`.
fn is_of(path: &[String], section: &Section, key: &str) -> bool {
    let Some((last, tables)) = path.split_last() else { return false };
    let tables: Vec<&String> = tables.iter().filter(|word| word.parse::<usize>().is_err()).collect();
    let name = section.name.trim_matches(['[', ']']);
    let words: Vec<&str> = name.split('.').filter(|word| !word.is_empty()).collect();
    last == key
        && words.len() == tables.len()
        && words.iter().zip(tables).all(|(word, table)| *word == "NAME" || word == table)
}

#[test]
fn every_key_is_read_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let print = write_files(folder.path());
    let file = folder.path().join("file.toml");
    for Program { files, sections, show } in programs() {
        let mut said = BTreeSet::new();
        for text in files {
            let table: Table = text.replace("$PRINT", &print).replace("$HASH", HASH).parse().unwrap();
            fs::write(&file, table.to_string()).unwrap();
            let whole = show(&file).unwrap_or_else(|error| panic!("{error}"));
            // What is shown is read as the same, but for masked passwords.
            let again = folder.path().join("again.toml");
            fs::write(&again, whole.replace("***", HASH)).unwrap();
            assert_eq!(show(&again).unwrap_or_else(|error| panic!("{error}\n{whole}")), whole);
            let mut found = Vec::new();
            paths(&table, &[], &mut found);
            for path in &found {
                let of = sections.iter().find(|section| section.keys.iter().any(|key| is_of(path, section, key.name)));
                let Some(section) = of else { continue };
                // Without it the configuration is another one, or none.
                let mut less = table.clone();
                remove(&mut less, path);
                fs::write(&file, less.to_string()).unwrap();
                if show(&file).ok().is_none_or(|shown| shown != whole) {
                    said.insert((section.name.clone(), path.last().unwrap().clone()));
                }
            }
        }
        let all = sections
            .iter()
            .flat_map(|section| section.keys.iter().map(|key| (section.name.clone(), key.name.to_string())));
        let missing: Vec<_> = all.filter(|key| !said.contains(key)).collect();
        assert!(missing.is_empty(), "in no file, or they make no difference: {missing:?}");
    }
}
