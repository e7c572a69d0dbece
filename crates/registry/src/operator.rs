//! What an overlay's operator writes: its id, and which nodes may belong to it.

use std::collections::BTreeMap;

use ekiden_keys::Fingerprint;
use serde_json::{Value, json};

use crate::admission::{ADMISSION_MOST, Admission, Terms, fingerprint_of};
use crate::client::Client;
use crate::error::RegistryError;
use crate::gateway::{Done, KeyValue, Range, Txn, base64};
use crate::keys::{Keys, RegistryKey, check_name};
use crate::requests::{overlay_id, put};
use crate::settings::{Access, OverlayId, wrong};
use crate::view::KEYS_MOST;

/// The nodes that are admitted, by name, each with what is said of it, or why that cannot be read.
pub type Admitted = BTreeMap<String, Result<Admission, String>>;

/// What to do with a name that is admitted with another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfOtherKey {
    /// The other key stays, and the new one is refused.
    Refuse,
    /// The new key counts instead.
    Replace,
}

/// An overlay's operator. Its user needs etcd's role `root`, or may write the overlay's keys, users and roles.
pub struct Operator {
    client: Client,
    keys: Keys,
    overlay: String,
}

impl Operator {
    /// Of `overlay`. Sends nothing yet.
    ///
    /// # Errors
    /// If a setting is wrong or a file cannot be used.
    pub fn new(access: &Access, overlay: &str) -> Result<Self, RegistryError> {
        check_name("overlay", overlay)?;
        Ok(Self { client: Client::new(access)?, keys: Keys::of(overlay), overlay: overlay.into() })
    }

    /// Makes the overlay, if it is not there, and returns its id.
    ///
    /// # Errors
    /// If no member of etcd does it.
    pub fn init(&mut self) -> Result<OverlayId, RegistryError> {
        let fresh = OverlayId::random().map_err(|error| wrong("random numbers", error.to_string()))?;
        let key = self.keys.id();
        let request = json!({
            "compare": [{ "key": base64(&key), "target": "MOD", "mod_revision": "0" }],
            "success": [put(&key, fresh.to_string(), 0)],
        });
        self.call::<Txn>("kv/txn", "a new overlay", &request)?;
        self.id()
    }

    /// Lets a node with this key register as `node`, and says what others are to believe of it: `terms`, and what was said before where
    /// these say nothing. Returns the admission, and the one before.
    ///
    /// # Errors
    /// If `terms` cannot be, the overlay is not there, another node is admitted with this key, this one with another key or by an entry that
    /// cannot be read, which are not to be replaced, or no member of etcd does it.
    pub fn admit(
        &mut self,
        node: &str,
        fingerprint: Fingerprint,
        terms: Terms,
        if_other: IfOtherKey,
    ) -> Result<(Admission, Option<Admission>), RegistryError> {
        check_name("name", node)?;
        self.id()?;
        let fresh = Admission::of(fingerprint);
        let entries = self.entries()?;
        // Also one that cannot be read: a later build may have written it.
        let has_key = |bytes: &[u8]| fingerprint_of(bytes).is_some_and(|key| key == fresh.fingerprint);
        if let Some((name, _)) = entries.iter().find(|(name, bytes)| *name != node && has_key(bytes)) {
            return Err(RegistryError::KeyTaken { fingerprint: fresh.fingerprint, name: name.clone() });
        }
        let before = match entries.get(node).map(|bytes| Admission::parse(bytes)) {
            Some(Err(why)) if if_other == IfOtherKey::Refuse => {
                return Err(RegistryError::Unreadable { node: node.into(), overlay: self.overlay.clone(), why });
            }
            // What cannot be read says nothing that could stay.
            before => before.and_then(Result::ok),
        };
        if let Some(before) = before.as_ref().filter(|before| before.fingerprint != fresh.fingerprint)
            && if_other == IfOtherKey::Refuse
        {
            let (overlay, admitted) = (self.overlay.clone(), before.fingerprint.clone());
            return Err(RegistryError::HasOtherKey { node: node.into(), overlay, admitted });
        }
        let mut admission = before.clone().unwrap_or_else(|| fresh.clone()).with(terms);
        admission.fingerprint = fresh.fingerprint;
        admission.check().map_err(|why| wrong("admission", why))?;
        let bytes = admission.to_bytes();
        if bytes.len() > ADMISSION_MOST {
            return Err(wrong("admission", format!("it would take {} bytes, more than {ADMISSION_MOST}", bytes.len())));
        }
        let write = [put(&self.keys.admitted(node), bytes, 0)];
        self.call::<Txn>("kv/txn", "an admission", &json!({ "success": write }))?;
        Ok((admission, before))
    }

    /// Ends a node's admission, and its registration with it, and removes its user of etcd, if it has one of [`Operator::add_user`].
    /// Another node refuses its new streams as soon as that one hears of it; those that run go on until they end.
    ///
    /// # Errors
    /// If there is no such overlay, the node is not admitted to it, or no member of etcd does it.
    pub fn expel(&mut self, node: &str) -> Result<(), RegistryError> {
        check_name("name", node)?;
        self.id()?;
        let admitted = self.admitted()?;
        if !admitted.contains_key(node) {
            let admitted = admitted.into_keys().collect::<Vec<_>>().join(", ");
            return Err(RegistryError::NeverAdmitted { node: node.into(), overlay: self.overlay.clone(), admitted });
        }
        let delete = |key: String| json!({ "request_delete_range": { "key": base64(key) } });
        let request = json!({ "success": [delete(self.keys.admitted(node)), delete(self.keys.node(node))] });
        self.call::<Txn>("kv/txn", "the end of an admission", &request)?;
        let name = self.user(node);
        self.unless_said("auth/user/delete", "the end of a user", &json!({ "name": name }), "not found")?;
        self.unless_said("auth/role/delete", "the end of a role", &json!({ "role": name }), "not found").map(drop)
    }

