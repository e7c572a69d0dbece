//! Keys and configurations of what a plan advises, in a directory: a chain's nodes, a tunnel's ends, a gateway.

use std::path::{Path as File, PathBuf};

use anyhow::Context;
use ekiden_files::{Pending, TargetError, check_directory, check_target};
use ekiden_keys::Identity;
use ekiden_plan::nodes::{NodeFile, address, files};
use ekiden_plan::tunnel_gateway::{TUNNEL_ADDRESS, TUNNEL_ENDS, gateway_file, tunnel_files};
use ekiden_plan::{Path, Plan, Remedy};
use ekiden_units::Bytes;
use serde::Serialize;

/// What was written, and what of it is to be changed.
#[derive(Debug, Default, Serialize)]
pub struct Written {
    /// Files, by name.
    files: Vec<PathBuf>,
    /// What to change, a line each.
    change: Vec<String>,
    /// How to start it.
    #[serde(skip)]
    start: Vec<String>,
}

/// A host that has a configuration of its own.
struct Host<'a> {
    name: &'a str,
    /// That of the key which it has already.
    fingerprint: Option<&'a String>,
    has_key: bool,
}

/// Writes a key, unless the host has one, and a configuration for each: all or none.
pub fn write(folder: &File, path: &Path, plan: &Plan, force: bool) -> anyhow::Result<Written> {
    let mut keys = Vec::new();
    let written = write_with_keys(folder, path, plan, force, &mut keys);
    if written.is_err() {
        // Nobody knows them yet.
        keys.iter().for_each(|key| drop(std::fs::remove_file(key)));
    }
    written
}

fn write_with_keys(
    folder: &File,
    path: &Path,
    plan: &Plan,
    force: bool,
    made: &mut Vec<PathBuf>,
) -> anyhow::Result<Written> {
    let chain = plan.chosen();
    let mut hosts: Vec<Host> = Vec::new();
    if plan.tunnel.advised {
        hosts.extend(TUNNEL_ENDS.map(|name| Host { name, fingerprint: None, has_key: true }));
    } else if let Some(remedy) = chain {
        let has_key = remedy.nodes.len() > 1;
        for node in &remedy.nodes {
            hosts.push(Host { name: &node.name, fingerprint: node.fingerprint.as_ref(), has_key });
        }
    }
    if plan.gateway.advised {
        hosts.push(Host { name: "gateway", fingerprint: None, has_key: false });
    }
    let fingerprints = keys(folder, &hosts, force, made)?;
    let mut written = Written { files: made.clone(), ..Written::default() };
    let mut texts: Vec<NodeFile> = Vec::new();
    if let (true, [client, server, ..]) = (plan.tunnel.advised, &fingerprints[..]) {
        texts.extend(tunnel_files(&[client.clone(), server.clone()]));
        let [client, server] = TUNNEL_ENDS;
        written.change.push(format!("in {client}.toml: {TUNNEL_ADDRESS} stands for the address of {server}"));
        written.change.push("in both: addresses of the device, if 10.77.0.0/24 is in use".into());
        written.start.push(
            "Copy each end's key and configuration to its host, and start `ekiden tunnel -c NAME.toml` there.".into(),
        );
    } else if let Some(remedy) = chain {
        texts.extend(files(path, remedy, &fingerprints));
        change_chain(path, remedy, &mut written.change);
        written.start.push(
            "Copy each node's key and configuration to its host, and start `ekiden proxy -c NAME.toml` there.".into(),
        );
    }
    if plan.gateway.advised {
        texts.push(gateway_file(path));
        written.change.push("in gateway.toml: the device, and the hosts that send".into());
        written
            .start
            .push("Start `ekiden gateway -c gateway.toml` where the sender's data leaves for the long path.".into());
    }
    write_all(folder, &texts, &mut written.files)?;
    Ok(written)
}

