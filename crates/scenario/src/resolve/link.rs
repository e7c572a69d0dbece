//! Links.

use std::ops::RangeInclusive;

use ekiden_units::{Bytes, Fraction, Time};
use indexmap::IndexMap;
use serde_spanned::Spanned;

use super::checker::Checker;
use super::{QUEUE_BYTES_MOST, STARTS};
use crate::raw::{Named, RawChange, RawDirection, RawLink, RawNode, RawOutage, RawPolicer};
use crate::{Change, Direction, Error, Link, Outage, Policer, Queue};

const DEFAULT_DELAY: Time = Time(0);
/// Linux's default transmit queue length.
const DEFAULT_QUEUE: Queue = Queue::Packets(1000);
const DEFAULT_LOSS: Fraction = Fraction(0);
const DEFAULT_MTU: u32 = 1500;
const DEFAULT_POLICER_BURST: Bytes = Bytes::kib(64);

const DELAYS: RangeInclusive<Time> = Time(0)..=Time::secs(60);
const LOSS_BURSTS: RangeInclusive<u32> = 1..=100_000;
const MTUS: RangeInclusive<u32> = 128..=65_535;
const REORDER_BYS: RangeInclusive<Time> = Time(1_000)..=Time::secs(60);
const OUTAGES: RangeInclusive<Time> = Time(1_000)..=Time::secs(86_400);
/// Of changes, and of outages.
const LONGEST_SCHEDULE: usize = 10_000;

