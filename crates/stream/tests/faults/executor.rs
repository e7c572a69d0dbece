//! Runs a schedule: one step after another, in an order that the seed draws, at virtual times.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use ekiden_stream::duplex::Side;
use ekiden_units::random::Random;
use tokio::time::{Instant, sleep_until};

use super::hosts::{Seen, host, written_by};
use super::nodes::{At, DONE, Done, LEFT};
use super::plan::{Fault, Plan};
use super::tcp::{Event, World, world};
use super::wire::End;

/// No schedule takes longer, by its clock: by then all has ended that can.
const LONGEST: Duration = Duration::from_secs(6000);
/// Nor has it more steps.
const STEPS_MOST: usize = 1_000_000;

/// What came out of a schedule.
pub struct Ran {
    pub hosts: [Seen; 2],
    pub done: Done,
    pub steps: usize,
    /// The connections, as they were left.
    pub world: World,
}

struct Task {
    owner: Owner,
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    flag: Arc<Flag>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Node(usize),
    Host(usize),
}

impl Owner {
    fn rests(self, rests: [bool; 4]) -> bool {
        matches!(self, Self::Node(node) if rests[node])
    }
}

/// Wakes a task, and the one that all of them run in.
struct Flag {
    is_ready: AtomicBool,
    root: Waker,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_ready.swap(true, Ordering::Relaxed) {
            self.root.wake_by_ref();
        }
    }
}

struct Run {
    plan: Plan,
    random: Random,
    begin: Instant,
    tasks: Vec<Task>,
    seen: [Rc<RefCell<Seen>>; 2],
    steps: usize,
    faults: Vec<(usize, Fault)>,
}

/// Runs the schedule of a seed.
///
/// # Errors
/// It did not come to an end.
pub async fn run(seed: u64, plan: Plan, is_traced: bool) -> Result<Ran, String> {
    let root = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    let mut run = Run::new(seed, plan, is_traced, &root);
    let mut timer = pin!(sleep_until(run.begin));
    let ended = poll_fn(|cx| {
        let ended = run.advance();
        if let Some(ended) = ended {
            return Poll::Ready(ended);
        }
        let next = world(|world| world.next_at()).map(|at| run.begin + Duration::from_millis(at));
        let next = next.into_iter().chain([run.begin + LONGEST]).min().unwrap_or(run.begin);
        timer.as_mut().reset(next);
        // The deadline is in the future; this poll only registers the waker.
        let _ = timer.as_mut().poll(cx);
        Poll::Pending
    })
    .await;
    let unfinished: Vec<Owner> = run.tasks.iter().filter(|t| t.future.is_some()).map(|task| task.owner).collect();
    let Run { tasks, seen, steps, .. } = run;
    drop(tasks);
    let hosts = seen.map(|seen| Rc::into_inner(seen).expect("its host has ended").into_inner());
    let done = DONE.take();
    let ran = Ran { hosts, done, steps, world: world(std::mem::take) };
    match ended {
        true => Ok(ran),
        false => Err(format!("it does not end: {unfinished:?} {:?}", ran.hosts)),
    }
}

impl Run {
    fn new(seed: u64, plan: Plan, is_traced: bool, root: &Waker) -> Self {
        let tuning = plan.tuning;
        world(|world| {
            *world = World::default();
            (world.random, world.tuning, world.is_traced) = (Random::new(!seed), tuning, is_traced);
        });
        let (seen, begin) = (<[Rc<RefCell<Seen>>; 2]>::default(), Instant::now());
        let faults = plan.faults.clone();
        let random = Random::new(seed.rotate_left(32));
        let mut run = Self { plan, random, begin, tasks: Vec::new(), seen, steps: 0, faults };
        run.begin_tasks(root);
        run
    }

    fn begin_tasks(&mut self, root: &Waker) {
        let nodes = self.plan.nodes;
        let node_at = |place: usize| (1..=nodes).contains(&place).then(|| place - 1);
        let mut ends: Vec<Option<End>> = Vec::new();
        for (number, &line) in self.plan.lines.iter().enumerate() {
            let made = world(|world| world.connect([node_at(number), node_at(number + 1)], line));
            ends.extend(made.map(|end| Some(End(end))));
        }
        let mut take = |end: usize| ends[end].take().expect("each end has one owner");
        self.seen[0].borrow_mut().written = self.plan.first;
        let client = host(0, self.plan.hosts[0].clone(), take(0), self.seen[0].clone());
        let server = host(1, self.plan.hosts[1].clone(), take(2 * nodes + 1), self.seen[1].clone());
        self.spawn(root, Owner::Host(0), client);
        self.spawn(root, Owner::Host(1), server);
        for node in 0..nodes {
            let (left, right) = (take(2 * node + 1), take(2 * node + 2));
            let right = if node + 1 == nodes { Side::host(right) } else { Side::node(right) };
            let at = At { node, limits: self.plan.limits, has_place: self.plan.has_place };
            if node == 0 {
                let first = written_by(0)[..self.plan.first].to_vec();
                self.spawn(root, Owner::Node(0), at.entry(Side::host(left), right, first));
            } else {
                self.spawn(root, Owner::Node(node), at.acceptor(Side::node(left), right));
            }
        }
    }

