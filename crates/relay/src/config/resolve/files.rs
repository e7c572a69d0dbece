//! Users and destinations, which stand in the configuration or in files that are read again when they change.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ekiden_service::followed::Refused;
use serde_spanned::Spanned;

use super::{Resolver, Result};
use crate::access::users::{Users, validate};
use crate::config::destinations::{Destinations, Entry, FILE_MARK};
use crate::config::pattern::Pattern;
use crate::config::raw::RawListen;

/// Files of users and of destinations that have been read, by their paths.
#[derive(Default)]
pub(super) struct ReadFiles {
    users: RefCell<BTreeMap<PathBuf, Users>>,
    destinations: RefCell<BTreeMap<PathBuf, Entry>>,
}

impl Resolver<'_> {
    /// Who may use a listener. `None`: anyone.
    pub(super) fn users(&self, raw: &RawListen) -> Result<Option<Users>> {
        let Some(users) = &raw.users else { return self.users_file(raw) };
        if raw.users_file.is_some() {
            return Err(self.error(Some(users.span()), "either users or users_file, not both".into()));
        }
        for (name, hash) in users.get_ref() {
            validate(name, hash).map_err(|message| self.error(Some(users.span()), message))?;
        }
        let users = users.get_ref();
        Ok((!users.is_empty()).then(|| Users::Written(Arc::new(users.clone()))))
    }

    fn users_file(&self, raw: &RawListen) -> Result<Option<Users>> {
        let Some(written) = &raw.users_file else { return Ok(None) };
        self.once(&self.read.users, written, Users::of_file).map(Some)
    }

    pub(super) fn destinations(&self, texts: &[Spanned<String>]) -> Result<Destinations> {
        texts.iter().map(|text| self.entry(text)).collect()
    }

    fn entry(&self, text: &Spanned<String>) -> Result<Entry> {
        let Some(file) = text.get_ref().strip_prefix(FILE_MARK) else {
            let pattern = Pattern::parse(text.get_ref());
            return pattern.map(Entry::Pattern).map_err(|message| self.error(Some(text.span()), message));
        };
        self.once(&self.read.destinations, &Spanned::new(text.span(), file.into()), Entry::of_file)
    }

    /// What `read` makes of the file that is named there, if nothing was `known` of it yet.
    fn once<T: Clone>(
        &self,
        known: &RefCell<BTreeMap<PathBuf, T>>,
        named: &Spanned<String>,
        read: fn(&Path) -> Result<T, Refused>,
    ) -> Result<T> {
        if named.get_ref().is_empty() {
            return Err(self.error(Some(named.span()), "names no file".into()));
        }
        let file = self.beside(named);
        if let Some(known) = known.borrow().get(&file) {
            return Ok(known.clone());
        }
        let fresh = read(&file).map_err(|refused| match refused {
            Refused::Unread(reason) => self.error(Some(named.span()), format!("{}: {reason}", file.display())),
            // Of the file as a whole: it may be the wrong one.
            Refused::Wrong(error) if error.line.is_none() => self.error(Some(named.span()), error.to_string()),
            Refused::Wrong(error) => error,
        })?;
        known.borrow_mut().insert(file, fresh.clone());
        Ok(fresh)
    }
}
