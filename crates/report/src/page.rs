//! A self-contained HTML page: no script, no outside resources.

use crate::Table;
use crate::escape::escape;

/// A page of sections.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The title and first heading.
    pub title: String,
    /// What the reader is to remember, and what has to be known to read the figures: paragraphs in a box under the title.
    pub message: Vec<String>,
    /// How the figures came about: a paragraph below.
    pub introduction: String,
    /// In reading order.
    pub sections: Vec<Section>,
    /// The works that the sections cite, at the end.
    pub sources: Vec<String>,
    /// Where to read on, at the end: what is said, and an address.
    pub links: Vec<(String, String)>,
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

/// On a narrow screen a row of a table becomes a list of its figures, each with its column's name, and pictures become as narrow as
/// the screen, with larger text. So nothing is cut.
const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1d2330;--paper:#fff;--faint:#d5d9e2;--box:#eef3f9;--link:#0b5394}\
@media (prefers-color-scheme:dark){:root{--ink:#e6e9f0;--paper:#14181f;--faint:#3a4150;--box:#1e2835;--link:#8ab4f8}}\
body{font-family:system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;line-height:1.5;\
color:var(--ink);background:var(--paper)}\
p{max-width:52rem}a{color:var(--link)}\
h1{font-size:1.6rem}h2{font-size:1.25rem;margin-top:2.5rem}\
.message{padding:.3rem 1rem;background:var(--box);border-radius:.4rem}.message p:first-child{font-size:1.2rem}\
.sources{font-size:.9rem}\
figure{margin:1.5rem 0 .5rem}svg{width:100%;max-width:44rem;height:auto;display:block}\
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}\
th,td{padding:.25rem .7rem;border-bottom:1px solid var(--faint);text-align:right;vertical-align:bottom}\
td{white-space:nowrap}th:first-child,td:first-child{text-align:left;padding-left:0;white-space:normal}\
.text th,.text td{text-align:left;vertical-align:top;white-space:normal}\
@media (max-width:48rem){thead{display:none}table,tbody,tr,td{display:block}\
tr{padding:.5rem 0;border-bottom:1px solid var(--faint)}\
td,td:first-child{padding:.1rem 0;border:0;text-align:right;white-space:normal;display:flex;justify-content:space-between;gap:1rem}\
td:first-child{font-weight:600;display:block;text-align:left}td::before{content:attr(data-column);text-align:left;font-weight:400;opacity:.8}td:first-child::before{margin-right:.4rem}}\
@media (max-width:48rem){.text td{display:block}.text td::before{display:block}.text td:empty{display:none}}\
@media (max-width:30rem){svg text{font-size:17px}}";

impl Page {
    /// The whole document.
    pub fn to_html(&self) -> String {
        let sections: String = self.sections.iter().map(Section::to_html).collect();
        let boxed = |class: &str, inside: &str| match inside.is_empty() {
            true => String::new(),
            false => format!("<div class=\"{class}\">\n{inside}</div>\n"),
        };
        let link = |(said, address): &(String, String)| {
            format!("<li><a href=\"{}\">{}</a></li>\n", escape(address), escape(said))
        };
        let links: String = self.links.iter().map(link).collect();
        let links = if links.is_empty() { links } else { format!("<h2>Read on</h2>\n<ul>\n{links}</ul>\n") };
        let sources = boxed("sources", &paragraphs(&self.sources));
        let sources = if sources.is_empty() { sources } else { format!("<h2>Sources</h2>\n{sources}") };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{message}\
             <p>{introduction}</p>\n{sections}{links}{sources}</body>\n</html>\n",
            title = escape(&self.title),
            message = boxed("message", &paragraphs(&self.message)),
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
