//! Streams of two hosts over one to three nodes, in virtual time: what every one of very many schedules of faults must keep.
//!
//! The nodes run and close their streams by the code of this crate. A schedule follows from its seed: what the lines are like, what
//! the hosts do, in which order what happens at the same time happens, and the faults between any two steps. Where legs rest after the
//! stream, a second one follows over them, between two other hosts.

mod end;
mod executor;
mod hosts;
mod nodes;
mod plan;
mod promise;
mod request;
mod second;
mod strike;
mod tcp;
mod wire;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{available_parallelism, scope};

use end::Line;
use executor::run;
use plan::{Fault, Finish, Plan, Script, Second};
use promise::keeps;

/// Default number of schedules, on one thread. `EKIDEN_SCHEDULES` sets another number, on all processors; `EKIDEN_FIRST` the first seed.
const SCHEDULES: u64 = 100_000;

#[test]
fn no_schedule_of_faults_breaks_the_promise() {
    if let Some(seed) = number("EKIDEN_SEED") {
        let steps = in_virtual_time(check(seed, true)).unwrap_or_else(|error| panic!("{error}"));
        return eprintln!("{steps} steps");
    }
    let (count, first) = (number("EKIDEN_SCHEDULES"), number("EKIDEN_FIRST").unwrap_or(0));
    let threads = if count.is_some() { available_parallelism().map_or(1, usize::from) } else { 1 };
    let (count, next) = (count.unwrap_or(SCHEDULES), AtomicU64::new(0));
    let steps: usize = scope(|scope| {
        let some = || in_virtual_time(checks(first, count, &next));
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(some)).collect();
        running.into_iter().map(|thread| thread.join().expect("every schedule holds")).sum()
    });
    eprintln!("{count} schedules, {steps} steps");
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Runs those of `count` schedules that no other thread runs. Returns their steps.
async fn checks(first: u64, count: u64, next: &AtomicU64) -> usize {
    let mut steps = 0;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= count {
            return steps;
        }
        let seed = first.wrapping_add(number);
        match check(seed, false).await {
            Ok(taken) => steps += taken,
            Err(error) => {
                next.store(count, Ordering::Relaxed);
                panic!("{error}\nEKIDEN_SEED={seed} repeats it, after {number} schedules");
            }
        }
    }
}

fn in_virtual_time<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(work)
}

/// Runs the schedule of a seed. Returns its steps.
///
/// # Errors
/// What did not hold.
async fn check(seed: u64, is_traced: bool) -> Result<usize, String> {
    holds(seed, Plan::new(seed), is_traced).await
}

/// The same with a plan of the caller's.
async fn holds(seed: u64, plan: Plan, is_traced: bool) -> Result<usize, String> {
    if is_traced {
        eprintln!("{plan:#?}");
    }
    let ran = run(seed, plan.clone(), is_traced).await?;
    if is_traced {
        eprintln!("{:#?} {:#?} {:#?}", ran.streams, ran.done, ran.struck);
    }
    keeps(&plan, &ran)?;
    Ok(ran.steps)
}

/// Each node waits until its refusal is sent, behind data that the other one no longer reads.
#[test]
fn a_stream_that_both_hosts_have_left_ends_although_much_of_both_directions_is_refused() {
    let script = Script {
        writes: vec![(0, 3000)],
        finish: Finish::Closes,
        reads: (1, 0),
        stalls: Some((0, 1)),
        ..Script::default()
    };
    let buffers = |bytes| Line { send_most: [bytes; 2], receive_most: [bytes; 2], ..Line::default() };
    let plan = Plan::calm(vec![buffers(4000), buffers(400), buffers(4000)], [script.clone(), script]);
    for seed in 0..100 {
        in_virtual_time(holds(seed, plan.clone(), false)).unwrap_or_else(|error| panic!("{seed}: {error}"));
    }
}

/// Where a leg breaks at rest, the node makes another one for the second stream.
#[test]
fn a_second_stream_goes_over_the_legs_of_the_first_that_are_whole() {
    let script = Script { writes: vec![(0, 500)], reads: (100, 0), ..Script::default() };
    let hosts = [script.clone(), script];
    for (faults, path) in [(vec![], [4, 1, 2, 5]), (vec![(0, Fault::Cut(1))], [4, 5, 2, 6])] {
        let second = Second { hosts: hosts.clone(), first: 9, lines: [Line::default(); 2], after_ms: 100, faults };
        let plan = Plan { second: Some(second), ..Plan::calm(vec![Line::default(); 4], hosts.clone()) };
        for seed in 0..100 {
            let ran = in_virtual_time(run(seed, plan.clone(), false)).unwrap_or_else(|error| panic!("{seed}: {error}"));
            keeps(&plan, &ran).unwrap_or_else(|error| panic!("{seed}: {error}"));
            let read = ran.streams[1].hosts.each_ref().map(|host| host.read);
            assert_eq!((&ran.streams[1].path[..], read), (&path[..], [500; 2]), "{seed}");
        }
    }
}

