//! A self-contained HTML page: no script, no outside resources.

use crate::Table;

/// A page of sections.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The title and first heading.
    pub title: String,
    /// A paragraph under the title.
    pub introduction: String,
    /// In reading order.
    pub sections: Vec<Section>,
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

const STYLE: &str = "body{font-family:system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
color:#1d2330;line-height:1.5}h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2.5rem}svg{max-width:100%;height:auto}\
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}\
th,td{padding:.25rem .9rem;border-bottom:1px solid #d5d9e2;text-align:right}th:first-child,td:first-child{text-align:left}";

impl Page {
    /// The whole document.
    pub fn to_html(&self) -> String {
        let sections: String = self.sections.iter().map(Section::to_html).collect();
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p>{introduction}</p>\n\
             {sections}</body>\n</html>\n",
            title = escape(&self.title),
            introduction = escape(&self.introduction),
        )
    }
}

impl Section {
    fn to_html(&self) -> String {
        let text: String = self.text.iter().map(|text| format!("<p>{}</p>\n", escape(text))).collect();
        let charts: String = self.charts.iter().map(|svg| format!("<figure>\n{svg}</figure>\n")).collect();
        let table = self.table.as_ref().map(Table::to_html).unwrap_or_default();
        format!("<h2>{}</h2>\n{text}{charts}{table}", escape(&self.heading))
    }
}

/// Plain text as HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
