//! Do the latencies of a profile row by shape agree with the row?
//!
//! Example: 90 % of the texts have 128 tokens and take 10 ms, and 10 % have 512 tokens and take 40 ms. The row itself says
//! 13 ms, which is the mean.

use crate::shape_latency::ShapeLatency;
use crate::spec::ProfileRowSpec;
use apportion_domain::pipeline::{NUMBER_MAX, escape};
use apportion_domain::{Invalid, MIXTURE_SLACK, MixtureTimes, SHAPES_MAX, SHARES_SLACK, ShapeTimes, mixture_times};
use std::collections::BTreeMap;

fn times_of(of: &ShapeLatency) -> ShapeTimes {
    ShapeTimes { share: of.share, median: of.latency_ms, p99: of.p99_ms.unwrap_or(of.latency_ms) }
}

/// The faults of the values of one shape; `at` is its pointer.
fn check_shape(of: &ShapeLatency, at: &str, problems: &mut Vec<Invalid>) {
    if of.shape.is_empty() {
        problems.push(Invalid::new(format!("{at}/shape"), "no input", "the sizes of at least one input"));
    }
    for (input, sizes) in &of.shape {
        if let Some(axis) = sizes.iter().position(|size| *size == 0) {
            let expected = "a size above 0 for each axis but the first";
            problems.push(Invalid::new(format!("{at}/shape/{}/{axis}", escape(input)), 0, expected));
        }
    }
    let is_time = |ms: f64| ms > 0.0 && ms <= NUMBER_MAX;
    if !(of.share > 0.0 && of.share <= 1.0) {
        problems.push(Invalid::new(format!("{at}/share"), of.share, "a share above 0, at most 1"));
    }
    if !is_time(of.latency_ms) {
        problems.push(Invalid::new(format!("{at}/latency_ms"), of.latency_ms, "a latency above 0, at most 1e12"));
    }
    if let Some(p99) = of.p99_ms.filter(|p99| !(is_time(*p99) && *p99 >= of.latency_ms)) {
        problems.push(Invalid::new(format!("{at}/p99_ms"), p99, "a p99 of at least the median latency"));
    }
}

/// The shapes of a row.
fn shapes_of(row: &ProfileRowSpec) -> &[ShapeLatency] {
    row.measured.as_ref().map(|measured| measured.by_shape.as_slice()).unwrap_or_default()
}

/// The figures of a row as a plan counts with them.
pub(crate) struct RowTimes {
    /// The 99th percentile: that of the shapes, if the row has none.
    pub(crate) p99_ms: Option<f64>,
    /// The times of the shapes as multiples of the row's latency, in the order of their sizes.
    pub(crate) by_shape: Vec<ShapeTimes>,
}

/// The figures of a row. A row whose shapes are refused has none; `at` is the pointer of the row.
pub(crate) fn row_times(row: &ProfileRowSpec, at: &str, problems: &mut Vec<Invalid>) -> RowTimes {
    let (before, list) = (problems.len(), shapes_of(row));
    let without = RowTimes { p99_ms: row.p99_ms, by_shape: Vec::new() };
    // A latency that is no time is refused at its own place.
    if list.is_empty() || !(row.latency_ms > 0.0 && row.latency_ms <= NUMBER_MAX) {
        return without;
    }
    check_list(list, &format!("{at}/measured/by_shape"), problems);
    if problems.len() > before {
        return without;
    }
    let mut sorted: Vec<&ShapeLatency> = list.iter().collect();
    sorted.sort_by(|a, b| a.shape.cmp(&b.shape));
    let times: Vec<ShapeTimes> = sorted.into_iter().map(times_of).collect();
    let mixture = mixture_times(&times);
    // A percentile far above the median makes a mean that is no time.
    if !(mixture.latency <= NUMBER_MAX && mixture.p99 <= NUMBER_MAX) {
        let found = format!("a mean of {:e} ms and a 99th percentile of {:e} ms", mixture.latency, mixture.p99);
        problems.push(Invalid::new(format!("{at}/measured/by_shape"), found, "times of at most 1e12 ms"));
        return without;
    }
    check_mixture(row, mixture, at, problems);
    let multiple =
        |of: ShapeTimes| ShapeTimes { share: of.share, median: of.median / row.latency_ms, p99: of.p99 / row.latency_ms };
    let p99_ms = row.p99_ms.or(Some(mixture.p99.max(row.latency_ms)));
    RowTimes { p99_ms, by_shape: times.into_iter().map(multiple).collect() }
}

