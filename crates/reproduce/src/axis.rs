//! A key's values as numbers on an axis.

/// The key with the unit of its values.
pub(crate) fn across(key: &str, values: &[String]) -> String {
    match values.iter().find_map(|value| split(value)).map(|(_, unit)| unit).filter(|unit| !unit.is_empty()) {
        Some(unit) => format!("{key} ({})", base(unit).0),
        None => key.into(),
    }
}

/// A value as a number: of bytes in KB, of times in ms.
pub(crate) fn number(value: &str) -> Option<f64> {
    let (number, unit) = split(value)?;
    Some(number * base(unit).1)
}

fn split(value: &str) -> Option<(f64, &str)> {
    let end = value.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(value.len());
    Some((value[..end].parse().ok()?, value[end..].trim()))
}

/// The unit on an axis, and how much of it one is.
fn base(unit: &str) -> (&str, f64) {
    match unit {
        "B" => ("KB", 1e-3),
        "KiB" => ("KB", 1.024),
        "MiB" => ("KB", 1_048.576),
        "MB" => ("KB", 1e3),
        "us" => ("ms", 1e-3),
        "s" => ("ms", 1e3),
        other => (other, 1.0),
    }
}
