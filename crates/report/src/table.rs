//! One table, as text for a terminal and as HTML.

use comfy_table::{CellAlignment, ContentArrangement, TableComponent, presets};

use crate::escape::escape;

/// A table with a header. The first column is text, the others are aligned to the right.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// What the columns are, with their units.
    pub header: Vec<String>,
    /// Rows as long as the header.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these columns.
    pub fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Appends a row.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// For a terminal.
    pub fn to_text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Disabled);
        // One line under the header; rows of figures need none between them.
        for component in [TableComponent::HorizontalLines, TableComponent::MiddleIntersections] {
            table.remove_style(component);
        }
        table.set_header(&self.header);
        for row in &self.rows {
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }

    /// A `<table>` element. Each cell names its column, for screens on which columns have no room beside each other.
    pub fn to_html(&self) -> String {
        let heads: String = self.header.iter().map(|head| format!("<th>{}</th>", escape(head))).collect();
        let cell = |(head, cell): (&String, &String)| {
            format!("<td data-column=\"{}\">{}</td>", escape(head), escape(cell))
        };
        let row = |row: &Vec<String>| {
            let cells: String = self.header.iter().zip(row).map(cell).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let rows: String = self.rows.iter().map(row).collect();
        format!("<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n")
    }
}
