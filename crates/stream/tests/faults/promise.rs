//! What every schedule must keep.

use std::time::Duration;

use ekiden_stream::expiry::Limits;

use super::end::End;
use super::executor::{Course, Ran};
use super::hosts::{Ending, Seen};
use super::plan::{Fault, Finish, Plan, Script};
use super::strike::Struck;
use super::tcp::World;

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

/// A stream, as it was planned and as it came out.
struct Stream<'a> {
    number: usize,
    plan: &'a Plan,
    hosts: &'a [Script; 2],
    course: &'a Course,
    /// The faults that it met.
    hits: Vec<Fault>,
    ran: &'a Ran,
}

/// A direction of a stream.
struct Direction<'a> {
    stream: &'a Stream<'a>,
    from: usize,
    sender: &'a Seen,
    receiver: &'a Seen,
    /// The ends of the two hosts' connections: the sender's and its node's, the receiver's node's and the receiver's.
    ends: [&'a End; 4],
}

type Kept = Result<(), String>;

/// Checks all streams of a schedule.
pub fn keeps(plan: &Plan, ran: &Ran) -> Kept {
    if let Some(wrong) = &ran.done.wrong {
        return Err(wrong.clone());
    }
    let stream = |(number, course)| Stream::new(number, plan, course, ran);
    let streams: Vec<Stream<'_>> = ran.streams.iter().enumerate().map(stream).collect();
    for stream in &streams {
        stream.keeps().map_err(|what| format!("stream {}: {what}", stream.number))?;
    }
    nothing_left(ran)?;
    at_rest(&streams)
}

impl<'a> Stream<'a> {
    fn new(number: usize, plan: &'a Plan, course: &'a Course, ran: &'a Ran) -> Self {
        let hits = ran.struck.iter().filter_map(|struck| struck.hits(number, &course.path)).collect();
        Self { number, plan, hosts: plan.hosts(number), course, hits, ran }
    }

    fn keeps(&self) -> Kept {
        for from in [0, 1] {
            match self.is_whole_path() {
                true => self.direction(from).keeps()?,
                false => self.unopened(from)?,
            }
        }
        self.limits()
    }

    /// Whether its request has come to the destination.
    fn is_whole_path(&self) -> bool {
        self.course.path.len() == self.plan.nodes + 1
    }

    fn legs(&self) -> &[usize] {
        let legs = &self.course.path[1..];
        &legs[..legs.len().min(self.plan.nodes - 1)]
    }

    /// Both hosts hear of a stream that was not opened, and of nothing else.
    fn unopened(&self, from: usize) -> Kept {
        let hosts = &self.course.hosts;
        let ensure = |holds: bool, what: &str| if holds { Ok(()) } else { Err(format!("{what}; {hosts:?}")) };
        ensure(!self.hits.is_empty(), "nothing hindered it, and it was not opened")?;
        let host = &hosts[from];
        ensure(host.read == 0 && host.end != Some(Ending::Clean), "bytes, or an end, of a stream that was not opened")?;
        let is_told = host.at_ms <= self.course.began_ms + HEARD_MS;
        ensure(is_told || !self.hosts[from].reads_on(), "it is not told that it was not opened")
    }

