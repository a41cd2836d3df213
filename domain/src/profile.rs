//! How long does one batch of a variant take on each hardware type?

use crate::{HardwareIndex, ShapeTimes, Share, TimeSpan};

/// Smallest interference of a share: neighbours on its device make no batch faster.
pub const INTERFERENCE_MIN: f64 = 1.0;
/// Largest interference of a share. A device has at most eight of them, so beyond this factor something else is wrong.
pub const INTERFERENCE_MAX: f64 = 100.0;

/// One measured point: a batch of `batch` queries on a `share` of `hardware`.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileRow {
    /// On which hardware type.
    pub hardware: HardwareIndex,
    /// On which fraction of a device.
    pub share: Share,
    /// Queries in the batch, at least 1.
    pub batch: u32,
    /// Median time of the whole batch in milliseconds, above 0. With several shapes it is the mean, if that is larger
    /// ([`mixture_times`](crate::mixture_times)).
    pub latency_ms: f64,
    /// 99th percentile of the same, in milliseconds, at least `latency_ms`.
    pub p99_ms: Option<f64>,
    /// The times of batches of each shape of the queries, as multiples of `latency_ms`; empty if they are not known. All
    /// rows of a hardware type and share have the same shapes in the same order.
    pub by_shape: Vec<ShapeTimes>,
}

impl ProfileRow {
    /// A row of which only the median is known.
    #[must_use]
    pub fn of_median(hardware: HardwareIndex, share: Share, batch: u32, latency_ms: f64) -> Self {
        Self { hardware, share, batch, latency_ms, p99_ms: None, by_shape: Vec::new() }
    }

    /// Queries per second of one replica that always runs full batches: `q = 1000 * batch / latency_ms`.
    #[must_use]
    pub fn throughput_qps(&self) -> f64 {
        1000.0 * f64::from(self.batch) / self.latency_ms
    }
}

/// All rows of one variant, sorted by hardware, share (whole first), batch; at least one, no two for the same key.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    rows: Vec<ProfileRow>,
}

impl Profile {
    /// Sorts the rows. Their validity is checked by `Pipeline::new`, which knows where in the file they stand.
    #[must_use]
    pub fn new(mut rows: Vec<ProfileRow>) -> Self {
        rows.sort_by_key(|r| (r.hardware, std::cmp::Reverse(r.share), r.batch));
        Self { rows }
    }

    /// All rows.
    #[must_use]
    pub fn rows(&self) -> &[ProfileRow] {
        &self.rows
    }

    /// The rows of one hardware type and share, by increasing batch size; empty if it was not measured there.
    #[must_use]
    pub fn on(&self, hardware: HardwareIndex, share: Share) -> &[ProfileRow] {
        let key = (hardware, std::cmp::Reverse(share));
        let start = self.rows.partition_point(|r| (r.hardware, std::cmp::Reverse(r.share)) < key);
        let end = self.rows.partition_point(|r| (r.hardware, std::cmp::Reverse(r.share)) <= key);
        &self.rows[start..end]
    }

    /// The row of exactly this batch size.
    #[must_use]
    pub fn row(&self, hardware: HardwareIndex, share: Share, batch: u32) -> Option<&ProfileRow> {
        self.on(hardware, share).iter().find(|r| r.batch == batch)
    }

    /// Every (hardware, share) that was measured, in order.
    pub fn places(&self) -> impl Iterator<Item = (HardwareIndex, Share)> + '_ {
        self.rows.chunk_by(|a, b| (a.hardware, a.share) == (b.hardware, b.share)).map(|c| (c[0].hardware, c[0].share))
    }

    /// Median time of a batch of `size` queries; `None` if nothing was measured there.
    ///
    /// Between measured sizes it is linear. Below the smallest size it is the time of the smallest size. Above the largest
    /// size it follows the slope of the last segment, and never falls. The interpolation is in nanoseconds and rounds half
    /// to even.
    #[must_use]
    pub fn service(&self, hardware: HardwareIndex, share: Share, size: u32) -> Option<TimeSpan> {
        interpolate(self.on(hardware, share), size, |r| r.latency_ms)
    }

    /// The 99th percentile of the same time, interpolated in the same way. A row without it counts with its median.
    #[must_use]
    pub fn service_p99(&self, hardware: HardwareIndex, share: Share, size: u32) -> Option<TimeSpan> {
        interpolate(self.on(hardware, share), size, |r| r.p99_ms.unwrap_or(r.latency_ms))
    }

    /// The times of each shape for a batch of `size` queries, interpolated in the same way, as multiples of the batch's
    /// time by [`Profile::service`]. Empty where nothing was measured by shape.
    #[must_use]
    pub fn shapes(&self, hardware: HardwareIndex, share: Share, size: u32) -> Vec<ShapeTimes> {
        let rows = self.on(hardware, share);
        let Some(first) = rows.first().filter(|row| !row.by_shape.is_empty()) else { return Vec::new() };
        let Some(service) = self.service(hardware, share, size) else { return Vec::new() };
        let multiple = |position: usize, time: fn(&ShapeTimes) -> f64| {
            let of_row = |r: &ProfileRow| r.latency_ms * r.by_shape.get(position).map_or(1.0, time);
            let nanos = interpolate(rows, size, of_row).unwrap_or(service).as_nanos().max(1);
            nanos as f64 / service.as_nanos().max(1) as f64
        };
        let shape = |(position, shape): (usize, &ShapeTimes)| {
            let median = multiple(position, |times| times.median);
            ShapeTimes { share: shape.share, median, p99: multiple(position, |times| times.p99).max(median) }
        };
        first.by_shape.iter().enumerate().map(shape).collect()
    }
}

