//! Which rows do the quotas of groups of pipelines have?
//!
//! Each limit of a quota is one row over the whole devices `w_ph` of its pipelines p on hardware h:
//! `sum over p and h of weight_h w_ph <= most`. The weight is 1 for one type or for all types, or the price.

use apportion_domain::{DeviceQuota, HardwareIndex, PipelineIndex, Problem, SLACK};

/// One limit of a quota.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QuotaRow {
    /// Its pipelines.
    pub pipelines: Vec<PipelineIndex>,
    /// Weight of a whole device by hardware type.
    pub weights: Vec<f64>,
    /// The most that the pipelines may have.
    pub most: f64,
}

impl QuotaRow {
    /// The rows of all quotas of a problem.
    pub fn all(problem: &Problem) -> Vec<Self> {
        problem.quotas.iter().flat_map(|quota| Self::of(problem, quota)).collect()
    }

    fn of(problem: &Problem, quota: &DeviceQuota) -> Vec<Self> {
        let types = problem.hardware.len();
        let row = |weights: Vec<f64>, most: f64| Self { pipelines: quota.pipelines.clone(), weights, most };
        let one = |h: usize| (0..types).map(|other| f64::from(u8::from(other == h))).collect::<Vec<f64>>();
        let counts = quota.counts.iter().enumerate().filter_map(|(h, count)| Some((h, (*count)?)));
        let mut rows: Vec<Self> = counts.map(|(h, count)| row(one(h), f64::from(count))).collect();
        rows.extend(quota.devices.map(|devices| row(vec![1.0; types], f64::from(devices))));
        let prices = || problem.hardware.iter().map(|h| h.price_per_hour).collect();
        rows.extend(quota.cost_per_hour.map(|cost| row(prices(), cost)));
        rows
    }

    /// Whether the devices of a pipeline count.
    pub fn has(&self, pipeline: PipelineIndex) -> bool {
        self.pipelines.contains(&pipeline)
    }

    /// Weight of a whole device.
    pub fn weight(&self, hardware: HardwareIndex) -> f64 {
        self.weights[hardware.get()]
    }

    /// The part of the row that one pipeline uses with these devices, rounded up to whole ones.
    pub fn used(&self, devices: &[f64]) -> f64 {
        self.weights.iter().zip(devices).map(|(weight, d)| weight * (d - SLACK).ceil()).sum()
    }

    /// By how much the pipelines exceed the row with these devices, by position; relative, and 0 if they keep to it.
    pub fn excess<'a>(&self, devices: impl Fn(PipelineIndex) -> &'a [f64]) -> f64 {
        let used: f64 = self.pipelines.iter().map(|&p| self.used(devices(p))).sum();
        (used - self.most - SLACK * self.most.max(1.0)).max(0.0) / self.most.max(1.0)
    }
}
