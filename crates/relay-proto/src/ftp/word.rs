//! Arguments of commands.

/// An argument of a command, of any bytes but control characters and 0xFF: it cannot end its line or hold another command.
/// FTP's commands are Telnet's character strings (RFC 959 §5.3), in which 0xFF begins a command of Telnet (IAC, RFC 854).
#[derive(Clone, PartialEq, Eq)]
pub struct Word(Vec<u8>);

impl Word {
    /// `None` if it could not be said in one line.
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        (!bytes.iter().any(|&byte| byte.is_ascii_control() || byte == 0xff)).then_some(Self(bytes))
    }

    /// What is sent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<u64> for Word {
    fn from(number: u64) -> Self {
        Self(number.to_string().into_bytes())
    }
}
