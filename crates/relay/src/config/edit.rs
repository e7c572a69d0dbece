//! Changes a configuration that people edit too: its comments and its order stay. The file is written only if a node would
//! accept the result.

use std::path::Path;

use ekiden_files::{FileKind, Opened, without_mark, write_synced};
use ekiden_keys::{Fingerprint, Identity};
use toml_edit::{DocumentMut, InlineTable, Item, Table, TableLike, Value, value};

use super::raw::RawKind;
use super::{Config, ConfigError};

/// What to do if the configuration has a node of this name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfPresent {
    /// It stays as it is, and the new one is refused.
    Refuse,
    /// It gets the new address and fingerprint. Its other settings stay.
    Replace,
}

/// Adds a peer, or changes one. Returns whether it was there.
///
/// # Errors
/// There is a peer of this name and `if_present` is [`IfPresent::Refuse`], the fingerprint is that of this node's own key, the file
/// cannot be read, or a node would not accept the result.
pub fn add_peer(
    file: &Path,
    name: &str,
    address: &str,
    fingerprint: Fingerprint,
    if_present: IfPresent,
) -> Result<bool, ConfigError> {
    edit(file, Some((name, fingerprint)), |document| {
        let peers = document.entry("peer").or_insert_with(|| {
            let mut all = Table::new();
            all.set_implicit(true);
            Item::Table(all)
        });
        let was_there = peers.get(name).is_some();
        if was_there && if_present == IfPresent::Refuse {
            return Err(format!("there is a [peer.{name}] already; --replace changes its address and fingerprint"));
        }
        let peer = table(child(peers, name)?)?;
        set(peer, "address", address);
        set(peer, "fingerprint", &fingerprint.to_string());
        Ok(was_there)
    })
}

/// Lets a node connect to a leg listener, or changes its fingerprint there. Without `listener` the configuration must have only
/// one leg listener. Returns the listener's name, and whether the node was there.
///
/// # Errors
/// The listener has a node of this name and `if_present` is [`IfPresent::Refuse`], or it has another node with this key; the key is
/// this node's own; there is no such listener, or no name and more than one; the file cannot be read, or a node would not accept
/// the result.
pub fn allow_node(
    file: &Path,
    listener: Option<&str>,
    name: &str,
    fingerprint: Fingerprint,
    if_present: IfPresent,
) -> Result<(String, bool), ConfigError> {
    edit(file, Some((name, fingerprint)), |document| {
        let Some(listen) = document.get_mut("listen") else { return Err("there is no leg listener".into()) };
        let is_leg = |item: &Item| item.get("kind").and_then(Item::as_str) == Some(RawKind::Leg.word());
        let all = table(listen)?.iter().filter(|(_, item)| is_leg(item)).map(|(name, _)| name.to_owned());
        let all: Vec<String> = all.collect();
        let chosen = match (listener, &all[..]) {
            (Some(name), _) if all.iter().any(|one| one == name) => name.to_owned(),
            (Some(name), _) => return Err(format!("there is no leg listener [listen.{name}]")),
            (None, [only]) => only.clone(),
            (None, []) => return Err("there is no leg listener".into()),
            (None, _) => return Err(format!("say --listener: there are {}", all.join(", "))),
        };
        let nodes = table(child(child(listen, &chosen)?, "nodes")?)?;
        let before = nodes.get(name).map(|before| before.as_str().unwrap_or_default());
        if let Some(before) = before.filter(|_| if_present == IfPresent::Refuse) {
            return Err(format!("[listen.{chosen}] has a node '{name}' already: {before}; --replace changes it"));
        }
        let was_there = before.is_some();
        set(nodes, name, &fingerprint.to_string());
        Ok((chosen, was_there))
    })
}

/// Removes a node: the table of the peer, and its entry in every leg listener. Returns what was removed, in words for the user.
///
/// # Errors
/// There is no such node, the file cannot be read, or a node would not accept the result, for example because a route still
/// uses the removed one.
pub fn remove_node(file: &Path, name: &str) -> Result<Vec<String>, ConfigError> {
    edit(file, None, |document| {
        let mut removed = Vec::new();
        if let Some(peers) = document.get_mut("peer").and_then(Item::as_table_like_mut)
            && peers.remove(name).is_some()
        {
            removed.push(format!("[peer.{name}]"));
        }
        let listeners = document.get_mut("listen").and_then(Item::as_table_like_mut);
        for (listener, item) in listeners.into_iter().flat_map(TableLike::iter_mut) {
            let nodes = item.get_mut("nodes").and_then(Item::as_table_like_mut);
            if nodes.is_some_and(|nodes| nodes.remove(name).is_some()) {
                removed.push(format!("'{name}' of the nodes of [listen.{listener}]"));
            }
        }
        match removed.is_empty() {
            true => Err(format!("there is no [peer.{name}], and no leg listener has a node '{name}'")),
            false => Ok(removed),
        }
    })
}

