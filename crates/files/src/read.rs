//! Reading a file that someone has named, whatever it turns out to be.
//!
//! `FileKind` says how long a file of each kind may be.

use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::unistd::{Uid, User, geteuid};

/// What a file holds. How long it may be follows from that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A node's configuration.
    Config,
    /// A key.
    Key,
    /// Certificates of authorities.
    Certificates,
    /// A scenario.
    Scenario,
    /// The description of a sweep, which holds a scenario.
    Sweep,
    /// A record.
    Record,
    /// What is known of a path: a description or a record of it.
    Path,
    /// The last known members of an overlay.
    Members,
    /// The users of a listener, with the hashes of their passwords.
    Users,
    /// Destinations for routes and exits.
    Destinations,
    /// A file of the system's, such as /etc/hosts.
    System,
}

/// Why a file was not read. The message does not name the file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system refuses.
    #[error("cannot be read: {0}")]
    Failed(#[from] io::Error),
    /// This process may not read it.
    #[error("cannot be read: {source}{}", remedy(*owner, *user))]
    Denied {
        /// The user id that it belongs to, if that can be seen.
        owner: Option<u32>,
        /// The user id of this process.
        user: u32,
        /// The system's answer.
        source: io::Error,
    },
    /// It is no file with a content of its own.
    #[error("cannot be read: it is {0}, and only a regular file will do")]
    NotRegular(&'static str),
    /// It is longer than anything of its kind.
    #[error("cannot be read: it has more than {} bytes, the most that {} may have", kind.bytes_most(), kind.noun())]
    TooLong {
        /// What it should hold.
        kind: FileKind,
    },
    /// It is another program's file, or one of another kind.
    #[error("is {is}, not {}", kind.noun())]
    Foreign {
        /// What it is.
        is: &'static str,
        /// What it should hold.
        kind: FileKind,
    },
    /// It is no text.
    #[error(
        "cannot be read: line {line} is not UTF-8, from byte {} of the file on; is this {}? If it is, save it as UTF-8",
        at + 1,
        kind.noun()
    )]
    NotText {
        /// What it should hold.
        kind: FileKind,
        /// The offset of the first byte that is wrong, counted from 0.
        at: usize,
        /// The line it is in.
        line: usize,
    },
}

/// A regular file, open for reading.
#[derive(Debug)]
pub struct Opened {
    file: File,
    metadata: Metadata,
    kind: FileKind,
}

impl FileKind {
    /// The longest file of this kind, in bytes.
    pub fn bytes_most(self) -> u64 {
        match self {
            Self::Key => 64 << 10,
            Self::Certificates | Self::Config | Self::Scenario | Self::Path => 1 << 20,
            // A scenario with its line ends and quotes escaped, and the values of a sweep.
            Self::Sweep => 8 << 20,
            // A line of some 300 bytes for each event of each connection's congestion control.
            Self::Record => 4 << 30,
            // 1,000 members of 16 KiB at most.
            Self::Members => 32 << 20,
            // 100,000 users with the longest names.
            Self::Users => 64 << 20,
            // Lists of a million names that lead nowhere are in use, also as hosts files.
            Self::System | Self::Destinations => 64 << 20,
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Config => "a node's configuration",
            Self::Key => "a key",
            Self::Certificates => "a list of certificates",
            Self::Scenario => "a scenario",
            Self::Sweep => "the description of a sweep",
            Self::Record => "a record",
            Self::Path => "what is known of a path",
            Self::Members => "a list of members",
            Self::Users => "a list of users",
            Self::Destinations => "a list of destinations",
            Self::System => "a file of the system",
        }
    }
}

/// The whole text of a file.
///
/// # Errors
/// As [`open`] and [`Opened::text`].
pub fn read(path: &Path, kind: FileKind) -> Result<String, ReadError> {
    open(path, kind)?.text()
}

/// Opens a regular file; never waits.
///
/// # Errors
/// If it cannot be opened, or is something else: a directory, a device, a pipe.
pub fn open(path: &Path, kind: FileKind) -> Result<Opened, ReadError> {
    // Looked at first, because opening a device can do something, and opened without waiting, because what is there may have
    // changed meanwhile: opening a pipe waits for a writer.
    let seen = fs::metadata(path).map_err(|error| denied(error, None))?;
    regular(&seen)?;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    let file = file.map_err(|error| denied(error, Some(seen.uid())))?;
    let metadata = file.metadata()?;
    regular(&metadata)?;
    Ok(Opened { file, metadata, kind })
}

impl Opened {
    /// What the system says about it.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Whether it belongs to this process's user or to root, and nobody else can read or write it.
    pub fn is_private(&self) -> bool {
        let owner = self.metadata.uid();
        (owner == 0 || owner == geteuid().as_raw()) && self.metadata.mode() & 0o077 == 0
    }

