//! Background.

use std::ops::RangeInclusive;

use ekiden_units::{Bytes, Time};
use indexmap::IndexMap;

use super::checker::Checker;
use super::{DEFAULT_START, DURATIONS, STARTS};
use crate::raw::{Named, RawBackground, RawNode};
use crate::{Background, Error, OnOff, Scenario};

/// The default packet size, reduced to the MTU of the path.
const DEFAULT_PACKET: Bytes = Bytes(1500);

/// From a UDP datagram without payload to the largest IP packet.
const PACKETS: RangeInclusive<Bytes> = Bytes(28)..=Bytes(65_535);
const MEAN_TIMES: RangeInclusive<Time> = Time(1_000)..=Time::secs(3_600);

impl Checker<'_> {
    pub fn background(
        &self,
        raw: &Named<RawBackground>,
        nodes: &Named<RawNode>,
        scenario: &Scenario,
    ) -> Result<IndexMap<String, Background>, Error> {
        let mut all = IndexMap::new();
        for (name, background) in raw {
            self.name("background", name)?;
            let what = format!("background '{}'", name.get_ref());
            let (from, to) = (&background.from, &background.to);
            self.joined(&what, from, to, nodes, scenario)?;
            let resolved = Background {
                from: from.get_ref().clone(),
                to: to.get_ref().clone(),
                rate: self.rate("rate", &background.rate)?,
                packet: self.packet(background, scenario)?,
                start: self.within("start", &background.start, DEFAULT_START, &STARTS)?,
                duration: match &background.duration {
                    Some(_) => Some(self.within("duration", &background.duration, Time(0), &DURATIONS)?),
                    None => None,
                },
                on_off: match (&background.on, &background.off) {
                    (None, None) => None,
                    (Some(_), Some(_)) => Some(OnOff {
                        on: self.within("on", &background.on, Time(0), &MEAN_TIMES)?,
                        off: self.within("off", &background.off, Time(0), &MEAN_TIMES)?,
                    }),
                    (Some(only), None) | (None, Some(only)) => {
                        let reason = format!("{what} needs both 'on' and 'off', or neither");
                        return Err(self.wrong(only.span(), reason));
                    }
                },
            };
            all.insert(name.get_ref().clone(), resolved);
        }
        Ok(all)
    }

    fn packet(&self, raw: &RawBackground, scenario: &Scenario) -> Result<Bytes, Error> {
        let hops = scenario.path(raw.from.get_ref(), raw.to.get_ref()).unwrap_or_default();
        let mtu = hops.iter().map(|hop| hop.link.mtu()).min().unwrap_or_default();
        let packet = self.within("packet", &raw.packet, DEFAULT_PACKET.min(Bytes(mtu.into())), &PACKETS)?;
        match &raw.packet {
            Some(written) if packet > Bytes(mtu.into()) => {
                let reason = format!("packet = {packet} is more than the MTU of its way, {mtu}");
                Err(self.wrong(written.span(), reason))
            }
            _ => Ok(packet),
        }
    }
}
