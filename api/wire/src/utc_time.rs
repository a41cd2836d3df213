//! How is a moment written in a file? In UTC, to the second: `2026-03-01T12:00:00Z`.

/// Seconds of a day.
const DAY_S: i64 = 86_400;
/// Last year that a file may name.
const YEAR_MAX: i64 = 9_999;

/// The days from 1970-01-01 to a date of the Gregorian calendar.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    // Years begin with March here, so that the leap day is the last one. An era has 400 years.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// A date.
struct CivilDate {
    year: i64,
    month: i64,
    day: i64,
}

/// The date of a number of days since 1970-01-01.
fn date_of(days: i64) -> CivilDate {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    CivilDate { year: era * 400 + year + next, month, day }
}

/// The text of a moment, given in seconds since 1970. Moments beyond the years 0 to 9999 become the nearest one of them.
#[must_use]
pub fn utc_text(seconds: i64) -> String {
    let (first, last) = (days_of(0, 1, 1) * DAY_S, days_of(YEAR_MAX + 1, 1, 1) * DAY_S - 1);
    let seconds = seconds.clamp(first, last);
    let CivilDate { year, month, day } = date_of(seconds.div_euclid(DAY_S));
    let of_day = seconds.rem_euclid(DAY_S);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The seconds since 1970 of a text that [`utc_text`] writes; `None` for any other text.
#[must_use]
pub fn parse_utc(text: &str) -> Option<i64> {
    const FORM: &[u8] = b"0000-00-00T00:00:00Z";
    let bytes = text.as_bytes();
    let fits = |(byte, form): (&u8, &u8)| if *form == b'0' { byte.is_ascii_digit() } else { byte == form };
    if bytes.len() != FORM.len() || !bytes.iter().zip(FORM).all(fits) {
        return None;
    }
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let seconds = days_of(year, month, day) * DAY_S + hour * 3_600 + minute * 60 + second;
    // A date or a time that does not exist is written in another way.
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
        for day in (days_of(0, 1, 1)..days_of(YEAR_MAX, 1, 1)).step_by(97) {
            assert_eq!(parse_utc(&utc_text(day * DAY_S)), Some(day * DAY_S), "{day}");
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
