//! Drawing of plots: scales, axes, and escaped text.

use std::fmt::{self, Write as _};

/// A map from an interval of values to 0..1.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scale {
    Linear {
        from: f64,
        to: f64,
    },
    /// Both above 0.
    Log {
        from: f64,
        to: f64,
    },
}

impl Scale {
    /// From 0 to somewhat above `most`.
    pub(super) fn from_zero(most: f64) -> Scale {
        Scale::Linear { from: 0.0, to: if most > 0.0 { most * 1.08 } else { 1.0 } }
    }

    /// Whole decades that include both.
    pub(super) fn decades(least: f64, most: f64) -> Scale {
        let (least, most) = (least.max(1e-3), most.max(1e-2));
        Scale::Log { from: 10f64.powf(least.log10().floor()), to: 10f64.powf(most.log10().ceil()) }
    }

    /// Returns 0 for its beginning, 1 for its end.
    fn at(self, value: f64) -> f64 {
        let part = match self {
            Scale::Linear { from, to } => (value - from) / (to - from),
            Scale::Log { from, to } => (value.max(from) / from).log10() / (to / from).log10(),
        };
        part.clamp(0.0, 1.0)
    }

    /// Returns round values, about five.
    fn ticks(self) -> Vec<f64> {
        match self {
            Scale::Linear { from, to } => {
                let rough = (to - from) / 5.0;
                let power = 10f64.powf(rough.log10().floor());
                let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
                let step = steps.into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power);
                let first = (from / step).ceil();
                (0..=5).map(|n| (first + f64::from(n)) * step).filter(|tick| *tick <= to).collect()
            }
            Scale::Log { from, to } => {
                let decades = (to / from).log10().round() as i32;
                (0..=decades).map(|n| from * 10f64.powi(n)).collect()
            }
        }
    }
}

/// A plot under construction.
pub(super) struct Plot {
    text: String,
    x: Scale,
    y: Scale,
    height: f64,
    /// The positions of the names of dots, so that they do not overlap.
    names: Vec<(f64, f64)>,
}

pub(super) const WIDTH: f64 = 860.0;
/// Distance between two lines of text.
const LINE: f64 = 13.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 120.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;

