//! The parameters of all algorithms: by name, and in the layout that the C headers read.
//!
//! `PARAMETERS` has each parameter's default and range; docs/guide/congestion.md gives the reasons.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};

use bytemuck::{NoUninit, Pod, Zeroable};
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::ResponseFunction;

/// Rows of HSTCP's table (`EK_HSTCP_ROWS`).
const ROWS: usize = 128;
/// The maximum number of samples in one of gentle HSTCP's tests (`EK_TREND_MOST`).
pub const MOST_SAMPLES: usize = 1024;
/// The layout of [`Tunables`] (`EK_TUNABLES_LAYOUT`).
pub const LAYOUT: u32 = 4;
/// The whole window, in the unit of its parts (`EK_ONE`).
const ONE: f64 = 65_536.0;
/// 1 in units of r² (`EK_TREND_ONE`).
const R2_ONE: f64 = (1_u32 << 28) as f64;
/// Growth per round trip is kept in these parts of a segment (`EK_SEGMENT`).
const SEGMENT: f64 = 1024.0;

/// A parameter that can be set by name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its default.
    pub default: f64,
    /// The least value, apart from `or_zero`.
    pub least: f64,
    /// The greatest value.
    pub most: f64,
    /// Whether it can be 0, which then is less than `least` and has a meaning of its own.
    pub or_zero: bool,
    /// Whether it is a whole number.
    pub whole: bool,
    /// What it means, with its unit.
    pub meaning: &'static str,
}

impl Parameter {
    fn takes(&self, number: f64) -> bool {
        let is_within = (self.least..=self.most).contains(&number) || self.or_zero && number == 0.0;
        is_within && !(self.whole && number.fract() != 0.0)
    }

    /// Its range, in words.
    pub fn range(&self) -> String {
        let zero = if self.or_zero { "0, or " } else { "" };
        let whole = if self.whole { "a whole number from " } else { "" };
        format!("{zero}{whole}{} to {}", Self::written(self.least), Self::written(self.most))
    }

    /// A value of a parameter as people write it.
    pub fn written(value: f64) -> String {
        match value.abs() {
            size if size > 0.0 && size < 1e-3 => format!("{value:e}"),
            _ => value.to_string(),
        }
    }
}

const fn number(name: &'static str, default: f64, least: f64, most: f64, meaning: &'static str) -> Parameter {
    Parameter { name, default, least, most, or_zero: false, whole: false, meaning }
}

const fn number_or_zero(name: &'static str, default: f64, least: f64, most: f64, meaning: &'static str) -> Parameter {
    Parameter { or_zero: true, ..number(name, default, least, most, meaning) }
}

const fn count(name: &'static str, default: f64, least: f64, most: f64, meaning: &'static str) -> Parameter {
    Parameter { whole: true, ..number(name, default, least, most, meaning) }
}

const LOW_WINDOW: usize = 0;
const HIGH_WINDOW: usize = 1;
const HIGH_P: usize = 2;
const HIGH_DECREASE: usize = 3;
const TEST: usize = 4;
const SPAN: usize = 5;
const SAMPLES: usize = 6;
const SIGNIFICANCE: usize = 7;
const RENO_DECREASE: usize = 8;
const LOW: usize = 9;
const HIGH: usize = 10;
const BIC_LOW_WINDOW: usize = 11;
const BIC_S_MAX: usize = 12;
const BIC_S_MIN: usize = 13;
const BIC_DECREASE: usize = 14;
const BIC_FAST_CONVERGENCE: usize = 15;
const SLOW_START_LIMIT: usize = 16;
const SLOW_START_HYSTART: usize = 17;
const FAR_QUEUE: usize = 18;
const FAR_QUEUE_LEAST: usize = 19;
const FAR_STEP_MOST: usize = 20;
const FAR_REMEMBER: usize = 21;

