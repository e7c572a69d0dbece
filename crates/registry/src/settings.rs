//! What a node, or the operator, has to know to speak with etcd.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use ekiden_files::{FileKind, read_secret};
use ekiden_keys::random_secret;
use ekiden_units::{HostPort, HostText};
use ureq::tls::Certificate;

use crate::authorities;
use crate::error::RegistryError;
use crate::keys::check_name;
use crate::record::{Load, Record, brief};

/// The most addresses of one etcd.
const ENDPOINTS_MOST: usize = 16;

/// How to reach etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The members of one cluster of etcd: `https://host:port`, 1 to 16. They are tried in turn. `http://` is for loopback addresses
    /// alone.
    pub endpoints: Vec<String>,
    /// The authorities (PEM) that sign etcd's certificates. Needed for `https://`.
    pub ca_file: Option<PathBuf>,
    /// etcd's user.
    pub user: Option<String>,
    /// A file with that user's password in one line, which its owner alone can read. Needed with `user`.
    pub password_file: Option<PathBuf>,
    /// How long one answer may take; 100 ms to 30 s. Not more than a quarter of the lease does any good.
    pub timeout: Duration,
}

/// What a node needs to be in an overlay's registry.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How to reach etcd.
    pub access: Access,
    /// The overlay's name: 1 to 64 letters, digits, `-`, `_` and `.`.
    pub overlay: String,
    /// The overlay's id, as [`Operator::init`](crate::Operator::init) returned it. Without it the first one seen counts for as long as
    /// this process runs, or as `members_cache` is there.
    pub expected_id: Option<OverlayId>,
    /// This node's name there; as the overlay's.
    pub name: String,
    /// Where others reach this node's leg listener: `host:port`.
    pub address: String,
    /// The fingerprint of this node's key.
    pub fingerprint: String,
    /// How soon others take this node for gone if it dies; 2 s to 1 h, in whole seconds. etcd may grant more.
    pub lease: Duration,
    /// A file for the last known members, and the overlay's id: what this node begins with if etcd is away when it starts.
    pub members_cache: Option<PathBuf>,
}

/// What tells an overlay from every other, also from one of the same name in another etcd: 32 random bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OverlayId([u8; 32]);

/// The user and its password, as read.
#[derive(Clone)]
pub struct Login {
    pub user: String,
    pub password: String,
}

impl Settings {
    /// # Errors
    /// About the first setting that is wrong. Nothing is sent for this, and no file is read.
    pub fn check(&self) -> Result<(), RegistryError> {
        self.access.check()?;
        check_name("overlay", &self.overlay)?;
        check_name("name", &self.name)?;
        let range = Duration::from_secs(2)..=Duration::from_secs(3600);
        if !range.contains(&self.lease) || self.lease.subsec_nanos() != 0 {
            return Err(wrong("lease", format!("{:?} is not from 2 s to 1 h, in whole seconds", self.lease)));
        }
        let record = Record::new(String::new(), self.address.clone(), self.fingerprint.clone(), Load::default());
        record.check().map_err(|why| wrong("address", why))
    }
}

impl Access {
    pub(crate) fn check(&self) -> Result<(), RegistryError> {
        if !(1..=ENDPOINTS_MOST).contains(&self.endpoints.len()) {
            return Err(wrong("endpoints", format!("1 to {ENDPOINTS_MOST} are needed, not {}", self.endpoints.len())));
        }
        self.endpoints.iter().try_for_each(|endpoint| self.check_endpoint(endpoint))?;
        match (&self.user, &self.password_file) {
            (Some(_), None) => return Err(wrong("password_file", "is needed with user")),
            (None, Some(_)) => return Err(wrong("user", "is needed with password_file")),
            _ => {}
        }
        match (Duration::from_millis(100)..=Duration::from_secs(30)).contains(&self.timeout) {
            true => Ok(()),
            false => Err(wrong("timeout", format!("{:?} is not from 100 ms to 30 s", self.timeout))),
        }
    }

    fn check_endpoint(&self, endpoint: &str) -> Result<(), RegistryError> {
        let bad = |reason: &str| Err(wrong("endpoints", format!("'{}' {reason}", brief(endpoint))));
        let Some((scheme, rest)) = endpoint.split_once("://") else {
            return bad("is not of the form https://host:port");
        };
        if rest.is_empty() || rest.contains(|c: char| "/@?#".contains(c) || c.is_whitespace() || c.is_control()) {
            return bad("is not of the form https://host:port");
        }
        match HostPort::optional(rest) {
            Ok((HostText::Zoned(..), _)) => return bad("has a zone, which etcd's addresses cannot have here"),
            Ok(_) => {}
            Err(error) => return Err(wrong("endpoints", error.to_string())),
        }
        match scheme {
            "https" if self.ca_file.is_none() => Err(wrong("ca_file", "is needed for https://")),
            "https" => Ok(()),
            "http" if is_loopback(rest) => Ok(()),
            "http" => bad("would send passwords and records without encryption: https://, or a loopback address"),
            _ => bad("is not of the form https://host:port"),
        }
    }

