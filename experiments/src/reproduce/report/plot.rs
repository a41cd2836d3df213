//! How is a line plot of several series drawn, as SVG?

use anyhow::anyhow;
use apportion_support::exit::Failure;
use apportion_support::plot::{FAINT, FONT, GRID, INK, tick_label};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::ops::Range;

/// Where an axis begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AxisStart {
    /// Just below the least value.
    Least,
    /// At zero, or just below the least value if that is negative.
    Zero,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawError = DrawingAreaErrorKind<std::io::Error>;

const WIDTH: u32 = 760;

/// The widest plot, as wide as the page.
const WIDTH_MAX: u32 = 1_000;

/// Pixels of one character of a label.
const CHARACTER: u32 = 7;

const HEIGHT: u32 = 380;

const LEGEND: u32 = 54;

/// Colours that colour-blind people can distinguish (Okabe and Ito).
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
    RGBColor(160, 120, 60),
];

/// One line.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points by increasing x.
    pub points: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Its title.
    pub title: String,
    /// Label of the horizontal axis, with the unit.
    pub x: String,
    /// Label of the vertical axis, with the unit.
    pub y: String,
    /// The lines.
    pub series: Vec<Series>,
    /// Names of the places 0, 1, 2... on the horizontal axis. With names, points are dots without lines.
    pub places: Vec<String>,
}

impl Plot {
    /// The plot as SVG.
    pub fn svg(&self) -> Result<String, Failure> {
        let mut text = String::new();
        {
            let root = SVGBackend::with_string(&mut text, (self.width(), HEIGHT)).into_drawing_area();
            self.draw(&root).map_err(|e| anyhow!("drawing {:?}: {e}", self.title))?;
            root.present().map_err(|e| anyhow!("drawing {:?}: {e}", self.title))?;
        }
        Ok(text)
    }

    /// A width at which the names of places do not overlap.
    fn width(&self) -> u32 {
        let longest = self.places.iter().map(|p| p.chars().count()).max().unwrap_or_default() as u32;
        let labels = (longest * CHARACTER + CHARACTER) * self.places.len() as u32;
        (labels + 110).clamp(WIDTH, WIDTH_MAX)
    }

    fn range(&self, of: fn(&(f64, f64)) -> f64, start: AxisStart) -> Range<f64> {
        let values = || self.series.iter().flat_map(|s| &s.points).map(of).filter(|v| v.is_finite());
        let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        if !least.is_finite() {
            return 0.0..1.0;
        }
        let from_zero = start == AxisStart::Zero;
        let least = if from_zero { least.min(0.0) } else { least };
        let margin = if most > least { 0.05 * (most - least) } else { 0.5 * most.abs().max(1.0) };
        let below = if from_zero && least >= 0.0 { 0.0 } else { least - margin };
        below..most + margin
    }

    fn x_range(&self) -> Range<f64> {
        match self.places.len() {
            0 => self.range(|&(x, _)| x, AxisStart::Least),
            n => -0.5..n as f64 - 0.5,
        }
    }

    fn draw(&self, root: &Area<'_>) -> Result<(), DrawError> {
        root.fill(&WHITE)?;
        let (head, body) = root.split_vertically(LEGEND);
        self.legend(&head)?;
        let mut chart = ChartBuilder::on(&body)
            .margin_right(24)
            .margin_left(8)
            .margin_top(6)
            .x_label_area_size(46)
            .y_label_area_size(68)
            .build_cartesian_2d(self.x_range(), self.range(|&(_, y)| y, AxisStart::Zero))?;
        let x_label = |v: &f64| self.x_label(*v);
        let y_label = |v: &f64| tick_label(*v);
        let mut mesh = chart.configure_mesh();
        mesh.bold_line_style(GRID).light_line_style(TRANSPARENT).axis_style(FAINT);
        mesh.label_style((FONT, 13).into_font().color(&FAINT)).axis_desc_style((FONT, 14).into_font().color(&INK));
        mesh.x_labels(if self.places.is_empty() { 9 } else { 2 * self.places.len() + 1 }).y_labels(6);
        mesh.x_desc(self.x.as_str()).y_desc(self.y.as_str()).x_label_formatter(&x_label).y_label_formatter(&y_label);
        mesh.draw()?;
        for (i, series) in self.series.iter().enumerate() {
            let color = COLORS[i % COLORS.len()];
            let points = || series.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite());
            if self.places.is_empty() {
                chart.draw_series(LineSeries::new(points(), color.stroke_width(2)))?;
            }
            if !self.places.is_empty() || series.points.len() <= 40 {
                let shift = if self.places.is_empty() { 0.0 } else { self.shift(i) };
                let dots = points().map(|(x, y)| Circle::new((x + shift, y), 4, color.filled()));
                chart.draw_series(dots)?;
            }
        }
        Ok(())
    }

    /// Dots of several series above one place stand side by side.
    fn shift(&self, series: usize) -> f64 {
        let n = self.series.len() as f64;
        if n < 2.0 { 0.0 } else { 0.4 * (series as f64 / (n - 1.0) - 0.5) }
    }

    fn x_label(&self, value: f64) -> String {
        if self.places.is_empty() {
            return tick_label(value);
        }
        let at = value.round();
        let is_place = (value - at).abs() < 1e-6 && at >= 0.0;
        self.places.get(at as usize).filter(|_| is_place).cloned().unwrap_or_default()
    }

    fn legend(&self, area: &Area<'_>) -> Result<(), DrawError> {
        let title = Text::new(self.title.clone(), (14, 8), (FONT, 17).into_font().color(&INK));
        area.draw(&title)?;
        let mut x = 20;
        for (i, series) in self.series.iter().enumerate() {
            area.draw(&Circle::new((x, 40), 5, COLORS[i % COLORS.len()].filled()))?;
            let name = Text::new(series.name.clone(), (x + 10, 34), (FONT, 13).into_font().color(&INK));
            area.draw(&name)?;
            x += 34 + 7 * series.name.chars().count() as i32;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_shows_its_series_by_name() {
        let series = |name: &str| Series { name: name.into(), points: vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, 3.0)] };
        let plot = Plot {
            title: "t".into(),
            x: "x".into(),
            y: "y".into(),
            series: vec![series("one"), series("two")],
            places: vec![],
        };
        let svg = plot.svg().expect("an image");
        assert!(svg.starts_with("<svg") && svg.contains("one") && svg.contains("two") && !svg.contains("NaN"), "{svg}");
        let empty = Plot { series: vec![], places: vec!["a".into()], ..plot };
        assert!(empty.svg().expect("an image").contains('a'));
    }
}
