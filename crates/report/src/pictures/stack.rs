//! Several charts as one picture.

use super::chart::LineChart;
use crate::escape::escape;

/// The charts as one SVG document, the first at the top. Where they show the same time, give them the same ends of it.
pub fn stacked(title: &str, charts: &[LineChart]) -> String {
    let (mut inner, mut width, mut height) = (String::new(), 0, 0);
    for chart in charts {
        let svg = chart.to_svg();
        let [wide, high] = ["width", "height"].map(|name| attribute(&svg, name));
        inner += &svg.replacen("<svg ", &format!("<svg y=\"{height}\" "), 1);
        width = width.max(wide);
        height += high;
    }
    format!(
        "<svg role=\"img\" aria-label=\"{}\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         xmlns=\"http://www.w3.org/2000/svg\">\n{inner}</svg>\n",
        escape(title)
    )
}

/// A length in pixels that the document's own element says.
fn attribute(svg: &str, name: &str) -> u32 {
    let value = svg.split_once(&format!(" {name}=\"")).and_then(|(_, rest)| rest.split_once('"'));
    value.and_then(|(value, _)| value.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_stand_below_each_other() {
        let chart = LineChart { title: "one".into(), ..LineChart::default() };
        let alone = chart.to_svg();
        let [width, height] = ["width", "height"].map(|name| attribute(&alone, name));
        assert!(width > 0 && height > 0);
        let both = stacked("a & b", &[chart.clone(), chart]);
        assert_eq!([attribute(&both, "width"), attribute(&both, "height")], [width, 2 * height]);
        assert!(both.contains("aria-label=\"a &amp; b\"") && both.contains(&format!("<svg y=\"{height}\" ")));
        assert_eq!(both.matches("</svg>").count(), 3);
    }
}
