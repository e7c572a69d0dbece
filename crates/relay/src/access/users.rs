//! The users of a listener: those of the configuration, or of a file that is read again when it has changed.

use std::path::Path;
use std::sync::Arc;

use ekiden_files::{ConfigError, FileKind, open};
use ekiden_service::followed::{Followed, Refused};
use indexmap::IndexMap;
use indexmap::map::Entry;

use crate::access::logins::validate_hash;

/// Hashes of passwords by user name.
pub type Hashes = IndexMap<String, String>;

/// Who may use a listener.
#[derive(Clone, PartialEq, Eq)]
pub enum Users {
    /// Those of the configuration.
    Written(Arc<Hashes>),
    /// Those of a file; there may be none at times.
    InFile(Arc<Followed<Hashes>>),
}

impl Users {
    /// Those in `file`.
    ///
    /// # Errors
    /// It cannot be read, others can read it, or a line is wrong.
    pub fn of_file(file: &Path) -> Result<Self, Refused> {
        Ok(Self::InFile(Arc::new(Followed::new(file.into(), load, Hashes::is_empty)?)))
    }

    /// The hashes in force.
    pub fn current(&self) -> Arc<Hashes> {
        match self {
            Self::Written(hashes) => hashes.clone(),
            Self::InFile(file) => file.value(),
        }
    }

    /// The file that they are in.
    pub fn file(&self) -> Option<&Arc<Followed<Hashes>>> {
        match self {
            Self::Written(_) => None,
            Self::InFile(file) => Some(file),
        }
    }
}

/// Checks the name and hash of a user. The name must suit both SOCKS5 (RFC 1929 §2) and HTTP (RFC 7617 §2).
///
/// # Errors
/// A sentence.
pub fn validate(name: &str, hash: &str) -> Result<(), String> {
    if !(1..=255).contains(&name.len()) || name.contains(':') {
        return Err(format!("'{name}' cannot be a user's name: it must have 1 to 255 bytes, without ':'"));
    }
    validate_hash(hash).map_err(|why| format!("the password of '{name}' {why}"))
}

fn load(file: &Path) -> Result<Hashes, Refused> {
    let refused = |error| Refused::of(file, error);
    let opened = open(file, FileKind::Users).map_err(refused)?;
    opened.check_private(file).map_err(|error| Refused::Unread(error.to_string()))?;
    let text = opened.text().map_err(refused)?;
    parse(&text, file).map_err(Refused::Wrong)
}

/// Reads lines `name:hash`. Empty lines, and those that begin with `#`, say nothing.
fn parse(text: &str, file: &Path) -> Result<Hashes, ConfigError> {
    let mut users = Hashes::new();
    for (before, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        add(&mut users, line)
            .map_err(|reason| ConfigError { line: Some(before + 1), ..ConfigError::whole(file, reason) })?;
    }
    Ok(users)
}

fn add(users: &mut Hashes, line: &str) -> Result<(), String> {
    // What stands there may be a password: it is not repeated.
    let no_user = || "is no user: a line is NAME:HASH, with the hash that 'ekiden password' prints".to_owned();
    let (name, hash) = line.split_once(':').ok_or_else(no_user)?;
    let (name, hash) = (name.trim_end(), hash.trim_start());
    validate(name, hash)?;
    match users.entry(name.into()) {
        Entry::Vacant(place) => drop(place.insert(hash.into())),
        Entry::Occupied(_) => return Err(format!("the user '{name}' stands there twice")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HASH: &str =
        "$argon2id$v=19$m=19456,t=2,p=1$xqT9iuRFPTF1qvmyLpJrgw$Esaog2x/NT3AAQ4s8S8e+5yKJC6ZOTJq9SqRDTR+MNM";

    fn read(text: &str) -> Result<Hashes, String> {
        parse(text, Path::new("users.txt")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_line_is_a_user_whichever_system_has_written_it() {
        let users =
            read(&format!("# who\r\n\r\nalice:{HASH}\r\n  #bob:{HASH}\n carol d : {HASH} \n\u{e9}ve:{HASH}")).unwrap();
        assert_eq!(users.keys().collect::<Vec<_>>(), ["alice", "carol d", "\u{e9}ve"]);
        assert!(users.values().all(|hash| hash == HASH));
        assert_eq!(read(""), Ok(Hashes::new()));
    }

    #[test]
    fn a_wrong_line_is_named_and_not_repeated() {
        for (text, line, said) in [
            (format!("alice:{HASH}\n\nsecret\n"), 3, "a line is NAME:HASH"),
            ("alice:secret\n".into(), 1, "the password of 'alice' must be a hash, as 'ekiden password' makes it"),
            (format!("alice:{HASH}\nalice:{HASH}\n"), 2, "the user 'alice' stands there twice"),
            (format!(":{HASH}"), 1, "must have 1 to 255 bytes"),
            (format!("#\n{}:{HASH}", "a".repeat(256)), 2, "must have 1 to 255 bytes"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.starts_with(&format!("users.txt:{line}: ")) && error.contains(said), "{error}");
            assert!(!error.contains("secret") && !error.contains("$argon2id") && !error.contains('\n'), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(names in proptest::collection::hash_set("[^:#\\s\\p{C}][^:\\p{C}]{0,6}[^:\\s\\p{C}]", 0..6)) {
            let text: String = names.iter().map(|name| format!("{name}:{HASH}\n")).collect();
            let users = read(&text).unwrap();
            prop_assert_eq!(users.keys().cloned().collect::<std::collections::HashSet<_>>(), names);
        }

        #[test]
        fn any_text_has_users_or_a_wrong_line(text in "(.{0,20}[\r\n#:$]{0,3}){0,6}") {
            if let Err(error) = parse(&text, Path::new("users.txt")) {
                prop_assert!((1..=text.lines().count()).contains(&error.line.unwrap()));
            }
        }
    }
}
