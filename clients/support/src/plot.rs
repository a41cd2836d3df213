//! What do all plots look like? Colours, font and the labels of ticks.

use crate::output::number;
use plotters::style::RGBColor;

/// The font of all text.
pub const FONT: &str = "sans-serif";
/// The colour of titles.
pub const INK: RGBColor = RGBColor(45, 50, 60);
/// The colour of axes and their labels.
pub const FAINT: RGBColor = RGBColor(120, 126, 138);
/// The colour of grid lines.
pub const GRID: RGBColor = RGBColor(226, 229, 234);

/// The label of a tick, without the zeros that rounding leaves at its end.
pub fn tick_label(value: f64) -> String {
    let text = number((value * 1e6).round() / 1e6);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_label_has_no_trailing_zeros() {
        assert_eq!([0.5, 20.0, 1.25, 0.0].map(tick_label), ["0.5", "20", "1.25", "0"]);
    }
}
