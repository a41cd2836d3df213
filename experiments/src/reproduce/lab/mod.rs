//! What do the comparisons share? Settings, problems, loads, replays and measures.

mod judged;
mod loads;
mod measures;
mod parallel;
mod problems;
mod replays;
mod settings;

pub use judged::{HeldOutPlan, JUDGED, judge_plans};
pub use loads::{bursts, bursts_between, constant, day_ramp, load, rate_quantile, scaled};
pub use measures::{
    Interval, Seconds, drop_rate, geometric_mean, interval, invalid_rate, mean, mean_ms, quantile, variance, with_interval,
};
pub use parallel::in_parallel;
pub use problems::{BuiltIn, CHAIN, INFERLINE, OwnPipeline, PARD, TRAFFIC, most_accurate, own_pipelines, with_pipeline};
pub use replays::{Records, replay, replay_foreseeing, replay_unless_hopeless, replay_with_scenario};
pub use settings::Lab;
