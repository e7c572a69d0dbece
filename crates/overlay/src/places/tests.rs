use super::*;
use crate::leg::Look;
use crate::path::Class;

const RELAYS: [&str; 3] = ["cairo", "delhi", "paris"];

fn wanted() -> Wanted<'static> {
    Wanted {
        exit: "paris",
        relays: &RELAYS,
        required: &[],
        relays_most: 1,
        size: None,
        class: Class::Bulk,
        direction: DataDirection::Up,
        current: None,
        prices: None,
    }
}

fn look(mbit: f64) -> Look {
    Look {
        span_s: 10.0,
        rtt_s: Some(0.1),
        rate_bit_s: Some(mbit * 1e6),
        together_bit_s: mbit * 1e6,
        carried_bit_s: mbit * 1e6,
        sent: 0,
        resent: 0,
    }
}

/// Perth has 10 Mbit/s to Paris, and 50 over Delhi.
fn known() -> Known {
    let mut known = Known::of_node("perth");
    known.see("paris", &look(10.0), Time(0));
    known.see("delhi", &look(50.0), Time(0));
    let mut delhi = Known::of_node("delhi");
    delhi.see("paris", &look(50.0), Time(0));
    known.hear(delhi.tell(0.0, Time(0)), Time(0));
    known
}

fn paths(places: &mut Places<()>, known: &Known, second: u64) -> Vec<String> {
    let placed = places.place(known, &(), &wanted(), Time::secs(second));
    placed.paths.iter().map(|taken| taken.path.to_string()).collect()
}

const OVER_CAIRO: &str = "cairo → paris";
const OVER_DELHI: &str = "delhi → paris";

#[test]
fn a_path_that_failed_is_left_for_half_a_minute_and_its_nodes_are_asked() {
    let (known, mut places) = (known(), Places::new(1));
    // Behind the paths that are known to lead there stands one of which nothing is known.
    assert_eq!(paths(&mut places, &known, 0), [OVER_DELHI, "paris", OVER_CAIRO]);
    places.judge(&over("delhi"), Verdict::Delivered, Time::secs(0), Time::secs(0));
    assert_eq!(places.questions(&known, Time::secs(0)).to, ["delhi", "paris", "cairo"]);
    assert_eq!(places.questions(&known, Time::secs(1)).to, [""; 0]);
    places.failed(&Path(vec!["delhi".into(), "paris".into()]), Time::secs(1));
    assert_eq!(places.questions(&known, Time::secs(1)).to, ["delhi", "paris"]);
    // It is the last to be tried.
    assert_eq!(paths(&mut places, &known, 1), ["paris", OVER_CAIRO, OVER_DELHI]);
    assert_eq!(paths(&mut places, &known, 30), ["paris", OVER_CAIRO, OVER_DELHI]);
    assert_eq!(paths(&mut places, &known, 31), [OVER_DELHI, "paris", OVER_CAIRO]);
}

#[test]
fn where_nothing_is_known_the_node_itself_is_tried() {
    let (known, mut places) = (Known::of_node("perth"), Places::new(1));
    assert_eq!(paths(&mut places, &known, 0), ["paris", OVER_CAIRO, OVER_DELHI]);
    // A node that does not say how far it is from the exit is asked as often as the exit; only a few are at a time.
    assert_eq!(places.questions(&known, Time::secs(0)).to, ["paris", "cairo", "delhi"]);
    assert_eq!(places.questions(&known, Time::secs(2)).to, ["paris", "cairo", "delhi"]);
    assert_eq!(places.questions(&known, Time::secs(22)).to, ["paris"]);
    // Without a stream nothing is asked, but what others want to know.
    assert_eq!(places.questions(&known, Time::secs(100)), Questions::default());
    places.asked_for([String::from("cairo")].iter(), Time::secs(101));
    let wished = Questions { to: vec!["cairo".into()], wanted: Vec::new() };
    assert_eq!(places.questions(&known, Time::secs(101)), wished);
}

#[test]
fn nodes_whose_round_trip_was_seen_briefly_are_asked_again_soon() {
    let asked = |span_s: f64, delhi_span_s: f64| {
        let (mut known, mut delhi) = (Known::of_node("perth"), Known::of_node("delhi"));
        known.see("paris", &look(10.0), Time(0));
        known.see("delhi", &Look { span_s, ..look(1.0) }, Time(0));
        delhi.see("paris", &Look { span_s: delhi_span_s, ..look(1.0) }, Time(0));
        known.hear(delhi.tell(0.0, Time(0)), Time(0));
        let mut places = Places::new(1);
        paths(&mut places, &known, 0);
        places.questions(&known, Time(0));
        let asks = places.questions(&known, Time::secs(2)).to.contains(&"delhi".into());
        // For others it asks by what it has seen itself.
        places.asked_for([String::from("delhi")].iter(), Time::secs(100));
        let asks_for_others = [100, 102].map(|second| places.questions(&known, Time::secs(second)).to == ["delhi"]);
        (asks, asks_for_others)
    };
    assert_eq!(asked(10.0, 10.0), (false, [false; 2]));
    assert_eq!(asked(1.0, 10.0), (true, [true; 2]));
    assert_eq!(asked(10.0, 1.0), (true, [false; 2]));
}

