//! Pairs a second over workers, as a plain SVG with two logarithmic axes.

use std::fmt::Write as _;

use crate::Growth;

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

pub(crate) fn svg(growth: &[Growth]) -> String {
    let points: Vec<Vec<(f64, f64)>> = growth
        .iter()
        .map(|contender| {
            let rate = |(workers, row): &(usize, crate::Row)| {
                Some((*workers as f64, row.median()?.rate()))
            };
            contender.rows.iter().filter_map(rate).collect()
        })
        .collect();
    let all = || points.iter().flatten();
    let most = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(1.0, f64::max);
    let least = all().map(|point| point.1).fold(f64::MAX, f64::min);
    let power = |value: f64| 10_f64.powf(value);
    let x = Axis { least: 1.0, most: most(|point| point.0), from: LEFT, to: WIDTH - RIGHT };
    let y = Axis {
        least: power(least.log10().floor()),
        most: power(most(|point| point.1).log10().ceil()),
        from: HEIGHT - BOTTOM,
        to: TOP,
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>Pairs of acquire and release a second, by workers</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    axes(&mut svg, &x, &y, growth);
    for (number, (contender, points)) in growth.iter().zip(&points).enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let at: Vec<String> = points
            .iter()
            .map(|(workers, rate)| format!("{:.1},{:.1}", x.at(*workers), y.at(*rate)))
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
        let name = contender.name;
        let _ = writeln!(
            svg,
            "<circle cx=\"{dot}\" cy=\"{line}\" r=\"4\" fill=\"{colour}\"/><text x=\"{text}\" y=\"{:.0}\">{name}</text>",
            line + 4.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn axes(svg: &mut String, x: &Axis, y: &Axis, growth: &[Growth]) {
    let mut rate = y.least;
    while rate <= y.most * 1.01 {
        let at = y.at(rate);
        let _ = writeln!(
            svg,
            "<line x1=\"{}\" y1=\"{at:.1}\" x2=\"{}\" y2=\"{at:.1}\" stroke=\"#dddddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{rate:.0}</text>",
            x.from,
            x.to,
            x.from - 8.0,
            at + 4.0
        );
        rate *= 10.0;
    }
    for (workers, _) in growth.first().map_or(&[][..], |contender| &contender.rows) {
        let at = x.at(*workers as f64);
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{workers}</text>",
            y.from + 18.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">workers</text><text x=\"{LEFT}\" y=\"12\" text-anchor=\"start\">pairs of acquire and release a second</text>",
        f64::midpoint(x.from, x.to),
        y.from + 38.0
    );
}
