//! Keys and configurations of a chain's nodes, in a directory.

use std::path::{Path as File, PathBuf};

use anyhow::Context;
use ekiden_files::{TargetError, check_target, write as write_file};
use ekiden_keys::Identity;
use ekiden_plan::nodes::{address, files, key_file};
use ekiden_plan::{Path, Remedy};
use serde::Serialize;

/// What was written, and what of it is to be changed.
#[derive(Debug, Default, Serialize)]
pub struct Written {
    /// Files, by name.
    files: Vec<PathBuf>,
    /// What to change, a line each.
    change: Vec<String>,
}

/// Writes a key, unless the node has one, and a configuration for each node.
pub fn write(folder: &File, path: &Path, remedy: &Remedy, force: bool) -> anyhow::Result<Written> {
    let has_keys = remedy.nodes.len() > 1;
    let makes_key = |number: usize| has_keys && remedy.nodes[number].fingerprint.is_none();
    let key = |number: usize| folder.join(key_file(&remedy.nodes[number]));
    // All of it is looked at before any of it is written.
    for (number, node) in remedy.nodes.iter().enumerate() {
        let config = folder.join(format!("{}.toml", node.name));
        check_target(&config, force).with_context(|| config.display().to_string())?;
        if makes_key(number) && !(force && key(number).exists()) {
            check_target(&key(number), false).with_context(|| key(number).display().to_string())?;
        }
    }
    let mut written = Written::default();
    let mut fingerprints = Vec::new();
    for (number, node) in remedy.nodes.iter().enumerate() {
        fingerprints.push(match &node.fingerprint {
            Some(fingerprint) => fingerprint.clone(),
            None if !has_keys => String::new(),
            // Others may know the node by it already.
            None if key(number).exists() => Identity::load(&key(number))?.fingerprint().to_string(),
            None => {
                let identity = Identity::generate(&key(number))?;
                written.files.push(key(number));
                identity.fingerprint().to_string()
            }
        });
    }
    for (number, file) in files(path, remedy, &fingerprints).into_iter().enumerate() {
        let target = folder.join(&file.file);
        write_file(&target, file.text.as_bytes())
            .map_err(TargetError::from)
            .with_context(|| target.display().to_string())?;
        written.files.push(target);
        let node = &remedy.nodes[number];
        if number > 0 && node.address.is_none() {
            let before = &remedy.nodes[number - 1].name;
            let stands_for = address(remedy, number);
            written.change.push(format!("in {before}.toml: {stands_for} stands for the address of {}", node.name));
        }
        if has_keys && node.fingerprint.is_some() {
            written.change.push(format!(
                "on {}: its key, of which you gave the fingerprint, is to be {} beside {}",
                node.name,
                key_file(node),
                file.file
            ));
        }
    }
    if !has_keys {
        written
            .change
            .push(format!("in {}.toml: the address on which clients reach it, with users", remedy.nodes[0].name));
    }
    Ok(written)
}

/// For people.
pub fn text(written: &Written, folder: &File) -> String {
    if written.files.is_empty() {
        return format!("nothing is written into {}: there is no chain to configure\n", folder.display());
    }
    let mut text = String::from("written:\n");
    for file in &written.files {
        text.push_str(&format!("  {}\n", file.display()));
    }
    if !written.change.is_empty() {
        text.push_str("to change:\n");
        written.change.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    text.push_str("Copy each node's key and configuration to its host, and start `ekiden proxy -c NAME.toml` there.\n");
    text
}
