//! `ekiden overlay init`, `admit`, `admitted` and `expel`: what the operator of an overlay in etcd does.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use ekiden_files::{ConfigError, read_secret};
use ekiden_keys::Fingerprint;
use ekiden_overlay::member::Position;
use ekiden_registry::{Access, Admission, IfOtherKey, Operator, RegistryError, Terms};

use super::join::{destination, position, price};
use crate::out;

/// How etcd is reached, by its root or a user with its role.
#[derive(clap::Args)]
pub struct Etcd {
    /// The overlay's name.
    #[arg(value_name = "OVERLAY")]
    overlay: String,
    /// A member of etcd: https://HOST:PORT; may be said again. http:// is for loopback addresses alone.
    #[arg(long = "etcd", value_name = "URL", required = true)]
    endpoints: Vec<String>,
    /// The authorities (PEM) that sign etcd's certificates.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// A user of etcd with the role root.
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// A file with that user's password, not readable by others.
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
}

/// Make an overlay in etcd, and print its id.
///
/// The id goes into each node's configuration, `overlay.etcd`, so that another cluster's etcd is refused. Of an overlay that is there
/// already the id is printed.
#[derive(clap::Args)]
pub struct Init {
    #[command(flatten)]
    etcd: Etcd,
}

/// Let a node register in an overlay in etcd, and say what others believe of it: what it is near to, where it stands, what it costs.
///
/// A node says of itself only where it is and how loaded it is. What is said again counts instead; what is not said stays as it was. To begin anew, expel it first.
///
/// With --node-password-file the node gets a user of etcd, with a role that may read the overlay and write the node's own record alone. A
/// node that was expelled is admitted again in the same way: its user is made anew, and the node registers by itself.
#[derive(clap::Args)]
pub struct Admit {
    #[command(flatten)]
    etcd: Etcd,
    /// The node's name.
    #[arg(value_name = "NODE")]
    node: String,
    /// Of its key: sha256:…
    #[arg(value_name = "FINGERPRINT")]
    fingerprint: Fingerprint,
    #[command(flatten)]
    terms: Said,
    /// A file with the password of the node's user of etcd, which is made.
    #[arg(long, value_name = "FILE")]
    node_password_file: Option<PathBuf>,
    /// Let the new key count if the name is admitted with another one, or what is said of it cannot be read.
    #[arg(long)]
    replace: bool,
}

/// List the nodes that may register in an overlay in etcd, with the fingerprints of their keys.
#[derive(clap::Args)]
pub struct Admitted {
    #[command(flatten)]
    etcd: Etcd,
    /// Print JSON: an object of names and fingerprints.
    #[arg(long)]
    json: bool,
}

/// Let a node be a member of an overlay in etcd no more.
///
/// New streams from it and to it are refused from then on. Streams that run go on until they end. Its user of etcd is removed, if `ekiden overlay admit` has made one.
#[derive(clap::Args)]
pub struct Expel {
    #[command(flatten)]
    etcd: Etcd,
    /// The node's name.
    #[arg(value_name = "NODE")]
    node: String,
}

/// What the operator says of a node.
#[derive(clap::Args)]
struct Said {
    /// A destination that the node is near, as in a route: it is the exit there. May be said again.
    #[arg(long, value_name = "DESTINATION", value_parser = destination)]
    near: Vec<String>,
    /// Where it stands, for routes with regions.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    region: Option<String>,
    /// Where that is on the earth, in degrees, for maps.
    #[arg(long, value_name = "LATITUDE,LONGITUDE", value_parser = position)]
    at: Option<Position>,
    /// What it costs to send through it, in any unit.
    #[arg(long, value_name = "NUMBER", value_parser = price)]
    price: Option<f64>,
    /// It carries only streams to destinations that it is near, and none between others.
    #[arg(long)]
    no_relay: bool,
    /// It carries streams between others, too, as it does unless --no-relay was said.
    #[arg(long, conflicts_with = "no_relay")]
    relay: bool,
}

impl Etcd {
    fn operator(&self) -> anyhow::Result<Operator> {
        let access = Access {
            endpoints: self.endpoints.clone(),
            ca_file: self.ca_file.clone(),
            user: self.user.clone(),
            password_file: self.password_file.clone(),
            timeout: Duration::from_secs(5),
        };
        Ok(Operator::new(&access, &self.overlay).map_err(as_options)?)
    }
}

