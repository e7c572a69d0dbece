//! The known name that someone may have meant.

use strsim::osa_distance;

/// The one of `known` that takes the fewest edits to become `wrong`: characters inserted, left out, replaced, or swapped with the
/// next. A name that is `wrong` with words written out, or with more words, is one edit away (`certificate_file` from `cert_file`). The
/// first of several; none if all take more edits than a third of the longer name's characters. Capitals, and hyphens in place of
/// underscores, do not count.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = plain(wrong);
    let edits = |name: &'a str| {
        let name = plain(name);
        let [long, other] = [&wrong, &name].map(|name| name.chars().count());
        let most = long.max(other) / 3;
        // Looked at first: a name in a file may be very long, and the distance takes time for each pair of characters.
        let edits = (long.abs_diff(other) <= most).then(|| osa_distance(&wrong, &name)).filter(|&edits| edits <= most);
        if edits != Some(0) && is_short_for(&wrong, &name) { Some(1) } else { edits }
    };
    let near = known.into_iter().filter_map(|name| Some((edits(name)?, name)));
    near.min_by_key(|&(edits, _)| edits).map(|(_, name)| name)
}

/// Whether each of two or more words of `short` is how one of `name` begins, in their order.
fn is_short_for(short: &str, name: &str) -> bool {
    let mut words = name.split('_');
    short.contains('_') && short.split('_').all(|word| word.len() > 1 && words.any(|long| long.starts_with(word)))
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

    const KNOWN: [&str; 10] = [
        "name",
        "key_file",
        "certificate_file",
        "client_ca_file",
        "address",
        "client_rate",
        "client_connections",
        "user_connections",
        "to",
        "via",
    ];

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
            ("cl_conn", "client_connections"),
            ("cert_file", "certificate_file"),
            ("ca_file", "client_ca_file"),
            ("client_ca", "client_ca_file"),
        ] {
            assert_eq!(nearest(wrong, KNOWN), Some(meant), "{wrong}");
        }
    }

    #[test]
    fn a_name_that_is_far_from_all_is_not() {
        for wrong in [
            "",
            "t",
            "ot",
            "colour",
            "nodes",
            "va\u{308}r",
            "clients",
            "c_f",
            "file_client",
            "_",
            &"name".repeat(100_000),
        ] {
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
