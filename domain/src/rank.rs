//! What is a percentile of measurements? All figures use the same definition.

/// The nearest-rank quantile of values in ascending order. It is the least value that a share `part` (0 to 1) of the values
/// does not exceed. For 0 it is the smallest value. `None` if there are no values.
#[must_use]
pub fn nearest_rank<T: Copy>(sorted: &[T], part: f64) -> Option<T> {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1).min(sorted.len()).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_rank_is_the_least_sufficient_value() {
        let by_definition = |sorted: &[u32], hundredths: usize| {
            let enough = |v: &&u32| 100 * sorted.iter().filter(|w| w <= v).count() >= hundredths * sorted.len();
            sorted.iter().find(enough).copied()
        };
        for n in 0..12 {
            let sorted: Vec<u32> = (0..n).map(|i| i * i / 3).collect();
            for hundredths in (0..=100).step_by(25) {
                let part = hundredths as f64 / 100.0;
                assert_eq!(nearest_rank(&sorted, part), by_definition(&sorted, hundredths), "{part} of {n}");
            }
        }
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|part| nearest_rank(&hundred, part)), [Some(50.0), Some(99.0), Some(100.0)]);
    }
}
