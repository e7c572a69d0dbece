//! iperf3's control protocol as bytes: states, parameters and results. No I/O.
//!
//! The client opens a control connection and sends a cookie of [`COOKIE_BYTES`]. From then on the server says by a byte which state the test
//! is in. Parameters and results are JSON, each behind its length in four bytes. Streams are connections that begin with the same cookie.

use ekiden_units::is_control_name;
use serde::{Deserialize, Serialize};

use super::Error;

/// The cookie: 36 letters and digits, and a zero byte.
pub const COOKIE_BYTES: usize = 37;
/// The longest JSON that is taken: some 250 bytes for each of 256 streams, and much room.
const JSON_MOST: usize = 1 << 20;
/// Numbers up to here are exact in JSON.
const EXACT_MOST: f64 = 9_007_199_254_740_992.0;

/// What a state byte says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum State {
    TestStart = 1,
    TestRunning = 2,
    TestEnd = 4,
    ParamExchange = 9,
    CreateStreams = 10,
    ServerTerminate = 11,
    ClientTerminate = 12,
    ExchangeResults = 13,
    DisplayResults = 14,
    IperfStart = 15,
    IperfDone = 16,
    AccessDenied = -1,
    ServerError = -2,
}

impl State {
    pub const ALL: [Self; 13] = [
        Self::TestStart,
        Self::TestRunning,
        Self::TestEnd,
        Self::ParamExchange,
        Self::CreateStreams,
        Self::ServerTerminate,
        Self::ClientTerminate,
        Self::ExchangeResults,
        Self::DisplayResults,
        Self::IperfStart,
        Self::IperfDone,
        Self::AccessDenied,
        Self::ServerError,
    ];

    pub fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.byte() == byte)
    }

    pub fn byte(self) -> u8 {
        (self as i8).cast_unsigned()
    }
}

/// What the client asks for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Parameters {
    pub tcp: bool,
    pub omit: u64,
    pub time: u64,
    pub num: u64,
    pub blockcount: u64,
    pub parallel: u32,
    #[serde(skip_serializing_if = "is_false")]
    pub reverse: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub bidirectional: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    pub len: u32,
    pub pacing_timer: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// A version of iperf3 whose parameters these are.
    pub client_version: &'static str,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// What each end says at the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    #[serde(default)]
    pub cpu_util_total: f64,
    #[serde(default)]
    pub cpu_util_user: f64,
    #[serde(default)]
    pub cpu_util_system: f64,
    /// 1 if the sender counts its retransmissions, 0 if not, -1 if this end is no sender.
    #[serde(default)]
    pub sender_has_retransmits: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_used: Option<String>,
    pub streams: Vec<StreamResult>,
}

/// What one end says of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamResult {
    pub id: f64,
    pub bytes: f64,
    /// Without a meaning from a receiver.
    #[serde(default)]
    pub retransmits: f64,
    #[serde(default)]
    pub jitter: f64,
    #[serde(default)]
    pub errors: f64,
    #[serde(default)]
    pub packets: f64,
    #[serde(default)]
    pub start_time: f64,
    #[serde(default)]
    pub end_time: f64,
}

/// The number by which both ends know the stream that was opened as the `index`th: 1, 3, 4, 5 …
pub fn stream_id(index: usize) -> u64 {
    if index == 0 { 1 } else { index as u64 + 2 }
}

/// A cookie from random bytes.
pub fn cookie(random: &[u8; COOKIE_BYTES - 1]) -> [u8; COOKIE_BYTES] {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut cookie = [0; COOKIE_BYTES];
    for (letter, byte) in cookie.iter_mut().zip(random) {
        *letter = LETTERS[usize::from(byte % 32)];
    }
    cookie
}

/// JSON behind its length.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    // Numbers and texts in structures: nothing that JSON cannot hold.
    let json = serde_json::to_vec(message).unwrap_or_default();
    let length = u32::try_from(json.len()).unwrap_or_default();
    [&length.to_be_bytes()[..], &json].concat()
}

/// The length of the JSON that follows.
pub fn json_length(header: [u8; 4]) -> Result<usize, Error> {
    match u32::from_be_bytes(header) as usize {
        length @ 1..=JSON_MOST => Ok(length),
        length => Err(Error::Results(format!("their length is {length} bytes, and must be 1 to {JSON_MOST}"))),
    }
}

/// The server's results from their JSON.
pub fn decode_results(json: &[u8]) -> Result<Results, Error> {
    serde_json::from_slice(json).map_err(|error| {
        Error::Results(format!(
            "not the JSON that iperf3 sends ({:?} error in column {})",
            error.classify(),
            error.column()
        ))
    })
}

impl Results {
    /// The entry of the stream `id`, which must be there once.
    pub fn stream(&self, id: u64) -> Result<&StreamResult, Error> {
        let mut found = self.streams.iter().filter(|stream| stream.id == id as f64);
        match (found.next(), found.next()) {
            (Some(stream), None) => Ok(stream),
            (None, _) => Err(Error::Results(format!("stream {id} is missing"))),
            (Some(_), Some(_)) => Err(Error::Results(format!("stream {id} is there twice"))),
        }
    }

