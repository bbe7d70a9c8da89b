//! Times: stored as microseconds since 1970, formatted in the forms that OpenStack uses.

use jiff::Timestamp;

/// Now, in microseconds since 1970.
pub fn now_micros() -> i64 {
    Timestamp::now().as_microsecond()
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// `2026-11-21T10:57:15Z`: Nova, Glance.
pub fn zulu(micros: i64) -> String {
    at(micros).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `2026-11-21T10:57:15.000000`: Nova's `OS-SRV-USG`, instance actions, services.
pub fn naive(micros: i64) -> String {
    at(micros).strftime("%Y-%m-%dT%H:%M:%S.000000").to_string()
}

/// `2026-11-21T10:57:15.123456`: Keystone's application credentials, Nova's usage.
pub fn naive_micros(micros: i64) -> String {
    at(micros).strftime("%Y-%m-%dT%H:%M:%S.%6f").to_string()
}

/// The last microsecond of a time's second. Times are shown in seconds, and upstream's database
/// compares them so: a resource shown as changed at some second was not changed after it.
pub fn end_of_second(micros: i64) -> i64 {
    micros.saturating_sub(micros.rem_euclid(1_000_000)).saturating_add(999_999)
}

/// `2026-11-21T10:57:15+00:00`: Cyborg.
pub fn offset(micros: i64) -> String {
    at(micros).strftime("%Y-%m-%dT%H:%M:%S+00:00").to_string()
}

/// `2026-11-21T10:57:15.000000Z`: Keystone.
pub fn keystone(micros: i64) -> String {
    at(micros).strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// `Sat, 21 Nov 2026 10:57:15 GMT`: HTTP dates.
pub fn http(micros: i64) -> String {
    at(micros).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// Parses ISO 8601, with an offset or in UTC.
pub fn parse(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(|t| t.as_microsecond()).or_else(|| {
        let civil = text.replace(' ', "T").parse::<jiff::civil::DateTime>().ok()?;
        Some(civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_microsecond())
    })
}