    fn spawn(&mut self, root: &Waker, owner: Owner, future: impl Future<Output = ()> + 'static) {
        let flag = Arc::new(Flag { is_ready: AtomicBool::new(true), root: root.clone() });
        self.tasks.push(Task { owner, future: Some(Box::pin(future)), flag });
    }

    /// All that can be done now. Then whether the schedule has ended, and as it should.
    fn advance(&mut self) -> Option<bool> {
        let now = self.begin.elapsed();
        world(|world| world.now_ms = now.as_millis() as u64);
        while self.step() {
            self.steps += 1;
            if let Some(place) = self.faults.iter().position(|fault| fault.0 <= self.steps) {
                let (_, fault) = self.faults.swap_remove(place);
                self.apply(fault);
            }
            if self.steps > STEPS_MOST {
                return Some(false);
            }
        }
        let rests = DONE.with_borrow(|done| done.rests);
        let has_ended = self.tasks.iter().all(|task| task.future.is_none() || task.owner.rests(rests));
        (has_ended || now >= LONGEST).then_some(has_ended)
    }

    /// One step of those that can be done. False if there is none.
    fn step(&mut self) -> bool {
        let (news, is_due) = world(|world| (world.news.len(), world.next_at().is_some_and(|at| at <= world.now_ms)));
        let mut ready = [0; 8];
        let mut count = 0;
        for (number, task) in self.tasks.iter().enumerate() {
            if task.future.is_some() && task.flag.is_ready.load(Ordering::Relaxed) && count < ready.len() {
                ready[count] = number;
                count += 1;
            }
        }
        let all = news + count + usize::from(is_due);
        if all == 0 {
            return false;
        }
        let chosen = self.random.up_to(all as u64 - 1) as usize;
        if chosen < news {
            world(|world| {
                let end = world.news.swap_remove(chosen);
                world.learn(end);
            });
        } else if chosen < news + count {
            self.poll(ready[chosen - news]);
        } else {
            world(World::happens);
        }
        if self.random.up_to(999) < self.plan.tuning.spurious {
            let woken = self.random.up_to(self.tasks.len() as u64 - 1) as usize;
            self.tasks[woken].flag.is_ready.store(true, Ordering::Relaxed);
        }
        true
    }

    fn poll(&mut self, number: usize) {
        let task = &mut self.tasks[number];
        task.flag.is_ready.store(false, Ordering::Relaxed);
        let Some(future) = &mut task.future else { return };
        let waker = Waker::from(task.flag.clone());
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            task.future = None;
        }
        let root = task.flag.root.clone();
        for (node, left) in LEFT.take() {
            self.spawn(&root, Owner::Node(node), left);
        }
    }

    fn apply(&mut self, fault: Fault) {
        world(|world| world.trace(|| format!("{fault:?}")));
        match fault {
            Fault::Kill(node) => {
                world(|world| world.kill(node));
                self.end(Owner::Node(node));
            }
            Fault::Stop(node) => self.end(Owner::Node(node)),
            Fault::Cut(connection) => world(|world| world.cut(connection)),
            Fault::CutOff(connection) => world(|world| world.cut_off(connection)),
            Fault::HostResets(host) => self.host_resets(host),
        }
    }

    fn end(&mut self, owner: Owner) {
        self.tasks.iter_mut().filter(|task| task.owner == owner).for_each(|task| task.future = None);
    }

    fn host_resets(&mut self, host: usize) {
        let mut seen = self.seen[host].borrow_mut();
        if self.tasks[host].future.is_none() {
            return;
        }
        let end = if host == 0 { 0 } else { 2 * self.plan.nodes + 1 };
        let now = world(|world| {
            world.reset(end);
            world.now_ms
        });
        seen.has_reset_at = Some(now);
        (seen.at_ms, seen.left_ms) = (now, now);
        drop(seen);
        self.end(Owner::Host(host));
    }
}

impl World {
    /// The next event happens.
    fn happens(&mut self) {
        let Some(event) = self.pop() else { return };
        self.trace(|| format!("{event:?}"));
        match event {
            Event::Arrives(end, segment) => self.arrives(end, segment),
            Event::Tells(end) => self.tell(end),
            Event::TimesOut(end) => self.breaks(end, std::io::ErrorKind::TimedOut),
            Event::Forgets(end, acked) => self.forgets(end, acked),
        }
    }
}
