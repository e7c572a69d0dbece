//! Runs the cases, several at a time, each in a process and a network of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::Context;
use ekiden_units::Bytes;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::cases::Case;
use crate::payload;
use crate::protocol::{Message, Order, Transfer};

/// Transfers at a time. They wait for distance rather than for a CPU, so more than two cores' worth fit.
const AT_ONCE: usize = 3;
/// The maximum number of transfers that are repeated because the machine disturbed them. If it disturbed more, it is too
/// busy for that to help.
const AGAIN_MOST: usize = 12;

/// The content that arrived is not the content that was sent.
#[derive(Debug, thiserror::Error)]
#[error("{title}: the file arrived changed: SHA-256 {arrived}, sent {sent}")]
pub struct Mismatch {
    title: String,
    arrived: String,
    sent: String,
}

/// Carries out every case and returns the transfers in the order of `cases`. What the machine disturbed is carried out once
/// more, alone, unless it is too much ([`AGAIN_MOST`]).
///
/// # Errors
/// The first failure of any: nothing is shown that was not carried out whole.
pub fn run(cases: &[Case]) -> anyhow::Result<Vec<Transfer>> {
    let sizes: BTreeSet<Bytes> = cases.iter().map(|case| case.bytes).collect();
    let sums: BTreeMap<Bytes, String> = sizes.into_iter().map(|size| (size, payload::sha256(size))).collect();
    // The longest first, so that none is left to run alone at the end.
    let mut order: Vec<usize> = (0..cases.len()).collect();
    order.sort_by(|&a, &b| expected_s(&cases[a]).total_cmp(&expected_s(&cases[b])));
    let waiting = Mutex::new(order);
    let results: Vec<Mutex<Option<Transfer>>> = cases.iter().map(|_| Mutex::new(None)).collect();
    let bars = Bars::new(cases);
    let worker = || -> anyhow::Result<()> {
        loop {
            let Some(next) = waiting.lock().expect("no worker panics").pop() else { return Ok(()) };
            let case = &cases[next];
            let done = one(case, &sums[&case.bytes], &bars).with_context(|| case.title());
            if done.is_err() {
                waiting.lock().expect("no worker panics").clear();
            }
            *results[next].lock().expect("no worker panics") = Some(done?);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    let results = results.into_iter().map(|result| result.into_inner().expect("no worker panics"));
    let mut transfers: Vec<Transfer> = results.map(|result| result.expect("every case was carried out")).collect();
    let disturbed: Vec<usize> = (0..cases.len()).filter(|&i| transfers[i].disturbed.is_some()).collect();
    if disturbed.len() <= AGAIN_MOST {
        bars.total.inc_length(disturbed.len() as u64);
        for i in disturbed {
            transfers[i] = one(&cases[i], &sums[&cases[i].bytes], &bars).with_context(|| cases[i].title())?;
        }
    }
    bars.finish();
    Ok(transfers)
}

fn expected_s(case: &Case) -> f64 {
    case.bytes.0 as f64 * 8.0 / case.model.0 as f64
}

/// Starts a process for the case and follows what it says.
fn one(case: &Case, sent: &str, bars: &Bars) -> anyhow::Result<Transfer> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["demo", "--transfer"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start ekiden again for a transfer")?;
    let order = Order {
        scenario: case.scenario.to_toml(),
        listener: case.listener.clone(),
        bytes: case.bytes,
        watch: case.watch.map(Into::into),
    };
    let mut stdin = child.stdin.take().expect("stdin is piped");
    stdin.write_all(serde_json::to_string(&order)?.as_bytes())?;
    drop(stdin);
    let bar = bars.start(case);
    let mut done = None;
    for line in BufReader::new(child.stdout.take().expect("stdout is piped")).lines() {
        match serde_json::from_str(&line?)? {
            Message::Progress(bytes) => bar.set_position(bytes),
            Message::Done(transfer) => done = Some(transfer),
        }
    }
    let output = child.wait_with_output()?;
    bars.end(&bar, case, done.as_ref());
    let Some(transfer) = done.filter(|_| output.status.success()) else {
        return Err(failure(&output));
    };
    Ok(compare(case, transfer, sent)?)
}

/// Only what arrived whole counts.
fn compare(case: &Case, transfer: Transfer, sent: &str) -> Result<Transfer, Mismatch> {
    if transfer.sha256 == sent && transfer.bytes == case.bytes.0 {
        return Ok(transfer);
    }
    Err(Mismatch { title: case.title(), arrived: transfer.sha256, sent: sent.into() })
}

/// A transfer's process that did not finish, with its exit code for the demo to end with.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failed {
    /// The process's exit code.
    pub code: u8,
    message: String,
}

fn failure(output: &std::process::Output) -> anyhow::Error {
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    let message = last.trim_start_matches("ekiden: ").to_owned();
    let code = output.status.code().and_then(|code| u8::try_from(code).ok()).filter(|&code| code != 0);
    anyhow::Error::new(Failed { code: code.unwrap_or(1), message })
}

/// Progress on standard error: bars on a terminal, else a line for each finished transfer.
struct Bars {
    all: MultiProgress,
    total: ProgressBar,
    on_terminal: bool,
}

impl Bars {
    fn new(cases: &[Case]) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        let all = MultiProgress::new();
        let total = match on_terminal {
            true => all.add(ProgressBar::new(cases.len() as u64)),
            false => ProgressBar::hidden(),
        };
        let style = "{pos:>3} of {len} transfers  [{elapsed_precise}]";
        total.set_style(ProgressStyle::with_template(style).expect("a valid template"));
        total.enable_steady_tick(std::time::Duration::from_millis(500));
        Self { all, total, on_terminal }
    }

    fn start(&self, case: &Case) -> ProgressBar {
        if !self.on_terminal {
            return ProgressBar::hidden();
        }
        let style = "  {msg:<34} {wide_bar} {percent:>3} %";
        let bar = self.all.insert_before(&self.total, ProgressBar::new(case.bytes.0));
        bar.set_style(ProgressStyle::with_template(style).expect("a valid template"));
        bar.set_message(case.title());
        bar
    }

    fn end(&self, bar: &ProgressBar, case: &Case, done: Option<&Transfer>) {
        bar.finish_and_clear();
        self.total.inc(1);
        if let (Some(transfer), false) = (done, self.on_terminal) {
            let disturbed =
                transfer.disturbed.map(|by| format!(", disturbed by the machine ({by})")).unwrap_or_default();
            // Whether or not anyone reads it.
            let (title, mbit_s) = (case.title(), transfer.goodput_bit_s() / 1e6);
            let _ = writeln!(std::io::stderr(), "{title}: {mbit_s:.1} Mbit/s{disturbed}");
        }
    }

    fn finish(&self) {
        self.total.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_arrives_changed_or_short_is_refused() {
        let case = &crate::acts::cases(false)[0];
        let sent = payload::sha256(case.bytes);
        let arrived = |bytes, sha256: &str| Transfer {
            bytes,
            seconds: 1.0,
            connect_s: 0.1,
            first_byte_s: 0.2,
            sha256: sha256.into(),
            drops: 0,
            disturbed: None,
            samples: Vec::new(),
            arrived: Vec::new(),
            pings: Vec::new(),
        };
        assert!(compare(case, arrived(case.bytes.0, &sent), &sent).is_ok());
        assert!(compare(case, arrived(case.bytes.0 - 1, &sent), &sent).is_err());
        let error = compare(case, arrived(case.bytes.0, &payload::sha256(Bytes(1))), &sent).unwrap_err();
        assert!(error.to_string().contains("arrived changed"), "{error}");
    }
}
