//! Secrets in files: who else can read one, and the one line that a password's file holds.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{Gid, getegid, geteuid, getgroups};

use crate::read::{FileKind, Opened, ReadError, open, without_mark};

/// Why a secret was not taken. The message does not name the file.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error(transparent)]
    Unread(#[from] ReadError),
    /// Somebody else can read the file, or write it.
    #[error(transparent)]
    Exposed(#[from] Exposed),
    /// It holds nothing, or more than a line.
    #[error("must hold a password in one line")]
    NotOneLine,
}

/// Others can read or write a file that holds a secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", remedy(self))]
pub struct Exposed {
    file: String,
    mode: u32,
    owner: u32,
    user: u32,
}

/// The secret that `file` has in one line: a password or a token. As [`one_line`], and no longer than a key's file.
///
/// # Errors
/// If it cannot be read, others can read it, or it is no line.
pub fn read_secret(file: &Path) -> Result<String, SecretError> {
    let opened = open(file, FileKind::Key)?;
    opened.check_private(file)?;
    Ok(one_line(&opened.text()?).ok_or(SecretError::NotOneLine)?.to_owned())
}

/// The one line of a text, without its end, whichever system has written it, and without a byte-order mark. Empty lines may follow.
/// `None` if there is no line, an empty one, or more.
pub fn one_line(text: &str) -> Option<&str> {
    let line = without_mark(text).trim_end_matches(['\n', '\r']);
    (!line.is_empty() && !line.contains(['\n', '\r'])).then_some(line)
}

impl Opened {
    /// Checks that nobody but this process's user, its owner and root can read what is in `file`, the path by which it was opened.
    ///
    /// A group may read it if it is one of this process's and the owner is root, as with a secret that an orchestrator mounts for a
    /// service; and what systemd has handed to this service (LoadCredential in systemd.exec(5)).
    ///
    /// # Errors
    /// If others can, with what to do.
    pub fn check_private(&self, file: &Path) -> Result<(), Exposed> {
        let there = self.metadata();
        let is_fine = match there.mode() & 0o077 {
            0 => true,
            0o040 => is_of_own_group(there) || is_credential(file),
            _ => false,
        };
        let (mode, owner, user) = (there.mode() & 0o7777, there.uid(), geteuid().as_raw());
        if is_fine { Ok(()) } else { Err(Exposed { file: file.display().to_string(), mode, owner, user }) }
    }
}

/// Whether root has given it to a group of this process, which cannot change its rights. A file of this process's own user needs no
/// group: others may be in that.
fn is_of_own_group(there: &Metadata) -> bool {
    let groups = getgroups().unwrap_or_default();
    let mut groups = groups.into_iter().chain([getegid()]).map(Gid::as_raw);
    there.uid() == 0 && groups.any(|group| group == there.gid())
}

/// Whether systemd has handed it to this service. The group's bits are then those of an access control list, and the directory is
/// the service's alone.
fn is_credential(file: &Path) -> bool {
    let Some(directory) = std::env::var_os("CREDENTIALS_DIRECTORY") else { return false };
    match (fs::canonicalize(directory), fs::canonicalize(file)) {
        (Ok(directory), Ok(file)) => {
            let is_closed = fs::metadata(&directory).is_ok_and(|found| found.mode() & 0o007 == 0);
            is_closed && file.parent() == Some(&directory)
        }
        _ => false,
    }
}

/// Only its owner and root can change who reads a file, and its owner alone could read it then.
fn remedy(Exposed { file, mode, owner, user }: &Exposed) -> String {
    if *user == 0 || owner == user {
        return format!("can be read by others: chmod 600 {file}");
    }
    format!(
        "can be read by others (mode {mode:04o}, owner {owner}): this process runs as user {user}, so let it belong to that user \
         with mode 0400, or to root and a group of this process with mode 0440"
    )
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn a_secret_is_a_line_whichever_system_has_written_it() {
        for text in ["secret", "secret\n", "secret\r\n", "\u{feff}secret\r\n", "secret\n\n", "secret\r"] {
            assert_eq!(one_line(text), Some("secret"), "{text:?}");
        }
        for text in [" secret ", "s\u{e9}cret", "se\u{feff}cret", "\tsecret"] {
            assert_eq!(one_line(text), Some(text), "{text:?}");
        }
        for text in ["", "\n", "\r\n", "\u{feff}", "\u{feff}\r\n", "one\ntwo", "one\r\ntwo\r\n", "one\rtwo", "\nsecret"]
        {
            assert_eq!(one_line(text), None, "{text:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        fs::write(&file, "\u{feff}secret\r\n").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_secret(&file).unwrap(), "secret");
        fs::write(&file, "one\ntwo\n").unwrap();
        assert_eq!(read_secret(&file).unwrap_err().to_string(), "must hold a password in one line");
    }

    #[test]
    fn only_the_processs_own_group_may_read_a_secret() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        fs::write(&file, "x").unwrap();
        let (user, group) = (geteuid().as_raw(), getegid().as_raw());
        let with = |mode| {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            open(&file, FileKind::Key).unwrap().check_private(&file)
        };
        for mode in [0o400, 0o600] {
            assert_eq!(with(mode), Ok(()), "{mode:o}");
        }
        for mode in [0o440, 0o640] {
            assert_eq!(with(mode).is_ok(), user == 0, "{mode:o}");
        }
        for mode in [0o444, 0o644, 0o404, 0o660, 0o620, 0o410, 0o604] {
            let said = with(mode).unwrap_err().to_string();
            assert!(said.starts_with("can be read by others: chmod 600 /"), "{mode:o}: {said}");
        }
        if user != 0 {
            return;
        }
        for (owner, of_group, is_fine) in [(0, group, true), (0, 64_321, false), (64_321, group, false)] {
            chown(&file, Some(owner), Some(of_group)).unwrap();
            assert_eq!(with(0o440).is_ok(), is_fine, "{owner} {of_group}");
        }
    }

    #[test]
    fn who_cannot_change_a_files_rights_is_not_told_to() {
        let exposed = Exposed { file: "/run/secret/key".into(), mode: 0o644, owner: 0, user: 998 };
        let said = exposed.to_string();
        assert!(said.contains("mode 0644, owner 0") && said.contains("mode 0440") && !said.contains("chmod"), "{said}");
    }
}
