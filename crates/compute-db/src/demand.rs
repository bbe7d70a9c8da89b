//! The learned demand: how often each kind of request was made, placed or refused, across all controllers.
//!
//! Weights are in thousandths of a request. They only influence the choice among hosts that fit, so a count that
//! a dying controller loses does no harm. The table is bounded.

use kilonova_store::{Migration, Tx, params};

use crate::Error;

/// The sum of weights above which all weights are halved, so that old requests lose influence.
const FADES_AT: i64 = 10_000 * 1000;

/// Weights below this are deleted.
const LEAST: i64 = 10;

/// Maximum number of kinds of requests in the table.
const MOST: i64 = 512;

/// The table of the demand.
pub const DEMAND: Migration = Migration {
    name: "compute-0740-demand",
    sql: "
CREATE TABLE scheduler_demand (
    request TEXT PRIMARY KEY,
    weight BIGINT NOT NULL
);",
};

kilonova_store::statements! {
    /// Counts requests of one kind.
    COUNT = "INSERT INTO scheduler_demand (request, weight) VALUES (?1, ?2)
        ON CONFLICT (request) DO UPDATE SET weight = scheduler_demand.weight + excluded.weight";
    /// Halves all weights if their sum exceeds a limit.
    FADE = "UPDATE scheduler_demand SET weight = weight / 2
        WHERE (SELECT CAST(SUM(all_of.weight) AS BIGINT) FROM scheduler_demand all_of) > ?1";
    /// Deletes small weights.
    FORGET = "DELETE FROM scheduler_demand WHERE weight < ?1";
    /// Deletes all but the largest weights.
    TRIM = "DELETE FROM scheduler_demand WHERE request NOT IN
        (SELECT kept.request FROM scheduler_demand kept ORDER BY kept.weight DESC, kept.request LIMIT ?1)";
    /// The kinds of requests with their weights.
    ALL = "SELECT request, weight FROM scheduler_demand ORDER BY request";
}

/// Adds counts, in thousandths, and decays the earlier ones.
///
/// # Errors
/// Store errors only.
pub fn count(tx: &mut Tx<'_>, requests: &[(String, i64)]) -> Result<(), Error> {
    for (request, weight) in requests {
        tx.execute(COUNT, params![request, *weight])?;
    }
    tx.execute(FADE, params![FADES_AT])?;
    tx.execute(FORGET, params![LEAST])?;
    tx.execute(TRIM, params![MOST])?;
    Ok(())
}

/// The kinds of requests, with their weights in thousandths.
///
/// # Errors
/// Store errors only.
pub fn all(tx: &mut Tx<'_>) -> Result<Vec<(String, i64)>, Error> {
    let rows = tx.rows(ALL, params![])?;
    rows.iter().map(|row| Ok((row.text("request")?.to_owned(), row.int("weight")?))).collect()
}
