//! How is a moment written in a file? In UTC, to the second: `2026-03-01T12:00:00Z`.

use chrono::{DateTime, NaiveDateTime};

/// The form of a moment.
const FORM: &str = "%Y-%m-%dT%H:%M:%SZ";
/// The first second of the year 0.
const FIRST_S: i64 = -62_167_219_200;
/// The last second of the year 9999.
const LAST_S: i64 = 253_402_300_799;

/// The text of a moment, given in seconds since 1970. Moments beyond the years 0 to 9999 become the nearest one of them.
#[must_use]
pub fn utc_text(seconds: i64) -> String {
    let moment = DateTime::from_timestamp(seconds.clamp(FIRST_S, LAST_S), 0).expect("a year from 0 to 9999");
    moment.format(FORM).to_string()
}

/// The seconds since 1970 of a text that [`utc_text`] writes; `None` for any other text.
#[must_use]
pub fn parse_utc(text: &str) -> Option<i64> {
    let seconds = NaiveDateTime::parse_from_str(text, FORM).ok()?.and_utc().timestamp();
    // The library also reads other forms, and leap seconds. They are written in another way.
    Some(seconds).filter(|seconds| utc_text(*seconds) == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_they_are_written() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_772_366_400, "2026-03-01T12:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(utc_text(seconds), text);
            assert_eq!(parse_utc(text), Some(seconds), "{text}");
        }
        assert_eq!(utc_text(i64::MAX), "9999-12-31T23:59:59Z");
        assert_eq!(utc_text(i64::MIN), "0000-01-01T00:00:00Z");
        for seconds in (FIRST_S..=LAST_S).step_by(97 * 86_400) {
            assert_eq!(parse_utc(&utc_text(seconds)), Some(seconds), "{seconds}");
        }
    }

    #[test]
    fn other_texts_are_no_moments() {
        for text in ["", "2026-03-01", "2026-02-29T00:00:00Z", "2026-03-01T24:00:00Z", "2026-13-01T00:00:00Z"] {
            assert_eq!(parse_utc(text), None, "{text}");
        }
        for text in ["2026-03-01T12:00:00+01:00", "2026-03-01 12:00:00Z", "２026-03-01T12:00:0Z", "+026-03-01T12:00:00Z"] {
            assert_eq!(parse_utc(text), None, "{text}");
        }
    }
}