/// All parameters. docs/guide/congestion.md argues for the defaults.
pub const PARAMETERS: [Parameter; 22] = [
    count("hstcp.low_window", 38.0, 2.0, 1e6, "Reno up to this window, in segments (RFC 3649: Low_Window)"),
    count("hstcp.high_window", 83_000.0, 4.0, 1e6, "the window held at high_p, in segments (RFC 3649: High_Window)"),
    number("hstcp.high_p", 1e-7, 1e-12, 1e-3, "loss rate at high_window (RFC 3649: High_P)"),
    number("hstcp.high_decrease", 0.1, 0.01, 0.5, "part of high_window that a loss takes (RFC 3649: High_Decrease)"),
    count("ghstcp.test", 0.0, 0.0, 1.0, "0: correlation of round-trip time and departure; 1: two thresholds"),
    number("ghstcp.span", 2.0, 0.05, 8.0, "round trips that one test spans"),
    count("ghstcp.samples", 8.0, 3.0, 1024.0, "fewer samples in a test leave the mode as it is"),
    number("ghstcp.significance", 0.05, 1e-6, 0.5, "chance of taking noise for a rising trend, one-sided (test 0)"),
    number_or_zero(
        "ghstcp.reno_decrease",
        0.5,
        0.01,
        0.9,
        "part of the window that a loss takes in Reno mode; 0: as in HSTCP mode",
    ),
    number("ghstcp.low", 0.25, 0.0, 1.0, "below this part of the range of mean round-trip times: HSTCP mode (test 1)"),
    number("ghstcp.high", 0.5, 0.0, 1.0, "above this part of it: Reno mode (test 1)"),
    count("bic.low_window", 14.0, 0.0, 1e6, "Reno below this window, in segments"),
    number("bic.s_max", 32.0, 1.0, 1e4, "largest increment, in segments per round trip (S_max)"),
    number("bic.s_min", 0.01, 0.0, 1e4, "least increment, in segments per round trip (S_min), in steps of 1/1024"),
    number("bic.decrease", 0.125, 0.01, 0.9, "part of the window that a loss takes (beta)"),
    count("bic.fast_convergence", 1.0, 0.0, 1.0, "1: a window that came less far than before leaves room to others"),
    count(
        "slow_start.max_ssthresh",
        0.0,
        0.0,
        1e6,
        "beyond this window, in segments, slow start grows by half of it per round trip (RFC 3742); 0: never",
    ),
    count("slow_start.hystart", 0.0, 0.0, 1.0, "1: slow start ends when round-trip times rise (HyStart++, RFC 9406)"),
    number("far.queue", 0.2, 0.01, 2.0, "the queue up to which the window grows, in parts of the least round trip"),
    number("far.queue_least", 5.0, 0.1, 1000.0, "and at least so long, in ms"),
    number("far.step_most", 0.06, 0.001, 0.5, "the most that the window grows per round trip, in parts of it"),
    count(
        "far.remember",
        600.0,
        0.0,
        86_400.0,
        "for so long, in s, new connections begin with what a path carried; 0: never",
    ),
];

/// The parameters by name, each within its range. Starts with the defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CongestionParameters([f64; PARAMETERS.len()]);

impl Default for CongestionParameters {
    fn default() -> Self {
        Self(PARAMETERS.map(|parameter| parameter.default))
    }
}

impl CongestionParameters {
    /// Whether there are parameters in the group of this name.
    ///
    /// # Errors
    /// If there are none.
    pub fn check_group(name: &str) -> Result<(), ParameterError> {
        match groups().contains(&name) {
            true => Ok(()),
            false => Err(ParameterError::Group { name: name.into(), known: groups().join(", ") }),
        }
    }

    /// Every parameter with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Parameter, f64)> + '_ {
        PARAMETERS.iter().zip(self.0)
    }

    /// Sets one parameter from its text.
    ///
    /// # Errors
    /// If there is no such parameter, or the value is not a number in its range. [`Tunables::new`]
    /// checks whether the parameters fit together.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        self.take(name, value.trim().parse().ok(), &value)
    }

    /// Sets one parameter.
    ///
    /// # Errors
    /// As [`CongestionParameters::set`].
    pub fn set_number(&mut self, name: &str, number: f64) -> Result<(), ParameterError> {
        self.take(name, Some(number), &number)
    }

    /// `written` is what an error shows.
    fn take(&mut self, name: &str, number: Option<f64>, written: &dyn Display) -> Result<(), ParameterError> {
        let Some(at) = PARAMETERS.iter().position(|parameter| parameter.name == name) else {
            let known = PARAMETERS.map(|parameter| parameter.name).join(", ");
            return Err(ParameterError::Name { name: name.into(), known });
        };
        let parameter = &PARAMETERS[at];
        match number {
            Some(number) if parameter.takes(number) => {
                self.0[at] = number;
                Ok(())
            }
            _ => Err(ParameterError::Value { parameter, value: written.to_string() }),
        }
    }

    /// The parameters in the tunables of a loaded program; `None` if they have another layout.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != size_of::<Tunables>() {
            return None;
        }
        let (given, rest) = bytes.split_at(size_of::<[u64; PARAMETERS.len()]>());
        if *rest.first_chunk()? != LAYOUT.to_ne_bytes() {
            return None;
        }
        let mut parameters = Self::default();
        for (value, word) in parameters.0.iter_mut().zip(given.chunks_exact(8)) {
            *value = f64::from_bits(u64::from_ne_bytes(word.try_into().ok()?));
        }
        Some(parameters)
    }

    /// HSTCP's response function.
    pub fn response(&self) -> ResponseFunction {
        ResponseFunction {
            low_window: self.0[LOW_WINDOW] as u32,
            high_window: self.0[HIGH_WINDOW] as u32,
            high_p: self.0[HIGH_P],
            high_decrease: self.0[HIGH_DECREASE],
        }
    }
}

