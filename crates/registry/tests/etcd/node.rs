//! Nodes: their registries in this process, or a process of their own.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ekiden_registry::{Access, IfOtherKey, Members, Registry, RegistryError, Roster, Settings, Terms};

use crate::cluster::{Cluster, OVERLAY, Process};
use crate::wait;

/// Long enough for anything that is not a failure.
pub const LONG: Duration = Duration::from_secs(240);

/// The fingerprint of a key that nobody has.
pub fn key(number: u8) -> String {
    format!("sha256:{}", format!("{number:02x}").repeat(32))
}

/// A node's settings; its user is made, and its key admitted if `admit`.
pub fn settings(cluster: &Cluster, name: &str, number: u8, admit: bool) -> Settings {
    let mut operator = cluster.operator();
    operator.add_user(name, &format!("{name}'s")).unwrap();
    let user = operator.user(name);
    if admit {
        operator.init().unwrap();
        operator.admit(name, key(number).parse().unwrap(), Terms::default(), IfOtherKey::Replace).unwrap();
    }
    let file = cluster.folder().join(format!("{name}.password"));
    fs::write(&file, format!("{name}'s\n")).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    Settings {
        access: Access {
            endpoints: cluster.endpoints(),
            ca_file: Some(cluster.ca_file()),
            user: Some(user),
            password_file: Some(file),
            timeout: Duration::from_secs(2),
        },
        overlay: OVERLAY.into(),
        expected_id: None,
        name: name.into(),
        address: format!("192.0.2.{number}:7000"),
        fingerprint: key(number),
        lease: Duration::from_secs(5),
        members_cache: None,
    }
}

/// A registry, and all that it has told.
pub struct Node {
    pub registry: Registry,
    told: Arc<Mutex<Vec<Roster>>>,
}

impl Node {
    pub fn start(settings: Settings) -> Self {
        let told = Arc::new(Mutex::new(Vec::new()));
        let into = told.clone();
        let registry = Registry::start(settings, move |roster| into.lock().unwrap().push(roster.clone())).unwrap();
        Self { registry, told }
    }

    /// Admitted, and registered when this returns.
    pub fn join(cluster: &Cluster, name: &str, number: u8) -> Self {
        let node = Self::start(settings(cluster, name, number, true));
        node.wait_registered();
        node
    }

    pub fn wait_registered(&self) {
        wait("a registration", LONG, || self.registry.status().registered);
    }

    pub fn roster(&self) -> Roster {
        self.told.lock().unwrap().last().cloned().unwrap_or_default()
    }

    pub fn members(&self) -> Members {
        self.roster().members
    }

    pub fn names(&self) -> Vec<String> {
        self.members().into_keys().collect()
    }

    pub fn wait_names(&self, names: &[&str]) {
        wait(&format!("the members {names:?}"), LONG, || self.names() == names);
    }

    pub fn problem(&self) -> Option<RegistryError> {
        self.registry.status().problem
    }

    /// Until a problem is one of these; returns its line.
    pub fn wait_problem(&self, is_it: impl Fn(&RegistryError) -> bool) -> String {
        let end = Instant::now() + LONG;
        while !self.problem().as_ref().is_some_and(&is_it) {
            assert!(Instant::now() < end, "another problem, or none, for {LONG:?}: {:?}", self.problem());
            thread::sleep(Duration::from_millis(5));
        }
        let line = self.problem().unwrap().to_string();
        assert!(!line.contains('\n'), "{line}");
        line
    }

    /// How few members it has told of since it told of so many.
    pub fn fewest_since(&self, changes: usize) -> usize {
        self.told.lock().unwrap()[changes..].iter().map(|roster| roster.members.len()).min().unwrap_or(usize::MAX)
    }

    /// Whether this node was not among the members at some time since it told of so many.
    pub fn has_missed_since(&self, name: &str, changes: usize) -> bool {
        self.told.lock().unwrap()[changes..].iter().any(|roster| !roster.members.contains_key(name))
    }

    /// How many times it has told.
    pub fn changes(&self) -> usize {
        self.told.lock().unwrap().len()
    }
}

/// A node that is a process of its own.
pub struct Apart {
    pub process: Process,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Apart {
    /// Its environment is this one's and `with`.
    pub fn start(settings: &Settings, with: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.envs(with.iter().copied());
        command.args(["node::as_a_node", "--exact", "--ignored", "--nocapture"]);
        command.env("NODE_NAME", &settings.name).env("NODE_OVERLAY", &settings.overlay);
        command.env("NODE_ADDRESS", &settings.address).env("NODE_FINGERPRINT", &settings.fingerprint);
        command.env("NODE_LEASE", settings.lease.as_secs().to_string());
        command.env("NODE_ENDPOINTS", settings.access.endpoints.join(","));
        command.env("NODE_CA", settings.access.ca_file.as_ref().unwrap());
        command.env("NODE_USER", settings.access.user.as_ref().unwrap());
        command.env("NODE_PASSWORD", settings.access.password_file.as_ref().unwrap());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let output = child.stdout.take().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let into = lines.clone();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                into.lock().unwrap().push(line);
            }
        });
        Self { process: Process(child), lines }
    }

    /// What is behind `start` in a line that it has written.
    pub fn line(&self, start: &str) -> String {
        let lines = self.lines.lock().unwrap();
        lines.iter().find_map(|line| line.strip_prefix(start)).expect("a line with that start").to_owned()
    }

    /// Until it has written this line.
    pub fn wait_line(&self, line: &str) {
        wait(&format!("the line '{line}'"), LONG, || {
            self.lines.lock().unwrap().iter().any(|said| said.ends_with(line))
        });
    }
}

/// The other side of [`Apart`].
#[test]
#[ignore = "other tests run this as a process of its own"]
fn as_a_node() {
    let Ok(name) = std::env::var("NODE_NAME") else { return };
    let get = |key: &str| std::env::var(key).unwrap();
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    println!("\ndate {seconds}");
    let settings = Settings {
        access: Access {
            endpoints: get("NODE_ENDPOINTS").split(',').map(str::to_owned).collect(),
            ca_file: Some(get("NODE_CA").into()),
            user: Some(get("NODE_USER")),
            password_file: Some(get("NODE_PASSWORD").into()),
            timeout: Duration::from_secs(2),
        },
        overlay: get("NODE_OVERLAY"),
        expected_id: None,
        name,
        address: get("NODE_ADDRESS"),
        fingerprint: get("NODE_FINGERPRINT"),
        lease: Duration::from_secs(get("NODE_LEASE").parse().unwrap()),
        members_cache: None,
    };
    let _registry = Registry::start(settings, |roster| {
        println!("members {}", roster.members.keys().cloned().collect::<Vec<_>>().join(" "));
    });
    // Until it is killed; not for ever, should nobody do that.
    thread::sleep(Duration::from_secs(300));
}
