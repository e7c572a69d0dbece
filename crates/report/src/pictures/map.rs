//! Sites, the legs between them, and the paths in use, as an SVG document.

use std::f64::consts::TAU;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::frame::{DrawError, Drawing, Frame, Sample, style};
use super::palette::{COLOURS, INK, MARKS, PAPER};

/// The picture's width, and the height of the map in it.
const SIZE: (u32, u32) = (960, 560);
/// The space beside the outermost sites, for their names.
const EDGE: f64 = 70.0;
/// The maximum number of sites with which all legs are drawn. With more, only legs in use and failed legs are drawn: all would be
/// unreadable.
const ALL_LEGS_MOST: usize = 24;
/// How far a leg bends to its right, as a part of its length, so that both directions are visible.
const BEND: f64 = 0.07;
/// The number of straight pieces of a curve.
const PIECES: usize = 48;
/// The loss from which on a leg is called lossy.
const LOSSY: f64 = 0.002;
/// The width of the mark of the leg with most paths; the others in proportion.
const MARKED: f64 = 9.0;
/// A leg with at least one in this many of the most paths has an arrow and its rate.
const BUSY: usize = 3;
/// Rates from which on a leg is drawn wider.
const WIDER: [f64; 3] = [10e6, 100e6, 1e9];
/// Of a name, in pixels.
const NAME: f64 = 13.0;
const NAME_CHARACTER: f64 = 0.6;

const GOOD: RGBColor = MARKS[2];
const LOSES: RGBColor = COLOURS[1];
const FAILED: RGBColor = MARKS[1];
const IN_USE: RGBColor = COLOURS[0];

/// A map of an overlay.
#[derive(Debug, Clone, Default)]
pub struct SiteMap {
    /// Over the map.
    pub title: String,
    /// Where nodes stand. If it is not known of one of them, all stand on a circle.
    pub sites: Vec<MapSite>,
    /// Legs, each in one direction.
    pub legs: Vec<MapLeg>,
}

/// A site.
#[derive(Debug, Clone, Default)]
pub struct MapSite {
    /// Its name.
    pub name: String,
    /// Its latitude and its longitude, in degrees.
    pub at: Option<[f64; 2]>,
    /// Whether nothing succeeds on any leg to it.
    pub is_dead: bool,
}

/// One direction of a leg.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MapLeg {
    /// The number of the site that sends.
    pub from: usize,
    /// The number of the site that receives.
    pub to: usize,
    /// What a stream gets, if that is known.
    pub rate_bit_s: Option<f64>,
    /// The part of the segments that is lost.
    pub loss: f64,
    /// Whether nothing succeeds on it.
    pub has_failed: bool,
    /// How many paths in use are over it.
    pub paths: usize,
}

type Point = (f64, f64);

impl SiteMap {
    /// The picture.
    pub fn to_svg(&self) -> String {
        let widths = ["under 10 Mbit/s, or not known", "from 10", "from 100", "from 1000 Mbit/s"];
        let rates = widths.into_iter().zip(1..).map(|(name, width)| (name, Sample::Wide(GOOD, width, 1.0)));
        let states = [
            ("on paths in use, the wider the more", Sample::Wide(IN_USE, 7, 0.4)),
            ("loses 0.2 % or more", Sample::Wide(LOSES, 2, 1.0)),
            ("failed", Sample::Dashes(FAILED)),
            ("site", Sample::Dot(INK)),
            ("dead", Sample::Dot(FAILED)),
        ];
        let (told, left_out) = self.rates();
        let of_all = told.len() + left_out;
        let of_some = format!("rates of {} of {of_all} legs in use: the busiest, where there is room", told.len());
        let said = (left_out > 0).then_some((of_some.as_str(), Sample::None));
        let legend = rates.chain(states).chain(said).collect();
        Frame { title: &self.title, legend, lines_below: 0, size: SIZE }.to_svg(|area| self.draw(area))
    }

