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

use super::hosts::{HOSTS, Seen, host, written_by};
use super::nodes::{At, BEGUN, Begun, DONE, Done};
use super::plan::{Fault, Plan};
use super::second::Following;
use super::strike::Struck;
use super::tcp::{Event, World, world};
use super::wire::End;

/// No stream takes longer, by the schedule's clock: by then all has ended that can.
const LONGEST: Duration = Duration::from_secs(6000);
/// Nor has a schedule more steps.
const STEPS_MOST: usize = 1_000_000;

/// What came out of a schedule.
pub struct Ran {
    /// The first stream, and the second if there was one.
    pub streams: Vec<Course>,
    pub done: Done,
    pub steps: usize,
    /// The faults that happened.
    pub struck: Vec<Struck>,
    /// The connections, as they were left.
    pub world: World,
}

/// What became of a stream.
#[derive(Debug)]
pub struct Course {
    pub hosts: [Seen; 2],
    /// The numbers of its connections, from the client on: all, or up to where its request came.
    pub path: Vec<usize>,
    pub began_ms: u64,
    /// When something of it was last acknowledged.
    pub last_ms: u64,
}

pub struct Task {
    pub owner: Owner,
    /// The stream that it has begun with.
    pub stream: usize,
    pub future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    flag: Arc<Flag>,
    waker: Waker,
}

/// Whose task it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Node(usize),
    /// A node's too, which serves the leg of this number.
    Leg(usize, usize),
    Host(usize),
}

impl Owner {
    pub fn node(self) -> Option<usize> {
        match self {
            Self::Node(node) | Self::Leg(node, _) => Some(node),
            Self::Host(_) => None,
        }
    }

    fn rests(self, rests: &[usize]) -> bool {
        matches!(self, Self::Leg(_, leg) if rests.contains(&leg))
    }
}

/// Wakes a task, and the one that all of them run in, if that does not run now.
struct Flag {
    is_ready: AtomicBool,
    root: Arc<Root>,
}

/// The task that all others run in.
struct Root {
    waker: Waker,
    runs: AtomicBool,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_ready.swap(true, Ordering::Relaxed) && !self.root.runs.load(Ordering::Relaxed) {
            self.root.waker.wake_by_ref();
        }
    }
}

/// A schedule that runs.
pub struct Run {
    pub plan: Plan,
    random: Random,
    begin: Instant,
    root: Arc<Root>,
    pub tasks: Vec<Task>,
    pub seen: [Rc<RefCell<Seen>>; HOSTS],
    pub steps: usize,
    pub faults: Vec<(usize, Fault)>,
    pub struck: Vec<Struck>,
    /// The nodes whose processes have ended.
    pub gone: [bool; 4],
    /// The newest connection at each place of the chain.
    pub newest: Vec<usize>,
    pub following: Following,
}

/// Runs the schedule of a seed.
///
/// # Errors
/// It did not come to an end.
pub async fn run(seed: u64, plan: Plan, is_traced: bool) -> Result<Ran, String> {
    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    let mut run = Run::new(seed, plan, is_traced, waker);
    let mut timer = pin!(sleep_until(run.begin));
    let ended = poll_fn(|cx| {
        run.root.runs.store(true, Ordering::Relaxed);
        let ended = run.advance();
        run.root.runs.store(false, Ordering::Relaxed);
        if let Some(ended) = ended {
            return Poll::Ready(ended);
        }
        let due = world(|world| world.next_at()).into_iter().chain(run.following.opens_at());
        timer.as_mut().reset(run.begin + Duration::from_millis(due.fold(run.longest_ms(), u64::min)));
        // The deadline is in the future; this poll only registers the waker.
        let _ = timer.as_mut().poll(cx);
        Poll::Pending
    })
    .await;
    let unfinished: Vec<Owner> = run.tasks.iter().filter(|t| t.future.is_some()).map(|task| task.owner).collect();
    let ran = run.came();
    match ended {
        true => Ok(ran),
        false => Err(format!("it does not end: {unfinished:?} {:?}", ran.streams)),
    }
}

