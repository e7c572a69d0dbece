//! The etcd in which an overlay's members are, and the members.

use ekiden_doctor::{Remedy, Verdict};
use ekiden_registry::{Health, RegistryError, inspect};
use ekiden_relay::Config;
use ekiden_units::Bytes;

use super::{Failed, Paths};

/// The number of changes from which on etcd should forget old ones: it keeps each of them, and its quota is 2 GiB unless
/// set.
const CHANGES: u64 = 100_000;

/// The part of its quota that etcd may have used.
const FULL: f64 = 0.8;

/// Looks at each member of etcd. Returns the configuration with the members of the overlay, or as it is where there is no etcd in it.
pub fn look(paths: &mut Paths, config: Config) -> Result<Config, RegistryError> {
    let Some(settings) = config.overlay.as_ref().and_then(|overlay| overlay.etcd.as_deref()) else { return Ok(config) };
    let found = inspect(settings)?;
    for (endpoint, health) in &found.members {
        let subject = format!("etcd at {endpoint}");
        match health {
            Ok(health) => self::health(paths, &subject, health),
            Err(error) => paths.fail(subject, error.to_string()),
        }
    }
    for (node, why) in &found.ignored {
        let note = Verdict::Note(why.clone());
        paths.add(format!("node {node} of overlay '{}'", settings.overlay), "no member", note);
    }
    let Some(roster) = found.roster else { return Ok(config) };
    let own = roster.members.get(&config.name).map(|listed| &listed.member.fingerprint);
    let admitted = own.or_else(|| roster.absent.get(&config.name).map(|of| &of.fingerprint));
    if admitted != Some(&settings.fingerprint) {
        let (name, overlay, fingerprint) = (config.name.clone(), settings.overlay.clone(), &settings.fingerprint);
        let error = match admitted {
            None => RegistryError::NotAdmitted { name, overlay, fingerprint: fingerprint.clone() },
            Some(admitted) => {
                RegistryError::AdmittedOtherKey { name, admitted: admitted.clone(), own: fingerprint.clone() }
            }
        };
        paths.fail(format!("admission to overlay '{}'", settings.overlay), error.to_string());
    }
    for (node, admission) in roster.absent.iter().filter(|(node, of)| **node != config.name && !of.near.is_empty()) {
        let what = format!("streams to {} are refused, unless another node is near", admission.near.join(", "));
        paths.add(format!("node {node} of overlay '{}'", settings.overlay), "not there", Verdict::Note(what));
    }
    let (with_members, refused) = config.with_members(&roster);
    for (node, why) in refused {
        paths.fail(format!("node {node}"), format!("it is registered, and is not taken: {why}"));
    }
    Ok(with_members)
}

fn health(paths: &mut Paths, subject: &str, health: &Health) {
    let Health { version, size, in_use, quota, alarms, revision, is_compacted } = health;
    let of = quota.map_or(String::new(), |quota| format!(" of {} that it may take", Bytes(quota)));
    let found =
        format!("etcd {version}, {} on disk{of}, {} of that in use, {revision} changes", Bytes(*size), Bytes(*in_use));
    if !alarms.is_empty() {
        let reason = format!(
            "{subject} says: {}; with NOSPACE it grants no lease, and nodes that start are no members: docs/guide/overlay.md says how to free space",
            alarms.iter().map(|alarm| alarm.trim()).collect::<Vec<_>>().join("; ")
        );
        return paths.fail(subject.to_owned(), reason);
    }
    let is_full = quota.is_some_and(|quota| *in_use as f64 > FULL * quota as f64);
    let costs = |what: &str, advice| Verdict::Costs { what: what.into(), remedy: Remedy::Advice(advice) };
    let verdict = if is_full {
        costs(
            "beyond its quota it grants no lease, and nodes that start are no members",
            "compact and defragment it as docs/guide/overlay.md says, or raise --quota-backend-bytes",
        )
    } else if !is_compacted && *revision > CHANGES {
        costs(
            "it has kept every change since it began, and beyond its quota it grants no lease",
            "start it with `--auto-compaction-mode periodic --auto-compaction-retention 10m`",
        )
    } else {
        Verdict::Good
    };
    paths.add(subject.to_owned(), found, verdict);
}

impl Paths {
    fn fail(&mut self, subject: String, reason: String) {
        self.failed.push(Failed { subject, reason, is_of_host: false });
    }
}
