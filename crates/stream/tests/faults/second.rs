//! The second stream of a schedule. It is opened once the legs of the first one rest, or nothing of that goes on.

use ekiden_stream::between_streams::BetweenStreams;
use ekiden_stream::duplex::Side;

use super::executor::{Course, Owner, Ran, Run};
use super::hosts::written_by;
use super::nodes::DONE;
use super::plan::Second;
use super::tcp::world;
use super::wire::End;

/// Whether a second stream follows, and when.
pub enum Following {
    None,
    /// Once the legs rest.
    Awaited,
    /// At this time.
    Due(u64),
    /// It began at this time. Something of the first one was last acknowledged at the other one.
    Began(u64, u64),
}

impl Following {
    pub fn new(second: Option<&Second>) -> Self {
        second.map_or(Self::None, |_| Self::Awaited)
    }

    pub fn is_awaited(&self) -> bool {
        matches!(self, Self::Awaited | Self::Due(_))
    }

    pub fn opens_at(&self) -> Option<u64> {
        if let Self::Due(at) = self { Some(*at) } else { None }
    }

    pub fn began_ms(&self) -> Option<u64> {
        if let Self::Began(at, _) = self { Some(*at) } else { None }
    }
}

impl Run {
    /// Looks whether it is time for the second stream; `has_ended`: nothing of the first one goes on. Whether anything has changed.
    pub fn follow(&mut self, has_ended: bool) -> bool {
        let now_ms = || world(|world| world.now_ms);
        match self.following {
            Following::Awaited if has_ended || is_at_rest() => self.is_due(now_ms()),
            Following::Due(at) if at <= now_ms() => self.open(now_ms()),
            _ => return false,
        }
        true
    }

    /// The legs rest: faults between the two streams happen now.
    fn is_due(&mut self, now_ms: u64) {
        let Some(second) = &self.plan.second else { return };
        self.following = Following::Due(now_ms + second.after_ms);
        self.faults.extend(second.faults.iter().map(|(steps, fault)| (self.steps + steps, *fault)));
        while self.strike() {}
    }

    fn open(&mut self, now_ms: u64) {
        self.following = Following::None;
        let may_open = !self.gone.contains(&true) && DONE.with_borrow(|done| !done.diallers.is_empty());
        let Some(second) = self.plan.second.as_ref().filter(|_| may_open) else { return };
        let made = world(|world| world.connect([None, Some(0)], second.lines[0]));
        let connection = made[0] / 2;
        let first = written_by(2)[..second.first].to_vec();
        let last_ms = world(|world| world.progress_ms(&self.first_path()));
        self.following = Following::Began(now_ms, last_ms);
        self.newest[0] = connection;
        DONE.with_borrow_mut(|done| done.path.push(connection));
        let [host, node] = made.map(End);
        self.spawn_host(2, host);
        self.spawn(Owner::Node(0), 1, self.at(0, 1).opens(Side::host(node), first));
    }

    /// The far end of a connection that a node has dialled at this place of the chain.
    pub fn accept(&mut self, place: usize, end: End) {
        let leg = end.0 / 2;
        self.newest[place] = leg;
        if place == self.plan.nodes {
            self.spawn_host(3, end);
        } else if self.gone[place] {
            world(|world| world.reset(end.0));
            std::mem::forget(end);
        } else {
            self.spawn(Owner::Leg(place, leg), 1, self.at(place, 1).serves_others(Some(BetweenStreams::new(end))));
        }
    }

    fn first_path(&self) -> Vec<usize> {
        (0..=self.plan.nodes).collect()
    }

    /// What came out of it.
    pub fn came(self) -> Ran {
        let path = self.first_path();
        let Self { tasks, seen, steps, following, struck, .. } = self;
        drop(tasks);
        let (mut done, world) = (DONE.take(), world(std::mem::take));
        let mut seen = seen.map(|seen| seen.take()).into_iter();
        let mut hosts = || [(); 2].map(|()| seen.next().expect("two hosts for each of two streams"));
        let last_ms = match following {
            Following::Began(_, last_ms) => last_ms,
            _ => world.progress_ms(&path),
        };
        let mut streams = vec![Course { hosts: hosts(), path, began_ms: 0, last_ms }];
        if let Following::Began(began_ms, _) = following {
            let path = std::mem::take(&mut done.path);
            let last_ms = world.progress_ms(&path);
            streams.push(Course { hosts: hosts(), path, began_ms, last_ms });
        }
        Ran { streams, done, steps, struck, world }
    }
}

/// Whether the client's node has a leg at rest.
fn is_at_rest() -> bool {
    DONE.with_borrow(|done| done.diallers.iter().any(|leg| world(|world| world.ends[leg.0].node == Some(0))))
}
