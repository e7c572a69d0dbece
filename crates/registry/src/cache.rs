//! The last known members in a file: a node that starts while etcd is away begins with them.
//!
//! A file of another overlay or format is refused, and left as it is.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use ekiden_files::{FileKind, ReadError};
use ekiden_overlay::member::Member;
use ekiden_units::is_node_name;
use serde::{Deserialize, Serialize};

use crate::admission::Admission;
use crate::record::{Load, Record, brief};
use crate::settings::OverlayId;
use crate::view::Roster;

/// The version of files that this crate writes and reads.
const FORMAT: u64 = 2;

/// How old the time in the file may become while etcd says the same.
const REFRESH: Duration = Duration::from_secs(600);

/// The file of one overlay's members.
pub struct Cache {
    path: PathBuf,
    overlay: String,
    /// What stands there, as far as this process wrote it, and since when.
    written: Option<(OverlayId, Nodes, Instant)>,
    /// Whether it is left alone: it is none of ours.
    is_off: bool,
}

/// The nodes of a file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    pub members: BTreeMap<String, Member>,
    /// Those that were admitted, and not there.
    pub absent: BTreeMap<String, Admission>,
}

/// What a file says.
#[derive(Debug, PartialEq)]
pub struct Cached {
    pub overlay_id: OverlayId,
    pub nodes: Nodes,
    /// How long ago etcd said so, by the wall clock. For people alone: nothing is decided by it.
    pub age: Duration,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    members_cache_format: u64,
    overlay: String,
    overlay_id: String,
    /// When etcd last said so, in seconds since 1970.
    seen: u64,
    nodes: Nodes,
}

/// Of a file whose other fields may be unknown.
#[derive(Deserialize)]
struct Version {
    members_cache_format: u64,
}

