//! What was measured over what grows, as plain SVG with two logarithmic axes.

use std::fmt::Write as _;
use std::time::Duration;

use crate::growth::{Contender, Growth};
use crate::load::Load;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 210.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 50.0;
const COLOURS: [&str; 4] = ["#0b6e4f", "#d1495b", "#30638e", "#8d6a9f"];

/// From one logarithmic axis to pixels.
struct Axis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let part = (value.ln() - self.least.ln()) / (self.most.ln() - self.least.ln());
        self.from + part * (self.to - self.from)
    }
}

type Measure = (&'static str, fn(&Load) -> f64);
/// How long acquires took, in µs, by the end of a line's name.
const WAITS: [Measure; 3] = [
    (", p50", |load| micros(load.p50)),
    (", p99", |load| micros(load.p99)),
    (", p99.9", |load| micros(load.p999)),
];

/// A plot, and where it belongs beside the page.
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) path: String,
    pub(crate) svg: String,
}

/// A line of a plot.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// One of pairs a second, and one of how long an acquire takes.
pub(crate) fn of(growth: &Growth) -> Vec<Plot> {
    let plot = |measure: &str, part: &str, lines: Vec<Line>| Plot {
        title: format!("{measure}, by {}", growth.what),
        path: format!("images/{}{part}.svg", growth.key),
        svg: svg(growth.what, measure, &lines),
    };
    let rates = lines(growth, &[("", Load::rate)]);
    // Of several contenders one measure alone, or nobody could tell the lines apart.
    let (title, waits) = match growth.contenders.len() {
        0 | 1 => ("Duration of an acquire in µs", lines(growth, &WAITS)),
        _ => ("p99 of the duration of an acquire in µs", lines(growth, &[("", WAITS[1].1)])),
    };
    vec![plot("Pairs of acquire and release a second", "", rates), plot(title, "-waits", waits)]
}

fn micros(took: Duration) -> f64 {
    took.as_secs_f64() * 1e6
}

/// Of each contender a line for each measure; those of one contender are told apart by the end of their names.
fn lines(growth: &Growth, measures: &[Measure]) -> Vec<Line> {
    let line = |contender: &Contender, (part, measure): &Measure| {
        let point =
            |(step, row): &(usize, crate::Row)| Some((*step as f64, measure(&row.median()?)));
        let points = contender.rows.iter().filter_map(point).collect();
        Line { name: format!("{}{part}", contender.name), points }
    };
    let all = growth.contenders.iter();
    all.flat_map(|contender| measures.iter().map(move |measure| line(contender, measure))).collect()
}

fn svg(what: &str, measure: &str, lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|line| &line.points);
    let most = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(1.0, f64::max);
    let least = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(f64::MAX, f64::min).max(1.0);
    let power = |value: f64| 10_f64.powf(value);
    let x = Axis {
        least: least(|point| point.0),
        most: most(|point| point.0),
        from: LEFT,
        to: WIDTH - RIGHT,
    };
    let y = Axis {
        least: power(least(|point| point.1).log10().floor()),
        most: power(most(|point| point.1).log10().ceil()),
        from: HEIGHT - BOTTOM,
        to: TOP,
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>{measure}, by {what}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    axes(&mut svg, &x, &y, lines);
    let _ = writeln!(
        svg,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{what}</text><text x=\"{LEFT}\" y=\"12\" text-anchor=\"start\">{measure}</text>",
        f64::midpoint(x.from, x.to),
        y.from + 38.0
    );
    for (number, Line { name, points }) in lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let at: Vec<String> = points
            .iter()
            .map(|(step, value)| format!("{:.1},{:.1}", x.at(*step), y.at(*value)))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            at.join(" ")
        );
        for point in &at {
            let (x, y) = point.split_once(',').unwrap_or_default();
            let _ = writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let line = TOP + 14.0 + 20.0 * number as f64;
        let (dot, text) = (WIDTH - RIGHT + 16.0, WIDTH - RIGHT + 26.0);
        let _ = writeln!(
            svg,
            "<circle cx=\"{dot}\" cy=\"{line}\" r=\"4\" fill=\"{colour}\"/><text x=\"{text}\" y=\"{:.0}\">{name}</text>",
            line + 4.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn axes(svg: &mut String, x: &Axis, y: &Axis, lines: &[Line]) {
    let mut value = y.least;
    while value <= y.most * 1.01 {
        let at = y.at(value);
        let _ = writeln!(
            svg,
            "<line x1=\"{}\" y1=\"{at:.1}\" x2=\"{}\" y2=\"{at:.1}\" stroke=\"#dddddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value:.0}</text>",
            x.from,
            x.to,
            x.from - 8.0,
            at + 4.0
        );
        value *= 10.0;
    }
    for (step, _) in lines.first().map_or(&[][..], |line| &line.points) {
        let at = x.at(*step);
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{step}</text>",
            y.from + 18.0
        );
    }
}
