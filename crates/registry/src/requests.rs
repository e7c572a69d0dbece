//! What is asked of etcd for one overlay.

use std::time::Duration;

use serde_json::{Value, json};
use ureq::{Agent, Body};

use crate::client::Client;
use crate::error::RegistryError;
use crate::gateway::{Done, Event, EventKind, Header, KeyValue, Lease, Range, Txn, base64};
use crate::keys::Keys;
use crate::record::{Record, brief};
use crate::registration::Revisions;
use crate::settings::OverlayId;
use crate::view::{KEYS_MOST, Reading};

/// Keys of one page of a reading.
const PAGE: usize = 128;

/// Why a record was not written.
pub enum Unwritten {
    /// Something else is there than was thought.
    Changed,
    /// The lease has ended.
    NoLease,
    /// Something else.
    Error(RegistryError),
}

/// The id of the overlay; none if there is no such overlay.
pub fn overlay_id(client: &mut Client, keys: &Keys) -> Result<(Header, Option<OverlayId>), RegistryError> {
    let what = "a question for the overlay's id";
    let range: Range = client.call("kv/range", what, &json!({ "key": base64(keys.id()) }))?;
    let Some(kv) = range.kvs.first() else { return Ok((range.header, None)) };
    let text = String::from_utf8_lossy(&kv.value);
    let id = text.parse().map_err(|_| client.malformed(what, &format!("'{}' is no id", brief(&text))))?;
    Ok((range.header, Some(id)))
}

/// The id of the overlay that is meant.
///
/// # Errors
/// There is none, or another one.
pub fn the_overlay(
    client: &mut Client,
    keys: &Keys,
    overlay: &str,
    expected: Option<OverlayId>,
) -> Result<(Header, OverlayId), RegistryError> {
    let (header, found) = overlay_id(client, keys)?;
    let (endpoint, overlay) = (client.endpoint().to_owned(), overlay.to_owned());
    match (found, expected) {
        (None, _) => Err(RegistryError::NoOverlay { endpoint, overlay }),
        (Some(found), Some(expected)) if expected != found => {
            let (found, expected) = (found.to_string(), expected.to_string());
            Err(RegistryError::OtherOverlay { endpoint, overlay, found, expected })
        }
        (Some(found), _) => Ok((header, found)),
    }
}

/// Everything below the prefix, as it is at the header's revision.
pub fn read_all(client: &mut Client, keys: &Keys) -> Result<(Header, Reading), RegistryError> {
    let (mut reading, mut page) = (Reading::default(), PAGE);
    let mut from = keys.prefix().as_bytes().to_vec();
    let mut header = None::<Header>;
    let mut keys_read = 0;
    loop {
        let revision = header.map_or(0, |header| header.revision);
        let request = json!({
            "key": base64(&from), "range_end": base64(keys.end()), "limit": page.to_string(), "revision": revision.to_string(),
        });
        let range: Range = match client.call("kv/range", "a question for all members", &request) {
            // Somebody's record is absurdly long: fewer at a time.
            Err(RegistryError::TooLong { .. }) if page > 1 => {
                page /= 2;
                continue;
            }
            range => range?,
        };
        header.get_or_insert(range.header);
        let malformed = |reason: &str| RegistryError::Malformed {
            endpoint: client.endpoint().to_owned(),
            what: "a question for all members",
            reason: reason.into(),
        };
        // Else it would be asked for ever.
        if range.more && range.kvs.len() < page {
            return Err(malformed("there is more, and the page is not full"));
        }
        let Some(last) = range.kvs.last() else { break };
        if last.key < from || !last.key.starts_with(keys.prefix().as_bytes()) {
            return Err(malformed("it gives keys that were not asked for"));
        }
        from = [&last.key[..], b"\0"].concat();
        keys_read += range.kvs.len();
        reading.take(keys, range.kvs);
        if keys_read > KEYS_MOST {
            return Err(too_many(client, keys));
        }
        if !range.more {
            break;
        }
    }
    Ok((header.unwrap_or_default(), reading))
}

