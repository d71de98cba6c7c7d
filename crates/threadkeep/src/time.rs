//! Points in time as the store keeps them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01 00:00 UTC. Times are shown to people and never decide an order inside a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Reads an RFC 3339 time, with any offset.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|time| Self(time.as_millisecond()))
    }

    /// Milliseconds since the epoch.
    pub fn millis(self) -> i64 {
        self.0
    }
}

/// RFC 3339 in UTC with milliseconds, as machine output gives it.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            // A stored number outside the calendar is shown as it is.
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[test]
    fn a_time_is_read_and_shown_in_utc_with_milliseconds() {
        let time = Timestamp::parse("2026-01-02T05:04:05.678+02:00").unwrap();
        assert_eq!(time.to_string(), "2026-01-02T03:04:05.678Z");
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn an_impossible_number_is_shown_and_does_not_panic() {
        assert_eq!(Timestamp(i64::MAX).to_string(), format!("{}ms", i64::MAX));
        assert_eq!(Timestamp::parse("yesterday"), None);
    }
}
