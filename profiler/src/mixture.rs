//! What are the latencies of a variant whose queries have several shapes? Those of the mixture of all shapes.

use crate::samples::ShapedInputs;
use crate::shapes::AxisSizes;
use apportion_domain::{INTERFERENCE_MAX, INTERFERENCE_MIN, MixtureTimes, ShapeTimes, mixture_quantile, mixture_times};
use apportion_executor::measuring::interval::QuantileInterval;
use apportion_executor::measuring::stats::{ProfilePoint, TimingConditions};
use apportion_executor::tensor::Tensor;

/// Latencies of a variant for queries of one shape.
#[derive(Clone, Debug, PartialEq)]
pub struct ShapePoints {
    /// The sizes of the axes of all its inputs, but the first.
    pub shape: AxisSizes,
    /// Share of the queries that have this shape.
    pub share: f64,
    /// Latency by batch size, never falling.
    pub points: Vec<ProfilePoint>,
}

impl ShapePoints {
    /// The latencies of a variant on these inputs.
    pub(crate) fn of(inputs: &ShapedInputs, points: Vec<ProfilePoint>) -> Self {
        let sizes = |tensor: &Tensor| tensor.shape.iter().skip(1).copied().collect();
        let shape = inputs.tensors.iter().map(|tensor| (tensor.name.clone(), sizes(tensor))).collect();
        Self { shape, share: inputs.share, points }
    }
}

/// The latencies of a variant, by what measures them on given inputs: of the queries of all shapes together, and of each
/// shape if there are several.
///
/// # Errors
/// The first one of `measure`.
pub(crate) fn of_all_shapes<E>(
    samples: &[ShapedInputs],
    mut measure: impl FnMut(&[Tensor]) -> Result<Vec<ProfilePoint>, E>,
) -> Result<(Vec<ProfilePoint>, Vec<ShapePoints>), E> {
    let of_shape = |inputs: &ShapedInputs| Ok(ShapePoints::of(inputs, measure(&inputs.tensors)?));
    let by_shape = samples.iter().map(of_shape).collect::<Result<Vec<ShapePoints>, E>>()?;
    Ok(match <[ShapePoints; 1]>::try_from(by_shape) {
        Ok([one]) => (one.points, Vec::new()),
        Err(several) => (mixture_points(&several), several),
    })
}

/// Latency by batch size for queries of all shapes: the larger one of median and mean, and the percentiles of the mixture.
/// Each shape has the same batch sizes.
#[must_use]
pub fn mixture_points(shapes: &[ShapePoints]) -> Vec<ProfilePoint> {
    let count = shapes.iter().map(|shape| shape.points.len()).min().unwrap_or(0);
    (0..count)
        .map(|at| mixture_point(&shapes.iter().map(|shape| (shape.share, &shape.points[at])).collect::<Vec<_>>()))
        .collect()
}

