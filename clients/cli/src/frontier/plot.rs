//! How is a frontier drawn? Accuracy, replicas and cost have one panel each, over the varied value.

use super::result::{Frontier, has_plan, has_status, step};
use anyhow::anyhow;
use apportion_domain::{ObjectiveStep, PlanStatus};
use apportion_support::exit::Failure;
use apportion_support::plot::{FAINT, FONT, GRID, INK, tick_label};
use apportion_wire::FrontierPointFile;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

type Step = Option<ObjectiveStep>;

const WIDTH: u32 = 880;

const HEIGHT: u32 = 760;

const HEAD: u32 = 74;

const NO_PLAN: RGBColor = RGBColor(240, 236, 234);

const BLUE: RGBColor = RGBColor(31, 105, 180);

const ORANGE: RGBColor = RGBColor(214, 98, 20);

/// One panel: its title and the value of a point.
struct Panel {
    title: &'static str,
    value: fn(&FrontierPointFile) -> Option<f64>,
    /// Whether its axis starts at 0. Counts and costs start there; an accuracy would be a flat line.
    from_zero: bool,
}

const PANELS: [Panel; 3] = [
    Panel { title: "accuracy", value: |p| p.accuracy, from_zero: false },
    Panel { title: "replicas", value: |p| p.replicas.map(|n| n as f64), from_zero: true },
    Panel { title: "cost per hour", value: |p| p.cost_per_hour, from_zero: true },
];

/// Whether a panel has the labels of the common horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AxisLabels {
    Shown,
    Hidden,
}

/// How a dot of the legend is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dot {
    /// A proven plan.
    Filled,
    /// A plan that may not be the best.
    Hollow,
}

/// The plot as SVG.
pub fn svg(frontier: &Frontier) -> Result<String, Failure> {
    let mut text = String::new();
    let drawn = {
        let root = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
        draw(&root, frontier).and_then(|()| root.present().map_err(|e| anyhow!("{e}")))
    };
    drawn.map_err(|e| e.context("drawing the plot"))?;
    Ok(text)
}

fn plot_error<E: std::error::Error + Send + Sync + 'static>(error: E) -> anyhow::Error {
    anyhow::Error::new(error)
}

fn draw(root: &Area<'_>, frontier: &Frontier) -> anyhow::Result<()> {
    root.fill(&WHITE).map_err(plot_error)?;
    let (head, body) = root.split_vertically(HEAD);
    heading(&head, frontier)?;
    let last = PANELS.len() - 1;
    // The last panel also holds the labels of the axis.
    let height = (HEIGHT - HEAD - 46) / PANELS.len() as u32;
    let mut rest = body;
    for (i, panel) in PANELS.iter().enumerate() {
        let (area, labels) = if i < last {
            let (area, below) = rest.split_vertically(height);
            rest = below;
            (area, AxisLabels::Hidden)
        } else {
            (rest.clone(), AxisLabels::Shown)
        };
        draw_panel(&area, frontier, panel, labels)?;
    }
    Ok(())
}

fn axis(frontier: &Frontier) -> &'static str {
    match frontier.result.sweep.as_str() {
        "demand" => "demand (queries/s)",
        "slo" => "SLO (ms)",
        "budget" => "budget per hour",
        _ => "devices",
    }
}

/// The title and the legend.
fn heading(area: &Area<'_>, frontier: &Frontier) -> anyhow::Result<()> {
    let of = frontier.result.of.as_ref().map_or_else(String::new, |name| format!(" of {name}"));
    let name = std::path::Path::new(&frontier.file).file_name().and_then(|n| n.to_str()).unwrap_or(&frontier.file);
    let title = format!("{name}: {}{of}", axis(frontier));
    area.draw(&Text::new(title, (20, 16), (FONT, 20).into_font().color(&INK))).map_err(plot_error)?;
    let mut x = 22;
    let mut entry = |text: &str, swatch: &dyn Fn((i32, i32)) -> anyhow::Result<()>| -> anyhow::Result<()> {
        swatch((x + 5, 55))?;
        area.draw(&Text::new(text.to_owned(), (x + 16, 48), (FONT, 13).into_font().color(&INK))).map_err(plot_error)?;
        x += 44 + 6 * text.chars().count() as i32;
        Ok(())
    };
    let dot = |color: RGBColor, dot: Dot| {
        move |at: (i32, i32)| -> anyhow::Result<()> {
            let style = if dot == Dot::Filled { color.filled() } else { color.stroke_width(2) };
            area.draw(&Circle::new(at, 4, style)).map_err(plot_error)
        }
    };
    let has = |test: &dyn Fn(&FrontierPointFile) -> bool| frontier.result.points.iter().any(test);
    if has(&|p| step(p) == Some(ObjectiveStep::Hardware)) {
        entry("most accurate variants, fewest replicas", &dot(BLUE, Dot::Filled))?;
    }
    if has(&|p| step(p) == Some(ObjectiveStep::Accuracy)) {
        entry("highest accuracy on the devices there are", &dot(ORANGE, Dot::Filled))?;
    }
    if has(&|p| has_plan(p) && step(p).is_none()) {
        entry("best plan", &dot(BLUE, Dot::Filled))?;
    }
    if has(&|p| has_status(p, PlanStatus::Feasible)) {
        entry("not proven best", &dot(INK, Dot::Hollow))?;
    }
    if has(&|p| !has_plan(p)) {
        entry("no plan", &|(x, y)| {
            area.draw(&Rectangle::new([(x - 6, y - 6), (x + 6, y + 6)], NO_PLAN.filled())).map_err(plot_error)
        })?;
    }
    if frontier.result.present.is_some_and(|v| x_range(&frontier.result.points).contains(&v)) {
        entry("the problem file's value", &|(x, y)| {
            area.draw(&PathElement::new([(x, y - 7), (x, y + 7)], FAINT.stroke_width(2))).map_err(plot_error)
        })?;
    }
    Ok(())
}