fn interpolate(rows: &[ProfileRow], size: u32, latency_ms: impl Fn(&ProfileRow) -> f64) -> Option<TimeSpan> {
    let nanos = |r: &ProfileRow| TimeSpan::from_millis(latency_ms(r)).as_nanos() as f64;
    let first = rows.first()?;
    let above = rows.partition_point(|r| r.batch < size);
    if above == 0 {
        return Some(TimeSpan::from_millis(latency_ms(first)));
    }
    if above < rows.len() && rows[above].batch == size {
        return Some(TimeSpan::from_millis(latency_ms(&rows[above])));
    }
    let right = above.min(rows.len() - 1);
    let left = right.saturating_sub(1);
    if left == right {
        return Some(TimeSpan::from_millis(latency_ms(&rows[right])));
    }
    let (l, r) = (&rows[left], &rows[right]);
    let mut slope = (nanos(r) - nanos(l)) / f64::from(r.batch - l.batch);
    if above == rows.len() {
        slope = slope.max(0.0);
        return Some(TimeSpan::from_nanos((nanos(r) + slope * f64::from(size - r.batch)).round_ties_even() as u64));
    }
    Some(TimeSpan::from_nanos((nanos(l) + slope * f64::from(size - l.batch)).round_ties_even() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        let row =
            |hardware, batch, latency_ms| ProfileRow::of_median(HardwareIndex(hardware), Share::WHOLE, batch, latency_ms);
        Profile::new(vec![row(1, 4, 20.0), row(0, 8, 50.0), row(0, 2, 10.0), row(0, 4, 20.0)])
    }

    #[test]
    fn latency_is_linear_between_sizes_and_flat_below() {
        let p = profile();
        let ms = |size| p.service(HardwareIndex(0), Share::WHOLE, size).map(TimeSpan::as_millis);
        assert_eq!(ms(1), Some(10.0));
        assert_eq!(ms(2), Some(10.0));
        assert_eq!(ms(3), Some(15.0));
        assert_eq!(ms(6), Some(35.0));
        assert_eq!(ms(8), Some(50.0));
        assert_eq!(ms(10), Some(65.0));
    }

    #[test]
    fn a_place_that_was_not_measured_has_no_latency() {
        let p = profile();
        assert_eq!(p.service(HardwareIndex(2), Share::WHOLE, 1), None);
        assert_eq!(p.service(HardwareIndex(1), Share::WHOLE, 9).map(TimeSpan::as_millis), Some(20.0));
        assert_eq!(p.places().count(), 2);
    }

    #[test]
    fn shapes_are_multiples_of_the_time_at_each_size() {
        let shapes = |slow: f64| {
            let short = ShapeTimes { share: 0.75, median: 0.5, p99: 1.0 };
            vec![short, ShapeTimes { share: 0.25, median: slow, p99: 2.0 * slow }]
        };
        let mut rows = profile().rows().to_vec();
        let of_first = rows.iter_mut().filter(|row| row.hardware == HardwareIndex(0));
        of_first.for_each(|row| row.by_shape = shapes(if row.batch == 4 { 3.0 } else { 2.0 }));
        let p = Profile::new(rows);
        let at = |size| p.shapes(HardwareIndex(0), Share::WHOLE, size);
        assert_eq!((at(1), at(2), at(4)), (shapes(2.0), shapes(2.0), shapes(3.0)));
        // Between 20 ms of 10 and 60 ms of 20 are 40 ms of 15.
        let between = at(3);
        assert!((between[1].median - 40.0 / 15.0).abs() < 1e-9 && between[1].share == 0.25, "{between:?}");
        assert!((between[0].median - 0.5).abs() < 1e-9 && (between[0].p99 - 1.0).abs() < 1e-9, "{between:?}");
        assert!(p.shapes(HardwareIndex(1), Share::WHOLE, 4).is_empty(), "it was measured without shapes");
        assert!(p.shapes(HardwareIndex(2), Share::WHOLE, 4).is_empty(), "it was not measured");
    }
}
