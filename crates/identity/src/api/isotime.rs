//! The timestamps that Keystone accepts in filters: those of `iso8601.parse_date`, which `parse_isotime` of
//! `oslo_utils/timeutils.py` calls. They reach from the year 1 to the end of the year 9999 and may leave out everything
//! after the year, so that [`kilonova_wire::time::parse`] refuses some of them. Only their form matters here.

use jiff::civil::{Date, Time};

/// True for a timestamp that Keystone accepts.
pub(super) fn is_valid(text: &str) -> bool {
    read(text).is_some()
}

fn read(text: &str) -> Option<()> {
    let mut rest = Rest(text);
    let year = rest.digits(4, 4)?;
    let (month, day) = date(&mut rest)?;
    let is_real =
        i16::try_from(year).is_ok_and(|year| year > 0 && Date::new(year, month, day).is_ok());
    if rest.0.is_empty() {
        return is_real.then_some(());
    }
    // A time follows only a whole date.
    if !(rest.skip(' ') || rest.skip('T')) {
        return None;
    }
    clock(&mut rest)?;
    zone(&mut rest)?;
    (is_real && rest.0.is_empty()).then_some(())
}

/// The month and the day, 1 where they are left out. Without dashes the day must be there.
fn date(rest: &mut Rest<'_>) -> Option<(i8, i8)> {
    if rest.0.is_empty() {
        return Some((1, 1));
    }
    if rest.skip('-') {
        // Of three digits, the first one is the month.
        let month = rest.small(1, if rest.count() == 3 { 1 } else { 2 })?;
        if rest.0.is_empty() {
            return Some((month, 1));
        }
        let dashed = rest.skip('-');
        return Some((month, rest.small(if dashed { 1 } else { 2 }, 2)?));
    }
    let month = rest.small(2, 2)?;
    let dashed = rest.skip('-');
    Some((month, rest.small(if dashed { 1 } else { 2 }, 2)?))
}

fn clock(rest: &mut Rest<'_>) -> Option<()> {
    let hour = rest.small(2, 2)?;
    let (mut minute, mut second) = (0, 0);
    // A single digit is the second: the minute has two.
    if rest.after_colon().count() >= 2 {
        rest.skip(':');
        minute = rest.small(2, 2)?;
    }
    if rest.after_colon().count() >= 1 {
        rest.skip(':');
        second = rest.small(1, 2)?;
        if rest.skip('.') || rest.skip(',') {
            rest.digits(1, usize::MAX)?;
        }
    }
    Time::new(hour, minute, second, 0).is_ok().then_some(())
}

/// The offset from UTC, which is less than a day.
fn zone(rest: &mut Rest<'_>) -> Option<()> {
    if rest.0.is_empty() || rest.skip('Z') {
        return Some(());
    }
    if !(rest.skip('+') || rest.skip('-')) {
        return None;
    }
    let hours = rest.digits(2, 2)?;
    rest.skip(':');
    let minutes = if rest.0.is_empty() { 0 } else { rest.digits(2, 2)? };
    (hours * 60 + minutes < 24 * 60).then_some(())
}

/// The part of the text that is not read yet.
struct Rest<'a>(&'a str);

impl Rest<'_> {
    fn skip(&mut self, expected: char) -> bool {
        let rest = self.0.strip_prefix(expected);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// The text after a colon, or all of it if there is none.
    fn after_colon(&self) -> Self {
        Self(self.0.strip_prefix(':').unwrap_or(self.0))
    }

    /// The number of digits that follow.
    fn count(&self) -> usize {
        self.0.bytes().take_while(u8::is_ascii_digit).count()
    }

    /// Reads as many digits as there are, `most` at most. The value of a long fraction does not matter.
    fn digits(&mut self, least: usize, most: usize) -> Option<u32> {
        let count = self.count().min(most);
        let (read, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        let value = read.bytes().fold(0_u32, |value, digit| {
            value.saturating_mul(10).saturating_add(u32::from(digit - b'0'))
        });
        (count >= least).then_some(value)
    }

    fn small(&mut self, least: usize, most: usize) -> Option<i8> {
        i8::try_from(self.digits(least, most)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::is_valid;

    #[test]
    fn every_form_of_upstream_is_accepted() {
        for text in [
            "2016",
            "2016-12",
            "2016-1-2",
            "2016-108",
            "20161208",
            "2016-12-08 22",
            "2016-12-08T22:02",
            "2016-12-08T2202",
            "2016-12-08T22:1",
            "2016-12-08T22:02:00Z",
            "2016-12-08T22:02:00.123456789123456789Z",
            "2016-12-08T22:02:00,5+02:00",
            "2016-12-08T22:02:00-0230",
            "2016-12-08T22:02:00+02",
            "2016-12-08T22:02:00+02:",
            "2016-12-08T22Z",
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
            "9999-12-31T23:59:59-23:59",
        ] {
            assert!(is_valid(text), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "soon",
            "201612",
            "2016-13",
            "2016-02-30",
            "0000-01-01",
            "10000-01-01",
            "2016-12-08T",
            "2016-12-08T24:00:00",
            "2016-12-08T22:02:60Z",
            "2016-12-08T22:02:00.Z",
            "2016-12T22:02",
            "2016-12-08T22:02:00+24:00",
            "2016-12-08T22:02:00Zulu",
            "2016-12-08t22:02:00z",
            "２016",
        ] {
            assert!(!is_valid(text), "{text}");
        }
    }
}
