//! Text as a terminal shows it: within its columns, and without what would control it.

use std::fmt::{self, Display, Write};
use std::sync::OnceLock;

/// The least number of columns that is assumed, however narrow a terminal says it is.
const COLUMNS_LEAST: usize = 40;
/// The number of columns that is assumed if a terminal does not say.
const COLUMNS_USUAL: usize = 80;

/// The columns of the terminal on standard output, or of `COLUMNS` in the environment if it is no terminal. `None` without
/// either: programs that read a pipe or a file, such as grep, want whole lines. Found once.
pub fn columns() -> Option<usize> {
    static FOUND: OnceLock<Option<usize>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let of_terminal = comfy_table::Table::new().width().map(usize::from);
        of_both(of_terminal, std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()))
    })
}

/// 0 means that it is not known.
fn of_both(terminal: Option<usize>, environment: Option<usize>) -> Option<usize> {
    let is_said = |columns: &usize| *columns > 0;
    let said = terminal.filter(is_said).or_else(|| environment.filter(is_said));
    said.or_else(|| terminal.map(|_| COLUMNS_USUAL)).map(|columns| columns.max(COLUMNS_LEAST))
}

/// Text wrapped to `columns` columns, broken between words. A continued line keeps its indent. A longer word stays whole,
/// and so does text between backticks: commands are copied.
pub fn wrapped(text: &str, columns: usize) -> String {
    let mut wrapped = String::new();
    for line in text.lines() {
        let indent = &line[..line.len() - line.trim_start().len()];
        let mut width = indent.chars().count();
        wrapped.push_str(indent);
        for (at, word) in words(line.trim_start()).into_iter().enumerate() {
            let length = word.chars().count();
            if at > 0 && width + 1 + length > columns && !word.is_empty() {
                wrapped.truncate(wrapped.trim_end().len());
                let _ = write!(wrapped, "\n{indent}");
                width = indent.chars().count();
            } else if at > 0 {
                wrapped.push(' ');
                width += 1;
            }
            wrapped.push_str(word);
            width += length;
        }
        wrapped.push('\n');
    }
    wrapped
}

/// The parts between which a line may be broken.
fn words(line: &str) -> Vec<&str> {
    let (mut words, mut from, mut is_quoted) = (Vec::new(), 0, false);
    for (at, character) in line.char_indices() {
        match character {
            // A backtick without a second one quotes nothing.
            '`' => is_quoted = !is_quoted && line[at + 1..].contains('`'),
            ' ' if !is_quoted => {
                words.push(&line[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    words.push(&line[from..]);
    words
}

/// Shows text without its control characters and without characters that control how others are shown, except line ends and
/// tabs: each becomes `\u` and four hexadecimal digits, as in JSON, so that JSON stays JSON.
pub struct Plain<W>(pub W);

impl<W: Write> Write for Plain<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_control = |c: char| ekiden_units::is_unseen(c) && c != '\n' && c != '\t';
        let mut rest = text;
        while let Some(at) = rest.find(is_control) {
            self.0.write_str(&rest[..at])?;
            let control = rest[at..].chars().next().unwrap_or_default();
            write!(self.0, "\\u{:04x}", u32::from(control))?;
            rest = &rest[at + control.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

/// What [`Plain`] makes of something that is shown.
pub fn plain(shown: impl Display) -> String {
    let mut text = String::new();
    let _ = write!(Plain(&mut text), "{shown}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_that_does_not_say_its_width_has_80_columns() {
        assert_eq!(of_both(Some(0), None), Some(80));
        assert_eq!(of_both(Some(0), Some(120)), Some(120));
        assert_eq!(of_both(Some(30), Some(120)), Some(40));
        assert_eq!(of_both(None, Some(0)), None);
        assert_eq!(of_both(None, None), None);
    }

    #[test]
    fn a_line_is_broken_between_words_and_keeps_its_indent() {
        let text = "  one two three\nfour\n\n  sha256:0123456789 end\n";
        assert_eq!(wrapped(text, 10), "  one two\n  three\nfour\n\n  sha256:0123456789\n  end\n");
        assert_eq!(wrapped("a  b", 10), "a  b\n");
        assert_eq!(wrapped("with `ekiden peer list` and `one more", 10), "with\n`ekiden peer list`\nand `one\nmore\n");
    }

    #[test]
    fn what_would_control_a_terminal_is_shown_and_json_stays_json() {
        assert_eq!(plain("a\u{1b}[2J\u{9b}31m\r\n\tb\u{7f}"), "a\\u001b[2J\\u009b31m\\u000d\n\tb\\u007f");
        // As JSON escapes them.
        assert_eq!(plain("\"\u{9b}\u{7f}\""), r#""\u009b\u007f""#);
    }
}
