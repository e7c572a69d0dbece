use proptest::prelude::*;

use super::*;

fn key(number: u8) -> String {
    format!("sha256:{}", format!("{number:02x}").repeat(32))
}

fn record(number: u8) -> Vec<u8> {
    Record::new("0a".into(), format!("192.0.2.{number}:7000"), key(number), Load::default()).to_bytes()
}

fn admission(number: u8) -> Vec<u8> {
    Admission::of(key(number).parse().unwrap()).to_bytes()
}

fn put(key: String, value: impl Into<Vec<u8>>, mod_revision: u64) -> Event {
    Event { kind: EventKind::Put, kv: KeyValue { key: key.into(), value: value.into(), mod_revision, lease: 7 } }
}

fn delete(key: String, mod_revision: u64) -> Event {
    Event { kind: EventKind::Delete, kv: KeyValue { key: key.into(), value: Vec::new(), mod_revision, lease: 0 } }
}

fn keys() -> Keys {
    Keys::of("blue")
}

/// Nodes a and b, admitted and registered.
fn two() -> View {
    let mut view = View::new(keys());
    for (name, number) in [("a", 1), ("b", 2)] {
        view.apply(put(keys().admitted(name), admission(number), 1));
        view.apply(put(keys().node(name), record(number), 2));
    }
    view
}

fn names(view: &View) -> Vec<String> {
    view.roster([]).0.members.into_keys().collect()
}

fn reason(view: &View, name: &str) -> String {
    view.roster([]).1.remove(name).unwrap()
}

#[test]
fn a_member_is_admitted_and_registered_with_one_key() {
    let mut view = two();
    assert_eq!(names(&view), ["a", "b"]);
    view.apply(delete(keys().admitted("a"), 3));
    assert_eq!(names(&view), ["b"]);
    assert!(reason(&view, "a").contains("not admitted"));
    view.apply(put(keys().admitted("a"), admission(9), 4));
    assert!(reason(&view, "a").contains(&key(9)));
    view.apply(put(keys().admitted("a"), admission(1), 5));
    assert_eq!(names(&view), ["a", "b"]);
    view.apply(delete(keys().node("a"), 6));
    assert_eq!(names(&view), ["b"]);
}

