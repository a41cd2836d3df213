//! How many labels does an answer find?

use crate::labels::{Label, LabelValue};

/// One row of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerRow {
    /// Its class or value; several if each of them counts.
    pub values: Vec<LabelValue>,
    /// Its position; empty if the value alone decides.
    pub at: Vec<f64>,
}

/// A label and a row that match.
struct Pair {
    /// The Euclidean distance of their positions.
    distance: f64,
    /// Position of the label.
    label: usize,
    /// Position of the row.
    row: usize,
}

/// The classes with the `count` highest scores, the highest first. Among equal scores the first class comes first; a score
/// that is not a number is the lowest.
#[must_use]
pub fn top_classes(scores: &[f64], count: usize) -> Vec<LabelValue> {
    let rank = |class: usize| if scores[class].is_nan() { f64::NEG_INFINITY } else { scores[class] };
    let mut best: Vec<usize> = Vec::with_capacity(count + 1);
    for class in 0..scores.len() {
        let at = best.partition_point(|&other| rank(other) >= rank(class));
        if at < count {
            best.insert(at, class);
            best.truncate(count);
        }
    }
    best.into_iter().map(|class| LabelValue::Number(class as f64)).collect()
}

/// Counts the pairs of a label and a row with equal values that lie at most `within` apart; `None`: at any distance.
///
/// Each label and each row is in one pair at most. The nearest pairs come first; ties are in the order of the labels, then
/// of the rows. A row that matches no label costs nothing: accuracy is the share of labels that are found.
#[must_use]
pub fn count_matches(labels: &[Label], rows: &[AnswerRow], within: Option<f64>) -> usize {
    let mut pairs = Vec::new();
    for (l, label) in labels.iter().enumerate() {
        for (r, row) in rows.iter().enumerate() {
            let distance = distance(&label.at, &row.at);
            let is_same = row.values.iter().any(|value| value.is_same(&label.value));
            if is_same && within.is_none_or(|w| distance <= w) {
                pairs.push(Pair { distance, label: l, row: r });
            }
        }
    }
    let in_order = |a: &Pair, b: &Pair| (a.label, a.row).cmp(&(b.label, b.row));
    pairs.sort_by(|a, b| a.distance.total_cmp(&b.distance).then(in_order(a, b)));
    let (mut labels_used, mut rows_used) = (vec![false; labels.len()], vec![false; rows.len()]);
    let mut count = 0;
    for Pair { label, row, .. } in pairs {
        if !labels_used[label] && !rows_used[row] {
            (labels_used[label], rows_used[row]) = (true, true);
            count += 1;
        }
    }
    count
}

/// The Euclidean distance; 0 if either side has no position.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(value: f64, x: f64) -> Label {
        Label { value: LabelValue::Number(value), at: vec![x, 0.0] }
    }

    fn row(value: f64, x: f64) -> AnswerRow {
        AnswerRow { values: vec![LabelValue::Number(value)], at: vec![x, 0.0] }
    }

    #[test]
    fn value_and_place_must_both_fit() {
        let labels = [label(7.0, 0.0), label(3.0, 10.0)];
        assert_eq!(count_matches(&labels, &[row(7.0, 4.0), row(3.0, 10.0)], Some(4.0)), 2, "4 apart is within 4");
        assert_eq!(count_matches(&labels, &[row(7.0, 4.1), row(8.0, 10.0)], Some(4.0)), 0);
        assert_eq!(count_matches(&labels, &[], Some(4.0)), 0);
        assert_eq!(count_matches(&[], &[row(7.0, 0.0)], Some(4.0)), 0);
    }

    #[test]
    fn each_label_and_each_row_is_used_once() {
        assert_eq!(count_matches(&[label(7.0, 0.0)], &[row(7.0, 0.0), row(7.0, 1.0)], Some(4.0)), 1);
        assert_eq!(count_matches(&[label(7.0, 0.0), label(7.0, 1.0)], &[row(7.0, 0.0)], Some(4.0)), 1);
    }

    #[test]
    fn nearest_pairs_come_first_even_if_fewer_match() {
        let labels = [label(7.0, 0.0), label(7.0, 3.0)];
        let rows = [row(7.0, 2.0), row(7.0, 6.5)];
        assert_eq!(count_matches(&labels, &rows, Some(3.5)), 1, "3 takes 2, and 0 has only 6.5 left");
    }

    #[test]
    fn values_without_positions_are_counted() {
        let labels = [1.0, 1.0, 2.0].map(|value| Label { value: LabelValue::Number(value), at: vec![] });
        let rows = [1.0, 2.0, 2.0].map(|value| AnswerRow { values: vec![LabelValue::Number(value)], at: vec![] });
        assert_eq!(count_matches(&labels, &rows, None), 2);
        let named = |name: &str| LabelValue::Text(name.to_owned());
        let labels = ["rust", "c"].map(|name| Label { value: named(name), at: vec![] });
        let rows = ["c", "c", "Rust"].map(|name| AnswerRow { values: vec![named(name)], at: vec![] });
        assert_eq!(count_matches(&labels, &rows, None), 1);
    }

    /// All classes by their scores, then as many as wanted.
    fn sorted_classes(scores: &[f64], count: usize) -> Vec<LabelValue> {
        let mut classes: Vec<(f64, usize)> = scores.iter().copied().zip(0..).collect();
        classes.sort_by(|(a, first), (b, second)| b.partial_cmp(a).expect("numbers").then(first.cmp(second)));
        classes.into_iter().take(count).map(|(_, class)| LabelValue::Number(class as f64)).collect()
    }

    #[test]
    fn top_classes_are_the_first_when_all_are_sorted() {
        let mut state = 7_u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            f64::from((state >> 61) as u32)
        };
        for classes in 1..12 {
            for count in 1..=classes {
                let scores: Vec<f64> = (0..classes).map(|_| draw()).collect();
                assert_eq!(top_classes(&scores, count), sorted_classes(&scores, count), "{scores:?}");
            }
        }
        let number = LabelValue::Number;
        assert_eq!(top_classes(&[f64::NAN, -1.0, 3.0], 2), [number(2.0), number(1.0)]);
    }

    #[test]
    fn one_of_several_values_is_enough() {
        let values = vec![LabelValue::Number(3.0), LabelValue::Number(7.0)];
        let rows = [AnswerRow { values, at: vec![] }];
        let named = |value| Label { value: LabelValue::Number(value), at: vec![] };
        assert_eq!([7.0, 3.0, 5.0].map(|value| count_matches(&[named(value)], &rows, None)), [1, 1, 0]);
        assert_eq!(count_matches(&[named(7.0), named(3.0)], &rows, None), 1, "a row finds one label");
    }
}
