//! Streams of two hosts over one to three nodes, in virtual time: what every one of very many schedules of faults must keep.
//!
//! The nodes run and close their streams by the code of this crate. A schedule follows from its seed: what the lines are like, what
//! the hosts do, in which order what happens at the same time happens, and the faults between any two steps.

mod end;
mod executor;
mod hosts;
mod nodes;
mod plan;
mod tcp;
mod wire;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{available_parallelism, scope};
use std::time::Duration;

use ekiden_stream::expiry::Limits;

use end::Line;
use executor::{Ran, run};
use hosts::Ending;
use plan::{Fault, Finish, Plan, Script};

/// Default number of schedules, on one thread. `EKIDEN_SCHEDULES` sets another number, on all processors; `EKIDEN_FIRST` the first seed.
const SCHEDULES: u64 = 100_000;

/// Time limit, in milliseconds, within which two hosts that keep reading learn how the other one's direction has ended.
const HEARD_MS: u64 = 600_000;

/// How long nodes wait, in milliseconds, for a receiver that takes nothing of a reset host's last data.
const PASSED_ON_MS: u64 = 400_000;

/// Time limit, in milliseconds, within which a reset host's last data reaches a host that reads.
const SAID_MS: u64 = 120_000;

/// Time limit, in milliseconds, within which a host that reads learns that its data is refused.
const REFUSED_MS: u64 = 50_000;

/// How late a timer may fire.
const SLACK: Duration = Duration::from_millis(5);

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
        eprintln!("{:#?} {:#?}", ran.hosts, ran.done);
    }
    for host in [0, 1] {
        direction(&plan, &ran, host)?;
    }
    at_rest(&plan, &ran)?;
    limits(&plan, &ran)?;
    Ok(ran.steps)
}

/// What `from` has said, and what the other host has seen of it.
fn direction(plan: &Plan, ran: &Ran, from: usize) -> Result<(), String> {
    let (sender, receiver) = (&ran.hosts[from], &ran.hosts[1 - from]);
    let told = format!("host {from}: {sender:?}, the other: {receiver:?}");
    let ensure = |holds: bool, what: &str| if holds { Ok(()) } else { Err(format!("{what}; {told}")) };
    if let Some(wrong) = &receiver.wrong {
        return Err(format!("{wrong}; {told}"));
    }
    let is_whole = receiver.read == sender.written;
    // It is the end, also for a host one of whose calls has failed before.
    let has_heard = ran.world.came(if from == 0 { 2 * plan.nodes + 1 } else { 0 }).1;
    ensure(receiver.read <= sender.written, "more arrives than was written")?;
    ensure(!has_heard || sender.has_said_end, "its kernel was sent an end that was not said")?;
    if receiver.end == Some(Ending::Clean) {
        ensure(sender.has_said_end, "an end that was not said")?;
        ensure(is_whole, "an end, and not all")?;
    }
    if plan.is_fair() {
        ensure(receiver.end == Some(Ending::Clean) && is_whole, "nothing hindered it")?;
    }
    // Once both ends were said, the kernel delivers, whatever becomes of the process.
    let node = if from == 0 { plan.nodes - 1 } else { 0 };
    let dies = matches!(plan.faults[..], [(_, Fault::Kill(of) | Fault::Stop(of))] if of == node);
    let stays = plan.hosts[1 - from].reads_on() && receiver.has_reset_at.is_none();
    if dies && ran.done.has_ended[node] && stays && !plan.is_limited() {
        ensure(has_heard && is_whole, "its node had both ends")?;
    }
    // A receiver that does not read is reset in time, too, if it was sent no end.
    if let Some(reset) = sender.has_reset_at.filter(|_| !sender.has_said_end && !matters(plan, from)) {
        let end = &ran.world.ends[if from == 0 { 2 * plan.nodes + 1 } else { 0 }];
        let is_over = receiver.at_ms <= reset + PASSED_ON_MS || end.is_broken && end.broke_ms <= reset + PASSED_ON_MS;
        ensure(is_over, "a reset is not passed on")?;
    }
    // The receiver had ended and was gone: the sender learns that its data is refused, or has ended meanwhile.
    let gone = &ran.world.ends[if from == 0 { 2 * plan.nodes } else { 1 }];
    if receiver.has_said_end && gone.is_broken && gone.has_end && plan.hosts[from].reads_on() && is_undisturbed(plan) {
        let end = &ran.world.ends[if from == 0 { 0 } else { 2 * plan.nodes + 1 }];
        let is_told = end.is_broken && end.broke_ms <= gone.broke_ms + REFUSED_MS;
        ensure(is_told || sender.left_ms <= gone.broke_ms + REFUSED_MS, "it is not told that it is refused")?;
    }
    let both_wait = plan.hosts.iter().all(|host| host.finish == Finish::Waits);
    if plan.hosts.iter().all(Script::reads_on) && !both_wait {
        ensure(receiver.at_ms <= HEARD_MS, "it is left alone")?;
    }
    if !is_undisturbed(plan) || !plan.hosts[1 - from].reads_on() {
        return Ok(());
    }
    // The end of its connection at the first node: what had come there when it ended.
    let end = if from == 0 { 1 } else { 2 * plan.nodes };
    let (came, has_end) = ran.world.came(end);
    let came = came as usize + if from == 0 { plan.first } else { 0 };
    ensure(receiver.read >= came, &format!("{came} bytes had come to the node"))?;
    ensure(!has_end || has_heard && is_whole, "its end had come to the node")?;
    if let Some(reset) = sender.has_reset_at.filter(|_| plan.hosts[from].finish != Finish::ShutsDown) {
        ensure(receiver.at_ms <= reset + SAID_MS, "the other host heard of it late")?;
    }
    Ok(())
}

