//! The report in Markdown.

use std::fmt::Write;

use super::{Report, words};

/// The whole page. Pictures are in `folder`.
pub(crate) fn page(report: &Report<'_>, folder: &str) -> String {
    let mut page = format!("# {}\n\n", plain(&report.title()));
    for paragraph in report.message() {
        let _ = writeln!(page, "{}\n", plain(&paragraph));
    }
    let _ = writeln!(page, "{}\n", report.introduction());
    let index = super::table(&report.rows(), &report.asked());
    page += "## All claims\n\n";
    table(&mut page, &index.header, &index.rows);
    for &at in &report.selected.experiments {
        let experiment = &report.catalogue.experiments[at];
        let _ = write!(page, "\n## {}\n\n", plain(&words::heading(experiment)));
        for paragraph in report.said(at) {
            let _ = writeln!(page, "{}\n", plain(&paragraph));
        }
        let rows: Vec<Vec<String>> =
            report.rows_of(at).iter().map(|row| words::cells(experiment, row, &report.asked())).collect();
        if !rows.is_empty() {
            table(&mut page, &words::columns(&report.asked()), &rows);
        }
        for drawn in report.drawn(at) {
            let _ = write!(page, "\n### {}\n\n", plain(&drawn.title));
            for picture in &drawn.pictures {
                let _ = write!(page, "![{}]({folder}/{}.svg)\n\n", plain(&picture.title), picture.name);
            }
            if let Some(values) = &drawn.table {
                table(&mut page, &values.header, &values.rows);
            }
        }
    }
    page
}

fn table(page: &mut String, header: &[String], rows: &[Vec<String>]) {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    *page += &line(header);
    *page += &format!("|{}\n", "---|".repeat(header.len()));
    for row in rows {
        *page += &line(row);
    }
}

/// Text in which nothing is a mark.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for letter in text.chars() {
        match letter {
            '\n' => plain.push(' '),
            '|' | '*' | '_' | '<' | '[' | ']' | '\\' => plain.extend(['\\', letter]),
            letter => plain.push(letter),
        }
    }
    plain
}
