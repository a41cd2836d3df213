//! When, and how surely, were the latencies of a profile measured?

use crate::plan::GroupName;

/// The measurement of all latencies of one variant on one hardware type and share. It changes no plan; each plan says
/// which of its profiles are old or unsure.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileEvidence {
    /// The pipeline.
    pub pipeline: String,
    /// Task, variant, hardware type and share.
    pub group: GroupName,
    /// When the oldest one was measured, in seconds since 1970; `None` if that is not known of one of them.
    pub measured_at_s: Option<i64>,
    /// The widest 95 % interval of a median, as a part of the median; `None` if that is not known of one of them.
    pub width: Option<f64>,
    /// Time of a batch beside neighbours on its device over its time alone, the largest of a share's latencies. `None` of a
    /// whole device, and where one of them was not measured beside neighbours.
    pub interference: Option<f64>,
    /// Measured in service over the profile, where they differ for long; `None` without a drift.
    pub drift: Option<f64>,
}
