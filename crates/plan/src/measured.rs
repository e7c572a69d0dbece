//! What `ekiden measure path` has found.

use ekiden_record::{Finding, PathRecord};
use ekiden_units::path::{RATES, RTTS};
use ekiden_units::{BitRate, Bytes};

use crate::given::{self, BURST, Given, Values, WINDOWS};
use crate::{Direction, Error, Estimate};

/// What a record says of one direction. What it could not see is told, or left to flags.
pub fn values(record: &PathRecord, file: &str, direction: Option<Direction>) -> Result<Values, Error> {
    let direction = direction.unwrap_or(Direction::Back);
    let (name, found) = match direction {
        Direction::Forth => ("forth", &record.forth),
        Direction::Back => ("back", &record.back),
    };
    let mut notes = Vec::new();
    let place = |key: &str| format!("{file}: {name}.{key}");
    let rtt = Reading { key: format!("{file}: rtt_us"), finding: &record.rtt_us };
    let least = RTTS.start().as_secs();
    let mut rtt_s = rtt.estimate(1e-6, 0.0, RTTS.end().as_secs(), &mut notes)?;
    if let Some(given) = rtt_s.as_mut().filter(|given| given.value.value < least) {
        notes.push(format!("The round trip that was found is less than {}, which was taken.", RTTS.start()));
        given.value = Estimate::between(least, least, given.value.high.max(least));
    }
    let rate = Reading { key: place("rate_bit_s"), finding: &found.rate_bit_s };
    let rate_bit_s = match found.rate_bit_s {
        // The line was not full: nobody knows how much faster it is.
        Finding::AtLeast { value, .. } => {
            let rate = BitRate(value as u64);
            notes.push(format!(
                "{name}.rate_bit_s is a lower bound only, {rate}: the line was not full; say what it carries"
            ));
            None
        }
        _ => rate.estimate(1.0, RATES.start().0 as f64, RATES.end().0 as f64, &mut notes)?,
    };
    let buffer = Reading { key: place("buffer_bytes"), finding: &found.buffer_bytes };
    let buffer_bytes = buffer.estimate(1.0, 0.0, 1e12, &mut notes)?;
    let mut unseen_loss = None;
    let loss = match &found.random_loss {
        Finding::Absent { .. } => Some(Given { value: Estimate::exact(0.0), place: place("random_loss") }),
        // None was seen: the forecast has none, and a note says what the most that there may be would do.
        Finding::AtMost { value, .. } if (0.0..=given::LOSS_MOST).contains(value) => {
            unseen_loss = Some(*value).filter(|value| *value > 0.0);
            Some(Given { value: Estimate::exact(0.0), place: place("random_loss") })
        }
        finding => {
            let reading = Reading { key: place("random_loss"), finding };
            reading.estimate(1.0, 0.0, given::LOSS_MOST, &mut notes)?
        }
    };
    let window = Reading { key: place("window_bytes"), finding: &found.window_bytes };
    let window = window.estimate(1.0, WINDOWS.start().0 as f64, WINDOWS.end().0 as f64, &mut notes)?;
    if window.is_some() {
        notes.push("The windows are those of `ekiden measure`; --window says those of the hosts that matter.".into());
    }
    let policer = found.policer_bit_s.value();
    let most = *given::MTUS.end();
    let mtu = found.mtu_bytes.value().map(|mtu| Given { value: (mtu as u32).min(most), place: place("mtu_bytes") });
    if found.mtu_bytes.value().is_some_and(|mtu| mtu > f64::from(most)) {
        notes.push(format!("The MTU that was found is more than {most}, which was taken."));
    }
    Ok(Values {
        direction: Some(direction),
        rtt_s,
        rate_bit_s,
        buffer_bytes,
        loss,
        unseen_loss,
        window: window.map(|given| Given { value: Bytes(given.value.value as u64), place: given.place }),
        policer_rate: policer.map(|rate| Given { value: BitRate(rate as u64), place: place("policer_bit_s") }),
        policer_burst: policer.map(|_| Given { value: BURST, place: place("policer_bit_s") }),
        mtu,
        notes,
        ..Values::default()
    })
}

struct Reading<'a> {
    /// Where it stands, for errors.
    key: String,
    finding: &'a Finding,
}

impl Reading<'_> {
    /// What was found, or a bound, which is told. `None` if it could not be seen.
    fn estimate(
        &self,
        unit: f64,
        least: f64,
        most: f64,
        notes: &mut Vec<String>,
    ) -> Result<Option<Given<Estimate>>, Error> {
        let (low, value, high) = match *self.finding {
            Finding::Observed { value, low, high, .. } => (low, value, high),
            Finding::AtLeast { value, .. } => (value, value, 4.0 * value),
            Finding::AtMost { value, .. } => (value / 4.0, value, value),
            Finding::Absent { .. } => return Ok(None),
            Finding::NotObservable { ref reason } => {
                notes.push(format!(
                    "{} could not be observed: {reason}.",
                    self.key.rsplit(' ').next().unwrap_or_default()
                ));
                return Ok(None);
            }
        };
        if let Finding::AtLeast { .. } | Finding::AtMost { .. } = self.finding {
            notes.push(format!("{} is a bound only.", self.key.rsplit(' ').next().unwrap_or_default()));
        }
        let [low, value, high] = [low, value, high].map(|number| number * unit);
        if !value.is_finite() || !low.is_finite() || !high.is_finite() || !(least..=most).contains(&value) {
            let [value, least, most] = [value, least, most].map(|number| shown(number / unit));
            return Err(Error::wrong(&self.key, format!("{value} is out of range: {least} to {most}")));
        }
        let value = Estimate::between(low.clamp(least, most), value, high.clamp(least, most));
        Ok(Some(Given { value, place: self.key.clone() }))
    }
}

/// A number from a file, in six digits.
fn shown(number: f64) -> String {
    match number.abs() {
        0.0 => "0".into(),
        usual if (1e-3..1e15).contains(&usual) => {
            let step = 10_f64.powi(5 - usual.log10().floor() as i32);
            format!("{}", (number * step).round() / step)
        }
        _ => format!("{number:e}"),
    }
}
