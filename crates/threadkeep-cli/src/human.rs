//! Numbers and times as people read them.

use threadkeep::Timestamp;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const WEEK: i64 = 7 * DAY;
/// A small step of the clock is no date.
const AHEAD: i64 = -MINUTE;
/// From here on a date says more.
const LONG_AGO: i64 = 8 * WEEK;

/// How long ago `then` was, or its date when that is long ago or in the future.
pub(crate) fn ago(then: Timestamp, now: Timestamp) -> String {
    let passed = now.millis().saturating_sub(then.millis());
    let (unit, word) = match passed {
        AHEAD..10_000 => return "just now".to_owned(),
        10_000..MINUTE => (SECOND, "s"),
        MINUTE..HOUR => (MINUTE, "min"),
        HOUR..DAY => (HOUR, "h"),
        DAY..WEEK => (DAY, "d"),
        WEEK..LONG_AGO => (WEEK, "w"),
        _ => return date(then),
    };
    format!("{} {word} ago", passed / unit)
}

/// The day in UTC.
pub(crate) fn date(time: Timestamp) -> String {
    let text = time.to_string();
    text.split_once('T').map_or(text.clone(), |(day, _)| day.to_owned())
}

/// Day and time in UTC, to the second.
pub(crate) fn moment(time: Timestamp) -> String {
    let text = time.to_string();
    match (text.split_once('T'), text.split_once('.')) {
        (Some((day, _)), Some((until, _))) => {
            format!("{day} {}Z", until.get(day.len() + 1..).unwrap_or_default())
        }
        _ => text,
    }
}

/// A number with its thousands apart.
pub(crate) fn count(number: impl Into<i128>) -> String {
    let number: i128 = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut out = if number < 0 { "-".to_owned() } else { String::new() };
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number and its noun, in the singular where it is one.
pub(crate) fn counted(number: impl Into<i128>, one: &str, many: &str) -> String {
    let number: i128 = number.into();
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// A large number in three or four characters, such as `12.3k`.
pub(crate) fn short(number: u64) -> String {
    scaled(number, 1000, &["", "k", "M", "G", "T", "P", "E"])
}

/// A size in bytes, such as `1.2 MiB`.
pub(crate) fn bytes(number: i64) -> String {
    let number = u64::try_from(number).unwrap_or(0);
    scaled(number, 1024, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

fn scaled(number: u64, step: u64, units: &[&str]) -> String {
    let mut size = 1_u64;
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    while number / size >= step {
        let (Some(next), Some(larger)) = (units.next(), size.checked_mul(step)) else { break };
        (unit, size) = (next, larger);
    }
    let whole = number / size;
    if size == 1 || whole >= 100 {
        return format!("{whole}{unit}");
    }
    format!("{whole}.{}{unit}", number % size * 10 / size)
}

#[cfg(test)]
mod tests {
    use threadkeep::Timestamp;

    use super::{ago, bytes, count, counted, moment, short};

    #[test]
    fn times_are_relative_until_a_date_says_more() {
        let now = Timestamp::parse("2026-03-14T12:00:00Z").unwrap();
        for (then, words) in [
            ("2026-03-14T12:00:30Z", "just now"),
            ("2026-03-14T11:59:55Z", "just now"),
            ("2026-03-14T11:59:15Z", "45 s ago"),
            ("2026-03-14T11:55:00Z", "5 min ago"),
            ("2026-03-14T09:00:00Z", "3 h ago"),
            ("2026-03-12T09:00:00Z", "2 d ago"),
            ("2026-02-14T12:00:00Z", "4 w ago"),
            ("2025-11-01T12:00:00Z", "2025-11-01"),
            ("2027-01-01T00:00:00Z", "2027-01-01"),
        ] {
            assert_eq!(ago(Timestamp::parse(then).unwrap(), now), words);
        }
        assert_eq!(moment(now), "2026-03-14 12:00:00Z");
    }

    #[test]
    fn impossible_times_are_shown_as_they_are() {
        assert_eq!(ago(Timestamp(i64::MAX), Timestamp(0)), format!("{}ms", i64::MAX));
        assert_eq!(moment(Timestamp(i64::MIN)), format!("{}ms", i64::MIN));
    }

    #[test]
    fn numbers_are_grouped_and_scaled() {
        assert_eq!([count(0), count(999), count(1000), count(-1_234_567)], ["0", "999", "1,000", "-1,234,567"]);
        assert_eq!([short(999), short(1000), short(12_345), short(123_456)], ["999", "1.0k", "12.3k", "123k"]);
        assert_eq!([bytes(0), bytes(1023), bytes(1536), bytes(5 << 30)], ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
        assert_eq!([counted(1, "item", "items"), counted(2, "item", "items")], ["1 item", "2 items"]);
        assert_eq!(short(u64::MAX), "18.4E");
    }
}