/// Why parameters were refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ParameterError {
    /// No parameter is in a group of this name.
    #[error("there is no [congestion.{name}] (there are {known})")]
    Group {
        /// What was asked for.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// No parameter has this name.
    #[error("there is no parameter '{name}' (there are {known})")]
    Name {
        /// What was asked for.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// The value is not a number, or out of range.
    #[error(
        "{} cannot be '{value}': it is {}a {} from {} to {}: {}",
        parameter.name,
        if parameter.or_zero { "0 or " } else { "" },
        if parameter.whole { "whole number" } else { "number" },
        parameter.least,
        parameter.most,
        parameter.meaning
    )]
    Value {
        /// The parameter.
        parameter: &'static Parameter,
        /// What was given.
        value: String,
    },
    /// Two parameters do not fit each other.
    #[error("{0}")]
    Together(&'static str),
}

impl ParameterError {
    /// The name that is unknown, and the known ones of its kind: groups, or the parameters of its group.
    pub fn unknown(&self) -> Option<(&str, Vec<&'static str>)> {
        match self {
            Self::Group { name, .. } => Some((name, groups())),
            Self::Name { name, .. } => {
                let (group, parameter) = name.split_once('.')?;
                let of_group = names().filter(|(known, _)| *known == group).map(|(_, parameter)| parameter);
                Some((parameter, of_group.collect()))
            }
            Self::Value { .. } | Self::Together(_) => None,
        }
    }
}

/// Every parameter's group, and its name in that.
fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    PARAMETERS.iter().filter_map(|parameter| parameter.name.split_once('.'))
}

fn groups() -> Vec<&'static str> {
    let mut groups: Vec<_> = names().map(|(group, _)| group).collect();
    groups.dedup();
    groups
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct HstcpRow {
    window: u32,
    increase: u32,
    decrease: u32,
}

/// Slow start's parameters (`struct ek_slow_start_tunables`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct SlowStartTunables {
    /// The window beyond which slow start is limited; 0: none.
    pub max_ssthresh: u32,
    /// 1: HyStart++.
    pub hystart: u32,
}

/// All parameters as the algorithms read them (`struct ek_tunables`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, NoUninit)]
#[repr(C)]
pub struct Tunables {
    /// The parameters as they were set, as bits of doubles.
    given: [u64; PARAMETERS.len()],
    layout: u32,
    hstcp: [HstcpRow; ROWS],
    test: u32,
    span: u32,
    samples_least: u32,
    reno_decrease: u32,
    low: u32,
    high: u32,
    critical: [u32; MOST_SAMPLES],
    bic_low_window: u32,
    bic_s_max: u32,
    bic_s_min: u32,
    bic_decrease: u32,
    bic_fast_convergence: u32,
    slow_start: SlowStartTunables,
    far_queue: u32,
    far_queue_least_us: u32,
    far_step_most: u32,
    far_remember_s: u32,
}

