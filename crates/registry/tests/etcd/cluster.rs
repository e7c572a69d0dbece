//! Real etcd on loopback, with TLS and users, which ends with the test.

use std::fs::{self, File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use ekiden_registry::{Access, Operator};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::wait;

pub const OVERLAY: &str = "blue";
pub const ROOT_PASSWORD: &str = "root's";
const DAY: Duration = Duration::from_secs(86_400);

/// A process that ends with this, also when the test fails.
pub struct Process(pub Child);

impl Process {
    /// At once, without a chance to say anything.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One member of etcd.
struct Member {
    client_port: u16,
    peer_port: u16,
    process: Option<Process>,
}

/// Members, not started, whose ports nobody has at this moment.
fn at_free_ports(members: usize) -> Vec<Member> {
    let free: Vec<TcpListener> = (0..2 * members).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<u16> = free.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
    ports.chunks(2).map(|ports| Member { client_port: ports[0], peer_port: ports[1], process: None }).collect()
}

/// A cluster of etcd.
pub struct Cluster {
    folder: TempDir,
    members: Vec<Member>,
    has_users: bool,
    /// What tells restored data from what was there before.
    generation: u32,
    /// What each member is started with besides.
    more: &'static [&'static str],
}

impl Cluster {
    /// Of so many members, with users.
    pub fn start(members: usize) -> Self {
        Self::start_with(members, &[])
    }

    /// The same, each started with these arguments too.
    pub fn start_with(members: usize, more: &'static [&'static str]) -> Self {
        let mut cluster = Self::make(members, DAY, more);
        for line in ["user add root:PASSWORD", "user grant-role root root", "auth enable"] {
            let line = line.replace("PASSWORD", ROOT_PASSWORD);
            cluster.etcdctl(&line.split(' ').collect::<Vec<_>>());
        }
        cluster.has_users = true;
        cluster
    }

    /// Without users. Its certificate is valid from two days ago, for two days and `valid`; to the past if that is 0.
    pub fn with_certificate(members: usize, valid: Duration) -> Self {
        Self::make(members, valid, &[])
    }

    fn make(members: usize, valid: Duration, more: &'static [&'static str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let until = SystemTime::now() + valid - if valid.is_zero() { DAY } else { Duration::ZERO };
        certificates(folder.path(), until);
        fs::write(folder.path().join("root"), ROOT_PASSWORD).unwrap();
        fs::set_permissions(folder.path().join("root"), Permissions::from_mode(0o600)).unwrap();
        let mut cluster = Self { folder, members: at_free_ports(members), has_users: false, generation: 0, more };
        cluster.start_all();
        if !valid.is_zero() {
            // Others may take a port before etcd does, and then it ends.
            while !cluster.is_healthy_or_ends() {
                cluster.kill_all();
                (0..members).for_each(|member| drop(fs::remove_dir_all(cluster.data(member))));
                cluster.members = at_free_ports(members);
                cluster.start_all();
            }
        }
        cluster
    }

    /// Waits for one of both.
    fn is_healthy_or_ends(&mut self) -> bool {
        let mut has_ended = false;
        wait("etcd to be there, or to end", Duration::from_secs(60), || {
            let processes = self.members.iter_mut().filter_map(|member| member.process.as_mut());
            has_ended = processes.into_iter().any(|process| process.0.try_wait().unwrap().is_some());
            has_ended || self.is_healthy()
        });
        !has_ended
    }

    fn is_healthy(&self) -> bool {
        self.try_etcdctl(&["endpoint", "health"]).is_ok()
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn ca_file(&self) -> PathBuf {
        self.folder().join("ca.pem")
    }

    pub fn port(&self, member: usize) -> u16 {
        self.members[member].client_port
    }

    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("https://127.0.0.1:{}", member.client_port)).collect()
    }

    /// As root.
    pub fn root(&self) -> Access {
        Access {
            endpoints: self.endpoints(),
            ca_file: Some(self.ca_file()),
            user: Some("root".into()),
            password_file: Some(self.folder().join("root")),
            timeout: Duration::from_secs(10),
        }
    }

    pub fn operator(&self) -> Operator {
        Operator::new(&self.root(), OVERLAY).unwrap()
    }

    pub fn kill(&mut self, member: usize) {
        drop(self.members[member].process.take());
    }

    pub fn kill_all(&mut self) {
        (0..self.members.len()).for_each(|member| self.kill(member));
    }

    pub fn start_all(&mut self) {
        (0..self.members.len()).for_each(|member| self.start_member(member));
    }

    pub fn start_member(&mut self, member: usize) {
        let peer = |(at, member): (usize, &Member)| format!("m{at}=http://127.0.0.1:{}", member.peer_port);
        let peers = self.members.iter().enumerate().map(peer).collect::<Vec<_>>().join(",");
        let Member { client_port, peer_port, .. } = self.members[member];
        let (own, other) = (format!("https://127.0.0.1:{client_port}"), format!("http://127.0.0.1:{peer_port}"));
        let log = File::options().create(true).append(true).open(self.folder().join(format!("log{member}"))).unwrap();
        let mut command = Command::new("etcd");
        command.arg("--name").arg(format!("m{member}")).arg("--data-dir").arg(self.data(member));
        command.args(["--listen-client-urls", &own, "--advertise-client-urls", &own]);
        command.args(["--listen-peer-urls", &other, "--initial-advertise-peer-urls", &other]);
        command.args(["--initial-cluster", &peers, "--bcrypt-cost", "4", "--logger", "zap", "--log-level", "warn"]);
        command.args(self.more);
        command.arg("--cert-file").arg(self.folder().join("etcd.pem"));
        command.arg("--key-file").arg(self.folder().join("etcd.key"));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().expect("etcd is needed: scripts/setup test installs it");
        self.members[member].process = Some(Process(child));
    }

    pub fn wait_until_healthy(&self) {
        wait("etcd to be there", Duration::from_secs(60), || self.is_healthy());
    }

    /// The revision of the store.
    pub fn revision(&self) -> u64 {
        let text = self.etcdctl(&["endpoint", "status", "--write-out", "json"]);
        let status: serde_json::Value = serde_json::from_str(&text).unwrap();
        status[0]["Status"]["header"]["revision"].as_u64().unwrap()
    }

    /// A lease of an hour, which nobody keeps.
    pub fn lease(&self) -> String {
        let said = self.etcdctl(&["lease", "grant", "3600"]);
        said.split(' ').nth(1).expect("lease NUMBER granted").to_owned()
    }

    /// Forgets what was before now.
    pub fn compact(&self) {
        self.etcdctl(&["compaction", &self.revision().to_string()]);
    }

    pub fn save(&self) {
        let endpoint = self.endpoints().remove(0);
        self.run(&["snapshot", "save", self.folder().join("saved").to_str().unwrap()], &endpoint).unwrap();
    }

    /// All members anew, with what was saved.
    pub fn restore(&mut self) {
        self.kill_all();
        self.generation += 1;
        let saved = self.folder().join("saved");
        for (at, member) in self.members.iter().enumerate() {
            let (name, peer) = (format!("m{at}"), format!("http://127.0.0.1:{}", member.peer_port));
            let mut command = Command::new("etcdctl");
            command.env("ETCDCTL_API", "3").args(["snapshot", "restore", saved.to_str().unwrap(), "--name", &name]);
            command.args(["--initial-cluster", &format!("{name}={peer}"), "--initial-advertise-peer-urls", &peer]);
            command.arg("--data-dir").arg(self.data(at));
            assert!(command.output().unwrap().status.success());
        }
        self.start_all();
        self.wait_until_healthy();
    }

    /// What root does.
    pub fn etcdctl(&self, arguments: &[&str]) -> String {
        self.try_etcdctl(arguments).unwrap_or_else(|error| panic!("etcdctl {arguments:?}: {error}"))
    }

    pub fn try_etcdctl(&self, arguments: &[&str]) -> Result<String, String> {
        self.run(arguments, &self.endpoints().join(","))
    }

    fn run(&self, arguments: &[&str], endpoints: &str) -> Result<String, String> {
        let root = format!("root:{ROOT_PASSWORD}");
        let user: &[&str] = if self.has_users { &["--user", &root] } else { &[] };
        self.etcdctl_as(user, arguments, endpoints)
    }

    /// Root writes what is too long for an argument.
    pub fn put_long(&self, key: &str, value: &[u8]) {
        assert!(self.try_put_long(key, value));
    }

    /// The same; false if etcd refuses it.
    pub fn try_put_long(&self, key: &str, value: &[u8]) -> bool {
        let file = self.folder().join("long");
        fs::write(&file, value).unwrap();
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg("--endpoints").arg(self.endpoints().join(","));
        command.arg("--cacert").arg(self.ca_file()).args(["--user", &format!("root:{ROOT_PASSWORD}"), "put", key]);
        command.stdin(File::open(file).unwrap()).output().unwrap().status.success()
    }

    /// What somebody does.
    pub fn etcdctl_as(&self, user: &[&str], arguments: &[&str], endpoints: &str) -> Result<String, String> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg("--endpoints").arg(endpoints).arg("--cacert").arg(self.ca_file());
        let output = command.args(user).args(arguments).output().expect("etcdctl is needed: scripts/setup test");
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    fn data(&self, member: usize) -> PathBuf {
        self.folder().join(format!("data{member}.{}", self.generation))
    }
}

/// An authority, and a certificate for 127.0.0.1 until then.
fn certificates(folder: &Path, until: SystemTime) {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    fs::write(folder.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let mut params = CertificateParams::new(vec!["127.0.0.1".into(), "localhost".into()]).unwrap();
    (params.not_before, params.not_after) = ((SystemTime::now() - 2 * DAY).into(), until.into());
    let key = KeyPair::generate().unwrap();
    fs::write(folder.join("etcd.pem"), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
    fs::write(folder.join("etcd.key"), key.serialize_pem()).unwrap();
}

/// How long something took, in a line that `--nocapture` shows.
pub fn told(what: &str, since: Instant) -> Duration {
    let took = since.elapsed();
    eprintln!("{what}: {:.2} s", took.as_secs_f64());
    took
}
