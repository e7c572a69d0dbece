//! What etcd's JSON gateway answers (etcd's `rpc.proto`, in proto3's JSON), without I/O. Numbers of 64 bits come as strings, bytes in
//! base64, and fields that are zero not at all.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize as Read;
use serde::de::{Deserialize, Deserializer, Error};

/// `Unauthenticated` and the others of gRPC's status codes that matter here.
pub const UNAUTHENTICATED: i64 = 16;
/// The caller may not do that.
pub const PERMISSION_DENIED: i64 = 7;

/// In front of every answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Read)]
#[serde(default)]
pub struct Header {
    /// Which cluster answers.
    #[serde(deserialize_with = "number")]
    pub cluster_id: u64,
    /// The revision of its store.
    #[serde(deserialize_with = "number")]
    pub revision: u64,
    /// It only grows while a cluster lives.
    #[serde(deserialize_with = "number")]
    pub raft_term: u64,
}

/// A key and what it holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Read)]
#[serde(default)]
pub struct KeyValue {
    /// The key.
    #[serde(deserialize_with = "bytes")]
    pub key: Vec<u8>,
    /// What it holds.
    #[serde(deserialize_with = "bytes")]
    pub value: Vec<u8>,
    /// The revision that wrote it.
    #[serde(deserialize_with = "number")]
    pub mod_revision: u64,
    /// The lease that it is under; 0 for none.
    #[serde(deserialize_with = "number")]
    pub lease: u64,
}

/// The answer to `kv/range`.
#[derive(Debug, Clone, Default, Read)]
#[serde(default)]
pub struct Range {
    /// What it begins with.
    pub header: Header,
    /// The keys asked for.
    pub kvs: Vec<KeyValue>,
    /// Whether there are more than were asked for.
    pub more: bool,
    /// How many keys there are in the range, without limits and filters.
    #[serde(deserialize_with = "number")]
    pub count: u64,
}

/// The answer to `kv/txn`.
#[derive(Debug, Clone, Default, Read)]
#[serde(default)]
pub struct Txn {
    /// What it begins with.
    pub header: Header,
    /// Whether the conditions held.
    pub succeeded: bool,
}

/// The answer to `lease/grant`, and what is in that to `lease/keepalive`.
#[derive(Debug, Clone, Default, Read)]
#[serde(default)]
pub struct Lease {
    /// The lease.
    #[serde(rename = "ID", deserialize_with = "number")]
    pub id: u64,
    /// Seconds that it lasts; 0 if there is no such lease.
    #[serde(rename = "TTL", deserialize_with = "number")]
    pub ttl: u64,
}

/// The answer to `maintenance/status`.
#[derive(Debug, Clone, Default, Read)]
#[serde(default)]
pub struct EtcdStatus {
    /// Of etcd.
    pub version: String,
    /// What the store takes, in bytes.
    #[serde(rename = "dbSize", deserialize_with = "number")]
    pub size: u64,
    /// What of that is in use.
    #[serde(rename = "dbSizeInUse", deserialize_with = "number")]
    pub in_use: u64,
    /// The most that it may take; 0 where etcd does not say.
    #[serde(rename = "dbSizeQuota", deserialize_with = "number")]
    pub quota: u64,
    /// Its alarms, among others.
    pub errors: Vec<String>,
}

/// The answer to `auth/authenticate`.
#[derive(Debug, Clone, Default, Read)]
#[serde(default)]
pub struct Token {
    /// To be sent with each request.
    pub token: String,
}

/// An answer of which nothing matters but that it is one.
#[derive(Debug, Clone, Default, Read)]
pub struct Done {}

/// A line of an answer that comes in lines.
#[derive(Debug, Clone, Read)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
pub struct Line<T> {
    /// What it says.
    pub result: Option<T>,
    /// Or why it ends.
    pub error: Option<Failure>,
}

/// Why etcd does not do it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Read)]
#[serde(default)]
pub struct Failure {
    /// gRPC's status code.
    #[serde(alias = "grpc_code", deserialize_with = "number")]
    pub code: i64,
    /// In words.
    #[serde(alias = "error")]
    pub message: String,
}

/// The answers to `watch`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Read)]
#[serde(default)]
pub struct Watched {
    /// What it begins with.
    pub header: Header,
    /// The first answer.
    pub created: bool,
    /// The last.
    pub canceled: bool,
    /// Why it is the last.
    pub cancel_reason: String,
    /// Where the store begins, if the watch wanted to begin earlier.
    #[serde(deserialize_with = "number")]
    pub compact_revision: u64,
    /// What has changed, in order.
    pub events: Vec<Event>,
    /// More of the same revision follows.
    pub fragment: bool,
}

