//! How are arguments parsed that several commands share?

use apportion_estimator::ArrivalProcess;
use apportion_planning::ladder::UP_TO_MAX;
use humantime::parse_duration;
use std::time::Duration;

/// Longest time in seconds: a day. A longer one is a typing error.
const SECONDS_MAX: f64 = 86_400.0;
/// Largest coefficient of variation: with a larger one, a second of trace holds a single clump.
const CV_MAX: f64 = 100.0;

/// The reason why an argument is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// No time.
    #[error("expected a time above 0 and up to a day, for example 10s or 500ms")]
    Time,
    /// No coefficient of variation.
    #[error("expected a coefficient of variation above 0 and up to {CV_MAX}, for example gamma:2")]
    Variation,
    /// No arrival process.
    #[error("expected poisson, uniform or gamma:CV")]
    Arrivals,
    /// No relative gap.
    #[error("expected a number from 0 to 1, for example 1e-4")]
    Gap,
    /// No range of a ladder.
    #[error("expected a number from 1 to {UP_TO_MAX}, for example 4")]
    Times,
    /// No rate.
    #[error("expected a number from 0 to 1e9")]
    Rate,
    /// No share.
    #[error("must be above 0 and at most 1")]
    Share,
    /// No URL.
    #[error("{0:?}: expected a URL such as http://10.0.0.4:7070")]
    Url(String),
}

/// Parses a time: `10s`, `500ms`, `1.5h`, `1m 30s`, or a number of seconds.
///
/// # Errors
/// If the text is no time above 0 and up to a day.
pub fn duration(text: &str) -> Result<Duration, ArgumentError> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = if number.len() == text.len() { "s" } else { &text[number.len()..] };
    // `humantime` reads whole numbers. One number with one unit may have decimals too.
    let seconds = match number.trim().parse::<f64>() {
        Ok(n) => parse_duration(&format!("1{unit}")).map(|of_unit| n * of_unit.as_secs_f64()),
        Err(_) => parse_duration(text).map(|d| d.as_secs_f64()),
    };
    let seconds = seconds.ok().filter(|s| *s > 0.0 && *s <= SECONDS_MAX);
    seconds.map(Duration::from_secs_f64).ok_or(ArgumentError::Time)
}

/// Parses an arrival process: `poisson`, `uniform` or `gamma:CV`.
///
/// # Errors
/// If the text names none.
pub fn arrivals(text: &str) -> Result<ArrivalProcess, ArgumentError> {
    match text.split_once(':') {
        None if text == "poisson" => Ok(ArrivalProcess::Poisson),
        None if text == "uniform" => Ok(ArrivalProcess::Uniform),
        Some(("gamma", cv)) => match cv.parse::<f64>() {
            Ok(cv) if cv > 0.0 && cv <= CV_MAX => Ok(ArrivalProcess::Gamma(cv)),
            _ => Err(ArgumentError::Variation),
        },
        _ => Err(ArgumentError::Arrivals),
    }
}

/// Parses a relative gap from 0 to 1.
///
/// # Errors
/// If the text is no such number.
pub fn gap(text: &str) -> Result<f64, ArgumentError> {
    let gap = text.parse::<f64>().ok().filter(|g| (0.0..=1.0).contains(g));
    gap.ok_or(ArgumentError::Gap)
}

/// Parses the range of a ladder: the factor over the demand and below it.
///
/// # Errors
/// If the text is no number in the range.
pub fn times(text: &str) -> Result<f64, ArgumentError> {
    let times = text.parse::<f64>().ok().filter(|t| (1.0..=UP_TO_MAX).contains(t));
    times.ok_or(ArgumentError::Times)
}

/// Parses a rate, or another number from 0 to 1e9.
///
/// # Errors
/// If the text is no such number.
pub fn rate(text: &str) -> Result<f64, ArgumentError> {
    let rate = text.parse::<f64>().ok().filter(|r| (0.0..=1e9).contains(r));
    rate.ok_or(ArgumentError::Rate)
}

/// Parses a share above 0 and at most 1.
///
/// # Errors
/// If the text is no such number.
pub fn share(text: &str) -> Result<f64, ArgumentError> {
    text.parse().ok().filter(|v| *v > 0.0 && *v <= 1.0).ok_or(ArgumentError::Share)
}

/// Parses the URL of an HTTP server without query and fragment.
///
/// # Errors
/// If the text is no such URL.
pub fn http_url(text: &str) -> Result<String, ArgumentError> {
    let is_url = text.strip_prefix("http://").is_some_and(|rest| !rest.is_empty() && !rest.contains(['?', '#', ' ']));
    is_url.then(|| text.to_owned()).ok_or_else(|| ArgumentError::Url(text.to_owned()))
}

/// Parses the URL of a service, with TLS or without.
///
/// # Errors
/// If the text is no such URL.
pub fn service_url(text: &str) -> Result<String, ArgumentError> {
    match text.strip_prefix("https://") {
        Some(rest) => {
            http_url(&format!("http://{rest}")).map(|_| text.to_owned()).map_err(|_| ArgumentError::Url(text.to_owned()))
        }
        None => http_url(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_a_url_with_tls_or_without() {
        for url in ["http://10.0.0.4:7070", "https://plans.example", "https://[::1]:7070/under"] {
            assert_eq!(service_url(url).as_deref(), Ok(url));
        }
        for wrong in ["", "https://", "plans.example", "ftp://plans.example", "https://plans.example?x=1"] {
            assert_eq!(service_url(wrong), Err(ArgumentError::Url(wrong.to_owned())), "{wrong}");
        }
        assert!(http_url("https://plans.example").is_err());
    }

    #[test]
    fn a_duration_has_a_unit_and_bounds() {
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("3"), Ok(Duration::from_secs(3)));
        assert_eq!(duration("1.5 s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(duration("1e3ms"), Ok(Duration::from_secs(1)));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2min"), Ok(Duration::from_secs(120)));
        for wrong in ["", "s", "-1s", "0s", "NaN", "inf", "10 parsecs", "1e9s", "1e300h", "1d 1s", "é"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_arrival_process_has_a_name() {
        assert_eq!(arrivals("gamma:2.5"), Ok(ArrivalProcess::Gamma(2.5)));
        assert_eq!(arrivals("poisson"), Ok(ArrivalProcess::Poisson));
        for wrong in ["gamma", "gamma:0", "gamma:NaN", "Poisson", "uniform:1"] {
            assert!(arrivals(wrong).is_err(), "{wrong}");
        }
    }
}
