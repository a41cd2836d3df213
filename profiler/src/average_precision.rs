//! How precise are the boxes that a detector finds?
//!
//! The *average precision* of a class is the area under its interpolated precision-recall curve, as PASCAL VOC defines it
//! since 2010 (development kit of VOC 2010, section 3.4.1; the eleven points of earlier years are not used). The *mean
//! average precision* is the mean over all classes that have a label.

use crate::labels::{Label, LabelValue};

/// A box that a detector found.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundBox {
    /// The example that it was found in.
    pub example: usize,
    /// Its class; `None` if all boxes are of one class.
    pub class: Option<LabelValue>,
    /// How sure the detector is.
    pub score: f64,
    /// Left, top, right, bottom.
    pub corners: [f64; 4],
}

/// The mean average precision of boxes, from 0 to 1. A label is found if a box of its class overlaps it by `iou_min` or
/// more. Boxes come in the order of their scores, the highest first; ties stay as they are. Each takes the label of its
/// example that it overlaps most; a label that is taken already makes it a false one. The labels are by example, each at
/// its corners.
#[must_use]
pub fn mean_average_precision(labels: &[Vec<Label>], found: &[FoundBox], iou_min: f64) -> f64 {
    let mut classes: Vec<Option<&LabelValue>> = Vec::new();
    if found.iter().any(|of| of.class.is_none()) {
        classes.push(None);
    } else {
        for label in labels.iter().flatten() {
            if !classes.iter().flatten().any(|class| class.is_same(&label.value)) {
                classes.push(Some(&label.value));
            }
        }
    }
    let mut boxes: Vec<&FoundBox> = found.iter().filter(|of| !of.score.is_nan()).collect();
    boxes.sort_by(|a, b| b.score.total_cmp(&a.score));
    let of_class = |class: &Option<&LabelValue>| {
        let is_of = |value: &LabelValue| class.is_none_or(|class| class.is_same(value));
        let wanted = labels.iter().flatten().filter(|label| is_of(&label.value)).count();
        let boxes = boxes.iter().copied().filter(|of| of.class.as_ref().is_none_or(is_of));
        average_precision(&hits(labels, boxes, is_of, iou_min), wanted)
    };
    classes.iter().map(of_class).sum::<f64>() / classes.len().max(1) as f64
}

/// Which boxes find a label that no box ahead of them has found.
fn hits<'a>(
    labels: &[Vec<Label>],
    boxes: impl Iterator<Item = &'a FoundBox>,
    is_wanted: impl Fn(&LabelValue) -> bool,
    iou_min: f64,
) -> Vec<bool> {
    let mut taken: Vec<Vec<bool>> = labels.iter().map(|of| vec![false; of.len()]).collect();
    let hit = |of: &FoundBox| {
        let mut best: Option<(f64, usize)> = None;
        for (l, label) in labels[of.example].iter().enumerate().filter(|(_, label)| is_wanted(&label.value)) {
            let overlap = overlap(of.corners, &label.at);
            if overlap >= iou_min && best.is_none_or(|(largest, _)| overlap > largest) {
                best = Some((overlap, l));
            }
        }
        best.is_some_and(|(_, l)| !std::mem::replace(&mut taken[of.example][l], true))
    };
    boxes.map(hit).collect()
}

/// Intersection over union; 0 if either has no area.
fn overlap(a: [f64; 4], b: &[f64]) -> f64 {
    let &[left, top, right, bottom] = b else { return 0.0 };
    let area = |left: f64, top: f64, right: f64, bottom: f64| (right - left).max(0.0) * (bottom - top).max(0.0);
    let common = area(a[0].max(left), a[1].max(top), a[2].min(right), a[3].min(bottom));
    let union = area(a[0], a[1], a[2], a[3]) + area(left, top, right, bottom) - common;
    if union > 0.0 { common / union } else { 0.0 }
}