    fn draw<'a>(&self, area: &Drawing<'a>) -> Result<(), DrawError<'a>> {
        let places = self.places();
        let is_there = |leg: &&MapLeg| leg.from != leg.to && leg.from.max(leg.to) < places.len();
        let has_room = self.sites.len() <= ALL_LEGS_MOST;
        let is_drawn = |leg: &&MapLeg| has_room || leg.paths > 0 || leg.has_failed;
        let mut legs: Vec<&MapLeg> = self.legs.iter().filter(is_there).filter(is_drawn).collect();
        // The most important ones are drawn last.
        legs.sort_by_key(|leg| (leg.has_failed, leg.paths));
        let most = legs.iter().map(|leg| leg.paths).max().unwrap_or_default();
        for leg in legs {
            draw_leg(area, leg, most, [places[leg.from], places[leg.to]])?;
        }
        for (site, &(x, y)) in self.sites.iter().zip(&places) {
            let at = (x as i32, y as i32);
            area.draw(&Circle::new(at, 6, PAPER.filled()))?;
            area.draw(&Circle::new(at, 4, if site.is_dead { FAILED } else { INK }.filled()))?;
        }
        for (leg, at) in self.rates().0 {
            write(area, &leg, at, IN_USE)?;
        }
        for (site, at) in self.sites.iter().zip(names_at(&self.sites, &places)) {
            write(area, &site.name, at, if site.is_dead { FAILED } else { INK })?;
        }
        Ok(())
    }

    /// The rates of legs on paths in use, and where they are written: on the leg, at the point nearest to its middle where
    /// nothing else stands. Legs with most paths come first, and only those with an arrow count. Also the number of legs in
    /// use without a written rate.
    fn rates(&self) -> (Vec<(String, Point)>, usize) {
        let places = self.places();
        let is_there = |leg: &&MapLeg| leg.from != leg.to && leg.from.max(leg.to) < places.len();
        let is_in_use = |leg: &&MapLeg| leg.paths > 0 && !leg.has_failed && leg.rate_bit_s.is_some();
        let mut legs: Vec<&MapLeg> = self.legs.iter().filter(is_there).filter(is_in_use).collect();
        legs.sort_by_key(|leg| std::cmp::Reverse(leg.paths));
        let names = self.sites.iter().map(|site| width_of(&site.name) / 2.0);
        let mut taken: Vec<(Point, f64)> = places.iter().map(|place| (*place, 6.0)).collect();
        taken.extend(names_at(&self.sites, &places).into_iter().zip(names));
        let most = legs.first().map_or(0, |leg| leg.paths);
        for leg in legs.iter().filter(|leg| is_busy(leg, most)) {
            let (x, y) = curve(places[leg.from], places[leg.to])[PIECES / 2 + 2];
            taken.push(((f64::from(x), f64::from(y)), 7.0));
        }
        let mut told = Vec::new();
        for leg in legs.iter().filter(|leg| is_busy(leg, most)) {
            let text = rate(leg.rate_bit_s.unwrap_or_default());
            let half = width_of(&text) / 2.0;
            let curve = curve(places[leg.from], places[leg.to]);
            let along = (0..=PIECES / 4).flat_map(|off| [PIECES / 2 - off, PIECES / 2 + off]);
            let mut along = along.map(|piece| (f64::from(curve[piece].0), f64::from(curve[piece].1)));
            if let Some(at) = along.find(|at| is_free(&taken, *at, half)) {
                taken.push((at, half));
                told.push((text, at));
            }
        }
        let left_out = legs.len() - told.len();
        (told, left_out)
    }

    /// Where sites are on the picture.
    fn places(&self) -> Vec<Point> {
        let (width, height) = (f64::from(SIZE.0), f64::from(SIZE.1));
        let known: Option<Vec<[f64; 2]>> = self.sites.iter().map(|site| site.at).collect();
        let known = known.filter(|all| all.iter().flatten().all(|degrees| degrees.is_finite()));
        let Some(known) = known else {
            let (across, down) = (width / 2.0 - 1.6 * EDGE, height / 2.0 - EDGE);
            let turn = |number: usize| TAU * (number as f64 / self.sites.len() as f64 - 0.25);
            let at =
                |number| (width / 2.0 + across * f64::cos(turn(number)), height / 2.0 + down * f64::sin(turn(number)));
            return (0..self.sites.len()).map(at).collect();
        };
        let west = westernmost(&known);
        let flat = |[latitude, longitude]: &[f64; 2]| ((longitude - west).rem_euclid(360.0), -latitude);
        let flat: Vec<Point> = known.iter().map(flat).collect();
        let range = |of: fn(&Point) -> f64| {
            let (least, most) = flat.iter().map(of).fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(v), b.max(v)));
            (least, (most - least).max(1e-6))
        };
        let ((left, across), (top, down)) = (range(|at| at.0), range(|at| at.1));
        let (room_across, room_down) = (width - 2.4 * EDGE, height - 1.4 * EDGE);
        // A degree is as wide as high, as far as the picture has room, and at most twice as wide.
        let high = (room_down / down).min(room_across / across * 2.0);
        let wide = (room_across / across).min(high * 2.0);
        let at = |&(x, y): &Point| {
            (width / 2.0 + (x - left - across / 2.0) * wide, height / 2.0 + (y - top - down / 2.0) * high)
        };
        flat.iter().map(at).collect()
    }
}

