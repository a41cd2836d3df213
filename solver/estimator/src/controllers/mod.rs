//! Who scales replicas between plans, in the loop of a run: our tuner, any planner, and what users run today as baselines.
//!
//! The baselines scale each group on its own, as a deployment of its own would be, by their documented formulas and defaults.

mod hpa;
mod ray_serve;
mod replanner;
mod tuner;

pub use hpa::{Hpa, HpaConfig};
pub use ray_serve::{RayServe, RayServeConfig};
pub use replanner::{Offered, Replanner, ReplannerConfig};
pub use tuner::{TUNER_PERIOD, tuner};