/// The area under the curve of the largest precision at a recall or at a higher one. `hits` are in descending order of the
/// scores, and `wanted` labels are to be found.
fn average_precision(hits: &[bool], wanted: usize) -> f64 {
    let ranks = hits.iter().zip(1_u32..).filter(|(hit, _)| **hit).map(|(_, rank)| f64::from(rank));
    let precisions: Vec<f64> = ranks.zip(1_u32..).map(|(rank, found)| f64::from(found) / rank).collect();
    let (mut largest, mut sum) = (0.0_f64, 0.0);
    // Each hit raises the recall by one label.
    for precision in precisions.into_iter().rev() {
        largest = largest.max(precision);
        sum += largest;
    }
    sum / wanted.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The development kit of PASCAL VOC, line by line: recall and precision with an end on both sides, precision made to
    /// fall, then the sum over all steps of the recall.
    fn area_of_the_kit(hits: &[bool], wanted: usize) -> f64 {
        let (mut recall, mut precision, mut found) = (vec![0.0], vec![0.0], 0.0);
        for (rank, hit) in hits.iter().enumerate() {
            found += f64::from(u8::from(*hit));
            recall.push(found / wanted as f64);
            precision.push(found / (rank + 1) as f64);
        }
        recall.push(1.0);
        precision.push(0.0);
        for i in (0..precision.len() - 1).rev() {
            precision[i] = f64::max(precision[i], precision[i + 1]);
        }
        (1..recall.len()).map(|i| (recall[i] - recall[i - 1]) * precision[i]).sum()
    }

    #[test]
    fn the_area_is_that_of_the_kit() {
        for pattern in 0_u32..1 << 9 {
            let hits: Vec<bool> = (0..9).map(|bit| (pattern >> bit) & 1 == 1).collect();
            for spare in [0, 1, 5] {
                let wanted = pattern.count_ones() as usize + spare;
                if wanted > 0 {
                    let (quick, slow) = (average_precision(&hits, wanted), area_of_the_kit(&hits, wanted));
                    assert!((quick - slow).abs() < 1e-12, "{hits:?} of {wanted}: {quick} and {slow}");
                }
            }
        }
    }

    fn label(class: &str, at: [f64; 4]) -> Label {
        Label { value: LabelValue::Text(class.to_owned()), at: at.to_vec() }
    }

    fn found(example: usize, class: &str, score: f64, corners: [f64; 4]) -> FoundBox {
        FoundBox { example, class: Some(LabelValue::Text(class.to_owned())), score, corners }
    }

    const HERE: [f64; 4] = [0.0, 0.0, 2.0, 2.0];
    /// Overlaps [`HERE`] by 2 of 6.
    const NEAR: [f64; 4] = [1.0, 0.0, 3.0, 2.0];
    const AWAY: [f64; 4] = [8.0, 8.0, 9.0, 9.0];

    #[test]
    fn boxes_overlap_by_intersection_over_union() {
        assert_eq!(overlap(HERE, &HERE), 1.0);
        assert!((overlap(HERE, &NEAR) - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!([overlap(HERE, &AWAY), overlap([0.0; 4], &[0.0; 4]), overlap([f64::NAN; 4], &HERE)], [0.0; 3]);
    }

    #[test]
    fn a_label_is_found_once_and_in_its_example() {
        let labels = [vec![label("a", HERE)], vec![label("a", AWAY)]];
        let precision = |found: &[FoundBox]| mean_average_precision(&labels, found, 0.5);
        assert_eq!(precision(&[found(0, "a", 0.9, HERE), found(1, "a", 0.8, AWAY)]), 1.0);
        // The second box of the label is a false one: hit, miss, hit.
        let doubled = [found(0, "a", 0.9, HERE), found(0, "a", 0.8, HERE), found(1, "a", 0.7, AWAY)];
        assert_eq!(precision(&doubled), f64::midpoint(1.0, 2.0 / 3.0));
        assert_eq!(precision(&[found(1, "a", 0.9, HERE), found(0, "a", 0.9, NEAR)]), 0.0, "another example; too far");
        assert_eq!(precision(&[found(0, "a", f64::NAN, HERE)]), 0.0);
        assert_eq!(precision(&[]), 0.0);
    }

    #[test]
    fn the_mean_is_over_classes_with_labels() {
        let labels = [vec![label("a", HERE), label("b", AWAY)]];
        let mixed = [found(0, "a", 0.5, HERE), found(0, "a", 0.9, AWAY), found(0, "c", 0.9, HERE)];
        // Of `a` the first box is false and the second right; of `b` there is none; `c` has no label.
        assert_eq!(mean_average_precision(&labels, &mixed, 0.5), 0.25);
        let plain = mixed.map(|of| FoundBox { class: None, ..of });
        // By their scores: AWAY and the first HERE find the two labels, and the last box is a second one.
        assert_eq!(mean_average_precision(&labels, &plain, 0.5), 1.0);
    }
}
