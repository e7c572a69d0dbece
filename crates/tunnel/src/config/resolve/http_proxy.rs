//! The HTTP proxy by which a peer is reached.

use ekiden_files::read_secret;
use serde_spanned::Spanned;

use super::Resolver;
use crate::config::raw::RawPeer;
use crate::config::{ConfigError, HttpProxy, Login};

impl Resolver<'_> {
    pub(super) fn http_proxy(&self, peer: &Spanned<RawPeer>) -> Result<Option<HttpProxy>, ConfigError> {
        let RawPeer { address, http_proxy, http_proxy_user, http_proxy_password_file, .. } = peer.get_ref();
        let Some(proxy) = http_proxy else {
            let alone = http_proxy_user.as_ref().or(http_proxy_password_file.as_ref());
            return match alone {
                None => Ok(None),
                Some(key) => {
                    Err(self.error(Some(key.span()), "the peer has no http_proxy that this would be for".into()))
                }
            };
        };
        if address.is_none() {
            let reason = "the peer has no address that the HTTP proxy could connect to";
            return Err(self.error(Some(proxy.span()), reason.into()));
        }
        let login = match (http_proxy_user, http_proxy_password_file) {
            (None, None) => None,
            (Some(user), Some(file)) => Some(Login {
                user: self.user(user)?.to_owned(),
                password: self.password(file)?,
                file: self.beside(file),
            }),
            (Some(one), None) | (None, Some(one)) => {
                let reason = "http_proxy_user and http_proxy_password_file go together";
                return Err(self.error(Some(one.span()), reason.into()));
            }
        };
        Ok(Some(HttpProxy { address: self.target(proxy)?, login }))
    }

    /// RFC 7617, section 2: the first colon ends the user's name.
    fn user<'a>(&self, user: &'a Spanned<String>) -> Result<&'a str, ConfigError> {
        let fits = |text: &str| !text.is_empty() && !text.contains(|c: char| c == ':' || c.is_control());
        Some(&user.get_ref()[..]).filter(|user| fits(user)).ok_or_else(|| {
            self.error(Some(user.span()), "a user's name has no ':' and no control characters, and is not empty".into())
        })
    }

    /// The one line of a file that others may not read.
    fn password(&self, path: &Spanned<String>) -> Result<String, ConfigError> {
        let file = self.beside(path);
        let failed = |reason: String| self.error(Some(path.span()), format!("{}: {reason}", file.display()));
        let password = read_secret(&file).map_err(|error| failed(error.to_string()))?;
        match password.contains(char::is_control) {
            true => Err(failed("a password has no control characters".into())),
            false => Ok(password),
        }
    }
}
