//! `ekiden overlay join`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::NonEmptyStringValueParser;
use ekiden_overlay::member::{Member, PRICE_MOST, Position, check_price};
use ekiden_relay::edit::IfPresent;
use ekiden_relay::{Config, ConfigError, Pattern, member_sections};
use ekiden_units::{AddressError, HostPort};

use crate::about::About;
use crate::out;
use crate::whose::whose;

/// Write a node into the members file of an overlay, which is made if it is not there.
///
/// The name and the key are those of the node's configuration. Copy the file to all nodes afterwards, and send each SIGHUP. Comments and
/// order stay.
#[derive(clap::Args)]
#[command(override_usage = "ekiden overlay join [OPTIONS] --config <FILE> --address <HOST:PORT> <FILE>
       ekiden overlay join --keys
       ekiden overlay join --schema")]
pub struct Args {
    /// The members file (TOML).
    #[arg(value_name = "FILE", required_unless_present_any = ["keys", "schema"])]
    members: Option<PathBuf>,
    #[command(flatten)]
    about: About,
    /// The node's configuration (TOML), with its name and key_file.
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["keys", "schema"])]
    config: Option<PathBuf>,
    /// Where other nodes reach its leg listener: HOST:PORT.
    #[arg(long, value_name = "HOST:PORT", value_parser = address, required_unless_present_any = ["keys", "schema"])]
    address: Option<String>,
    /// A destination that the node is near, as in a route; may be said again.
    #[arg(long, value_name = "DESTINATION", value_parser = destination)]
    near: Vec<String>,
    /// Where it stands, for routes with regions.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    region: Option<String>,
    /// Where that is on the earth, in degrees, for maps.
    #[arg(long, value_name = "LATITUDE,LONGITUDE", value_parser = position)]
    at: Option<Position>,
    /// What it costs to send through it, in any unit.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0, value_parser = price)]
    price: f64,
    /// It carries only streams to destinations that it is near, and none between others.
    #[arg(long)]
    no_relay: bool,
    /// Change what the file says of the node.
    #[arg(long)]
    replace: bool,
}

/// Writes the entry, or tells of the file's keys.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match (&args.members, &args.config, &args.address) {
        (Some(members), Some(config), Some(address)) => write(members, config, address, args),
        _ => args.about.told("a members file of an ekiden overlay", &member_sections()).map(drop),
    }
}

fn write(members: &Path, config: &Path, address: &str, args: &Args) -> anyhow::Result<()> {
    // Without its [overlay]: the members file may not be there yet, or lack this node.
    let own = Config::own(config).map_err(|error| whose(config, "overlay join -c", error))?;
    let no_key = || ConfigError::whole(config, "there is no key_file: make a key with `ekiden keygen FILE`");
    let (name, key) = (own.name, own.key.ok_or_else(no_key)?);
    let member = Member {
        address: address.to_owned(),
        fingerprint: key.to_string(),
        near: args.near.clone(),
        region: args.region.clone(),
        at: args.at,
        price: args.price,
        relays: !args.no_relay,
    };
    let if_present = if args.replace { IfPresent::Replace } else { IfPresent::Refuse };
    let was_there = ekiden_relay::join(members, &name, &member, if_present)
        .map_err(|error| whose(members, "overlay join", error))
        .context("nothing is written")?;
    let done = if was_there { "changed" } else { "added" };
    out::line(format_args!("{done} [node.{name}] in {}", members.display()))?;
    if !own.has_leg_listener {
        out::note(format_args!(
            "ekiden: {} has no leg listener, so no node reaches this one at {address}: add a [listen.NAME] with kind = \"leg\"",
            config.display()
        ));
    }
    Ok(())
}

/// An address with a port, as an option says it.
pub fn address(text: &str) -> Result<String, AddressError> {
    HostPort::as_told(text).map(|_| text.to_owned())
}

/// A place on the earth, as an option says it.
pub fn position(text: &str) -> Result<Position, String> {
    text.to_owned().try_into()
}

/// A destination as in a route.
pub fn destination(text: &str) -> Result<String, String> {
    Pattern::parse(text).map(|_| text.to_owned())
}

/// What a node costs, as an option says it.
pub fn price(text: &str) -> Result<f64, String> {
    let price = text.parse().map_err(|_| format!("a price is a number from 0 to {PRICE_MOST}"))?;
    check_price(price).map(|()| price)
}