    fn direction(&'a self, from: usize) -> Direction<'a> {
        let Course { hosts, path, .. } = self.course;
        let World { ends, .. } = &self.ran.world;
        let (client, server) = (2 * path[0], 2 * path[self.plan.nodes] + 1);
        let mut ends = [client, client ^ 1, server ^ 1, server].map(|end| &ends[end]);
        if from == 1 {
            ends.reverse();
        }
        Direction { stream: self, from, sender: &hosts[from], receiver: &hosts[1 - from], ends }
    }

    fn is_undisturbed(&self) -> bool {
        self.hits.is_empty() && !self.plan.is_limited()
    }

    /// Whether nothing hinders the two hosts from seeing each other's end.
    fn is_fair(&self) -> bool {
        // Where there is no place for it, what a client has left behind is given up after a minute.
        let may_pause = self.plan.has_place || self.hosts.iter().all(|host| host.stalls.is_none());
        self.is_undisturbed() && may_pause && self.hosts.iter().all(Script::behaves)
    }

    /// Whether something else than the host `from` may end the stream, or keep others from hearing of it.
    fn matters(&self, from: usize) -> bool {
        self.hits.iter().any(|fault| *fault != Fault::HostResets(from))
    }

    /// It does not run, or stand still, for longer than it may.
    fn limits(&self) -> Kept {
        let last = Duration::from_millis(self.course.last_ms);
        let Limits { idle, lifetime } = self.plan.limits;
        for (node, span) in self.ran.done.ran[self.number].iter().enumerate() {
            let Some(span) = span else { continue };
            let [began, ended] = [span.began_ms, span.ended_ms].map(Duration::from_millis);
            // Whether anything has moved is checked four times within the time limit, which starts anew once a connection has broken.
            let bounds = [lifetime.map(|most| began + most), idle.map(|idle| last.max(began) + idle * 3)];
            if bounds.into_iter().flatten().any(|bound| ended > bound + SLACK) {
                let limits = self.plan.limits;
                return Err(format!(
                    "node {node}: {limits:?}, and it ran from {began:?} to {ended:?}, the last at {last:?}"
                ));
            }
        }
        Ok(())
    }
}

impl Direction<'_> {
    /// What the sender has said, and what the other host has seen of it.
    fn keeps(&self) -> Kept {
        if let Some(wrong) = &self.receiver.wrong {
            return self.ensure(false, wrong);
        }
        self.end_was_said()?;
        self.dead_nodes_kernel_delivers()?;
        self.reset_is_passed_on()?;
        self.refusal_is_told()?;
        let Stream { hosts, course, .. } = self.stream;
        let both_wait = hosts.iter().all(|host| host.finish == Finish::Waits);
        if hosts.iter().all(Script::reads_on) && !both_wait {
            self.ensure(self.receiver.at_ms <= course.began_ms + HEARD_MS, "it is left alone")?;
        }
        self.what_came_is_passed_on()
    }

    fn ensure(&self, holds: bool, what: &str) -> Kept {
        let Self { from, sender, receiver, .. } = self;
        if holds { Ok(()) } else { Err(format!("{what}; host {from}: {sender:?}, the other: {receiver:?}")) }
    }

    fn is_whole(&self) -> bool {
        self.receiver.read == self.sender.written
    }

    /// Whether an end has come to the receiver. It is the end also for a host one of whose calls has failed before.
    fn has_heard(&self) -> bool {
        self.ends[3].was_told_end()
    }

    /// Whether the receiver takes all that there is for it, and soon.
    fn is_read(&self) -> bool {
        self.stream.hosts[1 - self.from].reads_on()
    }

    fn end_was_said(&self) -> Kept {
        let Self { sender, receiver, .. } = self;
        let is_clean = receiver.end == Some(Ending::Clean);
        self.ensure(receiver.read <= sender.written, "more arrives than was written")?;
        self.ensure(!self.has_heard() || sender.has_said_end, "its kernel was sent an end that was not said")?;
        self.ensure(!is_clean || sender.has_said_end, "an end that was not said")?;
        self.ensure(!is_clean || self.is_whole(), "an end, and not all")?;
        self.ensure(!self.stream.is_fair() || is_clean && self.is_whole(), "nothing hindered it")
    }

    /// Once both ends were said, the kernel delivers, whatever becomes of the process.
    fn dead_nodes_kernel_delivers(&self) -> Kept {
        let Stream { plan, hits, ran, number, .. } = self.stream;
        let node = if self.from == 0 { plan.nodes - 1 } else { 0 };
        let dies = matches!(hits[..], [Fault::Kill(of) | Fault::Stop(of)] if of == node);
        let stays = self.is_read() && self.receiver.has_reset_at.is_none();
        let has_ended = ran.done.ran[*number][node].is_some_and(|span| span.has_ended);
        let must = dies && has_ended && stays && !plan.is_limited();
        self.ensure(!must || self.has_heard() && self.is_whole(), "its node had both ends")
    }