impl Run {
    fn new(seed: u64, plan: Plan, is_traced: bool, waker: Waker) -> Self {
        let tuning = plan.tuning;
        world(|world| {
            *world = World::default();
            (world.random, world.tuning, world.is_traced) = (Random::new(!seed), tuning, is_traced);
        });
        let mut run = Self {
            random: Random::new(seed.rotate_left(32)),
            begin: Instant::now(),
            root: Arc::new(Root { waker, runs: AtomicBool::new(false) }),
            tasks: Vec::new(),
            seen: Default::default(),
            steps: 0,
            faults: plan.faults.clone(),
            struck: Vec::new(),
            gone: [false; 4],
            newest: (0..=plan.nodes).collect(),
            following: Following::new(plan.second.as_ref()),
            plan,
        };
        run.begin_tasks();
        run
    }

    fn begin_tasks(&mut self) {
        let nodes = self.plan.nodes;
        let node_at = |place: usize| (1..=nodes).contains(&place).then(|| place - 1);
        let mut ends: Vec<Option<End>> = Vec::new();
        for (number, &line) in self.plan.lines.iter().enumerate() {
            let made = world(|world| world.connect([node_at(number), node_at(number + 1)], line));
            ends.extend(made.map(|end| Some(End(end))));
        }
        let mut take = |end: usize| ends[end].take().expect("each end has one owner");
        self.spawn_host(0, take(0));
        self.spawn_host(1, take(2 * nodes + 1));
        for node in 0..nodes {
            let (left, right) = (take(2 * node + 1), take(2 * node + 2));
            let right = if node + 1 == nodes { Side::host(right) } else { Side::node(right) };
            let at = self.at(node, 0);
            if node == 0 {
                let first = written_by(0)[..self.plan.first].to_vec();
                self.spawn(Owner::Node(0), 0, at.entry(Side::host(left), right, first));
            } else {
                self.spawn(Owner::Leg(node, node), 0, at.acceptor(left, right));
            }
        }
    }

    pub fn at(&self, node: usize, stream: usize) -> At {
        let is_exit = node + 1 == self.plan.nodes;
        let second = self.plan.second.as_ref().filter(|_| is_exit);
        let beyond = second.map_or(self.plan.lines[node + 1], |second| second.lines[1]);
        At { node, stream, limits: self.plan.limits, has_place: self.plan.has_place, is_exit, beyond }
    }

    pub fn spawn(&mut self, owner: Owner, stream: usize, future: impl Future<Output = ()> + 'static) {
        let flag = Arc::new(Flag { is_ready: AtomicBool::new(true), root: self.root.clone() });
        let waker = Waker::from(flag.clone());
        self.tasks.push(Task { owner, stream, future: Some(Box::pin(future)), flag, waker });
    }

    pub fn spawn_host(&mut self, number: usize, end: End) {
        let (stream, seen) = (number / 2, self.seen[number].clone());
        if number.is_multiple_of(2) {
            seen.borrow_mut().written = self.plan.first(stream);
        }
        let script = self.plan.hosts(stream)[number % 2].clone();
        self.spawn(Owner::Host(number), stream, host(number, script, end, seen));
    }

    /// All that can be done now. Then whether the schedule has ended, and as it should.
    fn advance(&mut self) -> Option<bool> {
        let now_ms = self.begin.elapsed().as_millis() as u64;
        world(|world| world.now_ms = now_ms);
        loop {
            while self.step() {
                self.steps += 1;
                self.strike();
                self.follow(false);
                if self.steps > STEPS_MOST {
                    return Some(false);
                }
            }
            let has_ended = self.has_ended();
            if !self.follow(has_ended) {
                let has_ended = has_ended && !self.following.is_awaited();
                return (has_ended || now_ms >= self.longest_ms()).then_some(has_ended);
            }
        }
    }

    fn has_ended(&self) -> bool {
        DONE.with_borrow(|done| self.tasks.iter().all(|task| task.future.is_none() || task.owner.rests(&done.rests)))
    }

    /// When the schedule must have ended, by its clock.
    fn longest_ms(&self) -> u64 {
        self.following.began_ms().unwrap_or(0) + LONGEST.as_millis() as u64
    }

    /// One step of those that can be done. False if there is none.
    fn step(&mut self) -> bool {
        let (news, is_due) = world(|world| (world.news.len(), world.next_at().is_some_and(|at| at <= world.now_ms)));
        let mut ready = [0; 16];
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
        if future.as_mut().poll(&mut Context::from_waker(&task.waker)).is_ready() {
            task.future = None;
        }
        let stream = task.stream;
        for begun in BEGUN.take() {
            match begun {
                Begun::Left(node, left) => self.spawn(Owner::Node(node), stream, left),
                Begun::Dialled(place, end) => self.accept(place, end),
            }
        }
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