    /// Who is admitted.
    ///
    /// # Errors
    /// If no member of etcd tells.
    pub fn admitted(&mut self) -> Result<Admitted, RegistryError> {
        Ok(self.entries()?.into_iter().map(|(name, bytes)| (name, Admission::parse(&bytes))).collect())
    }

    /// The admissions as they are written, by name.
    fn entries(&mut self) -> Result<BTreeMap<String, Vec<u8>>, RegistryError> {
        let (from, end) = (self.keys.admitted(""), self.keys.admitted("").replace("admitted/", "admitted0"));
        let request = json!({ "key": base64(from), "range_end": base64(end), "limit": KEYS_MOST.to_string() });
        let range: Range = self.call("kv/range", "a question for the admitted nodes", &request)?;
        let one = |kv: KeyValue| {
            let key = String::from_utf8(kv.key).ok()?;
            let RegistryKey::Admitted(name) = self.keys.place(&key) else { return None };
            Some((name.to_owned(), kv.value))
        };
        Ok(range.kvs.into_iter().filter_map(one).collect())
    }

    /// Makes the user that `node` needs, or gives it this password: it may read what the overlay has in etcd, and write its own record.
    /// Returns whether it is new. It is [`Operator::user`], as its role is.
    ///
    /// # Errors
    /// If no member of etcd does it.
    pub fn add_user(&mut self, node: &str, password: &str) -> Result<bool, RegistryError> {
        check_name("name", node)?;
        let name = self.user(node);
        let login = json!({ "name": name, "password": password });
        let is_new = self.unless_said("auth/user/add", "a new user", &login, "already exists")?;
        if !is_new {
            self.call::<Done>("auth/user/changepw", "a new password", &login)?;
        }
        self.unless_said("auth/role/add", "a new role", &json!({ "name": name }), "already exists")?;
        let read =
            json!({ "permType": "READ", "key": base64(self.keys.prefix()), "range_end": base64(self.keys.end()) });
        let write = json!({ "permType": "READWRITE", "key": base64(self.keys.node(node)) });
        for permission in [read, write] {
            self.call::<Done>("auth/role/grant", "a right", &json!({ "name": name, "perm": permission }))?;
        }
        self.call::<Done>("auth/user/grant", "a user's role", &json!({ "user": name, "role": name }))?;
        Ok(is_new)
    }

    /// Whether a node cannot log in: etcd asks for users, and the one of [`Operator::add_user`] is not there.
    ///
    /// # Errors
    /// If no member of etcd tells.
    pub fn lacks_user(&mut self, node: &str) -> Result<bool, RegistryError> {
        // Who has logged in has shown that etcd asks for users.
        if self.client.user().is_empty() {
            return Ok(false);
        }
        let name = json!({ "name": self.user(node) });
        match self.unless_said("auth/user/get", "a question for a user", &name, "not found") {
            // This is not its to know.
            Err(RegistryError::NoOperator { .. }) => Ok(false),
            found => Ok(!found?),
        }
    }

    /// The id of the overlay.
    ///
    /// # Errors
    /// If there is no such overlay, or no member of etcd tells.
    pub fn id(&mut self) -> Result<OverlayId, RegistryError> {
        let (_, id) = self.with_each(|operator| overlay_id(&mut operator.client, &operator.keys))?;
        let (endpoint, overlay) = (self.client.endpoint().to_owned(), self.overlay.clone());
        id.ok_or(RegistryError::NoOverlay { endpoint, overlay })
    }

    /// The name of a node's user of etcd, and of its role: `ekiden.OVERLAY.NODE`.
    pub fn user(&self, node: &str) -> String {
        format!("ekiden.{}.{node}", self.overlay)
    }

    /// False if etcd refuses it for this reason.
    fn unless_said(
        &mut self,
        path: &str,
        what: &'static str,
        request: &Value,
        reason: &str,
    ) -> Result<bool, RegistryError> {
        match self.call::<Done>(path, what, request) {
            Ok(_) => Ok(true),
            Err(RegistryError::Refused { message, .. }) if message.contains(reason) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn call<T: serde::de::DeserializeOwned>(
        &mut self,
        path: &str,
        what: &'static str,
        request: &Value,
    ) -> Result<T, RegistryError> {
        self.with_each(|operator| operator.client.call(path, what, request))
    }

    /// Tries each member of etcd once, until one is there.
    fn with_each<T>(&mut self, mut ask: impl FnMut(&mut Self) -> Result<T, RegistryError>) -> Result<T, RegistryError> {
        let mut left = self.client.endpoints();
        loop {
            left -= 1;
            match ask(self) {
                Err(RegistryError::Unreachable { .. }) if left > 0 => self.client.next_endpoint(),
                Err(RegistryError::Denied { endpoint, user, what }) => {
                    return Err(RegistryError::NoOperator { endpoint, user, what });
                }
                answer => return answer,
            }
        }
    }
}
