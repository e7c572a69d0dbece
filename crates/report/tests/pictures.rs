//! Pictures and pages hold what they were given, whatever it was.

use ekiden_report::{BarChart, LineChart, Page, Section, Series, Table};

fn bars() -> BarChart {
    BarChart {
        title: "Throughput over the number of legs".into(),
        quantity: "Mbit/s".into(),
        categories: ["direct", "2 legs", "3 legs", "4 legs"].map(Into::into).to_vec(),
        bars: vec![
            ("SOCKS5".into(), vec![None, Some(20.7), Some(30.9), Some(41.2)]),
            ("HTTP".into(), vec![Some(10.4), Some(20.6), Some(30.8), Some(41.0)]),
        ],
        marks: vec![("n·T".into(), vec![Some(10.5), Some(21.0), Some(31.5), Some(41.9)])],
        ..BarChart::default()
    }
}

#[test]
fn a_bar_chart_names_its_categories_series_and_values() {
    let svg = bars().to_svg();
    for text in ["Throughput over", "Mbit/s", "direct", "4 legs", "SOCKS5", "n·T", "41.2"] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn a_chart_has_colours_for_readers_who_prefer_dark_paper() {
    let line = Series { name: "cwnd".into(), points: vec![(0.0, 1.0), (1.0, 2.0)] };
    let lines = LineChart { series: vec![line], levels: vec![("BDP".into(), 2.0)], ..LineChart::default() };
    for svg in [bars().to_svg(), lines.to_svg()] {
        let (style, picture) = svg.split_once("</style>").expect("a style sheet");
        let (_, style) = style.split_once("@media (prefers-color-scheme:dark)").expect("a dark palette");
        // Paper, text and grid, in the colours that the picture has.
        for colour in ["rect[fill=\"#FFFFFF\"]", "[fill=\"#1D2330\"]", "[stroke=\"#D5D9E2\"]"] {
            let attribute = colour.trim_start_matches("rect").trim_matches(['[', ']']);
            assert!(style.contains(colour) && picture.contains(attribute), "{colour}");
        }
    }
}

#[test]
fn a_line_has_the_colour_of_the_bars_of_the_same_name() {
    // The second bars and the first line.
    let bars = bars().to_svg();
    let line = Series { name: "SOCKS5".into(), points: vec![(0.0, 1.0), (1.0, 2.0)] };
    let lines = |first_colour| LineChart { series: vec![line.clone()], first_colour, ..LineChart::default() }.to_svg();
    let filled: Vec<&str> = bars.split("fill=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let stroke = |svg: String| {
        let line = svg.split("<polyline").skip(1).find(|rest| rest.contains("stroke-width=\"2\"")).unwrap().to_owned();
        line.split("stroke=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
    };
    let (direct, socks) = (stroke(lines(0)), stroke(lines(1)));
    assert_ne!(direct, socks);
    assert!(filled.contains(&direct.as_str()) && filled.contains(&socks.as_str()), "{direct} {socks}");
}

#[test]
fn a_charts_text_is_legible_on_a_screen_500_pixels_wide() {
    let svg = bars().to_svg();
    let numbers = |before: &str| -> Vec<f64> {
        let values = svg.split(before).skip(1).filter_map(|rest| rest.split([' ', '"']).next());
        values.map(|number| number.parse().unwrap()).collect()
    };
    let scale = 468.0 / numbers("viewBox=\"0 0 ")[0];
    let smallest = numbers("font-size=\"").into_iter().fold(f64::MAX, f64::min) * scale;
    assert!(smallest >= 10.5, "{smallest} px");
}

#[test]
fn no_mark_crosses_a_bars_value() {
    // The mark is as high as the bars, and so are those of the limits that bars nearly reach.
    let mut chart = bars();
    chart.marks =
        vec![("n·T".into(), chart.bars[1].1.clone()), ("less".into(), vec![None, Some(19.0), Some(29.0), None])];
    let svg = chart.to_svg();
    let y_of =
        |element: &str| -> f64 { element.split(" y=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap() };
    let text = svg.split("<text").find(|element| element.contains("\n30.8\n")).unwrap();
    let marks = svg.split("<polyline").skip(1).filter(|element| element.contains("stroke-width=\"2\""));
    for mark in marks {
        let (_, points) = mark.split_once("points=\"").unwrap();
        let y: f64 = points.split([',', ' ']).nth(1).unwrap().parse().unwrap();
        // The text stands on its place and is 15 pixels high.
        assert!(y < y_of(text) - 16.0 || y > y_of(text) + 1.0, "{mark} crosses {text}");
    }
}

#[test]
fn a_long_title_is_broken_into_lines() {
    let title = ["parallel-streams"; 6].join(", ");
    let svg = BarChart { title: title.clone(), ..bars() }.to_svg();
    let texts: Vec<&str> = svg.split("<text").skip(1).filter_map(|element| element.split('\n').nth(1)).collect();
    let lines: Vec<&str> = texts.iter().copied().filter(|text| text.contains("parallel-streams")).collect();
    assert!(lines.len() > 1 && lines.iter().all(|line| line.len() < 64), "{lines:?}");
    assert_eq!(lines.join(" "), title);
}

#[test]
fn categories_may_have_several_lines() {
    let mut chart = bars();
    chart.categories[0] = "direct\nunder it".into();
    let svg = chart.to_svg();
    let y = |text: &str| -> i32 {
        let before = svg.split(&format!("\n{text}\n")).next().unwrap();
        before.rsplit(" y=\"").next().unwrap().split('"').next().unwrap().parse().unwrap()
    };
    assert!(y("under it") > y("direct"), "{svg}");
}

#[test]
fn charts_without_values_are_drawn_empty() {
    assert!(BarChart::default().to_svg().starts_with("<svg"));
    let empty = LineChart::default().to_svg();
    assert!(empty.starts_with("<svg") && !empty.contains("0.0000"), "{empty}");
}

/// What the numbers are stands on the left, upright.
#[test]
fn long_numbers_stand_beside_what_they_are_and_apart_from_each_other() {
    let chart = |across: f64, up: f64| {
        let series = Series { name: "goodput".into(), points: vec![(0.0, 0.0), (across, up)] };
        LineChart { series: vec![series], across: "s".into(), quantity: "Mbit/s".into(), ..LineChart::default() }
    };
    // Numbers on the left end at a tick. Each character has 9 pixels.
    let svg = chart(30.0, 18_000.0).to_svg();
    let numbers: Vec<_> = svg.split("<text ").filter(|text| text.contains("text-anchor=\"end\"")).collect();
    let x = |text: &str| text.split("x=\"").nth(1).and_then(|x| x.split('"').next()?.parse::<f64>().ok());
    assert!(numbers.iter().any(|text| text.contains("18000")), "{svg}");
    assert!(numbers.iter().all(|text| x(text) > Some(20.0 + 9.0 * 5.0)), "{svg}");
    let count = |svg: &str| svg.matches("text-anchor=\"middle\"").count();
    let (wide, narrow) = (chart(0.000_5, 1.0).to_svg(), chart(30.0, 1.0).to_svg());
    assert!(count(&wide) < count(&narrow), "{} of {}", count(&wide), count(&narrow));
}

#[test]
fn a_line_chart_names_its_series_and_levels() {
    let series = Series { name: "cwnd".into(), points: (0..100).map(|i| (f64::from(i), f64::from(i % 40))).collect() };
    let chart = LineChart {
        title: "Saw-tooth".into(),
        across: "s".into(),
        quantity: "segments".into(),
        series: vec![series],
        levels: vec![("BDP".into(), 30.0)],
        ..LineChart::default()
    };
    let svg = chart.to_svg();
    assert!(svg.contains("cwnd") && svg.contains("BDP") && svg.contains("Saw-tooth"));
}

#[test]
fn a_crowd_of_lines_has_no_legend_and_no_more_points_than_pixels() {
    let points: Vec<_> = (0..100_000).map(|i| (f64::from(i) / 1e3, f64::from(i / 10_000))).collect();
    let series = (0..32).map(|i| Series { name: format!("stream {i}"), points: points.clone() }).collect();
    let mut chart = LineChart { series, ..LineChart::default() };
    let svg = chart.to_svg();
    assert!(!svg.contains("stream"));
    assert!(svg.len() < 200_000, "{}", svg.len());
    // Beginning later leaves the rest.
    chart.from = 99.0;
    assert!(chart.to_svg().len() < svg.len());
    chart.from = 1000.0;
    assert!(chart.to_svg().starts_with("<svg"));
}

#[test]
fn a_page_is_self_contained_and_escapes_text() {
    let mut table = Table::new(["a <b>", "Mbit/s"]);
    table.row(["x & y", "1.0"]);
    assert!(table.to_text().contains("x & y"));
    let page = Page {
        title: "Demo".into(),
        introduction: "1 < 2".into(),
        sections: vec![Section {
            heading: "h".into(),
            text: vec![],
            charts: vec![bars().to_svg()],
            table: Some(table),
        }],
        message: vec!["2 > 1".into()],
        sources: vec!["A & B, 2005".into()],
        links: vec![("the <guide>".into(), "https://guide.example/?a&b".into())],
    };
    let html = page.to_html();
    assert!(html.contains("a &lt;b&gt;") && html.contains("x &amp; y") && html.contains("1 &lt; 2"));
    assert!(html.contains("2 &gt; 1"));
    // On dark paper, and on a narrow screen.
    assert!(html.contains("@media (prefers-color-scheme:dark){:root{") && html.contains("color-scheme:light dark"));
    // On a narrow screen each figure stands under its row's name, with its column's.
    let (_, narrow) = html.split_once("@media (max-width:48rem){").expect("rules for narrow screens");
    assert!(narrow.contains("thead{display:none}") && narrow.contains("td::before{content:attr(data-column)"));
    assert!(html.contains("<td data-column=\"Mbit/s\">1.0</td>") && html.contains("<td data-column=\"a &lt;b&gt;\">"));
    // What is to be remembered comes first, what is cited last.
    let order = ["<h1>", "2 &gt; 1", "1 &lt; 2", "<h2>h</h2>", "the &lt;guide&gt;</a>", "A &amp; B, 2005"];
    let places = order.map(|text| html.find(text).unwrap_or_else(|| panic!("{text}")));
    assert!(places.is_sorted(), "{places:?}");
    assert!(html.contains("<a href=\"https://guide.example/?a&amp;b\">"));
    assert!(!html.contains("<script") && !html.contains("src=") && html.matches("href=").count() == 1);
}