/// Sets a key to a text. A comment behind the value stays.
fn set(table: &mut dyn TableLike, key: &str, text: &str) {
    let decor = table.get(key).and_then(Item::as_value).map(|before| before.decor().clone());
    let mut new = Value::from(text);
    if let Some(decor) = decor {
        *new.decor_mut() = decor;
    }
    table.insert(key, Item::Value(new));
}

/// `new`: the name and the key of a node that the change brings in.
fn edit<T>(
    file: &Path,
    new: Option<(&str, Fingerprint)>,
    change: impl FnOnce(&mut DocumentMut) -> Result<T, String>,
) -> Result<T, ConfigError> {
    let failed = |message: String| ConfigError::whole(file, message);
    let opened = ekiden_files::open(file, FileKind::Config).and_then(Opened::text_with_mark);
    let (before, form) = Form::take(&opened.map_err(|error| failed(error.to_string()))?);
    let mut document: DocumentMut = match before.parse() {
        Ok(document) => document,
        // The configuration's own reader also names the line.
        Err(error) => return Err(Config::parse(&before, file).err().unwrap_or_else(|| failed(error.to_string()))),
    };
    let done = change(&mut document).map_err(failed)?;
    let after = document.to_string();
    let config = Config::parse(&after, file)
        .map_err(|error| failed(format!("nothing is written, for it would be wrong: {}", error.reason)))?;
    let own = config.identity.as_ref().map(Identity::fingerprint);
    if new.is_some_and(|(name, _)| name == config.name) {
        return Err(failed(format!(
            "'{}' is the name of this node itself: give the other node's name, or the other file",
            config.name
        )));
    }
    if let Some(own) = own.filter(|own| new.is_some_and(|(_, new)| new == *own)) {
        return Err(failed(format!(
            "{own} is the key of this node itself: give the fingerprint that `ekiden keygen --show` prints on the other node"
        )));
    }
    write_synced(file, form.give(&after).as_bytes()).map_err(|error| failed(format!("cannot be written: {error}")))?;
    Ok(done)
}

/// How a text is written that means the same in another form: the editor of TOML writes LF, and knows no byte-order mark.
pub(super) struct Form {
    has_mark: bool,
    /// Of the first line, and so of all.
    is_crlf: bool,
}

impl Form {
    /// The text without its form.
    pub(super) fn take(text: &str) -> (String, Self) {
        let plain = without_mark(text);
        let is_crlf = plain.split_once('\n').is_some_and(|(first, _)| first.ends_with('\r'));
        let form = Self { has_mark: plain.len() < text.len(), is_crlf };
        (if is_crlf { plain.replace("\r\n", "\n") } else { plain.to_owned() }, form)
    }

    pub(super) fn give(&self, plain: &str) -> String {
        let mark = if self.has_mark { "\u{feff}" } else { "" };
        if self.is_crlf { mark.to_owned() + &plain.replace('\n', "\r\n") } else { mark.to_owned() + plain }
    }
}

/// The item of `parent` under `key`. If there is none, a new table, inline if `parent` is a value.
fn child<'a>(parent: &'a mut Item, key: &str) -> Result<&'a mut Item, String> {
    let new = if parent.is_value() { value(InlineTable::new()) } else { Item::Table(Table::new()) };
    Ok(table(parent)?.entry(key).or_insert(new))
}

fn table(item: &mut Item) -> Result<&mut dyn TableLike, String> {
    item.as_table_like_mut().ok_or_else(|| "a value where a table is expected".into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_form_of_a_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node.toml");
        Identity::generate(&folder.path().join("node.key")).unwrap();
        let key = Identity::generate(&folder.path().join("other.key")).unwrap().fingerprint();
        let before = "# of a\nname = \"a\"\nkey_file = \"node.key\"\n\n[listen.x]\nkind = \"leg\" # b\naddress = \"127.0.0.1:1\"\n";
        let after = |mark: &str, end: &str| {
            fs::write(&file, mark.to_owned() + &before.replace('\n', end)).unwrap();
            add_peer(&file, "city", "192.0.2.1:7000", key, IfPresent::Refuse).unwrap();
            allow_node(&file, None, "city", key, IfPresent::Refuse).unwrap();
            let with = fs::read_to_string(&file).unwrap();
            remove_node(&file, "city").unwrap();
            (with, fs::read_to_string(&file).unwrap())
        };
        let (plain, plain_without) = after("", "\n");
        assert!(plain.starts_with(before) && plain.contains("[peer.city]"), "{plain}");
        for mark in ["", "\u{feff}"] {
            for end in ["\n", "\r\n"] {
                let in_form = |text: &str| mark.to_owned() + &text.replace('\n', end);
                assert_eq!(after(mark, end), (in_form(&plain), in_form(&plain_without)), "{mark:?} {end:?}");
            }
        }
    }
}
