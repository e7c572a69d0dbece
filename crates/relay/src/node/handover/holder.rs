//! Whose the sockets of a listener are, of a process that stops.

use std::net::TcpListener;
use std::sync::{Arc, Once};
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
pub struct Holder(watch::Sender<State>);

#[derive(Debug)]
pub struct State {
    pub held: Held,
    /// How many are promised the sockets.
    promised: usize,
    /// Whether another process has, or had, the sockets. What it hears by them is its own from then on.
    was_lent: bool,
    /// Since when they are this process's again, if they were promised.
    back: Option<Instant>,
}

impl Holder {
    pub fn here() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(State { held: Held::Here, promised: 0, was_lent: false, back: None })))
    }

    pub fn subscribe(&self) -> watch::Receiver<State> {
        self.0.subscribe()
    }

    /// Whose they are.
    pub fn held(&self) -> Held {
        self.0.borrow().held
    }

    /// Since when they are this process's again, if they were promised.
    pub fn back_since(&self) -> Option<Instant> {
        self.0.borrow().back
    }

    /// Changes the state, before anyone else can. The workers hear of it if it is another's then.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut result = None;
        self.0.send_if_modified(|state| {
            let before = state.held;
            result = Some(change(state));
            state.held != before
        });
        result.expect("it was called")
    }

    /// Changes it if it is `from`. Whether it was.
    pub fn becomes(&self, from: Held, to: Held) -> bool {
        self.change(|state| {
            let does = state.held == from;
            state.held = if does { to } else { state.held };
            does
        })
    }

    /// Does this unless another process is promised the sockets or has them, and before one can be. Whether it was done.
    pub fn while_here(&self, work: impl FnOnce()) -> bool {
        self.change(|state| {
            let is_here = state.is_here();
            if is_here {
                work();
            }
            is_here
        })
    }

    /// Does this unless another process has the sockets, and before one can. `None` if one has them.
    pub fn while_ours<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let state = self.0.borrow();
        (!matches!(state.held, Held::Lent | Held::Passed)).then(work)
    }

    /// Lets no connection begin on `socket` from now on, where no other process has it, had it or is promised it.
    pub fn ignore_new(&self, socket: &TcpListener) {
        self.change(|state| {
            if state.is_here() && !state.was_lent {
                ignore_new(socket);
            }
        });
    }

    /// Promises them to one more, if this process still has them.
    pub fn promise(&self) -> bool {
        self.change(|state| {
            let is_promised = matches!(state.held, Held::Here | Held::Asked);
            if is_promised {
                (state.held, state.promised) = (Held::Asked, state.promised + 1);
            }
            is_promised
        })
    }

    /// Gives them to one who was promised them, if `sends` does. Whether it did.
    pub fn lend(&self, sends: impl FnOnce() -> bool) -> bool {
        self.change(|state| {
            if state.held != Held::Asked {
                return false;
            }
            // Some may be there although sending failed.
            state.was_lent = true;
            let is_lent = sends();
            state.held = if is_lent { Held::Lent } else { state.held };
            is_lent
        })
    }

    /// One who was promised them has gone, or has them for good. `has` is what they were while it had them.
    pub fn forget(&self, has: Held) {
        self.change(|state| {
            state.promised -= 1;
            if state.held == has && (has == Held::Lent || state.promised == 0) {
                state.held = if state.promised > 0 { Held::Asked } else { Held::Here };
                state.back = Some(Instant::now());
            }
        });
    }
}

impl State {
    fn is_here(&self) -> bool {
        matches!(self.held, Held::Here | Held::Wanted)
    }
}

fn ignore_new(socket: &TcpListener) {
    if let Err(error) = steer::ignore_new(socket) {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            tracing::info!(
                "a client whose connection begins in the moment a listener is closed may be refused or reset, unless a process waits for the address: this kernel takes no packet filter from a process without CAP_NET_ADMIN ({error})"
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
        assert!(holder.while_ours(|| ()).is_some(), "it accepts as long as the other does not");
        // Another one is promised it, too.
        assert!(holder.promise() && holder.lend(|| true));
        assert!(holder.while_ours(|| panic!("the other accepts")).is_none());
        assert!(!holder.promise() && !holder.lend(|| true));
        holder.forget(Held::Lent);
        assert_eq!(holder.held(), Held::Asked);
        holder.forget(Held::Asked);
        assert!(holder.while_here(|| ()));
    }
}