fn color(step: Step) -> RGBColor {
    if step == Some(ObjectiveStep::Accuracy) { ORANGE } else { BLUE }
}

/// The shown interval of the varied values, never empty.
fn x_range(points: &[FrontierPointFile]) -> Range<f64> {
    let values = || points.iter().map(|p| p.value);
    let (from, to) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    let margin = if to > from { 0.02 * (to - from) } else { 0.05 * to.abs().max(1.0) };
    from - margin..to + margin
}

/// The shown interval of a panel, never empty.
fn y_range(points: &[FrontierPointFile], panel: &Panel) -> Range<f64> {
    let values = || points.iter().filter_map(panel.value);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    if !least.is_finite() {
        return 0.0..1.0;
    }
    let from = if panel.from_zero { 0.0 } else { least };
    let margin = if most > from { 0.1 * (most - from) } else { 0.05 * most.abs().max(0.1) };
    let below = if panel.from_zero { 0.0 } else { from - margin };
    below..most + margin
}

fn draw_panel(area: &Area<'_>, frontier: &Frontier, panel: &Panel, labels: AxisLabels) -> anyhow::Result<()> {
    let points = &frontier.result.points;
    let (x, y) = (x_range(points), y_range(points, panel));
    let mut chart = ChartBuilder::on(area)
        .margin_right(24)
        .margin_left(12)
        .margin_top(22)
        .x_label_area_size(if labels == AxisLabels::Shown { 46 } else { 6 })
        .y_label_area_size(64)
        .build_cartesian_2d(x.clone(), y.clone())
        .map_err(plot_error)?;
    chart.draw_series(without_plan(points, &x, &y)).map_err(plot_error)?;
    let label = |v: &f64| tick_label(*v);
    let no_label = |_: &f64| String::new();
    let style = (FONT, 13).into_font().color(&FAINT);
    let mut mesh = chart.configure_mesh();
    mesh.bold_line_style(GRID).light_line_style(TRANSPARENT).axis_style(FAINT).y_labels(5).label_style(style.clone());
    mesh.x_labels(10).y_label_formatter(&label);
    if labels == AxisLabels::Shown {
        mesh.x_desc(axis(frontier)).axis_desc_style((FONT, 14).into_font().color(&INK)).x_label_formatter(&label);
    } else {
        mesh.x_label_formatter(&no_label);
    }
    mesh.draw().map_err(plot_error)?;
    if let Some(present) = frontier.result.present.filter(|v| x.contains(v)) {
        let line = PathElement::new([(present, y.start), (present, y.end)], FAINT.stroke_width(1));
        chart.draw_series([line]).map_err(plot_error)?;
    }
    for Line { step, points } in lines(points, panel) {
        chart.draw_series(LineSeries::new(points, color(step).stroke_width(2))).map_err(plot_error)?;
    }
    let shown = points.iter().filter_map(|p| Some(((p.value, (panel.value)(p)?), p)));
    let dots = shown.map(|(at, p)| {
        let proven = has_status(p, PlanStatus::Optimal);
        let style = if proven { color(step(p)).filled() } else { color(step(p)).stroke_width(2) };
        Circle::new(at, 3, style)
    });
    chart.draw_series(dots).map_err(plot_error)?;
    let place = Pos::new(HPos::Left, VPos::Top);
    let title = (FONT, 15).into_font().color(&INK).pos(place);
    area.draw(&Text::new(panel.title, (76, 2), title)).map_err(plot_error)?;
    Ok(())
}

/// An unbroken line of points with a plan.
struct Line {
    /// The step of its plans.
    step: Step,
    /// The varied value and the panel's value.
    points: Vec<(f64, f64)>,
}

/// The lines of a panel. If the step changes, the new line starts at the last point of the old one.
fn lines(points: &[FrontierPointFile], panel: &Panel) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut before: Option<(f64, f64)> = None;
    for p in points {
        let here = (panel.value)(p).map(|y| (p.value, y));
        if let Some(at) = here {
            match (before, lines.last_mut()) {
                (Some(_), Some(line)) if line.step == step(p) => line.points.push(at),
                (Some(from), _) => lines.push(Line { step: step(p), points: vec![from, at] }),
                (None, _) => lines.push(Line { step: step(p), points: vec![at] }),
            }
        }
        before = here;
    }
    lines
}

/// Rectangles where there is no plan, from half-way to the neighbour on each side.
fn without_plan(points: &[FrontierPointFile], x: &Range<f64>, y: &Range<f64>) -> Vec<Rectangle<(f64, f64)>> {
    let middle = |a: usize, b: usize| 0.5 * (points[a].value + points[b].value);
    let rectangle = |(i, _): (usize, &FrontierPointFile)| {
        let from = if i == 0 { x.start } else { middle(i - 1, i) };
        let to = if i + 1 == points.len() { x.end } else { middle(i, i + 1) };
        Rectangle::new([(from, y.start), (to, y.end)], NO_PLAN.filled())
    };
    points.iter().enumerate().filter(|(_, p)| !has_plan(p)).map(rectangle).collect()
}