/// A host that writes this many bytes, and a last one 10 s later, and resets; and one that reads nothing for this many milliseconds.
fn resets_beside_one_that_stands(bytes: usize, stands_ms: u64) -> [Script; 2] {
    let calm = Script { reads: (100, 0), stalls: None, ..Script::default() };
    let writes = vec![(0, bytes), (10_000, 1)];
    let resets = Script { writes, finish: Finish::Resets, ..calm.clone() };
    [resets, Script { writes: Vec::new(), finish: Finish::Waits, stalls: Some((0, stands_ms)), ..calm }]
}

/// The time for which it has not read before the other host's reset counts: nodes in a chain do not each wait for it again.
#[test]
fn a_host_that_has_not_read_for_long_is_waited_for_no_longer() {
    let [resets, stands] = resets_beside_one_that_stands(3000, 100_000);
    let small = Line { send_most: [5000; 2], receive_most: [1000; 2], ..Line::default() };
    let plan = Plan::calm(vec![Line { receive_most: [5000; 2], ..small }, small], [resets, stands]);
    let reset_after = |plan: &Plan| {
        let ran = in_virtual_time(run(1, plan.clone(), false)).unwrap_or_else(|error| panic!("{error}"));
        ran.world.ends[3].broke_ms - ran.streams[0].hosts[0].has_reset_at.expect("it resets")
    };
    let stood = reset_after(&plan);
    assert!(stood < 100, "it was waited for anew: {stood} ms");
    // A receiver that has taken everything so far gets the full timeout.
    let mut reads = plan;
    reads.hosts[0].writes = vec![(0, 500), (9_999, 2500), (1, 1)];
    reads.hosts[1].stalls = Some((500, 100_000));
    let reads = reset_after(&reads);
    assert!((1900..3600).contains(&reads), "{reads} ms");
}

/// RESET, and the FIN behind it, are behind what the node does not read: it sees the FIN alone.
#[test]
fn a_reset_passes_a_node_that_reads_nothing_because_its_host_does_not() {
    let [resets, stands] = resets_beside_one_that_stands(600, 1_000_000);
    let small = Line { send_most: [50; 2], receive_most: [50; 2], segment: 20, ..Line::default() };
    let plan =
        Plan::calm(vec![Line::default(), Line { receive_most: [4000; 2], ..Line::default() }, small], [resets, stands]);
    let ran = in_virtual_time(run(1, plan, false)).unwrap_or_else(|error| panic!("{error}"));
    let passed_on = ran.world.ends[5].broke_ms.checked_sub(ran.streams[0].hosts[0].has_reset_at.expect("it resets"));
    assert!(passed_on.is_some_and(|ms| ms < 10_000), "{passed_on:?} ms");
}

/// What a host that has reset sent before still arrives, also where the other one reads nothing before all that it writes is taken.
#[test]
fn a_host_that_writes_before_it_reads_gets_a_reset_hosts_last_data() {
    let resets = Script { writes: vec![(0, 500)], finish: Finish::Resets, reads: (100, 0), ..Script::default() };
    let writes =
        Script { writes: vec![(0, 8000)], finish: Finish::Waits, reads: (100, 0), writes_first: true, stalls: None };
    let small = Line { send_most: [300; 2], receive_most: [200; 2], ..Line::default() };
    let plan = Plan::calm(vec![Line::default(), small], [resets, writes]);
    for seed in 0..100 {
        let ran = in_virtual_time(run(seed, plan.clone(), false)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(ran.streams[0].hosts[1].read, ran.streams[0].hosts[0].written, "{seed}: {:?}", ran.streams[0].hosts);
    }
}

/// A host resets that has sent 600 bytes, which fill all buffers up to a host that reads by `reads` and `stalls`. How many of them that one
/// gets, and how long after the reset its connection is over, in milliseconds.
fn passed_on(reads: (usize, u64), stalls: Option<(usize, u64)>) -> (usize, u64) {
    let resets = Script { writes: vec![(0, 600)], finish: Finish::Resets, reads: (100, 0), ..Script::default() };
    let slow = Script { finish: Finish::Waits, reads, stalls, ..Script::default() };
    let small = Line { send_most: [50; 2], receive_most: [50; 2], segment: 20, ..Line::default() };
    let plan = Plan::calm(vec![Line::default(), small, small], [resets, slow]);
    let ran = in_virtual_time(run(1, plan, false)).unwrap_or_else(|error| panic!("{error}"));
    let reset = ran.streams[0].hosts[0].has_reset_at.expect("it resets");
    (ran.streams[0].hosts[1].read, ran.streams[0].hosts[1].at_ms - reset)
}

#[test]
fn a_node_whose_host_stands_is_waited_for_longer_than_a_host() {
    assert_eq!(passed_on((100, 0), Some((0, 10_000))).0, 600);
}

#[test]
fn a_host_slower_than_the_least_rate_is_not_waited_for_to_the_end() {
    // A minute at each of the two nodes, and what they hold.
    let (read, ms) = passed_on((1, 1000), None);
    assert!(read < 300 && (60_000..200_000).contains(&ms), "{read} bytes, {ms} ms");
}
