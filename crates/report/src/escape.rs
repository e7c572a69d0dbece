//! Text inside HTML and SVG.

/// Plain text as it stands in an element or in a quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
