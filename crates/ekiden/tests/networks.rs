//! Tests of the program in networks that they make: namespaces, devices, eBPF. One program: it is linked once.
//!
//! `networks lab::` runs a module, `networks lab::jitter` those of its tests whose names have this part.

mod alone;
mod balancers;
mod clients;
mod congestion;
mod demo;
mod doctor;
mod experiment;
mod far;
mod gateway;
mod lab;
mod measure;
mod overlay;
mod plan;
mod programs;
mod replay;
mod reproduced;
mod script;
mod transparent;
mod tunnel;
mod watch;
mod window;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// A file of tests.
struct Module {
    name: &'static str,
    trials: fn() -> Vec<Trial>,
    /// They measure, or use what the machine has once: one at a time.
    one_at_a_time: bool,
    /// They use names and traces of the whole machine ([`alone`]).
    alone: bool,
}

const fn module(name: &'static str, trials: fn() -> Vec<Trial>) -> Module {
    Module { name, trials, one_at_a_time: false, alone: false }
}

const MODULES: [Module; 18] = [
    module("balancers", balancers::trials),
    module("clients", clients::trials),
    Module { one_at_a_time: true, alone: true, ..module("congestion", congestion::trials) },
    module("demo", demo::trials),
    module("doctor", doctor::trials),
    Module { alone: true, ..module("far", far::trials) },
    module("gateway", gateway::trials),
    Module { one_at_a_time: true, ..module("lab", lab::trials) },
    module("measure", measure::trials),
    module("overlay", overlay::trials),
    module("plan", plan::trials),
    module("programs", programs::trials),
    Module { alone: true, ..module("replay", replay::trials) },
    Module { one_at_a_time: true, ..module("reproduced", reproduced::trials) },
    module("transparent", transparent::trials),
    module("tunnel", tunnel::trials),
    Module { one_at_a_time: true, ..module("watch", watch::trials) },
    Module { one_at_a_time: true, ..module("window", window::trials) },
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let said = arguments.filter.take().unwrap_or_default();
    let (name, part) = said.split_once("::").unwrap_or(("", &said));
    arguments.filter = Some(part.to_owned()).filter(|part| !part.is_empty());
    let chosen: Vec<&Module> = MODULES.iter().filter(|module| name.is_empty() || module.name == name).collect();
    if chosen.iter().any(|module| module.one_at_a_time) {
        arguments.test_threads = Some(1);
    }
    if !is_root() {
        eprintln!("ignored: what makes namespaces, devices or mounts, or loads eBPF, which needs root here");
    }
    let of = |&Module { name, trials, .. }: &Module| trials().into_iter().map(move |trial| trial.with_kind(name));
    let trials = chosen.iter().copied().flat_map(of).collect();
    let _alone = chosen.iter().any(|module| module.alone).then(alone::alone);
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
