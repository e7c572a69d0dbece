//! A self-contained HTML page: no script, no outside resources.

use crate::Table;
use crate::escape::escape;

/// A page of sections.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The title and first heading.
    pub title: String,
    /// A paragraph under the title.
    pub introduction: String,
    /// In reading order.
    pub sections: Vec<Section>,
    /// What the reader is to remember: paragraphs at the end.
    pub conclusion: Vec<String>,
}

/// A heading with what stands under it, in this order.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// The heading.
    pub heading: String,
    /// Paragraphs of plain text.
    pub text: Vec<String>,
    /// Pictures as SVG documents.
    pub charts: Vec<String>,
    /// The figures.
    pub table: Option<Table>,
}

/// What needs more room than a narrow screen has scrolls inside the page; of tables the first column stays, and is broken into
/// lines, so that figures beside it are not cut. Pictures are not made smaller than their text
/// allows.
const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1d2330;--paper:#fff;--faint:#d5d9e2;--box:#eef3f9}\
@media (prefers-color-scheme:dark){:root{--ink:#e6e9f0;--paper:#14181f;--faint:#3a4150;--box:#1e2835}}\
body{font-family:system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;line-height:1.5;\
color:var(--ink);background:var(--paper)}\
h1{font-size:1.6rem}h2{font-size:1.25rem;margin-top:2.5rem}\
.conclusion{padding:.8rem 1rem;background:var(--box);border-radius:.4rem;font-size:1.1rem}\
figure{margin:1.5rem 0 .5rem}figure,.table{overflow-x:auto}svg{width:100%;max-width:44rem;min-width:26rem;height:auto;display:block}\
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}\
th,td{padding:.25rem .7rem;border-bottom:1px solid var(--faint);text-align:right;white-space:nowrap}\
th{white-space:normal;vertical-align:bottom}th:first-child,td:first-child{text-align:left;padding-left:0}\
@media (max-width:40rem){th,td{padding:.25rem .35rem}th:first-child,td:first-child{white-space:normal;min-width:7rem;\
position:sticky;left:0;background:var(--paper)}}";

impl Page {
    /// The whole document.
    pub fn to_html(&self) -> String {
        let sections: String = self.sections.iter().map(Section::to_html).collect();
        let conclusion = match self.conclusion.is_empty() {
            true => String::new(),
            false => format!("<div class=\"conclusion\">\n{}</div>\n", paragraphs(&self.conclusion)),
        };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p>{introduction}</p>\n\
             {sections}{conclusion}</body>\n</html>\n",
            title = escape(&self.title),
            introduction = escape(&self.introduction),
        )
    }
}

impl Section {
    fn to_html(&self) -> String {
        let text = paragraphs(&self.text);
        let charts: String = self.charts.iter().map(|svg| format!("<figure>\n{svg}</figure>\n")).collect();
        let table = self.table.as_ref().map(Table::to_html).unwrap_or_default();
        format!("<h2>{}</h2>\n{text}{charts}{table}", escape(&self.heading))
    }
}

fn paragraphs(text: &[String]) -> String {
    text.iter().map(|text| format!("<p>{}</p>\n", escape(text))).collect()
}