/// More keys than are held.
pub fn too_many(client: &Client, keys: &Keys) -> RegistryError {
    let (endpoint, prefix) = (client.endpoint().to_owned(), keys.prefix().to_owned());
    RegistryError::TooManyKeys { endpoint, prefix, most: KEYS_MOST }
}

/// Whether anything below the prefix was written after `revision`, and how many keys there are.
pub fn since(client: &mut Client, keys: &Keys, revision: u64) -> Result<(Header, bool, u64), RegistryError> {
    let request = json!({
        "key": base64(keys.prefix()), "range_end": base64(keys.end()), "limit": "1", "keys_only": true,
        "min_mod_revision": (revision + 1).to_string(),
    });
    let range: Range = client.call("kv/range", "a question for changes", &request)?;
    Ok((range.header, !range.kvs.is_empty(), range.count))
}

/// A watch of everything below the prefix, of changes at `from` and later.
pub fn watch(client: &mut Client, keys: &Keys, from: u64) -> Result<(Agent, Body), RegistryError> {
    let create = json!({
        "key": base64(keys.prefix()), "range_end": base64(keys.end()), "start_revision": from.to_string(), "fragment": true,
    });
    client.begin("watch", "a watch", &json!({ "create_request": create }))
}

/// A new lease, and how long it lasts.
pub fn grant(client: &mut Client, wanted: Duration) -> Result<(u64, Duration), RegistryError> {
    let what = "a lease";
    let lease: Lease = client.call("lease/grant", what, &json!({ "TTL": wanted.as_secs().to_string() }))?;
    match (lease.id, lease.ttl) {
        (1.., ttl @ 1..=86_400) => Ok((lease.id, Duration::from_secs(ttl))),
        (id, ttl) => Err(client.malformed(what, &format!("lease {id} of {ttl} s"))),
    }
}

/// Begins the lease anew. False if it has ended.
pub fn keep_alive(client: &mut Client, lease: u64) -> Result<bool, RegistryError> {
    let kept: Lease = client.call_line("lease/keepalive", "a keep-alive", &json!({ "ID": lease.to_string() }))?;
    Ok(kept.ttl > 0)
}

/// Ends a lease; what was written under it goes.
pub fn revoke(client: &mut Client, lease: u64) -> Result<(), RegistryError> {
    client.call::<Done>("lease/revoke", "the end of a lease", &json!({ "ID": lease.to_string() })).map(drop)
}

/// Writes a node's record under a lease, if its admission and what is there are of these revisions. Returns what a watch will say of it.
pub fn write(
    client: &mut Client,
    keys: &Keys,
    name: &str,
    (record, revisions): (&Record, Revisions),
    lease: u64,
) -> Result<Event, Unwritten> {
    let (key, value) = (keys.node(name), record.to_bytes());
    let request = json!({
        "compare": [
            { "key": base64(keys.admitted(name)), "target": "MOD", "mod_revision": revisions.admission.to_string() },
            { "key": base64(&key), "target": "MOD", "mod_revision": revisions.record.to_string() },
        ],
        "success": [put(&key, &value, lease)],
    });
    match client.call::<Txn>("kv/txn", "a registration", &request) {
        Ok(Txn { succeeded: true, header }) => {
            let kv = KeyValue { key: key.into(), value, mod_revision: header.revision, lease };
            Ok(Event { kind: EventKind::Put, kv })
        }
        Ok(_) => Err(Unwritten::Changed),
        Err(RegistryError::Refused { message, .. }) if message.contains("lease not found") => Err(Unwritten::NoLease),
        Err(error) => Err(Unwritten::Error(error)),
    }
}

/// One write of a transaction; without a lease if that is 0.
pub fn put(key: &str, value: impl AsRef<[u8]>, lease: u64) -> Value {
    json!({ "request_put": { "key": base64(key), "value": base64(value), "lease": lease.to_string() } })
}