/// In the middle of `at`, on paper.
fn write<'a>(area: &Drawing<'a>, text: &str, (x, y): Point, colour: RGBColor) -> Result<(), DrawError<'a>> {
    let half = (width_of(text) / 2.0) as i32;
    let (x, y) = (x as i32, y as i32);
    area.draw(&Rectangle::new([(x - half, y - 8), (x + half, y + 8)], PAPER.mix(0.75).filled()))?;
    area.draw(&Text::new(text.to_owned(), (x, y), style(NAME, colour, HPos::Center, VPos::Center)))
}

/// With two digits that count: `0.4 Mbit/s`, `94 Mbit/s`, `1.2 Gbit/s`.
fn rate(bit_s: f64) -> String {
    let (value, unit) = if bit_s < 1e9 { (bit_s / 1e6, "Mbit/s") } else { (bit_s / 1e9, "Gbit/s") };
    if value < 10.0 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// The longitude at which the map begins: behind the widest gap between sites.
fn westernmost(known: &[[f64; 2]]) -> f64 {
    let mut all: Vec<f64> = known.iter().map(|[_, longitude]| longitude.rem_euclid(360.0)).collect();
    all.sort_by(f64::total_cmp);
    let next = |number: usize| all[(number + 1) % all.len()];
    let gap = |number: &usize| (next(*number) - all[*number]).rem_euclid(360.0);
    let widest = (0..all.len()).max_by(|a, b| gap(a).total_cmp(&gap(b)));
    widest.map_or(0.0, next)
}

fn draw_leg<'a>(
    area: &Drawing<'a>,
    leg: &MapLeg,
    most_paths: usize,
    [from, to]: [Point; 2],
) -> Result<(), DrawError<'a>> {
    let curve = curve(from, to);
    let line = |points: &[(i32, i32)], colour: RGBColor, opacity: f64, width: u32| {
        area.draw(&PathElement::new(points.to_vec(), colour.mix(opacity).stroke_width(width)))
    };
    let width = 1 + WIDER.iter().filter(|from| leg.rate_bit_s.is_some_and(|rate| rate >= **from)).count() as u32;
    if leg.has_failed {
        return curve.chunks(3).try_for_each(|piece| line(&piece[..piece.len().min(2)], FAILED, 1.0, width.max(2)));
    }
    let is_used = leg.paths > 0;
    if is_used {
        let marked = (MARKED * leg.paths as f64 / most_paths as f64).round().max(1.0);
        line(&curve, IN_USE, 0.4, marked as u32)?;
    }
    let (colour, opacity) = match (leg.loss >= LOSSY, is_used) {
        (true, _) => (LOSES, 0.7),
        (false, true) => (GOOD, 0.5),
        (false, false) => (GOOD, 0.2),
    };
    line(&curve, colour, opacity, width)?;
    match is_busy(leg, most_paths) {
        true => area.draw(&Polygon::new(arrow(&curve), IN_USE.filled())),
        false => Ok(()),
    }
}

fn is_busy(leg: &MapLeg, most_paths: usize) -> bool {
    leg.paths * BUSY > most_paths
}