#[test]
fn of_many_nodes_those_are_asked_first_that_were_asked_the_longest_ago() {
    let names: Vec<String> = (0..40).map(|number| format!("n{number:02}")).collect();
    let relays: Vec<&str> = names.iter().map(String::as_str).collect();
    let (known, mut places) = (Known::of_node("perth"), Places::new(1));
    let mut asked = Vec::new();
    for second in 0..15 {
        places.place(&known, &(), &Wanted { relays: &relays, ..wanted() }, Time::secs(second));
        let questions = places.questions(&known, Time::secs(second));
        assert_eq!(questions.wanted.len(), WANTED_MOST);
        asked.extend(questions.to.into_iter().filter(|name| name != "paris"));
    }
    asked.sort();
    asked.dedup();
    assert_eq!(asked, names);
}

#[test]
fn most_bytes_say_which_way_counts_and_old_ones_say_little() {
    let mut places = Places::<()>::new(1);
    assert_eq!(places.direction("paris"), DataDirection::Down);
    places.carried("paris", 1 << 31, 1 << 20);
    assert_eq!(places.direction("paris"), DataDirection::Up);
    (0..4).for_each(|_| places.carried("paris", 0, 1 << 30));
    assert_eq!(places.direction("paris"), DataDirection::Down);
}

/// Perth knows the direct path as bad, and Cairo and Delhi as good.
fn known_two() -> Known {
    let mut known = known();
    known.see("cairo", &look(40.0), Time(0));
    let mut cairo = Known::of_node("cairo");
    cairo.see("paris", &look(40.0), Time(0));
    known.hear(cairo.tell(0.0, Time(0)), Time(0));
    known
}

fn over(relay: &str) -> Path {
    Path(vec![relay.into(), "paris".into()])
}

#[test]
fn a_node_that_holds_back_gets_one_stream_to_show_that_it_does_so_no_more() {
    let (known, mut places) = (known_two(), Places::new(1));
    let first = |places: &mut Places<()>, second: u64| paths(places, &known, second).swap_remove(0);
    // One stream shows whether what it takes arrives; until then others go where that is known.
    assert_eq!([0; 3].map(|second| first(&mut places, second)), ["delhi → paris", "cairo → paris", "paris"]);
    places.judge(&over("delhi"), Verdict::Delivered, Time::secs(0), Time::secs(1));
    assert_eq!([1; 3].map(|second| first(&mut places, second)), ["delhi → paris"; 3]);
    places.judge(&over("cairo"), Verdict::Delivered, Time::secs(0), Time::secs(1));
    assert!(places.judge(&over("delhi"), Verdict::HeldBack, Time::secs(1), Time::secs(2)));
    assert!(!places.judge(&over("delhi"), Verdict::HeldBack, Time::secs(1), Time::secs(3)));
    // All the while at most one stream a minute is tried on it, and it is the last that is tried for a stream.
    let mut tried = 0;
    for second in 3..600 {
        let paths = paths(&mut places, &known, second);
        match paths[0].as_str() {
            "delhi → paris" => {
                tried += 1;
                places.judge(&over("delhi"), Verdict::HeldBack, Time::secs(second), Time::secs(second + 2));
            }
            other => assert_eq!(other, "cairo → paris"),
        }
        assert!(paths.contains(&"delhi → paris".to_owned()), "{paths:?}");
    }
    assert!((1..=3).contains(&tried), "{tried}");
}

#[test]
fn interactive_streams_are_judged_as_well() {
    let (known, mut places) = (known_two(), Places::<()>::new(1));
    let place = |places: &mut Places<()>, second: u64| {
        let wanted = Wanted { class: Class::Interactive, ..wanted() };
        places.place(&known, &(), &wanted, Time::secs(second)).paths[0].path.to_string()
    };
    assert_eq!(place(&mut places, 0), "paris");
    // Where the direct leg has failed, the nearest relay is next, and then the other.
    let mut known = known_two();
    known.fail("paris", Time::secs(1));
    let place = |places: &mut Places<()>, second: u64| {
        let wanted = Wanted { class: Class::Interactive, ..wanted() };
        places.place(&known, &(), &wanted, Time::secs(second)).paths[0].path.to_string()
    };
    let one = place(&mut places, 1);
    let other = place(&mut places, 1);
    assert_ne!(one, other);
    places.judge(&Path(one.split(" → ").map(String::from).collect()), Verdict::HeldBack, Time::secs(1), Time::secs(3));
    for second in 3..25 {
        assert_eq!(place(&mut places, second), other);
    }
}

