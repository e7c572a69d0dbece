//! `ekiden congestion`: HSTCP, gentle HSTCP and BIC in the running kernel.

mod kernel;
mod status;
mod trace;

use std::fmt;

use clap::{Args as ClapArgs, Subcommand};
use ekiden_bpf::{Error, Registration, is_pinned, pin, register, registered, unpin};
use ekiden_congestion::{Algorithm, CongestionParameters, Parameter, Tunables};

use crate::out;

/// Load ekiden's congestion controls into the running kernel, change their parameters, and watch what they do.
///
/// They are ekiden_hstcp (HighSpeed TCP), ekiden_ghstcp (gentle HighSpeed TCP), ekiden_bic (BIC) and ekiden_far (for long paths that
/// lose packets by chance). `ekiden proxy`, `ekiden tunnel` and `ekiden lab` load those that they use by themselves,
/// for as long as they run; `load` is for programs that are not ekiden, and for nodes that may not do it. Needs root, and Linux 6.4
/// or newer with BTF.
///
/// docs/guide/congestion.md says what they are and describes every parameter.
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Load them into the kernel, until `unload` or a reboot.
    Load {
        /// Which; without any, all of them.
        #[arg(value_name = "NAMES", value_parser = kernel::name)]
        names: Vec<Algorithm>,
        /// A parameter that is not to have its default. Can be given several times.
        #[arg(long, value_name = "KEY=VALUE", value_parser = kernel::setting)]
        set: Vec<kernel::Setting>,
    },
    /// Show which are in the kernel, who keeps them there, and their parameters.
    Status {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Change parameters in all that are in the kernel, also for connections that exist.
    Set {
        /// The parameters.
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = kernel::setting)]
        settings: Vec<kernel::Setting>,
    },
    /// Take back what `load` did. Those that a running process uses stay until it ends.
    Unload {
        /// Which; without any, all of them.
        #[arg(value_name = "NAMES", value_parser = kernel::name)]
        names: Vec<Algorithm>,
    },
    Trace(trace::Args),
}

/// Does what the command line says.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.action {
        Action::Load { names, set } => load(&all_if_none(names), &set),
        Action::Status { json } => status::run(json),
        Action::Set { settings } => set(&settings),
        Action::Unload { names } => unload(&all_if_none(names)),
        Action::Trace(args) => trace::run(&args),
    }
}

fn all_if_none(names: Vec<Algorithm>) -> Vec<Algorithm> {
    if names.is_empty() { Algorithm::LOADABLE.into() } else { names }
}

fn load(names: &[Algorithm], changes: &[kernel::Setting]) -> anyhow::Result<()> {
    must_be_read(changes, names)?;
    let mut settings = CongestionParameters::default();
    kernel::change(&mut settings, changes)?;
    let mut there = Vec::new();
    for &name in names {
        there.extend(registered(name)?.map(|_| name));
    }
    let held = register(names, &Tunables::new(&settings)?)?;
    // The requested settings hold, whichever program has registered it.
    let mut changed = Vec::new();
    for one in held.iter().filter(|one| there.contains(&one.algorithm())) {
        let before = one.parameters()?;
        let mut after = before;
        for change in changes.iter().filter(|change| one.algorithm().reads(&change.name)) {
            after.set(&change.name, &change.value)?;
        }
        if after != before {
            one.set(&after)?;
            changed.push(one.algorithm());
        }
    }
    let had_mount = kernel::has_mount();
    let mut pinned = Vec::new();
    for one in &held {
        let was = is_pinned(one.algorithm());
        if let Err(error) = pin(one) {
            // All or nothing.
            for &name in &pinned {
                let _ = unpin(name);
            }
            return Err(error.into());
        }
        if !was {
            pinned.push(one.algorithm());
        }
    }
    if !had_mount && kernel::has_mount() {
        out::line(match kernel::is_mount_private() {
            false => {
                "mounted /sys/fs/bpf, where the kernel keeps what stays without a process; the last unload undoes it"
            }
            true => {
                "mounted /sys/fs/bpf in this mount namespace alone: what is loaded goes with its last process (`ip netns exec` makes such a one)"
            }
        })?;
    }
    for one in &held {
        let name = one.algorithm();
        let changed = if changed.contains(&name) { ", its parameters changed" } else { "" };
        out::line(match (there.contains(&name), pinned.contains(&name)) {
            (false, _) => format!("{name}: loaded; stays until 'ekiden congestion unload' or a reboot"),
            (true, true) => format!("{name}: was there for as long as a process runs, and stays now{changed}"),
            (true, false) => format!("{name}: was loaded already{changed}"),
        })?;
    }
    Ok(())
}