    /// The file itself, to be read from its beginning.
    pub fn into_file(self) -> File {
        self.file
    }

    /// All of it, without a byte-order mark.
    ///
    /// # Errors
    /// If it is too long for its kind, is of another kind, is not UTF-8, or cannot be read.
    pub fn text(self) -> Result<String, ReadError> {
        let mut text = self.text_with_mark()?;
        let mark = text.len() - without_mark(&text).len();
        text.drain(..mark);
        Ok(text)
    }

    /// All of it as it is.
    ///
    /// # Errors
    /// As [`Opened::text`].
    pub fn text_with_mark(self) -> Result<String, ReadError> {
        let kind = self.kind;
        let bytes = self.bytes()?;
        if let Some(is) = foreign(&bytes, kind) {
            return Err(ReadError::Foreign { is, kind });
        }
        String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let line = 1 + error.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count();
            ReadError::NotText { kind, at, line }
        })
    }

    /// All of it, text or not.
    ///
    /// # Errors
    /// If it is too long for its kind, or cannot be read.
    pub fn bytes(self) -> Result<Vec<u8>, ReadError> {
        let (kind, most) = (self.kind, self.kind.bytes_most());
        if self.metadata.len() > most {
            return Err(ReadError::TooLong { kind });
        }
        let mut bytes = Vec::new();
        // The kernel's own files say that they are empty, and a file may grow while it is read.
        self.file.take(most + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most {
            return Err(ReadError::TooLong { kind });
        }
        Ok(bytes)
    }
}

/// A text without the byte-order mark that some editors put before it (RFC 3629 section 6).
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// How files begin that are taken for others by mistake.
const BEGINNINGS: [(&[u8], &str); 12] = [
    (b"-----BEGIN CERTIFICATE", "a certificate (PEM)"),
    (b"-----BEGIN PUBLIC KEY", "a public key (PEM)"),
    (b"-----BEGIN ", "a private key (PEM)"),
    (b"PAR1", "a table of samples (Parquet)"),
    (b"SQLite format 3\0", "a database (SQLite)"),
    (b"\x1f\x8b", "a compressed file (gzip)"),
    (b"\x28\xb5\x2f\xfd", "a compressed file (zstd)"),
    (b"PK\x03\x04", "an archive (zip)"),
    (b"\x89PNG", "a picture (PNG)"),
    (b"<svg", "a picture (SVG)"),
    (b"<!", "a page (HTML)"),
    (b"\x7fELF", "a program (ELF)"),
];

/// What these bytes are, if they cannot be a file of this kind.
fn foreign(bytes: &[u8], kind: FileKind) -> Option<&'static str> {
    let beginning = bytes.trim_ascii_start();
    match kind {
        FileKind::Key | FileKind::Certificates | FileKind::System => None,
        FileKind::Config | FileKind::Scenario | FileKind::Sweep if beginning.starts_with(b"{") => {
            Some("a record or another file in JSON")
        }
        _ => BEGINNINGS.iter().find(|(begins, _)| beginning.starts_with(begins)).map(|&(_, is)| is),
    }
}

fn denied(source: io::Error, owner: Option<u32>) -> ReadError {
    match source.kind() {
        io::ErrorKind::PermissionDenied => ReadError::Denied { owner, user: geteuid().as_raw(), source },
        _ => ReadError::Failed(source),
    }
}

/// The command line that does `command` as another user, with the groups of that one.
pub fn as_user(user: u32, command: &str) -> String {
    match User::from_uid(Uid::from_raw(user)) {
        Ok(Some(User { name, .. })) => format!("runuser -u {name} -- {command}"),
        _ => format!("setpriv --reuid {user} --regid {user} --clear-groups {command}"),
    }
}

/// What to do about a file that may not be read.
fn remedy(owner: Option<u32>, user: u32) -> String {
    match owner {
        Some(owner) if owner == user => {
            "; it belongs to this process's user, who may not read it: `chmod u+r` it".into()
        }
        _ if user == 0 => {
            let theirs = owner.map_or_else(String::new, |owner| {
                format!("; if user {owner} runs the node, do this as that one: `{}`", as_user(owner, "COMMAND"))
            });
            format!(
                ": this process runs as root, but without root's right to read what belongs to others, which a node gives up when it \
                 starts{theirs}; if root runs it, `chown root` it, and each folder on the way that is closed"
            )
        }
        Some(0) => {
            format!(
                "; it belongs to root, and this process runs as user {user}: let that user read it, or run this as root"
            )
        }
        Some(owner) => {
            format!("; it belongs to the user with id {owner}, and this process runs as {user}: let that user read it")
        }
        None => String::new(),
    }
}

fn regular(metadata: &Metadata) -> Result<(), ReadError> {
    match metadata.is_file() {
        true => Ok(()),
        false => Err(ReadError::NotRegular(what(metadata.file_type()))),
    }
}

