//! Who may use a listener. Passwords are kept as Argon2id hashes (RFC 9106) in the form `$argon2id$v=19$m=…,t=…,p=…$SALT$HASH`.
//!
//! A hash is slow to check, on purpose, so what was found right is remembered, as a keyed digest, for as long as the node
//! runs.

use std::collections::HashSet;
use std::sync::{Mutex, OnceLock, PoisonError};

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2};
use hmac::{Hmac, Mac};
use indexmap::IndexMap;
use sha2::Sha256;
use tokio::sync::Semaphore;

use crate::segment::fresh_nonce;

/// Hashes by user name.
pub type Users = IndexMap<String, String>;

/// Hashes that are checked at the same time: whoever guesses passwords takes no more than one processor.
const AT_ONCE: usize = 1;
/// Logins remembered at most; beyond that all are forgotten and checked anew.
const REMEMBERED: usize = 4096;

/// What this node knows of passwords it was given.
#[derive(Debug)]
pub struct Logins {
    secret: [u8; 32],
    right: Mutex<HashSet<[u8; 32]>>,
    checking: Semaphore,
}

impl Logins {
    /// Nothing is known yet.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new() -> std::io::Result<Self> {
        let checking = Semaphore::new(AT_ONCE);
        Ok(Self { secret: fresh_nonce()?, right: Mutex::default(), checking })
    }

    /// Whether `user` is one of `users` and has this password. An unknown user takes as long as a wrong password.
    pub async fn is_right(&self, users: &Users, user: &[u8], password: &[u8]) -> bool {
        let hash = std::str::from_utf8(user).ok().and_then(|user| users.get(user));
        let digest = hash.map(|hash| self.digest(hash, password));
        if digest.is_some_and(|digest| self.remembered().contains(&digest)) {
            return true;
        }
        let checked = hash.cloned().unwrap_or_else(|| nobodys().into());
        let password = password.to_vec();
        // An error means that the node is ending.
        let Ok(_permit) = self.checking.acquire().await else { return false };
        let is_right = tokio::task::spawn_blocking(move || matches(&checked, &password)).await.unwrap_or(false);
        match digest {
            Some(digest) if is_right => {
                let mut right = self.remembered();
                if right.len() >= REMEMBERED {
                    right.clear();
                }
                right.insert(digest);
                true
            }
            _ => false,
        }
    }

    fn digest(&self, hash: &str, password: &[u8]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("any length will do");
        // A hash holds no zero.
        mac.update(hash.as_bytes());
        mac.update(&[0]);
        mac.update(password);
        mac.finalize().into_bytes().into()
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, HashSet<[u8; 32]>> {
        self.right.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The hash of a password, with a new salt and RFC 9106's parameters for little memory as the library has them.
///
/// # Errors
/// If the system has no random numbers.
pub fn hash_password(password: &[u8]) -> std::io::Result<String> {
    Ok(hash_with(&fresh_nonce()?, password))
}

/// Whether a text is a hash that can be checked.
pub fn is_hash(text: &str) -> bool {
    PasswordHash::new(text).is_ok_and(|hash| {
        Algorithm::try_from(hash.algorithm) == Ok(Algorithm::Argon2id)
            && hash.hash.is_some()
            && argon2::Params::try_from(&hash).is_ok()
    })
}

fn hash_with(salt: &[u8], password: &[u8]) -> String {
    let salt = SaltString::encode_b64(&salt[..16]).expect("16 bytes are a salt");
    let hash = Argon2::default().hash_password(password, &salt);
    hash.expect("the parameters are the library's own, and passwords are short").to_string()
}

fn matches(hash: &str, password: &[u8]) -> bool {
    PasswordHash::new(hash).is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok())
}

/// A hash that is checked where there is no user, for the time that it takes.
fn nobodys() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| hash_with(&[0; 16], b""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_right_password_of_a_known_user_is_right() {
        let logins = Logins::new().unwrap();
        let users = Users::from([("alice".into(), hash_password(b"secret").unwrap())]);
        // The second time it is remembered.
        for _ in 0..2 {
            assert!(logins.is_right(&users, b"alice", b"secret").await);
            assert!(!logins.is_right(&users, b"alice", b"secre").await);
            assert!(!logins.is_right(&users, b"bob", b"secret").await);
            assert!(!logins.is_right(&users, b"bob", b"").await);
            assert!(!logins.is_right(&users, b"\xff", b"secret").await);
        }
        assert_eq!(logins.remembered().len(), 1);
        // What was right with another hash is not with this one.
        let changed = Users::from([("alice".into(), hash_password(b"other").unwrap())]);
        assert!(!logins.is_right(&changed, b"alice", b"secret").await);
    }

    #[test]
    fn hashes_are_told_from_passwords() {
        let hash = hash_password(b"secret").unwrap();
        assert!(is_hash(&hash) && hash.starts_with("$argon2id$v=19$") && hash != hash_password(b"secret").unwrap());
        let cut = &hash[..hash.len() - 44];
        for text in
            ["secret", "", "$argon2id$", cut, "$argon2i$v=19$m=8,t=1,p=1$AAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA", "$6$x$y"]
        {
            assert!(!is_hash(text), "{text}");
        }
    }
}
