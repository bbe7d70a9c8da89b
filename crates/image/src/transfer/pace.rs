//! The minimum rate at which a client must send or receive.
//!
//! The rate is measured over windows, so that a client may pause and catch up. Only the client's time
//! counts: [`Pace::extend`] deducts the time that the service needed.

use std::time::Duration;

use tokio::time::Instant;

/// Minimum rate of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Bytes per second on average; 0 requires only that some data is transferred.
    pub minimum: u64,
    /// The time over which the average is taken.
    pub window: Duration,
}

/// The progress of one transfer.
#[derive(Debug)]
pub(crate) struct Pace {
    rate: Rate,
    end: Instant,
    bytes: u64,
}

impl Pace {
    pub(crate) fn new(rate: Rate) -> Self {
        Self::since(Instant::now(), rate)
    }

    fn since(now: Instant, rate: Rate) -> Self {
        Self { rate, end: now + rate.window, bytes: 0 }
    }

    /// When the current window ends.
    pub(crate) fn end(&self) -> Instant {
        self.end
    }

    /// Records transferred bytes. At the end of a window, begins the next one, or fails if the rate was
    /// too low.
    pub(crate) fn advance(&mut self, bytes: usize, now: Instant) -> Result<(), TooSlow> {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if now < self.end {
            return Ok(());
        }
        let required = self.rate.minimum.saturating_mul(self.rate.window.as_secs().max(1)).max(1);
        if self.bytes < required {
            return Err(TooSlow { bytes: self.bytes, rate: self.rate });
        }
        *self = Self::since(now, self.rate);
        Ok(())
    }

    /// Extends the window by the time that the client waited for the service.
    pub(crate) fn extend(&mut self, waited: Duration) {
        self.end += waited;
    }
}

/// The client is too slow.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error(
    "only {bytes} bytes moved within {} s; the minimum is {} bytes per second",
    rate.window.as_secs(), rate.minimum
)]
pub(crate) struct TooSlow {
    bytes: u64,
    rate: Rate,
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { minimum: 100, window: Duration::from_secs(10) };

    fn pace() -> (Pace, impl Fn(u64) -> Instant) {
        let begin = Instant::now();
        (Pace::since(begin, RATE), move |seconds| begin + Duration::from_secs(seconds))
    }

    #[test]
    fn a_client_may_pause_and_catch_up() {
        let (mut pace, at) = pace();
        assert!(pace.advance(1000, at(9)).is_ok());
        assert!(pace.advance(0, at(10)).is_ok());
        assert!(pace.advance(999, at(19)).is_ok());
        let slow = pace.advance(0, at(20)).unwrap_err().to_string();
        assert_eq!(slow, "only 999 bytes moved within 10 s; the minimum is 100 bytes per second");
    }

    #[test]
    fn time_of_this_side_does_not_count() {
        let (mut pace, at) = pace();
        pace.extend(Duration::from_secs(15));
        assert!(pace.advance(1, at(24)).is_ok());
        assert!(pace.advance(1, at(25)).is_err());
    }

    #[test]
    fn a_minimum_of_zero_requires_progress() {
        let begin = Instant::now();
        let mut pace = Pace::since(begin, Rate { minimum: 0, ..RATE });
        assert!(pace.advance(1, begin + Duration::from_secs(10)).is_ok());
        assert!(pace.advance(0, begin + Duration::from_secs(20)).is_err());
    }
}
