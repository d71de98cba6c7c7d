//! Points in time as people write them.

use jiff::tz::TimeZone;
use jiff::{Span, ZonedDateTime, civil};

use crate::time::Timestamp;

/// What dates are read by.
pub(super) struct Calendar<'a> {
    now: Timestamp,
    zone: &'a TimeZone,
}

impl<'a> Calendar<'a> {
    pub(super) fn new(now: Timestamp, zone: &'a TimeZone) -> Self {
        Self { now, zone }
    }

    /// The point in time that a text names: the beginning of a day, a month or a year, so long ago, or an exact time.
    pub(super) fn read(&self, text: &str) -> Option<Timestamp> {
        if let Some(time) = Timestamp::parse(text) {
            return Some(time);
        }
        let now = jiff::Timestamp::from_millisecond(self.now.0).ok()?.to_zoned_datetime(self.zone.clone());
        let time = match text.to_ascii_lowercase().as_str() {
            "now" => now,
            "today" => now.start_of_day().ok()?,
            "yesterday" => now.yesterday().ok()?.start_of_day().ok()?,
            text => match ago(text) {
                Some(span) => now.checked_sub(span).ok()?,
                None => self.calendar_time(text)?,
            },
        };
        Some(Timestamp(time.timestamp().as_millisecond()))
    }

    fn calendar_time(&self, text: &str) -> Option<ZonedDateTime> {
        if !text.bytes().all(|byte| byte.is_ascii_digit() || b"-:.t ".contains(&byte)) {
            return None;
        }
        let time = match text.len() {
            4 => civil::Date::new(text.parse().ok()?, 1, 1).ok()?.at(0, 0, 0, 0),
            7 => {
                let (year, month) = text.split_once('-')?;
                civil::Date::new(year.parse().ok()?, month.parse().ok()?, 1).ok()?.at(0, 0, 0, 0)
            }
            10 => text.parse::<civil::Date>().ok()?.at(0, 0, 0, 0),
            _ => text.parse::<civil::DateTime>().ok()?,
        };
        time.to_zoned_datetime(self.zone.clone()).ok()
    }
}

/// A length of time such as `2d`, as far back as is meant.
fn ago(text: &str) -> Option<Span> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let number: i64 = number.parse().ok()?;
    let span = Span::new();
    match unit {
        "min" => span.try_minutes(number),
        "h" => span.try_hours(number),
        "d" => span.try_days(number),
        "w" => span.try_weeks(number),
        "mo" => span.try_months(number),
        "y" => span.try_years(number),
        _ => return None,
    }
    .ok()
}

#[cfg(test)]
mod tests {
    use super::{Calendar, TimeZone};
    use crate::time::Timestamp;

    fn read(text: &str) -> Option<String> {
        let now = Timestamp::parse("2026-11-30T09:30:00Z").unwrap();
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        Calendar::new(now, &zone).read(text).map(|time| time.to_string())
    }

    #[test]
    fn dates_begin_where_they_begin_in_the_time_zone() {
        for (text, time) in [
            ("2026-11-01", "2026-10-31T22:00:00.000Z"),
            ("2026-11", "2026-10-31T22:00:00.000Z"),
            ("2026", "2025-12-31T22:00:00.000Z"),
            ("today", "2026-11-29T22:00:00.000Z"),
            ("Yesterday", "2026-11-28T22:00:00.000Z"),
            ("2026-11-01T10:00", "2026-11-01T08:00:00.000Z"),
            ("2026-11-01T10:00:00Z", "2026-11-01T10:00:00.000Z"),
            ("now", "2026-11-30T09:30:00.000Z"),
            ("2d", "2026-11-28T09:30:00.000Z"),
            ("3w", "2026-11-09T09:30:00.000Z"),
            ("12h", "2026-11-29T21:30:00.000Z"),
            ("45min", "2026-11-30T08:45:00.000Z"),
            ("1mo", "2026-10-30T09:30:00.000Z"),
            ("1y", "2025-11-30T09:30:00.000Z"),
        ] {
            assert_eq!(read(text).as_deref(), Some(time), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "d",
            "2x",
            "2026-13",
            "2026-02-30",
            "99999999999999999999d",
            "999999999y",
            "-2d",
            "2026-1-1",
            "soon",
            "２d",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