    /// The congestion control, if it can be a name of one.
    pub fn congestion(&self) -> Option<&str> {
        self.congestion_used.as_deref().filter(|name| is_control_name(name))
    }
}

impl StreamResult {
    /// The bytes that this end has moved.
    pub fn moved_bytes(&self) -> Result<u64, Error> {
        whole(self.bytes).ok_or_else(|| Error::Results(format!("a stream has moved {} bytes", self.bytes)))
    }

    /// Segments sent again; `None` for what stands for "unknown".
    pub fn resent(&self) -> Option<u64> {
        whole(self.retransmits)
    }

    /// How long the stream was measured, in seconds; `None` if that is not said.
    pub fn seconds(&self) -> Result<Option<f64>, Error> {
        let seconds = self.end_time - self.start_time;
        match seconds.is_finite() && seconds >= 0.0 {
            true => Ok((seconds > 0.0).then_some(seconds)),
            false => Err(Error::Results(format!("a stream has lasted {seconds} s"))),
        }
    }
}

/// A number as a whole one, if it is one that JSON holds exactly.
fn whole(number: f64) -> Option<u64> {
    ((0.0..=EXACT_MOST).contains(&number) && number.fract() == 0.0).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_their_bytes() {
        for state in State::ALL {
            assert_eq!(State::of(state.byte()), Some(state));
        }
        assert_eq!(State::of(0xff), Some(State::AccessDenied));
        assert_eq!([b'H', b'S', b'2', 0].map(State::of), [None; 4]);
    }

    #[test]
    fn parameters_are_what_iperf3_takes() {
        let parameters = Parameters {
            tcp: true,
            omit: 1,
            time: 10,
            num: 0,
            blockcount: 0,
            parallel: 2,
            reverse: true,
            bidirectional: false,
            window: None,
            len: 131_072,
            pacing_timer: 1000,
            congestion: Some("reno".into()),
            client_version: "3.12",
        };
        let bytes = encode(&parameters);
        let (length, json) = bytes.split_at(4);
        assert_eq!(json_length(length.try_into().unwrap()).unwrap(), json.len());
        assert_eq!(
            std::str::from_utf8(json).unwrap(),
            r#"{"tcp":true,"omit":1,"time":10,"num":0,"blockcount":0,"parallel":2,"reverse":true,"len":131072,"pacing_timer":1000,"congestion":"reno","client_version":"3.12"}"#
        );
    }

    #[test]
    fn streams_are_numbered_as_iperf3_does() {
        assert_eq!([0, 1, 2, 3].map(stream_id), [1, 3, 4, 5]);
    }

    #[test]
    fn results_of_iperf3_are_read() {
        let json = br#"{"cpu_util_total":35.38,"cpu_util_user":0.2,"cpu_util_system":35.1,"sender_has_retransmits":1,"congestion_used":"reno",
            "streams":[{"id":1,"bytes":798621696,"retransmits":18446744073709551615,"jitter":0,"errors":0,"packets":0,"start_time":0,
            "end_time":1.027904},{"id":3,"bytes":1e9,"retransmits":28,"jitter":0,"errors":0,"packets":0}]}"#;
        let results = decode_results(json).unwrap();
        let [first, second] = [1, 3].map(|id| results.stream(id).unwrap());
        assert_eq!((first.moved_bytes().unwrap(), first.resent()), (798_621_696, None));
        assert_eq!(first.seconds().unwrap(), Some(1.027904));
        assert_eq!((second.moved_bytes().unwrap(), second.resent()), (1_000_000_000, Some(28)));
        assert_eq!(second.seconds().unwrap(), None);
        assert_eq!(results.congestion(), Some("reno"));
        assert!(results.stream(4).is_err());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for length in [0, JSON_MOST as u32 + 1, u32::MAX] {
            assert!(json_length(length.to_be_bytes()).is_err(), "{length}");
        }
        for json in
            ["", "{", "[]", "{}", "\u{0}", r#"{"streams":3}"#, r#"{"streams":[{"id":1}]}"#, &"[".repeat(100_000)]
        {
            assert!(decode_results(json.as_bytes()).is_err(), "{json:.20}");
        }
        let stream = |bytes: &str, end: &str| {
            let json = format!(
                r#"{{"streams":[{{"id":1,"bytes":{bytes},"end_time":{end}}},{{"id":3,"bytes":0}},{{"id":3,"bytes":0}}]}}"#
            );
            decode_results(json.as_bytes()).unwrap()
        };
        for bytes in ["-1", "0.5", "1e300", "9007199254740994"] {
            assert!(stream(bytes, "1").streams[0].moved_bytes().is_err(), "{bytes}");
        }
        assert!(stream("1", "-3").streams[0].seconds().is_err());
        assert!(stream("1", "1").stream(3).is_err());
        let named = |name: &str| Results { congestion_used: Some(name.into()), ..stream("1", "1") };
        assert_eq!(named("bbr\u{1b}[2J").congestion(), None);
    }
}