impl Tunables {
    /// Computes the algorithms' tables: HSTCP's a(w) and b(w), and the critical values of gentle HSTCP's test.
    ///
    /// # Errors
    /// If two parameters do not fit each other.
    pub fn new(parameters: &CongestionParameters) -> Result<Self, ParameterError> {
        let CongestionParameters(value) = parameters;
        let response = parameters.response();
        if response.low_window >= response.high_window {
            return Err(ParameterError::Together("hstcp.low_window must be less than hstcp.high_window"));
        }
        if response.high_p >= response.loss_rate(response.low_window.into()) {
            return Err(ParameterError::Together(
                "hstcp.high_p must be less than Reno's loss rate at low_window, (1.2/low_window)^2",
            ));
        }
        if !response.is_rising() {
            return Err(ParameterError::Together(
                "with these hstcp parameters the growth a(w) would fall before high_window: raise high_decrease or high_p",
            ));
        }
        if value[LOW] > value[HIGH] {
            return Err(ParameterError::Together("ghstcp.low must not exceed ghstcp.high"));
        }
        if value[BIC_S_MIN] > value[BIC_S_MAX] {
            return Err(ParameterError::Together("bic.s_min must not exceed bic.s_max"));
        }
        let part = |part: f64| (part * ONE).round() as u32;
        let growth = |segments: f64| (segments * SEGMENT).round() as u32;
        let mut hstcp = [HstcpRow { window: u32::MAX, increase: 0, decrease: 0 }; ROWS];
        for (row, place) in response.table(ROWS).iter().zip(&mut hstcp) {
            *place = HstcpRow { window: row.window, increase: growth(row.increase), decrease: part(row.decrease) };
        }
        Ok(Self {
            given: value.map(f64::to_bits),
            layout: LAYOUT,
            hstcp,
            test: value[TEST].round() as u32,
            span: part(value[SPAN]),
            samples_least: value[SAMPLES] as u32,
            reno_decrease: part(value[RENO_DECREASE]),
            low: part(value[LOW]),
            high: part(value[HIGH]),
            critical: critical(value[SIGNIFICANCE]),
            bic_low_window: value[BIC_LOW_WINDOW] as u32,
            bic_s_max: growth(value[BIC_S_MAX]),
            bic_s_min: growth(value[BIC_S_MIN]),
            bic_decrease: part(value[BIC_DECREASE]),
            bic_fast_convergence: value[BIC_FAST_CONVERGENCE].round() as u32,
            slow_start: SlowStartTunables {
                max_ssthresh: value[SLOW_START_LIMIT] as u32,
                hystart: value[SLOW_START_HYSTART].round() as u32,
            },
            far_queue: part(value[FAR_QUEUE]),
            far_queue_least_us: (value[FAR_QUEUE_LEAST] * 1000.0).round() as u32,
            far_step_most: part(value[FAR_STEP_MOST]),
            far_remember_s: value[FAR_REMEMBER] as u32,
        })
    }

    /// The parameters that these were computed from.
    pub fn parameters(&self) -> CongestionParameters {
        CongestionParameters(self.given.map(f64::from_bits))
    }

    /// The bytes that the programs read.
    pub fn as_bytes(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }

    /// The critical value of r² of a test with `samples`.
    pub fn critical(&self, samples: usize) -> f64 {
        f64::from(self.critical[samples.saturating_sub(2).min(MOST_SAMPLES - 1)]) / R2_ONE
    }
}

impl Default for Tunables {
    fn default() -> Self {
        Self::new(&CongestionParameters::default()).expect("the defaults fit each other: a test")
    }
}

/// By degrees of freedom, t²/(df + t²) for the one-sided t at this significance, in units of r². A correlation cannot
/// be significant without degrees of freedom.
fn critical(significance: f64) -> [u32; MOST_SAMPLES] {
    // A plan needs the same values thousands of times, and each computation takes half a millisecond.
    static LAST: Mutex<Option<(f64, [u32; MOST_SAMPLES])>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    match &*last {
        Some((of, values)) if *of == significance => *values,
        _ => last.insert((significance, computed(significance))).1,
    }
}

fn computed(significance: f64) -> [u32; MOST_SAMPLES] {
    let mut values = [u32::MAX; MOST_SAMPLES];
    for (degrees, value) in values.iter_mut().enumerate().skip(1) {
        let degrees = degrees as f64;
        if let Ok(student) = StudentsT::new(0.0, 1.0, degrees) {
            let t = student.inverse_cdf(1.0 - significance);
            *value = (t * t / (degrees + t * t) * R2_ONE).round() as u32;
        }
    }
    values
}
