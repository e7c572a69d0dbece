//! The configuration in force, as a file: what `--show-config` prints. Passwords are masked.

use std::fmt;

use ekiden_config::{key, list, path, text};
use ekiden_transport::{Security, SharedKey};
use ekiden_units::Time;

use super::classes::Classes;
use super::overlay::Overlay;
use super::raw::{RawAction, RawVersion};
use super::{Config, ListenerKind, Tcp};
use crate::access::users::Users;
use crate::config::route::{Auto, Way};

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "name = {}", text(&self.name))?;
        if let (Some(file), Some(identity)) = (&self.key_file, &self.identity) {
            writeln!(f, "key_file = {}  # {}", path(file), identity.fingerprint())?;
        }
        writeln!(f, "log_addresses = {}\nthreads = {}", self.log_addresses, self.threads)?;
        writeln!(f, "\n[tcp]\n{}", tcp_settings(&self.tcp).join("\n"))?;
        self.congestion(f)?;
        self.limits(f)?;
        for (name, listener) in &self.listeners {
            writeln!(f, "\n[listen.{}]\nkind = {:?}", key(name), listener.kind.word())?;
            writeln!(f, "address = \"{}\"", listener.address)?;
            match &listener.kind {
                ListenerKind::Socks5 { users } | ListenerKind::Http { users } | ListenerKind::Mixed { users } => {
                    match users {
                        Some(users) => show_users(f, users)?,
                        None if listener.address.ip().is_loopback() || listener.asks_for_certificates() => {}
                        None => writeln!(f, "open = true")?,
                    }
                    listener.tls.as_ref().map_or(Ok(()), |tls| writeln!(f, "tls = {tls}"))?;
                }
                ListenerKind::Forward { to, via, proxy_protocol } => {
                    if !listener.address.ip().is_loopback() {
                        writeln!(f, "open = true")?;
                    }
                    writeln!(f, "to = \"{to}\"")?;
                    if let Some(via) = via {
                        writeln!(f, "via = {}", list(via))?;
                    }
                    if let Some(version) = proxy_protocol {
                        writeln!(f, "proxy_protocol = {:?}", RawVersion::from(*version).word())?;
                    }
                }
                ListenerKind::Leg(Security::Plain(shared)) => plain_key_file(f, shared)?,
                ListenerKind::Leg(Security::Tls { known, .. }) => {
                    let nodes: Vec<String> =
                        known.iter().map(|(name, print)| format!("{} = \"{print}\"", key(name))).collect();
                    writeln!(f, "nodes = {{ {} }}", nodes.join(", "))?;
                }
                ListenerKind::Transparent { interfaces, late, except, bypass } => {
                    writeln!(
                        f,
                        "interfaces = {}\nlate_interfaces = {late}\nexcept = {}\nbypass = {bypass}",
                        list(interfaces),
                        list(except)
                    )?;
                }
            }
            if !matches!(listener.kind, ListenerKind::Leg { .. }) {
                writeln!(f, "reply = {:?}", listener.reply.word())?;
            }
            if !listener.proxy_protocol_from.is_empty() {
                writeln!(f, "proxy_protocol_from = {}", list(&listener.proxy_protocol_from))?;
            }
            listener.class.as_ref().map_or(Ok(()), |class| writeln!(f, "class = {}", text(class)))?;
            writeln!(f, "tcp = {}", tcp_inline(&listener.tcp))?;
        }
        for (name, peer) in &self.peers {
            let tcp = tcp_inline(&peer.tcp);
            let (name, address, warm) = (key(name), &peer.address, peer.warm);
            writeln!(f, "\n[peer.{name}]\naddress = \"{address}\"\nwarm = {warm}\ntcp = {tcp}")?;
            match &peer.security {
                Security::Plain(shared) => plain_key_file(f, shared)?,
                Security::Tls { known: Some(fingerprint), .. } => writeln!(f, "fingerprint = \"{fingerprint}\"")?,
                Security::Tls { known: None, .. } => {}
            }
        }
        for route in self.routes.iter() {
            writeln!(f, "\n[[route]]\nto = {}", list(route.to.written()))?;
            match &route.way {
                Way::Direct => writeln!(f, "action = {:?}", RawAction::Direct.word())?,
                Way::Refuse => writeln!(f, "action = {:?}", RawAction::Refuse.word())?,
                Way::Via(chain) => writeln!(f, "via = {}", list(chain))?,
                Way::Auto(auto) => show_auto(f, auto)?,
            }
            route.class.as_ref().map_or(Ok(()), |class| writeln!(f, "class = {}", text(class)))?;
        }
        show_classes(f, &self.classes)?;
        if let Some(overlay) = &self.overlay {
            show_overlay(f, overlay)?;
        }
        let clients = list(&self.exit.client_addresses);
        writeln!(f, "\n[exit]\nclient_addresses = {clients}\nallow = {}", list(self.exit.allow.written()))
    }
}