#[test]
fn streams_beside_a_first_one_go_where_nothing_is_known_rather_than_behind_it() {
    // Of Delhi alone it is known that it leads there, and the direct leg has failed.
    let (mut known, mut places) = (known(), Places::new(1));
    known.fail("paris", Time::secs(1));
    assert_eq!(paths(&mut places, &known, 1), [OVER_DELHI, "paris", OVER_CAIRO]);
    assert_eq!(paths(&mut places, &known, 1), [OVER_CAIRO, OVER_DELHI, "paris"]);
    // There is no third: it goes with the first.
    assert_eq!(paths(&mut places, &known, 1)[0], OVER_DELHI);
}

#[test]
fn where_all_paths_are_tried_none_is_the_next_streams_own() {
    let (known, mut places) = (known(), Places::new(1));
    let first = |places: &mut Places<()>, second| {
        let placed = places.place(&known, &(), &wanted(), Time::secs(second));
        (placed.paths[0].path.to_string(), placed.is_own)
    };
    assert_eq!(first(&mut places, 0), (OVER_DELHI.into(), true));
    // Nobody is in between on the direct one.
    assert_eq!(first(&mut places, 0), ("paris".into(), true));
    places.failed(&Path(vec!["paris".into()]), Time::secs(0));
    assert_eq!(first(&mut places, 1), (OVER_CAIRO.into(), true));
    assert_eq!(first(&mut places, 1), (OVER_DELHI.into(), false));
    places.judge(&over("delhi"), Verdict::Delivered, Time::secs(0), Time::secs(1));
    assert_eq!(first(&mut places, 1), (OVER_DELHI.into(), true));
}

#[test]
fn what_has_failed_is_tried_when_nothing_else_is_left() {
    let (mut known, mut places) = (known_two(), Places::new(1));
    known.fail("delhi", Time::secs(10));
    places.failed(&over("delhi"), Time::secs(10));
    known.fail("paris", Time::secs(20));
    known.fail("cairo", Time::secs(20));
    places.failed(&over("cairo"), Time::secs(20));
    // The node itself, and then what has failed the longest ago.
    assert_eq!(paths(&mut places, &known, 20), ["paris", "delhi → paris", "cairo → paris"]);
    // Nodes that could not be reached are asked soon whether they are there again.
    places.questions(&known, Time::secs(20));
    assert_eq!(places.questions(&known, Time::secs(22)).to, ["paris", "cairo", "delhi"]);
    places.judge(&over("delhi"), Verdict::HeldBack, Time::secs(20), Time::secs(21));
    assert_eq!(paths(&mut places, &known, 21), ["paris", "cairo → paris", "delhi → paris"]);
}

#[test]
fn where_the_exit_cannot_be_asked_a_silence_counts_if_others_are_answered() {
    let (mut known, mut places) = (known_two(), Places::new(1));
    known.fail("paris", Time::secs(0));
    let silent = |places: &mut Places<()>, second: u64| {
        places.judge(&over("delhi"), Verdict::Silent, Time::secs(second - 5), Time::secs(second))
    };
    assert!(!silent(&mut places, 10), "nobody has had an answer");
    places.judge(&over("delhi"), Verdict::Came, Time::secs(9), Time::secs(11));
    assert!(!silent(&mut places, 12), "only over the same node");
    places.judge(&over("cairo"), Verdict::Came, Time::secs(9), Time::secs(12));
    assert!(!silent(&mut places, 20), "not since the stream began");
    assert!(silent(&mut places, 16));
    assert_eq!(paths(&mut places, &known, 17)[0], OVER_CAIRO);
}

#[test]
fn an_end_before_anything_came_sends_the_next_streams_elsewhere() {
    let (mut known, mut places) = (known_two(), Places::new(1));
    known.fail("paris", Time::secs(0));
    let before = paths(&mut places, &known, 1)[0].clone();
    let (first, other) = if before == OVER_CAIRO { ("cairo", "delhi") } else { ("delhi", "cairo") };
    assert!(!places.judge(&over(first), Verdict::Hollow, Time::secs(1), Time::secs(1)), "nothing has come elsewhere");
    assert_ne!(paths(&mut places, &known, 2)[0], before);
    // Whatever comes elsewhere: a destination may well end without an answer.
    places.judge(&over(other), Verdict::Came, Time::secs(2), Time::secs(3));
    assert!(!places.judge(&over(first), Verdict::Hollow, Time::secs(20), Time::secs(20)));
}