impl Plot {
    /// Creates a plot of that height; `about` describes it for screen readers.
    pub(super) fn new(height: f64, about: &str, x: Scale, y: Scale) -> Plot {
        let about = escape(about);
        let text = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{about}\">\n");
        Plot { text, x, y, height, names: Vec::new() }
    }

    pub(super) fn px(&self, x: f64) -> f64 {
        LEFT + self.x.at(x) * (WIDTH - LEFT - RIGHT)
    }

    pub(super) fn py(&self, y: f64) -> f64 {
        self.height - BOTTOM - self.y.at(y) * (self.height - TOP - BOTTOM)
    }

    fn push(&mut self, args: fmt::Arguments<'_>) {
        self.text.write_fmt(args).expect("a string takes all");
        self.text.push('\n');
    }

    /// Draws ticks at round values, each with its text.
    pub(super) fn y_axis(&mut self, label: impl Fn(f64) -> String) {
        for tick in self.y.ticks() {
            let (y, text) = (self.py(tick), escape(&label(tick)));
            let end = WIDTH - RIGHT;
            self.push(format_args!(
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{end}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            ));
            let (x, y) = (LEFT - 8.0, y + 4.0);
            self.push(format_args!(
                "<text class=\"tick\" x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{text}</text>"
            ));
        }
    }

    pub(super) fn x_axis(&mut self, label: impl Fn(f64) -> String) {
        let ticks: Vec<_> = self.x.ticks().into_iter().map(|tick| (tick, label(tick))).collect();
        self.x_axis_at(&ticks);
    }

    /// Draws given ticks.
    pub(super) fn x_axis_at(&mut self, ticks: &[(f64, String)]) {
        for (tick, text) in ticks {
            let (x, bottom) = (self.px(*tick), self.height - BOTTOM);
            self.push(format_args!(
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>"
            ));
            let (y, text) = (bottom + 18.0, escape(text));
            self.push(format_args!(
                "<text class=\"tick\" x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>"
            ));
        }
    }

    /// Draws the title of the x axis.
    pub(super) fn x_title(&mut self, text: &str) {
        let (x, y, text) = ((LEFT + WIDTH - RIGHT) / 2.0, self.height - 6.0, escape(text));
        self.push(format_args!(
            "<text class=\"title\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>"
        ));
    }

    /// Draws a line through these points.
    pub(super) fn line(&mut self, points: impl Iterator<Item = (f64, f64)>, color: usize, name: &str) {
        let points: Vec<String> =
            points.map(|(x, y)| format!("{:.1},{:.1}", self.px(x), self.py(y))).collect();
        let (points, name) = (points.join(" "), escape(name));
        self.push(format_args!(
            "<polyline class=\"line c{}\" points=\"{points}\"><title>{name}</title></polyline>",
            color % COLORS.len()
        ));
    }

    /// Draws a point with its name beside it.
    pub(super) fn dot(&mut self, (x, y): (f64, f64), color: usize, name: &str) {
        let (x, y, name) = (self.px(x), self.py(y), escape(name));
        let color = color % COLORS.len();
        self.push(format_args!("<circle class=\"fill c{color}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\"/>"));
        let (x, mut y) = (x + 10.0, y + 4.0);
        let is_taken =
            |y: f64| self.names.iter().any(|at| (at.0 - x).abs() < 130.0 && (at.1 - y).abs() < LINE);
        while is_taken(y) {
            y += LINE;
        }
        self.names.push((x, y));
        self.push(format_args!("<text class=\"tick\" x=\"{x:.1}\" y=\"{y:.1}\">{name}</text>"));
    }

    /// Draws reference levels. Their texts keep their order and do not overlap.
    pub(super) fn levels(&mut self, levels: &[(f64, String)]) {
        let mut levels: Vec<_> = levels.iter().map(|(y, text)| (self.py(*y), escape(text))).collect();
        levels.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let mut free = f64::INFINITY;
        for (y, text) in levels {
            let (x, end) = (WIDTH - RIGHT + 6.0, WIDTH - RIGHT);
            self.push(format_args!(
                "<line class=\"level\" x1=\"{LEFT}\" x2=\"{end}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            ));
            let at = (y + 4.0).min(free);
            self.push(format_args!("<text class=\"tick\" x=\"{x}\" y=\"{at:.1}\">{text}</text>"));
            free = at - LINE;
        }
    }

    /// Draws a box from one point to another.
    pub(super) fn block(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), color: usize, about: &str) {
        let (left, right) = (self.px(x1), self.px(x2));
        let (top, bottom) = (self.py(y2), self.py(y1));
        let (width, height) = ((right - left).max(0.5), bottom - top);
        let (color, about) = (color % COLORS.len(), escape(about));
        self.push(format_args!(
            "<rect class=\"fill c{color}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.2}\" height=\"{height:.1}\">\
             <title>{about}</title></rect>"
        ));
    }

    /// Draws a text beside the y axis.
    pub(super) fn row_name(&mut self, y: f64, text: &str) {
        let (x, y, text) = (LEFT - 8.0, self.py(y) + 4.0, escape(text));
        self.push(format_args!(
            "<text class=\"tick\" x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{text}</text>"
        ));
    }

    /// Returns the whole plot.
    pub(super) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// Most people with weak colour vision can distinguish these as well (Okabe, Ito 2008; the yellow darkened
/// for thin lines).
pub(super) const COLORS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#b8860b", "#8c8c8c"];

/// Escapes text for use between tags or in an attribute.
pub(super) fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut all, c| {
        match c {
            '&' => all.push_str("&amp;"),
            '<' => all.push_str("&lt;"),
            '>' => all.push_str("&gt;"),
            '"' => all.push_str("&quot;"),
            c => all.push(c),
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(Scale::Linear { from: 0.0, to: 108.0 }.ticks(), [0.0, 25.0, 50.0, 75.0, 100.0]);
        assert_eq!(Scale::decades(120.0, 4_500.0).ticks(), [100.0, 1_000.0, 10_000.0]);
        assert_eq!(Scale::from_zero(0.0).at(2.0), 1.0, "what is beyond is at the end");
    }

    #[test]
    fn names_of_dots_do_not_touch() {
        let mut plot = Plot::new(300.0, "test", Scale::from_zero(1.0), Scale::from_zero(1.0));
        (0..5).for_each(|n| plot.dot((0.5, 0.5), n, "same"));
        let mut lines: Vec<f64> = plot.names.iter().map(|(_, y)| *y).collect();
        lines.sort_by(f64::total_cmp);
        assert!(lines.len() == 5 && lines.windows(2).all(|pair| pair[1] - pair[0] >= LINE), "{lines:?}");
    }

    #[test]
    fn names_cannot_break_out() {
        assert_eq!(escape("<b a=\"&\">"), "&lt;b a=&quot;&amp;&quot;&gt;");
    }
}