impl Cache {
    /// Reads nothing yet.
    pub fn new(path: PathBuf, overlay: &str) -> Self {
        Self { path, overlay: overlay.into(), written: None, is_off: false }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the file says; none if there is no file. One that is refused is left alone from then on.
    ///
    /// # Errors
    /// Why it is refused, in one line.
    pub fn load(&mut self, expected: Option<OverlayId>) -> Result<Option<Cached>, String> {
        let mut is_ours = false;
        let loaded = read(&self.path).and_then(|read| match read {
            Some((text, is_private)) => {
                is_ours = is_cache(&text);
                match is_private {
                    true => parse(&text, &self.overlay, expected, now()).map(Some),
                    false => Err("belongs to another user, or others can read or write it".into()),
                }
            }
            None => Ok(None),
        });
        self.is_off = loaded.is_err();
        loaded.map_err(|why| {
            let file = self.path.display();
            // Who does as told must lose nothing else by it.
            let or_remove = if is_ours { ", or remove it if it is an old one" } else { "" };
            format!("members_cache: {file} {why}; it is not used and not written: name another file{or_remove}")
        })
    }

    /// Writes what etcd says now, if the file says something else or its time is old.
    ///
    /// # Errors
    /// It cannot be written, in one line. It is tried again when the members change, and after a while.
    pub fn keep(&mut self, overlay_id: OverlayId, roster: &Roster, now: Instant) -> Result<(), String> {
        let members = roster.members.iter().map(|(name, listed)| (name.clone(), listed.member.clone())).collect();
        let nodes = Nodes { members, absent: roster.absent.clone() };
        let stands = self.written.as_ref().is_some_and(|(id, before, at)| {
            *id == overlay_id && *before == nodes && now.saturating_duration_since(*at) < REFRESH
        });
        match stands {
            true => Ok(()),
            false => self.write(overlay_id, nodes, now),
        }
    }

    /// Writes the time up to which the file holds.
    ///
    /// # Errors
    /// As [`Cache::keep`].
    pub fn confirm(&mut self, now: Instant) -> Result<(), String> {
        match self.written.take() {
            Some((overlay_id, nodes, _)) => self.write(overlay_id, nodes, now),
            None => Ok(()),
        }
    }

    fn write(&mut self, id: OverlayId, nodes: Nodes, now: Instant) -> Result<(), String> {
        if self.is_off {
            return Ok(());
        }
        let content = Content {
            members_cache_format: FORMAT,
            overlay: self.overlay.clone(),
            overlay_id: id.to_string(),
            seen: self::now(),
            nodes,
        };
        let written = serde_json::to_vec_pretty(&content)
            .map_err(io::Error::from)
            .and_then(|text| ekiden_files::write_private(&self.path, &text));
        let result = written.map_err(|error| {
            let so = withdraw(&self.path, &Content { nodes: Nodes::default(), ..content.clone() });
            format!("members_cache: {} cannot be written: {error}{so}", self.path.display())
        });
        self.written = Some((id, content.nodes, now));
        result
    }
}

/// Takes back a file that no longer holds: an expelled node must not come back with it. Returns the result. If the file
/// cannot be removed, because its folder belongs to another user, it is overwritten with `nobody`.
fn withdraw(path: &Path, nobody: &Content) -> &'static str {
    match std::fs::remove_file(path).map_err(|error| error.kind()) {
        Ok(()) => return "; what it said is removed",
        Err(io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return "",
        Err(_) => {}
    }
    let text = serde_json::to_vec_pretty(nobody).map_err(io::Error::from);
    match text.and_then(|text| ekiden_files::overwrite(path, &text)) {
        Ok(()) => "; the nodes are taken out of it",
        Err(_) => "; it cannot be removed either and names nodes that may have been expelled: remove it",
    }
}

/// The text of the file, and whether no other user can read or write it; none if there is none.
fn read(path: &Path) -> Result<Option<(String, bool)>, String> {
    let open = match ekiden_files::open(path, FileKind::Members) {
        Err(ReadError::Failed(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        open => open.map_err(|error| error.to_string())?,
    };
    let is_private = open.is_private();
    open.text().map(|text| Some((text, is_private))).map_err(|error| error.to_string())
}

/// Whether a text begins as this crate writes it, and so is a cache, whole or not.
fn is_cache(text: &str) -> bool {
    let begin = text.strip_prefix('{').map(str::trim_start);
    begin.is_some_and(|begin| begin.starts_with("\"members_cache_format\""))
}

/// What the text says of `overlay`, `now` seconds after 1970. The error is a predicate of the file.
fn parse(text: &str, overlay: &str, expected: Option<OverlayId>, now: u64) -> Result<Cached, String> {
    let damaged =
        |error: serde_json::Error| format!("is damaged or no list of members ({})", brief(&error.to_string()));
    let Version { members_cache_format } = serde_json::from_str(text).map_err(damaged)?;
    if members_cache_format != FORMAT {
        return Err(format!("has members_cache_format {members_cache_format}, and this node knows {FORMAT}"));
    }
    let content: Content = serde_json::from_str(text).map_err(damaged)?;
    if content.overlay != overlay {
        return Err(format!("is of another overlay, '{}'", brief(&content.overlay)));
    }
    let overlay_id: OverlayId =
        content.overlay_id.parse().map_err(|_| format!("has the overlay's id '{}'", brief(&content.overlay_id)))?;
    if let Some(expected) = expected.filter(|expected| *expected != overlay_id) {
        return Err(format!("is of another cluster: its overlay has the id {overlay_id}, and {expected} is expected"));
    }
    let Nodes { members, absent } = &content.nodes;
    let present = members.iter().map(|(name, member)| (name, Admission::from(member), Some(&member.address)));
    for (name, admission, address) in present.chain(absent.iter().map(|(name, of)| (name, of.clone(), None))) {
        let checked = match (is_node_name(name), address) {
            (false, _) => Err("that is no name".into()),
            (true, None) => admission.check(),
            (true, Some(address)) => {
                let record =
                    Record::new(String::new(), address.clone(), admission.fingerprint.clone(), Load::default());
                record.check().and_then(|()| admission.check())
            }
        };
        checked.map_err(|why| format!("is damaged: '{}': {why}", brief(name)))?;
    }
    Ok(Cached { overlay_id, nodes: content.nodes, age: Duration::from_secs(now.saturating_sub(content.seen)) })
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;
    use crate::view::{Listed, Members};

    fn roster() -> Roster {
        let member = |number: u8| {
            let fingerprint = format!("sha256:{}", format!("{number:02x}").repeat(32));
            let text = format!(r#"{{"address":"192.0.2.{number}:7000","fingerprint":"{fingerprint}","region":"eu"}}"#);
            Listed { member: serde_json::from_str(&text).unwrap(), load: Load::new(0.5) }
        };
        let members = Members::from([("a".into(), member(1)), ("b".into(), member(2))]);
        let absent = BTreeMap::from([("c".into(), Admission::from(&member(3).member))]);
        Roster { members, absent }
    }

    fn id(digit: &str) -> OverlayId {
        digit.repeat(64).parse().unwrap()
    }

    fn cache(folder: &Path) -> Cache {
        Cache::new(folder.join("new/blue.json"), "blue")
    }

    fn text() -> String {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = cache(folder.path());
        cache.keep(id("1"), &roster(), Instant::now()).unwrap();
        fs::read_to_string(cache.path()).unwrap()
    }

    #[test]
    fn members_come_back_as_they_were_and_only_their_owner_can_read_them() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = cache(folder.path());
        assert_eq!(first.load(None), Ok(None));
        first.keep(id("1"), &roster(), Instant::now()).unwrap();
        assert_eq!(fs::metadata(first.path()).unwrap().permissions().mode() & 0o777, 0o600);
        let found = cache(folder.path()).load(Some(id("1"))).unwrap().unwrap();
        assert_eq!((found.overlay_id, found.nodes.members.len()), (id("1"), 2));
        assert_eq!((&found.nodes.members["a"], &found.nodes.absent), (&roster().members["a"].member, &roster().absent));
        assert!(found.age < Duration::from_secs(60));
    }

    #[test]
    fn it_is_written_when_members_are_others_or_the_time_is_old() {
        let folder = tempfile::tempdir().unwrap();
        let (mut cache, start) = (cache(folder.path()), Instant::now());
        let mut all = roster();
        let written = |cache: &mut Cache, all: &Roster, after: u64| {
            let _ = fs::remove_file(folder.path().join("new/blue.json"));
            cache.keep(id("1"), all, start + Duration::from_secs(after)).unwrap();
            cache.path().exists()
        };
        assert!(written(&mut cache, &all, 0));
        all.members.get_mut("a").unwrap().load = Load::new(1.0);
        assert!(!written(&mut cache, &all, 599), "a load is no reason");
        assert!(written(&mut cache, &all, 600));
        all.members.remove("a");
        assert!(written(&mut cache, &all, 601));
        all.absent.clear();
        assert!(written(&mut cache, &all, 602));
    }

    #[test]
    fn a_damaged_or_foreign_file_is_refused_in_a_line_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/blue.json");
        let good = text();
        let refused = |text: &str, mode: u32, expected: Option<OverlayId>| {
            let _ = fs::remove_file(&path);
            ekiden_files::write_private(&path, text.as_bytes()).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let mut cache = cache(folder.path());
            let why = cache.load(expected).unwrap_err();
            let is_ours = text.starts_with("{\n  \"members_cache_format\"");
            assert!(!why.contains('\n') && why.contains("remove it") == is_ours, "{why}");
            cache.keep(id("2"), &roster(), Instant::now()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            why
        };
        for text in ["", "{}", "name = 1", &good[..good.len() / 2], &good.replacen('{', "{\"x\":1,", 1)] {
            assert!(refused(text, 0o600, None).contains("is damaged"), "{text}");
        }
        assert!(refused("-----BEGIN PRIVATE KEY-----\n", 0o600, None).contains("is a private key (PEM)"));
        let absurd = good.replace("192.0.2.1:7000", "192.0.2.1");
        assert!(refused(&absurd, 0o600, None).contains("'a': '192.0.2.1' is no address"));
        assert!(refused(&good.replace("\"blue\"", "\"red\""), 0o600, None).contains("another overlay, 'red'"));
        assert!(refused(&good, 0o600, Some(id("3"))).contains("another cluster"));
        assert!(
            refused(&good.replace("cache_format\": 2", "cache_format\": 3"), 0o600, None)
                .contains("members_cache_format 3")
        );
        assert!(refused(&good, 0o620, None).contains("others can read or write it"));
    }

    #[test]
    fn what_cannot_be_written_is_said_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("new"), b"a file").unwrap();
        let mut cache = cache(folder.path());
        // Nothing is there, says the system of a name below a file, or that this cannot be.
        let _ = cache.load(None);
        cache.is_off = false;
        assert!(cache.keep(id("1"), &roster(), Instant::now()).unwrap_err().contains("cannot be written"));
        // It is tried again when something changes.
        assert!(cache.keep(id("2"), &roster(), Instant::now()).is_err());
        let now = Instant::now();
        assert_eq!(cache.keep(id("2"), &roster(), now), Ok(()), "nothing has changed");
    }

    #[test]
    fn a_file_that_could_not_be_written_is_written_the_next_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = cache(folder.path());
        assert_eq!(cache.keep(id("1"), &roster(), Instant::now()), Ok(()));
        let before = std::mem::replace(&mut cache.path, "/dev/full/none".into());
        assert!(cache.keep(id("2"), &roster(), Instant::now()).unwrap_err().contains("cannot be written"));
        cache.path = before;
        assert_eq!(cache.keep(id("3"), &roster(), Instant::now()), Ok(()));
        assert!(cache.load(None).unwrap().is_some_and(|cached| cached.overlay_id == id("3")));
    }

