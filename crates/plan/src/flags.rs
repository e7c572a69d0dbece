//! What the command line says of a path.

use std::fmt::Display;
use std::str::FromStr;

use ekiden_units::path::{BUFFERS, RATES, RTTS};
use ekiden_units::{BitRate, Bytes, Fraction, Time};

use crate::given::{self, Given, Values, in_range};
use crate::{Direction, Error, Estimate};

/// What the command line says of a path, as texts. It goes before what a file says.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// `--rtt`: the round trip without queues.
    pub rtt: Option<String>,
    /// `--rate`: what the bottleneck carries of IP packets.
    pub rate: Option<String>,
    /// `--buffer`: what waits there at most, in bytes.
    pub buffer: Option<String>,
    /// `--loss`: the part of the packets that is lost at random.
    pub loss: Option<String>,
    /// `--window`: of both hosts.
    pub window: Option<String>,
    /// `--policer`: its rate.
    pub policer: Option<String>,
    /// `--streams`: connections at once.
    pub streams: Option<u32>,
    /// `--size`: of a short transfer.
    pub size: Option<String>,
    /// `--direction`: which way the data goes.
    pub direction: Option<Direction>,
}

impl Flags {
    pub(crate) fn values(&self) -> Result<Values, Error> {
        let exact = |place: &str, value: f64| Given { value: Estimate::exact(value), place: place.into() };
        let rtt_s = quantity::<Time>("--rtt", &self.rtt)?
            .map(|rtt| Ok::<_, Error>(exact("--rtt", in_range("rtt", rtt, "--rtt", &RTTS)?.as_secs())));
        let rate = quantity::<BitRate>("--rate", &self.rate)?
            .map(|rate| Ok::<_, Error>(exact("--rate", in_range("rate", rate, "--rate", &RATES)?.0 as f64)));
        let buffer = quantity::<Bytes>("--buffer", &self.buffer)?
            .map(|bytes| Ok::<_, Error>(exact("--buffer", in_range("buffer", bytes, "--buffer", &BUFFERS)?.0 as f64)));
        let loss = quantity::<Fraction>("--loss", &self.loss)?
            .map(|loss| Ok::<_, Error>(exact("--loss", given::loss("loss", loss.as_f64(), "--loss")?)));
        Ok(Values {
            direction: self.direction,
            rtt_s: rtt_s.transpose()?,
            rate_bit_s: rate.transpose()?,
            buffer_bytes: buffer.transpose()?,
            loss: loss.transpose()?,
            window: placed("--window", &self.window)?,
            policer_rate: placed("--policer", &self.policer)?,
            streams: self.streams.map(|value| Given { value, place: "--streams".into() }),
            size: placed("--size", &self.size)?,
            ..Values::default()
        })
    }
}

fn quantity<T: FromStr<Err: Display>>(flag: &str, text: &Option<String>) -> Result<Option<T>, Error> {
    let parsed = |text: &String| {
        // What others have written goes to a terminal.
        let wrong = |error: T::Err| Error::wrong(flag, error.to_string().replace(char::is_control, "\u{fffd}"));
        text.parse::<T>().map_err(wrong)
    };
    text.as_ref().map(parsed).transpose()
}

fn placed<T: FromStr<Err: Display>>(flag: &str, text: &Option<String>) -> Result<Option<Given<T>>, Error> {
    Ok(quantity(flag, text)?.map(|value| Given { value, place: flag.into() }))
}