    /// A receiver that does not read is reset in time, too, if it was sent no end.
    fn reset_is_passed_on(&self) -> Kept {
        let Self { sender, receiver, ends: [.., end], .. } = self;
        let by_none_else = !sender.has_said_end && !self.stream.matters(self.from);
        let Some(latest) = sender.has_reset_at.filter(|_| by_none_else).map(|reset| reset + PASSED_ON_MS) else {
            return Ok(());
        };
        let is_over = receiver.at_ms <= latest || end.is_broken && end.broke_ms <= latest;
        self.ensure(is_over, "a reset is not passed on")
    }

    /// The receiver had ended and was gone: the sender learns that its data is refused, or has ended meanwhile.
    fn refusal_is_told(&self) -> Kept {
        let Self { sender, receiver, ends: [end, _, gone, _], .. } = self;
        let is_refused = receiver.has_said_end && gone.is_broken && gone.has_end;
        if !is_refused || !self.stream.hosts[self.from].reads_on() || !self.stream.is_undisturbed() {
            return Ok(());
        }
        let latest = gone.broke_ms + REFUSED_MS;
        let is_told = end.is_broken && end.broke_ms <= latest;
        self.ensure(is_told || sender.left_ms <= latest, "it is not told that it is refused")
    }

    /// What had come to the first node when the connection there ended.
    fn what_came_is_passed_on(&self) -> Kept {
        let Self { stream, from, sender, receiver, ends: [_, end, ..] } = self;
        if !stream.is_undisturbed() || !self.is_read() {
            return Ok(());
        }
        let first = if *from == 0 { stream.plan.first(stream.number) } else { 0 };
        let came = end.received_total as usize + first;
        self.ensure(receiver.read >= came, &format!("{came} bytes had come to the node"))?;
        self.ensure(!end.was_told_end() || self.has_heard() && self.is_whole(), "its end had come to the node")?;
        let has_reset_at = sender.has_reset_at.filter(|_| stream.hosts[*from].finish != Finish::ShutsDown);
        let is_in_time = has_reset_at.is_none_or(|reset| receiver.at_ms <= reset + SAID_MS);
        self.ensure(is_in_time, "the other host heard of it late")
    }
}

/// Nothing is left on connections between nodes that may carry another stream.
fn nothing_left(ran: &Ran) -> Kept {
    for end in &ran.done.diallers {
        let (left, leg) = (ran.world.ends[end.0].received.len(), end.0 / 2);
        if left > 0 {
            return Err(format!("{left} bytes are left at the dialler of connection {leg}"));
        }
        if ran.done.refused.contains(&leg) {
            return Err(format!("connection {leg} rests at its dialler, which has refused what came on it"));
        }
    }
    Ok(())
}

/// Legs rest after a stream that nothing has hindered, and the next one goes over them.
fn at_rest(streams: &[Stream<'_>]) -> Kept {
    let is_fair = |stream: &Stream<'_>| {
        let hits_legs = |struck: &Struck| struck.hits_legs(stream.legs());
        stream.plan.has_place && stream.is_fair() && !stream.ran.struck.iter().any(hits_legs)
    };
    for (number, stream) in streams.iter().enumerate().filter(|(_, stream)| is_fair(stream)) {
        let done = &stream.ran.done;
        let rests = |leg| done.rests.contains(leg) && done.diallers.iter().any(|end| end.0 / 2 == *leg);
        match streams.get(number + 1) {
            None if number == 0 && stream.plan.second.is_some() => {
                return Err(format!("nothing hindered it, and no other stream followed: {done:?}"));
            }
            None if !stream.legs().iter().all(rests) => {
                return Err(format!("nothing hindered it, and not all legs are at rest: {done:?}"));
            }
            Some(next) if !stream.legs().starts_with(next.legs()) => {
                return Err(format!("nothing hindered it, and the next one took other legs: {:?}", next.course.path));
            }
            _ => {}
        }
    }
    Ok(())
}
