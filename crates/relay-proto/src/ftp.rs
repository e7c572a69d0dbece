//! What an FTP client says and hears, without I/O: RFC 959, with RFC 2428 (EPSV) and RFC 3659 (SIZE, MDTM, REST).

mod reply;
mod word;

pub use reply::{Replies, Reply, ReplyError};
pub use word::Word;

/// A command with its argument: one line, whatever the argument came from.
pub fn command(verb: &'static str, argument: Option<&Word>) -> Vec<u8> {
    let mut line = verb.as_bytes().to_vec();
    if let Some(argument) = argument {
        line.push(b' ');
        line.extend(argument.as_bytes());
    }
    line.extend(b"\r\n");
    line
}