/// From one site to another, bent to the right.
fn curve(from: Point, to: Point) -> Vec<(i32, i32)> {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let middle = ((from.0 + to.0) / 2.0 - dy * BEND, (from.1 + to.1) / 2.0 + dx * BEND);
    let at = |piece: usize| {
        let part = piece as f64 / PIECES as f64;
        let mix = |a: f64, m: f64, b: f64| (1.0 - part).powi(2) * a + 2.0 * part * (1.0 - part) * m + part.powi(2) * b;
        (mix(from.0, middle.0, to.0).round() as i32, mix(from.1, middle.1, to.1).round() as i32)
    };
    (0..=PIECES).map(at).collect()
}

/// Which way a leg sends, a little behind its middle.
fn arrow(curve: &[(i32, i32)]) -> Vec<(i32, i32)> {
    let (tail, tip) = (curve[PIECES / 2], curve[PIECES / 2 + 4]);
    let (dx, dy) = (f64::from(tip.0 - tail.0), f64::from(tip.1 - tail.1));
    let length = dx.hypot(dy).max(1.0);
    let (dx, dy) = (dx / length, dy / length);
    let at = |along: f64, beside: f64| {
        let x = f64::from(tail.0) + dx * along - dy * beside;
        let y = f64::from(tail.1) + dy * along + dx * beside;
        (x.round() as i32, y.round() as i32)
    };
    vec![at(9.0, 0.0), at(0.0, 4.0), at(0.0, -4.0)]
}

fn width_of(name: &str) -> f64 {
    name.chars().count() as f64 * NAME * NAME_CHARACTER
}

/// Whether a text with this middle and this half width covers nothing that is there. Each existing text has its middle and
/// half its width.
fn is_free(taken: &[(Point, f64)], at: Point, half: f64) -> bool {
    let is_in = at.0 - half >= 2.0 && at.0 + half <= f64::from(SIZE.0) - 2.0;
    is_in && taken.iter().all(|(of, width)| (of.0 - at.0).abs() > half + width || (of.1 - at.1).abs() > 14.0)
}