impl Checker<'_> {
    pub fn links(&self, raw: Named<RawLink>, nodes: &Named<RawNode>) -> Result<IndexMap<String, Link>, Error> {
        let mut links = IndexMap::new();
        for (name, link) in raw {
            self.name("link", &name)?;
            for end in &link.ends {
                self.known(end, nodes)?;
            }
            let ends = link.ends.each_ref().map(|end| end.get_ref().clone());
            if ends[0] == ends[1] {
                let reason = format!("link '{}' joins '{}' to itself", name.get_ref(), ends[0]);
                return Err(self.wrong(link.ends[1].span(), reason));
            }
            let mtu = self.within("mtu", &link.mtu, DEFAULT_MTU, &MTUS)?;
            let [forth, back] = link.directions();
            let (forth, back) =
                (self.direction(&name, "forth", &forth, mtu)?, self.direction(&name, "back", &back, mtu)?);
            links.insert(name.get_ref().clone(), Link { ends, forth, back });
        }
        Ok(links)
    }

    fn direction(&self, link: &Spanned<String>, key: &str, raw: &RawDirection, mtu: u32) -> Result<Direction, Error> {
        let Some(rate) = &raw.rate else {
            let reason =
                format!("link.{0}: missing field `rate`: it needs rate = …, or {key}.rate = …", link.get_ref());
            return Err(self.wrong(link.span(), reason));
        };
        let (loss, loss_burst) = self.loss(raw)?;
        let (reorder, reorder_by) = self.reorder(raw)?;
        Ok(Direction {
            rate: self.rate("rate", rate)?,
            delay: self.within("delay", &raw.delay, DEFAULT_DELAY, &DELAYS)?,
            jitter: self.within("jitter", &raw.jitter, Direction::DEFAULT_JITTER, &DELAYS)?,
            queue: self.queue(raw.queue.as_ref(), DEFAULT_QUEUE, mtu)?,
            discipline: raw.discipline.unwrap_or(Direction::DEFAULT_DISCIPLINE),
            policer: raw.policer.as_ref().map(|policer| self.policer(policer, mtu)).transpose()?,
            loss,
            loss_burst,
            reorder,
            reorder_by,
            changes: self.changes(raw.changes.as_deref().unwrap_or_default())?,
            outages: self.outages(raw.outages.as_deref().unwrap_or_default())?,
            mtu,
        })
    }

    /// `mtu` is the largest packet, which must be able to pass.
    fn policer(&self, raw: &RawPolicer, mtu: u32) -> Result<Policer, Error> {
        let bursts = Bytes(mtu.into())..=QUEUE_BYTES_MOST;
        let burst = self.within("policer.burst", &raw.burst, DEFAULT_POLICER_BURST, &bursts)?;
        Ok(Policer { rate: self.rate("policer.rate", &raw.rate)?, burst })
    }

    /// The part of the packets that is lost, and the mean length of a run of them.
    fn loss(&self, raw: &RawDirection) -> Result<(Fraction, u32), Error> {
        let loss = raw.loss.as_ref().map_or(DEFAULT_LOSS, |loss| *loss.get_ref());
        let burst = self.within("loss_burst", &raw.loss_burst, Direction::DEFAULT_LOSS_BURST, &LOSS_BURSTS)?;
        // With runs of `burst` and this loss, the mean gap between two is burst · (1 − loss) / loss: at least one packet.
        let most = Fraction::ONE.0 * u64::from(burst) / (u64::from(burst) + 1);
        match &raw.loss {
            Some(raw) if burst > 1 && loss.0 > most => {
                let reason =
                    format!("loss = {loss} cannot come in runs of {burst}: at most {burst} of {} packets", burst + 1);
                Err(self.wrong(raw.span(), reason))
            }
            _ => Ok((loss, burst)),
        }
    }

    /// The part of the packets that are late, and by how much.
    fn reorder(&self, raw: &RawDirection) -> Result<(Fraction, Option<Time>), Error> {
        let part = raw.reorder.as_ref().map_or(Direction::DEFAULT_REORDER, |part| *part.get_ref());
        match (&raw.reorder, &raw.reorder_by) {
            (_, Some(_)) => Ok((part, Some(self.within("reorder_by", &raw.reorder_by, DEFAULT_DELAY, &REORDER_BYS)?))),
            (Some(raw), None) if part.0 > 0 => {
                let reason = "reorder needs reorder_by: how late these packets are, such as \"5ms\"";
                Err(self.wrong(raw.span(), reason))
            }
            _ => Ok((part, None)),
        }
    }

    fn changes(&self, raw: &[Spanned<RawChange>]) -> Result<Vec<Change>, Error> {
        self.is_short("changes", raw)?;
        let mut changes: Vec<Change> = Vec::new();
        for raw in raw {
            let change = raw.get_ref();
            let at = self.start("changes", &change.at)?;
            if let Some(last) = changes.last().filter(|last| last.at >= at) {
                let reason = format!("changes: {at} comes after {}; write them in the order of time", last.at);
                return Err(self.wrong(change.at.span(), reason));
            }
            if change.rate.is_none() && change.delay.is_none() {
                let reason = "changes: nothing changes here; give a rate, a delay or both";
                return Err(self.wrong(raw.span(), reason));
            }
            let rate = change.rate.as_ref().map(|rate| self.rate("changes.rate", rate)).transpose()?;
            let delay =
                change.delay.as_ref().map(|_| self.within("changes.delay", &change.delay, DEFAULT_DELAY, &DELAYS));
            changes.push(Change { at, rate, delay: delay.transpose()? });
        }
        Ok(changes)
    }

    fn outages(&self, raw: &[Spanned<RawOutage>]) -> Result<Vec<Outage>, Error> {
        self.is_short("outages", raw)?;
        let mut outages: Vec<Outage> = Vec::new();
        for raw in raw {
            let outage = raw.get_ref();
            let at = self.start("outages", &outage.at)?;
            if let Some(last) = outages.last().filter(|last| Time(last.at.0 + last.lasts.0) >= at) {
                let reason = format!(
                    "outages: {at} is not after the end of the one before, at {}; write them in the order of time, and apart",
                    Time(last.at.0 + last.lasts.0)
                );
                return Err(self.wrong(outage.at.span(), reason));
            }
            let lasts = *outage.lasts.get_ref();
            if !OUTAGES.contains(&lasts) {
                return Err(self.outside("outages.lasts", &outage.lasts.span(), lasts, &OUTAGES));
            }
            outages.push(Outage { at, lasts });
        }
        Ok(outages)
    }

    fn start(&self, key: &str, raw: &Spanned<Time>) -> Result<Time, Error> {
        match *raw.get_ref() {
            at if STARTS.contains(&at) => Ok(at),
            at => Err(self.outside(&format!("{key}.at"), &raw.span(), at, &STARTS)),
        }
    }

    fn is_short<T>(&self, key: &str, raw: &[Spanned<T>]) -> Result<(), Error> {
        match raw.get(LONGEST_SCHEDULE) {
            Some(next) => Err(self.wrong(next.span(), format!("{key}: more than {LONGEST_SCHEDULE}"))),
            None => Ok(()),
        }
    }
}
