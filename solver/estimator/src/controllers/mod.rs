//! Which policies scale replicas during a run? Our tuner, any planner, and baselines that users run.
//!
//! Kubernetes' HPA, Knative's KPA and Ray Serve scale each group on its own, as a separate deployment, by their documented
//! formulas and defaults. The coarse-grained baseline of InferLine's evaluation scales whole pipelines.

mod coarse;
mod hpa;
mod hpa_rules;
mod kpa;
mod positions;
mod ray_serve;
mod replanner;
mod tuner;

pub use coarse::{Coarse, CoarseConfig};
pub use hpa::{Hpa, HpaConfig, HpaMetric};
pub use hpa_rules::{HpaPolicy, HpaRules};
pub use kpa::{Kpa, KpaConfig, KpaMetric};
pub use ray_serve::{RayServe, RayServeConfig};
pub use replanner::{OfferedLoad, Replanner, ReplannerConfig};
pub use tuner::{TUNER_PERIOD, tuner};
