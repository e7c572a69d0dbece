//! Faults: what they do, and to which streams.

use super::executor::{Owner, Run, Task};
use super::plan::Fault;
use super::second::Following;
use super::tcp::world;

/// A fault that happened, with the numbers of the connection or the host.
#[derive(Debug, Clone, Copy)]
pub struct Struck {
    fault: Fault,
    /// Whether something of the first stream went on.
    first_goes_on: bool,
    /// Whether the first stream's legs were at rest.
    first_rests: bool,
    second_has_begun: bool,
}

impl Struck {
    /// The fault as this stream met it, if it did. The stream went over these connections.
    pub fn hits(&self, stream: usize, path: &[usize]) -> Option<Fault> {
        let goes_on = [self.first_goes_on, self.second_has_begun][stream];
        let is_leg = |connection| !path.starts_with(&[connection]) && !path.ends_with(&[connection]);
        let does = match self.fault {
            Fault::Kill(_) | Fault::Stop(_) => goes_on,
            // A connection that was hit before may be taken for the second stream.
            Fault::Cut(c) | Fault::CutOff(c) if stream > 0 => path.contains(&c),
            Fault::Cut(c) | Fault::CutOff(c) => goes_on && path.contains(&c) && !(self.first_rests && is_leg(c)),
            Fault::HostResets(host) => host / 2 == stream,
        };
        let fault = if let Fault::HostResets(host) = self.fault { Fault::HostResets(host % 2) } else { self.fault };
        does.then_some(fault)
    }

    /// Whether it is one for these legs, also if they were at rest.
    pub fn hits_legs(&self, legs: &[usize]) -> bool {
        match self.fault {
            Fault::Kill(_) | Fault::Stop(_) => true,
            Fault::Cut(connection) | Fault::CutOff(connection) => legs.contains(&connection),
            Fault::HostResets(_) => false,
        }
    }
}

impl Run {
    /// A fault that is due happens. False if none is due.
    pub fn strike(&mut self) -> bool {
        let Some(place) = self.faults.iter().position(|fault| fault.0 <= self.steps) else { return false };
        let (_, fault) = self.faults.swap_remove(place);
        world(|world| world.trace(|| format!("{fault:?}")));
        let second_has_begun = self.following.began_ms().is_some();
        let fault = match fault {
            Fault::HostResets(host) => Fault::HostResets(host + if second_has_begun { 2 } else { 0 }),
            Fault::Cut(place) => Fault::Cut(self.newest[place]),
            Fault::CutOff(place) => Fault::CutOff(self.newest[place]),
            other => other,
        };
        let first_rests = !matches!(self.following, Following::None | Following::Awaited);
        let struck = Struck { fault, first_goes_on: self.first_goes_on(first_rests), first_rests, second_has_begun };
        if self.apply(fault) {
            self.struck.push(struck);
        }
        true
    }

    /// Whether something of the first stream goes on. Once its first leg `rests`, none of the nodes behind has anything of it.
    fn first_goes_on(&self, rests: bool) -> bool {
        let goes_on = |owner| !matches!(owner, Owner::Leg(..)) || !rests;
        self.tasks.iter().any(|task| task.stream == 0 && task.future.is_some() && goes_on(task.owner))
    }

    /// Returns whether anything has happened: a host that has ended does not reset.
    fn apply(&mut self, fault: Fault) -> bool {
        match fault {
            Fault::Kill(node) => {
                world(|world| world.kill(node));
                self.end(node);
            }
            Fault::Stop(node) => self.end(node),
            Fault::Cut(connection) => world(|world| world.cut(connection)),
            Fault::CutOff(connection) => world(|world| world.cut_off(connection)),
            Fault::HostResets(host) => return self.host_resets(host),
        }
        true
    }

    fn end(&mut self, node: usize) {
        self.gone[node] = true;
        self.tasks.iter_mut().filter(|task| task.owner.node() == Some(node)).for_each(|task| task.future = None);
    }

    fn host_resets(&mut self, host: usize) -> bool {
        let is_it = |task: &&mut Task| task.owner == Owner::Host(host) && task.future.is_some();
        let Some(task) = self.tasks.iter_mut().find(is_it) else { return false };
        let place = if host.is_multiple_of(2) { 0 } else { self.plan.nodes };
        let now = world(|world| {
            world.reset(2 * self.newest[place] + host % 2);
            world.now_ms
        });
        task.future = None;
        let mut seen = self.seen[host].borrow_mut();
        seen.has_reset_at = Some(now);
        (seen.at_ms, seen.left_ms) = (now, now);
        true
    }
}