/// An error with the name of the option, where it has that of a node's key.
fn as_options(error: RegistryError) -> RegistryError {
    let option = |key: &'static str| match key {
        "endpoints" => "--etcd",
        "ca_file" => "--ca-file",
        "user" => "--user",
        "password_file" => "--password-file",
        "overlay" => "OVERLAY",
        "name" => "NODE",
        other => other,
    };
    match error {
        RegistryError::Setting { key, reason } => RegistryError::Setting { key: option(key), reason },
        RegistryError::File { key, file, reason } => RegistryError::File { key: option(key), file, reason },
        error => error,
    }
}

/// Makes the overlay.
pub fn init(args: &Init) -> anyhow::Result<()> {
    let id = args.etcd.operator()?.init()?;
    out::line(id)
}

/// Admits the node.
pub fn admit(args: &Admit) -> anyhow::Result<()> {
    let (node, overlay) = (&args.node, &args.etcd.overlay);
    let mut operator = args.etcd.operator()?;
    let password =
        args.node_password_file.as_deref().map(|file| read_secret(file).map_err(|why| ConfigError::whole(file, why)));
    let password = password.transpose()?;
    let if_other = if args.replace { IfOtherKey::Replace } else { IfOtherKey::Refuse };
    let (admission, before) =
        operator.admit(node, args.fingerprint, args.terms.terms(), if_other).map_err(as_options)?;
    let mut done = format!("admitted {node} to {overlay}");
    if before.is_some() {
        done += " again";
    }
    let mut and = ",";
    if let Some(before) = before.filter(|before| before.fingerprint != admission.fingerprint) {
        done += &format!("{and} with another key; before: {}", before.fingerprint);
        and = ";";
    }
    if let Some(said) = said(&admission) {
        done += &format!("{and} {said}");
        and = ";";
    }
    if let Some(password) = password {
        let user =
            if operator.add_user(node, &password)? { "a user of etcd" } else { "a new password for its user of etcd" };
        done += &format!("{and} with {user}, {}", operator.user(node));
    }
    out::line(done)?;
    if operator.lacks_user(node)? {
        let user = operator.user(node);
        out::note(format_args!(
            "ekiden: etcd has no user {user}: unless the node has another, it cannot register; --node-password-file FILE makes it"
        ));
    }
    Ok(())
}

/// Lists who is admitted.
pub fn admitted(args: &Admitted) -> anyhow::Result<()> {
    let mut operator = args.etcd.operator()?;
    operator.id()?;
    let admitted = operator.admitted()?;
    if args.json {
        let admitted: BTreeMap<_, _> = admitted.into_iter().filter_map(|(name, of)| Some((name, of.ok()?))).collect();
        return out::line(serde_json::to_string(&admitted)?);
    }
    for (name, admission) in admitted {
        match admission {
            Ok(of) => {
                let said = said(&of).map_or_else(String::new, |said| format!("  {said}"));
                out::line(format_args!("{name}  {}{said}", of.fingerprint))?;
            }
            Err(why) => out::note(format_args!("ekiden: {name} is no member: {why}")),
        }
    }
    Ok(())
}

/// What is said of a node besides its key.
fn said(of: &Admission) -> Option<String> {
    let near = (!of.near.is_empty()).then(|| format!("near {}", of.near.join(" ")));
    let region = of.region.as_ref().map(|region| format!("region {region}"));
    let at = of.at.map(|at| format!("at {}", String::from(at)));
    let price = (of.price != 0.0).then(|| format!("price {}", of.price));
    let relays = (!of.relays).then(|| "no relay".to_owned());
    let all: Vec<String> = [near, region, at, price, relays].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join(", "))
}

impl Said {
    fn terms(&self) -> Terms {
        let relays = [(self.relay, true), (self.no_relay, false)];
        Terms {
            near: (!self.near.is_empty()).then(|| self.near.clone()),
            region: self.region.clone(),
            at: self.at,
            price: self.price,
            relays: relays.into_iter().find_map(|(is_said, relays)| is_said.then_some(relays)),
        }
    }
}

/// Expels the node.
pub fn expel(args: &Expel) -> anyhow::Result<()> {
    args.etcd.operator()?.expel(&args.node).map_err(as_options)?;
    out::line(format_args!("expelled {} from {}", args.node, args.etcd.overlay))
}
