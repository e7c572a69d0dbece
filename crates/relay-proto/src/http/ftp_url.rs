//! `ftp` URLs (RFC 1738 §3.2): who asks, and for what.

use super::HttpError;
use crate::ftp::Word;
use crate::target::Target;

/// What is to be fetched, and as whom.
#[derive(Clone, PartialEq, Eq)]
pub struct Fetch {
    /// `anonymous` unless the URL or the request says otherwise.
    pub user: Word,
    /// Of the user.
    pub password: Word,
    /// From where the server puts the user, or from its root if it begins with `/`. `None` is where the server puts the user.
    pub path: Option<Word>,
    /// What is there and how it is wanted.
    pub form: Form,
    /// Bytes at the beginning of the file that are not wanted.
    pub offset: u64,
}

/// What is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A file as it is (`;type=i`).
    Image,
    /// A file as text: its lines end with CRLF (`;type=a`).
    Ascii,
    /// A directory as the server lists it for people.
    Listing,
    /// The names in a directory (`;type=d`).
    Names,
}

impl Fetch {
    /// Reads what follows `ftp://`. `login` is `user:password` of the request, for a URL that has none.
    pub fn parse(url: &str, login: Option<Vec<u8>>) -> Result<(Target, Self), HttpError> {
        if url.contains('#') {
            return Err(HttpError::bad("the URI has a fragment"));
        }
        let (authority, path) = url.split_at(url.find('/').unwrap_or(url.len()));
        let (login, host) = match authority.rsplit_once('@') {
            Some((login, host)) => {
                let (user, password) = login.split_once(':').unwrap_or((login, ""));
                (Some((decode(user)?, decode(password)?)), host)
            }
            None => (login.map(split_login), authority),
        };
        let target = Target::parse(host, Some(21)).map_err(|_| HttpError::bad("not a host in the URI"))?;
        // RFC 1635.
        let anonymous = || (b"anonymous".to_vec(), b"ekiden@".to_vec());
        let (user, password) = login.filter(|(user, _)| !user.is_empty()).unwrap_or_else(anonymous);
        let (path, wanted) = split_type(path)?;
        let mut path = decode(path.strip_prefix('/').unwrap_or(path))?;
        let is_directory = path.is_empty() || path.ends_with(b"/");
        let least = usize::from(path.starts_with(b"/"));
        while path.len() > least && path.ends_with(b"/") {
            path.pop();
        }
        let form = match wanted {
            Some(Form::Names) => Form::Names,
            _ if is_directory => Form::Listing,
            wanted => wanted.unwrap_or(Form::Image),
        };
        let path = if path.is_empty() { None } else { Some(word(path)?) };
        Ok((target, Self { user: word(user)?, password: word(password)?, path, form, offset: 0 }))
    }
}

fn word(bytes: Vec<u8>) -> Result<Word, HttpError> {
    Word::new(bytes).ok_or_else(|| HttpError::bad("an ftp URL, user or password has a control character"))
}

/// RFC 7617 §2: the first colon ends the user's name.
fn split_login(mut user: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let colon = user.iter().position(|&byte| byte == b':').unwrap_or(user.len());
    let password = user.split_off(colon);
    (user, password.get(1..).unwrap_or_default().to_vec())
}

/// The path without `;type=`, and what that says (RFC 1738 §3.2.2).
fn split_type(path: &str) -> Result<(&str, Option<Form>), HttpError> {
    let Some((before, wanted)) = path.rsplit_once(';') else { return Ok((path, None)) };
    match wanted.to_ascii_lowercase().as_str() {
        "type=a" => Ok((before, Some(Form::Ascii))),
        "type=i" => Ok((before, Some(Form::Image))),
        "type=d" => Ok((before, Some(Form::Names))),
        other if other.starts_with("type=") => Err(HttpError::bad("the type of an ftp URL is a, i or d")),
        _ => Ok((path, None)),
    }
}

/// RFC 3986 §2.1.
fn decode(text: &str) -> Result<Vec<u8>, HttpError> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(HttpError::bad("a % in the URI is not followed by two hexadecimal digits"));
        };
        out.push((high * 16 + low) as u8);
    }
    Ok(out)
}

impl std::fmt::Debug for Fetch {
    /// Without the user and the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.as_ref().map(|path| String::from_utf8_lossy(path.as_bytes()));
        write!(f, "Fetch {{ path: {path:?}, form: {:?}, offset: {} }}", self.form, self.offset)
    }
}
