//! Counts the bytes that this process holds for others: those that were read and could not yet be written, in memory and in
//! pipes, and those of connections whose other end has not proven its identity yet.
//!
//! One stream holds little, but there may be many. From half of the limit on, streams move smaller pieces. At the limit no
//! new stream begins. A running stream never waits until another frees memory.
//!
//! No client fills it alone: what a connection's task holds counts also for its [`Payer`], once that is known. A payer that
//! holds its share begins no new stream, and its running streams move very small pieces.

use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// For all nodes of the process together, because they share its memory.
static HELD: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

tokio::task_local! {
    static PAYER: RefCell<Option<(Arc<Payer>, Share)>>;
}

/// The bytes that are held for one client, or one other node.
#[derive(Debug, Default)]
pub struct Payer(AtomicUsize);

#[cfg(test)]
impl Payer {
    /// The bytes that are held for it now.
    pub fn held(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// The part of the limit that one payer may hold.
#[derive(Debug, Clone, Copy)]
pub enum Share {
    /// A quarter: a client's. What it has others hold behind this node is as much again.
    Quarter,
    /// Half: that of a node, which has clients of its own.
    Half,
}

/// How much memory there is for a stream's next piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// As much as it wants.
    Plenty,
    /// Half of the limit is reached.
    Scarce,
    /// Its payer's share is reached.
    Overdrawn,
}

/// The bytes that one holder holds. They count until it is dropped. Most hold none at any time: one pointer is little.
#[derive(Debug, Default)]
pub struct Holding(Option<Box<Held>>);

#[derive(Debug, Default)]
struct Held {
    bytes: u32,
    payer: Option<Arc<Payer>>,
}

impl Holding {
    /// Sets how many bytes it holds.
    pub fn set(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if bytes == 0 && self.0.is_none() {
            return;
        }
        let held = self.0.get_or_insert_default();
        if bytes == held.bytes {
            return;
        }
        // The payer is known before a stream holds its first byte, and does not change while it holds any.
        if held.bytes == 0 && bytes > 0 {
            held.payer = PAYER.try_with(|payer| Some(payer.borrow().as_ref()?.0.clone())).ok().flatten();
        }
        let counts = [Some(&HELD), held.payer.as_deref().map(|payer| &payer.0)];
        for count in counts.into_iter().flatten() {
            if bytes > held.bytes {
                count.fetch_add((bytes - held.bytes) as usize, Ordering::Relaxed);
            } else {
                count.fetch_sub((held.bytes - bytes) as usize, Ordering::Relaxed);
            }
        }
        held.bytes = bytes;
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// A task for which [`pays`] can set the payer of what it holds.
pub fn paid<F: Future>(task: F) -> impl Future<Output = F::Output> {
    PAYER.scope(RefCell::default(), task)
}

/// From now on `payer` pays for what this task holds, and may hold `share` of the limit.
pub fn pays(payer: Arc<Payer>, share: Share) {
    // Outside of a connection's task there is no payer.
    let _ = PAYER.try_with(|of| of.replace(Some((payer, share))));
}

/// Sets the limit, in bytes.
pub fn limit(bytes: usize) {
    LIMIT.store(bytes, Ordering::Relaxed);
}

/// The bytes that are held now.
pub fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// Whether the limit is reached, so that nothing new may begin.
pub fn is_full() -> bool {
    held() >= LIMIT.load(Ordering::Relaxed)
}

/// Whether the share of this task's payer is reached, so that it may begin nothing new.
pub fn is_overdrawn() -> bool {
    let is_reached = |(payer, share): &(Arc<Payer>, Share)| {
        let part = match share {
            Share::Quarter => 4,
            Share::Half => 2,
        };
        payer.0.load(Ordering::Relaxed) >= LIMIT.load(Ordering::Relaxed) / part
    };
    PAYER.try_with(|payer| payer.borrow().as_ref().is_some_and(is_reached)).unwrap_or(false)
}

/// How much memory there is for the next piece of a stream of this task.
pub fn room() -> Room {
    if is_overdrawn() {
        Room::Overdrawn
    } else if held() >= LIMIT.load(Ordering::Relaxed) / 2 {
        Room::Scarce
    } else {
        Room::Plenty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The counts are the process's, so other tests hold some too: all here are of the payers.
    #[tokio::test]
    async fn who_holds_a_share_is_overdrawn_and_others_are_not() {
        let (one, other) = (Arc::new(Payer::default()), Arc::new(Payer::default()));
        let most = LIMIT.swap(1 << 30, Ordering::Relaxed);
        let greedy = paid(async {
            let mut before = Holding::default();
            before.set(1 << 20);
            pays(one.clone(), Share::Quarter);
            let mut holding = Holding::default();
            holding.set((1 << 28) - 1);
            assert_eq!(room(), Room::Plenty);
            holding.set(1 << 28);
            before.set(2 << 20);
            assert_eq!(room(), Room::Overdrawn);
            let modest = paid(async {
                pays(other.clone(), Share::Half);
                let mut holding = Holding::default();
                holding.set(1 << 28);
                assert_eq!(room(), Room::Scarce);
                holding
            });
            let held = modest.await;
            assert_eq!(other.0.load(Ordering::Relaxed), 1 << 28);
            drop(held);
            holding
        });
        let held = greedy.await;
        assert!(!is_overdrawn(), "nobody pays here");
        assert_eq!(one.0.load(Ordering::Relaxed), 1 << 28, "what was held before is nobody's");
        drop(held);
        assert_eq!((one.0.load(Ordering::Relaxed), other.0.load(Ordering::Relaxed)), (0, 0));
        LIMIT.store(most, Ordering::Relaxed);
    }
}