/// What something is that is no regular file.
pub(crate) fn what(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "something else than a file",
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    fn refused(path: &Path, kind: FileKind) -> String {
        read(path, kind).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_regular_file_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        assert!(refused(folder.path(), FileKind::Config).contains("it is a directory"));
        assert!(refused(&pipe, FileKind::Scenario).contains("it is a pipe"));
        assert!(refused(Path::new("/dev/zero"), FileKind::Record).contains("it is a device"));
        assert!(refused(&folder.path().join("none"), FileKind::Key).contains("No such file"));
    }

    #[test]
    fn a_file_has_the_length_of_its_kind_at_most() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = File::create(&path).unwrap();
        for kind in [FileKind::Key, FileKind::Config, FileKind::Scenario, FileKind::Sweep, FileKind::Path] {
            file.set_len(kind.bytes_most()).unwrap();
            assert_eq!(read(&path, kind).unwrap().len() as u64, kind.bytes_most());
            file.set_len(kind.bytes_most() + 1).unwrap();
            assert!(refused(&path, kind).contains(&format!("more than {} bytes", kind.bytes_most())));
        }
        file.set_len(1 << 40).unwrap();
        assert!(refused(&path, FileKind::Record).contains("more than 4294967296 bytes"));
        // A file of the kernel says that it is empty.
        assert!(!read(Path::new("/proc/self/status"), FileKind::Key).unwrap().is_empty());
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "\u{feff}name = \"\u{feff}\"\r\n").unwrap();
        for kind in [FileKind::Config, FileKind::Key, FileKind::Scenario, FileKind::Record, FileKind::Path] {
            assert_eq!(read(&path, kind).unwrap(), "name = \"\u{feff}\"\r\n");
        }
        let whole = open(&path, FileKind::Config).unwrap().text_with_mark().unwrap();
        assert!(whole.starts_with("\u{feff}name"));
        fs::write(&path, "\u{feff}").unwrap();
        assert_eq!(read(&path, FileKind::Config).unwrap(), "");
    }

    #[test]
    fn whoever_may_not_read_a_file_is_told_what_to_do() {
        let said = |owner, user| {
            let source = io::ErrorKind::PermissionDenied.into();
            ReadError::Denied { owner, user, source }.to_string()
        };
        for owner in [Some(1000), None] {
            let said = said(owner, 0);
            assert!(said.contains("; if root runs it, `chown root` it, and each folder on the way"), "{said}");
            assert_eq!(said.contains("if user 1000 runs the node"), owner.is_some(), "{said}");
        }
        assert!(said(Some(0), 998).ends_with(
            "; it belongs to root, and this process runs as user 998: let that user read it, or run this as root"
        ));
        assert!(
            said(Some(1000), 998).ends_with(
                "; it belongs to the user with id 1000, and this process runs as 998: let that user read it"
            )
        );
        for user in [0, 998] {
            assert!(said(Some(user), user).ends_with(
                "permission denied; it belongs to this process's user, who may not read it: `chmod u+r` it"
            ));
        }
        assert_eq!(said(None, 998), "cannot be read: permission denied");
    }

    #[test]
    fn a_file_of_another_kind_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for (bytes, kind, said) in [
            (
                &b"-----BEGIN PRIVATE KEY-----\nMC4\n"[..],
                FileKind::Config,
                "is a private key (PEM), not a node's configuration",
            ),
            (b"-----BEGIN CERTIFICATE-----\n", FileKind::Record, "is a certificate (PEM), not a record"),
            (b"\n{\"format\": 1}", FileKind::Scenario, "is a record or another file in JSON, not a scenario"),
            (b"\x1f\x8b\x08\0", FileKind::Path, "is a compressed file (gzip), not what is known of a path"),
            (b"\x89PNG\r\n", FileKind::Sweep, "is a picture (PNG), not the description of a sweep"),
        ] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(refused(&path, kind), said);
        }
        for (bytes, kind) in [("{}", FileKind::Record), ("{}", FileKind::Path), ("-----BEGIN X", FileKind::Key)] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(read(&path, kind).unwrap(), bytes);
        }
    }

    #[test]
    fn another_user_has_that_ones_groups() {
        assert_eq!(as_user(0, "ekiden status"), "runuser -u root -- ekiden status");
        assert_eq!(as_user(4_000_000, "x"), "setpriv --reuid 4000000 --regid 4000000 --clear-groups x");
    }

    #[test]
    fn what_is_no_text_is_refused_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"name = \"x\"\n# caf\xe9\n").unwrap();
        let said = refused(&path, FileKind::Config);
        assert!(said.contains("line 2 is not UTF-8, from byte 17 of the file on"), "{said}");
        assert!(said.contains("is this a node's configuration?"), "{said}");
    }
}
