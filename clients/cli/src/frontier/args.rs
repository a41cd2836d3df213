//! Which arguments does `apportion frontier` take, and which sweep do they ask for?

use crate::args;
use crate::service::RemoteArgs;
use apportion_api::analyses::frontier::{FrontierRequest, SweptValue};
use apportion_planning::frontier::POINTS_MAX;
use clap::{Args, ValueEnum};
use std::time::Duration;

/// The value that varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SweepName {
    /// Queries per second.
    Demand,
    /// Milliseconds within which a request must be answered.
    Slo,
    /// Limit on the cost per hour.
    Budget,
    /// Devices of one hardware type.
    Count,
}

/// How a frontier is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FrontierFormat {
    /// For people.
    #[default]
    Table,
    /// For spreadsheets.
    Csv,
    /// For programs.
    Json,
    /// For people and programs.
    Yaml,
    /// A plot.
    Svg,
}

/// Arguments of `apportion frontier`.
#[derive(Args, Debug)]
pub struct FrontierArgs {
    /// Problem file, JSON or YAML.
    pub problem: String,
    /// The value that varies.
    #[arg(long, value_enum)]
    sweep: SweepName,
    /// First value; default: where the plan begins to change.
    #[arg(long, value_parser = args::rate, allow_negative_numbers = true)]
    from: Option<f64>,
    /// Last value.
    #[arg(long, value_parser = args::rate, allow_negative_numbers = true)]
    to: Option<f64>,
    /// How many values; whole numbers appear once each in a sweep of the count.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=POINTS_MAX as i64))]
    points: u32,
    /// Which pipeline's demand or SLO; default: the demand of all together, the SLO of the only one.
    #[arg(long)]
    pipeline: Option<String>,
    /// Which hardware type's count; default: the only one.
    #[arg(long)]
    hardware: Option<String>,
    /// Stop the search for each point after this time.
    #[arg(long, default_value = "10s", value_parser = args::duration)]
    time_limit: Duration,
    /// Relative gap at which a plan counts as optimal.
    #[arg(long, default_value = "1e-4", value_parser = args::gap, allow_negative_numbers = true)]
    gap: f64,
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    pub format: FrontierFormat,
    /// Also write the result here: as SVG, CSV, JSON or YAML if the name ends so, else as printed.
    #[arg(long)]
    pub out: Option<String>,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

impl From<SweepName> for SweptValue {
    fn from(name: SweepName) -> Self {
        match name {
            SweepName::Demand => Self::Demand,
            SweepName::Slo => Self::Slo,
            SweepName::Budget => Self::Budget,
            SweepName::Count => Self::Count,
        }
    }
}

impl FrontierArgs {
    /// The frontier that the arguments ask for, without its problem.
    pub fn request(&self) -> FrontierRequest {
        FrontierRequest {
            from: self.from,
            to: self.to,
            points: self.points,
            pipeline: self.pipeline.clone(),
            hardware: self.hardware.clone(),
            time_limit_s: self.time_limit.as_secs_f64(),
            gap: self.gap,
            ..FrontierRequest::new(self.sweep.into())
        }
    }
}
