//! Times and clock differences that many threads read and write without a lock.

use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};

/// A time that only advances, with microsecond precision.
#[derive(Debug)]
pub(crate) struct AtomicTime(AtomicI64);

impl AtomicTime {
    pub fn new(at: Timestamp) -> Self {
        Self(AtomicI64::new(at.as_microsecond()))
    }

    pub fn get(&self) -> Timestamp {
        // The conversion fails only in the final second of jiff's range, which is beyond jiff's limit for microseconds.
        Timestamp::from_microsecond(self.0.load(Ordering::Relaxed)).unwrap_or(Timestamp::MAX)
    }

    /// True if less than `duration` has passed since this time. Several loops ask this of ten thousand hosts each second.
    pub fn is_within(&self, duration: SignedDuration, now: Timestamp) -> bool {
        let passed = now.as_microsecond().saturating_sub(self.0.load(Ordering::Relaxed));
        i128::from(passed) < duration.as_micros()
    }

    /// Sets a later time; an earlier one changes nothing.
    pub fn advance(&self, at: Timestamp) {
        self.0.fetch_max(at.as_microsecond(), Ordering::Relaxed);
    }
}

/// A clock difference, if one is known, with microsecond precision.
#[derive(Debug)]
pub(crate) struct AtomicSkew(AtomicI64);

/// An unknown clock difference.
const UNKNOWN: i64 = i64::MIN;

impl AtomicSkew {
    pub fn unknown() -> Self {
        Self(AtomicI64::new(UNKNOWN))
    }

    pub fn get(&self) -> Option<SignedDuration> {
        Some(self.0.load(Ordering::Relaxed))
            .filter(|micros| *micros != UNKNOWN)
            .map(SignedDuration::from_micros)
    }

    pub fn set(&self, skew: SignedDuration) {
        // The difference of two times in microseconds fits in an `i64`, so the fallback is never used.
        let micros = i64::try_from(skew.as_micros()).unwrap_or(UNKNOWN);
        self.0.store(micros, Ordering::Relaxed);
    }

    pub fn clear(&self) {
        self.0.store(UNKNOWN, Ordering::Relaxed);
    }
}
