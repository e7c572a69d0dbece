//! Writes a node into a members file, which people edit too.

use std::path::Path;

use ekiden_files::{FileKind, Opened};
use ekiden_overlay::member::Member;
use toml_edit::{Array, DocumentMut, Item, Table};

use super::ConfigError;
use super::edit::{Form, IfPresent};
use super::resolve::check_members;

/// Writes this node's entry into a members file, which is made if it is not there. Comments and order stay. Returns whether it was there.
///
/// # Errors
/// The file cannot be read or written, has another key under this name or this key under another name, or an entry that cannot be.
pub fn join(file: &Path, name: &str, member: &Member, if_present: IfPresent) -> Result<bool, ConfigError> {
    let refused = |message: String| ConfigError::whole(file, message);
    let opened = ekiden_files::open(file, FileKind::Config).and_then(Opened::text_with_mark);
    let (text, form) = match opened {
        Err(_) if !file.exists() => Form::take(""),
        read => Form::take(&read.map_err(|error| refused(error.to_string()))?),
    };
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        ConfigError::at(file, &text, error.span(), error.message().to_owned())
    })?;
    let all = document.entry("node").or_insert_with(|| {
        let mut all = Table::new();
        all.set_implicit(true);
        Item::Table(all)
    });
    let Some(all) = all.as_table_like_mut() else {
        return Err(refused("'node' is a value, where tables [node.NAME] are expected".into()));
    };
    let has_key = |item: &Item| item.get("fingerprint").and_then(Item::as_str) == Some(&member.fingerprint);
    if let Some((other, _)) = all.iter().find(|(other, item)| *other != name && has_key(item)) {
        return Err(refused(format!("[node.{other}] has this node's key already")));
    }
    let was_there = all.get(name).is_some();
    if was_there && if_present == IfPresent::Refuse {
        return Err(refused(format!("there is a [node.{name}] already; --replace changes it")));
    }
    let entry = all.entry(name).or_insert_with(|| Item::Table(Table::new()));
    let Some(entry) = entry.as_table_like_mut() else {
        return Err(refused(format!("'node.{name}' is a value, where a table is expected")));
    };
    // Keys that are not given stay as they are, and so do people's comments around them.
    let mut set = |key: &str, to: toml_edit::Value| match entry.get_mut(key).and_then(Item::as_value_mut) {
        Some(before) => {
            let decor = before.decor().clone();
            *before = to;
            *before.decor_mut() = decor;
        }
        None => {
            entry.insert(key, Item::Value(to));
        }
    };
    set("address", member.address.as_str().into());
    set("fingerprint", member.fingerprint.as_str().into());
    if !member.near.is_empty() {
        set("near", member.near.iter().collect::<Array>().into());
    }
    if let Some(region) = &member.region {
        set("region", region.as_str().into());
    }
    if let Some(at) = member.at {
        set("at", String::from(at).into());
    }
    if member.price != 0.0 {
        set("price", member.price.into());
    }
    if !member.relays {
        set("relays", false.into());
    }
    let text = document.to_string();
    check_members(&text, file)?;
    ekiden_files::write(file, form.give(&text).as_bytes())
        .map_err(|error| refused(format!("cannot be written: {error}")))?;
    Ok(was_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_stays_and_so_do_comments() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("members.toml");
        let with_key = |address: &str, key: &str| -> Member {
            let fingerprint = format!("sha256:{}", key.repeat(32));
            serde_json::from_str(&format!(r#"{{"address":"{address}","fingerprint":"{fingerprint}"}}"#)).unwrap()
        };
        let member = |address: &str| with_key(address, "0a");
        let written = format!(
            "# Ours.\n[node.a] # first\n# Moves soon.\naddress = \"192.0.2.1:7000\" # till May\nfingerprint = \"sha256:{}\"\nnear = [\".example.jp\"]\nregion = \"asia\"\n",
            "0a".repeat(32)
        );
        std::fs::write(&file, &written).unwrap();
        join(&file, "a", &member("192.0.2.9:7000"), IfPresent::Refuse).unwrap_err();
        assert!(join(&file, "a", &member("192.0.2.9:7000"), IfPresent::Replace).unwrap());
        let now = std::fs::read_to_string(&file).unwrap();
        assert_eq!(now, written.replace("192.0.2.1", "192.0.2.9"));
        for (address, said) in [
            ("192.0.2.9:7000", "members.toml:9: 'b' has the address of 'a', 192.0.2.9:7000"),
            ("0.0.0.0:7000", "members.toml:10: node.b.address: '0.0.0.0:7000' is where a node listens"),
        ] {
            let error = join(&file, "b", &with_key(address, "0b"), IfPresent::Refuse).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), now, "nothing is written");
        let in_form = |text: &str| "\u{feff}".to_owned() + &text.replace('\n', "\r\n");
        std::fs::write(&file, in_form(&written)).unwrap();
        join(&file, "a", &member("192.0.2.9:7000"), IfPresent::Replace).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), in_form(&now), "line ends and the byte-order mark stay");
        std::fs::write(&file, "[node.a\n").unwrap();
        let error = join(&file, "a", &member("192.0.2.9:7000"), IfPresent::Replace).unwrap_err().to_string();
        assert!(error.contains("members.toml:1") && error.lines().count() == 1, "{error}");
    }
}
