//! What is needed of a certificate besides what the TLS library says: its time, its names and its public key (RFC 5280 §4.1), read from
//! DER.

use ekiden_units::is_unseen;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const OCTETS: u8 = 0x04;
/// UTF8String, PrintableString, IA5String; the rest of DirectoryString (RFC 5280 §4.1.2.4).
const TEXTS: [u8; 6] = [0x0c, 0x13, 0x16, TELETEX, UNIVERSAL, BMP];
const TELETEX: u8 = 0x14;
const UNIVERSAL: u8 = 0x1c;
const BMP: u8 = 0x1e;
/// rfc822Name, dNSName, uniformResourceIdentifier (RFC 5280 §4.2.1.6).
const NAMES: [u8; 3] = [0x81, 0x82, 0x86];

/// id-at-commonName, id-ce-subjectAltName and id-ce-basicConstraints.
const COMMON_NAME: &[u8] = &[6, 3, 0x55, 4, 3];
const ALTERNATIVE_NAMES: &[u8] = &[6, 3, 0x55, 0x1d, 17];
const BASIC_CONSTRAINTS: &[u8] = &[6, 3, 0x55, 0x1d, 19];

/// The most bytes of a name.
const NAME_MOST: usize = 255;

/// Parts of a certificate, each with its tag and length.
pub struct Parts<'a> {
    pub issuer: &'a [u8],
    pub subject: &'a [u8],
    pub public_key: &'a [u8],
    /// From when and until when it is valid, in seconds since 1970.
    pub validity: [i64; 2],
    /// It has no extensions.
    is_first_version: bool,
    /// What is behind the public key.
    rest: &'a [u8],
}

/// One value.
struct Value<'a> {
    tag: u8,
    content: &'a [u8],
    /// With tag and length.
    whole: &'a [u8],
}

impl<'a> Parts<'a> {
    /// `None` if it is no certificate.
    pub fn of(certificate: &'a [u8]) -> Option<Self> {
        let mut rest = next(&mut &*certificate)?.of(SEQUENCE)?;
        let mut signed = next(&mut rest)?.of(SEQUENCE)?;
        let is_first_version = signed.first() != Some(&VERSION);
        if !is_first_version {
            next(&mut signed)?;
        }
        let (_serial, _algorithm) = (next(&mut signed)?, next(&mut signed)?);
        let issuer = next(&mut signed)?.whole;
        let mut times = next(&mut signed)?.of(SEQUENCE)?;
        let validity = [time(next(&mut times)?)?, time(next(&mut times)?)?];
        let subject = next(&mut signed)?.whole;
        let public_key = next(&mut signed)?.whole;
        Some(Self { issuer, subject, public_key, validity, is_first_version, rest: signed })
    }

    /// Whether it may sign others: it says so (RFC 5280 §4.2.1.9), or has signed itself and could not say so.
    pub fn is_authority(&self) -> bool {
        let Some(constraints) = self.extension(BASIC_CONSTRAINTS) else {
            return self.is_first_version && self.issuer == self.subject;
        };
        let content = next(&mut &*constraints).and_then(|value| value.of(SEQUENCE));
        matches!(content, Some([1, 1, is_one, ..]) if *is_one > 0)
    }

    /// The last: names go from the root of a directory down to their owner (RFC 4514 §2.1).
    fn common_name(&self) -> Option<Value<'a>> {
        let mut last = None;
        let mut names = next(&mut &*self.subject)?.of(SEQUENCE)?;
        while let Some(set) = next(&mut names) {
            let mut attributes = set.content;
            while let Some(attribute) = next(&mut attributes) {
                let mut pair = attribute.content;
                if next(&mut pair)?.whole == COMMON_NAME {
                    last = Some(next(&mut pair)?);
                }
            }
        }
        last
    }

    fn alternative_name(&self) -> Option<String> {
        let mut names = self.extension(ALTERNATIVE_NAMES)?;
        let mut names = next(&mut names)?.of(SEQUENCE)?;
        std::iter::from_fn(|| next(&mut names)).filter(|name| NAMES.contains(&name.tag)).find_map(|name| text(&name))
    }

    /// What is in an extension.
    fn extension(&self, id: &[u8]) -> Option<&'a [u8]> {
        let mut rest = self.rest;
        let extensions = std::iter::from_fn(|| next(&mut rest)).find(|value| value.tag == EXTENSIONS)?;
        let mut all = next(&mut &*extensions.content)?.of(SEQUENCE)?;
        while let Some(extension) = next(&mut all) {
            let mut parts = extension.content;
            if next(&mut parts)?.whole == id {
                return std::iter::from_fn(|| next(&mut parts))
                    .find(|part| part.tag == OCTETS)
                    .map(|part| part.content);
            }
        }
        None
    }
}

/// The name by which a certificate knows its owner: the subject's common name, else the first e-mail address, host name or URI among
/// its alternative names.
pub fn subject_name(certificate: &[u8]) -> Option<String> {
    let parts = Parts::of(certificate)?;
    parts.common_name().and_then(|value| common_text(&value)).or_else(|| parts.alternative_name())
}

