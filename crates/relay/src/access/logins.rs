//! Checks users and their passwords. Passwords are kept as Argon2id hashes (RFC 9106) in the form
//! `$argon2id$v=19$m=…,t=…,p=…$SALT$HASH`.
//!
//! Checking a hash is slow on purpose. So the node remembers the passwords that were right, as keyed digests, for as long as it
//! runs.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use argon2::password_hash::phc::Output;
use argon2::{Algorithm, Argon2, Block, Params, PasswordHash, PasswordHasher, Version};
use ekiden_keys::random_secret;
use hmac::{Hmac, KeyInit, Mac};
use indexmap::IndexMap;
use sha2::Sha256;

use crate::access::quota::ClientKey;

mod checker;

pub use checker::Crowded;
use checker::{Check, Checker, Guess};

/// The maximum number of remembered logins. When it is reached, all are forgotten, and each is checked again at its next use.
const REMEMBERED: usize = 4096;

/// Bounds on the cost of checking a hash, in KiB. The first is for its memory, which the node holds during the check. The
/// second is for its memory times its passes, which is the time that all others wait.
const MEMORY_KIB: u64 = 256 << 10;
const WORK_KIB: u64 = 1 << 20;

/// The passwords that were right, and the queue of those that are to be checked.
#[derive(Debug)]
pub struct Logins {
    secret: [u8; 32],
    right: Mutex<HashSet<[u8; 32]>>,
    checker: Checker,
}

/// Why a text is not taken as a user's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadHash {
    /// It is not a hash, or not an Argon2id hash.
    #[error("must be a hash, as 'ekiden password' makes it")]
    Kind,
    /// Its check would cost too much memory or time. Everyone who guesses a password causes one.
    #[error(
        "asks for too much: at most {} MiB of memory, and {} MiB times passes; 'ekiden password' makes one that does not",
        MEMORY_KIB >> 10,
        WORK_KIB >> 10
    )]
    Cost,
}

