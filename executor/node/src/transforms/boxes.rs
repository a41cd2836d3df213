//! Which of many boxes that overlap stay? Greedy non-maximum suppression.

use super::fault::{GLUE_ROWS_MAX, TransformFault};
use super::numbers::{floats, of_floats, of_int64s};
use super::rows::RowSet;
use apportion_domain::transform::{BoxForm, NmsStep};

/// Boxes of one row that are compared with each other: those of the highest scores.
pub(super) const CANDIDATES_MAX: usize = 4_096;

/// A box with its score, and its class, which is 0 where there are none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ScoredBox {
    pub(super) corners: [f32; 4],
    pub(super) score: f32,
    pub(super) class: usize,
}

/// The corners of a box; none if it has no area or no finite numbers.
fn corners(numbers: [f32; 4], form: BoxForm) -> Option<[f32; 4]> {
    let [left, top, right, bottom] = match form {
        BoxForm::Corners => numbers,
        BoxForm::Centre => {
            let [x, y, width, height] = numbers;
            [x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0]
        }
    };
    let is_finite = [left, top, right, bottom].iter().all(|number| number.is_finite());
    (is_finite && left < right && top < bottom).then_some([left, top, right, bottom])
}

/// Area of the intersection over the area of the union, 0 to 1.
pub(super) fn overlap(one: &[f32; 4], other: &[f32; 4]) -> f64 {
    let side = |from: usize, to: usize| f64::from(one[to].min(other[to])) - f64::from(one[from].max(other[from]));
    let area = |b: &[f32; 4]| (f64::from(b[2]) - f64::from(b[0])) * (f64::from(b[3]) - f64::from(b[1]));
    let shared = side(0, 2).max(0.0) * side(1, 3).max(0.0);
    shared / (area(one) + area(other) - shared)
}

/// The highest score and its class. Without classes `scores` has one number. NaN is no score.
fn best(scores: &[f32]) -> Option<(usize, f32)> {
    let numbers = scores.iter().copied().enumerate().filter(|(_, score)| !score.is_nan());
    numbers.reduce(|best, next| if next.1 > best.1 { next } else { best })
}

/// The boxes that stay, the highest score first; of equal scores the first box.
pub(super) fn kept(step: &NmsStep, boxes: &[[f32; 4]], scores: &[f32]) -> Vec<ScoredBox> {
    let classes = scores.len().checked_div(boxes.len()).unwrap_or(0);
    let candidate = |(at, numbers): (usize, &[f32; 4])| {
        let (class, score) = best(&scores[at * classes..(at + 1) * classes])?;
        let corners = corners(*numbers, step.form)?;
        (f64::from(score) >= step.score_min).then_some(ScoredBox { corners, score, class })
    };
    let mut candidates: Vec<ScoredBox> = boxes.iter().enumerate().filter_map(candidate).collect();
    candidates.sort_by(|one, other| other.score.total_cmp(&one.score));
    candidates.truncate(CANDIDATES_MAX);
    let mut kept: Vec<ScoredBox> = Vec::new();
    for next in candidates {
        let is_apart = |had: &ScoredBox| had.class != next.class || overlap(&had.corners, &next.corners) <= step.iou;
        if kept.len() == step.keep_max as usize {
            break;
        }
        if kept.iter().all(is_apart) {
            kept.push(next);
        }
    }
    kept
}

pub(super) fn nms(step: &NmsStep, rows: &mut RowSet) -> Result<(), TransformFault> {
    let (boxes, scores) = (rows.tensor(&step.boxes), rows.tensor(&step.scores));
    let (box_rows, score_rows) = (rows.rows_in(&step.boxes), rows.rows_in(&step.scores));
    let (numbers, score_numbers) = (floats(boxes), floats(scores));
    let (boxes_of_row, scores_of_row) = (boxes.shape[1], scores.shape[1..].iter().product::<usize>());
    let has_classes = scores.shape.len() == 3;
    let all_boxes = numbers.as_chunks::<4>().0;
    let mut sources = Vec::new();
    let (mut corners, mut best_scores, mut classes) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..rows.rows() {
        let of_row = &all_boxes[box_rows[row] * boxes_of_row..(box_rows[row] + 1) * boxes_of_row];
        let score_row = score_rows[row];
        let scores = &score_numbers[score_row * scores_of_row..(score_row + 1) * scores_of_row];
        for found in kept(step, of_row, scores) {
            sources.push(row);
            corners.extend(found.corners);
            best_scores.push(found.score);
            classes.push(found.class as i64);
        }
        if sources.len() > GLUE_ROWS_MAX {
            return Err(TransformFault::Rows);
        }
    }
    rows.replace_rows(&sources)?;
    let count = sources.len();
    rows.put(of_floats(&step.boxes, vec![count, 4], &corners));
    rows.put(of_floats(&step.scores, vec![count], &best_scores));
    if has_classes {
        rows.put(of_int64s(&step.classes, vec![count], &classes));
    }
    Ok(())
}