fn is_undisturbed(plan: &Plan) -> bool {
    plan.faults.is_empty() && !plan.is_limited()
}

/// Whether something else than the host `from` may end the stream, or keep others from hearing of it.
fn matters(plan: &Plan, from: usize) -> bool {
    plan.faults.iter().any(|(_, fault)| *fault != Fault::HostResets(from))
}

/// Nothing is left on connections between nodes that may carry another stream.
fn at_rest(plan: &Plan, ran: &Ran) -> Result<(), String> {
    for end in &ran.done.diallers {
        let left = ran.world.ends[end.0].received.len();
        if left > 0 {
            return Err(format!("{left} bytes are left at the dialler of connection {}", end.0 / 2));
        }
    }
    let legs = plan.nodes - 1;
    if plan.is_fair()
        && plan.has_place
        && (ran.done.diallers.len(), ran.done.rests.iter().filter(|rests| **rests).count()) != (legs, legs)
    {
        return Err(format!("nothing hindered it, and not {legs} legs are at rest: {:?}", ran.done));
    }
    Ok(())
}

/// No stream runs, or stands still, for longer than it may.
fn limits(plan: &Plan, ran: &Ran) -> Result<(), String> {
    let last = Duration::from_millis(ran.world.progress_ms);
    let Limits { idle, lifetime } = plan.limits;
    // Whether anything has moved is checked four times within the time limit, which starts anew once a connection has broken.
    let bounds = [lifetime, idle.map(|idle| last + idle * 3)].map(|bound| bound.map(|at| at + SLACK));
    for (node, ran_at) in ran.done.ran_at.iter().enumerate() {
        let Some(at) = ran_at.map(Duration::from_millis) else { continue };
        if bounds.into_iter().flatten().any(|bound| at > bound) {
            return Err(format!(
                "node {node}: {:?}, and a stream ran for {at:?}, the last of it at {last:?}",
                plan.limits
            ));
        }
    }
    Ok(())
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
        ran.world.ends[3].broke_ms - ran.hosts[0].has_reset_at.expect("it resets")
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
    let passed_on = ran.world.ends[5].broke_ms.checked_sub(ran.hosts[0].has_reset_at.expect("it resets"));
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
        assert_eq!(ran.hosts[1].read, ran.hosts[0].written, "{seed}: {:?}", ran.hosts);
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
    let reset = ran.hosts[0].has_reset_at.expect("it resets");
    (ran.hosts[1].read, ran.hosts[1].at_ms - reset)
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