impl Logins {
    /// No password is remembered yet.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { secret: random_secret()?, right: Mutex::default(), checker: Checker::new(check) })
    }

    /// Whether `user` is one of `users` and has this password. Checks of several clients take turns in the queue; `client`
    /// is whose turn this one takes. An unknown user takes as long as a wrong password. A password that was right before is
    /// not checked again. Dropping the future gives up the place in the queue.
    ///
    /// # Errors
    /// Too many passwords wait to be checked, or there is no thread to check them.
    pub async fn is_right(
        &self,
        users: &IndexMap<String, String>,
        client: ClientKey,
        user: &[u8],
        password: &[u8],
    ) -> Result<bool, Crowded> {
        let hash = std::str::from_utf8(user).ok().and_then(|user| users.get(user));
        let digest = hash.map(|hash| self.digest(hash, password));
        if digest.is_some_and(|digest| self.remembered().contains(&digest)) {
            return Ok(true);
        }
        let hash = hash.cloned().unwrap_or_else(|| dummy_hash().into());
        let is_right = self.checker.check(client, Guess { hash, password: password.into() }).await?;
        match digest {
            Some(digest) if is_right => {
                let mut right = self.remembered();
                if right.len() >= REMEMBERED {
                    right.clear();
                }
                right.insert(digest);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn digest(&self, hash: &str, password: &[u8]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("any length will do");
        // The zero separates the two: a hash has no zero byte.
        mac.update(hash.as_bytes());
        mac.update(&[0]);
        mac.update(password);
        mac.finalize().into_bytes().into()
    }

    fn remembered(&self) -> MutexGuard<'_, HashSet<[u8; 32]>> {
        self.right.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The hash of a password, with a new salt and the library's parameters: 19 MiB, two passes, one lane. The 64 MiB and three
/// passes of RFC 9106 section 4 would make every check five times as costly, those of a stranger's wrong guesses too.
///
/// # Errors
/// If the system has no random numbers.
pub fn hash_password(password: &[u8]) -> std::io::Result<String> {
    Ok(hash_with(&random_secret()?, password))
}

/// Whether a text is a hash that a node can check.
///
/// # Errors
/// It is not, or its check would cost more than a node allows.
pub fn validate_hash(text: &str) -> Result<(), BadHash> {
    let hash = PasswordHash::new(text).map_err(|_| BadHash::Kind)?;
    let is_ours = hash.algorithm == Algorithm::Argon2id.ident() && hash.hash.is_some();
    let params = Params::try_from(&hash).ok().filter(|_| is_ours && hash.salt.is_some()).ok_or(BadHash::Kind)?;
    let (memory, passes) = (u64::from(params.m_cost()), u64::from(params.t_cost()));
    if memory > MEMORY_KIB || memory * passes > WORK_KIB { Err(BadHash::Cost) } else { Ok(()) }
}

fn hash_with(salt: &[u8], password: &[u8]) -> String {
    let hash = Argon2::default().hash_password_with_salt(password, &salt[..16]);
    hash.expect("the parameters are the library's own, and passwords are short").to_string()
}

/// A function that checks guesses, all with the same memory.
fn check() -> Check {
    let mut memory = Vec::new();
    Box::new(move |guess| matches(guess, &mut memory).unwrap_or(false))
}

/// Whether the password of `guess` belongs to its hash. `None` if the hash is malformed: [`validate_hash`] refuses such a hash.
fn matches(guess: &Guess, memory: &mut Vec<Block>) -> Option<bool> {
    let hash = PasswordHash::new(&guess.hash).ok()?;
    let version = hash.version.map_or(Ok(Version::default()), Version::try_from).ok()?;
    let params = Params::try_from(&hash).ok()?;
    let (salt, right) = (hash.salt?, hash.hash?);
    if memory.len() < params.block_count() {
        *memory = Vec::new();
        memory.resize(params.block_count(), Block::default());
    }
    let mut out = [0; Output::MAX_LENGTH];
    let out = out.get_mut(..right.len())?;
    let argon2 = Argon2::new(Algorithm::Argon2id, version, params);
    argon2.hash_password_into_with_memory(&guess.password, &salt, out, memory).ok()?;
    // Compared in constant time.
    Some(Output::new(out).ok()? == right)
}

/// The hash that is checked for an unknown user, so that the check takes as long as for a known one.
fn dummy_hash() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| hash_with(&[0; 16], b""))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[tokio::test]
    async fn only_the_right_password_of_a_known_user_is_right() {
        let logins = Logins::new().unwrap();
        let users = IndexMap::from([("alice".into(), hash_password(b"secret").unwrap())]);
        let is_right = async |users: &IndexMap<String, String>, user: &[u8], password: &[u8]| {
            let client = "192.0.2.1".parse::<IpAddr>().unwrap().into();
            logins.is_right(users, client, user, password).await.unwrap()
        };
        // The second time the right password is remembered.
        for _ in 0..2 {
            assert!(is_right(&users, b"alice", b"secret").await);
            assert!(!is_right(&users, b"alice", b"secre").await);
            assert!(!is_right(&users, b"bob", b"secret").await);
            assert!(!is_right(&users, b"bob", b"").await);
            assert!(!is_right(&users, b"\xff", b"secret").await);
        }
        assert_eq!(logins.remembered().len(), 1);
        // A password that was right for another hash is not right for this one.
        let changed = IndexMap::from([("alice".into(), hash_password(b"other").unwrap())]);
        assert!(!is_right(&changed, b"alice", b"secret").await);
    }

    #[test]
    fn hashes_of_all_costs_are_checked_with_the_same_memory() {
        let mut memory = Vec::new();
        for (m, t, p) in [(19_456, 2, 1), (8, 1, 1), (64, 3, 4), (32_768, 1, 2), (19_456, 2, 1)] {
            let params = Params::new(m, t, p, None).unwrap();
            let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
            let hash = argon2.hash_password_with_salt(b"secret", &[7; 16]).unwrap().to_string();
            validate_hash(&hash).unwrap();
            for (password, is_right) in [("secret", true), ("other", false), ("", false)] {
                let guess = Guess { hash: hash.clone(), password: password.into() };
                assert_eq!(matches(&guess, &mut memory), Some(is_right), "{password} for {hash}");
            }
        }
        assert_eq!(memory.len(), 32_768);
    }

    #[test]
    fn hashes_of_other_versions_of_the_library_are_checked() {
        let hash = "$argon2id$v=19$m=19456,t=2,p=1$xqT9iuRFPTF1qvmyLpJrgw$Esaog2x/NT3AAQ4s8S8e+5yKJC6ZOTJq9SqRDTR+MNM";
        for (password, is_right) in [("correct horse", true), ("correct", false)] {
            let guess = Guess { hash: hash.into(), password: password.into() };
            assert_eq!(matches(&guess, &mut Vec::new()), Some(is_right), "{password}");
        }
    }

    #[test]
    fn hashes_are_told_from_passwords() {
        let hash = hash_password(b"secret").unwrap();
        assert_eq!(validate_hash(&hash), Ok(()));
        assert!(hash.starts_with("$argon2id$v=19$") && hash != hash_password(b"secret").unwrap());
        let cut = &hash[..hash.len() - 44];
        for text in
            ["secret", "", "$argon2id$", cut, "$argon2i$v=19$m=8,t=1,p=1$AAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA", "$6$x$y"]
        {
            assert_eq!(validate_hash(text), Err(BadHash::Kind), "{text}");
        }
    }

    #[test]
    fn a_hash_may_not_ask_for_all_memory_or_for_minutes() {
        let hash = hash_password(b"secret").unwrap();
        let asking = |costs: &str| validate_hash(&hash.replace("m=19456,t=2,p=1", costs));
        assert_eq!(asking("m=262144,t=4,p=1"), Ok(()));
        assert_eq!(asking("m=65536,t=3,p=4"), Ok(()), "RFC 9106 section 4, the second choice");
        for costs in ["m=262145,t=1,p=1", "m=2097152,t=1,p=4", "m=19456,t=54,p=1", "m=8,t=4294967295,p=1"] {
            assert_eq!(asking(costs), Err(BadHash::Cost), "{costs}");
        }
    }
}