/// The middle of each site's name: beside it, where neither a site nor another name is, if there is such a place.
fn names_at(sites: &[MapSite], places: &[Point]) -> Vec<Point> {
    let mut taken: Vec<(Point, f64)> = places.iter().map(|place| (*place, 6.0)).collect();
    let mut all = Vec::new();
    for (site, (x, y)) in sites.iter().zip(places) {
        let half = width_of(&site.name) / 2.0;
        let beside = half + 9.0;
        let choices = [(beside, 0.0), (-beside, 0.0), (0.0, -15.0), (0.0, 15.0), (beside, 15.0), (beside, -15.0)];
        let choices = choices.into_iter().chain([(-beside, 15.0), (-beside, -15.0), (0.0, 30.0), (0.0, -30.0)]);
        let mut choices = choices.map(|(dx, dy)| (x + dx, y + dy));
        let at = choices.find(|at| is_free(&taken, *at, half)).unwrap_or((x + beside, *y));
        taken.push((at, half));
        all.push(at);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(count: usize, is_placed: bool) -> SiteMap {
        let site = |number: usize| MapSite {
            name: format!("s{number}&"),
            at: is_placed.then_some([number as f64 * 2.0 - 60.0, number as f64 * 5.0 - 20.0]),
            is_dead: false,
        };
        let leg = |number: usize| MapLeg {
            from: number,
            to: (number + 1) % count,
            rate_bit_s: Some(2e8),
            ..MapLeg::default()
        };
        SiteMap { title: "A map".into(), sites: (0..count).map(site).collect(), legs: (0..count).map(leg).collect() }
    }

    fn count(svg: &str, what: &str) -> usize {
        svg.matches(what).count()
    }

    /// The number of lines of this colour, opacity and width.
    fn lines(map: &SiteMap, colour: RGBColor, opacity: &str, width: u32) -> usize {
        let RGBColor(r, g, b) = colour;
        let of = format!("opacity=\"{opacity}\" stroke=\"#{r:02X}{g:02X}{b:02X}\" stroke-width=\"{width}\"");
        // The legend has one of each.
        map.to_svg().lines().filter(|line| line.contains("<polyline") && line.contains(&of)).count()
    }

    #[test]
    fn each_site_has_a_dot_and_its_name_and_each_leg_a_line() {
        for is_placed in [true, false] {
            let map = map(5, is_placed);
            let svg = map.to_svg();
            // The legend has two dots.
            assert_eq!((count(&svg, "<circle"), count(&svg, "s3&amp;")), (2 * 5 + 2, 1));
            assert_eq!(lines(&map, GOOD, "0.2", 3), 5);
            assert!(!svg.contains("NaN") && !svg.contains("inf"));
        }
    }

    #[test]
    fn what_is_in_use_loses_or_has_failed_is_seen() {
        let mut map = map(5, true);
        map.legs[0].paths = 2;
        map.legs[1].loss = 0.01;
        map.legs[2].has_failed = true;
        map.legs[3].paths = 8;
        assert_eq!((lines(&map, IN_USE, "0.4", 2), lines(&map, IN_USE, "0.4", 9)), (1, 1));
        assert_eq!((lines(&map, GOOD, "0.5", 3), count(&map.to_svg(), "<polygon")), (2, 1));
        assert_eq!(lines(&map, LOSES, "0.7", 3), 1);
        // What a leg with an arrow gives stands on it.
        assert_eq!(count(&map.to_svg(), "200 Mbit/s"), 1);
        assert_eq!(count(&map.to_svg(), "rates of 1 of 2 legs in use"), 1);
        map.sites[3].is_dead = true;
        let RGBColor(r, g, b) = FAILED;
        assert_eq!(count(&map.to_svg(), &format!("fill=\"#{r:02X}{g:02X}{b:02X}\">\ns3&amp;")), 1);
        assert_eq!((lines(&map, FAILED, "1", 3) - 3, lines(&map, GOOD, "0.2", 3)), (PIECES / 3 + 1, 1));
    }

    #[test]
    fn rates_do_not_cover_each_other_and_it_is_said_how_many_are_left_out() {
        let mut map = map(16, false);
        map.legs = (0..16 * 16).map(|n| MapLeg { from: n / 16, to: n % 16, ..map.legs[0] }).collect();
        map.legs.retain(|leg| leg.from != leg.to);
        for (number, leg) in map.legs.iter_mut().enumerate() {
            (leg.paths, leg.rate_bit_s) = (1 + number % 3, Some(number as f64 * 1e6));
        }
        let (told, left_out) = map.rates();
        assert_eq!(told.len() + left_out, 240);
        assert!(told.len() >= 5 && left_out > 0, "{} {left_out}", told.len());
        let apart = |(a, at): &(String, Point), (b, of): &(String, Point)| {
            (at.0 - of.0).abs() > (width_of(a) + width_of(b)) / 2.0 || (at.1 - of.1).abs() > 14.0
        };
        for (number, one) in told.iter().enumerate() {
            assert!(told[..number].iter().all(|other| apart(one, other)), "{one:?}");
        }
        assert_eq!(count(&map.to_svg(), &format!("rates of {} of 240 legs in use", told.len())), 1);
        map.legs.retain(|leg| (leg.from, leg.to) == (0, 8));
        assert!(!map.to_svg().contains("rates of"));
    }

    #[test]
    fn of_many_sites_only_legs_in_use_are_drawn() {
        let mut map = map(64, true);
        map.legs[7].paths = 1;
        assert_eq!((lines(&map, GOOD, "0.2", 3), count(&map.to_svg(), "<polygon")), (0, 1));
    }

    #[test]
    fn the_map_begins_behind_the_widest_gap() {
        // Of Tokyo, London, Delhi and Los Angeles it is the one between Los Angeles and London.
        assert_eq!(westernmost(&[[35.0, 139.0], [51.0, 0.0], [28.0, 77.0], [34.0, -118.0]]), 0.0);
        assert_eq!(westernmost(&[[0.0, -10.0]]), 350.0);
    }

    #[test]
    fn legs_that_cannot_be_drawn_are_left_out() {
        let mut map = map(2, true);
        map.legs.push(MapLeg { from: 7, to: 0, ..MapLeg::default() });
        map.legs.push(MapLeg::default());
        assert_eq!(lines(&map, GOOD, "0.2", 1) + lines(&map, GOOD, "0.2", 3), 2);
        assert!(SiteMap::default().to_svg().contains("<svg"));
    }
}
