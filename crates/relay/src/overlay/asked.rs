//! What a node tells other programs of its host of a path: a line of JSON for a line of JSON.

use ekiden_overlay::known::Known;
use ekiden_overlay::path::Class;
use ekiden_overlay::places::ExitPaths;
use ekiden_relay_proto::Target;
use ekiden_units::Time;
use serde::{Deserialize, Serialize};

use super::status::seconds;
use crate::config::Config;
use crate::config::classes::BULK;
use crate::config::route::{Auto, Way};

/// What is asked.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    /// A destination as HOST:PORT, or a node's name.
    to: String,
    /// What a path is wanted for, instead of what the route's class says.
    kind: Option<AskedKind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AskedKind {
    Bulk,
    Interactive,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Answer<'a> {
    Known {
        /// The node that connects to the destination.
        exit: &'a str,
        kind: &'static str,
        /// The path in use, if streams have taken one.
        path: Option<KnownPath<'a>>,
        /// The one without nodes in between.
        direct: KnownPath<'a>,
    },
    Error {
        error: String,
    },
}

/// A path and what is known of it.
#[derive(Debug, PartialEq, Serialize)]
struct KnownPath<'a> {
    nodes: Vec<&'a str>,
    /// Since how many seconds it is in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    since_s: Option<f64>,
    /// Each in both directions.
    legs: Vec<Leg<'a>>,
}

/// A leg, as one node sends on it. Unknown values are null.
#[derive(Debug, PartialEq, Serialize)]
struct Leg<'a> {
    from: &'a str,
    to: &'a str,
    rate_bit_s: Option<u64>,
    carried_bit_s: Option<u64>,
    rtt_ms: Option<f64>,
    loss: Option<f64>,
    age_s: Option<f64>,
}

/// What of the answer is the same for all routes.
struct About<'a> {
    known: &'a Known,
    now: Time,
}

/// Answers a line with one, without ends of lines. `places` are where streams go.
pub fn answer<'a>(
    line: &[u8],
    config: &'a Config,
    known: &'a Known,
    places: impl Iterator<Item = (&'a str, &'a (Auto, Class), &'a ExitPaths)>,
    now: Time,
) -> Vec<u8> {
    let answer = question(line).and_then(|question| About { known, now }.answer(&question, config, places));
    let answer = answer.unwrap_or_else(|error| Answer::Error { error });
    // Numbers and names alone cannot fail to be written.
    serde_json::to_vec(&answer).unwrap_or_default()
}

/// The error is a sentence.
fn question(line: &[u8]) -> Result<Question, String> {
    let wanted = r#"one line like {"to": "www.example.org:443"} is expected"#;
    let read = serde_json::from_slice(line);
    // The reason may have text of the question in it.
    read.map_err(|error| format!("{wanted}: {}", error.to_string().escape_debug().take(200).collect::<String>()))
}

impl<'a> About<'a> {
    fn answer(
        &self,
        question: &Question,
        config: &'a Config,
        mut places: impl Iterator<Item = (&'a str, &'a (Auto, Class), &'a ExitPaths)>,
    ) -> Result<Answer<'a>, String> {
        let overlay = config.overlay.as_ref().ok_or("this node is of no overlay")?;
        let own = config.name.as_str();
        let kind = |of: Class| match question.kind {
            Some(AskedKind::Bulk) => Class::Bulk,
            Some(AskedKind::Interactive) => Class::Interactive,
            None => of,
        };
        if let Some((name, _)) = overlay.members.get_key_value(&question.to) {
            let kind = kind(Class::Bulk);
            let at_exit = places.filter(|(exit, (_, of), _)| exit == name && *of == kind);
            let used_most = at_exit.max_by_key(|(.., place)| place.streams);
            return Ok(self.over(own, name, kind, used_most.map(|(.., place)| place)));
        }
        let target = question.to.parse::<Target>().map_err(|_| {
            let to: String = question.to.escape_debug().take(100).collect();
            format!("'{to}' is no node of the overlay, and no destination of the form host:port")
        })?;
        let route = config.routes.route(&target);
        let (_, class) = config.classes.get(route.and_then(|route| route.class.as_deref()).unwrap_or(BULK));
        let kind = kind(class.kind);
        match config.routes.way(&target) {
            Way::Refuse => Err("the routes of this node refuse that destination".into()),
            Way::Direct => Ok(self.over(own, own, kind, None)),
            Way::Via(chain) => {
                let exit = chain.last().map_or(own, String::as_str);
                let path = self.path(own, chain.iter().map(String::as_str), None);
                Ok(Answer::Known { exit, kind: kind.word(), path: Some(path), direct: self.direct(own, exit) })
            }
            Way::Auto(auto) => {
                let exit = overlay.exit(auto, &target)?.unwrap_or(own);
                if exit != own && !overlay.members.contains_key(exit) {
                    return Err(format!("node {exit}, at which the route leaves the overlay, is no member now"));
                }
                if let Some(required) = auto.required(exit).next().filter(|_| exit == own) {
                    return Err(format!(
                        "the route wants {required} in between, and no other node is near that destination"
                    ));
                }
                if exit != own && !overlay.may_be_exit(exit, auto) {
                    return Err(format!("node {exit} is near that destination, and not in the regions of the route"));
                }
                let place = places.find(|(at, (route, of), _)| *at == exit && route == auto && *of == kind);
                Ok(self.over(own, exit, kind, place.map(|(.., place)| place)))
            }
        }
    }

