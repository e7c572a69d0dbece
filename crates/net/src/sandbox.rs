//! A process tree of its own, with private mounts and network, that vanishes as a whole.
//!
//! ```text
//! supervisor          the process that was started: waits, passes the exit code on, cleans up
//!   └─ init           pid 1 of a new PID namespace, killed by the kernel when the supervisor dies
//!        └─ inside    the program proper, which `enter` returns in; when it ends, init ends
//! ```
//! When pid 1 of a PID namespace ends, for whatever reason, the kernel kills all other processes in it. The network namespaces
//! end with the last process, and the mounts with the mount namespace. So nothing is left to clean up.

use std::fs;
use std::io::{self, PipeReader, Read};
use std::os::fd::AsRawFd;
use std::process::exit;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, kill, sigaction, sigprocmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, wait, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getgid, getuid};

/// What Ctrl-C on the terminal does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// It ends everything.
    Ends,
    /// It is left to the program started inside, as `sudo` and `su` do. SIGTERM still ends everything.
    IsForProgram,
}

/// Why the sandbox could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There are other threads already, which would stay outside.
    #[error("namespaces must be made before any thread is started")]
    Threads,
    /// The process is not root, and there are no unprivileged user namespaces.
    #[error(
        "this needs root, or a kernel that lets users make namespaces ({0}); run it with sudo, or see \
         /proc/sys/user/max_user_namespaces and kernel.unprivileged_userns_clone"
    )]
    Privilege(Errno),
    /// A step failed that normally succeeds.
    #[error("cannot {what}: {source}")]
    Step {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Moves into a sandbox: returns in the process inside, and never in the one that called.
///
/// The caller becomes the supervisor, which waits, runs `at_end`, and exits with the inside's code, or 128 + the
/// signal that ended it. Inside, the process is root over its own namespaces; files it makes belong to the caller.
///
/// # Errors
/// [`Error`], before anything was changed but the namespaces of this process.
pub fn enter(interrupt: Interrupt, at_end: impl FnOnce()) -> Result<(), Error> {
    if fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() != 1) {
        return Err(Error::Threads);
    }
    unshare_pids()?;
    let before = hold_signals();
    let (alive, hold) = io::pipe().map_err(step("make a pipe"))?;
    // SAFETY: there is only this thread, so the child may do anything that the parent might.
    match unsafe { fork() }.map_err(|errno| step("fork")(errno.into()))? {
        ForkResult::Parent { child } => {
            drop(alive);
            let code = supervise(child, interrupt);
            drop(hold);
            at_end();
            exit(code)
        }
        ForkResult::Child => {
            drop(hold);
            tie_to_supervisor(alive);
            let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
            isolate()?;
            // SAFETY: as above.
            match unsafe { fork() }.map_err(|errno| step("fork")(errno.into()))? {
                ForkResult::Parent { child } => exit(reap_until(child)),
                ForkResult::Child => {
                    if interrupt == Interrupt::IsForProgram {
                        disregard_interrupts();
                    }
                    Ok(())
                }
            }
        }
    }
}

/// Makes the new PID namespace: directly as root, otherwise inside a user namespace in which this user is root.
fn unshare_pids() -> Result<(), Error> {
    match unshare(CloneFlags::CLONE_NEWPID) {
        Ok(()) => return Ok(()),
        Err(Errno::EPERM) => {}
        Err(errno) => return Err(Error::Privilege(errno)),
    }
    let (uid, gid) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID).map_err(Error::Privilege)?;
    let map = |path, text: String| fs::write(path, text).map_err(step("map this user into a user namespace"));
    map("/proc/self/setgroups", "deny".into())?;
    map("/proc/self/uid_map", format!("0 {uid} 1"))?;
    map("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// Gives init mounts and a network of its own. Changes to mounts in here are not seen outside.
fn isolate() -> Result<(), Error> {
    let flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET;
    unshare(flags).map_err(Error::Privilege)?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(|errno| step("make mounts private")(errno.into()))?;
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC, none)
        .map_err(|errno| step("mount /proc for a new PID namespace")(errno.into()))
}

/// Blocks the signals that `supervise` waits for, and returns the signal mask from before.
fn hold_signals() -> SigSet {
    let mut before = SigSet::empty();
    let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&supervised()), Some(&mut before));
    before
}

fn supervised() -> SigSet {
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGCHLD].into_iter().collect()
}

/// Waits for init and returns the exit code. A signal ends init, and so everything.
fn supervise(init: Pid, interrupt: Interrupt) -> i32 {
    let mut ended_by = None;
    loop {
        if let Ok(status @ (WaitStatus::Exited(..) | WaitStatus::Signaled(..))) =
            waitpid(init, Some(WaitPidFlag::WNOHANG))
        {
            return ended_by.map_or_else(|| code_of(status), |signal: i32| 128 + signal);
        }
        let signal = match next_signal() {
            Some((libc::SIGCHLD, _)) | None => continue,
            Some((libc::SIGINT | libc::SIGQUIT, from_terminal))
                if from_terminal && interrupt == Interrupt::IsForProgram =>
            {
                continue;
            }
            Some((signal, _)) => signal,
        };
        ended_by.get_or_insert(signal);
        let _ = kill(init, Signal::SIGKILL);
    }
}

/// Waits for one of the [`supervised`] signals: its number, and whether the terminal sent it.
fn next_signal() -> Option<(i32, bool)> {
    let set = supervised();
    // SAFETY: all-zero is a valid siginfo_t, and both pointers outlive the call.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let signal = libc::sigwaitinfo(set.as_ref(), &raw mut info);
        (signal > 0).then_some((signal, info.si_code == libc::SI_KERNEL))
    }
}

/// Makes this process die with the supervisor, even if the supervisor was killed a moment ago: then its end of the pipe is
/// closed.
fn tie_to_supervisor(mut alive: PipeReader) {
    // SAFETY: integers only.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0);
        libc::fcntl(alive.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
    }
    if matches!(alive.read(&mut [0]), Ok(0)) {
        exit(1);
    }
}

/// All that init does: it reaps orphans until the program proper has ended.
fn reap_until(child: Pid) -> i32 {
    loop {
        match wait() {
            Ok(status @ (WaitStatus::Exited(..) | WaitStatus::Signaled(..))) if status.pid() == Some(child) => {
                return code_of(status);
            }
            Err(Errno::ECHILD) => return 1,
            _ => {}
        }
    }
}

/// Installs a handler that does nothing. `SIG_IGN` would be inherited by the programs started from here; a handler is not.
fn disregard_interrupts() {
    extern "C" fn nothing(_: i32) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGQUIT] {
        // SAFETY: the handler does nothing.
        let _ = unsafe { sigaction(signal, &action) };
    }
}

/// The exit code that a shell makes of a wait status: the code itself, or 128 + the signal.
fn code_of(status: WaitStatus) -> i32 {
    match status {
        WaitStatus::Exited(_, code) => code,
        WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
        _ => 1,
    }
}

fn step(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Step { what, source }
}
