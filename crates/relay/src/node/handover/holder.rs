//! Whose the sockets of a listener are, of a process that stops.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Instant;

use ekiden_net::steer;
use tokio::sync::watch;

/// Whose a listening socket is that is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Of this process.
    Here,
    /// Of this process until another takes it, which is about to.
    Asked,
    /// Of this process, while another waits for the address, which cannot have the sockets: its settings differ.
    Wanted,
    /// Of the process that comes after it as well, which does not accept yet. Nor does this one.
    Lent,
    /// Of the process that comes after it as well, which accepts from now on.
    Passed,
}

/// Whose the sockets of a listener are, which all of their workers hear.
#[derive(Debug)]
pub struct Holder {
    held: watch::Sender<Held>,
    /// How many are promised the sockets. As the two below, it changes together with `held`.
    promised: AtomicUsize,
    /// Whether another process has, or had, the sockets. What it hears by them is its own from then on.
    was_lent: AtomicBool,
    /// Since when they are this process's again.
    back: Mutex<Option<Instant>>,
}

impl Holder {
    pub fn here() -> Arc<Self> {
        let (held, promised, was_lent) = (watch::Sender::new(Held::Here), AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Self { held, promised, was_lent, back: Mutex::default() })
    }

    pub fn subscribe(&self) -> watch::Receiver<Held> {
        self.held.subscribe()
    }

    /// Whose they are.
    pub fn held(&self) -> Held {
        *self.held.borrow()
    }

    /// Changes it if it is `from`. Whether it was.
    pub fn becomes(&self, from: Held, to: Held) -> bool {
        self.held.send_if_modified(|held| {
            let does = *held == from;
            *held = if does { to } else { *held };
            does
        })
    }

    /// Does this unless another process is promised the sockets or has them, and before one can be. Whether it was done.
    pub fn while_here(&self, work: impl FnOnce()) -> bool {
        let mut is_here = false;
        self.held.send_if_modified(|held| {
            is_here = matches!(held, Held::Here | Held::Wanted);
            if is_here {
                work();
            }
            false
        });
        is_here
    }

    /// Lets no connection begin on `socket` from now on, where no other process has it or is promised it.
    pub fn ignore_new(&self, socket: &TcpListener) {
        self.while_here(|| {
            if !self.was_lent.load(Ordering::Relaxed) {
                ignore_new(socket);
            }
        });
    }

    /// Promises them to one more, if this process still has them.
    pub fn promise(&self) -> bool {
        let mut is_promised = false;
        self.held.send_if_modified(|held| {
            is_promised = matches!(held, Held::Here | Held::Asked);
            self.promised.fetch_add(usize::from(is_promised), Ordering::Relaxed);
            is_promised && std::mem::replace(held, Held::Asked) != Held::Asked
        });
        is_promised
    }

    /// Gives them to one who was promised them, if `sends` does. Whether it did.
    pub fn lend(&self, sends: impl FnOnce() -> bool) -> bool {
        self.held.send_if_modified(|held| {
            if *held != Held::Asked {
                return false;
            }
            // Some may be there although sending failed.
            self.was_lent.store(true, Ordering::Relaxed);
            let is_lent = sends();
            *held = if is_lent { Held::Lent } else { *held };
            is_lent
        })
    }

    /// Since when they are this process's again, if they were promised.
    pub fn back_since(&self) -> Option<Instant> {
        *self.back.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One who was promised them has gone, or has them for good. `has` is what they were while it had them.
    pub fn forget(&self, has: Held) {
        self.held.send_if_modified(|held| {
            let others = self.promised.fetch_sub(1, Ordering::Relaxed) - 1;
            let is_back = *held == has && (has == Held::Lent || others == 0);
            if is_back {
                *held = if others > 0 { Held::Asked } else { Held::Here };
                *self.back.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            }
            is_back
        });
    }
}

fn ignore_new(socket: &TcpListener) {
    if let Err(error) = steer::ignore_new(socket) {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            tracing::info!(
                "connections that begin while a listener is closed may be refused or reset: the kernel takes no packet filter from this process: {error}"
            );
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};

    use super::*;

    /// Whether a connection begins on a socket that was to ignore it, in this state of its holder. `None` without the rights for a filter.
    fn hears(prepare: impl FnOnce(&Holder)) -> Option<bool> {
        let socket = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        steer::ignore_new(&socket).and_then(|()| steer::hear_new(&socket)).ok()?;
        let holder = Holder::here();
        prepare(&holder);
        holder.ignore_new(&socket);
        // An error means that there is none.
        let has_filter = steer::hear_new(&socket).is_ok();
        drop(TcpStream::connect(socket.local_addr().unwrap()).unwrap());
        Some(!has_filter)
    }

    #[test]
    fn a_socket_that_another_process_has_or_may_have_had_is_never_made_deaf() {
        let promised = |holder: &Holder| assert!(holder.promise());
        let lent = |holder: &Holder| assert!(holder.promise() && holder.lend(|| true));
        let back = |holder: &Holder| {
            lent(holder);
            holder.forget(Held::Lent);
            assert!(holder.held() == Held::Here && holder.back_since().is_some());
        };
        let wanted = |holder: &Holder| assert!(holder.becomes(Held::Here, Held::Wanted));
        for (prepare, is_heard) in [
            (&(|_: &Holder| ()) as &dyn Fn(&Holder), false),
            (&wanted, false),
            (&promised, true),
            (&lent, true),
            (&back, true),
        ] {
            assert!(hears(prepare).is_none_or(|hears| hears == is_heard));
        }
    }

    #[test]
    fn nothing_is_closed_that_another_process_is_promised() {
        let holder = Holder::here();
        assert!(holder.while_here(|| ()));
        assert!(holder.promise());
        assert!(!holder.while_here(|| panic!("it is promised")));
        assert!(!holder.lend(|| false) && holder.held() == Held::Asked);
        // Another one is promised it, too.
        assert!(holder.promise() && holder.lend(|| true));
        assert!(!holder.promise() && !holder.lend(|| true));
        holder.forget(Held::Lent);
        assert_eq!(holder.held(), Held::Asked);
        holder.forget(Held::Asked);
        assert!(holder.while_here(|| ()));
    }
}