/// Writes all of the files or none.
fn write_all(folder: &File, texts: &[NodeFile], written: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let mut pending = Vec::new();
    for NodeFile { file, text } in texts {
        let target = folder.join(file);
        let said = || target.display().to_string();
        pending.push((Pending::write(&target, text.as_bytes()).map_err(TargetError::from).with_context(said)?, target));
    }
    for (file, target) in pending {
        file.publish().map_err(TargetError::from).with_context(|| target.display().to_string())?;
        written.push(target);
    }
    Ok(())
}

/// The fingerprint of each host, whose key is made if it has none. All targets are looked at before anything is written.
fn keys(folder: &File, hosts: &[Host], force: bool, made: &mut Vec<PathBuf>) -> anyhow::Result<Vec<String>> {
    let key = |host: &Host| folder.join(format!("{}.key", host.name));
    if !hosts.is_empty() {
        check_directory(folder).with_context(|| folder.display().to_string())?;
    }
    for host in hosts {
        let config = folder.join(format!("{}.toml", host.name));
        check_target(&config, force).with_context(|| config.display().to_string())?;
        if host.has_key && host.fingerprint.is_none() && !(force && key(host).exists()) {
            check_target(&key(host), false).with_context(|| key(host).display().to_string())?;
        }
    }
    let mut fingerprints = Vec::new();
    for host in hosts {
        fingerprints.push(match host.fingerprint {
            Some(fingerprint) => fingerprint.clone(),
            None if !host.has_key => String::new(),
            // Others may know the host by it already.
            None if key(host).exists() => Identity::load(&key(host))?.fingerprint().to_string(),
            None => {
                let identity = Identity::generate(&key(host))?;
                made.push(key(host));
                identity.fingerprint().to_string()
            }
        });
    }
    Ok(fingerprints)
}

/// What of a chain's files stands for something else.
fn change_chain(path: &Path, remedy: &Remedy, change: &mut Vec<String>) {
    let has_keys = remedy.nodes.len() > 1;
    for (number, node) in remedy.nodes.iter().enumerate() {
        if number > 0 && node.address.is_none() {
            let before = &remedy.nodes[number - 1].name;
            let stands_for = address(remedy, number);
            change.push(format!("in {before}.toml: {stands_for} stands for the address of {}", node.name));
        }
        if has_keys && node.fingerprint.is_some() {
            let name = &node.name;
            change.push(format!(
                "on {name}: its key, of which you gave the fingerprint, is to be {name}.key beside {name}.toml"
            ));
        }
    }
    if let Some(exit) = remedy.nodes.last() {
        change.push(format!(
            "in {0}.toml: `[exit] allow = [\"ADDRESS\"]`, if servers have private addresses, which nodes refuse otherwise",
            exit.name
        ));
    }
    let buffer = Bytes(remedy.legs.iter().map(|leg| leg.buffer_bytes).max().unwrap_or_default());
    for (end, window, node) in
        [("client", path.client_window, remedy.nodes.first()), ("server", path.server_window, remedy.nodes.last())]
    {
        if let Some(node) = node.filter(|_| window < buffer) {
            let memory = buffer.0.saturating_mul(2);
            change.push(format!(
                "if {0} runs on the {end} itself, whose window is {window}: its legs need {buffer} there; where the host allows less, \
                 `sysctl -w net.ipv4.tcp_rmem=\"4096 131072 {memory}\" net.ipv4.tcp_wmem=\"4096 16384 {memory}\"`, before it starts; \
                 `ekiden doctor -c {0}.toml` says whether that holds",
                node.name
            ));
        }
    }
    if !has_keys {
        change.push(format!("in {}.toml: the address on which clients reach it, with users", remedy.nodes[0].name));
    }
}

/// For people.
pub fn text(written: &Written, folder: &File) -> String {
    if written.files.is_empty() {
        return format!("nothing is written into {}: nothing is to be configured\n", folder.display());
    }
    let mut text = String::from("written:\n");
    for file in &written.files {
        text.push_str(&format!("  {}\n", file.display()));
    }
    if !written.change.is_empty() {
        text.push_str("to change:\n");
        written.change.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    written.start.iter().for_each(|line| text.push_str(&format!("{line}\n")));
    text
}
