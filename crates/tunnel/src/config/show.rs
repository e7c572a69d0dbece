//! The configuration in force, as a file: what `--show-config` prints. Passwords are not in it.

use std::fmt;

use ekiden_config::{key, list, path, text};
use ekiden_queue::Queue;
use ekiden_transport::Security;

use super::{Config, Peer};
use crate::classes::Class;

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "name = {:?}", self.name)?;
        if let (Some(file), Some(identity)) = (&self.key_file, &self.identity) {
            writeln!(f, "key_file = {}  # {}", path(file), identity.fingerprint())?;
        }
        writeln!(f, "keepalive = \"{}\"", self.keepalive)?;
        let device = &self.device;
        writeln!(f, "\n[device]\nname = {}\naddresses = {}", text(&device.name), list(&device.addresses))?;
        writeln!(f, "mtu = {}\noffload = {}", device.mtu, device.offload)?;
        if let Some(listen) = &self.listen {
            writeln!(f, "\n[listen]\naddress = \"{}\"", listen.address)?;
            if let Security::Plain(shared) = &listen.security {
                writeln!(f, "plain_key_file = {}", path(&shared.file))?;
            }
        }
        self.tcp(f)?;
        self.queue(f)?;
        for (number, (name, peer)) in self.peers.iter().enumerate() {
            writeln!(f, "\n[peer.{}]", key(name))?;
            show_peer(f, peer)?;
            let allowed = list(self.allowed.of(number));
            writeln!(f, "allowed = {allowed}\nconnections = {}", peer.classes.default)?;
            for class in &peer.classes.classes {
                writeln!(f, "[[peer.{}.class]]", key(name))?;
                show_class(f, class)?;
            }
        }
        Ok(())
    }
}

impl Config {
    fn tcp(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n[tcp]")?;
        let settings = [
            ("congestion", self.tcp.congestion.clone()),
            ("pacing", self.pacing.map(|rate| rate.to_string())),
            ("send_buffer", self.tcp.send_buffer.map(|size| size.to_string())),
            ("receive_buffer", self.tcp.receive_buffer.map(|size| size.to_string())),
        ];
        for (key, value) in settings.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            writeln!(f, "{key} = {}", text(value))?;
        }
        let Some(tunables) = &self.congestion else { return Ok(()) };
        ekiden_bpf::named::show(tunables, f)
    }

    fn queue(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n[queue]")?;
        match self.queue.pull {
            Some(pull) => {
                writeln!(f, "discipline = \"fq_codel\"\ntarget = \"{}\"", pull.target)?;
                writeln!(f, "interval = \"{}\"\nunsent = \"{}\"", pull.interval, pull.unsent)?;
                writeln!(f, "paced = {}", pull.paced)?;
            }
            None => writeln!(f, "discipline = \"drop_tail\"")?,
        }
        match self.queue.limit {
            Queue::Bytes(bytes) => writeln!(f, "limit = \"{bytes}\""),
            // The file has no such limit.
            _ => Ok(()),
        }
    }
}

fn show_peer(f: &mut fmt::Formatter<'_>, peer: &Peer) -> fmt::Result {
    if let Some(address) = &peer.address {
        writeln!(f, "address = {}", target(address))?;
    }
    match &peer.security {
        Security::Plain(shared) => writeln!(f, "plain_key_file = {}", path(&shared.file))?,
        Security::Tls { known: Some(fingerprint), .. } => writeln!(f, "fingerprint = \"{fingerprint}\"")?,
        Security::Tls { known: None, .. } => {}
    }
    let Some(proxy) = &peer.http_proxy else { return Ok(()) };
    writeln!(f, "http_proxy = {}", target(&proxy.address))?;
    let Some(login) = &proxy.login else { return Ok(()) };
    writeln!(f, "http_proxy_user = {}", text(&login.user))?;
    writeln!(f, "http_proxy_password_file = {}", path(&login.file))
}

fn show_class(f: &mut fmt::Formatter<'_>, class: &Class) -> fmt::Result {
    writeln!(f, "name = {}", text(&class.name))?;
    if let Some(protocol) = class.protocol {
        writeln!(f, "protocol = \"{}\"", protocol.word())?;
    }
    if !class.ports.is_empty() {
        let ports = class.ports.iter().map(|range| format!("\"{}-{}\"", range.start(), range.end()));
        writeln!(f, "ports = [{}]", ports.collect::<Vec<_>>().join(", "))?;
    }
    writeln!(f, "connections = {}", class.connections)
}

fn target((host, port): &(String, u16)) -> String {
    if host.contains(':') { format!("\"[{host}]:{port}\"") } else { format!("\"{host}:{port}\"") }
}