    /// The user and the password that the file holds.
    pub(crate) fn login(&self) -> Result<Option<Login>, RegistryError> {
        let (Some(user), Some(file)) = (&self.user, &self.password_file) else { return Ok(None) };
        let password = read_secret(file).map_err(|why| unusable("password_file", file, why.to_string()))?;
        Ok(Some(Login { user: user.clone(), password }))
    }

    /// The authorities' certificates.
    pub(crate) fn authorities(&self) -> Result<Vec<Certificate<'static>>, RegistryError> {
        let Some(file) = &self.ca_file else { return Ok(Vec::new()) };
        let text = ekiden_files::read(file, FileKind::Certificates).map_err(|why| why.to_string());
        text.and_then(|text| authorities::parse(&text)).map_err(|why| unusable("ca_file", file, why))
    }
}

impl OverlayId {
    /// A new one.
    pub(crate) fn random() -> std::io::Result<Self> {
        random_secret().map(Self)
    }
}

impl FromStr for OverlayId {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        let digits = |at: usize| text.get(2 * at..2 * at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
        let is_hex = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bytes = (0..32).map(digits).collect::<Option<Vec<u8>>>().and_then(|bytes| bytes.try_into().ok());
        bytes
            .filter(|_| is_hex)
            .map(Self)
            .ok_or_else(|| wrong("id", format!("'{}' is no overlay's id, which is 64 hexadecimal digits", brief(text))))
    }
}

impl fmt::Display for OverlayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for OverlayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

pub fn wrong(key: &'static str, reason: impl Into<String>) -> RegistryError {
    RegistryError::Setting { key, reason: reason.into() }
}

fn unusable(key: &'static str, file: &Path, reason: String) -> RegistryError {
    RegistryError::File { key, file: file.display().to_string(), reason }
}

fn is_loopback(host_and_port: &str) -> bool {
    let host = HostPort::optional(host_and_port).map(|(host, _)| host);
    host.is_ok_and(|host| host.bare() == "localhost" || host.ip().is_some_and(|address| address.is_loopback()))
}

#[cfg(test)]
pub mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Of node a.
    pub fn settings() -> Settings {
        Settings {
            access: Access {
                endpoints: vec!["https://192.0.2.9:2379".into()],
                ca_file: Some("ca.pem".into()),
                user: Some("a".into()),
                password_file: Some("password".into()),
                timeout: Duration::from_secs(2),
            },
            overlay: "blue".into(),
            expected_id: None,
            name: "a".into(),
            address: "192.0.2.1:7000".into(),
            fingerprint: format!("sha256:{}", "0a".repeat(32)),
            lease: Duration::from_secs(10),
            members_cache: None,
        }
    }

    fn refusal(change: impl FnOnce(&mut Settings)) -> String {
        let mut changed = settings();
        changed.check().unwrap();
        change(&mut changed);
        changed.check().unwrap_err().to_string()
    }

    #[test]
    fn settings_that_cannot_work_are_refused_with_their_key() {
        assert!(refusal(|s| s.access.endpoints.clear()).starts_with("endpoints: "));
        assert!(refusal(|s| s.access.endpoints = vec!["192.0.2.9:2379".into()]).contains("https://host:port"));
        assert!(refusal(|s| s.access.endpoints = vec!["http://192.0.2.9:2379".into()]).contains("without encryption"));
        assert!(refusal(|s| s.access.endpoints = vec!["https://a/b".into()]).contains("https://host:port"));
        assert!(refusal(|s| s.access.ca_file = None).starts_with("ca_file: "));
        assert!(refusal(|s| s.access.password_file = None).starts_with("password_file: "));
        assert!(refusal(|s| s.access.user = None).starts_with("user: "));
        assert!(refusal(|s| s.access.timeout = Duration::ZERO).starts_with("timeout: "));
        assert!(refusal(|s| s.lease = Duration::from_millis(2500)).starts_with("lease: "));
        assert!(refusal(|s| s.lease = Duration::from_secs(1)).starts_with("lease: "));
        assert!(refusal(|s| s.overlay = "a/b".into()).starts_with("overlay: "));
        assert!(refusal(|s| s.name = String::new()).starts_with("name: "));
        assert!(refusal(|s| s.address = "x".into()).starts_with("address: "));
        let mut near = settings();
        near.access.endpoints = vec!["http://127.0.0.1:1".into(), "http://[::1]:1".into(), "http://localhost:1".into()];
        near.check().unwrap();
    }

    #[test]
    fn the_password_is_the_one_line_of_a_file_that_others_cannot_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        let access = Access { password_file: Some(file.clone()), ..settings().access };
        fs::write(&file, "\u{feff}secret\r\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(access.login().err().unwrap().to_string().contains("chmod 600"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(access.login().unwrap().unwrap().password, "secret");
        fs::write(&file, "\n").unwrap();
        assert!(access.login().err().unwrap().to_string().contains("one line"));
        fs::remove_file(&file).unwrap();
        assert!(access.login().is_err());
    }

    #[test]
    fn ids_come_back_as_they_were_written() {
        let id = OverlayId::random().unwrap();
        assert_eq!(id.to_string().parse::<OverlayId>(), Ok(id));
        for text in ["", "00", &"0".repeat(63), &"g".repeat(64), &format!("+{}", "0".repeat(63)), &"ö".repeat(32)] {
            assert!(text.parse::<OverlayId>().is_err(), "{text}");
        }
    }
}