#[test]
fn what_is_wrong_is_ignored_with_a_reason() {
    let mut view = two();
    view.apply(put(keys().node("a"), r#"{"member_format":9}"#, 3));
    assert!(reason(&view, "a").contains("member_format 9"));
    view.apply(put(keys().admitted("b"), "me", 3));
    assert!(reason(&view, "b").contains("admission"));
    view.apply(put("/ekiden/blue/strange".into(), "x", 3));
    assert_eq!((names(&view).len(), view.len()), (0, 5));
}

#[test]
fn what_a_node_is_near_to_is_the_operators_word_alone() {
    let mut view = two();
    let near = |text: &str| {
        let of = Admission::of(key(1).parse().unwrap());
        of.with(crate::Terms { near: Some(vec![text.into()]), ..crate::Terms::default() })
    };
    view.apply(put(keys().admitted("a"), near("127.0.0.0/8").to_bytes(), 3));
    assert_eq!(view.roster([]).0.members["a"].member.near, ["127.0.0.0/8"]);
    // b claims a narrower one by its own record.
    let claim = String::from_utf8(record(2)).unwrap().replacen('{', r#"{"near":["127.0.0.1/32"],"#, 1);
    view.apply(put(keys().node("b"), claim, 4));
    assert_eq!(names(&view), ["a"]);
    assert!(reason(&view, "b").contains("has 'near', which is for the operator"), "{}", reason(&view, "b"));
    // What a node that has gone was near to is still known.
    view.apply(delete(keys().node("a"), 5));
    assert_eq!(view.roster([]).0.absent["a"], near("127.0.0.0/8"));
    view.apply(delete(keys().admitted("a"), 6));
    assert!(view.roster([]).0.absent.keys().eq(["b"]));
}

#[test]
fn what_a_node_was_near_to_is_known_where_its_admission_is_not_readable_or_lost_with_all_others() {
    let near = || {
        let of = Admission::of(key(1).parse().unwrap());
        of.with(crate::Terms { near: Some(vec!["127.0.0.0/8".into()]), ..crate::Terms::default() })
    };
    let admitted = || keys().admitted("a");
    let mut view = two();
    view.apply(put(admitted(), near().to_bytes(), 3));
    for (at, odd) in [&b"\xff"[..], br#"{"admission_format":9}"#, b""].into_iter().enumerate() {
        view.apply(put(admitted(), odd, 4 + at as u64));
        let (roster, ignored) = view.roster([]);
        assert_eq!((&roster.absent["a"], roster.members.contains_key("a")), (&near(), false));
        assert!(ignored.contains_key("a"));
    }
    // As read again, and with all others away.
    let mut reading = Reading::default();
    reading.take(&keys(), vec![put(admitted(), "odd", 9).kv]);
    view.replace(reading, Instant::now(), None);
    assert_eq!(view.roster([]).0.absent["a"], near());
    view.replace(Reading::default(), Instant::now(), None);
    assert_eq!(view.roster([]).0.absent["a"], near());
    // The operator's word counts again.
    view.apply(put(admitted(), Admission::of(key(1).parse().unwrap()).to_bytes(), 10));
    assert_eq!(view.roster([]).0.absent["a"], Admission::of(key(1).parse().unwrap()));
    view.apply(put(admitted(), "odd", 11));
    view.apply(delete(admitted(), 12));
    assert!(!view.roster([]).0.absent.contains_key("a"));
}

#[test]
fn who_is_expelled_is_near_to_nothing_and_who_is_lost_with_all_others_stays_near() {
    let near = || {
        let of = Admission::of(key(1).parse().unwrap());
        of.with(crate::Terms { near: Some(vec!["127.0.0.0/8".into()]), ..crate::Terms::default() })
    };
    let with = |name: &str, what: &[u8], at| put(keys().admitted(name), what.to_vec(), at);
    let known = || {
        let mut view = View::new(keys());
        view.apply_all(vec![with("a", &near().to_bytes(), 3), with("b", &near().to_bytes(), 3)]);
        view
    };
    let absent = |view: &View| view.roster([]).0.absent.into_keys().collect::<Vec<_>>();
    // One after the other, by the operator.
    let mut view = known();
    view.apply_all(vec![delete(keys().admitted("a"), 4)]);
    assert_eq!(absent(&view), ["b"]);
    // All at once.
    let mut view = known();
    view.apply_all(vec![delete(keys().admitted("a"), 4), delete(keys().admitted("b"), 4)]);
    assert_eq!(absent(&view), ["a", "b"]);
    // They come back one after the other.
    let mut reading = Reading::default();
    reading.take(&keys(), vec![with("b", &near().to_bytes(), 5).kv]);
    view.replace(reading, Instant::now(), None);
    assert_eq!(absent(&view), ["a", "b"]);
    // One that could not be read is expelled while etcd was away.
    let mut view = known();
    view.apply_all(vec![with("a", b"odd", 4)]);
    assert_eq!(absent(&view), ["a", "b"]);
    let mut reading = Reading::default();
    reading.take(&keys(), vec![with("b", &near().to_bytes(), 3).kv]);
    view.replace(reading, Instant::now(), None);
    assert_eq!(absent(&view), ["b"]);
}

#[test]
fn who_writes_without_end_is_no_member() {
    let (roster, ignored) = two().roster([("a", "noise".to_owned())]);
    assert!(roster.members.keys().eq(["b"]) && roster.absent.contains_key("a"));
    assert_eq!(ignored["a"], "noise");
}

#[test]
fn a_record_without_a_lease_is_none() {
    let mut view = two();
    let mut unending = put(keys().node("a"), record(1), 3);
    unending.kv.lease = 0;
    view.apply(unending);
    assert_eq!(names(&view), ["b"]);
    assert!(reason(&view, "a").contains("under no lease"));
}

#[test]
fn of_two_with_one_key_none_is_a_member() {
    let mut view = two();
    view.apply(put(keys().admitted("c"), admission(1), 3));
    assert_eq!(names(&view), ["a", "b"]);
    view.apply(put(keys().node("c"), record(1), 4));
    assert_eq!(names(&view), ["b"]);
    assert!(reason(&view, "a").contains("one key") && reason(&view, "c").contains("one key"));
}

#[test]
fn what_is_older_than_what_is_known_changes_nothing() {
    let mut view = two();
    view.apply(put(keys().node("a"), record(1), 7));
    view.apply(delete(keys().node("a"), 6));
    assert_eq!(names(&view), ["a", "b"]);
    assert_eq!(view.node("a").unwrap().0, 7);
}

#[test]
fn after_a_long_absence_the_missing_get_time_to_return() {
    let now = Instant::now();
    let mut view = two();
    let reading = |names: &[&str]| {
        let mut reading = Reading::default();
        for (name, number) in [("a", 1), ("b", 2)] {
            let kv = |key: String, value: Vec<u8>| KeyValue { key: key.into(), value, mod_revision: 9, lease: 7 };
            reading.take(&keys(), vec![kv(keys().admitted(name), admission(number))]);
            if names.contains(&name) {
                reading.take(&keys(), vec![kv(keys().node(name), record(number))]);
            }
        }
        reading
    };
    view.replace(reading(&["a"]), now, Some(RETURN_WITHIN));
    assert_eq!(names(&view), ["a", "b"]);
    assert_eq!(view.next_departure(), Some(now + RETURN_WITHIN));
    view.let_go(now + RETURN_WITHIN / 2);
    assert_eq!(names(&view), ["a", "b"]);
    view.let_go(now + RETURN_WITHIN);
    assert_eq!((names(&view), view.next_departure()), (vec!["a".to_owned()], None));

    view.replace(reading(&["b"]), now, None);
    assert_eq!(names(&view), ["b"]);

    view.replace(reading(&["a"]), now, Some(RETURN_WITHIN));
    view.apply(delete(keys().admitted("b"), 10));
    assert_eq!(names(&view), ["a"]);
}

proptest! {
    #[test]
    fn nothing_that_etcd_can_hold_makes_it_panic(
        entries in proptest::collection::vec((0u8..5, any::<bool>(), proptest::collection::vec(any::<u8>(), 0..80)), 0..40)
    ) {
        let mut view = two();
        for (at, (place, gone, value)) in entries.into_iter().enumerate() {
            let key = match place {
                0 => keys().node("a"),
                1 => keys().admitted("a"),
                2 => keys().id(),
                3 => keys().node("zz"),
                _ => String::from_utf8_lossy(&value).into_owned(),
            };
            view.apply(if gone { delete(key, at as u64) } else { put(key, value, at as u64) });
            let (Roster { members, absent }, ignored) = view.roster([]);
            prop_assert!(members.keys().all(|name| !ignored.contains_key(name) && !absent.contains_key(name)));
            let admitted = |name: &str| view.admitted(name).map(|(_, admission)| admission.clone());
            prop_assert!(members.iter().all(|(name, of)| admitted(name) == Some(Admission::from(&of.member))));
            prop_assert!(absent.iter().all(|(name, of)| admitted(name).is_none_or(|admission| admission == *of)));
        }
    }
}
