//! What a server answers (RFC 959 §4.2).

/// The longest line of a reply, in bytes.
const LINE_MOST: usize = 4096;

/// The longest reply, in bytes: some servers greet with whole pages.
const REPLY_MOST: usize = 64 << 10;

/// What is kept of a reply's text, in characters.
const TEXT_MOST: usize = 200;

/// A whole reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// 100 to 599.
    pub code: u16,
    /// The beginning of its last line, without the code and without control characters.
    pub text: String,
}

/// These bytes are no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A line does not begin with a code.
    #[error("it does not speak FTP")]
    Malformed,
    /// More than this parser takes.
    #[error("its reply is too long")]
    TooLong,
}

/// Reads replies as their bytes arrive.
#[derive(Debug, Clone, Default)]
pub struct Replies {
    /// The code of a reply of several lines, whose last is still to come.
    open: Option<u16>,
    /// Bytes of its lines so far.
    length: usize,
}

impl Replies {
    /// Takes the next reply off the beginning of `bytes`, or as many of its lines as are there.
    pub fn take(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Reply>, ReplyError> {
        let mut used = 0;
        let found = loop {
            let rest = &bytes[used..];
            let Some(end) = rest.iter().take(LINE_MOST).position(|&byte| byte == b'\n') else {
                match rest.len() >= LINE_MOST {
                    true => return Err(ReplyError::TooLong),
                    false => break None,
                }
            };
            used += end + 1;
            self.length += end + 1;
            if self.length > REPLY_MOST {
                return Err(ReplyError::TooLong);
            }
            if let Some(reply) = self.line(&rest[..end])? {
                *self = Self::default();
                break Some(reply);
            }
        };
        bytes.drain(..used);
        Ok(found)
    }

    /// One line without its LF. The reply, if it is the last.
    fn line(&mut self, line: &[u8]) -> Result<Option<Reply>, ReplyError> {
        let code = line.get(..3).and_then(number).map(|code| code as u16).filter(|code| (100..600).contains(code));
        let is_last = matches!(line.get(3), None | Some(b' ' | b'\r'));
        match (self.open, code) {
            (None, None) => Err(ReplyError::Malformed),
            (None, Some(code)) if is_last => Ok(Some(Reply::new(code, line))),
            (None, Some(_)) if line[3] != b'-' => Err(ReplyError::Malformed),
            (None, Some(code)) => {
                self.open = Some(code);
                Ok(None)
            }
            (Some(open), Some(code)) if open == code && is_last => Ok(Some(Reply::new(code, line))),
            (Some(_), _) => Ok(None),
        }
    }
}

impl Reply {
    fn new(code: u16, line: &[u8]) -> Self {
        let text = String::from_utf8_lossy(line.get(4..).unwrap_or_default());
        let text =
            text.trim().chars().map(|c| if ekiden_units::is_unseen(c) { ' ' } else { c }).take(TEXT_MOST).collect();
        Self { code, text }
    }

    /// More replies to the same command will follow.
    pub fn is_preliminary(&self) -> bool {
        self.code < 200
    }

    /// What was asked for is done.
    pub fn is_done(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// The port for data, as EPSV is answered: `(|||port|)` (RFC 2428 §3).
    pub fn extended_port(&self) -> Option<u16> {
        let (_, rest) = self.text.split_once('(').filter(|_| self.code == 229)?;
        let rest = rest.trim_start();
        let mark = rest.chars().next().filter(char::is_ascii_graphic)?;
        let mut fields = rest.split(mark).map(str::trim).skip(3);
        port(number(fields.next()?.as_bytes())?).filter(|_| fields.next().is_some_and(|rest| rest.starts_with(')')))
    }

    /// The port for data, as PASV is answered: six numbers, somewhere in the text (RFC 1123 §4.1.2.6). The address among them
    /// is not the server's where addresses are translated, and may be anyone's where it is not honest.
    pub fn passive_port(&self) -> Option<u16> {
        // Some servers write blanks behind the commas.
        let text = self.text.split(',').map(str::trim).collect::<Vec<_>>().join(",");
        let mut words = text.split(|c: char| !c.is_ascii_digit() && c != ',').filter(|_| self.code == 227);
        words.find_map(|word| {
            let numbers: Option<Vec<u64>> = word.trim_matches(',').split(',').map(|n| number(n.as_bytes())).collect();
            match numbers?[..] {
                [_, _, _, _, high @ 0..256, low @ 0..256] => port(high << 8 | low),
                _ => None,
            }
        })
    }

    /// The length of a file in bytes, as SIZE is answered (RFC 3659 §4).
    pub fn size(&self) -> Option<u64> {
        number(self.text.as_bytes()).filter(|_| self.code == 213)
    }

    /// When a file was changed, as MDTM is answered (RFC 3659 §3), in the form that HTTP has (RFC 9110 §5.6.7).
    pub fn modified(&self) -> Option<String> {
        let digits = self.text.split('.').next().filter(|digits| self.code == 213 && digits.len() == 14)?.as_bytes();
        let [year, month, day] = [number(&digits[..4])?, number(&digits[4..6])?, number(&digits[6..8])?];
        let [hour, minute, second] = [number(&digits[8..10])?, number(&digits[10..12])?, number(&digits[12..])?];
        let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let days = match month {
            2 => 28 + u64::from(leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        if year < 1583 || !(1..=days).contains(&day) || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        // Days of the Gregorian calendar since a Sunday, January and February counted as the end of the year before.
        let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let weekday = (365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day + 2) % 7;
        let weekday = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"][weekday as usize];
        let month =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][month as usize - 1];
        Some(format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT"))
    }
}

/// Digits and nothing else.
fn number(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok()
}

fn port(number: u64) -> Option<u16> {
    u16::try_from(number).ok().filter(|&port| port != 0)
}
