//! The known name that someone may have meant.

use strsim::osa_distance;

/// The one of `known` that takes the fewest edits to become `wrong`: characters inserted, left out, replaced, or swapped with the
/// next. The first of several; none if all take more edits than a third of the longer name's characters. Capitals, and hyphens in
/// place of underscores, do not count.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = plain(wrong);
    let edits = |name: &'a str| {
        let name = plain(name);
        let [long, other] = [&wrong, &name].map(|name| name.chars().count());
        let most = long.max(other) / 3;
        // Looked at first: a name in a file may be very long, and the distance takes time for each pair of characters.
        (long.abs_diff(other) <= most).then(|| osa_distance(&wrong, &name)).filter(|&edits| edits <= most)
    };
    let near = known.into_iter().filter_map(|name| Some((edits(name)?, name)));
    near.min_by_key(|&(edits, _)| edits).map(|(_, name)| name)
}

/// The end of a message about an unknown name: which known one may have been meant, if any is near.
pub fn suggestion<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(wrong, known).map_or(String::new(), |near| format!("; did you mean `{near}`?"))
}

fn plain(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::nearest;

    const KNOWN: [&str; 8] =
        ["name", "key_file", "address", "client_rate", "client_connections", "user_connections", "to", "via"];

    #[test]
    fn a_name_with_few_edits_is_recognised() {
        for (wrong, meant) in [
            ("nmae", "name"),
            ("names", "name"),
            ("NAME", "name"),
            ("keyfile", "key_file"),
            ("key-file", "key_file"),
            ("keyFile", "key_file"),
            ("adress", "address"),
            ("addresses", "address"),
            ("client_conections", "client_connections"),
            ("users_connection", "user_connections"),
            ("iva", "via"),
        ] {
            assert_eq!(nearest(wrong, KNOWN), Some(meant), "{wrong}");
        }
    }

    #[test]
    fn a_name_that_is_far_from_all_is_not() {
        for wrong in ["", "t", "ot", "colour", "nodes", "va\u{308}r", "clients", &"name".repeat(100_000)] {
            assert_eq!(nearest(wrong, KNOWN), None, "{wrong}");
        }
        assert_eq!(nearest("name", []), None);
    }

    #[test]
    fn of_two_as_near_the_first_is_taken() {
        assert_eq!(nearest("rale", ["rate", "rule"]), Some("rate"));
        assert_eq!(nearest("rale", ["rule", "rate"]), Some("rule"));
    }
}
