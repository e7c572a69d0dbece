//! What etcd shows to a few questions, without registering: for `ekiden doctor`.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::json;

use crate::client::Client;
use crate::error::RegistryError;
use crate::gateway::{EtcdStatus, Range, base64};
use crate::keys::Keys;
use crate::requests;
use crate::settings::{Access, Settings};
use crate::view::{Roster, View};

/// What was found.
#[derive(Debug)]
pub struct Inspection {
    /// Each member of etcd, and how it is, or why it is of no use.
    pub members: Vec<(String, Result<Health, RegistryError>)>,
    /// Who belongs to the overlay, as the first useful one says.
    pub roster: Option<Roster>,
    /// Nodes that are admitted or registered and are no members, with the reason.
    pub ignored: BTreeMap<String, String>,
}

/// How a member of etcd is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Its version.
    pub version: String,
    /// What its store takes on disk, in bytes.
    pub size: u64,
    /// How much of that is in use; the rest is free again.
    pub in_use: u64,
    /// The most that it may take, where etcd says so (3.6 and newer).
    pub quota: Option<u64>,
    /// What is wrong with it in its own words, such as the alarm NOSPACE.
    pub alarms: Vec<String>,
    /// How many changes its store has seen.
    pub revision: u64,
    /// Whether it has forgotten any of them.
    pub is_compacted: bool,
}

/// Asks each member of etcd, and one of them for the overlay. Each takes at most a few times [`Access::timeout`].
///
/// # Errors
/// If a setting is wrong, or a file cannot be used.
pub fn inspect(settings: &Settings) -> Result<Inspection, RegistryError> {
    settings.check()?;
    let keys = Keys::of(&settings.overlay);
    let mut inspection = Inspection { members: Vec::new(), roster: None, ignored: BTreeMap::new() };
    for endpoint in &settings.access.endpoints {
        let mut client = Client::new(&Access { endpoints: vec![endpoint.clone()], ..settings.access.clone() })?;
        let health = health(&mut client, &keys, settings);
        if health.is_ok() && inspection.roster.is_none() {
            let mut view = View::new(keys.clone());
            if let Ok((_, reading)) = requests::read_all(&mut client, &keys) {
                view.replace(reading, Instant::now(), None);
                let (roster, ignored) = view.roster([]);
                (inspection.roster, inspection.ignored) = (Some(roster), ignored);
            }
        }
        inspection.members.push((endpoint.clone(), health));
    }
    Ok(inspection)
}

fn health(client: &mut Client, keys: &Keys, settings: &Settings) -> Result<Health, RegistryError> {
    let (header, _) = requests::the_overlay(client, keys, &settings.overlay, settings.expected_id)?;
    let status: EtcdStatus = client.call("maintenance/status", "a question for its status", &json!({}))?;
    // What was there at its beginning is there still, unless it was compacted.
    let first = json!({ "key": base64(keys.id()), "revision": "1", "count_only": true });
    let is_compacted = match client.call::<Range>("kv/range", "a question for its past", &first) {
        Ok(_) => false,
        Err(RegistryError::Refused { message, .. }) if message.contains("compacted") => true,
        Err(error) => return Err(error),
    };
    Ok(Health {
        version: status.version,
        size: status.size,
        in_use: status.in_use,
        quota: Some(status.quota).filter(|quota| *quota > 0),
        alarms: status.errors,
        revision: header.revision,
        is_compacted,
    })
}
