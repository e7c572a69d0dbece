//! `ekiden plan`: what helps on a path, and what it should give.

mod check;
mod nodes;
mod picture;
mod show;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use ekiden_plan::{Direction, Flags, Plan, STREAMS};
use ekiden_units::Time;

use crate::out::{self, Width};
use crate::usage::{distinct, misused, svg, whole_number};
use crate::whose::whose;

pub use check::VerifyFailed;

/// No line is longer than a narrow terminal: what is wrapped cannot be copied.
const EXAMPLE: &str = r#"Example of a description (TOML):
    rtt = "200ms"
    rate = "100Mbit/s"
    window = "64KiB"

    # A place where a proxy could be; without any, all are.
    [site.tokyo]
    client_rtt = "90ms"
    server_rtt = "110ms""#;

/// Say what helps on a path: how many proxies, where, with which settings, and what that should give.
///
/// The path comes from `ekiden measure path`, from a description, or from flags, which go before what the file says. Prints a verdict, what
/// every remedy that was tried should give, and the settings of the one to take. docs/guide/plan.md describes every key, and
/// docs/guide/models.md what is reckoned with.
///
/// With --verify the direct path and the remedy are simulated and run in the lab, too; --verify=simulator does without the lab.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub struct Args {
    /// A path record (JSON) or a description (TOML).
    file: Option<PathBuf>,
    /// A description (TOML) with the sites where proxies could be, [site.NAME], beside a FILE or flags without any.
    #[arg(long, value_name = "FILE.toml")]
    sites: Option<PathBuf>,
    /// The round trip without queues, such as 200ms.
    #[arg(long, value_name = "TIME")]
    rtt: Option<String>,
    /// What the line carries of IP packets, such as 100Mbit/s.
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// What waits at the line's beginning at most, such as 500KB.
    #[arg(long, value_name = "BYTES")]
    buffer: Option<String>,
    /// The part of the packets that is lost at random, such as 0.1%.
    #[arg(long, value_name = "PART")]
    loss: Option<String>,
    /// The windows of the hosts: the least of send buffer and receive window, such as 64KiB.
    #[arg(long, value_name = "BYTES")]
    window: Option<String>,
    /// The rate of a policer: a limit that drops, without a queue.
    #[arg(long, value_name = "RATE")]
    policer: Option<String>,
    /// Connections at once.
    #[arg(long, value_name = "N", value_parser = whole_number(*STREAMS.start(), *STREAMS.end()))]
    streams: Option<u32>,
    /// Say how long a transfer of this size takes, too.
    #[arg(long, value_name = "BYTES")]
    size: Option<String>,
    /// Which way the data goes; without it as the file says, or back.
    #[arg(long, value_enum)]
    direction: Option<Way>,
    /// How long the transfers last for which goodputs are given; 20s and at least 50 round trips unless said.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Time>,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    width: Width,
    /// Draw what every remedy should give, as SVG.
    #[arg(long, value_name = "FILE.svg", value_parser = svg())]
    picture: Option<PathBuf>,
    /// Write keys and configurations of what is advised into this directory: of the chain's nodes, or a tunnel's ends, and of a gateway.
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
    /// Replace a picture and configurations that are there already. Keys stay.
    #[arg(long)]
    force: bool,
    /// Simulate the direct path and the remedy, run them in the lab, and put all three side by side.
    #[arg(long, value_enum, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_missing_value = "both")]
    verify: Option<Where>,
    /// Of --verify: every remedy that was tried.
    #[arg(long, requires = "verify")]
    all: bool,
    /// Of --verify: how many times, each with its own losses; shown are medians.
    #[arg(long, requires = "verify", value_name = "N", default_value_t = 1, value_parser = whole_number(1_u64, 100))]
    runs: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Way {
    /// From client to server: an upload.
    Forth,
    /// From server to client: a download.
    Back,
}

#[derive(Clone, Copy, ValueEnum)]
enum Where {
    /// In both.
    Both,
    /// On the kernel's TCP only.
    Lab,
    /// In virtual time only, without privileges.
    Simulator,
}

/// Plans, and does what else the command line says.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.file.is_none() && args.rtt.is_none() && args.rate.is_none() {
        misused("which path? Give a FILE, or --rtt and --rate: --rtt 200ms --rate 100Mbit/s");
    }
    distinct(&[("FILE", args.file.as_deref()), ("--picture", args.picture.as_deref())]);
    let path = ekiden_plan::read(args.file.as_deref(), args.sites.as_deref(), &flags(args));
    let given = [&args.file, &args.sites].into_iter().flatten();
    let path = path.map_err(|error| given.fold(error.into(), |error, file| whose(file, "plan", error)))?;
    // What cannot be written is noticed before anything is computed.
    if let Some(picture) = &args.picture {
        target(picture, args.force)?;
    }
    let plan = Plan::of(&path, args.duration.map(Time::as_secs));
    let written = args.write.as_ref().map(|folder| nodes::write(folder, &path, &plan, args.force)).transpose()?;
    if let Some(picture) = &args.picture {
        picture::write(picture, &plan, &path)?;
    }
    let places = |verify| match verify {
        Where::Both => &[check::Engine::Simulator, check::Engine::Lab][..],
        Where::Lab => &[check::Engine::Lab],
        Where::Simulator => &[check::Engine::Simulator],
    };
    let checked =
        args.verify.map(|verify| check::run(&path, &plan, args.all, places(verify), args.runs)).transpose()?;
    match args.json {
        true => out::line(serde_json::to_string_pretty(&show::Shown {
            plan: &plan,
            checked: checked.as_deref(),
            written: &written,
        })?)?,
        false => {
            out::text(show::text(&plan, &path, args.width.columns()))?;
            if let Some(picture) = &args.picture {
                out::line(format_args!("picture: {}", picture.display()))?;
            }
            if let (Some(written), Some(folder)) = (&written, &args.write) {
                out::text(args.width.fitted(&nodes::text(written, folder)))?;
            }
            if let Some(checked) = &checked {
                out::text(show::comparison(checked, args.width.columns()))?;
            }
        }
    }
    check::failure(checked.as_deref().unwrap_or_default())
}

fn target(file: &Path, replace: bool) -> anyhow::Result<()> {
    ekiden_files::check_target(file, replace)
        .map_err(|error| anyhow::Error::from(error).context(file.display().to_string()))
}

fn flags(args: &Args) -> Flags {
    let direction = args.direction.map(|way| match way {
        Way::Forth => Direction::Forth,
        Way::Back => Direction::Back,
    });
    Flags {
        rtt: args.rtt.clone(),
        rate: args.rate.clone(),
        buffer: args.buffer.clone(),
        loss: args.loss.clone(),
        window: args.window.clone(),
        policer: args.policer.clone(),
        streams: args.streams,
        size: args.size.clone(),
        direction,
    }
}

fn duration(text: &str) -> Result<Time, String> {
    let time: Time = text.parse().map_err(|error: ekiden_units::ParseError| error.to_string())?;
    match (Time::secs(1)..=Time::secs(3600)).contains(&time) {
        true => Ok(time),
        false => Err("from 1s to 3600s".into()),
    }
}