/// Whether a certificate has a common name that is no name here, so that [`subject_name`] is another one.
pub fn has_odd_common_name(certificate: &[u8]) -> bool {
    Parts::of(certificate).and_then(|parts| parts.common_name()).is_some_and(|value| common_text(&value).is_none())
}

impl<'a> Value<'a> {
    fn of(self, tag: u8) -> Option<&'a [u8]> {
        (self.tag == tag).then_some(self.content)
    }
}

fn common_text(value: &Value<'_>) -> Option<String> {
    TEXTS.contains(&value.tag).then(|| text(value)).flatten()
}

/// A name that can stand in a log.
fn text(value: &Value<'_>) -> Option<String> {
    let content = value.content;
    let text = match value.tag {
        // What those who write it mean is Latin 1.
        TELETEX => content.iter().map(|byte| char::from(*byte)).collect(),
        BMP => {
            let (units, []) = content.as_chunks() else { return None };
            String::from_utf16(&units.iter().map(|unit| u16::from_be_bytes(*unit)).collect::<Vec<_>>()).ok()?
        }
        UNIVERSAL => {
            let (characters, []) = content.as_chunks() else { return None };
            characters.iter().map(|character| char::from_u32(u32::from_be_bytes(*character))).collect::<Option<_>>()?
        }
        _ => String::from_utf8(content.to_vec()).ok()?,
    };
    ((1..=NAME_MOST).contains(&text.len()) && !text.chars().any(is_unseen)).then_some(text)
}

/// The first value of `input`, which has what is behind it from then on.
fn next<'a>(input: &mut &'a [u8]) -> Option<Value<'a>> {
    let before = *input;
    let (&[tag, first], mut rest) = before.split_first_chunk()?;
    let length = match first {
        0..=0x7f => usize::from(first),
        0x81..=0x84 => {
            let (bytes, behind) = rest.split_at_checked(usize::from(first & 0x7f))?;
            rest = behind;
            bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
        }
        _ => return None,
    };
    let (content, behind) = rest.split_at_checked(length)?;
    *input = behind;
    Some(Value { tag, content, whole: &before[..before.len() - behind.len()] })
}

/// A time in seconds since 1970 (RFC 5280 §4.1.2.5).
fn time(value: Value<'_>) -> Option<i64> {
    let digits = std::str::from_utf8(value.content.strip_suffix(b"Z")?).ok()?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match value.tag {
        UTC_TIME => {
            let year: i64 = digits.get(..2)?.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, digits.get(2..)?)
        }
        GENERALIZED_TIME => (digits.get(..4)?.parse().ok()?, digits.get(4..)?),
        _ => return None,
    };
    let two = |at: usize| rest.get(at..at + 2)?.parse::<i64>().ok();
    let [month, day, hour, minute, second] = [two(0)?, two(2)?, two(4)?, two(6)?, two(8)?];
    (rest.len() == 10).then(|| days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Days from 1970-01-01 to a date: years begin in March, so that a leap day is the last of its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// A time in seconds since 1970, as people read it, in UTC.
pub fn date(seconds: i64) -> String {
    let (mut day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (mut year, mut month) = (1970 + day / 366, 1);
    while days(year + 1, 1, 1) <= day {
        year += 1;
    }
    while month < 12 && days(year, month + 1, 1) <= day {
        month += 1;
    }
    day = day - days(year, month, 1) + 1;
    format!("{year}-{month:02}-{day:02} at {:02}:{:02} UTC", second / 3600, second / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_shown() {
        for (tag, written, seconds, shown) in [
            (UTC_TIME, "700101000000Z", 0, "1970-01-01 at 00:00 UTC"),
            (UTC_TIME, "240229235959Z", 1_709_251_199, "2024-02-29 at 23:59 UTC"),
            (UTC_TIME, "491231000000Z", 2_524_521_600, "2049-12-31 at 00:00 UTC"),
            (GENERALIZED_TIME, "21000301120000Z", 4_107_585_600, "2100-03-01 at 12:00 UTC"),
            (GENERALIZED_TIME, "99991231235959Z", 253_402_300_799, "9999-12-31 at 23:59 UTC"),
        ] {
            let value = Value { tag, content: written.as_bytes(), whole: &[] };
            assert_eq!(time(value), Some(seconds), "{written}");
            assert_eq!(date(seconds), shown);
        }
        for wrong in ["", "Z", "7001010000Z", "700101000000", "7001010000+1Z", "7001010000000Z"] {
            assert_eq!(time(Value { tag: UTC_TIME, content: wrong.as_bytes(), whole: &[] }), None, "{wrong}");
        }
    }

    #[test]
    fn no_bytes_make_it_fail() {
        let whole = [&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff][..], &[0x30; 40]].concat();
        for from in 0..whole.len() {
            assert!(Parts::of(&whole[from..]).is_none());
        }
    }
}
