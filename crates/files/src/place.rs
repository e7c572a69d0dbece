//! Where something stands in a text: its line, also that of a key of a TOML file.

use toml::de::{DeTable, DeValue};

/// The line, counted from 1, of the byte at this offset.
pub fn line_at(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count()
}

/// The line, counted from 1, of the key or table that `path` leads to from the top of the file. `None` if that is not written.
pub fn line_of(text: &str, path: &[&str]) -> Option<usize> {
    let (root, _) = DeTable::parse_recoverable(text);
    let mut table = Some(root.get_ref());
    let mut at = None;
    for name in path {
        let (key, value) = table?.iter().find(|(key, _)| key.get_ref() == name)?;
        at = Some(key.span().start);
        table = match value.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => None,
        };
    }
    Some(line_at(text, at?))
}

#[cfg(test)]
mod tests {
    use super::line_of;

    #[test]
    fn a_key_is_found_in_its_table_however_that_is_written() {
        let text = "name = \"x\"\n[tcp]\ncongestion = \"a\"\n[listen.\"a.b\"]\nkind = \"http\"\ntcp = { congestion = \"b\" }\n";
        for (path, line) in [
            (&["name"][..], Some(1)),
            (&["tcp"], Some(2)),
            (&["tcp", "congestion"], Some(3)),
            (&["listen", "a.b"], Some(4)),
            (&["listen", "a.b", "tcp", "congestion"], Some(6)),
            (&["listen", "a.b", "address"], None),
            (&["peer", "p"], None),
            (&["name", "x"], None),
            (&[], None),
        ] {
            assert_eq!(line_of(text, path), line, "{path:?}");
        }
        assert_eq!(line_of("[a", &["b"]), None);
    }
}
