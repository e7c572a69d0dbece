//! Colours of the charts, on light and on dark paper.

use plotters::style::RGBColor;

/// Text, axes' names and the first of the marks.
pub(crate) const INK: RGBColor = RGBColor(29, 35, 48);
/// What lies behind everything.
pub(crate) const PAPER: RGBColor = RGBColor(255, 255, 255);
/// The grid.
pub(crate) const FAINT: RGBColor = RGBColor(213, 217, 226);
/// Bars and lines. Told apart also without colour vision (after Okabe and Ito), and on both papers at least three
/// times as bright or dark as it (WCAG 2.2, 1.4.11).
pub(crate) const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(201, 130, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(46, 149, 206),
];
/// Marks and levels.
pub(crate) const MARKS: [RGBColor; 3] = [INK, RGBColor(213, 94, 0), RGBColor(120, 120, 120)];

/// What becomes of the colours that are made for light paper on dark. The others are made for both.
const DARK: [(RGBColor, RGBColor); 3] =
    [(INK, RGBColor(230, 233, 240)), (FAINT, RGBColor(58, 65, 80)), (PAPER, DARK_PAPER)];
const DARK_PAPER: RGBColor = RGBColor(20, 24, 31);

/// A style sheet for an SVG document: the colours that readers who prefer dark paper see. Programs without style sheets show
/// the light ones.
pub(crate) fn dark_style() -> String {
    let rules: String = DARK
        .iter()
        .map(|&(light, dark)| {
            let (from, to) = (hex(light), hex(dark));
            // White text stands on bars, whose colour does not change.
            let filled = if light == PAPER { "rect" } else { "" };
            format!("{filled}[fill=\"{from}\"]{{fill:{to}}}[stroke=\"{from}\"]{{stroke:{to}}}")
        })
        .collect();
    format!("<style>@media (prefers-color-scheme:dark){{{rules}}}</style>")
}

/// Black or white, whichever is read more easily on `colour`.
pub(crate) fn text_on(colour: RGBColor) -> RGBColor {
    const BLACK: RGBColor = RGBColor(0, 0, 0);
    const WHITE: RGBColor = RGBColor(255, 255, 255);
    if contrast(colour, WHITE) > contrast(colour, BLACK) { WHITE } else { BLACK }
}

/// The contrast of two colours, 1 to 21 (WCAG 2.2, "contrast ratio").
fn contrast(a: RGBColor, b: RGBColor) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

/// 0 for black to 1 for white (WCAG 2.2, "relative luminance").
fn luminance(RGBColor(red, green, blue): RGBColor) -> f64 {
    let linear = |channel: u8| match f64::from(channel) / 255.0 {
        low if low <= 0.040_45 => low / 12.92,
        high => ((high + 0.055) / 1.055).powf(2.4),
    };
    0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
}

/// As plotters writes it.
fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contrast_is_that_of_the_standard() {
        assert!((contrast(RGBColor(0, 0, 0), PAPER) - 21.0).abs() < 1e-9);
        // The lightest grey that passes on white.
        assert!((contrast(RGBColor(118, 118, 118), PAPER) - 4.54).abs() < 0.01);
    }

    #[test]
    fn text_on_bars_is_legible() {
        for colour in COLOURS {
            assert!(contrast(colour, text_on(colour)) >= 4.5, "{colour:?}");
        }
    }

    #[test]
    fn colours_stand_out_from_light_and_from_dark_paper() {
        let dark = |colour| DARK.iter().find(|(light, _)| *light == colour).map_or(colour, |(_, dark)| *dark);
        for colour in COLOURS.into_iter().chain(MARKS) {
            assert!(contrast(colour, PAPER) >= 3.0, "{colour:?} on light paper");
            assert!(contrast(dark(colour), DARK_PAPER) >= 3.0, "{colour:?} on dark paper");
        }
        assert!(contrast(INK, PAPER) >= 7.0 && contrast(dark(INK), DARK_PAPER) >= 7.0);
    }
}
