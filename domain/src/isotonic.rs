//! Which rising sequence is nearest to measurements?

/// Neighbours with one value.
#[derive(Clone, Copy)]
struct Pool {
    mean: f64,
    count: usize,
}

impl Pool {
    /// The pool of the members of both.
    fn merge(left: Self, right: Self) -> Self {
        let count = left.count + right.count;
        let mean = (left.mean * left.count as f64 + right.mean * right.count as f64) / count as f64;
        Self { mean, count }
    }
}

/// The non-decreasing sequence nearest to `values` by least squares: neighbours that fall are pooled into their mean
/// (isotonic regression by pooling adjacent violators; Barlow and others, 1972).
#[must_use]
pub fn isotonic(values: &[f64]) -> Vec<f64> {
    let mut pools: Vec<Pool> = Vec::with_capacity(values.len());
    for &value in values {
        pools.push(Pool { mean: value, count: 1 });
        while let [.., left, right] = pools[..]
            && left.mean > right.mean
        {
            pools.truncate(pools.len() - 2);
            pools.push(Pool::merge(left, right));
        }
    }
    pools.into_iter().flat_map(|Pool { mean, count }| std::iter::repeat_n(mean, count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn falling_neighbours_are_pooled() {
        assert_eq!(isotonic(&[1.0, 2.0, 4.0]), [1.0, 2.0, 4.0]);
        assert_eq!(isotonic(&[1.0, 4.0, 2.0, 5.0]), [1.0, 3.0, 3.0, 5.0]);
        assert_eq!(isotonic(&[4.0, 3.0, 2.0]), [3.0, 3.0, 3.0]);
        assert_eq!(isotonic(&[2.0, 4.0, 3.0, 1.0]), [2.0, 8.0 / 3.0, 8.0 / 3.0, 8.0 / 3.0]);
        assert_eq!(isotonic(&[]), [0.0; 0]);
    }

    #[test]
    fn the_isotonic_sequence_is_the_nearest_on_a_grid() {
        let grid = |i: usize| [(i / 125) % 5, (i / 25) % 5, (i / 5) % 5, i % 5].map(|x| x as f64);
        let error = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum::<f64>();
        for i in 0..625 {
            let values = grid(i);
            let fitted = isotonic(&values);
            assert!(fitted.is_sorted(), "{values:?} -> {fitted:?}");
            let best =
                (0..625).map(grid).filter(|g| g.is_sorted()).map(|g| error(&g, &values)).fold(f64::INFINITY, f64::min);
            assert!(error(&fitted, &values) <= best + 1e-12, "{values:?} -> {fitted:?}");
        }
    }
}
