//! TOML as a terminal shows it, which is read back as the same.

use std::fmt::Write;

use ekiden_units::is_unseen;
use toml_parser::lexer::TokenKind;
use toml_parser::{ParseError, Source};

/// TOML in which [`crate::plain`] finds nothing to escape in strings and quoted keys. A string that holds what cannot be seen becomes a basic
/// one, which has escapes; a literal one has none.
pub fn plain_toml(text: &str) -> String {
    let source = Source::new(text);
    let mut plain = String::with_capacity(text.len());
    for token in source.lex() {
        let Some(raw) = source.get(token) else { continue };
        let is_string = matches!(
            token.kind(),
            TokenKind::LiteralString | TokenKind::BasicString | TokenKind::MlLiteralString | TokenKind::MlBasicString
        );
        if is_string && raw.as_str().contains(|c| is_unseen(c) && !matches!(c, '\n' | '\t')) {
            let (mut value, mut error) = (String::new(), None::<ParseError>);
            let _ = raw.decode_scalar(&mut value, &mut error);
            if error.is_none() {
                basic(&mut plain, &value);
                continue;
            }
        }
        plain.push_str(raw.as_str());
    }
    plain
}

/// Writes a basic string.
fn basic(out: &mut String, value: &str) {
    out.push('"');
    for c in value.chars() {
        let _ = match c {
            '"' | '\\' => write!(out, "\\{c}"),
            '\n' => write!(out, "\\n"),
            '\t' => write!(out, "\\t"),
            c if is_unseen(c) => write!(out, "\\u{:04X}", u32::from(c)),
            c => write!(out, "{c}"),
        };
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use toml::Table;

    use super::*;
    use crate::plain;

    #[test]
    fn a_literal_string_with_what_cannot_be_seen_becomes_a_basic_one() {
        for (toml, expected) in [
            ("a = 'C:\\x'", "a = 'C:\\x'"),
            ("a = 'C:\\\u{200c}x'", "a = \"C:\\\\\\u200Cx\""),
            ("'a\u{200c}\"' = 1", "\"a\\u200C\\\"\" = 1"),
            ("a = \"x\u{202e}\"", "a = \"x\\u202E\""),
            ("a = '''\n\"\n\u{feff}'''", "a = \"\\\"\\n\\uFEFF\""),
            ("a = \"\"\"\r\n\u{200b}\r\nb\"\"\"", "a = \"\\u200B\\u000D\\nb\""),
            ("# \u{200c}\n[a.'b']\n", "# \u{200c}\n[a.'b']\n"),
        ] {
            assert_eq!(plain_toml(toml), expected, "{toml:?}");
            assert_eq!(plain_toml(toml).parse::<Table>().unwrap(), toml.parse::<Table>().unwrap(), "{toml:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back_as_the_same(
            key in "[ab'\"\\\\\u{200c}\u{202e}\n ]{0,6}",
            value in "[ab'\"\\\\\u{200c}\u{ad}\u{7f}\u{9b}\r\n\t #=\\[]{0,12}",
        ) {
            let inner = Table::from_iter([(key.clone(), value.clone().into())]);
            let table = Table::from_iter([("list".to_owned(), vec![value].into()), (key + "t", inner.into())]);
            let shown = plain_toml(&toml::to_string(&table).unwrap());
            prop_assert_eq!(plain(&shown), shown.clone());
            prop_assert_eq!(shown.parse::<Table>().unwrap(), table);
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,100}", odd in "['\"\\\\\u{200c}\r\n=a]{0,20}") {
            plain_toml(&text);
            plain_toml(&odd);
        }
    }
}