/// The faults of the shapes of one row; `at` is the pointer of their list.
fn check_list(list: &[ShapeLatency], at: &str, problems: &mut Vec<Invalid>) {
    if list.len() > SHAPES_MAX {
        let expected =
            format!("at most {SHAPES_MAX} shapes: pad the inputs to a bucket of lengths, with the transform `pad`");
        problems.push(Invalid::new(at, format!("{} shapes", list.len()), expected));
        return;
    }
    for (position, shape) in list.iter().enumerate() {
        check_shape(shape, &format!("{at}/{position}"), problems);
        if let Some(first) = list[..position].iter().position(|other| other.shape == shape.shape) {
            let expected = format!("another shape than that of {at}/{first}");
            problems.push(Invalid::new(format!("{at}/{position}/shape"), format!("{:?}", shape.shape), expected));
        }
    }
    let sum: f64 = list.iter().map(|shape| shape.share).sum();
    // NaN is refused at its own place.
    if (sum - 1.0).abs() > SHARES_SLACK {
        problems.push(Invalid::new(at, format!("shares with a sum of {sum}"), "shares that sum to 1"));
    }
}

/// Refuses figures of a row that its shapes contradict by more than [`MIXTURE_SLACK`].
fn check_mixture(row: &ProfileRowSpec, mixture: MixtureTimes, at: &str, problems: &mut Vec<Invalid>) {
    let MixtureTimes { latency, p99 } = mixture;
    let is_near = |found: f64, expected: f64| (found - expected).abs() <= MIXTURE_SLACK * expected;
    let percent = 100.0 * MIXTURE_SLACK;
    if !is_near(row.latency_ms, latency) {
        let expected = format!(
            "{latency:.6} within {percent} %, the larger one of the median and the mean of the shapes in measured/by_shape"
        );
        problems.push(Invalid::new(format!("{at}/latency_ms"), row.latency_ms, expected));
    }
    if let Some(found) = row.p99_ms.filter(|found| !is_near(*found, p99)) {
        let expected = format!("{p99:.6} within {percent} %, the 99th percentile of the shapes in measured/by_shape");
        problems.push(Invalid::new(format!("{at}/p99_ms"), found, expected));
    }
}

/// Refuses rows of one hardware type and share whose shapes, or their shares, differ: sizes between two rows are
/// interpolated for each shape. `at` is the pointer of the profile.
pub(crate) fn check_same_shapes(rows: &[ProfileRowSpec], at: &str, problems: &mut Vec<Invalid>) {
    let mut first_of: BTreeMap<(&str, u64), (usize, BTreeMap<_, _>)> = BTreeMap::new();
    for (r, row) in rows.iter().enumerate() {
        let (place, shares) = ((row.hardware.as_str(), row.share.unwrap_or(1.0).to_bits()), shares_by_shape(row));
        // Those of the first row are read once: a hostile row has very many.
        let Some((first, expected)) = first_of.get(&place) else {
            first_of.insert(place, (r, shares));
            continue;
        };
        if shares != *expected {
            let found = format!("{} shapes", shapes_of(row).len());
            let expected = format!("the shapes and shares of {at}/{first}, because hardware type and share are the same");
            problems.push(Invalid::new(format!("{at}/{r}/measured/by_shape"), found, expected));
        }
    }
}

