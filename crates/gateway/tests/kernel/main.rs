//! The gateway's programs in the running kernel: the verifier takes them, every shape of a packet, and the decisions against those of the
//! native build. Needs root.

#[path = "../../../ekiden/tests/alone/mod.rs"]
mod alone;
mod both;
mod devices;
mod frames;
#[path = "../../../bpf/tests/pulled/mod.rs"]
mod pulled;
mod shapes;
mod tables;
mod transfers;

use ekiden_gateway::kernel::{Gateway, Settings};
use libtest_mimic::{Arguments, Failed, Trial};
use nix::unistd::geteuid;

fn main() {
    if let Ok(what) = std::env::var(devices::KEEPER) {
        devices::keep(&what).expect("it keeps");
    }
    let mut arguments = Arguments::from_args();
    let _alone = alone::alone();
    arguments.test_threads = Some(1);
    let root = geteuid().is_root();
    let trial = |name: &str, test: fn() -> Result<(), Failed>| {
        let name = if root { name.to_owned() } else { format!("{name} (needs root)") };
        Trial::test(name, test).with_ignored_flag(!root)
    };
    let trials = vec![
        trial("the_verifier_accepts_the_programs", the_verifier_accepts_the_programs),
        trial("windows_are_lowered_in_every_shape", shapes::windows_are_lowered_in_every_shape),
        trial("other_packets_pass_as_they_are", shapes::other_packets_pass_as_they_are),
        trial("signed_connections_are_left_alone", shapes::signed_connections_are_left_alone),
        trial("handshakes_tell_the_scale", shapes::handshakes_tell_the_scale),
        trial("ends_of_streams_give_their_places_back", shapes::ends_of_streams_give_their_places_back),
        trial(
            "mutilated_frames_pass_as_the_native_build_reads_them",
            shapes::mutilated_frames_pass_as_the_native_build_reads_them,
        ),
        trial("simulated_transfers_are_decided_as_natively", transfers::simulated_transfers_are_decided_as_natively),
        trial("without_its_keeper_packets_pass_untouched", tables::without_its_keeper_packets_pass_untouched),
        trial("a_full_table_leaves_new_streams_alone", tables::a_full_table_leaves_new_streams_alone),
        trial("open_streams_keep_their_places_for_longer", tables::open_streams_keep_their_places_for_longer),
        trial("streams_come_to_the_most_specific_group", tables::streams_come_to_the_most_specific_group),
        trial("the_most_groups_are_told_apart", tables::the_most_groups_are_told_apart),
        trial(
            "streams_without_a_handshake_are_left_alone_or_assumed",
            tables::streams_without_a_handshake_are_left_alone_or_assumed,
        ),
        trial("round_trips_are_measured_by_the_kernels_clock", tables::round_trips_are_measured_by_the_kernels_clock),
        trial("events_tell_what_happens", tables::events_tell_what_happens),
        trial("a_hundred_thousand_streams_fit_in_16_mib", tables::a_hundred_thousand_streams_fit_in_16_mib),
        trial("programs_come_and_go_with_the_gateway", devices::programs_come_and_go_with_the_gateway),
        trial("other_programs_on_the_device_stay", devices::other_programs_on_the_device_stay),
        trial("nothing_acts_after_a_kill", devices::nothing_acts_after_a_kill),
        trial("a_pinned_gateway_outlives_its_process", devices::a_pinned_gateway_outlives_its_process),
        trial("headers_in_a_packets_later_parts_are_read", devices::headers_in_a_packets_later_parts_are_read),
        trial("rewritten_packets_keep_their_checksums", devices::rewritten_packets_keep_their_checksums),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

fn the_verifier_accepts_the_programs() -> Result<(), Failed> {
    let gateway = Gateway::load(&Settings::default())?;
    assert_eq!(gateway.counters()?, Default::default());
    assert!(gateway.streams()?.is_empty());
    // Its code with the tests' clock is another.
    Gateway::load_with_own_clock(&Settings::default())?;
    Ok(())
}