/// The mixture of points of one batch size, each with its share; at least one.
fn mixture_point(points: &[(f64, &ProfilePoint)]) -> ProfilePoint {
    let times: Vec<ShapeTimes> =
        points.iter().map(|&(share, point)| ShapeTimes { share, median: point.latency_ms, p99: point.p99_ms }).collect();
    let MixtureTimes { latency, p99 } = mixture_times(&times);
    // The latency if the shapes had these medians, with the spread that was measured.
    let with_medians = |of: fn(&ProfilePoint) -> Option<f64>| {
        let moved = points.iter().zip(&times).map(|((_, point), times)| {
            let median = of(point)?;
            Some(ShapeTimes { median, p99: times.p99 * (median / times.median), ..*times })
        });
        Some(mixture_times(&moved.collect::<Option<Vec<ShapeTimes>>>()?).latency)
    };
    let alone = with_medians(|point| Some(point.latency_ms / point.interference?));
    let conditions = || points.iter().map(|(_, point)| point.conditions);
    ProfilePoint {
        batch: points[0].1.batch,
        latency_ms: latency,
        p95_ms: mixture_quantile(&times, 0.95),
        p99_ms: p99,
        repeats: points.iter().map(|(_, point)| point.repeats).sum(),
        median: QuantileInterval {
            low: with_medians(|point| point.median.low),
            high: with_medians(|point| point.median.high),
        },
        tail: QuantileInterval::default(),
        interference: alone.map(|alone| (latency / alone).clamp(INTERFERENCE_MIN, INTERFERENCE_MAX)),
        conditions: TimingConditions {
            warm_up_runs: conditions().map(|of| of.warm_up_runs).sum(),
            is_steady: conditions().all(|of| of.is_steady),
            noise: conditions().map(|of| of.noise).fold(0.0, f64::max),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(latency_ms: f64, noise: f64) -> Vec<ProfilePoint> {
        let point = |batch: u32| {
            let latency_ms = latency_ms * f64::from(batch);
            let median = QuantileInterval { low: Some(0.9 * latency_ms), high: Some(1.1 * latency_ms) };
            let conditions = TimingConditions { warm_up_runs: 3, is_steady: noise < 0.1, noise };
            let (tail, p95_ms, p99_ms) = (QuantileInterval::default(), latency_ms, latency_ms);
            ProfilePoint { batch, latency_ms, p95_ms, p99_ms, repeats: 100, median, tail, interference: None, conditions }
        };
        vec![point(1), point(4)]
    }

    #[test]
    fn rows_of_several_shapes_are_their_mixture() {
        let shape =
            |share, latency_ms, noise| ShapePoints { shape: AxisSizes::new(), share, points: points(latency_ms, noise) };
        let mixed = mixture_points(&[shape(0.9, 10.0, 0.01), shape(0.1, 40.0, 0.2)]);
        let is = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-9, "{found}, not {expected}");
        assert_eq!(mixed.iter().map(|point| point.batch).collect::<Vec<_>>(), [1, 4]);
        for (point, batch) in mixed.iter().zip([1.0, 4.0]) {
            is(point.latency_ms, 13.0 * batch);
            is(point.p95_ms, 40.0 * batch);
            is(point.p99_ms, 40.0 * batch);
            is(point.median.low.expect("a bound"), 0.9 * 13.0 * batch);
            is(point.median.high.expect("a bound"), 1.1 * 13.0 * batch);
            assert_eq!((point.repeats, point.conditions.warm_up_runs), (200, 6));
            assert_eq!((point.conditions.is_steady, point.conditions.noise), (false, 0.2), "the worst of both");
        }
        assert!(mixture_points(&[]).is_empty());
        let open = |mut shape: ShapePoints| {
            shape.points[0].median.high = None;
            shape
        };
        let mixed = mixture_points(&[open(shape(0.5, 1.0, 0.0)), shape(0.5, 2.0, 0.0)]);
        assert_eq!((mixed[0].median.high, mixed[1].median.high.is_some()), (None, true), "one shape has too few runs");
    }

    #[test]
    fn interference_is_that_of_all_shapes_together() {
        let beside = |share, latency_ms, interference: Option<f64>| {
            let mut points = points(latency_ms, 0.0);
            points.iter_mut().for_each(|point| point.interference = interference);
            ShapePoints { shape: AxisSizes::new(), share, points }
        };
        let factors = |shapes: &[ShapePoints]| {
            let of_each = mixture_points(shapes).into_iter().map(|point| point.interference).collect::<Vec<_>>();
            assert_eq!(of_each[0].is_some(), of_each[1].is_some());
            of_each[0]
        };
        // Beside neighbours the mean is 0.9 * 10 + 0.1 * 40 ms, and alone 0.9 * 5 + 0.1 * 40 ms.
        let found = factors(&[beside(0.9, 10.0, Some(2.0)), beside(0.1, 40.0, Some(1.0))]).expect("neighbours");
        assert!((found - 13.0 / 8.5).abs() < 1e-9, "{found}");
        let none = factors(&[beside(0.9, 10.0, Some(1.0)), beside(0.1, 40.0, Some(1.0))]);
        assert_eq!(none, Some(INTERFERENCE_MIN), "neighbours disturb no shape");
        assert_eq!(factors(&[beside(0.9, 10.0, Some(2.0)), beside(0.1, 40.0, None)]), None, "one ran alone");
    }
}