fn shares_by_shape(row: &ProfileRowSpec) -> BTreeMap<&BTreeMap<String, Vec<u32>>, u64> {
    shapes_of(row).iter().map(|shape| (&shape.shape, shape.share.to_bits())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row_measurement::RowMeasurement;

    fn shape(tokens: u32, share: f64, latency_ms: f64, p99_ms: Option<f64>) -> ShapeLatency {
        ShapeLatency { shape: BTreeMap::from([("ids".to_owned(), vec![tokens])]), share, latency_ms, p99_ms }
    }

    fn row(batch: u32, latency_ms: f64, p99_ms: Option<f64>, by_shape: Vec<ShapeLatency>) -> ProfileRowSpec {
        ProfileRowSpec {
            hardware: "t4".into(),
            batch,
            latency_ms,
            p99_ms,
            share: None,
            measured: Some(RowMeasurement { by_shape, ..RowMeasurement::default() }),
        }
    }

    /// Texts of two lengths: their mean is 13 ms.
    fn texts() -> Vec<ShapeLatency> {
        vec![shape(512, 0.1, 40.0, None), shape(128, 0.9, 10.0, None)]
    }

    fn refusals(row: &ProfileRowSpec) -> Vec<String> {
        let mut problems = Vec::new();
        row_times(row, "/profile/0", &mut problems);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn shapes_are_multiples_of_the_rows_latency() {
        let mut problems = Vec::new();
        let RowTimes { p99_ms, by_shape } = row_times(&row(1, 13.0, None, texts()), "/profile/0", &mut problems);
        assert_eq!((p99_ms, problems.len()), (Some(40.0), 0), "{problems:?}");
        let times = |share, ms: f64| ShapeTimes { share, median: ms / 13.0, p99: ms / 13.0 };
        assert_eq!(by_shape, [times(0.9, 10.0), times(0.1, 40.0)], "the shorter texts first");
        let plain = row_times(&row(1, 13.0, None, Vec::new()), "/profile/0", &mut problems);
        assert_eq!((plain.p99_ms, plain.by_shape.len(), problems.len()), (None, 0, 0));
    }

    #[test]
    fn a_row_that_contradicts_its_shapes_is_refused() {
        assert_eq!(refusals(&row(1, 13.1, Some(40.3), texts())), Vec::<String>::new());
        let found = refusals(&row(1, 10.0, None, texts()));
        let expected =
            "/profile/0/latency_ms: 10: expected 13.000000 within 1 %, the larger one of the median and the mean";
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
        let expected =
            "/profile/0/p99_ms: 50: expected 40.000000 within 1 %, the 99th percentile of the shapes in measured/by_shape";
        assert_eq!(refusals(&row(1, 13.0, Some(50.0), texts())), [expected]);
        assert_eq!(refusals(&row(1, -1.0, None, texts())), Vec::<String>::new(), "it is refused elsewhere");
    }

    #[test]
    fn each_wrong_value_has_its_place() {
        let refused = |by_shape: Vec<ShapeLatency>| refusals(&row(1, 13.0, None, by_shape)).join("; ");
        let cases = [
            (vec![shape(128, 0.9, 10.0, None)], "/measured/by_shape: shares with a sum of 0.9: expected shares that sum"),
            (vec![shape(128, 0.0, 10.0, None)], "/measured/by_shape/0/share: 0: expected a share above 0"),
            (vec![shape(128, f64::NAN, 10.0, None)], "/measured/by_shape/0/share: NaN"),
            (vec![shape(128, 1.0, 0.0, None)], "/measured/by_shape/0/latency_ms: 0: expected a latency above 0"),
            (vec![shape(128, 1.0, 10.0, Some(9.0))], "/measured/by_shape/0/p99_ms: 9: expected a p99 of at least"),
            (vec![shape(0, 1.0, 10.0, None)], "/measured/by_shape/0/shape/ids/0: 0: expected a size above 0"),
            (vec![shape(9, 0.5, 10.0, None); 2], "/measured/by_shape/1/shape: {\"ids\": [9]}: expected another shape"),
        ];
        for (by_shape, expected) in cases {
            let found = refused(by_shape);
            assert!(found.contains(expected), "{found} should have {expected}");
        }
        let found = refused(vec![shape(128, 1.0, 1e-30, Some(1e12))]);
        assert!(found.starts_with("/profile/0/measured/by_shape: a mean of inf ms"), "{found}");
        let none = ShapeLatency { shape: BTreeMap::new(), ..shape(1, 1.0, 13.0, None) };
        assert!(refused(vec![none]).contains("/measured/by_shape/0/shape: no input: expected the sizes"));
        let many = |count: u32| (1..=count).map(|n| shape(n, 1.0 / f64::from(count), 13.0, None)).collect::<Vec<_>>();
        assert_eq!(refused(many(16)), "");
        let found = refused(many(17));
        assert!(found.contains("/measured/by_shape: 17 shapes: expected at most 16 shapes: pad"), "{found}");
    }

    #[test]
    fn every_batch_size_has_the_same_shapes() {
        let check = |rows: &[ProfileRowSpec]| {
            let mut problems = Vec::new();
            check_same_shapes(rows, "/profile", &mut problems);
            problems.iter().map(ToString::to_string).collect::<Vec<String>>()
        };
        let (one, turned) = (row(1, 13.0, None, texts()), row(2, 13.0, None, texts().into_iter().rev().collect()));
        assert_eq!(check(&[one.clone(), turned]), Vec::<String>::new(), "their order does not count");
        let expected = "/profile/1/measured/by_shape: 0 shapes: expected the shapes and shares of /profile/0";
        let found = check(&[one.clone(), row(2, 13.0, None, Vec::new())]);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
        let elsewhere = ProfileRowSpec { share: Some(0.5), ..row(2, 13.0, None, Vec::new()) };
        assert_eq!(check(&[one, elsewhere]), Vec::<String>::new());
    }
}
