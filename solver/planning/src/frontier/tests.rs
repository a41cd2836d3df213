//! The values of a sweep, and which of two points is taken.

use super::*;
use apportion_domain::{HardwareIndex, PipelineIndex};

#[test]
fn values_are_evenly_spaced_and_end_where_they_should() {
    assert_eq!(values(Sweep::Budget, (1.0, 3.0), 5), [1.0, 1.5, 2.0, 2.5, 3.0]);
    assert_eq!(values(Sweep::Budget, (1.0, 3.0), 1), [1.0]);
    assert_eq!(values(Sweep::Slo(PipelineIndex(0)), (2.0, 2.0), 7), [2.0]);
    assert_eq!(values(Sweep::Demand(None), (0.1, 0.7), 4)[3], 0.7, "the last is exact");
}

#[test]
fn counts_are_whole_and_appear_once() {
    assert_eq!(values(Sweep::Count(HardwareIndex(0)), (0.0, 4.0), 20), [0.0, 1.0, 2.0, 3.0, 4.0]);
    assert_eq!(values(Sweep::Count(HardwareIndex(0)), (1.0, 10.0), 4), [1.0, 4.0, 7.0, 10.0]);
}