/// A change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Read)]
#[serde(default)]
pub struct Event {
    /// Whether the key is gone.
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// What there is now.
    pub kv: KeyValue,
}

/// Of a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Read)]
#[serde(rename_all = "UPPERCASE")]
pub enum EventKind {
    /// Written.
    #[default]
    Put,
    /// Gone.
    Delete,
}

impl Failure {
    /// An answer with an HTTP status that is not 200. One that is no JSON says what it says.
    pub fn parse(body: &[u8]) -> Self {
        /// `error` and `message` stand beside each other there, with the same words.
        #[derive(Read)]
        struct Plain {
            error: String,
            #[serde(default)]
            code: i64,
        }
        match serde_json::from_slice::<Plain>(body) {
            Ok(Plain { error, code }) => Self { code, message: error },
            Err(_) => Self { code: 0, message: String::from_utf8_lossy(body).into_owned() },
        }
    }

    /// Whether another token is needed: etcd forgets them when it restarts, and when its users change.
    pub fn is_of_token(&self) -> bool {
        self.code == UNAUTHENTICATED
            || self.message.contains("invalid auth token")
            || self.message.contains("revision of auth store is old")
    }

    /// Whether a user is needed.
    pub fn is_no_user(&self) -> bool {
        self.message.contains("user name is empty")
    }
}

/// In base64, as requests want it.
pub fn base64(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = std::borrow::Cow::<str>::deserialize(from)?;
    STANDARD.decode(text.as_bytes()).map_err(D::Error::custom)
}

/// A number, as such or as a string.
fn number<'de, D: Deserializer<'de>, T: std::str::FromStr + TryFrom<i64>>(from: D) -> Result<T, D::Error> {
    #[derive(Read)]
    #[serde(untagged)]
    enum Either {
        Number(i64),
        Text(String),
    }
    let number = match Either::deserialize(from)? {
        Either::Number(number) => T::try_from(number).ok(),
        Either::Text(text) => text.parse().ok(),
    };
    number.ok_or_else(|| D::Error::custom("a number is too great or none"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn answers_of_etcd_are_read() {
        let range: Range = serde_json::from_str(
            r#"{"header":{"cluster_id":"324952591200643719","member_id":"3319814642761637952","revision":"2","raft_term":"2"},"kvs":[{"key":"L2E=","create_revision":"2","mod_revision":"2","version":"1","value":"eA==","lease":"2324035622014347527"}],"count":"1"}"#,
        )
        .unwrap();
        assert_eq!(range.header, Header { cluster_id: 324_952_591_200_643_719, revision: 2, raft_term: 2 });
        assert_eq!(
            range.kvs,
            [KeyValue { key: b"/a".into(), value: b"x".into(), mod_revision: 2, lease: 2_324_035_622_014_347_527 }]
        );
        assert_eq!((range.count, range.more), (1, false));

        let lost: Line<Lease> = serde_json::from_str(r#"{"result":{"header":{},"ID":"12345"}}"#).unwrap();
        assert_eq!(lost.result.unwrap().ttl, 0);

        let compacted: Line<Watched> =
            serde_json::from_str(r#"{"result":{"header":{"revision":"4"},"canceled":true,"compact_revision":"4"}}"#)
                .unwrap();
        assert_eq!(compacted.result.unwrap().compact_revision, 4);

        let event: Event = serde_json::from_str(r#"{"type":"DELETE","kv":{"key":"L2E=","mod_revision":"9"}}"#).unwrap();
        assert_eq!((event.kind, event.kv.mod_revision), (EventKind::Delete, 9));
    }

    #[test]
    fn failures_of_etcd_are_told_apart() {
        let token = Failure::parse(
            br#"{"error":"etcdserver: invalid auth token","message":"etcdserver: invalid auth token","code":16}"#,
        );
        assert!(token.is_of_token() && !token.is_no_user());
        let nobody = Failure::parse(
            br#"{"error":"etcdserver: user name is empty","message":"etcdserver: user name is empty","code":3}"#,
        );
        assert!(nobody.is_no_user() && !nobody.is_of_token());
        assert_eq!(Failure::parse(b"404 page not found").message, "404 page not found");
        let line: Line<Watched> =
            serde_json::from_str(r#"{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}}"#)
                .unwrap();
        assert_eq!(line.error, Some(Failure { code: 14, message: "etcdserver: no leader".into() }));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}") {
            let _ = serde_json::from_str::<Line<Watched>>(&text);
            let _ = Failure::parse(text.as_bytes());
        }
    }
}
