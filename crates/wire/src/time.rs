//! Times in the formats that OpenStack uses, and arithmetic on them that cannot overflow. A time is a [`Timestamp`]
//! everywhere except in statements and documents, which contain microseconds since 1970.

use jiff::{SignedDuration, Timestamp};

const MICROS: i64 = 1_000_000;

/// The current time, truncated to the microsecond, so that it equals the value stored in a row.
pub fn now() -> Timestamp {
    to_micros(Timestamp::now())
}

fn to_micros(at: Timestamp) -> Timestamp {
    from_micros(at.as_microsecond()).unwrap_or(at)
}

/// The time from microseconds since 1970. Unlike jiff's conversion, it accepts the last second, into which saturated
/// times fall.
pub fn from_micros(value: i64) -> Option<Timestamp> {
    let (second, micros) = (value.div_euclid(MICROS), value.rem_euclid(MICROS));
    Timestamp::new(second, i32::try_from(micros * 1000).ok()?).ok()
}

/// The time `by` later, or the last one that a [`Timestamp`] can hold (the first if `by` is negative).
pub fn after(at: Timestamp, by: SignedDuration) -> Timestamp {
    let limit = if by.is_negative() { Timestamp::MIN } else { Timestamp::MAX };
    at.checked_add(by).unwrap_or(limit)
}

/// The time `by` earlier, or the first one that a [`Timestamp`] can hold (the last if `by` is negative).
pub fn before(at: Timestamp, by: SignedDuration) -> Timestamp {
    let limit = if by.is_negative() { Timestamp::MAX } else { Timestamp::MIN };
    at.checked_sub(by).unwrap_or(limit)
}

/// Converts a duration to one that can be compared with the difference between two times.
pub fn signed(duration: std::time::Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// `2026-11-21T10:57:15Z`: Nova, Glance.
pub fn zulu(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `2026-11-21T10:57:15.000000`: Nova's `OS-SRV-USG`, instance actions, services.
pub fn naive(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.000000").to_string()
}

/// `2026-11-21T10:57:15.123456`: Keystone's application credentials, Nova's usage.
pub fn naive_micros(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6f").to_string()
}

/// The first microsecond of a time's second.
pub fn start_of_second(at: Timestamp) -> Timestamp {
    let second = at.as_microsecond().div_euclid(MICROS);
    from_micros(second.saturating_mul(MICROS)).unwrap_or(at)
}

/// The last microsecond of a time's second. Times are shown in seconds, and upstream's database also compares seconds:
/// a resource that is shown as changed at a second does not count as changed after it.
pub fn end_of_second(at: Timestamp) -> Timestamp {
    let second = at.as_microsecond().div_euclid(MICROS);
    let last = second.saturating_mul(MICROS).saturating_add(MICROS - 1);
    from_micros(last).unwrap_or(at)
}

/// `2026-11-21T10:57:15+00:00`: Cyborg.
pub fn offset(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S+00:00").to_string()
}

/// `2026-11-21T10:57:15.000000Z`: Keystone.
pub fn keystone(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// `Sat, 21 Nov 2026 10:57:15 GMT`: HTTP dates.
pub fn http(at: Timestamp) -> String {
    at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// Parses ISO 8601, in UTC unless it has an offset, and truncates to the microsecond.
pub fn parse(text: &str) -> Option<Timestamp> {
    let parsed = text.parse::<Timestamp>().ok().or_else(|| {
        let civil = text.replace(' ', "T").parse::<jiff::civil::DateTime>().ok()?;
        Some(civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
    });
    parsed.map(to_micros)
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::{after, before, end_of_second, from_micros, parse, zulu};

    #[test]
    fn arithmetic_stops_at_the_limits() {
        let now = parse("2026-11-21T10:57:15.5Z").expect("the time is valid");
        assert_eq!(zulu(after(now, SignedDuration::from_secs(60))), "2026-11-21T10:58:15Z");
        assert_eq!(zulu(before(now, SignedDuration::from_secs(16))), "2026-11-21T10:56:59Z");
        assert_eq!(after(now, SignedDuration::MAX), Timestamp::MAX);
        assert_eq!(before(now, SignedDuration::MAX), Timestamp::MIN);
        assert_eq!(after(now, SignedDuration::MIN), Timestamp::MIN);
        assert_eq!(before(now, SignedDuration::MIN), Timestamp::MAX);
        for limit in [Timestamp::MIN, Timestamp::MAX] {
            let read = from_micros(limit.as_microsecond()).expect("the time is valid");
            assert_eq!(read.as_microsecond(), limit.as_microsecond());
        }
        assert_eq!(from_micros(i64::MAX), None);
        assert_eq!(from_micros(i64::MIN), None);
        assert!(end_of_second(Timestamp::MAX) <= Timestamp::MAX);
        assert!(end_of_second(Timestamp::MIN) >= Timestamp::MIN);
    }

    #[test]
    fn clients_write_times_with_an_offset_or_without() {
        let micros = |text| parse(text).map(Timestamp::as_microsecond);
        let expected = Some(1_795_258_635_000_000);
        assert_eq!(micros("2026-11-21T10:57:15Z"), expected);
        assert_eq!(micros("2026-11-21T12:57:15+02:00"), expected);
        assert_eq!(micros("2026-11-21 10:57:15"), expected);
        assert_eq!(micros("2026-11-21T10:57:15.000000999"), expected);
        for text in ["", "yesterday", "9999-12-31T23:59:59Z", "10000-01-01T00:00:00Z"] {
            assert_eq!(micros(text), None, "{text}");
        }
    }

    #[test]
    fn a_second_ends_with_its_last_microsecond() {
        let end = |text| end_of_second(parse(text).expect("the time is valid")).to_string();
        assert_eq!(end("2026-11-21T10:57:15.2Z"), "2026-11-21T10:57:15.999999Z");
        assert_eq!(end("1969-12-31T23:59:58.2Z"), "1969-12-31T23:59:58.999999Z");
    }
}
