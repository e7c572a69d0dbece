//! One table, as text for a terminal and as HTML.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, TableStyle, Width, presets};

use crate::escape::escape;

/// The width that a column needs beside its content: a space at each side, and the gap between columns.
const BETWEEN: usize = 3;

/// One line under the header; rows of figures need none between them.
const STYLE: TableStyle = presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none());

/// A table with a header. The first column is text, the others are aligned to the right, or are text, too.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// What the columns are, with their units.
    pub header: Vec<String>,
    /// Rows as long as the header.
    pub rows: Vec<Vec<String>>,
    /// All columns are text.
    is_text: bool,
    /// Columns that may be left out, the first of them first.
    spare: Vec<&'static str>,
}

impl Table {
    /// An empty table with these columns.
    pub fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// All its columns are text.
    pub fn of_text(self) -> Self {
        Self { is_text: true, ..self }
    }

    /// Columns that are left out if there is no room, the first of them first.
    pub fn spare(self, columns: impl Into<Vec<&'static str>>) -> Self {
        Self { spare: columns.into(), ..self }
    }

    /// Appends a row.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// For a terminal, as wide as it is.
    pub fn to_text(&self) -> String {
        self.drawn(None)
    }

    /// For a terminal with `columns` columns: cells are wrapped between words, and spare columns are left out, with a note;
    /// in full width if it is `None`.
    pub fn to_text_within(&self, columns: Option<usize>) -> String {
        let Some(columns) = columns else { return self.to_text() };
        let mut fitted = self.clone();
        let mut left_out = Vec::new();
        for name in &self.spare {
            let at = fitted.header.iter().position(|header| header == name);
            if let Some(at) = at.filter(|_| fitted.least_columns() > columns) {
                fitted.header.remove(at);
                fitted.rows.iter_mut().filter(|row| row.len() > at).for_each(|row| drop(row.remove(at)));
                left_out.push(*name);
            }
        }
        if fitted.least_columns() > columns {
            fitted.header.iter_mut().for_each(|header| *header = broken_at_dots(header));
        }
        let text = fitted.drawn(Some(columns));
        match left_out.is_empty() {
            true => text,
            false => format!("{text}\nleft out: {} (--wide shows all)", left_out.join(", ")),
        }
    }

    fn longest_word(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).chain(self.header.get(column));
        let words = cells.flat_map(|cell| cell.split_whitespace());
        words.map(|word| word.chars().count()).max().unwrap_or_default()
    }

    /// The number of columns that are needed if every word stays whole.
    fn least_columns(&self) -> usize {
        (0..self.header.len()).map(|column| self.longest_word(column) + BETWEEN).sum()
    }

    fn drawn(&self, columns: Option<usize>) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(&self.header);
        for row in &self.rows {
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1).filter(|_| !self.is_text) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        if let Some(columns) = columns {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(u16::try_from(columns).unwrap_or(u16::MAX));
            for (at, column) in table.column_iter_mut().enumerate() {
                let least = self.longest_word(at) + 2;
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(
                    u16::try_from(least).unwrap_or(u16::MAX),
                )));
            }
        }
        table.to_string()
    }

    /// A `<table>` element. Each cell names its column, for screens on which columns have no room beside each other.
    pub fn to_html(&self) -> String {
        let heads: String = self.header.iter().map(|head| format!("<th>{}</th>", escape(head))).collect();
        let cell =
            |(head, cell): (&String, &String)| format!("<td data-column=\"{}\">{}</td>", escape(head), escape(cell));
        let row = |row: &Vec<String>| {
            let cells: String = self.header.iter().zip(row).map(cell).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let rows: String = self.rows.iter().map(row).collect();
        let class = if self.is_text { " class=\"text\"" } else { "" };
        format!("<table{class}>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n")
    }
}

/// A key such as `link.sea.delay`, so that it may be wrapped at its dots.
fn broken_at_dots(header: &str) -> String {
    let mut broken = String::new();
    let mut rest = header.chars().peekable();
    while let Some(letter) = rest.next() {
        broken.push(letter);
        if letter == '.' && rest.peek().is_some_and(|next| !next.is_whitespace()) {
            broken.push(' ');
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_keys_are_wrapped_at_their_dots_where_there_is_no_room() {
        let mut table =
            Table::new(["flow.direct.duration", "link.sea.delay", "node.laptop.tcp.receive_buffer", "Mbit/s"]);
        table.row(["300ms", "5ms", "1MiB", "9.12"]);
        let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
        let narrow = table.to_text_within(Some(60));
        assert!(widest(&narrow) <= 60 && narrow.contains("receive_buffer"), "{narrow}");
        assert!(table.to_text_within(Some(100)).contains("node.laptop.tcp.receive_buffer"));
    }

    #[test]
    fn a_table_fits_by_wrapping_and_then_by_leaving_columns_out() {
        let mut table = Table::new(["name", "Mbit/s", "least", "seen"]).spare(["least"]);
        table.row(["line", "9.123456", "8.123456", "packets came at this rate while a queue delayed them"]);
        let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
        assert!(widest(&table.to_text()) > 70);
        let wrapped = table.to_text_within(Some(60));
        assert!(widest(&wrapped) <= 60 && wrapped.contains("8.123456") && !wrapped.contains("left out"), "{wrapped}");
        let narrow = table.to_text_within(Some(36));
        assert!(widest(&narrow) <= 36 && !narrow.contains("8.123456"), "{narrow}");
        assert!(narrow.ends_with("left out: least (--wide shows all)") && narrow.contains("9.123456"), "{narrow}");
        assert_eq!(table.to_text_within(None), table.to_text());
    }
}
