//! `[rebalance]`: limits of moves, and whether a boot without room waits for them.

use jiff::SignedDuration;
use kilonova_compute_app::rebalance::RebalanceOptions;

use super::File;
use super::compute::number;
use crate::failure::Failure;

const GROUP: &str = "rebalance";

/// The known options.
pub(super) const KNOWN: [(&str, &str); 4] = [
    (GROUP, "max_concurrent_moves"),
    (GROUP, "moves_per_hour"),
    (GROUP, "on_refusal"),
    (GROUP, "wait"),
];

pub(super) fn read(file: &File) -> Result<RebalanceOptions, Failure> {
    let usual = RebalanceOptions::default();
    let wait = number(file, GROUP, "wait", 1, usual.wait.as_secs())?;
    Ok(RebalanceOptions {
        max_concurrent_moves: number(
            file,
            GROUP,
            "max_concurrent_moves",
            0,
            usual.max_concurrent_moves,
        )?,
        moves_per_hour: number(file, GROUP, "moves_per_hour", 0, usual.moves_per_hour)?,
        on_refusal: file.parse(GROUP, "on_refusal", "true or false")?.unwrap_or(usual.on_refusal),
        wait: SignedDuration::from_secs(wait),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::adapter::testing;

    #[test]
    fn limits_are_read_and_nothing_moves_by_itself_unless_the_operator_says_so() {
        let read = |text: &str| testing::read(text, |file, _| read(file));
        assert_eq!(read(""), Ok(RebalanceOptions::default()));
        assert!(!RebalanceOptions::default().on_refusal);
        let text = "[rebalance]\nmax_concurrent_moves = 1\nmoves_per_hour = 6\non_refusal = true\nwait = 30\n";
        let expected = RebalanceOptions {
            max_concurrent_moves: 1,
            moves_per_hour: 6,
            on_refusal: true,
            wait: SignedDuration::from_secs(30),
        };
        assert_eq!(read(text), Ok(expected));
        read("[rebalance]\nwait = 0\n").expect_err("a wait of 0 is refused");
        read("[rebalance]\nmoves_per_hour = -1\n").expect_err("a negative limit is refused");
    }
}
