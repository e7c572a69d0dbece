//! What nodes ask of each other.

use ekiden_flows::{Policy, run};
use ekiden_units::Time;

fn control(streams_s: f64) -> [f64; 2] {
    let mut sites = crate::common::file("sites-64.toml");
    (sites.duration, sites.warm_up, sites.traffic.streams_s) = (Time::secs(3_600), Time::secs(600), streams_s);
    let of = run(&sites, Policy::Ekiden);
    println!("{streams_s} streams a second: {:?} bit/s, {} streams", of.control_bit_s, of.streams);
    of.control_bit_s
}

#[test]
fn idle_nodes_ask_nothing() {
    assert_eq!(control(0.0), [0.0, 0.0]);
}

#[test]
fn nodes_with_a_stream_now_and_then_ask_little() {
    let [mean, _] = control(0.000_3);
    assert!(mean > 0.0 && mean < 20_000.0, "{mean}");
}
