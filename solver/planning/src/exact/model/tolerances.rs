//! How closely are stages solved?

/// How much accuracy the last stage may give up for fewer replicas or less cost, relative.
pub(crate) const ACCURACY_SLACK: f64 = 1e-6;

/// Share of the requested gap at which a stage stops. The rest is left for [`ACCURACY_SLACK`].
pub(crate) const STAGE_GAP_SHARE: f64 = 0.05;
