//! Prints what a file's sites get by each policy.

use std::path::Path;

use ekiden_flows::{Policy, Sites, run};

fn main() {
    let files: Vec<String> = std::env::args().skip(1).collect();
    for file in files {
        let sites = Sites::read(Path::new(&file)).unwrap_or_else(|error| panic!("{error}"));
        println!("{}, seed {}: {} after a warm-up of {}", sites.name, sites.seed, sites.duration, sites.warm_up);
        println!(
            "policy | of the best: median, tenth, worst | worst pair | gain >10 %, median, mean | answers' RTT | got Mbit/s | changes/h | control kbit/s, most | streams failed tried broken"
        );
        for policy in [Policy::Direct, Policy::ShortestRtt, Policy::Ron, Policy::Ekiden, Policy::Oracle] {
            let of = run(&sites, policy);
            println!(
                "{policy:?} | {:.3} {:.3} {:.3} | {:.3} | {:.2} {:.2} {:.2} | {:.2} | {:.1} {:.1} | {:.2} | {:.1} {:.1} | {} {} {} {}",
                of.of_best.median,
                of.of_best.tenth,
                of.of_best.least,
                of.of_best_by_pair.least,
                of.gains.part,
                of.gains.median,
                of.gains.mean,
                of.rtt_of_shortest.mean,
                of.got_bit_s.median / 1e6,
                of.got_bit_s.mean / 1e6,
                of.changes_an_hour,
                of.control_bit_s[0] / 1e3,
                of.control_bit_s[1] / 1e3,
                of.streams,
                of.failed,
                of.tried,
                of.broken
            );
        }
    }
}
