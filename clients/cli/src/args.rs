//! Arguments that several commands share.

use apportion_estimator::ArrivalProcess;
use apportion_planning::ladder::UP_TO_MAX;
use clap::ValueEnum;
use std::time::Duration;

/// How a result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

/// `10s`, `500ms`, `2m` or a number of seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    /// A day: what is longer is a slip of the pen.
    const SECONDS_MAX: f64 = 86_400.0;
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (number, unit) =
        units.iter().find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|n| (n, *unit))).unwrap_or((text, 1.0));
    let seconds = number.trim().parse::<f64>().ok().map(|n| n * unit);
    seconds
        .filter(|s| *s > 0.0 && *s <= SECONDS_MAX)
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "expected a time above 0 and up to a day, for example 10s or 500ms".to_owned())
}

/// `poisson`, `uniform` or `gamma:CV`.
pub fn arrivals(text: &str) -> Result<ArrivalProcess, String> {
    /// Burstier than this, a second of trace holds one clump.
    const CV_MAX: f64 = 100.0;
    match text.split_once(':') {
        None if text == "poisson" => Ok(ArrivalProcess::Poisson),
        None if text == "uniform" => Ok(ArrivalProcess::Uniform),
        Some(("gamma", cv)) => match cv.parse::<f64>() {
            Ok(cv) if cv > 0.0 && cv <= CV_MAX => Ok(ArrivalProcess::Gamma(cv)),
            _ => Err(format!("expected a coefficient of variation above 0 and up to {CV_MAX}, for example gamma:2")),
        },
        _ => Err("expected poisson, uniform or gamma:CV".to_owned()),
    }
}

/// A relative gap.
pub fn gap(text: &str) -> Result<f64, String> {
    let gap = text.parse::<f64>().ok().filter(|g| (0.0..=1.0).contains(g));
    gap.ok_or_else(|| "expected a number from 0 to 1, for example 1e-4".to_owned())
}

/// How far a plan's ladder goes over its demand, and below it.
pub fn times(text: &str) -> Result<f64, String> {
    let times = text.parse::<f64>().ok().filter(|t| (1.0..=UP_TO_MAX).contains(t));
    times.ok_or_else(|| format!("expected a number from 1 to {UP_TO_MAX}, for example 4"))
}

/// A rate, or another number of at least 0.
pub fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|r| (0.0..=1e9).contains(r));
    rate.ok_or_else(|| "expected a number from 0 to 1e9".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_bounds() {
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("3"), Ok(Duration::from_secs(3)));
        for wrong in ["", "-1s", "0s", "NaN", "inf", "10 parsecs", "1e9s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn arrival_processes_have_names() {
        assert_eq!(arrivals("gamma:2.5"), Ok(ArrivalProcess::Gamma(2.5)));
        assert_eq!(arrivals("poisson"), Ok(ArrivalProcess::Poisson));
        for wrong in ["gamma", "gamma:0", "gamma:NaN", "Poisson", "uniform:1"] {
            assert!(arrivals(wrong).is_err(), "{wrong}");
        }
    }
}