impl Config {
    fn congestion(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.congestion.as_ref().map_or(Ok(()), |tunables| ekiden_bpf::named::show(tunables, f))
    }

    fn limits(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n[limits]")?;
        for (key, value) in self.limits.written() {
            // Printed as a comment if it is not set. To set it would lift the bound by the open-file limit (see
            // `limits_clients`).
            let mark = if key == "client_connections" && !self.limits.limits_clients { "# " } else { "" };
            writeln!(f, "{mark}{key} = {value}")?;
        }
        Ok(())
    }
}

fn show_overlay(f: &mut fmt::Formatter<'_>, overlay: &Overlay) -> fmt::Result {
    let files = [("members_file", &overlay.members_file), ("ask_socket", &overlay.ask_socket)];
    if files.iter().any(|(_, file)| file.is_some()) {
        writeln!(f, "\n[overlay]")?;
    }
    for (key, file) in files {
        file.as_ref().map_or(Ok(()), |file| writeln!(f, "{key} = {}", path(file)))?;
    }
    let Some(settings) = &overlay.etcd else { return Ok(()) };
    let access = &settings.access;
    writeln!(f, "\n[overlay.etcd]\nendpoints = {}\noverlay = {}", list(&access.endpoints), text(&settings.overlay))?;
    if let Some(id) = settings.expected_id {
        writeln!(f, "id = \"{id}\"")?;
    }
    let files = [("ca_file", &access.ca_file), ("password_file", &access.password_file)];
    for (key, file) in files.into_iter().chain([("members_cache", &settings.members_cache)]) {
        file.as_ref().map_or(Ok(()), |file| writeln!(f, "{key} = {}", path(file)))?;
    }
    access.user.as_ref().map_or(Ok(()), |user| writeln!(f, "user = {}", text(user)))?;
    writeln!(f, "lease = \"{}\"\naddress = {}", Time::from(settings.lease), text(&settings.address))
}

fn show_users(f: &mut fmt::Formatter<'_>, users: &Users) -> fmt::Result {
    match users {
        Users::Written(hashes) => {
            let users: Vec<String> = hashes.keys().map(|user| format!("{} = \"***\"", key(user))).collect();
            writeln!(f, "users = {{ {} }}", users.join(", "))
        }
        Users::InFile(file) => writeln!(f, "users_file = {}", path(file.file())),
    }
}

fn show_classes(f: &mut fmt::Formatter<'_>, classes: &Classes) -> fmt::Result {
    for (name, class) in classes.iter().filter(|_| classes.is_configured) {
        writeln!(f, "\n[class.{}]\nkind = {:?}\nweight = {}", key(name), class.kind.word(), class.service.weight)?;
        for (key, rate) in [("ceiling", class.service.ceiling), ("floor", class.service.floor)] {
            rate.map_or(Ok(()), |rate| writeln!(f, "{key} = \"{rate}\""))?;
        }
        if !class.users.is_empty() {
            writeln!(f, "users = {}", list(&class.users))?;
        }
        if let Some(streams) = class.streams {
            writeln!(f, "streams = {streams}\nwait = \"{}\"", Time::from(class.wait))?;
        }
    }
    Ok(())
}

fn show_auto(f: &mut fmt::Formatter<'_>, auto: &Auto) -> fmt::Result {
    writeln!(f, "via = \"auto\"\nmost_relays = {}", auto.most_relays)?;
    if let Some(exit) = &auto.exit {
        writeln!(f, "exit = {}", text(exit))?;
    }
    if let Some(relays) = &auto.relays {
        writeln!(f, "relays = {}", list(relays))?;
    }
    if !auto.through.is_empty() {
        writeln!(f, "through = {}", list(&auto.through))?;
    }
    match &auto.regions[..] {
        [] => Ok(()),
        regions => writeln!(f, "regions = {}", list(regions)),
    }
}

fn plain_key_file(f: &mut fmt::Formatter<'_>, shared: &SharedKey) -> fmt::Result {
    writeln!(f, "plain_key_file = {}", path(&shared.file))
}

fn tcp_settings(tcp: &Tcp) -> Vec<String> {
    let set = |key: &str, value: Option<String>| value.map(|value| format!("{key} = {}", text(value)));
    let settings = [
        set("congestion", Some(tcp.congestion.word().into())),
        set("congestion_fallback", tcp.congestion_fallback.clone()),
        set("send_buffer", tcp.options.send_buffer.map(|size| size.to_string())),
        set("receive_buffer", tcp.options.receive_buffer.map(|size| size.to_string())),
        set("keepalive", tcp.options.keepalive.map(|time| Time::from(time).to_string())),
        set("user_timeout", tcp.options.user_timeout.map(|time| Time::from(time).to_string())),
    ];
    settings.into_iter().flatten().collect()
}

fn tcp_inline(tcp: &Tcp) -> String {
    format!("{{ {} }}", tcp_settings(tcp).join(", "))
}
