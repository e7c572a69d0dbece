//! Asking a running program for its status.

use std::fmt;
use std::io;

use ekiden_files::as_user;
use serde::de::DeserializeOwned;

use crate::status_socket::{self, AskError, PATIENCE, QUEUE};

/// A running program: its kind, and its name among those of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whose {
    /// Such as `tunnel` or `gateway on`.
    pub kind: String,
    /// Such as the device `ekiden0`.
    pub name: String,
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} '{}'", self.kind, self.name)
    }
}

/// Why a program has not told its status.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// It is not there, or it is not said which one is meant: in a sentence.
    #[error("{0}")]
    Nobody(String),
    /// It does not answer this user.
    #[error("the {0} answers root and its own user alone; ask it as one of them")]
    Refused(Whose),
    /// Another user's program has taken the name.
    #[error(
        "what answers for the {whose} is none of root or of this user, but a program of user {user}; if that user is its own, ask as \
         that one: `{}`",
        asks_as(.user)
    )]
    Stranger {
        /// The one asked for.
        whose: Whose,
        /// The number of the user whose program it is.
        user: u32,
    },
    /// It has not answered.
    #[error("the {0} gives no answer within {wait} s; is its process stopped?", wait = PATIENCE.as_secs())]
    Late(Whose),
    /// Connections to it are not accepted.
    #[error(
        "the {whose} has accepted no connection for {wait} s; is its process stopped, or has another program taken the name \
         '@{socket}'? `ss -xlp` as root says whose it is",
        wait = QUEUE.as_secs()
    )]
    Full {
        /// The one asked for.
        whose: Whose,
        /// The name on which it listens.
        socket: String,
    },
    /// What came is no status.
    #[error("the {whose} gives no usable answer: {source}; is it of the same build?")]
    Unusable {
        /// The one asked for.
        whose: Whose,
        /// What is wrong.
        source: io::Error,
    },
}

/// This program's command line, as that user.
fn asks_as(user: &u32) -> String {
    as_user(*user, &command())
}

fn command() -> String {
    let words = std::env::args_os().map(|word| word.to_string_lossy().replace(char::is_control, " "));
    words.collect::<Vec<_>>().join(" ")
}

/// Asks the program that listens on the name `socket` in this network namespace. `nobody` is the error if there is none.
///
/// # Errors
/// If there is none, or it does not answer.
pub fn ask<T: DeserializeOwned>(
    socket: &str,
    whose: Whose,
    nobody: impl FnOnce(&str) -> String,
) -> Result<T, StatusError> {
    let text = match status_socket::ask(socket) {
        Ok(text) => text,
        Err(AskError::Nobody) => return Err(StatusError::Nobody(nobody(&whose.name))),
        Err(AskError::Refused) => return Err(StatusError::Refused(whose)),
        Err(AskError::Stranger(user)) => return Err(StatusError::Stranger { whose, user }),
        Err(AskError::Late) => return Err(StatusError::Late(whose)),
        Err(AskError::Full) => return Err(StatusError::Full { whose, socket: socket.into() }),
        Err(AskError::Failed(source)) => return Err(StatusError::Unusable { whose, source }),
    };
    serde_json::from_slice(&text).map_err(|error| StatusError::Unusable { whose, source: error.into() })
}
