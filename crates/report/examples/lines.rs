//! Draws lines: on standard input a row with the title, the horizontal and the vertical axis, then rows of a line's name and a
//! point, all parted by tabs; on standard output the SVG document.

use std::io::Read;

use ekiden_report::{LineChart, Series};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let mut rows = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let first = rows.next().ok_or("there is nothing to draw")?;
    let [title, across, quantity] = first.as_slice() else {
        return Err("the first row has the title and the names of both axes".into());
    };
    let [title, across, quantity] = [title, across, quantity].map(|text| text.to_string());
    let mut chart = LineChart { title, across, quantity, ..LineChart::default() };
    for row in rows {
        let [name, x, y] = row.as_slice() else { return Err("a row has a name and a point".into()) };
        let point = (x.parse()?, y.parse()?);
        match chart.series.iter_mut().find(|series| series.name == *name) {
            Some(series) => series.points.push(point),
            None => chart.series.push(Series { name: name.to_string(), points: vec![point] }),
        }
    }
    print!("{}", chart.to_svg());
    Ok(())
}