    /// What is known of the path in use at a place, and of the direct one.
    fn over(&self, own: &'a str, exit: &'a str, kind: Class, place: Option<&'a ExitPaths>) -> Answer<'a> {
        let current = place.and_then(|place| place.choice.current());
        let path = current.map(|(path, since, _)| {
            let since = seconds(self.now.since(since));
            self.path(own, path.0.iter().map(String::as_str), Some(since))
        });
        let path = path.or_else(|| (exit == own).then(|| self.direct(own, exit)));
        Answer::Known { exit, kind: kind.word(), path, direct: self.direct(own, exit) }
    }

    fn direct(&self, own: &'a str, exit: &'a str) -> KnownPath<'a> {
        self.path(own, [exit].into_iter().filter(|exit| *exit != own), None)
    }

    fn path(&self, own: &'a str, behind: impl Iterator<Item = &'a str>, since_s: Option<f64>) -> KnownPath<'a> {
        let nodes: Vec<&str> = std::iter::once(own).chain(behind).collect();
        let legs = nodes.windows(2).flat_map(|pair| [self.leg(pair[0], pair[1]), self.leg(pair[1], pair[0])]).collect();
        KnownPath { nodes, since_s, legs }
    }

    fn leg(&self, from: &'a str, to: &'a str) -> Leg<'a> {
        let leg = self.known.leg(from, to, self.now);
        Leg {
            from,
            to,
            rate_bit_s: leg.as_ref().and_then(|leg| leg.rate).map(|rate| rate.0),
            carried_bit_s: leg.as_ref().map(|leg| leg.carried.0),
            rtt_ms: leg.as_ref().map(|leg| leg.rtt.as_ms()),
            loss: leg.as_ref().map(|leg| leg.loss),
            age_s: leg.as_ref().map(|leg| seconds(leg.age)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn questions_are_read() {
        let asked = question(br#"{"to": "www.example.org:443", "kind": "interactive"}"#).unwrap();
        assert_eq!((asked.to.as_str(), asked.kind), ("www.example.org:443", Some(AskedKind::Interactive)));
        assert_eq!(question(br#"{"to":"tokyo"}"#).unwrap().kind, None);
        for wrong in [&b""[..], b"{}", b"tokyo", br#"{"to":1}"#, br#"{"to":"a","kind":"slow"}"#, br#"{"to":"a","x":1}"#]
        {
            assert!(question(wrong).unwrap_err().contains("is expected"));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_question_or_refused_in_one_short_line(bytes in proptest::collection::vec(any::<u8>(), 0..1024)) {
            if let Err(why) = question(&bytes) {
                prop_assert!(!why.contains('\n') && why.len() < 1000);
            }
        }

        #[test]
        fn a_name_that_is_no_json_word_is_refused_in_one_short_line(name in ".{0,300}") {
            let line = format!(r#"{{"{}":"x"}}"#, name.replace(['"', '\\'], ""));
            let why = question(line.as_bytes());
            prop_assert!(why.is_ok() || why.is_err_and(|why| !why.contains('\n') && why.len() < 1000));
        }
    }
}