    #[test]
    fn who_was_expelled_does_not_come_back_with_a_file_that_cannot_be_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = cache(folder.path());
        cache.keep(id("1"), &roster(), Instant::now()).unwrap();
        let nobody = Content { nodes: Nodes::default(), ..serde_json::from_str(&text()).unwrap() };
        assert_eq!(withdraw(cache.path(), &nobody), "; what it said is removed");
        assert!(!cache.path().exists());
        assert_eq!(withdraw(cache.path(), &nobody), "");
        // A folder cannot be removed as a file, nor overwritten.
        assert!(withdraw(folder.path(), &nobody).contains("remove it"));
        cache.keep(id("2"), &roster(), Instant::now()).unwrap();
        ekiden_files::overwrite(cache.path(), &serde_json::to_vec(&nobody).unwrap()).unwrap();
        assert!(cache.load(None).unwrap().is_some_and(|cached| cached.nodes == Nodes::default()));
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused_in_one_short_line(text in ".{0,300}") {
            if let Err(why) = parse(&text, "blue", None, 0) {
                prop_assert!(!why.contains('\n') && why.len() < 2000);
            }
        }

        #[test]
        fn a_changed_file_is_whole_or_refused(at in 0usize..1000, byte in 0x20u8..0x7f) {
            let mut bytes = text().into_bytes();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(read) = parse(&String::from_utf8(bytes).unwrap(), "blue", None, 0) {
                prop_assert!(read.nodes.members.len() <= 2);
            }
        }
    }
}
