//! Reports tests that cannot run on this machine.
//!
//! The test harness knows only passed and failed, so a skipped test returns early and prints a line.
//! `scripts/skips.py` reads these lines: `make test` counts such a test as skipped, not as passed.

use std::fmt::Display;

/// Reports that the running test is skipped. The caller returns without a further check.
pub fn skip(reason: impl Display) {
    println!("skipped: {reason}");
}

/// Reports that the running test omits a part, such as one of the databases, and continues with the
/// rest. `make test` prints the reason and counts the test as passed.
pub fn skip_part(reason: impl Display) {
    println!("skipped in part: {reason}");
}
