//! `ekiden password`: the hash of a password, for a node's configuration.

use std::io::{self, IsTerminal, Read, Write};

use anyhow::bail;
use ekiden_relay::hash_password;
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use serde_json::json;

use crate::out;

/// No line is longer than a narrow terminal: what is wrapped cannot be copied.
const EXAMPLE: &str = "Example of a configuration (TOML):
    [listen.socks]
    kind = \"socks5\"
    address = \"10.0.0.1:1080\"
    users = { alice = \"$argon2id$v=19$m=19456,t=2,p=1$…\" }";

/// The longest password, in bytes: SOCKS5 has a byte for its length (RFC 1929).
const PASSWORD_MOST: usize = 255;

/// Turn a password into the hash that a node's configuration holds.
///
/// Reads the password from standard input, one line, without showing it on a terminal, and prints its hash (Argon2id, RFC 9106,
/// with a new salt each time). The hash goes into `users` of a SOCKS5 or HTTP listener, or behind the user's name and a colon into
/// its users_file.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub struct Args {
    /// Print the hash as JSON.
    #[arg(long)]
    json: bool,
}

/// Does what the command line says.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let text = match io::stdin().is_terminal() {
        true => ask()?,
        false => {
            let mut bytes = Vec::new();
            io::stdin().take(1024).read_to_end(&mut bytes)?;
            let Ok(text) = String::from_utf8(bytes) else { bail!("the password is not UTF-8") };
            text
        }
    };
    let password = ekiden_files::one_line(&text).filter(|password| password.len() <= PASSWORD_MOST);
    let Some(password) = password else { bail!("a password is one line of 1 to {PASSWORD_MOST} bytes") };
    let hash = hash_password(password.as_bytes())?;
    match args.json {
        true => out::line(serde_json::to_string_pretty(&json!({ "hash": hash }))?),
        false => out::line(hash),
    }
}

/// Reads a line from the terminal without showing it.
fn ask() -> anyhow::Result<String> {
    let _ = write!(io::stderr(), "password: ");
    let shown = tcgetattr(io::stdin())?;
    let mut hidden = shown.clone();
    hidden.local_flags.remove(LocalFlags::ECHO);
    tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &hidden)?;
    let mut text = String::new();
    let read = io::stdin().read_line(&mut text);
    tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &shown)?;
    out::note("");
    read?;
    Ok(text)
}