fn set(changes: &[kernel::Setting]) -> anyhow::Result<()> {
    let held = kernel::all_registered()?;
    must_be_read(changes, &held.iter().map(Registration::algorithm).collect::<Vec<_>>())?;
    let mut wanted: Vec<(&Registration, CongestionParameters, CongestionParameters)> = Vec::new();
    for one in &held {
        let before = one.parameters()?;
        let mut after = before;
        kernel::change(&mut after, changes)?;
        wanted.push((one, before, after));
    }
    // Nothing is changed if anything is wrong.
    for (_, _, after) in &wanted {
        Tunables::new(after)?;
    }
    for (one, _, after) in &wanted {
        one.set(after)?;
    }
    for (one, before, after) in &wanted {
        let values = before.iter().zip(after.iter());
        let given = values.filter(|((key, _), _)| changes.iter().any(|change| change.name == key.name));
        let read = given.filter(|((key, _), _)| one.algorithm().reads(key.name));
        let written = Parameter::written;
        let shown = read.map(|((key, was), (_, is))| format!("{} {} → {}", key.name, written(was), written(is)));
        let shown: Vec<String> = shown.collect();
        if !shown.is_empty() {
            out::line(format_args!("{}: {}", one.algorithm(), shown.join(", ")))?;
        }
    }
    Ok(())
}

/// Refuses what would go nowhere: a parameter that none of `by` reads.
fn must_be_read(changes: &[kernel::Setting], by: &[Algorithm]) -> Result<(), NobodyReads> {
    let unread = changes.iter().find(|change| !by.iter().any(|one| one.reads(&change.name)));
    unread.map_or(Ok(()), |change| Err(NobodyReads { parameter: change.name.clone(), by: by.to_vec() }))
}

fn unload(names: &[Algorithm]) -> anyhow::Result<()> {
    for &name in names {
        let was_pinned = unpin(name)?;
        let left = kernel::left_after_unpinning(name, was_pinned)?;
        out::line(match (was_pinned, left) {
            (true, None) => format!("{name}: unloaded; connections that use it go on with it"),
            (false, None) => format!("{name}: was not loaded"),
            (true, Some(who)) => format!("{name}: unloaded, but stays while it is held by {who}"),
            (false, Some(who)) => format!("{name}: was not loaded by 'ekiden congestion load'; it is held by {who}"),
        })?;
    }
    Ok(())
}

/// That nothing is there which could be changed or watched.
#[derive(Debug, thiserror::Error)]
#[error("none of ekiden's congestion controls is in the kernel; 'ekiden congestion load' loads them")]
pub struct NothingThere;

/// That none of the congestion controls that are to be changed reads a parameter.
#[derive(Debug, thiserror::Error)]
pub struct NobodyReads {
    parameter: String,
    by: Vec<Algorithm>,
}

impl fmt::Display for NobodyReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |names: &[Algorithm]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let readers = Algorithm::LOADABLE.into_iter().filter(|one| one.reads(&self.parameter)).collect::<Vec<_>>();
        let (readers, by) = (listed(&readers), listed(&self.by).join(", "));
        let (parameter, which) = (&self.parameter, readers.join(", "));
        let load = readers.join(" ");
        write!(
            f,
            "{parameter} is a parameter of {which}, not of {by}; 'ekiden congestion load {load}' loads what reads it"
        )
    }
}

/// The exit code that goes with a failure.
pub fn code(error: &Error) -> u8 {
    match error.kind() {
        ekiden_bpf::ErrorKind::Unavailable => 4,
        ekiden_bpf::ErrorKind::Invalid => 2,
        ekiden_bpf::ErrorKind::Failed => 1,
    }
}
