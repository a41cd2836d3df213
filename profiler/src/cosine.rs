//! How alike are the outputs of two combinations of variants?

/// The rows of an output for one example.
pub(crate) type ExampleRows = Vec<Vec<f64>>;

/// The mean likeness over all examples, from 0 to 1. The rows of an example are compared in their order; a row without its
/// counterpart counts 0. Two examples without rows are alike.
pub(crate) fn likeness(rows: &[ExampleRows], reference: &[ExampleRows]) -> f64 {
    let of_example = |(mine, theirs): (&ExampleRows, &ExampleRows)| {
        let count = mine.len().max(theirs.len());
        let sum: f64 = mine.iter().zip(theirs).map(|(a, b)| cosine(a, b)).sum();
        if count == 0 { 1.0 } else { sum / count as f64 }
    };
    rows.iter().zip(reference).map(of_example).sum::<f64>() / rows.len().max(1) as f64
}

/// The cosine of the angle between two rows; 0 if they point away from each other, have other lengths, or are not finite.
/// Two rows of zeros are alike.
fn cosine(a: &[f64], b: &[f64]) -> f64 {
    if a.len() != b.len() {
        return 0.0;
    }
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let (squares_a, squares_b) = (product(a, a), product(b, b));
    if squares_a == 0.0 && squares_b == 0.0 {
        return 1.0;
    }
    let cosine = product(a, b) / (squares_a.sqrt() * squares_b.sqrt());
    if cosine.is_finite() { cosine.clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cosine_is_that_of_the_angle() {
        // The oracle turns a vector by an angle and asks for its cosine.
        for step in 0..=36 {
            let angle = std::f64::consts::TAU * f64::from(step) / 36.0;
            let turned = [3.0 * angle.cos(), 3.0 * angle.sin()];
            let found = cosine(&[0.5, 0.0], &turned);
            assert!((found - angle.cos().max(0.0)).abs() < 1e-12, "{angle}: {found}");
        }
        assert_eq!([cosine(&[0.0, 0.0], &[0.0, 0.0]), cosine(&[0.0, 0.0], &[1.0, 0.0])], [1.0, 0.0]);
        assert_eq!([cosine(&[1.0], &[1.0, 0.0]), cosine(&[f64::NAN], &[1.0]), cosine(&[f64::INFINITY], &[1.0])], [0.0; 3]);
    }

    #[test]
    fn missing_rows_count_nothing() {
        let (x, y) = (vec![1.0, 0.0], vec![0.0, 1.0]);
        let reference = vec![vec![x.clone(), y.clone()], vec![], vec![x.clone()], vec![y.clone()]];
        assert_eq!(likeness(&reference, &reference), 1.0);
        let rows = vec![vec![x.clone()], vec![], vec![x, y.clone()], vec![vec![1.0, 0.0]]];
        // One of two rows, none of none, one of two rows, and a row across.
        assert_eq!(likeness(&rows, &reference), (0.5 + 1.0 + 0.5 + 0.0) / 4.0);
    }
}
